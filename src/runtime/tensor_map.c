/* See tensor_map.h. */
#include "runtime/tensor_map.h"

#include "runtime/context.h"

enum { NO_INTERLEAVE = 0, PROMOTE_256 = 3, FILL_ZEROS = 0, LEAST_STRIDE = 16 /* bytes */ };

size_t smelt__map_element_bytes(enum smelt__map_element element) {
    return element == SMELT__MAP_UINT8 ? 1 : element == SMELT__MAP_BF16 ? 2 : 4;
}

smelt_status smelt__tensor_map_make(const smelt_context *context,
                                    const struct smelt__tensor_box *box, struct tensor_map *map) {
    static const unsigned every_element[SMELT__MAP_DIMENSIONS] = {1, 1, 1, 1, 1};
    const struct smelt__driver *driver = context->driver;
    unsigned long long extents[SMELT__MAP_DIMENSIONS], strides[SMELT__MAP_DIMENSIONS];
    uint32_t boxes[SMELT__MAP_DIMENSIONS];
    for (int i = 0; i < box->dimensions; i++) {
        extents[i] = (unsigned long long)box->extents[i];
        strides[i] = box->extents[i] > 1 ? (unsigned long long)box->strides[i] *
                                               smelt__map_element_bytes(box->element)
                                         : LEAST_STRIDE;
        boxes[i] = (uint32_t)box->box[i];
    }
    CUresult result = driver->cuTensorMapEncodeTiled(
        (CUtensorMap *)(void *)map, (int)box->element, (unsigned)box->dimensions,
        (void *)(uintptr_t)box->data, extents, strides + 1, boxes, every_element, NO_INTERLEAVE,
        (int)box->swizzle, PROMOTE_256, FILL_ZEROS);
    return result == CUDA_SUCCESS ? SMELT_OK
                                  : smelt__driver_fail(driver, "cuTensorMapEncodeTiled", result);
}
