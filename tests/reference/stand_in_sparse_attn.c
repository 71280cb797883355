/* sparse_attn of the stand-in: the reference, with the chosen defect. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference/operators.h"
#include "smelt/smelt.h"
#include "sparse_attn_calls.h"
#include "stand_in.h"

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
                  int64_t query, double *out, double *lse) {
    const int empty = sparse_attn_valid_rows(spec, args, query, NULL) == 0;
    if (stand_in_defect == STAND_IN_LSE_BASE_2)
        *lse /= log(2.0);
    if (stand_in_defect == STAND_IN_LSE_POSITIVE_WHEN_EMPTY && empty)
        *lse = INFINITY;
    if (stand_in_defect == STAND_IN_NAN_WHEN_EMPTY && empty)
        out[0] = NAN;
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
    double *memory = malloc(heads * (dv + 2) * sizeof *memory);
    if (!memory)
        return SMELT_ERROR_OUT_OF_MEMORY;
    struct smelt__attention_results results = {memory, memory + heads * dv,
                                               memory + heads * (dv + 1), NULL, NULL};
    smelt_status status = SMELT_OK;
    if (sparse_attn_reference(spec, &inputs, &query, 1, &results) != 0)
        status = SMELT_ERROR_OUT_OF_MEMORY;
    for (size_t head = 0; head < heads && status == SMELT_OK; head++) {
        spoil(spec, &resolved, query, results.out + head * dv, &results.lse[head]);
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
    if (args->width > attn->attention.topk && !attn->attention.buckets)
        return stand_in_fail(SMELT_ERROR_INVALID_ARGUMENT, "width is out of range");
    if (!args->q.data && args->tokens > 0) /* a call that only asks whether it is legal */
        return stand_in_fail(SMELT_ERROR_INVALID_ARGUMENT, "q is NULL");
    smelt_status status = SMELT_OK;
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
