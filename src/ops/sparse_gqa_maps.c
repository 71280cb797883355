/* See sparse_gqa_maps.h. */
#include "ops/sparse_gqa_maps.h"

#include "runtime/tensor_map.h"

enum {
    ELEMENT = 2, /* bytes */
    MAP_COLUMNS = 64,
};

smelt_status smelt__gqa_map_make(const smelt_context *context,
                                 const struct smelt__gqa_map_source *source,
                                 struct tensor_map *map) {
    const int64_t extents[] = {source->heads, source->rows, source->batches};
    const int boxes[] = {source->box_heads, source->box_rows, 1};
    struct smelt__tensor_box box = {
        .data = source->tensor->data,
        .element = SMELT__MAP_BF16,
        .swizzle = SMELT__MAP_SWIZZLE_128,
        .dimensions = 4,
        .extents = {(uint64_t)source->columns},
        .box = {MAP_COLUMNS},
    };
    for (int i = 0; i < 3; i++) {
        const int number = 2 - i; /* of the stride */
        const int64_t stride =
            extents[i] > 1 ? source->tensor->strides[number] : SMELT__ROW_BYTES / ELEMENT;
        const smelt_status status =
            smelt__check_map_stride(source->name, number, stride, ELEMENT, "variant=mma");
        if (status != SMELT_OK)
            return status;
        box.extents[i + 1] = (uint64_t)extents[i];
        box.strides[i + 1] = (uint64_t)(stride * ELEMENT);
        box.box[i + 1] = (uint32_t)boxes[i];
    }
    return smelt__tensor_map_make(context, &box, map);
}

smelt_status smelt__gqa_source_make(const smelt_context *context,
                                    const struct smelt__gqa_map_source *source,
                                    struct gqa_block_source *block) {
    *block = (struct gqa_block_source){
        .data = source->tensor->data,
        .batch_stride = source->tensor->strides[0],
        .row_stride = source->tensor->strides[1],
        .head_stride = source->tensor->strides[2],
    };
    return smelt__gqa_map_make(context, source, &block->map);
}
