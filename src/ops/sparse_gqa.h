/* What the files of sparse_gqa's passes share: the params of lists and limits; the reverse index of
 * lists (sparse_gqa_index.c); the block-stationary kernels (sparse_gqa_block.c). */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "ops/call.h"
#include "ops/sparse_attn_call.h"
#include "ops/sparse_gqa_table.h"
#include "runtime/kernel.h"

/* clang-format off: the first are parts of the others */
#include "common/tensor_map.h"
#include "sparse_gqa.groups.params.h"
#include "sparse_gqa.params.h"
#include "sparse_gqa_bwd.params.h"
#include "sparse_gqa_fwd.params.h"
#include "sparse_gqa_items.params.h"
#include "sparse_gqa_lists.params.h"
#include "sparse_gqa_scores_fwd.params.h"
/* clang-format on */

/* The params of lists and limits from a pass's args struct, with all strides set. */
#define SMELT__SPARSE_GQA_LISTS_PARAMS(args)                                                       \
    {                                                                                              \
        .limit = (args)->limit.data, .limit_batch_stride = (args)->limit.strides[0],               \
        .limit_token_stride = (args)->limit.strides[1],                                            \
        .indices_group_stride = (args)->indices.strides[2],                                        \
        .topk_length_group_stride = (args)->topk_length.strides[2]                                 \
    }

/* ---- the reverse index (templates/sparse_gqa_lists.params.h) --------------------------------- */

/* What is indexed. The caller sets the fields of the first group. */
struct smelt__gqa_index {
    int64_t batches, rows, width;
    int64_t entries; /* of the query list, at most, that are indexed at once */
    int groups, granularity;
    int segment;      /* pairs of a segment, as in the kernel that takes segments */
    int with_queries; /* 1: `queries` is written */
    int with_pairs;   /* 1: `pairs`, `places` and `order` are written */
    int tile_entries; /* entries of a tile, whose lists may be united; 0: none are */
    int part_entries; /* entries of a part of a tile */

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

/* ---- block-stationary kernels ---------------------------------------------------------------- */

enum { SMELT__GQA_UNIT_HEADS = 8, SMELT__GQA_ELEMENT = 2 /* bytes */ };

/* Entries of a chunk of the query list: as many as have at most 2.5 GiB of partial results, of which an
 * entry has `bytes`. */
int64_t smelt__gqa_chunk_of(int64_t queries, int64_t bytes);

/* Makes the index of a chunk. Without keys every slot is masked, and no kernel is needed. Errors: DRIVER. */
smelt_status smelt__gqa_launch_index(const struct smelt__call *call,
                                     const struct smelt__gqa_index *index,
                                     const struct smelt__kernel *const *kernels,
                                     const struct sparse_gqa_lists_params *params);

/* The index, for the kernels that take items. */
struct gqa_items_params smelt__gqa_items(const struct smelt__gqa_index *index,
                                         const struct sparse_gqa_lists_params *params);

/* A bf16 tensor [batches, rows, heads, columns], in boxes of 64 columns. */
struct smelt__gqa_map_source {
    const char *name;
    const smelt_const_tensor *tensor; /* all strides set */
    int64_t columns, heads, rows, batches;
    int box_heads, box_rows;
};

/* INVALID_ARGUMENT for strides that no map can have; DRIVER. */
smelt_status smelt__gqa_map_make(const smelt_context *context,
                                 const struct smelt__gqa_map_source *source,
                                 struct tensor_map *map);

/* The same for k or v, in boxes of a block's rows. */
smelt_status smelt__gqa_source_make(const smelt_context *context,
                                    const struct smelt__gqa_map_source *source,
                                    struct gqa_block_source *block);

/* Launches `blocks` thread blocks, or fewer to leave multiprocessors free. Errors: DRIVER. */
smelt_status smelt__gqa_launch(const struct smelt__call *call, const struct smelt__kernel *kernel,
                               int64_t blocks, int64_t free_multiprocessors, const void *params);

/* Whether an operator's forward kernel is block-stationary. */
int smelt__sparse_gqa_is_block(const smelt_operator *op);
/* The workspace of such a call, whose numbers are checked. INVALID_ARGUMENT. */
smelt_status smelt__sparse_gqa_block_workspace(const struct smelt__call *call, size_t *bytes);
/* Launches a call with queries, whose arguments are checked. `params`: those of variant mma, for their
 * tensors and numbers. Errors: INVALID_ARGUMENT, DRIVER. */
smelt_status smelt__sparse_gqa_block_forward(const struct smelt__call *call,
                                             const struct sparse_gqa_fwd_params *params);

/* ---- the backward pass (sparse_gqa_backward.c): its workspace, and its launch ---------------- */

smelt_status smelt__sparse_gqa_backward_workspace(const struct smelt__call *call, size_t *bytes);
smelt_status smelt__sparse_gqa_backward_launch(struct smelt__call *call);
