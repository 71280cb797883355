/* See indexer_bwd_launch.h. */
#include "ops/indexer_bwd_launch.h"

#include <stdint.h>

#include "common/tensor_map.h"
#include "indexer_bwd_lists.params.h"
#include "indexer_bwd_main.params.h"
#include "key_grads_grains.params.h"
#include "ops/arguments.h"
#include "ops/divide.h"
#include "ops/key_grads.h"
#include "runtime/log.h"

enum {
    ZERO_WORDS = 4,      /* filled at a time */
    MOST_UNIT_BITS = 22, /* an addend's, in units: fp32 holds so many, and one more */
    BOUND_BITS = 31      /* of all addends of a row together */
};

static void *at(const struct smelt__indexer_bwd_call *call, size_t offset) {
    return (char *)call->args->workspace + offset;
}

static smelt_status launch(const struct smelt__indexer_bwd_call *call,
                           enum smelt__indexer_bwd_kernel number, int64_t blocks,
                           const void *params) {
    const struct smelt__launch launch = {.blocks = {(uint32_t)blocks}, .params = params};
    return smelt__kernel_launch(call->indexer->context, call->indexer->kernels[number], &launch,
                                call->stream);
}

/* 32-bit words from the bounds on that begin as zeros: bounds, and dk's sums. */
static size_t zero_words(const struct smelt__indexer_bwd_call *call) {
    const size_t sums = (size_t)call->args->rows * (size_t)call->indexer->dim;
    return sums ? (call->layout.sums - call->layout.bounds) / sizeof(float) + sums : 0;
}

void smelt__indexer_bwd_lay_out(const struct smelt__indexer_bwd *indexer, int64_t groups,
                                int64_t key_stride, int64_t rows, int several,
                                struct smelt__indexer_bwd_layout *layout) {
    const int64_t entries = groups * indexer->main.group_queries;
    layout->groups = groups;
    layout->key_stride = (int)key_stride;
    layout->members = smelt__workspace_place(&layout->bytes, entries, sizeof(int));
    layout->counts = smelt__workspace_place(&layout->bytes, groups, sizeof(int));
    layout->runs = smelt__workspace_place(
        &layout->bytes, indexer->main.group_tiles > 1 ? groups : 0, 2 * sizeof(int));
    layout->keys = smelt__workspace_place(&layout->bytes, groups * key_stride, sizeof(int));
    layout->grads = smelt__workspace_place(&layout->bytes, entries * key_stride, sizeof(float));
    if (indexer->deterministic) {
        layout->reach = smelt__workspace_place(&layout->bytes, entries, sizeof(float));
        layout->tops =
            smelt__workspace_place(&layout->bytes, SMELT__INDEXER_BWD_TOPS, sizeof(float));
        layout->grains = smelt__workspace_place(&layout->bytes, rows, sizeof(float));
        layout->totals = smelt__workspace_place(&layout->bytes, several ? rows * indexer->dim : 0,
                                                sizeof(float));
    }
    layout->bounds = smelt__workspace_place(&layout->bytes, indexer->deterministic ? rows : 0,
                                            SMELT__INDEXER_BWD_UNIT_KINDS * sizeof(unsigned));
    layout->sums = smelt__workspace_place(&layout->bytes, rows * indexer->dim, sizeof(float));
}

/* Each group's list of keys, with their gradients; and the zeros. */
static smelt_status launch_lists(const struct smelt__indexer_bwd_call *call) {
    const struct smelt__indexer_bwd *indexer = call->indexer;
    const smelt_indexer_bwd_args *args = call->args;
    const struct smelt__indexer_bwd_layout *layout = &call->layout;
    const struct indexer_bwd_lists_params params = {
        SMELT__TENSOR_T(indices, args->indices),
        SMELT__TENSOR_T(topk_length, args->topk_length),
        SMELT__TENSOR_T(limit, args->limit),
        SMELT__TENSOR_T(grad, args->grad),
        .members = at(call, layout->members),
        .counts = at(call, layout->counts),
        .runs = indexer->main.group_tiles > 1 ? at(call, layout->runs) : NULL,
        .keys = at(call, layout->keys),
        .grads = at(call, layout->grads),
        .zeros = at(call, layout->bounds),
        .zero_vectors = (long long)(zero_words(call) / ZERO_WORDS),
        .tokens = (int)args->tokens,
        .rows = (int)args->rows,
        .width = (int)args->width * indexer->granularity,
        .groups = (int)layout->groups,
        .group_queries = indexer->main.group_queries,
        .key_stride = layout->key_stride,
    };
    const struct smelt__kernel *kernel = indexer->kernels[SMELT__INDEXER_BWD_LISTS];
    return launch(call, SMELT__INDEXER_BWD_LISTS,
                  smelt__blocks_for(kernel, layout->groups, kernel->most_blocks), &params);
}

/* An addend's most bits such that those of all groups together have BOUND_BITS. */
static int unit_bits(int64_t groups) {
    int bits = BOUND_BITS;
    while (bits > MOST_UNIT_BITS || groups << bits > (INT64_C(1) << BOUND_BITS))
        bits--;
    return bits;
}

/* Blocks of a kernel that are resident together, but no more than `most` and one an item. */
static int64_t resident_for(const struct smelt__indexer_bwd_call *call,
                            enum smelt__indexer_bwd_kernel number, int64_t items, int64_t most) {
    const int64_t resident = call->indexer->kernels[number]->resident_blocks;
    const int64_t blocks = items < resident ? items : resident;
    return blocks < 1 ? 1 : blocks < most ? blocks : most;
}

/* Likewise, where a thread takes an item. */
static int64_t resident_for_threads(const struct smelt__indexer_bwd_call *call,
                                    enum smelt__indexer_bwd_kernel number, int64_t items) {
    const int64_t threads = call->indexer->kernels[number]->threads;
    return resident_for(call, number, smelt__divide_up(items, threads), UINT32_MAX);
}

/* What the passes of the grains have in common. */
static struct key_grads_grains_params grains_params(const struct smelt__indexer_bwd_call *call,
                                                    struct smelt__indexer_bwd_chunk chunk) {
    const struct smelt__indexer_bwd *indexer = call->indexer;
    const smelt_indexer_bwd_args *args = call->args;
    const struct smelt__indexer_bwd_layout *layout = &call->layout;
    const int64_t first = chunk.first * indexer->main.group_queries, stride = layout->key_stride;
    return (struct key_grads_grains_params){
        SMELT__TENSOR_TH(q, args->q),
        SMELT__TENSOR_T(weights, args->weights),
        .members = (const int *)at(call, layout->members) + first,
        .counts = (const int *)at(call, layout->counts) + chunk.first,
        .keys = (const int *)at(call, layout->keys) + chunk.first * stride,
        .grads = (const float *)at(call, layout->grads) + first * stride,
        .reach = (float *)at(call, layout->reach) + first,
        .tops = at(call, layout->tops),
        .bounds = at(call, layout->bounds),
        .grains = at(call, layout->grains),
        .sums = at(call, layout->sums),
        .totals = at(call, layout->totals),
        .heads = indexer->heads,
        .dim = indexer->dim,
        .rows = (int)args->rows,
        .groups = (int)chunk.groups,
        .group_queries = indexer->main.group_queries,
        .key_stride = layout->key_stride,
        .weights_bf16 = indexer->weights_bf16,
        .top_count = (int)resident_for(call, SMELT__INDEXER_BWD_REACH, chunk.groups,
                                       SMELT__INDEXER_BWD_TOPS),
        .bits = unit_bits(chunk.groups),
        .first = chunk.begins,
        .last = chunk.ends,
    };
}

/* Computes the grains to whose multiples a chunk's addends to dk are rounded. Bounds start as 0. */
static smelt_status launch_grains(const struct smelt__indexer_bwd_call *call,
                                  struct smelt__indexer_bwd_chunk chunk) {
    const struct key_grads_grains_params params = grains_params(call, chunk);
    const int64_t rows = call->args->rows;
    if (!chunk.begins && rows > 0)
        SMELT__TRY(smelt__fill_async(call->indexer->context, params.bounds, 0,
                                     (size_t)rows * SMELT__INDEXER_BWD_UNIT_KINDS, call->stream));
    SMELT__TRY(launch(call, SMELT__INDEXER_BWD_REACH, params.top_count, &params));
    SMELT__TRY(launch(call, SMELT__INDEXER_BWD_BOUNDS,
                      resident_for(call, SMELT__INDEXER_BWD_BOUNDS, chunk.groups, UINT32_MAX),
                      &params));
    return launch(call, SMELT__INDEXER_BWD_GRAINS,
                  resident_for_threads(call, SMELT__INDEXER_BWD_GRAINS, rows), &params);
}

/* q, boxes of one query. */
static smelt_status make_map(const struct smelt__indexer_bwd_call *call, struct tensor_map *map) {
    const struct smelt__indexer_bwd *indexer = call->indexer;
    const int64_t extents[] = {call->args->tokens, indexer->heads, indexer->dim};
    return smelt__make_map(indexer->context, indexer->q_name, &call->args->q, 3, extents,
                           indexer->main.block_heads / indexer->main.group_queries, 1,
                           "main.variant=mma", map);
}

static smelt_status fill_main(const struct smelt__indexer_bwd_call *call,
                              struct indexer_bwd_main_params *params) {
    const smelt_indexer_bwd_args *args = call->args;
    const struct smelt__indexer_bwd_layout *layout = &call->layout;
    *params = (struct indexer_bwd_main_params){
        SMELT__TENSOR_TH(q, args->q),
        .k = args->k.data,
        SMELT__TENSOR_T(weights, args->weights),
        .members = at(call, layout->members),
        .counts = at(call, layout->counts),
        .runs = call->indexer->main.group_tiles > 1 ? at(call, layout->runs) : NULL,
        .keys = at(call, layout->keys),
        .grads = at(call, layout->grads),
        SMELT__TENSOR_TH(dq, args->dq),
        SMELT__TENSOR_T(dweights, args->dweights),
        .dk = at(call, layout->sums),
        .grains = call->indexer->deterministic ? at(call, layout->grains) : NULL,
        .k_row_bytes = args->rows > 1 ? (unsigned)(args->k.strides[0] * 2) : 0,
        .tokens = (int)args->tokens,
        .rows = (int)args->rows,
        .key_stride = layout->key_stride,
        .weights_bf16 = call->indexer->weights_bf16,
    };
    return call->indexer->main.tensor_maps ? make_map(call, &params->q_map) : SMELT_OK;
}

/* *params: all but the chunk's fields. */
static smelt_status launch_main(const struct smelt__indexer_bwd_call *call,
                                struct indexer_bwd_main_params *params,
                                struct smelt__indexer_bwd_chunk chunk) {
    const struct smelt__kernel *kernel = call->indexer->kernels[SMELT__INDEXER_BWD_MAIN];
    const int left = call->args->free_multiprocessors;
    params->first_group = (int)chunk.first;
    params->groups = (int)chunk.groups;
    return launch(call, SMELT__INDEXER_BWD_MAIN,
                  smelt__blocks_for(kernel, chunk.groups, smelt__available_blocks(kernel, left)),
                  params);
}

/* A chunk of several: its sums, added to those of the chunks before. */
static smelt_status launch_totals(const struct smelt__indexer_bwd_call *call,
                                  struct smelt__indexer_bwd_chunk chunk) {
    const struct key_grads_grains_params params = grains_params(call, chunk);
    const int64_t vectors = call->args->rows * (call->indexer->dim / ZERO_WORDS);
    return launch(call, SMELT__INDEXER_BWD_TOTALS,
                  resident_for_threads(call, SMELT__INDEXER_BWD_TOTALS, vectors), &params);
}

/* *params: all but the chunk's fields. */
static smelt_status launch_chunk(const struct smelt__indexer_bwd_call *call,
                                 struct indexer_bwd_main_params *params,
                                 struct smelt__indexer_bwd_chunk chunk) {
    const int exact = call->indexer->deterministic, several = !chunk.begins || !chunk.ends;
    if (exact)
        SMELT__TRY(launch_grains(call, chunk));
    SMELT__TRY(launch_main(call, params, chunk));
    return exact && several ? launch_totals(call, chunk) : SMELT_OK;
}

smelt_status smelt__indexer_bwd_launch_chunk(const struct smelt__indexer_bwd_call *call,
                                             struct smelt__indexer_bwd_chunk chunk) {
    struct indexer_bwd_main_params params;
    SMELT__TRY(fill_main(call, &params));
    return launch_chunk(call, &params, chunk);
}

smelt_status smelt__indexer_bwd_check(const struct smelt__indexer_bwd_call *call) {
    struct indexer_bwd_main_params params;
    return fill_main(call, &params);
}

/* The sums of dk, chunk by chunk of as many groups as are exact at once: chunks of equal sizes, but
 * for the last. */
static smelt_status launch_exact(const struct smelt__indexer_bwd_call *call,
                                 struct indexer_bwd_main_params *params) {
    const int64_t groups = call->layout.groups;
    const int64_t chunks = smelt__divide_up(groups, call->indexer->main.exact_groups);
    struct smelt__indexer_bwd_chunk chunk = {.groups = smelt__divide_up(groups, chunks)};
    for (; chunk.first < groups; chunk.first += chunk.groups) {
        if (chunk.groups > groups - chunk.first)
            chunk.groups = groups - chunk.first;
        chunk.begins = chunk.first == 0;
        chunk.ends = chunk.first + chunk.groups == groups;
        SMELT__TRY(launch_chunk(call, params, chunk));
    }
    return SMELT_OK;
}

/* dq and dweights, and the sums of dk. The main kernel's arguments come first: what they refuse is
 * refused before anything is launched. */
static smelt_status launch_queries(const struct smelt__indexer_bwd_call *call) {
    const struct smelt__indexer_bwd_chunk all = {
        .groups = call->layout.groups, .begins = 1, .ends = 1};
    struct indexer_bwd_main_params params;
    SMELT__TRY(fill_main(call, &params));
    SMELT__TRY(launch_lists(call));
    return call->indexer->deterministic ? launch_exact(call, &params)
                                        : launch_main(call, &params, all);
}

smelt_status smelt__indexer_bwd_launch_finish(const struct smelt__indexer_bwd_call *call) {
    const smelt_indexer_bwd_args *args = call->args;
    if (args->rows == 0)
        return SMELT_OK;
    struct key_grads_finish_params params =
        smelt__key_grads_params(&args->dk, &args->dk_fp32, &args->dk_sum);
    params.dkv_row_stride = params.dkv_batch_stride; /* the first stride is of rows */
    params.sums = at(call, call->layout.sums);
    params.batches = 1;
    params.rows = (int)args->rows;
    return smelt__key_grads_launch(call->indexer->context,
                                   call->indexer->kernels[SMELT__INDEXER_BWD_FINISH], call->stream,
                                   call->indexer->dim, call->layout.groups > 0, &params);
}

smelt_status smelt__indexer_bwd_launch_zeros(const struct smelt__indexer_bwd_call *call) {
    const size_t zeros = zero_words(call);
    return zeros > 0 ? smelt__fill_async(call->indexer->context, at(call, call->layout.bounds), 0,
                                         zeros, call->stream)
                     : SMELT_OK;
}

smelt_status smelt__indexer_bwd_launch(const struct smelt__indexer_bwd_call *call) {
    SMELT__TRY(call->args->tokens > 0 ? launch_queries(call)
                                      : smelt__indexer_bwd_launch_zeros(call));
    return smelt__indexer_bwd_launch_finish(call);
}
