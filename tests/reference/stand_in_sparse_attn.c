/* sparse_attn of the stand-in: the reference, with the chosen defect. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference/operators.h"
#include "smelt/smelt.h"
#include "sparse_attn_calls.h"
#include "stand_in_operator.h"

static int off(const void *pointer) {
    return (uintptr_t)pointer % 16 != 0;
}

/* Whether stride number `number` of [batch, token, head] is used and not a multiple of eight
 * elements; strides of dimensions of extent 1 are ignored. */
static int odd_stride(const int64_t *strides, int number, int64_t extent) {
    return extent > 1 && strides[number] % 8;
}

/* The name of the argument at fault, or NULL. */
static const char *fault(const struct smelt__attention_spec *spec,
                         const smelt_sparse_attn_args *a) {
    if (a->size != sizeof *a)
        return "size";
    if (a->batches < 0 || a->tokens < 0 || a->tokens > INT32_MAX ||
        (a->tokens > 0 && a->batches > INT32_MAX / a->tokens))
        return "batches * tokens";
    if (a->rows < 0 || a->rows > INT32_MAX)
        return "rows";
    if (a->width < 1 || (a->width > spec->topk && !spec->buckets))
        return "width is out of range";
    if (!(a->scale > 0) || isinf(a->scale))
        return "scale";
    if (!a->q.data)
        return "q is NULL";
    if (off(a->q.data) || odd_stride(a->q.strides, 2, spec->heads) ||
        odd_stride(a->q.strides, 1, a->tokens))
        return "q, q.strides[1] or q.strides[2]";
    if ((!a->kv.data && a->rows > 0) || off(a->kv.data) || odd_stride(a->kv.strides, 1, a->rows))
        return "kv or kv.strides[1]";
    if (!a->out.data || off(a->out.data) || odd_stride(a->out.strides, 2, spec->heads) ||
        odd_stride(a->out.strides, 1, a->tokens))
        return "out, out.strides[1] or out.strides[2]";
    if (!a->indices.data)
        return "indices";
    if (!a->lse.data)
        return "lse";
    if (!a->sink.data != !spec->sink)
        return "sink";
    return a->queries.data && a->query_capacity < 0 ? "query_capacity" : NULL;
}

static int is_listed(const smelt_sparse_attn_args *args, int64_t query) {
    if (!args->queries.data || stand_in_defect == STAND_IN_COMPUTES_UNLISTED)
        return 1;
    const int32_t *list = args->queries.data, *given = args->query_count.data;
    int64_t count = args->query_capacity;
    if (given && *given < count)
        count = *given;
    for (int64_t i = 0; i < count; i++)
        if (list[i] == query)
            return 1;
    return 0;
}

static void spoil(const struct smelt__attention_spec *spec, const smelt_sparse_attn_args *args,
                  int64_t query, int head, double *out, double *lse, double *max_logit) {
    int64_t valid = sparse_attn_valid_rows(spec, args, query, NULL);
    int empty = valid == 0;
    if (stand_in_defect == STAND_IN_LSE_BASE_2)
        *lse /= log(2.0);
    if (stand_in_defect == STAND_IN_MAX_LOGITS_BASE_2)
        *max_logit /= log(2.0);
    const float *sinks = args->sink.data;
    if (stand_in_defect == STAND_IN_LSE_WITH_SINK && sinks && !empty)
        *lse = log(exp(*lse) + exp((double)sinks[head]));
    if (stand_in_defect == STAND_IN_LSE_POSITIVE_WHEN_EMPTY && empty)
        *lse = INFINITY;
    if (stand_in_defect == STAND_IN_NAN_WHEN_EMPTY && empty)
        out[0] = NAN;
    if (stand_in_defect == STAND_IN_CLAMPS_MASKED && valid < args->width)
        for (int d = 0; d < spec->dv; d++)
            out[d] += 0 * (double)smelt__bf16_to_float(((const uint16_t *)args->kv.data)[d]);
}

static void store(const struct smelt__attention_spec *spec, const smelt_sparse_attn_args *a,
                  int64_t query, int head, const double *out, double lse, double max_logit) {
    int64_t batch = query / a->tokens, token = query % a->tokens;
    uint16_t *to = (uint16_t *)a->out.data + batch * a->out.strides[0] + token * a->out.strides[1] +
                   head * a->out.strides[2];
    int64_t at = batch * a->lse.strides[0] + token * a->lse.strides[1] + head * a->lse.strides[2];
    int64_t high = batch * a->max_logits.strides[0] + token * a->max_logits.strides[1] +
                   head * a->max_logits.strides[2];
    for (int d = 0; d < spec->dv; d++)
        to[d] = smelt__bf16_from_float((float)out[d]);
    if (stand_in_defect == STAND_IN_LAST_BIT && query == 0 && head == 0)
        to[0] ^= 1;
    if (stand_in_defect == STAND_IN_WRITES_INPUT && a->sink.data)
        ((float *)(uintptr_t)a->sink.data)[head] += 1e-6F;
    ((float *)a->lse.data)[at] = (float)lse;
    if (a->max_logits.data)
        ((float *)a->max_logits.data)[high] = (float)max_logit;
}

static smelt_status compute(const struct smelt__attention_spec *spec,
                            const smelt_sparse_attn_args *args, int64_t query) {
    size_t heads = (size_t)spec->heads, dv = (size_t)spec->dv;
    smelt_sparse_attn_args resolved = *args, inputs = *args;
    smelt__sparse_attn_resolve_strides(spec, &resolved);
    inputs = resolved;
    if (stand_in_defect == STAND_IN_DROPS_LAST_SLOT && inputs.width > 1)
        inputs.width--;
    if (stand_in_defect == STAND_IN_IGNORES_LENGTH)
        inputs.topk_length.data = NULL;
    if (stand_in_defect == STAND_IN_IGNORES_SINK)
        inputs.sink.data = NULL;
    double *memory = malloc(heads * (dv + 2) * sizeof *memory);
    if (!memory)
        return SMELT_ERROR_OUT_OF_MEMORY;
    struct smelt__attention_results results = {memory, memory + heads * dv,
                                               memory + heads * (dv + 1), NULL, NULL};
    smelt_status status = SMELT_OK;
    if (sparse_attn_reference(spec, &inputs, &query, 1, &results) != 0)
        status = SMELT_ERROR_OUT_OF_MEMORY;
    for (size_t head = 0; head < heads && status == SMELT_OK; head++) {
        spoil(spec, &resolved, query, (int)head, results.out + head * dv, &results.lse[head],
              &results.max_logits[head]);
        store(spec, &resolved, query, (int)head, results.out + head * dv, results.lse[head],
              results.max_logits[head]);
    }
    free(memory);
    return status;
}

smelt_status stand_in_forward(const smelt_operator *attn, const smelt_sparse_attn_args *given) {
    smelt_sparse_attn_args copy = *given, *const args = &copy;
    if (args->batches == 0)
        args->batches = 1;
    const char *wrong = fault(&attn->attention, args);
    if (wrong && args->batches != 0 && args->tokens != 0)
        return stand_in_fail(SMELT_ERROR_INVALID_ARGUMENT, wrong);
    smelt_status status = stand_in_launch(attn->knobs);
    if (status != SMELT_OK)
        return status;
    const enum stand_in_defect defect = stand_in_defect;
    if (stand_in_defect_knobs && strcmp(stand_in_defect_knobs, attn->knobs) != 0)
        stand_in_defect = STAND_IN_CORRECT;
    int64_t queries = args->batches * args->tokens;
    if (stand_in_defect == STAND_IN_SKIPS_LAST_QUERY)
        queries--;
    for (int64_t query = 0; query < queries && status == SMELT_OK; query++)
        if (is_listed(args, query))
            status = compute(&attn->attention, args, query);
    stand_in_defect = defect;
    return status;
}
