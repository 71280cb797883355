/*
 * smelt: tensors in the arguments of operators.
 *
 * A tensor is the address of its first element and its strides. Its shape, element type and meaning
 * are the operator's: the comment at each field of an args struct gives them in C order, last index
 * fastest: "[B,T,H,dqk] bf16".
 *
 * `strides` count elements, one for each dimension but the last, in the shape's order; the last
 * dimension is contiguous. All 0 means packed in C order. If one is nonzero, all are used: a stride
 * of 0 then repeats the tensor along that dimension, which only inputs may do. So [B,T,H,1] takes
 * three strides, and its elements may be anywhere. Entries beyond the tensor's dimensions are 0. A
 * dimension of extent 1 may have any stride, others none below 0. Element offsets are 64-bit.
 *
 * Memory that a call writes, its workspace included, must not overlap other memory that it reads or
 * writes, and no two elements of an output may share an address (INVALID_ARGUMENT, naming both).
 * Tensors may be parts of one buffer if their strides show that they share no byte. All memory must
 * stay valid until the call's work on the stream is complete; the structs need not.
 *
 * Tensors are parts of other structs, so they never change; those structs grow as in
 * smelt/struct.h.
 */
#ifndef SMELT_TENSOR_H
#define SMELT_TENSOR_H

#include <stdint.h>

/* Dimensions that may have a stride. */
enum { SMELT_TENSOR_STRIDES = 4 };

/* An output: device memory that a call writes. */
typedef struct smelt_tensor {
    void *data;                            /* NULL: absent, where the operator allows it */
    int64_t strides[SMELT_TENSOR_STRIDES]; /* in elements; all 0: packed */
} smelt_tensor;

/* An input: device memory that a call reads. */
typedef struct smelt_const_tensor {
    const void *data;                      /* NULL: absent, where the operator allows it */
    int64_t strides[SMELT_TENSOR_STRIDES]; /* in elements; all 0: packed */
} smelt_const_tensor;

#endif
