/*
 * The operator indexer_dense_loss: see smelt/indexer_dense_loss.h.
 *
 * Queries are processed in chunks. A chunk's logits and targets, a row of S numbers each, are in the
 * workspace: the kernels of the logits and of the probabilities each have the shared memory to
 * themselves, which one kernel for both and the gradients would divide, and the products are the
 * same in number. A chunk's loss then leaves the gradients as lists for indexer_bwd's main kernel.
 */
#include "smelt/indexer_dense_loss.h"

#include "codegen/families/dense_scores_fwd.h"
#include "codegen/families/indexer_dense_loss.h"
#include "indexer_dense_rows.params.h"
#include "indexer_dense_windows.params.h"
#include "indexer_loss_sum.params.h"
#include "ops/call.h"
#include "ops/dense_maps.h"
#include "ops/divide.h"
#include "ops/indexer_bwd_launch.h"
#include "ops/indexer_dense_loss_table.h"
#include "ops/indexer_logits_launch.h"
#include "runtime/log.h"

/* clang-format off */
#include "common/tensor_map.h"
#include "dense_scores_fwd.params.h"
/* clang-format on */

enum {
    ELEMENT = 2,          /* bytes */
    LIST_STEP = 64,       /* lists are padded to multiples of it */
    MOST_GROUPS = 1 << 20 /* of a chunk */
};

struct dense_loss {
    smelt_operator op;
    const struct smelt__kernel *const *kernels; /* by enum smelt__indexer_dense_loss_kernel */
    struct shape {
        int groups, granularity, block_max;
        int heads, kv_heads, index_heads; /* of a group */
        int64_t dqk;
        int all_kv_heads; /* of all groups */
    } shape;
    struct smelt__indexer_scorer scorer;
    struct smelt__dense_scores_launch scores;
    struct smelt__indexer_bwd indexer; /* its own operator is not used */
};

static struct shape shape_of(const struct smelt__spec *spec) {
    const int groups = (int)smelt__spec_get(spec, "groups");
    const int all_kv_heads = (int)smelt__spec_get(spec, "kv_heads");
    return (struct shape){
        .groups = groups,
        .granularity = (int)smelt__spec_get(spec, "granularity"),
        .block_max = (int)smelt__spec_get(spec, "block_max"),
        .heads = (int)smelt__spec_get(spec, "heads") / groups,
        .kv_heads = all_kv_heads > groups ? all_kv_heads / groups : 1,
        .dqk = smelt__spec_get(spec, "dqk"),
        .index_heads = (int)smelt__spec_get(spec, "index_heads") / groups,
        .all_kv_heads = all_kv_heads,
    };
}

static void prepare(smelt_operator *op) {
    struct dense_loss *made = (struct dense_loss *)op;
    struct smelt__indexer_bwd *indexer = &made->indexer;
    made->shape = shape_of(&op->spec);
    made->kernels = smelt__operator_kernels(op, SMELT_PASS_FORWARD);
    made->scorer = smelt__indexer_scorer_of(op, made->kernels[SMELT__INDEXER_DENSE_LOGITS]);
    made->scorer.q_name = "index_q", made->scorer.k_name = "index_k";
    made->scores = *smelt__dense_scores_launch(&made->kernels[SMELT__INDEXER_DENSE_SCORES]->plan);
    indexer->context = op->context;
    indexer->q_name = made->scorer.q_name;
    /* In the place of the lists' kernel is one that is never launched as such. */
    indexer->kernels = made->kernels + SMELT__INDEXER_DENSE_BACKWARD - SMELT__INDEXER_BWD_REACH;
    indexer->heads = made->shape.index_heads;
    indexer->dim = (int)smelt__spec_get(&op->spec, "index_dim");
    indexer->deterministic = (int)smelt__spec_get(&op->spec, "deterministic");
    indexer->weights_bf16 = made->scorer.weights_bf16;
    indexer->main =
        *smelt__indexer_bwd_main_launch(&indexer->kernels[SMELT__INDEXER_BWD_MAIN]->plan);
}

/* ---- the workspace --------------------------------------------------------------------------- */

struct layout {
    size_t losses, scores;
    size_t pool_begin, pool_end;
    struct smelt__indexer_bwd_layout indexer; /* its `grads` are the logits, too */
    int64_t chunk;                            /* queries of one, whole groups of a tile */
    int64_t scores_stride;
};

static int count_forms(const smelt_indexer_dense_loss_args *args) {
    return (args->index_dk.data != NULL) + (args->index_dk_fp32.data != NULL) +
           (args->index_dk_sum.data != NULL);
}

static int wants_gradients(const smelt_indexer_dense_loss_args *args) {
    return args->index_dq.data || args->index_dweights.data || count_forms(args) > 0;
}

static int64_t pools_of(const struct dense_loss *made, int64_t keys) {
    return smelt__divide_up(keys, made->shape.granularity);
}

/* Rows of whole steps. */
static int64_t stride_of(int64_t elements) {
    return smelt__divide_up(elements > 0 ? elements : 1, LIST_STEP) * LIST_STEP;
}

/* Elements of a row of logits and of a group's list: each member has a section for its blocks. */
static int64_t key_stride_of(const struct dense_loss *made, int64_t rows) {
    const int64_t blocks = smelt__divide_up(rows, made->shape.block_max);
    const int64_t sections = blocks * made->indexer.main.group_queries;
    const int64_t pools = pools_of(made, rows);
    return stride_of(made->shape.block_max > 1 && sections > pools ? sections : pools);
}

/* The arrays of chunks of `groups` groups of queries that share a tile. */
static struct layout lay_out(const struct dense_loss *made,
                             const smelt_indexer_dense_loss_args *args, int64_t groups) {
    const int64_t stride = key_stride_of(made, args->rows);
    const int64_t queries = groups * made->indexer.main.group_queries;
    const int64_t windows = made->shape.granularity > 1 ? args->tokens : 0;
    struct layout layout = {.chunk = queries, .scores_stride = stride_of(args->rows)};
    size_t *const end = &layout.indexer.bytes;
    layout.losses = smelt__workspace_place(
        end, args->losses.data ? 0 : args->tokens * made->shape.groups, sizeof(float));
    layout.pool_begin = smelt__workspace_place(end, windows, sizeof(int));
    layout.pool_end = smelt__workspace_place(end, windows, sizeof(int));
    layout.scores = smelt__workspace_place(end, queries * layout.scores_stride, sizeof(float));
    if (wants_gradients(args)) {
        smelt__indexer_bwd_lay_out(&made->indexer, groups, stride, pools_of(made, args->rows),
                                   queries < args->tokens || made->shape.groups > 1,
                                   &layout.indexer);
        return layout;
    }
    layout.indexer.key_stride = (int)stride;
    layout.indexer.grads = smelt__workspace_place(end, queries * stride, sizeof(float));
    return layout;
}

/* The most groups of a chunk, up to `most`, whose arrays stay below the limit; at least 1. */
static int64_t groups_below(const struct dense_loss *made,
                            const smelt_indexer_dense_loss_args *args, int64_t most) {
    int64_t fits = 1, above = most + 1; /* the first one that does not */
    while (above - fits > 1) {
        const int64_t middle = fits + (above - fits) / 2;
        if (lay_out(made, args, middle).indexer.bytes <= args->workspace_limit)
            fits = middle;
        else
            above = middle;
    }
    return fits;
}

static smelt_status find_layout(const struct dense_loss *made,
                                const smelt_indexer_dense_loss_args *args, struct layout *layout) {
    const int64_t group_queries = made->indexer.main.group_queries;
    const int64_t all = smelt__divide_up(args->tokens, group_queries);
    int64_t most = args->workspace_limit
                       ? MOST_GROUPS
                       : smelt__divide_up(SMELT_INDEXER_DENSE_LOSS_QUERIES, group_queries);
    if (made->indexer.deterministic && most > made->indexer.main.exact_groups)
        most = made->indexer.main.exact_groups;
    if (most > all)
        most = all;
    if (args->workspace_limit && most > 0)
        most = groups_below(made, args, most);
    *layout = lay_out(made, args, most);
    if (!args->workspace_limit || layout->indexer.bytes <= args->workspace_limit)
        return SMELT_OK;
    return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                       "workspace_limit = %zu is too small: a chunk of one group of queries, with "
                       "the sums of index_dk, needs %zu bytes",
                       args->workspace_limit, layout->indexer.bytes);
}

static smelt_status workspace(const struct smelt__call *call, size_t *bytes) {
    struct layout layout;
    SMELT__TRY(find_layout((const struct dense_loss *)call->op, call->args, &layout));
    *bytes = layout.indexer.bytes;
    return SMELT_OK;
}

/* ---- arguments ------------------------------------------------------------------------------- */

/* Those without elements may be NULL. */
static smelt_status check_gradients(const smelt_indexer_dense_loss_args *args) {
    const int forms = count_forms(args);
    const int dq = args->index_dq.data != NULL, dweights = args->index_dweights.data != NULL;
    const int queries = args->tokens == 0 || (dq && dweights);
    if (!wants_gradients(args) || (queries && (forms == 1 || (args->rows == 0 && forms == 0))))
        return SMELT_OK;
    return smelt__fail(
        SMELT_ERROR_INVALID_ARGUMENT,
        "index_dq, index_dweights and one of index_dk (bf16), index_dk_fp32 (fp32) and "
        "index_dk_sum (fp32, added to) are given together, or none of them: index_dq is %s, "
        "index_dweights is %s, of the forms of index_dk there are %d",
        dq ? "given" : "NULL", dweights ? "given" : "NULL", forms);
}

/* ---- launching ------------------------------------------------------------------------------- */

/* A checked call. */
struct chain {
    const struct smelt__call *call;
    const struct dense_loss *made;
    const smelt_indexer_dense_loss_args *args;
    struct layout layout;
    struct smelt__indexer_bwd_call gradients;
    const int *begins, *ends; /* [tokens] windows of the indexer's keys */
};

/* Queries of a chunk, the keys that their windows may have, and a group of heads. `args`: the call's,
 * with the tensors that have heads from the group's first one on. */
struct chunk {
    int64_t first, queries, keys;
    int group;
    smelt_indexer_dense_loss_args args;
};

static void *at(const struct chain *chain, size_t offset) {
    return (char *)chain->args->workspace + offset;
}

static int64_t weight_bytes_of(const struct chain *chain) {
    return chain->made->indexer.weights_bf16 ? ELEMENT : (int64_t)sizeof(float);
}

/* The address `count` steps of so many bytes past `data`; NULL stays NULL. */
static void *past(const void *data, int64_t count, int64_t step) {
    char *const first = (char *)(uintptr_t)data;
    return first && count > 0 ? first + count * step : first;
}

static smelt_indexer_dense_loss_args args_of_group(const struct chain *chain, int group) {
    const struct shape *shape = &chain->made->shape;
    const int64_t head = (int64_t)group * shape->heads, weight = weight_bytes_of(chain);
    const int64_t kv_head = (int64_t)group * shape->all_kv_heads / shape->groups;
    const int64_t index_head = (int64_t)group * shape->index_heads;
    smelt_indexer_dense_loss_args args = *chain->args;
    args.q.data = past(args.q.data, head, args.q.strides[1] * ELEMENT);
    args.k.data = past(args.k.data, kv_head, args.k.strides[1] * ELEMENT);
    args.lse.data = past(args.lse.data, head, args.lse.strides[1] * (int64_t)sizeof(float));
    args.index_q.data = past(args.index_q.data, index_head, args.index_q.strides[1] * ELEMENT);
    args.index_dq.data = past(args.index_dq.data, index_head, args.index_dq.strides[1] * ELEMENT);
    args.index_weights.data = past(args.index_weights.data, index_head, weight);
    args.index_dweights.data = past(args.index_dweights.data, index_head, weight);
    return args;
}

/* A tensor from a chunk's first query on. */
static smelt_const_tensor from_query(const struct chunk *chunk, smelt_const_tensor tensor,
                                     int64_t bytes) {
    tensor.data = past(tensor.data, chunk->first, tensor.strides[0] * bytes);
    return tensor;
}

/* Keys that the indexer has for a chunk: a pool that lacks a key is in no window. */
static int64_t index_keys(const struct chain *chain, const struct chunk *chunk) {
    return chunk->keys / chain->made->shape.granularity;
}

static smelt_status launch_kernel(const struct chain *chain,
                                  enum smelt__indexer_dense_loss_kernel number, int64_t items,
                                  const void *params) {
    return smelt__call_launch(chain->call, chain->made->kernels[number], items,
                              chain->args->free_multiprocessors, params);
}

static smelt_status launch_logits(const struct chain *chain, const struct chunk *chunk) {
    const smelt_indexer_dense_loss_args *args = &chunk->args;
    const smelt_indexer_logits_args part = {
        .tokens = chunk->queries,
        .rows = index_keys(chain, chunk),
        .free_multiprocessors = args->free_multiprocessors,
        .q = from_query(chunk, args->index_q, ELEMENT),
        .k = args->index_k,
        .weights = from_query(chunk, args->index_weights, weight_bytes_of(chain)),
        .window_begin = {chain->begins + chunk->first, {0}},
        .window_end = {chain->ends + chunk->first, {0}},
        .logits = {at(chain, chain->layout.indexer.grads), {chain->layout.indexer.key_stride}},
    };
    const struct smelt__indexer_chain inside = {.inner_only = 1};
    return smelt__indexer_scorer_launch(&chain->made->scorer, &part, &inside, chain->call->stream);
}

/* Attention's, in the boxes of its kernel. */
static struct smelt__dense_operands operands_of(const struct dense_loss *made, smelt_const_tensor q,
                                                smelt_const_tensor k, int64_t tokens,
                                                int64_t rows) {
    return (struct smelt__dense_operands){
        .q = q,
        .k = k,
        .tokens = tokens,
        .rows = rows,
        .kv_heads = made->shape.kv_heads,
        .group = made->shape.heads / made->shape.kv_heads,
        .dqk = (int)made->shape.dqk,
        .box_queries = made->scores.tile_queries,
        .box_heads = made->scores.query_rows,
        .box_keys = made->scores.block_keys,
    };
}

static smelt_status launch_scores(const struct chain *chain, const struct chunk *chunk) {
    const smelt_indexer_dense_loss_args *args = &chunk->args;
    const struct smelt__dense_scores_launch *shape = &chain->made->scores;
    const smelt_const_tensor q = from_query(chunk, args->q, ELEMENT);
    const smelt_const_tensor lse = from_query(chunk, args->lse, sizeof(float));
    const struct smelt__dense_operands operands =
        operands_of(chain->made, q, args->k, chunk->queries, chunk->keys);
    struct dense_scores_fwd_params params = {
        SMELT__TENSOR_TH(q, q),
        SMELT__TENSOR_SH(k, args->k),
        SMELT__TENSOR_TH(lse, lse),
        .window_begin = (const int *)args->window_begin.data + chunk->first,
        .window_end = (const int *)args->window_end.data + chunk->first,
        .scores = at(chain, chain->layout.scores),
        .scores_stride = chain->layout.scores_stride,
        .tokens = (int)chunk->queries,
        .rows = (int)chunk->keys,
        .scale = args->scale,
    };
    if (shape->tensor_maps)
        SMELT__TRY(smelt__dense_maps_make(chain->made->op.context, &operands, &params.q_map,
                                          &params.k_map));
    return launch_kernel(chain, SMELT__INDEXER_DENSE_SCORES,
                         smelt__divide_up(chunk->queries, shape->item_queries) *
                             smelt__divide_up(chunk->keys, shape->block_keys),
                         &params);
}

static float *losses_of(const struct chain *chain) {
    return chain->args->losses.data ? chain->args->losses.data : at(chain, chain->layout.losses);
}

static int64_t losses_stride(const struct chain *chain) {
    const int groups = chain->made->shape.groups;
    return chain->args->losses.data && groups > 1 ? chain->args->losses.strides[0] : groups;
}

static smelt_status launch_rows(const struct chain *chain, const struct chunk *chunk) {
    const smelt_indexer_dense_loss_args *args = chain->args;
    const struct smelt__indexer_bwd_layout *layout = &chain->layout.indexer;
    const struct smelt__indexer_bwd_main_launch *main = &chain->made->indexer.main;
    const int lists = wants_gradients(args);
    const int group_queries = lists ? main->group_queries : 1;
    const struct indexer_dense_rows_params params = {
        .scores = at(chain, chain->layout.scores),
        .logits = at(chain, layout->grads),
        .window_begin = chain->begins,
        .window_end = chain->ends,
        .weight = args->weight.data,
        .grad_loss = args->grad_loss.data,
        .losses = losses_of(chain) + chunk->group,
        .members = lists ? at(chain, layout->members) : NULL,
        .counts = lists ? at(chain, layout->counts) : NULL,
        .runs = lists && main->group_tiles > 1 ? at(chain, layout->runs) : NULL,
        .keys = lists ? at(chain, layout->keys) : NULL,
        .losses_stride = losses_stride(chain),
        .first = (int)chunk->first,
        .tokens = (int)args->tokens,
        .rows = (int)index_keys(chain, chunk),
        .groups = (int)smelt__divide_up(chunk->queries, group_queries),
        .group_queries = group_queries,
        .scores_stride = (int)chain->layout.scores_stride,
        .key_stride = layout->key_stride,
        .query_weight = args->query_weight,
    };
    return launch_kernel(chain, SMELT__INDEXER_DENSE_ROWS,
                         (int64_t)params.groups * params.group_queries, &params);
}

/* What indexer_bwd's launches read of its arguments. */
static smelt_indexer_bwd_args gradient_args(const struct chain *chain,
                                            const smelt_indexer_dense_loss_args *args) {
    return (smelt_indexer_bwd_args){
        .tokens = args->tokens,
        .rows = pools_of(chain->made, args->rows),
        .q = args->index_q,
        .k = args->index_k,
        .weights = args->index_weights,
        .dq = args->index_dq,
        .dweights = args->index_dweights,
        .dk = args->index_dk,
        .dk_fp32 = args->index_dk_fp32,
        .dk_sum = args->index_dk_sum,
        .workspace = args->workspace,
        .free_multiprocessors = args->free_multiprocessors,
    };
}

static smelt_status launch_gradients(const struct chain *chain, const struct chunk *chunk) {
    const int64_t group_queries = chain->made->indexer.main.group_queries;
    const smelt_indexer_bwd_args args = gradient_args(chain, &chunk->args);
    const struct smelt__indexer_bwd_call call = {&chain->made->indexer, &args,
                                                 chain->layout.indexer, chain->call->stream};
    const struct smelt__indexer_bwd_chunk groups = {
        .groups = smelt__divide_up(chunk->queries, group_queries),
        .begins = chunk->first == 0 && chunk->group == 0,
        .ends = chunk->first + chunk->queries == chain->args->tokens &&
                chunk->group == chain->made->shape.groups - 1,
    };
    return smelt__indexer_bwd_launch_chunk(&call, groups);
}

static smelt_status launch_group(const struct chain *chain, const struct chunk *chunk) {
    if (index_keys(chain, chunk) > 0) {
        SMELT__TRY(launch_logits(chain, chunk));
        SMELT__TRY(launch_scores(chain, chunk));
    }
    SMELT__TRY(launch_rows(chain, chunk));
    return wants_gradients(chain->args) ? launch_gradients(chain, chunk) : SMELT_OK;
}

/* The groups of heads one after another share the workspace. */
static smelt_status launch_chunk(const struct chain *chain, struct chunk chunk) {
    for (; chunk.group < chain->made->shape.groups; chunk.group++) {
        chunk.args = args_of_group(chain, chunk.group);
        SMELT__TRY(launch_group(chain, &chunk));
    }
    return SMELT_OK;
}

static smelt_status launch_sum(const struct chain *chain) {
    const struct indexer_loss_sum_params params = {.losses = losses_of(chain),
                                                   .loss = chain->args->loss.data,
                                                   .query_stride = losses_stride(chain),
                                                   .queries = (int)chain->args->tokens,
                                                   .groups = chain->made->shape.groups};
    return launch_kernel(chain, SMELT__INDEXER_DENSE_SUM, 1, &params);
}

/* The windows of pools, for all queries. */
static smelt_status launch_windows(const struct chain *chain) {
    const smelt_indexer_dense_loss_args *args = chain->args;
    const struct smelt__kernel *kernel = chain->made->kernels[SMELT__INDEXER_DENSE_WINDOWS];
    const struct indexer_dense_windows_params params = {
        .window_begin = args->window_begin.data,
        .window_end = args->window_end.data,
        .pool_begin = at(chain, chain->layout.pool_begin),
        .pool_end = at(chain, chain->layout.pool_end),
        .tokens = (int)args->tokens,
        .rows = (int)args->rows,
    };
    return smelt__call_launch(chain->call, kernel, smelt__divide_up(args->tokens, kernel->threads),
                              0, &params);
}

static smelt_status launch_chunks(const struct chain *chain) {
    const smelt_indexer_dense_loss_args *args = chain->args;
    if (wants_gradients(args))
        SMELT__TRY(smelt__indexer_bwd_launch_zeros(&chain->gradients));
    if (chain->made->shape.granularity > 1 && args->tokens > 0)
        SMELT__TRY(launch_windows(chain));
    for (int64_t first = 0; first < args->tokens;) {
        const int64_t left = args->tokens - first;
        struct chunk chunk = {first, left < chain->layout.chunk ? left : chain->layout.chunk,
                              args->rows, 0, *args};
        const int64_t reach = first + chunk.queries - 1 + args->causal_limit;
        if (args->causal_limit > 0 && reach < chunk.keys)
            chunk.keys = reach;
        SMELT__TRY(launch_chunk(chain, chunk));
        first += chunk.queries;
    }
    SMELT__TRY(launch_sum(chain));
    return wants_gradients(args) ? smelt__indexer_bwd_launch_finish(&chain->gradients) : SMELT_OK;
}

/* What the logits' and scores' kernels refuse; without keys they are not launched. */
static smelt_status check_key_maps(const struct chain *chain) {
    const smelt_indexer_dense_loss_args *args = chain->args;
    const smelt_indexer_logits_args logits = {.tokens = args->tokens,
                                              .rows = pools_of(chain->made, args->rows),
                                              .q = args->index_q,
                                              .k = args->index_k};
    const struct smelt__dense_operands operands =
        operands_of(chain->made, args->q, args->k, args->tokens, args->rows);
    SMELT__TRY(smelt__indexer_scorer_check(&chain->made->scorer, &logits));
    return chain->made->scores.tensor_maps
               ? smelt__dense_maps_check(&operands, "scores.variant=mma")
               : SMELT_OK;
}

/* What the kernels' tensor maps refuse, before anything is launched. */
static smelt_status check_maps(const struct chain *chain) {
    if (chain->args->tokens == 0)
        return SMELT_OK;
    if (chain->args->rows > 0)
        SMELT__TRY(check_key_maps(chain));
    return wants_gradients(chain->args) ? smelt__indexer_bwd_check(&chain->gradients) : SMELT_OK;
}

static smelt_status launch(struct smelt__call *call) {
    const struct dense_loss *made = (const struct dense_loss *)call->op;
    const smelt_indexer_dense_loss_args *args = call->args;
    struct chain chain = {.call = call, .made = made, .args = args};
    smelt_indexer_bwd_args gradients;
    SMELT__TRY(smelt__check_scale(args->scale));
    SMELT__TRY(smelt__check_query_weight(args->query_weight));
    SMELT__TRY(check_gradients(args));
    SMELT__TRY(find_layout(made, args, &chain.layout));
    SMELT__TRY(smelt__call_check(call, chain.layout.indexer.bytes, NULL, 0));
    gradients = gradient_args(&chain, args);
    chain.begins =
        made->shape.granularity > 1 ? at(&chain, chain.layout.pool_begin) : args->window_begin.data;
    chain.ends =
        made->shape.granularity > 1 ? at(&chain, chain.layout.pool_end) : args->window_end.data;
    chain.gradients = (struct smelt__indexer_bwd_call){&made->indexer, &gradients,
                                                       chain.layout.indexer, call->stream};
    SMELT__TRY(check_maps(&chain));
    return launch_chunks(&chain);
}

SMELT__OPERATOR(indexer_dense_loss, forward, FORWARD, struct dense_loss, prepare,
                .tables = smelt__indexer_dense_loss_table, .workspace = workspace, .launch = launch)
SMELT__ASK(indexer_dense_loss, forward, FORWARD, smelt_indexer_dense_loss_args)
