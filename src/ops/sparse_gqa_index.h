/* The reverse index of sparse_gqa's lists (templates/sparse_gqa_lists.params.h): its arrays in the
 * workspace, and its launch. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "ops/sparse_gqa_call.h"
#include "runtime/kernel.h"

/* clang-format off */
#include "sparse_gqa_lists.params.h"
/* clang-format on */

/* What is indexed. The caller sets the fields of the first group. */
struct smelt__gqa_index {
    int64_t batches, rows, width;
    int64_t entries; /* at most, at once */
    int groups, granularity;
    int segment;      /* pairs of a segment, as the kernel that takes segments has it */
    int with_queries; /* 1: `queries` is written */
    int with_pairs;   /* 1: `pairs`, `places` and `order` are */
    int tile_entries; /* of tiles whose lists may be united; 0: none are */
    int part_entries; /* of a part of a tile */

    int64_t blocks, lists, chunk_entries;
    size_t counts, starts, items, queries, pairs, places, order, tiles,
        united; /* offsets in the workspace */
};

/* Sets the fields of the second group; the arrays begin at *end, which is advanced.
 * INVALID_ARGUMENT for more lists or pairs than a kernel can number. */
smelt_status smelt__gqa_index_place(struct smelt__gqa_index *index, size_t *end);

/* The params of entries from `first` on, at most index->entries. */
struct sparse_gqa_lists_params smelt__gqa_index_params(const struct smelt__gqa_index *index,
                                                       const struct work_params *work,
                                                       const struct gqa_lists_params *lists,
                                                       int64_t first, int64_t entries,
                                                       void *workspace);

/* Tiles of one group, with `entries` entries. */
int64_t smelt__gqa_index_tiles(const struct smelt__gqa_index *index, int64_t entries);

/* Launches the three kernels, in the order of their key `pass`. Errors: DRIVER. */
smelt_status smelt__gqa_index_launch(const smelt_context *context,
                                     const struct smelt__kernel *const *kernels,
                                     const struct sparse_gqa_lists_params *params,
                                     struct CUstream_st *stream);
