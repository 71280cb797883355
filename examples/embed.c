/*
 * A complete program that uses smelt: it checks a forward pass of attention against the definition,
 * then trains: each step is forward pass, loss, backward pass and gradient descent.
 *
 *     cc embed.c $(pkg-config --cflags --libs smelt) -lm && ./a.out
 *
 * (-lm for its own exp and sqrtf; docs/embedding.md has other ways to link.)
 *
 * The output for the first q and kv is the target, which a second, random q and kv learn to
 * approach. The loss is 1/2 * sum (out - target)^2, so its gradient with respect to out is out -
 * target. A trainer keeps all of this on the GPU; here the host does everything except attention.
 *
 * Exit status: 0 if the results are right and the loss falls in every step, else 1; 3 without a GPU
 * (or without a driver or NVRTC).
 */
#include <math.h>

#include "example.h"

enum { HEADS = 8, DQK = 576, DV = 512, TOPK = 64, TOKENS = 8, ROWS = 128, STEPS = 4 };
enum { Q_SIZE = TOKENS * HEADS * DQK, KV_SIZE = ROWS * DQK, OUT_SIZE = TOKENS * HEADS * DV };

static const float RATE = 0.3F; /* learning rate */

/* The trained values, in fp32, because bf16 would round small steps away. The GPU gets them
 * rounded. */
static float q[Q_SIZE], kv[KV_SIZE]; /* [TOKENS][HEADS][DQK], [ROWS][DQK] */
static uint16_t q_bf16[Q_SIZE], kv_bf16[KV_SIZE];
static int32_t indices[TOKENS][TOPK];

static uint16_t out[OUT_SIZE], target[OUT_SIZE]; /* [TOKENS][HEADS][DV] bf16 */
static float lse[TOKENS * HEADS];

/* The loss's gradients: with respect to out and q in bf16, to kv in fp32. */
static uint16_t grad_out[OUT_SIZE], dq[Q_SIZE];
static float dkv[KV_SIZE];

/* Device copies of these, and the backward pass's workspace. */
enum buffer { Q, KV, INDICES, OUT, LSE, GRAD_OUT, DQ, DKV, WORKSPACE, BUFFERS };

static const size_t buffer_bytes[WORKSPACE] = {
    [Q] = sizeof q_bf16, [KV] = sizeof kv_bf16, [INDICES] = sizeof indices,   [OUT] = sizeof out,
    [LSE] = sizeof lse,  [DQ] = sizeof dq,      [GRAD_OUT] = sizeof grad_out, [DKV] = sizeof dkv};

/* The operator and the arguments of both passes. */
struct training {
    smelt_context *context;
    smelt_operator *attn;
    smelt_sparse_attn_args forward;
    smelt_sparse_attn_grad_args backward;
    void *device[BUFFERS];
};

/* ---- numbers --------------------------------------------------------------------------------- */

static void round_all(const float *values, uint16_t *rounded, int count) {
    for (int i = 0; i < count; i++)
        rounded[i] = to_bf16(values[i]);
}

static void fill_random(float *values, int count) {
    for (int i = 0; i < count; i++)
        values[i] = random_value();
}

static void fill_q_and_kv(void) {
    fill_random(q, Q_SIZE);
    fill_random(kv, KV_SIZE);
}

/* The largest error of one query and head against the definition in smelt/sparse_attn.h. */
static double check_head(int token, int head, float scale) {
    const int at = token * HEADS + head;
    double p[TOPK] = {0}, sum = 0, error;
    for (int i = 0; i < TOPK; i++) {
        const int row = indices[token][i];
        if (row < 0)
            continue; /* a masked slot */
        double score = 0;
        for (int d = 0; d < DQK; d++)
            score += (double)q[at * DQK + d] * kv[row * DQK + d];
        sum += p[i] = exp(score * scale);
    }
    error = fabs(log(sum) - lse[at]);
    for (int d = 0; d < DV; d++) {
        double value = 0;
        for (int i = 0; i < TOPK; i++)
            if (indices[token][i] >= 0)
                value += p[i] / sum * kv[indices[token][i] * DQK + d];
        error = fmax(error, fabs(value - from_bf16(out[at * DV + d])));
    }
    return error;
}

/* ---- smelt ----------------------------------------------------------------------------------- */

static void make_operators(struct training *training) {
    training->context = open_context();
    training->attn =
        make_operator(training->context, "sparse_attn:heads=%d,dqk=%d,dv=%d,topk=%d,passes=both",
                      HEADS, DQK, DV, TOPK);
}

static void set_forward(struct training *training) {
    smelt_sparse_attn_args *args = &training->forward;
    *args = (smelt_sparse_attn_args)SMELT_SPARSE_ATTN_ARGS_INIT;
    args->tokens = TOKENS;
    args->rows = ROWS;
    args->width = TOPK;
    args->scale = 1.0F / sqrtf(DQK);
    args->q.data = training->device[Q];
    args->kv.data = training->device[KV];
    args->indices.data = training->device[INDICES];
    args->out.data = training->device[OUT];
    args->lse.data = training->device[LSE];
}

/* The inputs are the forward pass's inputs and outputs, and the gradient with respect to `out`. */
static void set_backward(struct training *training) {
    smelt_sparse_attn_grad_args *args = &training->backward;
    *args = (smelt_sparse_attn_grad_args)SMELT_SPARSE_ATTN_GRAD_ARGS_INIT;
    args->tokens = TOKENS;
    args->rows = ROWS;
    args->width = TOPK;
    args->scale = training->forward.scale;
    args->q.data = training->device[Q];
    args->kv.data = training->device[KV];
    args->indices.data = training->device[INDICES];
    args->out.data = training->device[OUT];
    args->lse.data = training->device[LSE];
    args->grad_out.data = training->device[GRAD_OUT];
    args->dq.data = training->device[DQ];
    args->dkv_fp32.data = training->device[DKV];
    require(smelt_sparse_attn_backward_workspace(training->attn, args, &args->workspace_bytes),
            "workspace");
    args->workspace = training->device[WORKSPACE] =
        allocate(training->context, args->workspace_bytes);
}

static void destroy(struct training *training) {
    for (int i = 0; i < BUFFERS; i++)
        smelt_device_free(training->context, training->device[i]);
    smelt_operator_destroy(&training->attn);
    smelt_context_destroy(&training->context);
}

static void give(const struct training *training, enum buffer to, const void *host) {
    upload(training->context, training->device[to], host, buffer_bytes[to]);
}

static void take(const struct training *training, void *host, enum buffer from) {
    download(training->context, host, training->device[from], buffer_bytes[from]);
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* Computes out and lse from q and kv. */
static void forward(const struct training *training) {
    round_all(q, q_bf16, Q_SIZE);
    round_all(kv, kv_bf16, KV_SIZE);
    give(training, Q, q_bf16);
    give(training, KV, kv_bf16);
    require(smelt_sparse_attn_forward(training->attn, &training->forward, NULL), "forward");
    take(training, out, OUT);
    take(training, lse, LSE);
}

/* The loss of the last forward pass, and its gradient in grad_out. */
static double loss(void) {
    double sum = 0;
    for (int i = 0; i < OUT_SIZE; i++) {
        const float difference = from_bf16(out[i]) - from_bf16(target[i]);
        grad_out[i] = to_bf16(difference);
        sum += 0.5 * (double)difference * difference;
    }
    return sum;
}

/* Computes dq and dkv from grad_out; q, kv, out and lse are still on the device. */
static void backward(const struct training *training) {
    give(training, GRAD_OUT, grad_out);
    require(smelt_sparse_attn_backward(training->attn, &training->backward, NULL), "backward");
    take(training, dq, DQ);
    take(training, dkv, DKV);
}

static void descend(void) {
    for (int i = 0; i < Q_SIZE; i++)
        q[i] -= RATE * from_bf16(dq[i]);
    for (int i = 0; i < KV_SIZE; i++)
        kv[i] -= RATE * dkv[i];
}

/* Whether the loss falls in every step. */
static int train(const struct training *training) {
    int falls = 1;
    double before = INFINITY;
    for (int step = 0; step <= STEPS; step++) {
        if (step > 0) {
            backward(training);
            descend();
        }
        forward(training);
        const double now = loss();
        printf("step %d: loss %.1f\n", step, now);
        falls = falls && now < before;
        before = now;
    }
    return falls;
}

int main(void) {
    struct training training = {0};
    make_operators(&training);
    for (int i = 0; i < WORKSPACE; i++)
        training.device[i] = allocate(training.context, buffer_bytes[i]);
    set_forward(&training);
    set_backward(&training);

    for (int t = 0; t < TOKENS; t++) /* query t sees 8 (t + 1) rows; -1 masks the other slots */
        for (int i = 0; i < TOPK; i++)
            indices[t][i] = i < 8 * (t + 1) ? rand() % ROWS : -1;
    give(&training, INDICES, indices);
    fill_q_and_kv();
    forward(&training);
    double error = 0;
    for (int t = 0; t < TOKENS; t++)
        for (int h = 0; h < HEADS; h++)
            error = fmax(error, check_head(t, h, training.forward.scale));
    printf("%s: %d queries x %d heads, largest error %.2g\n", smelt_context_arch(training.context),
           TOKENS, HEADS, error);

    memcpy(target, out, sizeof target);
    fill_q_and_kv();
    const int falls = train(&training);
    destroy(&training);
    const int right = error < 1e-2; /* bf16 rounds values up to 1 to 2^-8 */
    return right && falls ? EXIT_SUCCESS : EXIT_FAILURE;
}
