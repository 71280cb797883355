/*
 * From tokens to attention without the host: the lightning indexer selects each query's keys, and
 * sparse attention attends to them. Packed documents, indexer in fp8.
 *
 *     cc indexer.c $(pkg-config --cflags --libs smelt) -lm && ./a.out
 *
 *   cu_seqlens                                  -> windows     indexer_windows
 *   index keys, bf16                            -> e4m3        quantize
 *   index queries and their heads' weights      -> e4m3        quantize
 *   the outputs of these three                  -> indices     indexer_topk
 *   query, latent KV rows, indices, lengths     -> out         sparse_attn
 *
 * These are five calls on one stream (run_chain) that neither wait, allocate nor read device
 * memory: between cuStreamBeginCapture and cuStreamEndCapture they become a CUDA graph that can be
 * relaunched whenever the inputs, including cu_seqlens, have changed.
 *
 * Exit status: 0 if selection and attention are right, else 1; 3 without a GPU that supports e4m3
 * (or without a driver or NVRTC).
 */
#include <math.h>

#include "example.h"

enum { TOKENS = 48, DOCUMENTS = 3, TOPK = 8 };
enum { INDEX_HEADS = 4, INDEX_DIM = 64, HEADS = 4, DQK = 128, DV = 64 };

/* Packed tokens: 10 of the first document, 6 of the second, 32 of the third. */
static const int32_t cu_seqlens[DOCUMENTS + 1] = {0, 10, 16, TOKENS};

static uint16_t index_q[TOKENS][INDEX_HEADS][INDEX_DIM], index_k[TOKENS][INDEX_DIM]; /* bf16 */
static float weights[TOKENS][INDEX_HEADS];
static uint16_t q[TOKENS][HEADS][DQK], kv[TOKENS][DQK], out[TOKENS][HEADS][DV]; /* bf16 */
static float lse[TOKENS][HEADS];
static int32_t indices[TOKENS][TOPK], lengths[TOKENS];

enum buffer {
    SEQLENS,
    INDEX_Q,
    INDEX_K,
    WEIGHTS,
    QUERY,
    KV,
    BEGINS,
    ENDS,
    Q_E4M3,
    K_E4M3,
    FOLDED, /* weights times the scales of q */
    K_SCALE,
    INDICES,
    LENGTHS,
    OUT,
    LSE,
    WORKSPACE,
    BUFFERS
};

struct chain {
    smelt_context *context;
    void *device[BUFFERS];
    smelt_operator *windows;
    smelt_operator *quantize;
    smelt_operator *choose;
    smelt_operator *attend;
    smelt_indexer_windows_args windows_args;
    smelt_quantize_args q_args, k_args;
    smelt_indexer_topk_args choose_args;
    smelt_sparse_attn_args attend_args;
};

/* ---- numbers --------------------------------------------------------------------------------- */

static void fill_random(void *values, size_t count) {
    for (size_t i = 0; i < count; i++)
        ((uint16_t *)values)[i] = to_bf16(random_value());
}

static double dot(const uint16_t *a, const uint16_t *b, int count) {
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += (double)from_bf16(a[i]) * (double)from_bf16(b[i]);
    return sum;
}

/* ---- smelt ----------------------------------------------------------------------------------- */

static void make_operators(struct chain *chain) {
    smelt_context *const context = chain->context = open_context();
    chain->choose = make_operator(context, "indexer_topk:heads=%d,dim=%d,dtype=fp8,topk=%d",
                                  INDEX_HEADS, INDEX_DIM, TOPK);
    chain->windows = make_operator(context, "indexer_windows");
    chain->quantize = make_operator(context, "quantize:dim=%d", INDEX_DIM);
    chain->attend =
        make_operator(context, "sparse_attn:heads=%d,dqk=%d,dv=%d,topk=%d", HEADS, DQK, DV, TOPK);
}

static void reserve(struct chain *chain, enum buffer buffer, size_t bytes) {
    chain->device[buffer] = allocate(chain->context, bytes);
}

static void allocate_and_upload(struct chain *chain, enum buffer buffer, const void *host,
                                size_t bytes) {
    reserve(chain, buffer, bytes);
    upload(chain->context, chain->device[buffer], host, bytes);
}

static void allocate_all(struct chain *chain) {
    allocate_and_upload(chain, SEQLENS, cu_seqlens, sizeof cu_seqlens);
    allocate_and_upload(chain, INDEX_Q, index_q, sizeof index_q);
    allocate_and_upload(chain, INDEX_K, index_k, sizeof index_k);
    allocate_and_upload(chain, WEIGHTS, weights, sizeof weights);
    allocate_and_upload(chain, QUERY, q, sizeof q);
    allocate_and_upload(chain, KV, kv, sizeof kv);
    reserve(chain, BEGINS, TOKENS * sizeof(int32_t));
    reserve(chain, ENDS, TOKENS * sizeof(int32_t));
    reserve(chain, Q_E4M3, sizeof index_q / 2);
    reserve(chain, K_E4M3, sizeof index_k / 2);
    reserve(chain, FOLDED, sizeof weights);
    reserve(chain, K_SCALE, TOKENS * sizeof(float));
    reserve(chain, INDICES, sizeof indices);
    reserve(chain, LENGTHS, sizeof lengths);
    reserve(chain, OUT, sizeof out);
    reserve(chain, LSE, sizeof lse);
}

/* Arguments of all calls; one call's outputs are another's inputs. */
static void set_arguments(struct chain *chain) {
    void *const *device = chain->device;
    chain->windows_args = (smelt_indexer_windows_args)SMELT_INDEXER_WINDOWS_ARGS_INIT;
    chain->windows_args.tokens = chain->windows_args.rows = TOKENS;
    chain->windows_args.documents = DOCUMENTS;
    chain->windows_args.cu_seqlens.data = device[SEQLENS];
    chain->windows_args.window_begin.data = device[BEGINS];
    chain->windows_args.window_end.data = device[ENDS];

    chain->k_args = (smelt_quantize_args)SMELT_QUANTIZE_ARGS_INIT;
    chain->k_args.rows = TOKENS;
    chain->k_args.x.data = device[INDEX_K];
    chain->k_args.y.data = device[K_E4M3];
    chain->k_args.scale.data = device[K_SCALE];

    chain->q_args = (smelt_quantize_args)SMELT_QUANTIZE_ARGS_INIT;
    chain->q_args.rows = TOKENS * INDEX_HEADS; /* each head of a query has its own scale, */
    chain->q_args.x.data = device[INDEX_Q];
    chain->q_args.y.data = device[Q_E4M3];
    chain->q_args.factor.data = device[WEIGHTS]; /* which is multiplied by its weight */
    chain->q_args.scale.data = device[FOLDED];

    chain->choose_args = (smelt_indexer_topk_args)SMELT_INDEXER_TOPK_ARGS_INIT;
    chain->choose_args.tokens = chain->choose_args.rows = TOKENS;
    chain->choose_args.q.data = device[Q_E4M3];
    chain->choose_args.k.data = device[K_E4M3];
    chain->choose_args.weights.data = device[FOLDED];
    chain->choose_args.k_scale.data = device[K_SCALE];
    chain->choose_args.window_begin.data = device[BEGINS];
    chain->choose_args.window_end.data = device[ENDS];
    chain->choose_args.indices.data = device[INDICES];
    chain->choose_args.lengths.data = device[LENGTHS];

    chain->attend_args = (smelt_sparse_attn_args)SMELT_SPARSE_ATTN_ARGS_INIT;
    chain->attend_args.tokens = chain->attend_args.rows = TOKENS;
    chain->attend_args.width = TOPK;
    chain->attend_args.scale = 1.0F / sqrtf(DQK);
    chain->attend_args.q.data = device[QUERY];
    chain->attend_args.kv.data = device[KV];
    chain->attend_args.indices.data = device[INDICES];
    chain->attend_args.topk_length.data = device[LENGTHS];
    chain->attend_args.out.data = device[OUT];
    chain->attend_args.lse.data = device[LSE];
}

/* The caller allocates the workspace that the operators request. */
static void set_workspace(struct chain *chain) {
    smelt_indexer_topk_args *args = &chain->choose_args;
    require(smelt_indexer_topk_forward_workspace(chain->choose, args, &args->workspace_bytes),
            "workspace");
    args->workspace = chain->device[WORKSPACE] = allocate(chain->context, args->workspace_bytes);
}

/* The five calls, which a graph would capture. */
static void run_chain(const struct chain *chain, struct CUstream_st *stream) {
    require(smelt_indexer_windows_forward(chain->windows, &chain->windows_args, stream), "windows");
    require(smelt_quantize_forward(chain->quantize, &chain->k_args, stream), "keys");
    require(smelt_quantize_forward(chain->quantize, &chain->q_args, stream), "queries");
    require(smelt_indexer_topk_forward(chain->choose, &chain->choose_args, stream), "choose");
    require(smelt_sparse_attn_forward(chain->attend, &chain->attend_args, stream), "attend");
}

static void take(const struct chain *chain, enum buffer from, void *host, size_t bytes) {
    download(chain->context, host, chain->device[from], bytes);
}

static void destroy(struct chain *chain) {
    for (int i = 0; i < BUFFERS; i++)
        smelt_device_free(chain->context, chain->device[i]);
    smelt_operator_destroy(&chain->attend);
    smelt_operator_destroy(&chain->choose);
    smelt_operator_destroy(&chain->quantize);
    smelt_operator_destroy(&chain->windows);
    smelt_context_destroy(&chain->context);
}

/* ---- expected results ----------------------------------------------------------------------- */

static int first_of_document(int token) {
    int document = 0;
    while (cu_seqlens[document + 1] <= token)
        document++;
    return cu_seqlens[document];
}

/* The indexer's logit of unquantised rows. */
static double logit(int token, int key) {
    double sum = 0;
    for (int h = 0; h < INDEX_HEADS; h++)
        sum += (double)weights[token][h] * fmax(0, dot(index_q[token][h], index_k[key], INDEX_DIM));
    return sum;
}

/* Whether the right number of keys was selected, ascending, from the query's document up to the
 * query itself. *regret: how much better the best key left out is than the worst selected, due to
 * e4m3 rounding. */
static int check_choice(int token, double *regret) {
    const int first = first_of_document(token), seen = token + 1 - first;
    double worst = INFINITY, best = -INFINITY;
    int next = 0;
    if (lengths[token] != (seen < TOPK ? seen : TOPK))
        return 0;
    for (int i = 0; i < lengths[token]; i++)
        if (indices[token][i] < first || indices[token][i] > token ||
            (i > 0 && indices[token][i] <= indices[token][i - 1]))
            return 0;
    for (int key = first; key <= token; key++) {
        const int chosen = next < lengths[token] && indices[token][next] == key;
        const double score = logit(token, key);
        next += chosen;
        worst = chosen ? fmin(worst, score) : worst;
        best = chosen ? best : fmax(best, score);
    }
    *regret = fmax(*regret, best - worst);
    return 1;
}

/* The largest error of a query's attention against its definition. */
static double check_attention(int token, int head, double scale) {
    double p[TOPK], sum = 0, error;
    for (int i = 0; i < lengths[token]; i++)
        sum += p[i] = exp(scale * dot(q[token][head], kv[indices[token][i]], DQK));
    error = fabs(log(sum) - (double)lse[token][head]);
    for (int d = 0; d < DV; d++) {
        double value = 0;
        for (int i = 0; i < lengths[token]; i++)
            value += p[i] / sum * (double)from_bf16(kv[indices[token][i]][d]);
        error = fmax(error, fabs(value - (double)from_bf16(out[token][head][d])));
    }
    return error;
}

int main(void) {
    struct chain chain = {0};
    double error = 0, regret = 0;
    int right = 1;
    fill_random(index_q, sizeof index_q / sizeof(uint16_t));
    fill_random(index_k, sizeof index_k / sizeof(uint16_t));
    fill_random(q, sizeof q / sizeof(uint16_t));
    fill_random(kv, sizeof kv / sizeof(uint16_t));
    for (int t = 0; t < TOKENS; t++)
        for (int h = 0; h < INDEX_HEADS; h++)
            weights[t][h] = (float)(1 + (t + h) % 4) / 4.0F;

    make_operators(&chain);
    allocate_all(&chain);
    set_arguments(&chain);
    set_workspace(&chain);
    run_chain(&chain, NULL);
    take(&chain, INDICES, indices, sizeof indices);
    take(&chain, LENGTHS, lengths, sizeof lengths);
    take(&chain, OUT, out, sizeof out);
    take(&chain, LSE, lse, sizeof lse);

    for (int t = 0; t < TOKENS && right; t++) {
        right = check_choice(t, &regret);
        for (int h = 0; h < HEADS && right; h++)
            error = fmax(error, check_attention(t, h, (double)chain.attend_args.scale));
    }
    printf("%s: %d queries of %d documents choose up to %d keys each%s; by e4m3's rounding at most "
           "%.2g from the best; largest error of attention %.2g\n",
           smelt_context_arch(chain.context), TOKENS, DOCUMENTS, TOPK, right ? "" : ": WRONG ONES",
           regret, error);
    destroy(&chain);
    return right && regret < 1 && error < 1e-2 ? EXIT_SUCCESS : EXIT_FAILURE;
}
