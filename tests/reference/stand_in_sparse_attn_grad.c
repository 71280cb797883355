/*
 * sparse_attn's backward pass of the stand-in, independent of the reference: query by query like a
 * kernel, with p and ds rounded to bf16; with the chosen defect.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference/bf16.h"
#include "stand_in_operator.h"

/* One call: the arguments with strides filled in, and the sums. */
struct call {
    const struct smelt__attention_spec *spec;
    smelt_sparse_attn_grad_args args;
    double *dkv;     /* [B * S, dqk] */
    int *selections; /* [B * S] slots that name a row */
    double *dsink;   /* [H] */
    double *dq;      /* [dqk], of a head of a query */
};

static int has(enum stand_in_defect defect) {
    return stand_in_defect == defect;
}

static void pack(int64_t *strides, int64_t batch, int64_t token, int64_t head) {
    if (strides[0] || strides[1] || strides[2])
        return;
    strides[0] = batch;
    strides[1] = token;
    strides[2] = head;
}

static void pack_all(const struct smelt__attention_spec *spec, smelt_sparse_attn_grad_args *a) {
    const int64_t h = spec->heads, dqk = spec->dqk, dv = spec->dv, t = a->tokens;
    pack(a->q.strides, t * h * dqk, h * dqk, dqk);
    pack(a->dq.strides, t * h * dqk, h * dqk, dqk);
    pack(a->out.strides, t * h * dv, h * dv, dv);
    pack(a->grad_out.strides, t * h * dv, h * dv, dv);
    pack(a->lse.strides, t * h, h, 1);
    pack(a->kv.strides, a->rows * dqk, dqk, 0);
    pack(a->dkv.strides, a->rows * dqk, dqk, 0);
    pack(a->dkv_fp32.strides, a->rows * dqk, dqk, 0);
    pack(a->dkv_sum.strides, a->rows * dqk, dqk, 0);
    pack(a->indices.strides, t * a->width, a->width, 0);
    pack(a->topk_length.strides, t, 1, 0);
}

static int64_t offset(const int64_t *strides, int64_t i, int64_t k, int64_t l) {
    return i * strides[0] + k * strides[1] + l * strides[2];
}

static double widen(uint16_t value) {
    return (double)smelt__bf16_to_float(value);
}

static double rounded(double value) {
    return widen(smelt__bf16_from_float((float)value));
}

/* Rounds to three bits less than bf16. */
static double coarse(double value) {
    int exponent;
    const double fraction = frexp(value, &exponent);
    return ldexp(floor(fraction * 32 + 0.5) / 32, exponent);
}

/* p as rounded for the products. */
static double rounded_p(double p) {
    return has(STAND_IN_GRAD_COARSE_P) ? coarse(p) : rounded(p);
}

/* ---- one query ------------------------------------------------------------------------------- */

static int64_t slots_of(const struct call *call, int64_t b, int64_t t) {
    const smelt_sparse_attn_grad_args *a = &call->args;
    const int32_t *lengths = a->topk_length.data;
    int64_t slots = a->width;
    if (lengths && !has(STAND_IN_GRAD_IGNORES_LENGTH)) {
        const int64_t length = lengths[offset(a->topk_length.strides, b, t, 0)];
        slots = length < slots ? length : slots;
    }
    return slots > 0 && has(STAND_IN_GRAD_SKIPS_LAST_SLOT) ? slots - 1 : slots;
}

/* Whether a slot is valid; with the defect, not when an earlier one names the same row. */
static int is_valid(const struct call *call, const int32_t *indices, int64_t slot) {
    if (indices[slot] < 0 || indices[slot] >= call->args.rows)
        return 0;
    for (int64_t i = 0; has(STAND_IN_GRAD_DUPLICATES_ONCE) && i < slot; i++)
        if (indices[i] == indices[slot])
            return 0;
    return 1;
}

struct head {
    const uint16_t *q, *out, *grad_out;
    double lse, delta, share,
        sink_share; /* the slots' and the sink's shares of the softmax's sum */
};

static struct head head_of(const struct call *call, int64_t b, int64_t t, int number) {
    const smelt_sparse_attn_grad_args *a = &call->args;
    const float *sinks = a->sink.data;
    struct head head = {
        .q = (const uint16_t *)a->q.data + offset(a->q.strides, b, t, number),
        .out = (const uint16_t *)a->out.data + offset(a->out.strides, b, t, number),
        .grad_out = (const uint16_t *)a->grad_out.data + offset(a->grad_out.strides, b, t, number),
        .lse = (double)((const float *)a->lse.data)[offset(a->lse.strides, b, t, number)],
        .share = 1};
    if (sinks) {
        head.share = 1 / (1 + exp((double)sinks[number] - head.lse));
        head.sink_share = 1 / (1 + exp(head.lse - (double)sinks[number]));
    }
    for (int d = 0; d < call->spec->dv; d++) {
        const double out = widen(head.out[d]);
        head.delta +=
            (has(STAND_IN_GRAD_COARSE_DELTA) ? coarse(out) : out) * widen(head.grad_out[d]);
    }
    return head;
}

static void add_key(const struct call *call, const struct head *head, int64_t b, int64_t row) {
    const struct smelt__attention_spec *spec = call->spec;
    const smelt_sparse_attn_grad_args *a = &call->args;
    const uint16_t *kv = (const uint16_t *)a->kv.data + offset(a->kv.strides, b, row, 0);
    double *dkv =
        call->dkv + ((has(STAND_IN_GRAD_OTHER_BATCH) ? 0 : b) * a->rows + row) * spec->dqk;
    double score = 0, dp = 0;
    for (int d = 0; d < spec->dqk; d++)
        score += widen(head->q[d]) * widen(kv[d]);
    for (int d = 0; d < spec->dv; d++)
        dp += widen(head->grad_out[d]) * widen(kv[d]);
    score *= (double)a->scale;
    double p = exp(score - head->lse * (has(STAND_IN_GRAD_LSE_BASE_2) ? log(2.0) : 1));
    p *= has(STAND_IN_GRAD_P_WITHOUT_SINK) ? 1 : head->share;
    const double delta = has(STAND_IN_GRAD_NO_DELTA) ? 0 : head->delta;
    const double scale = has(STAND_IN_GRAD_NO_SCALE) ? 1 : (double)a->scale;
    const double ds = rounded(scale * p * (dp - delta));
    p = has(STAND_IN_GRAD_NO_VALUE) ? 0 : rounded_p(p);
    for (int d = 0; d < spec->dqk; d++) {
        call->dq[d] += ds * widen(kv[d]);
        dkv[d] += ds * widen(head->q[d]) + (d < spec->dv ? p * widen(head->grad_out[d]) : 0);
    }
}

static void store_dq(const struct call *call, int64_t query, int number) {
    const struct smelt__attention_spec *spec = call->spec;
    const smelt_sparse_attn_grad_args *a = &call->args;
    const int64_t b = query / a->tokens, t = query % a->tokens;
    uint16_t *to = (uint16_t *)a->dq.data + offset(a->dq.strides, b, t, number);
    for (int d = 0; d < spec->dqk; d++)
        to[d] = smelt__bf16_from_float((float)call->dq[d]);
    if (query == 0 && to[0] != 0 && has(STAND_IN_GRAD_LAST_BIT_DQ))
        to[0] ^= 1;
}

static void add_dsink(const struct call *call, const struct head *head, int number) {
    const double sink = (double)((const float *)call->args.sink.data)[number];
    double share = head->sink_share;
    if (has(STAND_IN_GRAD_DSINK_LSE))
        share = exp(sink - head->lse);
    if (has(STAND_IN_GRAD_DSINK_WHOLE))
        share = 1;
    if (has(STAND_IN_GRAD_DSINK_NAN) && isinf(sink) && sink > 0)
        share = (double)NAN;
    call->dsink[number] += (has(STAND_IN_GRAD_DSINK_SIGN) ? 1 : -1) * share * head->delta;
}

static void add_query(const struct call *call, int64_t query) {
    const struct smelt__attention_spec *spec = call->spec;
    const smelt_sparse_attn_grad_args *a = &call->args;
    const int64_t b = query / a->tokens, t = query % a->tokens, slots = slots_of(call, b, t);
    const int32_t *indices = (const int32_t *)a->indices.data + offset(a->indices.strides, b, t, 0);
    for (int number = 0; number < spec->heads; number++) {
        const struct head head = head_of(call, b, t, number);
        int64_t valid = 0;
        memset(call->dq, 0, (size_t)spec->dqk * sizeof *call->dq);
        for (int64_t i = 0; i < slots && valid < spec->topk; i++) {
            if (!is_valid(call, indices, i)) {
                if (has(STAND_IN_GRAD_CLAMPS_MASKED)) /* row 0, times 0 */
                    call->dq[0] += 0 * widen(((const uint16_t *)a->kv.data)[0]);
                continue;
            }
            valid++;
            add_key(call, &head, b, indices[i]);
            call->selections[b * a->rows + indices[i]]++;
        }
        store_dq(call, query, number);
        if (a->dsink.data && valid > 0)
            add_dsink(call, &head, number);
    }
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* The row that most slots name; the first of several. */
static int64_t most_selected(const struct call *call) {
    int64_t most = 0;
    for (int64_t key = 1; key < call->args.batches * call->args.rows; key++)
        if (call->selections[key] > call->selections[most])
            most = key;
    return most;
}

static void store_key(const struct call *call, int64_t key) {
    const struct smelt__attention_spec *spec = call->spec;
    const smelt_sparse_attn_grad_args *a = &call->args;
    const int64_t b = key / a->rows, row = key % a->rows;
    double *const dkv = call->dkv + key * spec->dqk;
    if (call->selections[key] == 0 && has(STAND_IN_GRAD_UNSELECTED_NOT_WRITTEN))
        return;
    if (call->selections[key] == 0 && has(STAND_IN_GRAD_UNSELECTED_NOT_ZERO))
        dkv[spec->dqk - 1] = 1e-6;
    for (int d = 0; d < spec->dqk; d++) {
        if (a->dkv.data) {
            uint16_t *to = a->dkv.data;
            to[offset(a->dkv.strides, b, row, 0) + d] = smelt__bf16_from_float((float)dkv[d]);
        } else if (a->dkv_fp32.data) {
            float *to = a->dkv_fp32.data;
            to[offset(a->dkv_fp32.strides, b, row, 0) + d] = (float)dkv[d];
        } else {
            float *to = (float *)a->dkv_sum.data + offset(a->dkv_sum.strides, b, row, 0) + d;
            *to = (has(STAND_IN_GRAD_OVERWRITES) ? 0 : *to) + (float)dkv[d];
        }
    }
    if (a->dkv.data && key == most_selected(call) && has(STAND_IN_GRAD_LAST_BIT_DKV))
        ((uint16_t *)a->dkv.data)[offset(a->dkv.strides, b, row, 0)] ^= 1;
}

static int is_repeated(const int32_t *list, int64_t slot) {
    for (int64_t i = 0; i < slot; i++)
        if (list[i] == list[slot])
            return 1;
    return 0;
}

/* Adds the listed queries, as often as they are listed, or all. */
static void add_queries(const struct call *call) {
    const smelt_sparse_attn_grad_args *a = &call->args;
    const int32_t *list = has(STAND_IN_GRAD_COMPUTES_UNLISTED) ? NULL : a->queries.data;
    const int32_t *given = a->query_count.data;
    const int64_t queries = a->batches * a->tokens;
    int64_t count = list ? a->query_capacity : queries;
    if (list && given && *given < count)
        count = *given;
    for (int64_t i = 0; i < count; i++) {
        const int64_t query = list ? list[i] : i;
        if (list && has(STAND_IN_GRAD_REPEATED_ONCE) && is_repeated(list, i))
            continue;
        if (query >= 0 && query < queries - has(STAND_IN_GRAD_SKIPS_LAST_QUERY))
            add_query(call, query);
    }
}

static void finish(const struct call *call) {
    const smelt_sparse_attn_grad_args *a = &call->args;
    if (has(STAND_IN_GRAD_DKV_ROW_OFF))
        for (int d = 0; d < call->spec->dqk; d++)
            call->dkv[most_selected(call) * call->spec->dqk + d] *= 1.04;
    for (int64_t key = 0; key < a->batches * a->rows; key++)
        store_key(call, key);
    for (int head = 0; a->dsink.data && head < call->spec->heads; head++)
        ((float *)a->dsink.data)[head] = (float)call->dsink[head];
}

smelt_status stand_in_backward(const smelt_operator *attn,
                               const smelt_sparse_attn_grad_args *args) {
    struct call call = {.spec = &attn->attention, .args = *args};
    if (!args->q.data)
        return stand_in_fail(SMELT_ERROR_INVALID_ARGUMENT, "q is NULL");
    if (!args->workspace || args->workspace_bytes < STAND_IN_WORKSPACE)
        return stand_in_fail(SMELT_ERROR_INVALID_ARGUMENT, "workspace");
    smelt_status status = stand_in_launch(attn->knobs);
    if (status != SMELT_OK)
        return status;
    if (call.args.batches == 0)
        call.args.batches = 1;
    pack_all(call.spec, &call.args);
    const size_t keys = (size_t)(call.args.batches * call.args.rows),
                 dqk = (size_t)attn->attention.dqk;
    call.dkv = calloc((keys + 1) * dqk + (size_t)attn->attention.heads, sizeof *call.dkv);
    call.selections = calloc(keys + 1, sizeof *call.selections);
    if (call.dkv && call.selections) {
        call.dq = call.dkv + keys * dqk;
        call.dsink = call.dq + dqk;
        add_queries(&call);
        finish(&call);
    } else {
        status = SMELT_ERROR_OUT_OF_MEMORY;
    }
    free(call.dkv);
    free(call.selections);
    return status;
}
