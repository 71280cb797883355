/*
 * The indexer's choice of keys, causal, T = S: milliseconds of the logits alone, of the selection
 * alone from a matrix of them, and of both in one call in bounded workspace. Median of some rounds,
 * in which the three take turns. Above LARGEST the matrix does not fit, and the call is run alone.
 * Then what the call asks for as workspace, and how much device memory it was seen to take. `even`:
 * the call that does not know that windows are causal, whose chunks are all of one size. Needs a
 * GPU and NVRTC; exit status 3 without.
 *
 *   indexer_topk HEADS bf16|fp8 TOKENS [WORKSPACE_MB]... [KNOBS]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "smelt/smelt.h"

enum {
    DIM = 128,
    TOPK = 2048,
    ROUNDS = 7,
    WARM_UP = 2,
    LARGEST = 131072,  /* tokens: a matrix of 69 GB */
    PATTERN = 1 << 22, /* bytes drawn; larger tensors repeat them, keys are all their own */
    MOST_LIMITS = 8,
    NO_GPU = 3 /* exit status */
};

struct bench {
    smelt_context *context;
    smelt_indexer_logits *scorer;
    smelt_topk_select *select;
    smelt_indexer_topk *indexer;
    smelt_indexer_logits_args logits;
    smelt_topk_select_args chosen;
    smelt_indexer_topk_args both;
    struct CUevent_st *begin, *end;
    int heads, fp8, with_matrix;
    int64_t tokens;
};

static void require(smelt_status status, const char *what) {
    if (status == SMELT_OK)
        return;
    fprintf(stderr, "%s: %s: %s\n", what, smelt_status_name(status), smelt_last_error());
    exit(status == SMELT_ERROR_NO_DEVICE || status == SMELT_ERROR_NO_COMPILER ? NO_GPU : 1);
}

/* ---- data ------------------------------------------------------------------------------------ */

static uint64_t state = 0x9e3779b97f4a7c15U;

static uint32_t draw(void) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return (uint32_t)(state >> 33);
}

/* About normal, of variance 1: a sum of four uniform numbers. */
static float draw_normal(void) {
    float sum = 0;
    for (int i = 0; i < 4; i++)
        sum += (float)draw() / 2147483648.0F - 0.5F;
    return sum * 1.7320508F;
}

/* To e4m3, times 64 or so that subnormals do not matter: cut off, which is as good here. */
static uint8_t to_e4m3(float value) {
    const float size = value < 0 ? -value : value;
    const float limited = size * 64 > 448 ? 448 : size * 64;
    uint32_t bits;
    memcpy(&bits, &limited, sizeof bits);
    const int exponent = (int)(bits >> 23) - 127 + 7;
    const uint32_t magnitude = exponent < 1 ? 0 : (uint32_t)exponent << 3 | (bits >> 20 & 7);
    return (uint8_t)(magnitude | (value < 0 ? 0x80U : 0));
}

static uint16_t to_bf16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static void *allocate(const struct bench *bench, size_t bytes) {
    void *device = NULL;
    require(smelt_device_alloc(bench->context, bytes, &device), "memory");
    return device;
}

/* Device memory of `bytes`, filled by repeating what `host` holds. */
static void *upload(const struct bench *bench, const void *host, size_t held, size_t bytes) {
    char *device = allocate(bench, bytes);
    for (size_t at = 0; at < bytes; at += held)
        require(smelt_device_upload(bench->context, device + at, host,
                                    bytes - at < held ? bytes - at : held),
                "upload");
    return device;
}

static void *make_elements(const struct bench *bench, int64_t count, int64_t drawn) {
    const size_t element = bench->fp8 ? 1 : 2, held = (size_t)(count < drawn ? count : drawn);
    unsigned char *host = malloc(held * element);
    if (!host)
        exit(1);
    for (size_t i = 0; i < held; i++) {
        const float value = draw_normal();
        if (bench->fp8)
            host[i] = to_e4m3(value);
        else
            ((uint16_t *)(void *)host)[i] = to_bf16(value);
    }
    void *device = upload(bench, host, held * element, (size_t)count * element);
    free(host);
    return device;
}

static void *make_floats(const struct bench *bench, int64_t count, float scale) {
    const size_t held = (size_t)(count < PATTERN / 4 ? count : PATTERN / 4);
    float *host = malloc(held * sizeof *host);
    if (!host)
        exit(1);
    for (size_t i = 0; i < held; i++)
        host[i] = scale * (0.5F + (float)draw() / 2147483648.0F);
    void *device = upload(bench, host, held * sizeof *host, (size_t)count * sizeof *host);
    free(host);
    return device;
}

/* Begins and ends of causal windows. */
static void *make_windows(const struct bench *bench, int ends) {
    int32_t *host = malloc((size_t)bench->tokens * sizeof *host);
    if (!host)
        exit(1);
    for (int64_t t = 0; t < bench->tokens; t++)
        host[t] = ends ? (int32_t)(t + 1) : 0;
    const size_t bytes = (size_t)bench->tokens * sizeof *host;
    void *device = upload(bench, host, bytes, bytes);
    free(host);
    return device;
}

static void make_problem(struct bench *bench) {
    const int64_t tokens = bench->tokens, heads = bench->heads;
    bench->both = (smelt_indexer_topk_args)SMELT_INDEXER_TOPK_ARGS_INIT;
    bench->both.tokens = bench->both.rows = tokens;
    bench->both.q.data = make_elements(bench, tokens * heads * DIM, PATTERN);
    bench->both.k.data = make_elements(bench, tokens * DIM, tokens * DIM);
    bench->both.weights.data = make_floats(bench, tokens * heads, 1);
    bench->both.k_scale.data = bench->fp8 ? make_floats(bench, tokens, 1.0F / 64) : NULL;
    bench->both.window_begin.data = make_windows(bench, 0);
    bench->both.window_end.data = make_windows(bench, 1);
    bench->both.indices.data = allocate(bench, (size_t)(tokens * TOPK) * sizeof(int32_t));
    bench->logits = (smelt_indexer_logits_args)SMELT_INDEXER_LOGITS_ARGS_INIT;
    bench->logits.tokens = bench->logits.rows = tokens;
    bench->logits.q = bench->both.q;
    bench->logits.k = bench->both.k;
    bench->logits.weights = bench->both.weights;
    bench->logits.k_scale = bench->both.k_scale;
    bench->chosen = (smelt_topk_select_args)SMELT_TOPK_SELECT_ARGS_INIT;
    bench->chosen.tokens = bench->chosen.rows = tokens;
    bench->logits.window_begin = bench->chosen.window_begin = bench->both.window_begin;
    bench->logits.window_end = bench->chosen.window_end = bench->both.window_end;
    bench->chosen.indices = bench->both.indices;
    if (bench->with_matrix)
        bench->logits.logits.data = allocate(bench, (size_t)(tokens * tokens) * sizeof(float));
    bench->chosen.logits.data = bench->logits.logits.data;
    require(smelt_topk_select_forward_workspace(bench->select, &bench->chosen,
                                                &bench->chosen.workspace_bytes),
            "workspace");
    if (bench->chosen.workspace_bytes)
        bench->chosen.workspace = allocate(bench, bench->chosen.workspace_bytes);
}

static void make_operators(struct bench *bench, const char *knobs) {
    smelt_indexer_logits_spec logits = SMELT_INDEXER_LOGITS_SPEC_INIT;
    smelt_topk_select_spec select = SMELT_TOPK_SELECT_SPEC_INIT;
    smelt_indexer_topk_spec both = SMELT_INDEXER_TOPK_SPEC_INIT;
    logits.heads = both.heads = bench->heads;
    logits.dim = both.dim = DIM;
    logits.dtype = both.dtype = bench->fp8 ? SMELT_INDEXER_FP8 : SMELT_INDEXER_BF16;
    logits.knobs = both.knobs = knobs;
    select.topk = both.topk = TOPK;
    require(smelt_indexer_logits_create(&bench->scorer, bench->context, &logits), "logits");
    require(smelt_topk_select_create(&bench->select, bench->context, &select), "select");
    require(smelt_indexer_topk_create(&bench->indexer, bench->context, &both), "both");
    require(smelt_event_create(bench->context, &bench->begin), "event");
    require(smelt_event_create(bench->context, &bench->end), "event");
}

/* ---- timing ---------------------------------------------------------------------------------- */

enum part { LOGITS, SELECT, EVEN, BOTH, PARTS };

static float run(struct bench *bench, enum part part) {
    float milliseconds;
    bench->both.causal_limit = part == BOTH;
    require(smelt_event_record(bench->context, bench->begin, NULL), "event");
    require(part == LOGITS   ? smelt_indexer_logits_forward(bench->scorer, &bench->logits, NULL)
            : part == SELECT ? smelt_topk_select_forward(bench->select, &bench->chosen, NULL)
                             : smelt_indexer_topk_forward(bench->indexer, &bench->both, NULL),
            "forward");
    require(smelt_event_record(bench->context, bench->end, NULL), "event");
    require(smelt_event_elapsed(bench->context, bench->begin, bench->end, &milliseconds), "time");
    return milliseconds;
}

static int by_value(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void measure(struct bench *bench, double limit_mb) {
    float times[PARTS][ROUNDS] = {{0}};
    size_t bytes = 0;
    bench->both.workspace_limit = (size_t)(limit_mb * 1e6);
    for (int causal = 0; causal <= 1; causal++) {
        size_t needed;
        bench->both.causal_limit = causal;
        require(smelt_indexer_topk_forward_workspace(bench->indexer, &bench->both, &needed),
                "workspace");
        bytes = needed > bytes ? needed : bytes;
    }
    bench->both.workspace = allocate(bench, bytes);
    bench->both.workspace_bytes = bytes;
    for (int i = -WARM_UP; i < ROUNDS; i++)
        for (int part = bench->with_matrix ? LOGITS : EVEN; part < PARTS; part++) {
            const float time = run(bench, (enum part)part);
            if (i >= 0)
                times[part][i] = time;
        }
    for (int part = 0; part < PARTS; part++)
        qsort(times[part], ROUNDS, sizeof *times[part], by_value);
    const float logits = times[LOGITS][ROUNDS / 2], both = times[BOTH][ROUNDS / 2];
    const double even = (double)times[EVEN][ROUNDS / 2];
    const double work = (double)bench->tokens * (double)(bench->tokens + 1) * bench->heads * DIM;
    printf("%-5s %3d heads %7lld  logits %9.3f  select %9.3f  even %9.3f  both %9.3f ms  "
           "both/logits %.3f  "
           "%.0f TFLOP/s  workspace %.1f MB\n",
           bench->fp8 ? "fp8" : "bf16", bench->heads, (long long)bench->tokens, (double)logits,
           (double)times[SELECT][ROUNDS / 2], even, (double)both,
           logits > 0 ? (double)(both / logits) : 0, work / (double)both / 1e9,
           (double)bytes / 1e6);
    fflush(stdout);
    smelt_device_free(bench->context, bench->both.workspace);
}

int main(int argc, char **argv) {
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    struct bench bench = {0};
    double limits[MOST_LIMITS] = {0};
    int count = 0;
    const char *knobs = NULL;
    if (argc < 4) {
        fprintf(stderr, "usage: indexer_topk HEADS bf16|fp8 TOKENS [WORKSPACE_MB]... [KNOBS]\n");
        return 2;
    }
    for (int i = 4; i < argc; i++)
        if (strchr(argv[i], '='))
            knobs = argv[i];
        else if (count < MOST_LIMITS)
            limits[count++] = atof(argv[i]);
    bench.heads = atoi(argv[1]);
    bench.fp8 = strcmp(argv[2], "fp8") == 0;
    bench.tokens = atoll(argv[3]);
    bench.with_matrix = bench.tokens <= LARGEST;
    options.kind = SMELT_CONTEXT_DEVICE;
    require(smelt_context_create(&bench.context, &options), "context");
    make_operators(&bench, knobs);
    make_problem(&bench);
    for (int i = 0; i < (count ? count : 1); i++)
        measure(&bench, limits[i]);
    smelt_context_destroy(&bench.context);
    return 0;
}
