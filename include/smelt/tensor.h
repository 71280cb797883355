/*
 * smelt: tensors in the arguments of operators, and how public structs grow.
 *
 * A tensor is where its first element stands and how far apart its elements are. Its shape, element
 * type and meaning are the operator's: each args struct says them at the field, in C order, the
 * last index fastest: "[B,T,H,dqk] bf16".
 *
 * `strides` count elements: one for each dimension but the last, in the shape's order; the last
 * dimension is contiguous. All of them 0 means packed in C order. Entries past the tensor's
 * dimensions stay 0. A dimension of extent 1 may have any stride. A stride of 0 beside others that
 * are not repeats what it steps over, which only inputs may do. Element offsets are 64-bit.
 *
 * How public structs grow. Each begins with `size`, which its initialiser macro sets to the sizeof
 * the caller was compiled with. Later versions add fields at the end, and 0 in a field always means
 * its default, so:
 *   - a caller built against an older header gives a shorter struct: the fields it lacks have their
 *     defaults; of a struct that the library fills, it fills what the caller has and writes no byte
 *     beyond;
 *   - a caller built against a newer header gives a longer one: it is taken when all that this
 *     library does not know is 0, and refused otherwise (INVALID_ARGUMENT, naming both sizes);
 *   - a size of 0, or one that no version ever had, is refused: the struct was not initialised.
 * Nested structs (smelt_tensor) never change.
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
