/*
 * What the calls of an operator take, as tables: one for each args struct of the public headers.
 * A table names the struct's tensors and numbers, and the extents that shapes are made of. From it
 * follow the checks of arguments, the packing of strides, smelt/operator.h's descriptions, and the
 * harness's memory (allocation, poisoning, upload, comparison). Pure data: compiled into the
 * library and, for the harness, beside it.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "smelt/operator.h"
#include "smelt/tensor.h"

/* As the public enums number them. */
enum smelt__element {
    SMELT__BF16 = SMELT_ELEMENT_BF16,
    SMELT__FP32 = SMELT_ELEMENT_FP32,
    SMELT__INT32 = SMELT_ELEMENT_INT32,
    SMELT__E4M3 = SMELT_ELEMENT_E4M3
};
enum smelt__role {
    SMELT__INPUT = SMELT_ROLE_INPUT,
    SMELT__OUTPUT = SMELT_ROLE_OUTPUT,          /* overwritten */
    SMELT__ACCUMULATED = SMELT_ROLE_ACCUMULATED /* added to: read and written */
};

enum {
    SMELT__MOST_DIMENSIONS = SMELT_TENSOR_STRIDES + 1,
    SMELT__MOST_SYMBOLS = 16, /* extents an operator has */
    SMELT__MOST_TENSORS = 24, /* rows of a table */
    SMELT__MOST_SCALARS = 16,
    SMELT__MOST_ARGS_BYTES = 1536,
    SMELT__ROW_BYTES = 16,           /* rows that kernels move whole start at multiples of it */
    SMELT__WORKSPACE_ALIGNMENT = 256 /* bytes: of a workspace, and of each array in it */
};

/* The extent of a dimension: `plus`, and the number that the spec or the arguments give, times that of
 * another symbol, then divided by that of a third one and rounded up. */
struct smelt__symbol {
    const char *letter; /* as shapes are written: "T", "dqk" */
    const char *word;   /* of one step along it: "token" */
    const char *key;    /* of the spec; NULL: none */
    const char *when;   /* another key of the spec: the extent is 1 if its value is 0; NULL: none */
    size_t field;       /* in the args struct, an int64_t; 0: none */
    int plus;
    unsigned char per;   /* the divisor: a symbol by a key; 0: none */
    unsigned char times; /* the factor, likewise */
};

struct smelt__tensor_row {
    const char *name; /* the field in the args struct */
    size_t field;     /* its offset there: a smelt_tensor, or a smelt_const_tensor for an input */
    enum smelt__element element;
    enum smelt__role role;
    int dimensions;
    unsigned char shape[SMELT__MOST_DIMENSIONS]; /* symbols, the contiguous dimension last */
    int optional;                                /* 1: may be NULL. An input without elements always
                                                    may */
    const char *key; /* legal only with this key of the spec above 0; required then, unless
                        optional. NULL: no such rule */
    int one_of;      /* above 0: of the tensors with this number exactly one is given, unless they
                        have no elements */
    int whole_rows;  /* 1: rows are moved SMELT__ROW_BYTES at a time: data and strides are multiples
                        of it */
    int may_be_nan;  /* 1: NaN is a legal element of this bf16 output, but never 0xffff */
    int64_t most_stride; /* of the last of its strides, in elements; 0: any */
};

/* A number in the args struct. The range of an integer; a float's the operator checks. */
struct smelt__scalar_row {
    const char *name;
    size_t field;
    enum smelt_scalar_type type;
    int64_t least, most;
    const char *most_key; /* a key of the spec that bounds it instead; NULL: none */
    const char *unless;   /* a key of the spec with which `most` bounds it after all; NULL: none */
    int64_t zero;         /* what 0 stands for, where that is another number */
};

/* A key of the spec that decides which of several tables a spec has: if its value exceeds `above`, the table's number
 * is `step` higher, unless the value of the key `unless` (NULL: none) exceeds 0. */
struct smelt__table_key {
    const char *key; /* NULL ends a list */
    int above, step;
    const char *unless;
};

struct smelt__args_table {
    const char *type;                    /* "smelt_sparse_attn_args" */
    const char *initialiser;             /* "SMELT_SPARSE_ATTN_ARGS_INIT" */
    size_t bytes;                        /* its sizeof */
    size_t first_bytes;                  /* the same of its first version */
    const struct smelt__symbol *symbols; /* [symbol_count] */
    int symbol_count;
    const struct smelt__tensor_row *rows; /* [count] */
    int count;
    const struct smelt__scalar_row *scalars; /* [scalar_count], in the order of the checks */
    int scalar_count;
    size_t workspace, workspace_bytes; /* fields; 0: no call needs any */
    size_t workspace_alignment;
    size_t partition, partition_bytes; /* fields of a forward call's workspace; 0: none */
    const struct smelt__table_key
        *by;               /* the keys that choose among several tables; NULL: there is one table */
    const char *flattened; /* the letter of a symbol that bindings may let stand for several
                              dimensions; NULL: none */
};

/* ---- rows, short ------------------------------------------------------------------------------
 * A table's file defines ARGS, the struct, OF(name), a row's number, and the lists SYMBOLS and TENSORS.
 * It ends with ops/args_table_end.h. */

#define SMELT__SHAPE(...)                                                                          \
    .dimensions = sizeof((const unsigned char[]){__VA_ARGS__}), .shape = {__VA_ARGS__}
#define SMELT__TENSOR(tensor, type, role_, ...)                                                    \
    .name = #tensor, .field = offsetof(ARGS, tensor), .element = SMELT__##type,                    \
    .role = SMELT__##role_, SMELT__SHAPE(__VA_ARGS__)
#define SMELT__SCALAR(scalar, type_, least_, most_)                                                \
    .name = #scalar, .field = offsetof(ARGS, scalar), .type = SMELT_SCALAR_##type_,                \
    .least = (least_), .most = (most_)
#define SMELT__BY_ARGS(letter_, word_, scalar)                                                     \
    .letter = (letter_), .word = (word_), .field = offsetof(ARGS, scalar)
#define SMELT__BY_KEY(letter_, word_, key_) .letter = (letter_), .word = (word_), .key = (key_)
/* The same, divided by symbol number `per_` or times symbol number `times_`. */
#define SMELT__BY_ARGS_PER(letter_, word_, scalar, per_)                                           \
    SMELT__BY_ARGS(letter_, word_, scalar), .per = (per_)
#define SMELT__BY_ARGS_TIMES(letter_, word_, scalar, times_)                                       \
    SMELT__BY_ARGS(letter_, word_, scalar), .times = (times_)
#define SMELT__ONE_ELEMENT .letter = "1", .word = "element", .plus = 1
/* A file's list of rows, ROW(name, its fields), becomes an enum of the rows' numbers (GRAD_NUMBER: in a
 * backward pass, whose names begin with GRAD_) and, in the same order, the elements of a table. */
#define SMELT__NUMBER(name, ...) OF(name),
#define SMELT__GRAD_NUMBER(name, ...) OF(GRAD_##name),
#define SMELT__ROW(name, ...) {__VA_ARGS__},
/* Rows that several tables have: the extents, numbers and query list of attention over lists. `most`: the limit of
 * `width` with buckets; without, it is topk. */
#define SMELT__LISTS_EXTENTS(ROW)                                                                  \
    ROW(B, SMELT__BY_ARGS("B", "batch", batches))                                                  \
    ROW(T, SMELT__BY_ARGS("T", "token", tokens))                                                   \
    ROW(S, SMELT__BY_ARGS("S", "row", rows))                                                       \
    ROW(WIDTH, SMELT__BY_ARGS("width", "slot", width))                                             \
    ROW(LISTED, SMELT__BY_ARGS("query_capacity", "entry", query_capacity))                         \
    ROW(ONE, SMELT__ONE_ELEMENT)
#define SMELT__LISTS_NUMBERS(most)                                                                 \
    {SMELT__SCALAR(batches, INT64, 0, INT32_MAX), .zero = 1},                                      \
        {SMELT__SCALAR(tokens, INT64, 0, INT32_MAX)}, {SMELT__SCALAR(rows, INT64, 0, INT32_MAX)},  \
        {SMELT__SCALAR(width, INT64, 1, most), .most_key = "topk", .unless = "buckets"},           \
        {SMELT__SCALAR(free_multiprocessors, INT, 0, INT32_MAX)},                                  \
        {SMELT__SCALAR(query_capacity, INT64, 0, INT32_MAX)}, {                                    \
        SMELT__SCALAR(scale, FLOAT, 0, 0)                                                          \
    }
#define SMELT__QUERY_LIST(ROW, listed, one)                                                        \
    ROW(QUERIES, SMELT__TENSOR(queries, INT32, INPUT, listed), .optional = 1)                      \
    ROW(QUERY_COUNT, SMELT__TENSOR(query_count, INT32, INPUT, one), .optional = 1)
/* A gradient of keys or values in one of three forms: bf16, fp32, or added to an fp32 tensor. `...`: its shape. */
#define SMELT__KEY_GRADS(ROW, NAME, name, number, ...)                                             \
    ROW(NAME, SMELT__TENSOR(name, BF16, OUTPUT, __VA_ARGS__), .whole_rows = 1, .one_of = number)   \
    ROW(NAME##_FP32, SMELT__TENSOR(name##_fp32, FP32, OUTPUT, __VA_ARGS__), .whole_rows = 1,       \
        .one_of = number)                                                                          \
    ROW(NAME##_SUM, SMELT__TENSOR(name##_sum, FP32, ACCUMULATED, __VA_ARGS__), .whole_rows = 1,    \
        .one_of = number)
/* Arrays made of a file's lists, SYMBOLS and TENSORS with these arguments, and of rows of numbers. */
#define SMELT__SYMBOLS ((const struct smelt__symbol[]){SYMBOLS(SMELT__ROW)})
#define SMELT__ROWS(...) ((const struct smelt__tensor_row[]){TENSORS(SMELT__ROW, __VA_ARGS__)})
#define SMELT__SCALARS(...) ((const struct smelt__scalar_row[]){__VA_ARGS__})
/* `last`: the last field that the first released version had. */
#define SMELT__ARGS(init, last, symbols_, scalars_, rows_)                                         \
    .type = SMELT__ARGS_NAME(ARGS), .initialiser = (init),                                         \
    .bytes = SMELT__AT_MOST(sizeof(ARGS), SMELT__MOST_ARGS_BYTES),                                 \
    .first_bytes = offsetof(ARGS, last) + sizeof(((ARGS *)0)->last), .symbols = (symbols_),        \
    .symbol_count = SMELT__AT_MOST(SMELT__LENGTH(symbols_), SMELT__MOST_SYMBOLS), .rows = (rows_), \
    .count = SMELT__AT_MOST(SMELT__LENGTH(rows_), SMELT__MOST_TENSORS), .scalars = (scalars_),     \
    .scalar_count = SMELT__AT_MOST(SMELT__LENGTH(scalars_), SMELT__MOST_SCALARS)
#define SMELT__TABLE_BY(...)                                                                       \
    .by = (const struct smelt__table_key[]) {                                                      \
        __VA_ARGS__, {                                                                             \
            .key = NULL                                                                            \
        }                                                                                          \
    }
#define SMELT__LENGTH(array) (sizeof(array) / sizeof *(array))
/* `count`, which does not compile above `most`. */
#define SMELT__AT_MOST(count, most)                                                                \
    ((count) + 0 * sizeof(struct {                                                                 \
                   _Static_assert((count) <= (size_t)(most), "more than " #most);                  \
                   char unused;                                                                    \
               }))
#define SMELT__ARGS_NAME(type) SMELT__ARGS_TEXT(type)
#define SMELT__ARGS_TEXT(type) #type
#define SMELT__WORKSPACE(alignment)                                                                \
    .workspace = offsetof(ARGS, workspace), .workspace_bytes = offsetof(ARGS, workspace_bytes),    \
    .workspace_alignment = (alignment)

/* ---- reading ---------------------------------------------------------------------------------- */

/* Bytes of an element. */
static inline size_t smelt__element_bytes(enum smelt__element element) {
    return element == SMELT__BF16 ? 2 : element == SMELT__E4M3 ? 1 : 4;
}

/* "bf16". */
static inline const char *smelt__element_name(enum smelt__element element) {
    static const char *const names[] = {[SMELT__BF16] = "bf16",
                                        [SMELT__FP32] = "fp32",
                                        [SMELT__INT32] = "int32",
                                        [SMELT__E4M3] = "e4m3"};
    return names[element];
}

/* Whether a tensor may be NULL in some call or other. */
static inline int smelt__may_be_absent(const struct smelt__tensor_row *row) {
    return row->optional || row->key || row->one_of;
}

/* The extent that a spec gives a symbol that names a key. `key`, `when`: the values of the keys that the
 * symbol's fields of these names name. */
static inline int64_t smelt__symbol_extent(const struct smelt__symbol *symbol, int64_t key,
                                           int64_t when) {
    return symbol->when && when == 0 ? 1 : key;
}

/* The tensor of a row in an args struct. Inputs and outputs have one layout. */
static inline smelt_tensor *smelt__tensor_of(const struct smelt__tensor_row *row, void *args) {
    return (smelt_tensor *)(void *)((char *)args + row->field);
}

static inline const smelt_tensor *smelt__tensor_in(const struct smelt__tensor_row *row,
                                                   const void *args) {
    return (const smelt_tensor *)(const void *)((const char *)args + row->field);
}

/* The number of a spec's table. `value` returns the value of a key of the spec. */
int smelt__table_number(const struct smelt__args_table *tables,
                        int64_t (*value)(const void *spec, const char *key), const void *spec);

/* The extents that follow from the arguments. Those of the spec's keys are given and stay as they
 * are. */
void smelt__args_extents(const struct smelt__args_table *table, const void *args, int64_t *extents);

/* Puts packed strides where all of a tensor's are 0. extents[symbol]: not negative. */
void smelt__tensor_pack(const struct smelt__tensor_row *row, const int64_t *extents,
                        smelt_tensor *tensor);
