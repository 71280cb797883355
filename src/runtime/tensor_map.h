/*
 * Tensor maps (TMA descriptors), which kernels get inside their params struct.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/tensor_map.h"
#include "smelt/context.h"

/* The driver's values. */
enum smelt__map_element {
    SMELT__MAP_UINT8 = 0, /* also e4m3 */
    SMELT__MAP_INT32 = 4,
    SMELT__MAP_FP32 = 7,
    SMELT__MAP_BF16 = 9
};
enum smelt__map_swizzle {
    SMELT__MAP_PLAIN = 0,
    SMELT__MAP_SWIZZLE_32 = 1,
    SMELT__MAP_SWIZZLE_64 = 2,
    SMELT__MAP_SWIZZLE_128 = 3
};

enum { SMELT__MAP_DIMENSIONS = 5 };

/* A tensor and the box that one copy moves, contiguous dimension first. Elements outside the tensor
 * read as 0 and are not written. */
struct smelt__tensor_box {
    const void *data; /* device memory, at a multiple of 16 bytes */
    enum smelt__map_element element;
    enum smelt__map_swizzle swizzle;
    int dimensions; /* 1..5 */
    /* In elements. Extents: 1 to 2^32. Strides: multiples of 16 bytes below 2^40; those of a dimension
     * of extent 1, and strides[0], are ignored. */
    int64_t extents[SMELT__MAP_DIMENSIONS], strides[SMELT__MAP_DIMENSIONS];
    int box
        [SMELT__MAP_DIMENSIONS]; /* elements, 1..256; the first dimension's bytes are a multiple of
                                       16, at most the swizzle's width */
};

size_t smelt__map_element_bytes(enum smelt__map_element element);

/* Does not touch the device: legal during stream capture. The caller has called
 * smelt__context_enter. DRIVER when the driver rejects the description. */
smelt_status smelt__tensor_map_make(const smelt_context *context,
                                    const struct smelt__tensor_box *box, struct tensor_map *map);
