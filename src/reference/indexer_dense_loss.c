#include "reference/operators.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

struct smelt__indexer_bwd_spec
smelt__indexer_dense_loss_indexer(const struct smelt__indexer_dense_loss_spec *spec) {
    return (struct smelt__indexer_bwd_spec){.heads = spec->index_heads,
                                            .dim = spec->index_dim,
                                            .activation = spec->activation,
                                            .granularity = 1,
                                            .deterministic = spec->deterministic,
                                            .weights_dtype = spec->weights_dtype};
}

smelt_indexer_bwd_args
smelt__indexer_dense_loss_gradients(const struct smelt__indexer_dense_loss_spec *spec,
                                    const smelt_indexer_dense_loss_args *args) {
    smelt_indexer_bwd_args gradients = SMELT_INDEXER_BWD_ARGS_INIT;
    gradients.tokens = args->tokens;
    gradients.rows = gradients.width = smelt__indexer_dense_loss_keys(spec, args);
    gradients.q = args->index_q;
    gradients.k = args->index_k;
    gradients.weights = args->index_weights;
    return gradients;
}

int64_t smelt__indexer_dense_loss_keys(const struct smelt__indexer_dense_loss_spec *spec,
                                       const smelt_indexer_dense_loss_args *args) {
    return (args->rows + spec->granularity - 1) / spec->granularity;
}

static int64_t weight_bytes(const struct smelt__indexer_dense_loss_spec *spec) {
    return spec->weights_dtype ? 2 : 4; /* bf16 or fp32 */
}

static const void *advanced(const void *data, int64_t bytes) {
    return data ? (const char *)data + bytes : NULL;
}

struct smelt__indexer_dense_loss_group
smelt__indexer_dense_loss_group(const struct smelt__indexer_dense_loss_spec *spec,
                                const smelt_indexer_dense_loss_args *args, int group) {
    struct smelt__indexer_dense_loss_group one = {*spec, *args};
    const int heads = spec->heads / spec->groups, index_heads = spec->index_heads / spec->groups;
    const int kv_head = group * heads / (spec->heads / spec->kv_heads);
    one.spec.groups = 1;
    one.spec.heads = heads;
    one.spec.index_heads = index_heads;
    one.spec.kv_heads = spec->kv_heads > spec->groups ? spec->kv_heads / spec->groups : 1;
    one.args.q.data = advanced(args->q.data, group * heads * args->q.strides[1] * 2);
    one.args.k.data = advanced(args->k.data, kv_head * args->k.strides[1] * 2);
    one.args.lse.data = advanced(args->lse.data, group * heads * args->lse.strides[1] * 4);
    one.args.index_q.data =
        advanced(args->index_q.data, group * index_heads * args->index_q.strides[1] * 2);
    one.args.index_weights.data =
        advanced(args->index_weights.data, group * index_heads * weight_bytes(spec));
    return one;
}

void smelt__indexer_dense_loss_add(const struct smelt__indexer_bwd_row *more, int dim,
                                   struct smelt__indexer_bwd_row *row) {
    for (int d = 0; d < dim; d++)
        row->grads[d] += more->grads[d];
    row->spread = hypot(row->spread, more->spread);
    row->doubtful += more->doubtful;
}

/* The sum over the heads of attention's probabilities: target[rows], 0 outside the window. */
static int add_targets(const struct smelt__indexer_dense_loss_spec *spec,
                       const smelt_indexer_dense_loss_args *args, int64_t query, double *scores,
                       double *target) {
    const struct smelt__dense_attention attention = {{spec->heads, spec->dqk, spec->kv_heads},
                                                     args->rows,
                                                     (double)args->scale,
                                                     args->q,
                                                     args->k,
                                                     args->window_begin,
                                                     args->window_end};
    int64_t begin, end;
    smelt__dense_window(&attention, query, &begin, &end);
    for (int64_t s = 0; s < args->rows; s++)
        target[s] = 0;
    for (int head = 0; head < spec->heads; head++) {
        const double lse =
            (double)((const float *)args->lse
                         .data)[query * args->lse.strides[0] + head * args->lse.strides[1]];
        if (smelt__dense_scores(&attention, query, head, scores))
            return -1;
        for (int64_t s = begin; s < end; s++)
            target[s] += exp(scores[s - begin] - lse);
    }
    return 0;
}

/* The logits of a window of the indexer's keys, and their terms' sizes. */
static int find_logits(const struct smelt__indexer_dense_loss_spec *spec,
                       const smelt_indexer_dense_loss_args *args, int64_t query,
                       const int32_t window[2], double *logits, double *terms) {
    const struct smelt__indexer_logits_spec indexer = {.heads = spec->index_heads,
                                                       .dim = spec->index_dim,
                                                       .dtype = SMELT__DTYPE_BF16,
                                                       .activation = spec->activation,
                                                       .weights = 1,
                                                       .groups = 1,
                                                       .block_max = 1,
                                                       .weights_dtype = spec->weights_dtype};
    smelt_indexer_logits_args scored = SMELT_INDEXER_LOGITS_ARGS_INIT;
    scored.tokens = 1;
    scored.rows = smelt__indexer_dense_loss_keys(spec, args);
    scored.q = args->index_q;
    scored.q.data = advanced(args->index_q.data, query * args->index_q.strides[0] * 2);
    scored.k = args->index_k;
    scored.weights = args->index_weights;
    scored.weights.data = advanced(args->index_weights.data,
                                   query * args->index_weights.strides[0] * weight_bytes(spec));
    scored.window_begin.data = &window[0];
    scored.window_end.data = &window[1];
    return smelt__indexer_logits_reference(&indexer, &scored, 0, logits, terms);
}

/* Numbers of one query: of attention's keys, and of the indexer's. */
struct numbers {
    double *scores, *targets; /* [rows] */
    double *logits, *terms;   /* [keys] */
    float *logit, *target;    /* [keys] of slots */
    int64_t begin, end;       /* the window of attention's keys */
    int64_t keys;
};

/* As the loss takes them. */
static double clamped(double logit) {
    return isnan(logit) ? -INFINITY : fmin(logit, (double)FLT_MAX);
}

/* A slot's logit is that of key `key`; its targets those of attention's keys `first` on. */
static void set_slot(const struct numbers *numbers, int64_t key, int64_t first, int64_t end,
                     struct smelt__indexer_dense_loss_query *result) {
    double sum = 0;
    for (int64_t s = first; s < end; s++)
        sum += numbers->targets[s];
    numbers->logit[key] = (float)numbers->logits[key];
    numbers->target[key] = (float)sum;
    result->keys[key] = (int32_t)key;
}

/* Single keys, or pools all of whose keys are in the window. */
static void set_pools(const struct smelt__indexer_dense_loss_spec *spec,
                      const struct numbers *numbers,
                      struct smelt__indexer_dense_loss_query *result) {
    for (int64_t pool = 0; pool < numbers->keys; pool++) {
        const int64_t first = pool * spec->granularity, end = first + spec->granularity;
        if (first >= numbers->begin && end <= numbers->end)
            set_slot(numbers, pool, first, end, result);
    }
}

/* The part of a block that is in the window. */
static void open_block(const struct smelt__indexer_dense_loss_spec *spec,
                       const struct numbers *numbers, int64_t block, int64_t *first, int64_t *end) {
    *first = block * spec->block_max;
    *end = *first + spec->block_max;
    if (*first < numbers->begin)
        *first = numbers->begin;
    if (*end > numbers->end)
        *end = numbers->end;
}

/* The lowest key with the largest logit. */
static int64_t largest_of(const struct numbers *numbers, int64_t first, int64_t end) {
    int64_t best = first;
    for (int64_t s = first + 1; s < end; s++)
        if (clamped(numbers->logits[s]) > clamped(numbers->logits[best]))
            best = s;
    return best;
}

static int64_t blocks_of(const struct smelt__indexer_dense_loss_spec *spec,
                         const struct numbers *numbers) {
    return (numbers->keys + spec->block_max - 1) / spec->block_max;
}

static void set_blocks(const struct smelt__indexer_dense_loss_spec *spec,
                       const struct numbers *numbers,
                       struct smelt__indexer_dense_loss_query *result) {
    for (int64_t block = 0; block < blocks_of(spec, numbers); block++) {
        int64_t first, end;
        open_block(spec, numbers, block, &first, &end);
        if (first < end)
            set_slot(numbers, largest_of(numbers, first, end), first, end, result);
    }
}

static void find_doubts(const struct smelt__indexer_dense_loss_spec *spec,
                        const struct numbers *numbers,
                        struct smelt__indexer_dense_loss_query *result) {
    for (int64_t block = 0; block < blocks_of(spec, numbers); block++) {
        int64_t first, end;
        open_block(spec, numbers, block, &first, &end);
        const int64_t best = first < end ? largest_of(numbers, first, end) : 0;
        for (int64_t s = first; s < end; s++) {
            const double less = clamped(numbers->logits[best]) - clamped(numbers->logits[s]);
            const double terms = numbers->terms[best] + numbers->terms[s];
            if (less > 0 && less <= SMELT__INDEXER_DENSE_DOUBT * terms)
                result->doubt[s] = result->doubt[best] = fabs(result->grad[best]);
        }
    }
}

/* Loss and gradient of a row of logits and targets. */
static void find_loss(const smelt_indexer_dense_loss_args *args, int64_t query,
                      const struct numbers *numbers,
                      struct smelt__indexer_dense_loss_query *result) {
    smelt_indexer_loss_args loss = SMELT_INDEXER_LOSS_ARGS_INIT;
    loss.tokens = args->tokens;
    loss.rows = loss.width = numbers->keys;
    loss.query_weight = args->query_weight;
    loss.weight = args->weight;
    loss.grad_loss = args->grad_loss;
    loss.logits.data = numbers->logit; /* strides of 0: the row is every query's */
    loss.target.data = numbers->target;
    loss.indices.data = result->keys;
    result->found = smelt__indexer_loss_reference(&loss, query, result->q, result->p, result->grad);
}

/* The windows of attention's keys, and of the indexer's. */
static void find_windows(const struct smelt__indexer_dense_loss_spec *spec,
                         const smelt_indexer_dense_loss_args *args, int64_t query,
                         struct numbers *numbers, int32_t window[2]) {
    const struct smelt__dense_attention attention = {
        .rows = args->rows, .window_begin = args->window_begin, .window_end = args->window_end};
    smelt__dense_window(&attention, query, &numbers->begin, &numbers->end);
    window[0] = (int32_t)((numbers->begin + spec->granularity - 1) / spec->granularity);
    window[1] = (int32_t)(numbers->end / spec->granularity);
}

static int find_query(const struct smelt__indexer_dense_loss_spec *spec,
                      const smelt_indexer_dense_loss_args *args, int64_t query,
                      struct numbers *numbers, struct smelt__indexer_dense_loss_query *result) {
    int32_t window[2];
    find_windows(spec, args, query, numbers, window);
    if (find_logits(spec, args, query, window, numbers->logits, numbers->terms) ||
        add_targets(spec, args, query, numbers->scores, numbers->targets))
        return -1;
    result->terms = 0;
    for (int64_t s = 0; s < numbers->keys; s++) {
        result->terms = fmax(result->terms, numbers->terms[s]);
        result->keys[s] = -1;
        result->doubt[s] = 0;
    }
    if (spec->block_max > 1)
        set_blocks(spec, numbers, result);
    else
        set_pools(spec, numbers, result);
    find_loss(args, query, numbers, result);
    if (spec->block_max > 1)
        find_doubts(spec, numbers, result);
    return 0;
}

int smelt__indexer_dense_loss_reference(const struct smelt__indexer_dense_loss_spec *spec,
                                        const smelt_indexer_dense_loss_args *args, int64_t query,
                                        struct smelt__indexer_dense_loss_query *result) {
    struct numbers numbers = {.keys = smelt__indexer_dense_loss_keys(spec, args)};
    const size_t rows = (size_t)args->rows, keys = (size_t)numbers.keys;
    double *const memory = malloc((2 * rows + 2 * keys + 1) * sizeof *memory);
    float *const floats = calloc(2 * keys + 1, sizeof *floats);
    int failed = !memory || !floats;
    if (!failed) {
        numbers.scores = memory;
        numbers.targets = memory + rows;
        numbers.logits = memory + 2 * rows;
        numbers.terms = numbers.logits + keys;
        numbers.logit = floats;
        numbers.target = floats + keys;
        failed = find_query(spec, args, query, &numbers, result);
    }
    free(memory);
    free(floats);
    return failed ? -1 : 0;
}
