/* Undefines the macros of a table's file, at its end (args_table.h). */
#undef ARGS
#undef OF
#undef SYMBOLS
#undef SCALARS
#undef TENSORS
#undef TABLE
#undef TABLES
