/*
 * A tensor map: describes a tensor in global memory and the box that one tensor copy moves. The
 * driver writes it (cuTensorMapEncodeTiled); kernels take it by value, as a parameter or in their
 * params struct. Included by the host code and, by the generator, by the CUDA source.
 */
#ifndef SMELT_TEMPLATES_TENSOR_MAP_H
#define SMELT_TEMPLATES_TENSOR_MAP_H

/* The attribute is on the member because NVRTC ignores one after the struct. */
struct tensor_map {
    unsigned long long opaque[16] __attribute__((aligned(64)));
};

/* Does not compile if the struct is misaligned, which would fault on the GPU. */
struct tensor_map_alignment {
    char first;
    struct tensor_map map;
};
typedef char tensor_map_is_aligned[sizeof(struct tensor_map_alignment) == 192 ? 1 : -1];

#endif
