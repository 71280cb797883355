/* The end of a table's file (args_table.h): its macros. */
#undef ARGS
#undef OF
#undef SYMBOLS
#undef SCALARS
#undef TENSORS
#undef GRAD_TENSORS
#undef TABLE
#undef TABLES
