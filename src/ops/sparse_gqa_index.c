/* The reverse index of sparse_gqa's lists: its arrays in the workspace, and its launch. */
#include "ops/sparse_gqa.h"

#include <inttypes.h>

#include "codegen/families/sparse_gqa_lists.h"
#include "ops/cuts.h"
#include "ops/divide.h"
#include "ops/key_grads.h"
#include "runtime/log.h"

enum {
    MOST_COUNTS = 1 << 26,    /* beyond, chunks are longer */
    MOST_NUMBER = 0x7fff0000, /* of a list or pair */
    /* In hundredths. Computing a block for a part of 64 rows takes as long as 2.5 pairs, whose
     * partial results are written and read; above this limit uniting is slower. */
    MOST_TILE_COST = 40
};

int64_t smelt__gqa_index_tiles(const struct smelt__gqa_index *index, int64_t entries) {
    return smelt__divide_up(entries, index->tile_entries);
}

smelt_status smelt__gqa_index_place(struct smelt__gqa_index *index, size_t *end) {
    index->blocks = smelt__divide_up(index->rows, index->granularity);
    index->lists = index->batches * index->groups * index->blocks;
    const int64_t slots = index->entries * index->groups * index->width;
    if (index->lists > MOST_NUMBER || slots > MOST_NUMBER)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "%" PRId64 " lists of blocks and %" PRId64
                           " slots are too many for one call; at most %d of each",
                           index->lists, slots, MOST_NUMBER);
    index->chunk_entries = SMELT__CUT_INDEX_CHUNK;
    while (smelt__divide_up(index->entries, index->chunk_entries) * index->lists > MOST_COUNTS &&
           index->chunk_entries < index->entries)
        index->chunk_entries *= 2;
    const int64_t chunks = smelt__divide_up(index->entries, index->chunk_entries);
    const size_t number = sizeof(int);
    index->counts = smelt__workspace_place(end, chunks * index->lists, number);
    index->starts = smelt__workspace_place(end, index->lists + 1, number);
    index->items = smelt__workspace_place(end, index->lists + 1, number);
    index->queries = smelt__workspace_place(end, index->with_queries ? slots : 0, number);
    if (index->with_pairs) {
        const int64_t segments = index->lists + slots / index->segment;
        index->pairs = smelt__workspace_place(end, slots, 2 * number);
        index->places = smelt__workspace_place(end, slots, number);
        index->order = smelt__workspace_place(end, segments, 2 * number);
    }
    if (index->tile_entries) {
        const int64_t tiles = smelt__gqa_index_tiles(index, index->entries) * index->groups;
        index->tiles = smelt__workspace_place(end, tiles, number);
        index->united =
            smelt__workspace_place(end, tiles * index->tile_entries * index->width, 4 * number);
    }
    return SMELT_OK;
}

static int *ints_at(void *workspace, size_t offset) {
    return (int *)(void *)((char *)workspace + offset);
}

struct sparse_gqa_lists_params smelt__gqa_index_params(const struct smelt__gqa_index *index,
                                                       const struct work_params *work,
                                                       const struct gqa_lists_params *lists,
                                                       int64_t first, int64_t entries,
                                                       void *workspace) {
    const int pairs = index->with_pairs;
    const int unites = index->tile_entries && index->lists > 0; /* else no pass writes tiles */
    return (struct sparse_gqa_lists_params){
        .work = *work,
        .lists = *lists,
        .counts = ints_at(workspace, index->counts),
        .starts = ints_at(workspace, index->starts),
        .items = ints_at(workspace, index->items),
        .queries = index->with_queries ? ints_at(workspace, index->queries) : NULL,
        .pairs = pairs ? ints_at(workspace, index->pairs) : NULL,
        .places = pairs ? ints_at(workspace, index->places) : NULL,
        .order = pairs ? ints_at(workspace, index->order) : NULL,
        .tiles = unites ? ints_at(workspace, index->tiles) : NULL,
        .united = unites ? ints_at(workspace, index->united) : NULL,
        .first = (int)first,
        .entries = (int)entries,
        .groups = index->groups,
        .blocks = (int)index->blocks,
        .granularity = index->granularity,
        .chunks = (int)smelt__divide_up(entries, index->chunk_entries),
        .chunk_entries = (int)index->chunk_entries,
        .segment = index->segment,
        .tile_entries = index->tile_entries,
        .part_entries = index->part_entries,
        .most_tile_cost = MOST_TILE_COST,
    };
}

smelt_status smelt__gqa_index_launch(const smelt_context *context,
                                     const struct smelt__kernel *const *kernels,
                                     const struct sparse_gqa_lists_params *params,
                                     struct CUstream_st *stream) {
    const int64_t lists = (int64_t)params->work.batches * params->blocks; /* of a group */
    const int64_t parts =
        params->chunks * params->groups * smelt__divide_up(lists, SMELT__GQA_LISTS_AT_ONCE);
    const uint32_t blocks[SMELT__GQA_LISTS_PASSES] = {
        [SMELT__GQA_LISTS_COUNT] = (uint32_t)parts,
        [SMELT__GQA_LISTS_SCAN] = 1,
        [SMELT__GQA_LISTS_FILL] = (uint32_t)parts,
    };
    smelt_status status = SMELT_OK;
    for (int i = 0; i < SMELT__GQA_LISTS_PASSES && status == SMELT_OK; i++) {
        const struct smelt__launch launch = {.blocks = {blocks[i]}, .params = params};
        status = smelt__kernel_launch(context, kernels[i], &launch, stream);
    }
    return status;
}
