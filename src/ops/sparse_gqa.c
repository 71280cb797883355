/*
 * The operator sparse_gqa (smelt/sparse_gqa.h). This file has the forward pass, sparse_gqa_backward.c the
 * backward pass.
 *
 * A query-stationary kernel is launched once; another kernel may unite the lists of neighbouring queries
 * before it. With a block-stationary kernel the queries are processed in chunks. For each chunk kernels
 * build the reverse index of its lists, compute partial results block by block, and merge them.
 */
#include "smelt/sparse_gqa.h"

#include <inttypes.h>

#include "ops/divide.h"
#include "ops/sparse_gqa.h"
#include "runtime/log.h"

/* clang-format off */
#include "sparse_gqa_fwd.block.params.h"
#include "sparse_gqa_merge.params.h"
#include "sparse_gqa_united.params.h"
/* clang-format on */

enum {
    MOST_ROWS = 1 << 28, /* of all batches: the bits above a row's number are a mask of queries */
    LIST_STEP = 64,      /* united lists are padded to multiples of it */
    MERGE_WARPS = 8      /* of a thread block: a unit each */
};

struct forward {
    struct smelt__gqa gqa;
    struct sparse_gqa_fwd_params params;  /* query-stationary; the fields below copy from it */
    struct attention_lists_params groups; /* query-stationary, if lists are united */
    struct sparse_gqa_block_params block; /* block-stationary */
};

/* ---- query-stationary ------------------------------------------------------------------------ */

/* Groups of neighbouring queries whose lists are united (entries of 1 to 16 rows). */
static smelt_status place_groups(struct forward *forward) {
    struct smelt__gqa *const gqa = &forward->gqa;
    const int64_t queries = gqa->launch->queries;
    const int64_t groups = smelt__divide_up(gqa->queries, queries);
    const int64_t stride = smelt__divide_up(queries * gqa->fields.width, LIST_STEP) * LIST_STEP;
    const int64_t lists = gqa->index.groups * groups;
    if (gqa->fields.batches * gqa->index.blocks * gqa->shape.granularity >= MOST_ROWS)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "batches * rows is %" PRId64
                           "; with unite=1 it must be below 2^28: leave unite=1 out",
                           gqa->fields.batches * gqa->fields.rows);
    forward->groups = (struct attention_lists_params){
        .members = smelt__gqa_take(gqa, groups * queries, sizeof(int)),
        .counts = smelt__gqa_take(gqa, lists, sizeof(int)),
        .keys = smelt__gqa_take(gqa, lists * stride, sizeof(int)),
        .masks = smelt__gqa_take(gqa, lists * stride, 1),
        .groups = (int)groups,
        .group_queries = (int)queries,
        .key_stride = (int)stride,
        .copies = 1,
        .topk = (int)gqa->fields.width,
        .ascending = 1,
    };
    return SMELT_OK;
}

/* Unites the lists of groups of queries, a list of each query at a time. */
static smelt_status unite_groups(const struct forward *forward) {
    const struct sparse_gqa_lists_params *const index = &forward->gqa.index;
    struct attention_lists_params params = forward->groups;
    params.work = index->work;
    params.work.rows = index->blocks;
    for (int list = 0; list < index->groups; list++) {
        SMELT__TRY(smelt__gqa_launch_all(&forward->gqa, SMELT__GQA_FORWARD_GROUPS, params.groups,
                                         &params));
        params.counts += params.groups;
        params.keys += (int64_t)params.groups * params.key_stride;
        params.masks += (int64_t)params.groups * params.key_stride;
        params.work.indices += index->lists.indices_group_stride;
        if (params.work.topk_length)
            params.work.topk_length += index->lists.topk_length_group_stride;
    }
    return SMELT_OK;
}

/* Makes the groups the main kernel's items. */
static void take_groups(struct forward *forward) {
    const struct attention_lists_params *const groups = &forward->groups;
    struct work_params *const work = &forward->params.work;
    forward->params.groups = (struct gqa_groups_params){
        .work = *work,
        .members = groups->members,
        .counts = groups->counts,
        .keys = groups->keys,
        .masks = groups->masks,
        .groups = groups->groups,
        .key_stride = groups->key_stride,
        .blocks = forward->gqa.index.blocks,
    };
    *work = (struct work_params){
        .batches = 1,
        .tokens = groups->groups,
        .rows = work->rows,
        .width = work->width,
        .query_capacity = groups->groups,
    };
}

static smelt_status launch_queries(struct forward *forward) {
    const struct smelt__gqa *const gqa = &forward->gqa;
    if (gqa->launch->queries > 1) {
        SMELT__TRY(unite_groups(forward));
        take_groups(forward);
    }
    return smelt__call_launch_pdl(gqa->call, gqa->kernels[SMELT__GQA_FORWARD_MAIN],
                                  forward->params.work.query_capacity, gqa->free_multiprocessors,
                                  &forward->params);
}

/* ---- block-stationary ------------------------------------------------------------------------ */

/* Entries of a tile whose lists may be united; 0 if none may be. */
static int tile_entries(const struct smelt__gqa *gqa) {
    const struct smelt__kernel *const united = gqa->kernels[SMELT__GQA_FORWARD_UNITED];
    const int entries = united ? smelt__sparse_gqa_launch(&united->plan)->queries : 0;
    return entries * gqa->fields.width <= SMELT__GQA_LISTS_MOST_SLOTS ? entries : 0;
}

static smelt_status place_blocks(struct forward *forward) {
    struct smelt__gqa *const gqa = &forward->gqa;
    const size_t value_bytes = (size_t)(SMELT__GQA_UNIT * SMELT__GQA_ELEMENT * gqa->shape.dv);
    const size_t lse_bytes = SMELT__GQA_UNIT * sizeof(float);
    smelt__gqa_split(gqa, value_bytes + lse_bytes);
    SMELT__TRY(smelt__gqa_place_index(gqa, gqa->launch->segment, tile_entries(gqa)));
    const int64_t units = gqa->chunk * gqa->fields.width * gqa->units;
    forward->block.partials = smelt__gqa_take(gqa, units, value_bytes);
    forward->block.partial_lse = smelt__gqa_take(gqa, units, lse_bytes);
    return SMELT_OK;
}

/* Fields of the params of the kernels that write out and lse. */
#define OUTPUTS(from, index)                                                                       \
    .work = (from)->work, .sink = (from)->sink, .out = (from)->out, .lse = (from)->lse,            \
    .out_batch_stride = (from)->out_batch_stride, .out_token_stride = (from)->out_token_stride,    \
    .out_head_stride = (from)->out_head_stride, .lse_batch_stride = (from)->lse_batch_stride,      \
    .lse_token_stride = (from)->lse_token_stride, .lse_head_stride = (from)->lse_head_stride,      \
    .tiles = (index)->tiles, .first = (index)->first, .entries = (index)->entries

static smelt_status launch_merge(const struct forward *forward) {
    const struct smelt__gqa *const gqa = &forward->gqa;
    const struct sparse_gqa_merge_params params = {
        OUTPUTS(&forward->params, &gqa->index),  .places = gqa->index.places,
        .partials = forward->block.partials,     .partial_lse = forward->block.partial_lse,
        .tile_entries = gqa->index.tile_entries,
    };
    return smelt__gqa_launch(gqa, SMELT__GQA_FORWARD_MERGE,
                             smelt__divide_up(gqa->index.entries * gqa->units, MERGE_WARPS),
                             &params);
}

static smelt_status launch_united(const struct forward *forward, int64_t tiles) {
    const struct smelt__gqa *const gqa = &forward->gqa;
    const struct sparse_gqa_united_params params = {
        OUTPUTS(&forward->params, &gqa->index),
        .q_map = forward->block.q_map,
        .k = forward->block.k,
        .v = forward->block.v,
        .lists = forward->params.lists,
        .items = forward->block.items,
        .united = gqa->index.united,
        .scale = forward->params.scale,
    };
    return smelt__gqa_launch(gqa, SMELT__GQA_FORWARD_UNITED, tiles * gqa->shape.kv_heads, &params);
}

/* If there are tiles, the pass unite comes first: it unites the lists of each tile that have enough blocks in common. */
static smelt_status launch_chunk(const struct forward *forward) {
    const struct smelt__gqa *const gqa = &forward->gqa;
    const int64_t tiles =
        gqa->index.tiles ? smelt__divide_up(gqa->index.entries, gqa->index.tile_entries) : 0;
    if (tiles)
        SMELT__TRY(smelt__gqa_launch_all(
            gqa, SMELT__GQA_FORWARD_UNITE,
            smelt__divide_up(tiles * gqa->index.groups, SMELT__GQA_LISTS_UNITE_TILES),
            &gqa->index));
    SMELT__TRY(smelt__gqa_launch_index(gqa, SMELT__GQA_FORWARD_COUNT));
    if (tiles)
        SMELT__TRY(launch_united(forward, tiles));
    if (gqa->lists > 0)
        SMELT__TRY(smelt__gqa_launch(gqa, SMELT__GQA_FORWARD_MAIN, INT32_MAX, &forward->block));
    return launch_merge(forward);
}

static smelt_status launch_blocks(struct forward *forward) {
    struct smelt__gqa *const gqa = &forward->gqa;
    forward->block.scale = forward->params.scale;
    if (gqa->lists > 0)
        SMELT__TRY(smelt__gqa_sources(gqa, &forward->block.items, &forward->block.q_map,
                                      &forward->block.k, &forward->block.v));
    while (smelt__gqa_next_chunk(gqa))
        SMELT__TRY(launch_chunk(forward));
    return SMELT_OK;
}

/* ---- the forward pass ------------------------------------------------------------------------ */

static smelt_status place(const struct smelt__call *call, struct forward *forward) {
    const smelt_sparse_gqa_args *args = call->args;
    *forward = (struct forward){.gqa = SMELT__GQA(call, args)};
    SMELT__TRY(smelt__gqa_begin(&forward->gqa, SMELT__GQA_FORWARD_MAIN));
    if (forward->gqa.queries == 0)
        return SMELT_OK;
    if (forward->gqa.launch->segment > 0) /* the plan is block-stationary */
        return place_blocks(forward);
    return forward->gqa.launch->queries > 1 ? place_groups(forward) : SMELT_OK;
}

static smelt_status workspace(const struct smelt__call *call, size_t *bytes) {
    struct forward forward;
    SMELT__TRY(place(call, &forward));
    *bytes = forward.gqa.bytes;
    return SMELT_OK;
}

static smelt_status launch(struct smelt__call *call) {
    const smelt_sparse_gqa_args *args = call->args;
    struct forward forward;
    SMELT__TRY(smelt__check_scale(args->scale));
    SMELT__TRY(place(call, &forward));
    if (forward.gqa.queries == 0)
        return SMELT_OK; /* an empty call's tensors are not checked */
    SMELT__TRY(smelt__gqa_check(&forward.gqa, call));
    forward.params = (struct sparse_gqa_fwd_params){
        .work = forward.gqa.index.work,
        .lists = forward.gqa.index.lists,
        SMELT__TENSOR_BTH(q, args->q),
        SMELT__TENSOR_BSH(k, args->k),
        SMELT__TENSOR_BSH(v, args->v),
        .sink = args->sink.data,
        SMELT__TENSOR_BTH(out, args->out),
        SMELT__TENSOR_BTH(lse, args->lse),
        .scale = args->scale,
    };
    return forward.gqa.launch->segment > 0 ? launch_blocks(&forward) : launch_queries(&forward);
}

/* ---- the operator ---------------------------------------------------------------------------- */

static const struct smelt__pass passes[] = {
    SMELT__PASS(sparse_gqa, forward, FORWARD, .tables = &smelt__sparse_gqa_table,
                .workspace = workspace, .launch = launch),
    SMELT__PASS(sparse_gqa, backward, BACKWARD, .tables = &smelt__sparse_gqa_grad_table,
                .workspace = smelt__sparse_gqa_backward_workspace,
                .launch = smelt__sparse_gqa_backward_launch),
};

SMELT__TYPE(sparse_gqa, smelt_operator, NULL)
SMELT__CALL(sparse_gqa, forward, FORWARD, smelt_sparse_gqa_args)
SMELT__ASK(sparse_gqa, forward, FORWARD, smelt_sparse_gqa_args)
SMELT__CALL(sparse_gqa, backward, BACKWARD, smelt_sparse_gqa_grad_args)
SMELT__ASK(sparse_gqa, backward, BACKWARD, smelt_sparse_gqa_grad_args)
