/*
 * The description of a tensor in global memory and of the box that one tensor copy moves, written
 * by the driver (cuTensorMapEncodeTiled) and passed to a kernel by value, as a whole parameter or
 * inside its params struct. Included by the host code and, by the generator, by the CUDA source.
 */
#ifndef SMELT_TEMPLATES_TENSOR_MAP_H
#define SMELT_TEMPLATES_TENSOR_MAP_H

/* The attribute stands at the member: NVRTC takes no notice of one behind the struct. */
struct tensor_map {
    unsigned long long opaque[16] __attribute__((aligned(64)));
};

/* A misaligned map faults on the GPU; this does not compile. */
struct tensor_map_alignment {
    char first;
    struct tensor_map map;
};
typedef char tensor_map_is_aligned[sizeof(struct tensor_map_alignment) == 192 ? 1 : -1];

#endif
