/*
 * An operator's tensors as a table, one row each: what the argument checks, the packing of strides
 * and the harness (allocation, poisoning, upload, comparison) know of them. Pure data: compiled
 * into the library and, for the harness, beside it.
 */
#ifndef SMELT_OPS_TENSORS_H
#define SMELT_OPS_TENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "smelt/tensor.h"

enum smelt__element { SMELT__BF16, SMELT__FP32, SMELT__INT32, SMELT__E4M3 };

enum smelt__role {
    SMELT__INPUT,
    SMELT__OUTPUT,     /* overwritten */
    SMELT__ACCUMULATED /* added to: read and written */
};

enum {
    SMELT__MOST_DIMENSIONS = SMELT_TENSOR_STRIDES + 1,
    SMELT__MOST_SYMBOLS = 16, /* extents an operator has */
    SMELT__MOST_TENSORS = 24, /* rows of a table */
    SMELT__ROW_BYTES = 16     /* rows that kernels move whole start at multiples of it */
};

/* The extent of a dimension: number `symbol` of the operator's, by which messages call it. */
struct smelt__symbol {
    const char *letter; /* as shapes are written: "T", "dqk" */
    const char *word;   /* of one step along it: "token" */
};

struct smelt__tensor_row {
    const char *name; /* the field in the args struct */
    size_t field;     /* its offset there: a smelt_tensor, or a smelt_const_tensor for an input */
    enum smelt__element element;
    enum smelt__role role;
    unsigned passes; /* which have it: SMELT_PASS_... */
    int dimensions;
    unsigned char shape[SMELT__MOST_DIMENSIONS]; /* symbols, the contiguous dimension last */
    int optional;                                /* 1: may be NULL. An input without elements always
                                                    may */
    int whole_rows; /* 1: rows are moved SMELT__ROW_BYTES at a time: data and strides are multiples
                       of it */
    int64_t most_stride; /* of the last of its strides, in elements; 0: any */
};

struct smelt__tensor_table {
    const struct smelt__symbol *symbols; /* [symbol_count] */
    int symbol_count;
    const struct smelt__tensor_row *rows; /* [count] */
    int count;
    size_t args_bytes; /* sizeof the operator's args struct */
};

/* Bytes of an element. */
static inline size_t smelt__element_bytes(enum smelt__element element) {
    return element == SMELT__BF16 ? 2 : element == SMELT__E4M3 ? 1 : 4;
}

/* The tensor of a row in an args struct. Inputs and outputs have one layout. */
static inline smelt_tensor *smelt__tensor_of(const struct smelt__tensor_row *row, void *args) {
    return (smelt_tensor *)(void *)((char *)args + row->field);
}

static inline const smelt_tensor *smelt__tensor_in(const struct smelt__tensor_row *row,
                                                   const void *args) {
    return (const smelt_tensor *)(const void *)((const char *)args + row->field);
}

/* Puts packed strides where all of a tensor's are 0. extents[symbol]: not negative. */
void smelt__tensor_pack(const struct smelt__tensor_row *row, const int64_t *extents,
                        smelt_tensor *tensor);

#endif
