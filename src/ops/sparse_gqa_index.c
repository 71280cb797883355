/* Common to both passes of sparse_gqa: the fields that follow from the spec and the call, the reverse index of
 * the lists, and the launches of block-stationary kernels, which process the queries in chunks. */
#include "ops/sparse_gqa.h"

#include <inttypes.h>

#include "ops/divide.h"
#include "ops/split_sizes.h"
#include "runtime/log.h"

#define MOST_ROWS (INT64_C(1) << 40) /* of all batches: no size of the workspace overflows */

enum {
    MOST_COUNTS = 1 << 26,    /* beyond, chunks are longer */
    MOST_NUMBER = 0x7fff0000, /* of a list or pair */
    /* In hundredths. Computing a block for a part of 64 rows takes as long as 2.5 pairs, whose
     * partial results are written and read; above this limit uniting is slower. */
    MOST_TILE_COST = 40
};

smelt_status smelt__gqa_begin(struct smelt__gqa *gqa, int main) {
    const struct smelt__attention_call *const fields = &gqa->fields;
    SMELT__TRY(smelt__attention_check_queries(fields));
    SMELT__TRY(smelt__attention_check_rows(fields, MOST_ROWS, "2^40", "k"));
    gqa->kernels = smelt__operator_kernels(gqa->call->op, gqa->call->pass->pass);
    gqa->launch = smelt__sparse_gqa_launch(&gqa->kernels[main]->plan);
    gqa->shape = smelt__sparse_gqa_shape(&gqa->call->op->spec);
    gqa->queries = gqa->chunk = smelt__attention_count_queries(fields);
    gqa->index.groups = gqa->shape.lists;
    gqa->index.granularity = gqa->shape.granularity;
    gqa->index.blocks = (int)smelt__divide_up(fields->rows, gqa->shape.granularity);
    gqa->lists = fields->batches * gqa->shape.lists * gqa->index.blocks;
    return SMELT_OK;
}

void *smelt__gqa_take(struct smelt__gqa *gqa, int64_t count, size_t bytes) {
    return (void *)((uintptr_t)gqa->workspace + smelt__workspace_place(&gqa->bytes, count, bytes));
}

struct gqa_lists_params smelt__gqa_lists(const struct smelt__attention_call *fields,
                                         const smelt_const_tensor *limit) {
    return (struct gqa_lists_params){.limit = limit->data,
                                     .limit_batch_stride = limit->strides[0],
                                     .limit_token_stride = limit->strides[1],
                                     .indices_group_stride = fields->indices->strides[2],
                                     .topk_length_group_stride = fields->topk_length->strides[2]};
}

smelt_status smelt__gqa_check(struct smelt__gqa *gqa, struct smelt__call *call) {
    SMELT__TRY(smelt__call_check(call, gqa->bytes, NULL, 0));
    SMELT__TRY(smelt__operator_check_grid(call->op, call->pass->pass, gqa->queries));
    gqa->index.work = smelt__attention_work(&gqa->fields, gqa->queries);
    gqa->index.lists = smelt__gqa_lists(&gqa->fields, gqa->limit);
    return SMELT_OK;
}

/* ---- the reverse index ----------------------------------------------------------------------- */

smelt_status smelt__gqa_place_index(struct smelt__gqa *gqa, int segment, int tile_entries) {
    struct sparse_gqa_lists_params *const index = &gqa->index;
    const int64_t slots = gqa->chunk * index->groups * gqa->fields.width;
    const size_t number = sizeof(int);
    int64_t entries = SMELT__SPLIT_INDEX_CHUNK;
    if (gqa->lists > MOST_NUMBER || slots > MOST_NUMBER)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "%" PRId64 " lists of blocks and %" PRId64
                           " slots are too many for one call; at most %d of each",
                           gqa->lists, slots, MOST_NUMBER);
    while (smelt__divide_up(gqa->chunk, entries) * gqa->lists > MOST_COUNTS && entries < gqa->chunk)
        entries *= 2;
    index->chunk_entries = (int)entries;
    index->segment = segment;
    index->tile_entries = tile_entries;
    index->part_entries = tile_entries / SMELT__GQA_CONSUMERS;
    index->most_tile_cost = MOST_TILE_COST;
    index->counts =
        smelt__gqa_take(gqa, smelt__divide_up(gqa->chunk, entries) * gqa->lists, number);
    index->starts = smelt__gqa_take(gqa, gqa->lists + 1, number);
    index->items = smelt__gqa_take(gqa, gqa->lists + 1, number);
    if (gqa->call->pass->pass == SMELT_PASS_BACKWARD)
        index->queries = smelt__gqa_take(gqa, slots, number);
    if (gqa->launch->segment > 0) { /* block-stationary */
        index->pairs = smelt__gqa_take(gqa, slots, 2 * number);
        index->places = smelt__gqa_take(gqa, slots, number);
        index->order = smelt__gqa_take(gqa, gqa->lists + slots / segment, 2 * number);
    }
    if (tile_entries) {
        const int64_t count = smelt__divide_up(gqa->chunk, tile_entries) * index->groups;
        index->tiles = smelt__gqa_take(gqa, count, number);
        index->united = smelt__gqa_take(gqa, count * tile_entries * gqa->fields.width, 4 * number);
        if (gqa->lists == 0) /* no pass writes tiles */
            index->tiles = index->united = NULL;
    }
    return SMELT_OK;
}

int smelt__gqa_next_chunk(struct smelt__gqa *gqa) {
    gqa->index.first += gqa->index.entries;
    const int64_t left = gqa->queries - gqa->index.first;
    gqa->index.entries = (int)(left < gqa->chunk ? left : gqa->chunk);
    return left > 0;
}

smelt_status smelt__gqa_launch_index(const struct smelt__gqa *gqa, int first) {
    struct sparse_gqa_lists_params params = gqa->index;
    if (gqa->lists == 0)
        return smelt__fill_async(
            gqa->call->op->context, params.places, UINT32_MAX,
            (size_t)(params.entries * (int64_t)params.groups * gqa->fields.width),
            gqa->call->stream);
    params.chunks = (int)smelt__divide_up(params.entries, params.chunk_entries);
    const int64_t parts = (int64_t)params.chunks * params.groups *
                          smelt__divide_up(gqa->lists / params.groups, SMELT__GQA_LISTS_AT_ONCE);
    for (int i = SMELT__GQA_LISTS_COUNT; i <= SMELT__GQA_LISTS_FILL; i++)
        SMELT__TRY(
            smelt__gqa_launch_all(gqa, first + i, i == SMELT__GQA_LISTS_SCAN ? 1 : parts, &params));
    return SMELT_OK;
}

/* ---- block-stationary kernels ---------------------------------------------------------------- */

void smelt__gqa_split(struct smelt__gqa *gqa, size_t unit_bytes) {
    gqa->units = (int64_t)gqa->shape.kv_heads * gqa->shape.units;
    const int64_t bytes = (int64_t)unit_bytes * gqa->units * gqa->fields.width;
    const int64_t most = ((int64_t)SMELT__SPLIT_PARTIAL_KIB << 10) / bytes;
    const int64_t chunks = smelt__divide_up(gqa->queries, most > 0 ? most : 1);
    gqa->chunk = chunks > 0 ? smelt__divide_up(gqa->queries, chunks) : 0;
}

smelt_status smelt__gqa_query_map(const struct smelt__gqa *gqa, const char *name,
                                  const smelt_const_tensor *tensor, int columns,
                                  struct tensor_map *map) {
    const int64_t extents[] = {gqa->fields.batches, gqa->fields.tokens, gqa->shape.heads, columns};
    return smelt__make_map(gqa->call->op->context, name, tensor, 4, extents, gqa->launch->box_heads,
                           1, "variant=mma", map);
}

/* k or v, in boxes of a block's rows. */
static smelt_status make_source(const struct smelt__gqa *gqa, const char *name,
                                const smelt_const_tensor *tensor, int columns,
                                struct gqa_block_source *source) {
    const int64_t extents[] = {gqa->fields.batches, gqa->fields.rows, gqa->shape.kv_heads, columns};
    *source = (struct gqa_block_source){
        .data = tensor->data,
        .batch_stride = tensor->strides[0],
        .row_stride = tensor->strides[1],
        .head_stride = tensor->strides[2],
    };
    return smelt__make_map(gqa->call->op->context, name, tensor, 4, extents, 1,
                           gqa->shape.granularity, "variant=mma", &source->map);
}

smelt_status smelt__gqa_sources(const struct smelt__gqa *gqa, struct gqa_items_params *items,
                                struct tensor_map *q_map, struct gqa_block_source *k,
                                struct gqa_block_source *v) {
    *items = (struct gqa_items_params){.starts = gqa->index.starts,
                                       .items = gqa->index.items,
                                       .order = gqa->index.order,
                                       .pairs = gqa->index.pairs,
                                       .lists = (int)gqa->lists,
                                       .blocks = gqa->index.blocks,
                                       .tokens = (int)gqa->fields.tokens,
                                       .rows = (int)gqa->fields.rows};
    SMELT__TRY(smelt__gqa_query_map(gqa, "q", gqa->q, gqa->shape.dqk, q_map));
    SMELT__TRY(make_source(gqa, "k", gqa->k, gqa->shape.dqk, k));
    return make_source(gqa, "v", gqa->v, gqa->shape.dv, v);
}
