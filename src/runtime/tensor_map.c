/* See tensor_map.h. */
#include "runtime/tensor_map.h"

#include "runtime/context.h"

enum { NO_INTERLEAVE = 0, PROMOTE_256 = 3, FILL_ZEROS = 0 };

smelt_status smelt__tensor_map_make(const smelt_context *context,
                                    const struct smelt__tensor_box *box, struct tensor_map *map) {
    static const unsigned every_element[SMELT__MAP_DIMENSIONS] = {1, 1, 1, 1, 1};
    const struct smelt__driver *driver = context->driver;
    CUresult result = driver->cuTensorMapEncodeTiled(
        (CUtensorMap *)(void *)map, (int)box->element, (unsigned)box->dimensions,
        (void *)(uintptr_t)box->data, box->extents, box->strides + 1, box->box, every_element,
        NO_INTERLEAVE, (int)box->swizzle, PROMOTE_256, FILL_ZEROS);
    return result == CUDA_SUCCESS ? SMELT_OK
                                  : smelt__driver_fail(driver, "cuTensorMapEncodeTiled", result);
}
