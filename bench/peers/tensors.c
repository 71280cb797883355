/* A case's tensors, the outputs, the reference and the comparison. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/random.h"
#include "internal.h"

enum {
    FILL_BLOCKS = 2112,     /* 16 a multiprocessor of an H200 */
    REFERENCE_BLOCKS = 264, /* two a multiprocessor: each has its scores in memory */
    GAP_ROWS = 1,
    GAP_COLUMNS = 128, /* FlashMLA's tests leave so many elements */
    FILLERS = 8,
    EMPTY_IN = 44, /* a normal value below -2 */
    FEW_SLOTS = 4,
    STREAM_SHIFTS = 1,
    STREAM_FILLERS,
    STREAM_LENGTHS,
    STREAM_SINK,
    STREAM_Q,
    STREAM_KV,
    STREAM_LISTS
};

/* ---- memory ---- */

static int allocate(struct peers_rig *rig, size_t bytes, void **pointer) {
    return smelt_device_alloc(rig->context, bytes, pointer) == SMELT_OK
               ? 0
               : peers_fail_smelt("device memory");
}

static int upload(struct peers_rig *rig, const void *host, size_t bytes, void **device) {
    if (allocate(rig, bytes, device) != 0)
        return -1;
    return smelt_device_upload(rig->context, *device, host, bytes) == SMELT_OK
               ? 0
               : peers_fail_smelt("upload");
}

void peers_tensors_free(struct peers_rig *rig, struct peers_tensors *tensors) {
    for (size_t i = 0; i < sizeof tensors->memory / sizeof *tensors->memory; i++)
        smelt_device_free(rig->context, tensors->memory[i]);
    memset(tensors, 0, sizeof *tensors);
}

/* ---- random numbers ---- */

static double uniform(struct smelt__random *random) {
    return (double)(smelt__random_next(random) >> 11) * 0x1p-53;
}

static double normal(struct smelt__random *random) {
    double radius = sqrt(-2 * log(1 - uniform(random)));
    return radius * cos(2 * acos(-1.0) * uniform(random));
}

/* ---- inputs ---- */

struct filling { /* of one bf16 tensor */
    int64_t rows, row_stride, head_stride;
    int heads, columns;
    uint64_t seed;
    float divisor, shift;
};

static int fill(struct peers_rig *rig, void **data, struct filling filling) {
    if (allocate(rig, (size_t)(filling.rows + GAP_ROWS) * (size_t)filling.row_stride * 2, data))
        return -1;
    /* NaN in the gaps. */
    if (smelt_device_fill(rig->context, *data, 0xff,
                          (size_t)(filling.rows + GAP_ROWS) * (size_t)filling.row_stride * 2) !=
        SMELT_OK)
        return peers_fail_smelt("device memory");
    void *parameters[] = {data,
                          &filling.rows,
                          &filling.heads,
                          &filling.columns,
                          &filling.row_stride,
                          &filling.head_stride,
                          &filling.seed,
                          &filling.divisor,
                          &filling.shift};
    return peers_launch(rig, PEERS_FILL, FILL_BLOCKS, parameters);
}

static uint64_t seed_of(uint64_t seed, uint64_t stream) {
    struct smelt__random random = smelt__random_at(seed, stream, 0);
    return smelt__random_next(&random);
}

static int make_values(struct peers_rig *rig, struct peers_tensors *tensors,
                       const struct peers_case *each, uint64_t seed) {
    struct contender_call *call = &tensors->call;
    struct smelt__random random = smelt__random_at(seed, STREAM_SHIFTS, 0);
    const int gap = each->strided ? GAP_COLUMNS : 0, extra = each->strided ? GAP_ROWS : 0;
    const float q_shift = each->shift * (float)(2 * uniform(&random) - 1);
    const float kv_shift = each->shift * (float)(2 * uniform(&random) - 1);
    call->q_head_stride = call->dqk + gap;
    call->q_token_stride = (call->heads + extra) * call->q_head_stride;
    call->kv_row_stride = (1 + extra) * (call->dqk + gap);
    struct filling q = {call->queries, call->q_token_stride,    call->q_head_stride, call->heads,
                        call->dqk,     seed_of(seed, STREAM_Q), each->divisor,       q_shift};
    struct filling kv = {
        call->rows, call->kv_row_stride, 0, 1, call->dqk, seed_of(seed, STREAM_KV), each->divisor,
        kv_shift};
    if (fill(rig, &tensors->memory[0], q) != 0 || fill(rig, &tensors->memory[1], kv) != 0)
        return -1;
    call->q = tensors->memory[0];
    call->kv = tensors->memory[1];
    return 0;
}

/* What FlashMLA's tests put into slots that hold nothing, in random order; causal lists hold -1. */
static int make_fillers(struct peers_rig *rig, struct peers_tensors *tensors,
                        const struct peers_case *each, uint64_t seed, int *count) {
    int32_t fillers[FILLERS] = {INT32_MIN, -123456, -1,         (int32_t)each->rows,
                                114514,    1919810, 2147480000, INT32_MAX};
    struct smelt__random random = smelt__random_at(seed, STREAM_FILLERS, 0);
    for (int i = FILLERS - 1; i > 0; i--) {
        const int64_t other = smelt__random_below(&random, i + 1);
        const int32_t kept = fillers[i];
        fillers[i] = fillers[other];
        fillers[other] = kept;
    }
    if (each->lists != LISTS_RANDOM)
        fillers[0] = -1;
    *count = each->lists != LISTS_RANDOM ? 1 : FILLERS;
    return upload(rig, fillers, sizeof fillers, &tensors->memory[2]);
}

static int make_lists(struct peers_rig *rig, struct peers_tensors *tensors,
                      const struct peers_case *each, uint64_t seed) {
    struct contender_call *call = &tensors->call;
    int filler_count, kind = (int)each->lists, empty_in = each->empty_queries ? EMPTY_IN : 0;
    uint64_t lists_seed = seed_of(seed, STREAM_LISTS);
    call->indices_token_stride =
        each->strided ? (INT64_C(1) + GAP_ROWS) * (call->topk + GAP_COLUMNS) : call->topk;
    size_t bytes = (size_t)call->queries * (size_t)call->indices_token_stride * sizeof(int32_t);
    if (make_fillers(rig, tensors, each, seed, &filler_count) != 0 ||
        allocate(rig, bytes, &tensors->memory[3]) != 0)
        return -1;
    call->indices = tensors->memory[3];
    /* Gaps name row 0: whoever reads them as slots has a wrong result. */
    if (smelt_device_fill(rig->context, tensors->memory[3], 0, bytes) != SMELT_OK)
        return peers_fail_smelt("device memory");
    void *parameters[] = {&tensors->memory[3], &call->topk,   &call->indices_token_stride,
                          &call->rows,         &kind,         &lists_seed,
                          &tensors->memory[2], &filler_count, &empty_in};
    return peers_launch(rig, PEERS_LISTS, (unsigned)call->queries, parameters);
}

static int make_lengths(struct peers_rig *rig, struct peers_tensors *tensors,
                        const struct peers_case *each, uint64_t seed) {
    struct contender_call *call = &tensors->call;
    struct smelt__random random = smelt__random_at(seed, STREAM_LENGTHS, 0);
    const int random_most = call->topk > 63 ? call->topk : 63;
    const int most = each->lengths == LENGTHS_FEW ? FEW_SLOTS : random_most;
    int32_t *lengths = malloc((size_t)call->queries * sizeof *lengths);
    if (!lengths)
        return peers_fail("out of memory");
    for (int64_t i = 0; i < call->queries; i++) {
        int64_t length =
            each->lengths == LENGTHS_LISTS ? i + 1 : smelt__random_below(&random, most + 1);
        lengths[i] = (int32_t)(length < call->topk ? length : call->topk);
    }
    int result = upload(rig, lengths, (size_t)call->queries * sizeof *lengths, &tensors->memory[4]);
    call->topk_length = tensors->memory[4];
    free(lengths);
    return result;
}

static int make_sink(struct peers_rig *rig, struct peers_tensors *tensors,
                     const struct peers_case *each, uint64_t seed) {
    struct contender_call *call = &tensors->call;
    struct smelt__random random = smelt__random_at(seed, STREAM_SINK, 0);
    float *sink = malloc((size_t)call->heads * sizeof *sink);
    if (!sink)
        return peers_fail("out of memory");
    for (int head = 0; head < call->heads; head++) {
        const double infinite = normal(&random);
        sink[head] = (float)normal(&random);
        if (each->infinite_sinks && fabs(infinite) > 0.5)
            sink[head] = infinite > 0 ? INFINITY : -INFINITY;
    }
    int result = upload(rig, sink, (size_t)call->heads * sizeof *sink, &tensors->memory[5]);
    call->sink = tensors->memory[5];
    free(sink);
    return result;
}

int peers_tensors_make(struct peers_rig *rig, struct peers_tensors *tensors,
                       const struct peers_case *each, int heads, uint64_t seed) {
    memset(tensors, 0, sizeof *tensors);
    tensors->call = (struct contender_call){
        .queries = each->queries,
        .rows = each->rows,
        .heads = heads,
        .dqk = each->shape.dqk,
        .dv = each->shape.dv,
        .topk = each->shape.topk,
        .scale = each->scale > 0 ? each->scale : (float)(1 / sqrt(each->shape.dqk)),
    };
    if (make_values(rig, tensors, each, seed) != 0 || make_lists(rig, tensors, each, seed) != 0)
        return -1;
    if (each->lengths && make_lengths(rig, tensors, each, seed) != 0)
        return -1;
    if (each->shape.sink && make_sink(rig, tensors, each, seed) != 0)
        return -1;
    return peers_wait(rig);
}

/* ---- outputs ---- */

static size_t out_bytes(const struct peers_case *each, int heads) {
    return (size_t)each->queries * (size_t)heads * (size_t)each->shape.dv * 2;
}

static size_t row_bytes(const struct peers_case *each, int heads) {
    return (size_t)each->queries * (size_t)heads * sizeof(float);
}

int peers_outputs_make(struct peers_rig *rig, struct peers_outputs *outputs,
                       const struct peers_case *each, int heads) {
    void *lse = NULL, *max_logits = NULL;
    memset(outputs, 0, sizeof *outputs);
    outputs->heads = heads;
    int result = allocate(rig, out_bytes(each, heads), &outputs->out);
    if (result == 0)
        result = allocate(rig, row_bytes(each, heads), &lse);
    if (result == 0)
        result = allocate(rig, row_bytes(each, heads), &max_logits);
    outputs->lse = lse;
    outputs->max_logits = max_logits;
    return result;
}

int peers_outputs_poison(struct peers_rig *rig, struct peers_outputs *outputs,
                         const struct peers_case *each) {
    const int heads = outputs->heads;
    if (smelt_device_fill(rig->context, outputs->out, 0xff, out_bytes(each, heads)) == SMELT_OK &&
        smelt_device_fill(rig->context, outputs->lse, 0xff, row_bytes(each, heads)) == SMELT_OK &&
        smelt_device_fill(rig->context, outputs->max_logits, 0xff, row_bytes(each, heads)) ==
            SMELT_OK)
        return 0;
    return peers_fail_smelt("device memory");
}

void peers_outputs_free(struct peers_rig *rig, struct peers_outputs *outputs) {
    smelt_device_free(rig->context, outputs->out);
    smelt_device_free(rig->context, outputs->lse);
    smelt_device_free(rig->context, outputs->max_logits);
    memset(outputs, 0, sizeof *outputs);
}

/* ---- the reference ---- */

struct reference { /* kernels.cu's */
    const void *q, *kv;
    const int32_t *indices, *topk_length;
    const float *sink;
    int64_t q_token_stride, q_head_stride, kv_row_stride, indices_token_stride, rows;
    int heads, dqk, dv, width;
    float scale;
    int first, step, count;
    double *out, *lse, *max_logits, *scores;
    int *slots;
};

static struct reference parameters_of(const struct contender_call *call,
                                      const struct peers_reference *reference, void *scores,
                                      void *slots) {
    return (struct reference){
        .q = call->q,
        .kv = call->kv,
        .indices = call->indices,
        .topk_length = call->topk_length,
        .sink = call->sink,
        .q_token_stride = call->q_token_stride,
        .q_head_stride = call->q_head_stride,
        .kv_row_stride = call->kv_row_stride,
        .indices_token_stride = call->indices_token_stride,
        .rows = call->rows,
        .heads = call->heads,
        .dqk = call->dqk,
        .dv = call->dv,
        .width = call->topk,
        .scale = call->scale,
        .first = reference->first,
        .step = reference->step,
        .count = reference->count,
        .out = reference->of[PEERS_OUT],
        .lse = reference->of[PEERS_LSE],
        .max_logits = reference->of[PEERS_MAX_LOGITS],
        .scores = scores,
        .slots = slots,
    };
}

int peers_reference_make(struct peers_rig *rig, struct peers_reference *reference,
                         const struct peers_tensors *tensors, int first, int step, int count) {
    const struct contender_call *call = &tensors->call;
    const size_t rows = (size_t)count * (size_t)call->heads, topk = (size_t)call->topk;
    void *of[PEERS_TENSORS] = {NULL}, *scores = NULL, *slots = NULL;
    *reference = (struct peers_reference){first, step, count, call->heads, {NULL}};
    int result = allocate(rig, rows * (size_t)call->dv * sizeof(double), &of[PEERS_OUT]);
    if (result == 0)
        result = allocate(rig, rows * sizeof(double), &of[PEERS_LSE]);
    if (result == 0)
        result = allocate(rig, rows * sizeof(double), &of[PEERS_MAX_LOGITS]);
    if (result == 0)
        result = allocate(rig, REFERENCE_BLOCKS * 64 * topk * sizeof(double), &scores);
    if (result == 0)
        result = allocate(rig, REFERENCE_BLOCKS * topk * sizeof(int), &slots);
    for (int i = 0; i < PEERS_TENSORS; i++)
        reference->of[i] = of[i];
    if (result == 0) {
        struct reference parameters = parameters_of(call, reference, scores, slots);
        void *list[] = {&parameters};
        result = peers_launch(rig, PEERS_REFERENCE, REFERENCE_BLOCKS, list);
    }
    if (result == 0)
        result = peers_wait(rig);
    smelt_device_free(rig->context, scores);
    smelt_device_free(rig->context, slots);
    return result;
}

void peers_reference_free(struct peers_rig *rig, struct peers_reference *reference) {
    for (int i = 0; i < PEERS_TENSORS; i++)
        smelt_device_free(rig->context, reference->of[i]);
    memset(reference, 0, sizeof *reference);
}

/* ---- the comparison ---- */

struct comparison { /* kernels.cu's */
    uint64_t elements, misses, strange;
    double error2, reference2, answer2, product;
    uint64_t worst;
};

static struct peers_distance distance_of(const struct comparison *sums) {
    const uint32_t bits = (uint32_t)(sums->worst >> 32);
    const double squares = sums->answer2 + sums->reference2;
    struct peers_distance distance = {
        .elements = sums->elements,
        .misses = sums->misses,
        .strange = sums->strange,
        .where = sums->worst & UINT32_MAX,
    };
    float worst;
    memcpy(&worst, &bits, sizeof worst);
    distance.worst = (double)worst;
    /* As FlashMLA's tests: of next to nothing the direction is not asked. */
    if (sums->reference2 > 1e-12) {
        distance.relative = sqrt(sums->error2 / sums->reference2);
        distance.cosine = 1 - 2 * sums->product / squares;
    }
    return distance;
}

int peers_compare(struct peers_rig *rig, struct peers_distance *distance,
                  const struct peers_outputs *outputs, const struct peers_reference *reference,
                  enum peers_tensor tensor, int empty_lse_inf, int dv) {
    const void *const answers[PEERS_TENSORS] = {outputs->out, outputs->lse, outputs->max_logits};
    struct peers_reference copy = *reference;
    struct comparison sums;
    void *device;
    int is_bf16 = tensor == PEERS_OUT;
    int64_t per_query = (int64_t)reference->heads * (is_bf16 ? dv : 1);
    double absolute = is_bf16 ? 8e-4 : 1e-6, relative = is_bf16 ? 3.01 / 128 : 2.01 / 65536;
    double empty = tensor == PEERS_LSE && empty_lse_inf ? INFINITY : -INFINITY;
    memset(&sums, 0, sizeof sums);
    if (upload(rig, &sums, sizeof sums, &device) != 0)
        return -1;
    void *parameters[] = {(void *)&answers[tensor],
                          &copy.of[tensor],
                          &is_bf16,
                          &per_query,
                          &copy.first,
                          &copy.step,
                          &copy.count,
                          &absolute,
                          &relative,
                          &empty,
                          &device};
    int result = peers_launch(rig, PEERS_COMPARE, FILL_BLOCKS, parameters);
    if (result == 0)
        result = peers_wait(rig);
    if (result == 0 && smelt_device_download(rig->context, &sums, device, sizeof sums) != SMELT_OK)
        result = peers_fail_smelt("download");
    smelt_device_free(rig->context, device);
    *distance = distance_of(&sums);
    return result;
}
