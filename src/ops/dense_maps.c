/* See dense_maps.h. */
#include "ops/dense_maps.h"

#include "runtime/log.h"
#include "runtime/tensor_map.h"

enum {
    ELEMENT = 2, /* bytes */
    MAP_COLUMNS = 64
};

smelt_status smelt__dense_maps_check(const struct smelt__dense_operands *operands,
                                     const char *knob) {
    const size_t step = ELEMENT * (size_t)operands->group; /* of heads, one of a map's */
    const struct {
        const char *name;
        int number;
        int64_t count, stride;
        size_t element;
    } strides[] = {
        {"q", 0, operands->tokens, operands->q.strides[0], ELEMENT},
        {"q", 1, (int64_t)operands->kv_heads * operands->group, operands->q.strides[1], step},
        {"k", 0, operands->rows, operands->k.strides[0], ELEMENT},
        {"k", 1, operands->kv_heads, operands->k.strides[1], ELEMENT},
    };
    for (size_t i = 0; i < sizeof strides / sizeof *strides; i++)
        if (strides[i].count > 1)
            SMELT__TRY(smelt__check_map_stride(strides[i].name, strides[i].number,
                                               strides[i].stride, strides[i].element, knob));
    return SMELT_OK;
}

/* As [rows, key heads, `group` heads, dqk]. */
static smelt_status make(const smelt_context *context, const struct smelt__dense_operands *operands,
                         const smelt_const_tensor *tensor, int group, int box_heads, int64_t rows,
                         int box_rows, struct tensor_map *map) {
    const int64_t head = tensor->strides[1];
    const struct smelt__tensor_box box = {
        .data = tensor->data,
        .element = SMELT__MAP_BF16,
        .swizzle = SMELT__MAP_SWIZZLE_128,
        .dimensions = 4,
        .extents = {operands->dqk, group, operands->kv_heads, rows},
        .strides = {0, head, group * head, tensor->strides[0]},
        .box = {MAP_COLUMNS, box_heads, 1, box_rows},
    };
    return smelt__tensor_map_make(context, &box, map);
}

smelt_status smelt__dense_maps_make(const smelt_context *context,
                                    const struct smelt__dense_operands *operands,
                                    struct tensor_map *q_map, struct tensor_map *k_map) {
    SMELT__TRY(make(context, operands, &operands->q, operands->group, operands->box_heads,
                    operands->tokens, operands->box_queries, q_map));
    return make(context, operands, &operands->k, 1, 1, operands->rows, operands->box_keys, k_map);
}
