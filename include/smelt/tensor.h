/*
 * smelt: tensors in the arguments of operators.
 *
 * A tensor is where its first element stands and how far apart its elements are. Its shape, element
 * type and meaning are the operator's: each args struct says them at the field, in C order, the
 * last index fastest: "[B,T,H,dqk] bf16".
 *
 * `strides` count elements: one for each dimension but the last, in the shape's order; the last
 * dimension is contiguous. All of them 0 means packed in C order; where one is not 0, all of them
 * count: a stride of 0 then repeats what it steps over, which only inputs may do. So [B,T,H,1]
 * takes three, and its numbers may lie anywhere. Entries past the tensor's dimensions are 0. A
 * dimension of extent 1 may have any stride, another none below 0. Element offsets are 64-bit.
 *
 * What a call writes, its workspace included, must not overlap what it reads nor what else it
 * writes, and no two elements of an output may lie in one place: refused (INVALID_ARGUMENT, naming
 * both). Tensors may be parts of one buffer where their strides show that they share no byte. All
 * memory must stay until the call's work on the stream is done; the structs need not.
 *
 * Tensors stand inside other structs, so they never change; those others grow as smelt/struct.h
 * says.
 */
#ifndef SMELT_TENSOR_H
#define SMELT_TENSOR_H

#include <stdint.h>

enum { SMELT_TENSOR_STRIDES = 4 };

/* An output: device memory that a call writes. */
typedef struct smelt_tensor {
    void *data; /* NULL: not given, where the operator says that is legal */
    int64_t strides[SMELT_TENSOR_STRIDES];
} smelt_tensor;

/* An input: device memory that a call reads. */
typedef struct smelt_const_tensor {
    const void *data;
    int64_t strides[SMELT_TENSOR_STRIDES];
} smelt_const_tensor;

#endif
