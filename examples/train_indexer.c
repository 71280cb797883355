/*
 * Trains the indexer to rank keys like attention, which stays unchanged. One step is six calls on
 * the device, none of which stores a queries x keys matrix:
 *
 *     cc train_indexer.c $(pkg-config --cflags --libs smelt) -lm && ./a.out
 *
 *   index queries, keys, weights; windows       -> indices, lengths     indexer_topk
 *   query, latent KV rows, indices, lengths     -> out, lse             sparse_attn
 *   query, latent KV rows, indices, lse         -> target               sparse_scores
 *   index queries, keys, weights, indices       -> logits               indexer_scores
 *   logits, target                              -> loss, grad           indexer_loss
 *   index queries, keys, weights, grad          -> their gradients      indexer_bwd
 *
 * followed by gradient descent, here on the host, in a trainer by its optimiser. Ranks that share
 * attention's heads add up their targets (all-reduce) before the loss.
 *
 * The loss is the Kullback-Leibler divergence of the indexer's softmax from attention's
 * probabilities over the selected keys, averaged over the queries. The program also prints the
 * share of attention's weight, over all keys, that the selected keys have.
 *
 * Exit status: 0 if the loss falls in every step and that share grows, else 1; 3 without a GPU (or
 * without a driver or NVRTC).
 */
#include <math.h>

#include "example.h"

enum { TOKENS = 40, TOPK = 12, HEADS = 4, DQK = 64, DV = 64, INDEX_HEADS = 4, INDEX_DIM = 64 };
enum { INDEX_Q_SIZE = TOKENS * INDEX_HEADS * INDEX_DIM, INDEX_K_SIZE = TOKENS * INDEX_DIM };
enum { STEPS = 8 };

static const float RATE = 6.0F; /* learning rate */

/* The trained values, in fp32, because bf16 would round small steps away. The GPU gets q and k
 * rounded. */
static float index_q[INDEX_Q_SIZE], index_k[INDEX_K_SIZE], weights[TOKENS * INDEX_HEADS];

/* Host copies of the device's rounded values, and the gradients. */
static uint16_t q_bf16[INDEX_Q_SIZE], k_bf16[INDEX_K_SIZE], dq[INDEX_Q_SIZE];
static float dk[INDEX_K_SIZE], dweights[TOKENS * INDEX_HEADS], loss;
static int32_t indices[TOKENS][TOPK], lengths[TOKENS], window_begin[TOKENS], window_end[TOKENS];
static uint16_t query[TOKENS][HEADS][DQK], kv[TOKENS][DQK]; /* attention's, not trained */

enum buffer {
    INDEX_Q,
    INDEX_K,
    WEIGHTS,
    BEGINS,
    ENDS,
    QUERY,
    KV,
    INDICES,
    LENGTHS,
    DQ,
    DK,
    DWEIGHTS,
    LOSS,
    OUT,
    LSE,
    TARGET,
    LOGITS,
    GRAD,
    BUFFERS
};

enum { SLOTS_BYTES = TOKENS * TOPK * sizeof(float) };

/* Device buffers and their host copies, if any. */
static const struct {
    void *host;
    size_t bytes;
} buffers[BUFFERS] = {
    [INDEX_Q] = {q_bf16, sizeof q_bf16},
    [INDEX_K] = {k_bf16, sizeof k_bf16},
    [WEIGHTS] = {weights, sizeof weights},
    [BEGINS] = {window_begin, sizeof window_begin},
    [ENDS] = {window_end, sizeof window_end},
    [QUERY] = {query, sizeof query},
    [KV] = {kv, sizeof kv},
    [INDICES] = {indices, sizeof indices},
    [LENGTHS] = {lengths, sizeof lengths},
    [DQ] = {dq, sizeof dq},
    [DK] = {dk, sizeof dk},
    [DWEIGHTS] = {dweights, sizeof dweights},
    [LOSS] = {&loss, sizeof loss},
    [OUT] = {NULL, TOKENS *HEADS *DV * 2},
    [LSE] = {NULL, TOKENS *HEADS * 4},
    [TARGET] = {NULL, SLOTS_BYTES},
    [LOGITS] = {NULL, SLOTS_BYTES},
    [GRAD] = {NULL, SLOTS_BYTES},
};

/* The operators and the arguments of their calls. */
struct training {
    smelt_context *context;
    void *device[BUFFERS];
    smelt_operator *choose;
    smelt_operator *attend;
    smelt_operator *weigh;
    smelt_operator *score;
    smelt_operator *compare;
    smelt_operator *differentiate;
    smelt_indexer_topk_args choose_args;
    smelt_sparse_attn_args attend_args;
    smelt_sparse_scores_args weigh_args;
    smelt_indexer_scores_args score_args;
    smelt_indexer_loss_args compare_args;
    smelt_indexer_bwd_args differentiate_args;
};

/* ---- operators ------------------------------------------------------------------------------- */

static void make_attention(struct training *training) {
    training->attend = make_operator(training->context, "sparse_attn:heads=%d,dqk=%d,dv=%d,topk=%d",
                                     HEADS, DQK, DV, TOPK);
    training->weigh = make_operator(
        training->context, "sparse_scores:heads=%d,dqk=%d,dv=%d,topk=%d", HEADS, DQK, DV, TOPK);
}

static void make_indexer(struct training *training) {
    smelt_context *const context = training->context;
    training->choose = make_operator(context, "indexer_topk:heads=%d,dim=%d,dtype=bf16,topk=%d",
                                     INDEX_HEADS, INDEX_DIM, TOPK);
    training->score = make_operator(context, "indexer_scores:heads=%d,dim=%d,topk=%d", INDEX_HEADS,
                                    INDEX_DIM, TOPK);
    training->compare = make_operator(context, "indexer_loss:topk=%d", TOPK);
    training->differentiate =
        make_operator(context, "indexer_bwd:heads=%d,dim=%d,topk=%d", INDEX_HEADS, INDEX_DIM, TOPK);
}

/* ---- arguments: one call's outputs are another's inputs -------------------------------------- */

static void set_choice(struct training *training) {
    void *const *device = training->device;
    smelt_indexer_topk_args *args = &training->choose_args;
    *args = (smelt_indexer_topk_args)SMELT_INDEXER_TOPK_ARGS_INIT;
    args->tokens = args->rows = TOKENS;
    args->q.data = device[INDEX_Q];
    args->k.data = device[INDEX_K];
    args->weights.data = device[WEIGHTS];
    args->window_begin.data = device[BEGINS];
    args->window_end.data = device[ENDS];
    args->indices.data = device[INDICES];
    args->lengths.data = device[LENGTHS];
    require(smelt_indexer_topk_forward_workspace(training->choose, args, &args->workspace_bytes),
            "workspace");
    args->workspace = allocate(training->context, args->workspace_bytes);
}

static void set_attention(struct training *training) {
    void *const *device = training->device;
    smelt_sparse_attn_args *attend = &training->attend_args;
    *attend = (smelt_sparse_attn_args)SMELT_SPARSE_ATTN_ARGS_INIT;
    attend->tokens = attend->rows = TOKENS;
    attend->width = TOPK;
    attend->scale = 1.0F / sqrtf(DQK);
    attend->q.data = device[QUERY];
    attend->kv.data = device[KV];
    attend->indices.data = device[INDICES];
    attend->topk_length.data = device[LENGTHS];
    attend->out.data = device[OUT];
    attend->lse.data = device[LSE];

    smelt_sparse_scores_args *weigh = &training->weigh_args;
    *weigh = (smelt_sparse_scores_args)SMELT_SPARSE_SCORES_ARGS_INIT;
    weigh->tokens = weigh->rows = TOKENS;
    weigh->width = TOPK;
    weigh->scale = attend->scale;
    weigh->q = attend->q;
    weigh->kv = attend->kv;
    weigh->indices = attend->indices;
    weigh->topk_length = attend->topk_length;
    weigh->lse.data = device[LSE];
    weigh->target.data = device[TARGET];
}

static void set_scores_and_loss(struct training *training) {
    void *const *device = training->device;
    const smelt_indexer_topk_args *choose = &training->choose_args;
    smelt_indexer_scores_args *score = &training->score_args;
    *score = (smelt_indexer_scores_args)SMELT_INDEXER_SCORES_ARGS_INIT;
    score->tokens = score->rows = TOKENS;
    score->width = TOPK;
    score->q = choose->q;
    score->k = choose->k;
    score->weights = choose->weights;
    score->indices.data = device[INDICES];
    score->topk_length.data = device[LENGTHS];
    score->logits.data = device[LOGITS];

    smelt_indexer_loss_args *compare = &training->compare_args;
    *compare = (smelt_indexer_loss_args)SMELT_INDEXER_LOSS_ARGS_INIT;
    compare->tokens = compare->rows = TOKENS;
    compare->width = TOPK;
    compare->query_weight = 1.0F / TOKENS;
    compare->logits.data = device[LOGITS];
    compare->target.data = device[TARGET];
    compare->indices = score->indices;
    compare->topk_length = score->topk_length;
    compare->loss.data = device[LOSS];
    compare->grad.data = device[GRAD];
    require(
        smelt_indexer_loss_forward_workspace(training->compare, compare, &compare->workspace_bytes),
        "workspace");
    compare->workspace = allocate(training->context, compare->workspace_bytes);
}

static void set_backward(struct training *training) {
    void *const *device = training->device;
    const smelt_indexer_scores_args *score = &training->score_args;
    smelt_indexer_bwd_args *args = &training->differentiate_args;
    *args = (smelt_indexer_bwd_args)SMELT_INDEXER_BWD_ARGS_INIT;
    args->tokens = args->rows = TOKENS;
    args->width = TOPK;
    args->q = score->q;
    args->k = score->k;
    args->weights = score->weights;
    args->indices = score->indices;
    args->topk_length = score->topk_length;
    args->grad.data = device[GRAD];
    args->dq.data = device[DQ];
    args->dk_fp32.data = device[DK];
    args->dweights.data = device[DWEIGHTS];
    require(
        smelt_indexer_bwd_backward_workspace(training->differentiate, args, &args->workspace_bytes),
        "workspace");
    args->workspace = allocate(training->context, args->workspace_bytes);
}

static void destroy(struct training *training) {
    for (int i = 0; i < BUFFERS; i++)
        smelt_device_free(training->context, training->device[i]);
    smelt_device_free(training->context, training->choose_args.workspace);
    smelt_device_free(training->context, training->compare_args.workspace);
    smelt_device_free(training->context, training->differentiate_args.workspace);
    smelt_operator_destroy(&training->choose);
    smelt_operator_destroy(&training->attend);
    smelt_operator_destroy(&training->weigh);
    smelt_operator_destroy(&training->score);
    smelt_operator_destroy(&training->compare);
    smelt_operator_destroy(&training->differentiate);
    smelt_context_destroy(&training->context);
}

/* ---- a step ---------------------------------------------------------------------------------- */

static void give(const struct training *training, enum buffer to) {
    upload(training->context, training->device[to], buffers[to].host, buffers[to].bytes);
}

static void take(const struct training *training, enum buffer from) {
    download(training->context, buffers[from].host, training->device[from], buffers[from].bytes);
}

/* All work on the device, which a graph would capture. */
static void run(const struct training *training, struct CUstream_st *stream) {
    require(smelt_indexer_topk_forward(training->choose, &training->choose_args, stream), "choose");
    require(smelt_sparse_attn_forward(training->attend, &training->attend_args, stream), "attend");
    require(smelt_sparse_scores_forward(training->weigh, &training->weigh_args, stream), "weigh");
    require(smelt_indexer_scores_forward(training->score, &training->score_args, stream), "score");
    require(smelt_indexer_loss_forward(training->compare, &training->compare_args, stream),
            "compare");
    require(
        smelt_indexer_bwd_backward(training->differentiate, &training->differentiate_args, stream),
        "differentiate");
}

/* Computes the loss and the gradients. */
static void differentiate(const struct training *training) {
    for (int i = 0; i < INDEX_Q_SIZE; i++)
        q_bf16[i] = to_bf16(index_q[i]);
    for (int i = 0; i < INDEX_K_SIZE; i++)
        k_bf16[i] = to_bf16(index_k[i]);
    give(training, INDEX_Q);
    give(training, INDEX_K);
    give(training, WEIGHTS);
    run(training, NULL);
    take(training, LOSS);
    take(training, INDICES);
    take(training, LENGTHS);
    take(training, DQ);
    take(training, DK);
    take(training, DWEIGHTS);
}

static void descend(void) {
    for (int i = 0; i < INDEX_Q_SIZE; i++)
        index_q[i] -= RATE * from_bf16(dq[i]);
    for (int i = 0; i < INDEX_K_SIZE; i++)
        index_k[i] -= RATE * dk[i];
    for (int i = 0; i < TOKENS * INDEX_HEADS; i++)
        weights[i] -= RATE * dweights[i];
}

/* ---- the share of attention's weight -------------------------------------------------------- */

/* The share of one head's attention weight that the selected keys have. */
static double find_share(int token, int head) {
    double sum = 0, chosen = 0;
    for (int key = 0, next = 0; key <= token; key++) {
        double score = 0;
        for (int d = 0; d < DQK; d++)
            score += (double)from_bf16(query[token][head][d]) * (double)from_bf16(kv[key][d]);
        const double weight = exp(score / sqrt(DQK));
        sum += weight;
        if (next < lengths[token] && indices[token][next] == key) {
            chosen += weight;
            next++;
        }
    }
    return chosen / sum;
}

/* The mean over heads and over queries with more keys than are selected. */
static double find_mean_share(void) {
    double sum = 0;
    for (int t = TOPK; t < TOKENS; t++)
        for (int h = 0; h < HEADS; h++)
            sum += find_share(t, h);
    return sum / ((TOKENS - TOPK) * HEADS);
}

static void fill_inputs(void) {
    for (int t = 0; t < TOKENS; t++) {
        window_begin[t] = 0;
        window_end[t] = t + 1;
        for (int d = 0; d < DQK; d++) {
            kv[t][d] = to_bf16(random_value());
            for (int h = 0; h < HEADS; h++) /* makes attention strongly prefer some keys */
                query[t][h][d] = to_bf16(8 * random_value());
        }
    }
    for (int i = 0; i < INDEX_Q_SIZE; i++)
        index_q[i] = random_value();
    for (int i = 0; i < INDEX_K_SIZE; i++)
        index_k[i] = random_value();
    for (int i = 0; i < TOKENS * INDEX_HEADS; i++)
        weights[i] = 0.1F;
}

int main(void) {
    struct training training = {.context = open_context()};
    int falls = 1;
    float before = INFINITY;
    double share = 0, untrained = 0;
    make_attention(&training);
    make_indexer(&training);
    for (int i = 0; i < BUFFERS; i++)
        training.device[i] = allocate(training.context, buffers[i].bytes);
    set_choice(&training);
    set_attention(&training);
    set_scores_and_loss(&training);
    set_backward(&training);
    fill_inputs();
    give(&training, BEGINS);
    give(&training, ENDS);
    give(&training, QUERY);
    give(&training, KV);
    for (int step = 0; step <= STEPS; step++) {
        differentiate(&training);
        share = find_mean_share();
        printf("step %d: loss %.4f, the chosen keys have %.1f %% of attention's weight\n", step,
               (double)loss, 100 * share);
        falls = falls && loss < before;
        before = loss;
        untrained = step == 0 ? share : untrained;
        descend();
    }
    destroy(&training);
    return falls && share > untrained ? EXIT_SUCCESS : EXIT_FAILURE;
}
