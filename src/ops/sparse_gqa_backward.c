/*
 * sparse_gqa's backward pass. Kernels compute the rows' statistics, the reverse index of the lists, dq by
 * query, and fp32 sums of dk and dv by key, and convert the sums to the caller's tensors. With large
 * blocks sparse_gqa_bwd_keys is block-stationary, and the queries are processed in chunks, as in the forward
 * pass. For each chunk kernels build its index, compute partial results of all gradients, and add them.
 */
#include <inttypes.h>
#include <string.h>

#include "codegen/families/attention.h"
#include "ops/divide.h"
#include "ops/key_grads.h"
#include "ops/sparse_gqa.h"
#include "ops/split_sizes.h"
#include "runtime/log.h"

/* clang-format off */
#include "key_grads_grains.bins.params.h"
#include "sparse_gqa_bwd_keys.block.params.h"
#include "sparse_gqa_bwd_keys.few.params.h"
#include "sparse_gqa_sums.params.h"
/* clang-format on */

enum {
    WHOLE_LISTS = 1 << 30, /* a segment that holds any list */
    READS = 1,             /* reads of a head that take as long as an addition to a row */
    READS_BEYOND_L2 = 4,   /* the same if the sums exceed the L2 cache */
    MOST_SLOTS = 1 << 30,  /* above it a call uses no reverse index and no exact sums */
    SUM_WARPS = 8,         /* of a thread block of sparse_gqa_sums, pass queries: a unit each */
    PART_KEYS = 64,        /* of a warpgroup of the block-stationary kernel */
    SUM_VECTORS = 4,       /* of a thread block of sparse_gqa_sums, pass keys */
    VECTOR_COLUMNS = 8,
};

/* What sparse_gqa_bwd_keys computes. */
enum kind {
    BY_QUERY, /* nothing: sparse_gqa_bwd also adds to dk and dv */
    BY_KEY,   /* dk and dv */
    FEW,      /* dk and dv, for one range of queries in each launch */
    BLOCKS    /* all gradients; it is block-stationary */
};

struct backward {
    struct smelt__gqa gqa;
    enum kind kind;
    int deterministic;
    int64_t keys;  /* rows of dk */
    int64_t range; /* FEW: a range of queries, in chunks of the index */
    float *statistics, *dsink_parts, *dk, *dv;
    unsigned short *grains;                   /* null: the sums are not exact */
    struct sparse_gqa_bwd_block_params block; /* BLOCKS */
};

/* ---- workspace ------------------------------------------------------------------------------- */

/* The number of parts of dsink's sums, one for each thread block of attention_bwd_rows. */
static int64_t parts_of(const struct smelt__gqa *gqa) {
    return smelt__divide_up(gqa->queries, SMELT__ATTENTION_BWD_ROWS_ENTRIES);
}

static int is_sm90(const struct smelt__kernel *kernel) {
    return strcmp(kernel->plan.variant, "sm90") == 0;
}

/* The sums of dk and dv may be computed by sparse_gqa_bwd, which for each slot adds to the rows of a block, or by
 * sparse_gqa_bwd_keys, which for each slot reads the heads of a group. One addition takes as long as `reads` reads. */
static enum kind kind_of(const struct backward *backward) {
    const struct smelt__gqa *const gqa = &backward->gqa;
    const struct smelt__kernel *const *const kernels = gqa->kernels;
    const enum kind by_key = is_sm90(kernels[SMELT__GQA_BACKWARD_KEYS]) ? FEW : BY_KEY;
    const int64_t slots = gqa->queries * gqa->index.groups * gqa->fields.width;
    const int64_t sums = backward->keys * (gqa->shape.dqk + gqa->shape.dv) * (int64_t)sizeof(float);
    const int reads = sums > SMELT__SPLIT_SUMS_IN_L2 ? READS_BEYOND_L2 : READS;
    if (gqa->launch->segment > 0)
        return BLOCKS;
    if (!is_sm90(kernels[SMELT__GQA_BACKWARD_QUERIES]))
        return by_key;
    const int by_query =
        backward->deterministic
            ? kernels[SMELT__GQA_BACKWARD_GRAINS] && slots < MOST_SLOTS &&
                  (gqa->fields.queries->data ? gqa->queries : gqa->fields.tokens) <=
                      SMELT__SPLIT_EXACT_QUERIES
            : by_key != FEW || slots > MOST_SLOTS ||
                  gqa->shape.group > reads * gqa->shape.granularity;
    return by_query ? BY_QUERY : by_key;
}

/* The reverse index, and how much of it a launch takes. */
static smelt_status place_index(struct backward *backward) {
    struct smelt__gqa *const gqa = &backward->gqa;
    const int64_t group = gqa->shape.group, width = gqa->fields.width;
    const int64_t entries =
        SMELT__SPLIT_RANGE_BYTES / (group * (gqa->shape.dqk + gqa->shape.dv) * SMELT__GQA_ELEMENT);
    SMELT__TRY(
        smelt__gqa_place_index(gqa, backward->deterministic ? WHOLE_LISTS : SMELT__GQA_SEGMENT, 0));
    if (backward->kind != FEW)
        return SMELT_OK;
    const int64_t chunk = gqa->index.chunk_entries;
    const int64_t most = width > 0 ? INT32_MAX / (chunk * group) / width : 1;
    if (gqa->queries > INT32_MAX / group || most < 1 ||
        gqa->fields.batches * gqa->shape.kv_heads * gqa->index.blocks > INT32_MAX)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "%" PRId64 " queries of %" PRId64 " heads of a KV head, %" PRId64
                           " slots and %" PRId64 " rows are too many for one call",
                           gqa->queries, group, width, gqa->fields.rows);
    backward->range = entries / chunk < 1 ? 1 : entries / chunk < most ? entries / chunk : most;
    return SMELT_OK;
}

/* The chunks of queries, the index of one, and the partial results of the block-stationary kernel. */
static smelt_status place_chunks(struct backward *backward) {
    struct smelt__gqa *const gqa = &backward->gqa;
    const size_t unit_bytes = (size_t)(SMELT__GQA_UNIT * SMELT__GQA_ELEMENT * gqa->shape.dqk);
    smelt__gqa_split(gqa, unit_bytes);
    SMELT__TRY(smelt__gqa_place_index(gqa, gqa->launch->segment, 0));
    const int64_t slots = gqa->chunk * gqa->index.groups * gqa->fields.width;
    const int64_t items =
        (gqa->lists + slots / gqa->launch->segment) * (gqa->shape.kv_heads / gqa->index.groups);
    backward->block.dq_partials =
        smelt__gqa_take(gqa, gqa->chunk * gqa->fields.width * gqa->units, unit_bytes);
    backward->block.key_partials =
        smelt__gqa_take(gqa, items * SMELT__GQA_CONSUMERS,
                        (size_t)(PART_KEYS * (gqa->shape.dqk + gqa->shape.dv)) * sizeof(float));
    return SMELT_OK;
}

static smelt_status place(const struct smelt__call *call, struct backward *backward) {
    const smelt_sparse_gqa_grad_args *args = call->args;
    struct smelt__gqa *const gqa = &backward->gqa;
    *backward = (struct backward){
        .gqa = SMELT__GQA(call, args),
        .deterministic = (int)smelt__spec_get(&call->op->spec, "deterministic"),
    };
    SMELT__TRY(smelt__gqa_begin(gqa, SMELT__GQA_BACKWARD_KEYS));
    backward->keys = args->batches * args->rows * gqa->shape.kv_heads;
    backward->kind = kind_of(backward);
    backward->statistics = smelt__gqa_take(gqa, gqa->queries * gqa->shape.heads, 2 * sizeof(float));
    backward->dsink_parts = smelt__gqa_take(gqa, parts_of(gqa) * gqa->shape.heads, sizeof(float));
    backward->dk = smelt__gqa_take(gqa, backward->keys * gqa->shape.dqk, sizeof(float));
    backward->dv = smelt__gqa_take(gqa, backward->keys * gqa->shape.dv, sizeof(float));
    if (backward->deterministic && backward->kind == BY_QUERY)
        backward->grains = smelt__gqa_take(gqa, backward->keys, sizeof *backward->grains);
    if (backward->kind == BLOCKS)
        return place_chunks(backward);
    return backward->kind != BY_QUERY && gqa->queries > 0 && backward->keys > 0
               ? place_index(backward)
               : SMELT_OK;
}

smelt_status smelt__sparse_gqa_backward_workspace(const struct smelt__call *call, size_t *bytes) {
    struct backward backward;
    SMELT__TRY(place(call, &backward));
    *bytes = backward.gqa.bytes;
    return SMELT_OK;
}

/* ---- common to all kinds --------------------------------------------------------------------- */

/* Zeroes the sums of dk and dv. */
static smelt_status clear_sums(const struct backward *backward) {
    return smelt__fill_async(backward->gqa.call->op->context, backward->dk, 0,
                             (size_t)(backward->dv - backward->dk) +
                                 (size_t)(backward->keys * backward->gqa.shape.dv),
                             backward->gqa.call->stream);
}

static smelt_status launch_rows(const struct backward *backward) {
    const smelt_sparse_gqa_grad_args *args = backward->gqa.call->args;
    const struct attention_bwd_rows_params params = {
        .work = backward->gqa.index.work,
        SMELT__TENSOR_BTH(out, args->out),
        SMELT__TENSOR_BTH(grad_out, args->grad_out),
        SMELT__TENSOR_BTH(lse, args->lse),
        .sink = args->sink.data,
        .statistics = backward->statistics,
        .dsink_parts = args->dsink.data ? backward->dsink_parts : NULL,
        .entries = (int)backward->gqa.queries,
        .query_rows = backward->gqa.shape.heads,
    };
    return smelt__gqa_launch_all(&backward->gqa, SMELT__GQA_BACKWARD_ROWS, parts_of(&backward->gqa),
                                 &params);
}

/* ---- block-stationary ------------------------------------------------------------------------ */

/* The sums of dq, and of dk and dv if there are lists. */
static smelt_status launch_sums(const struct backward *backward) {
    const smelt_sparse_gqa_grad_args *const args = backward->gqa.call->args;
    const struct smelt__gqa *const gqa = &backward->gqa;
    const struct sparse_gqa_sums_params params = {
        .work = gqa->index.work,
        .places = gqa->index.places,
        .dq_partials = backward->block.dq_partials,
        SMELT__TENSOR_BTH(dq, args->dq),
        .first = gqa->index.first,
        .entries = gqa->index.entries,
        .items = gqa->index.items,
        .key_partials = backward->block.key_partials,
        .dk_sums = backward->dk,
        .dv_sums = backward->dv,
        .blocks = gqa->index.blocks,
        .rows = (int)args->rows,
        .adds = gqa->index.first > 0,
        .lists = (int)gqa->lists,
    };
    const int64_t blocks = gqa->lists * (gqa->shape.kv_heads / gqa->index.groups) *
                           (gqa->shape.granularity / PART_KEYS) *
                           ((gqa->shape.dqk + gqa->shape.dv) / VECTOR_COLUMNS / SUM_VECTORS);
    SMELT__TRY(smelt__gqa_launch(gqa, SMELT__GQA_BACKWARD_QUERY_SUMS,
                                 smelt__divide_up(gqa->index.entries * gqa->units, SUM_WARPS),
                                 &params));
    return blocks > 0 ? smelt__gqa_launch_all(gqa, SMELT__GQA_BACKWARD_KEY_SUMS, blocks, &params)
                      : SMELT_OK;
}

/* dq, and the sums of dk and dv. What may be refused comes before the first launch. */
static smelt_status launch_blocks(struct backward *backward) {
    const smelt_sparse_gqa_grad_args *args = backward->gqa.call->args;
    struct smelt__gqa *const gqa = &backward->gqa;
    struct sparse_gqa_bwd_block_params *const params = &backward->block;
    params->queries = gqa->index.queries;
    params->statistics = backward->statistics;
    params->scale = args->scale;
    if (gqa->lists > 0) {
        SMELT__TRY(smelt__gqa_sources(gqa, &params->items, &params->q_map, &params->k, &params->v));
        SMELT__TRY(smelt__gqa_query_map(gqa, "grad_out", &args->grad_out, gqa->shape.dv,
                                        &params->grad_out_map));
    }
    SMELT__TRY(launch_rows(backward));
    while (smelt__gqa_next_chunk(gqa)) {
        SMELT__TRY(smelt__gqa_launch_index(gqa, SMELT__GQA_BACKWARD_COUNT));
        if (gqa->lists > 0)
            SMELT__TRY(smelt__gqa_launch(gqa, SMELT__GQA_BACKWARD_KEYS, INT32_MAX, params));
        SMELT__TRY(launch_sums(backward));
    }
    return SMELT_OK;
}

/* ---- other kernels --------------------------------------------------------------------------- */

static struct sparse_gqa_bwd_params pack(const struct backward *backward) {
    const smelt_sparse_gqa_grad_args *args = backward->gqa.call->args;
    const struct sparse_gqa_lists_params *const index = &backward->gqa.index;
    return (struct sparse_gqa_bwd_params){
        .work = index->work,
        .lists = index->lists,
        SMELT__TENSOR_BTH(q, args->q),
        SMELT__TENSOR_BSH(k, args->k),
        SMELT__TENSOR_BSH(v, args->v),
        SMELT__TENSOR_BTH(grad_out, args->grad_out),
        .statistics = backward->statistics,
        SMELT__TENSOR_BTH(dq, args->dq),
        .dk = backward->dk,
        .dv = backward->dv,
        .grains = backward->grains,
        .starts = index->starts,
        .items = index->items,
        .queries = index->queries,
        .blocks = index->blocks,
        .index_lists = (int)backward->gqa.lists,
        .segment = index->segment,
        .scale = args->scale,
    };
}

/* Computes dk and dv by key, with a launch for each range of the index. */
static smelt_status launch_ranges(const struct backward *backward,
                                  const struct sparse_gqa_bwd_params *pass) {
    const struct smelt__gqa *const gqa = &backward->gqa;
    const int items = (int)(gqa->fields.batches * gqa->shape.kv_heads * gqa->index.blocks);
    const int64_t chunks = smelt__divide_up(gqa->queries, gqa->index.chunk_entries);
    struct sparse_gqa_bwd_few_params params = {
        .work = {.batches = 1, .tokens = items, .query_capacity = items}, .pass = *pass};
    for (int64_t chunk = 0; chunk < chunks; chunk += backward->range) {
        const int64_t end = chunk + backward->range;
        params.begin = gqa->index.counts + chunk * gqa->lists;
        params.end = end < chunks ? gqa->index.counts + end * gqa->lists : NULL;
        SMELT__TRY(smelt__gqa_launch(gqa, SMELT__GQA_BACKWARD_KEYS, items, &params));
    }
    return SMELT_OK;
}

/* Computes the grains of dk's and dv's rows from their bounds, which until then lie in the memory of the sums. */
static smelt_status launch_grains(const struct backward *backward,
                                  struct sparse_gqa_bwd_params params) {
    const struct key_grads_bins_params bins = {
        .bounds = (void *)backward->dk,
        .grains = backward->grains,
        .rows = backward->keys,
    };
    params.bounds = (void *)backward->dk; /* 128 bytes a row; the sums have at least 512 */
    SMELT__TRY(smelt__gqa_launch(&backward->gqa, SMELT__GQA_BACKWARD_BOUNDS, backward->gqa.queries,
                                 &params));
    SMELT__TRY(smelt__gqa_launch(&backward->gqa, SMELT__GQA_BACKWARD_GRAINS, bins.rows, &bins));
    return clear_sums(backward);
}

/* Computes dq by query, and the sums of dk and dv with it or by key. */
static smelt_status launch_queries(struct backward *backward) {
    struct smelt__gqa *const gqa = &backward->gqa;
    const struct sparse_gqa_bwd_params params = pack(backward);
    struct sparse_gqa_bwd_params query_params = params;
    if (backward->kind != BY_QUERY)
        query_params.dk = query_params.dv = NULL;
    SMELT__TRY(launch_rows(backward));
    if (backward->grains && backward->keys > 0)
        SMELT__TRY(launch_grains(backward, params));
    SMELT__TRY(smelt__gqa_launch(gqa, SMELT__GQA_BACKWARD_QUERIES, gqa->queries, &query_params));
    if (backward->keys == 0 || backward->kind == BY_QUERY)
        return SMELT_OK;
    smelt__gqa_next_chunk(gqa); /* all queries */
    SMELT__TRY(smelt__gqa_launch_index(gqa, SMELT__GQA_BACKWARD_COUNT));
    return backward->kind == FEW
               ? launch_ranges(backward, &params)
               : smelt__gqa_launch(gqa, SMELT__GQA_BACKWARD_KEYS, INT32_MAX, &params);
}

/* ---- the call -------------------------------------------------------------------------------- */

/* Writes the caller's dk or dv, in the form that `params` describes, and together with dk also dsink. */
static smelt_status launch_finish(const struct backward *backward, int role, int columns,
                                  const float *sums, struct key_grads_finish_params params) {
    const smelt_sparse_gqa_grad_args *args = backward->gqa.call->args;
    const struct smelt__gqa *const gqa = &backward->gqa;
    if (role == SMELT__GQA_BACKWARD_FINISH_DK && args->dsink.data) {
        params.dsink_parts = backward->dsink_parts;
        params.dsink = args->dsink.data;
    }
    params.sums = sums;
    params.batches = (int)args->batches;
    params.rows = (int)args->rows;
    params.key_heads = gqa->shape.kv_heads;
    params.heads = gqa->shape.heads;
    params.parts = (int)parts_of(gqa);
    return smelt__key_grads_launch(gqa->call->op->context, gqa->kernels[role], gqa->call->stream,
                                   columns, 0, &params);
}

smelt_status smelt__sparse_gqa_backward_launch(struct smelt__call *call) {
    const smelt_sparse_gqa_grad_args *args = call->args;
    struct backward backward;
    SMELT__TRY(smelt__check_scale(args->scale));
    SMELT__TRY(place(call, &backward));
    SMELT__TRY(smelt__gqa_check(&backward.gqa, call));
    const struct smelt__gqa_shape *const shape = &backward.gqa.shape;
    const int queries = backward.gqa.queries > 0, blocks = queries && backward.kind == BLOCKS;
    if (backward.keys > 0 && !blocks)
        SMELT__TRY(clear_sums(&backward));
    if (queries)
        SMELT__TRY(blocks ? launch_blocks(&backward) : launch_queries(&backward));
    if (backward.keys > 0 || args->dsink.data)
        SMELT__TRY(
            launch_finish(&backward, SMELT__GQA_BACKWARD_FINISH_DK, shape->dqk, backward.dk,
                          smelt__key_grads_params(&args->dk, &args->dk_fp32, &args->dk_sum)));
    if (backward.keys > 0)
        SMELT__TRY(
            launch_finish(&backward, SMELT__GQA_BACKWARD_FINISH_DV, shape->dv, backward.dv,
                          smelt__key_grads_params(&args->dv, &args->dv_fp32, &args->dv_sum)));
    return SMELT_OK;
}
