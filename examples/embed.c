/*
 * A complete program that uses smelt: context, operator, upload, run, download, check.
 *
 *     cc embed.c $(pkg-config --cflags --libs smelt) -lm && ./a.out
 *
 * (-lm for its own exp and sqrtf; docs/embedding.md has the other ways to link.)
 *
 * Exit status: 0 when the results are right, 1 when they are not, 3 without a GPU (or without a
 * driver or NVRTC).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <smelt/smelt.h>

enum { HEADS = 8, DQK = 576, DV = 512, TOPK = 64, TOKENS = 16, ROWS = 256, STATUS_LACKING = 3 };

static uint16_t q[TOKENS][HEADS][DQK], kv[ROWS][DQK], out[TOKENS][HEADS][DV]; /* bf16 */
static int32_t indices[TOKENS][TOPK];
static float lse[TOKENS][HEADS];

static float from_bf16(uint16_t bits) {
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

/* Multiples of 1/64 in [-1, 1): bf16 holds them exactly, so cutting the low half off is no loss. */
static void fill_random(uint16_t *values, size_t count) {
    for (size_t i = 0; i < count; i++) {
        float value = (float)(rand() % 128 - 64) / 64.0F;
        uint32_t wide;
        memcpy(&wide, &value, sizeof wide);
        values[i] = (uint16_t)(wide >> 16);
    }
}

/* The largest difference of one query and head from the definition in smelt/sparse_attn.h. */
static double check_head(int token, int head, float scale) {
    double p[TOPK] = {0}, sum = 0, error;
    for (int i = 0; i < TOPK; i++) {
        if (indices[token][i] < 0)
            continue; /* a masked slot */
        double score = 0;
        for (int d = 0; d < DQK; d++)
            score += (double)from_bf16(q[token][head][d]) * from_bf16(kv[indices[token][i]][d]);
        sum += p[i] = exp(score * scale);
    }
    error = fabs(log(sum) - lse[token][head]);
    for (int d = 0; d < DV; d++) {
        double value = 0;
        for (int i = 0; i < TOPK; i++)
            if (indices[token][i] >= 0)
                value += p[i] / sum * from_bf16(kv[indices[token][i]][d]);
        error = fmax(error, fabs(value - from_bf16(out[token][head][d])));
    }
    return error;
}

/* Says what failed and ends the program; a missing GPU is told apart from a failure. */
static void require(smelt_status status, const char *what) {
    if (status == SMELT_OK)
        return;
    fprintf(stderr, "embed: %s: %s: %s\n", what, smelt_status_name(status), smelt_last_error());
    int lacking = status == SMELT_ERROR_NO_DRIVER || status == SMELT_ERROR_NO_DEVICE ||
                  status == SMELT_ERROR_NO_COMPILER;
    exit(lacking ? STATUS_LACKING : EXIT_FAILURE);
}

/* Device memory holding a copy of `bytes` bytes. */
static void *upload(smelt_context *context, const void *host, size_t bytes) {
    void *device = NULL;
    require(smelt_device_alloc(context, bytes, &device), "alloc");
    require(smelt_device_upload(context, device, host, bytes), "upload");
    return device;
}

int main(void) {
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    options.kind = SMELT_CONTEXT_DEVICE; /* without it: the CUDA context that is current here */
    smelt_context *context = NULL;
    require(smelt_context_create(&context, &options), "context");

    smelt_sparse_attn_spec spec = SMELT_SPARSE_ATTN_SPEC_INIT;
    spec.heads = HEADS;
    spec.dqk = DQK;
    spec.dv = DV;
    spec.topk = TOPK;
    smelt_sparse_attn *attn = NULL;
    require(smelt_sparse_attn_create(&attn, context, &spec), "operator");

    fill_random(&q[0][0][0], sizeof q / sizeof q[0][0][0]);
    fill_random(&kv[0][0], sizeof kv / sizeof kv[0][0]);
    for (int t = 0; t < TOKENS; t++) /* query t sees 4 (t + 1) rows; -1 masks the other slots */
        for (int i = 0; i < TOPK; i++)
            indices[t][i] = i < 4 * (t + 1) ? rand() % ROWS : -1;

    smelt_sparse_attn_args args = SMELT_SPARSE_ATTN_ARGS_INIT;
    args.tokens = TOKENS;
    args.rows = ROWS;
    args.width = TOPK;
    args.scale = 1.0F / sqrtf(DQK);
    void *buffers[] = {upload(context, q, sizeof q), upload(context, kv, sizeof kv),
                       upload(context, indices, sizeof indices), upload(context, out, sizeof out),
                       upload(context, lse, sizeof lse)};
    args.q.data = buffers[0];
    args.kv.data = buffers[1];
    args.indices.data = buffers[2];
    args.out.data = buffers[3];
    args.lse.data = buffers[4];
    require(smelt_sparse_attn_forward(attn, &args, NULL), "forward");
    require(smelt_stream_synchronize(context, NULL), "synchronize");
    require(smelt_device_download(context, out, args.out.data, sizeof out), "download");
    require(smelt_device_download(context, lse, args.lse.data, sizeof lse), "download");

    double error = 0;
    for (int t = 0; t < TOKENS; t++)
        for (int h = 0; h < HEADS; h++)
            error = fmax(error, check_head(t, h, args.scale));
    printf("%s: %d queries x %d heads, largest error %.2g\n", smelt_context_arch(context), TOKENS,
           HEADS, error);

    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++)
        smelt_device_free(context, buffers[i]);
    smelt_sparse_attn_destroy(&attn);
    smelt_context_destroy(&context);
    return error < 1e-2 ? EXIT_SUCCESS : EXIT_FAILURE; /* bf16 rounds values up to 1 to 2^-8 */
}
