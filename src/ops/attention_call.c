/* See attention_call.h. */
#include "ops/attention_call.h"

#include <inttypes.h>
#include <stdint.h>

#include "ops/arguments.h"
#include "runtime/log.h"

static smelt_status check_query_list(const struct smelt__attention_call *call) {
    if (!call->queries->data && (call->query_count->data || call->query_capacity))
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "queries is NULL but %s is given; a query list needs its entries",
                           call->query_count->data ? "query_count" : "query_capacity");
    return SMELT_OK;
}

smelt_status smelt__attention_check_queries(const struct smelt__attention_call *call) {
    SMELT__TRY(smelt__check_queries(call->batches, call->tokens));
    return check_query_list(call);
}

smelt_status smelt__attention_check_call(const struct smelt__attention_call *call) {
    SMELT__TRY(smelt__check_scale(call->scale));
    return smelt__attention_check_queries(call);
}

smelt_status smelt__attention_check_rows(const struct smelt__attention_call *call, int64_t most,
                                         const char *text, const char *name) {
    if (call->batches == 0 || call->rows <= most / call->batches)
        return SMELT_OK;
    return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                       "batches = %" PRId64 " times rows = %" PRId64
                       " exceeds %s, the most rows of %s; split the call",
                       call->batches, call->rows, text, name);
}

int64_t smelt__attention_count_queries(const struct smelt__attention_call *call) {
    const int64_t all = call->batches * call->tokens;
    return all == 0 || !call->queries->data ? all : call->query_capacity;
}

struct work_params smelt__attention_work(const struct smelt__attention_call *call,
                                         int64_t queries) {
    return (struct work_params){
        .indices = call->indices->data,
        .topk_length = call->topk_length->data,
        .queries = call->queries->data,
        .query_count = call->query_count->data,
        .indices_batch_stride = call->indices->strides[0],
        .indices_token_stride = call->indices->strides[1],
        .topk_length_batch_stride = call->topk_length->strides[0],
        .topk_length_token_stride = call->topk_length->strides[1],
        .batches = (int)call->batches,
        .tokens = (int)call->tokens,
        .rows = (int)call->rows,
        .width = (int)call->width,
        .query_capacity = (int)queries,
    };
}

smelt_status smelt__attention_check_forward(struct smelt__call *call,
                                            const struct smelt__attention_call *fields,
                                            int64_t *queries) {
    *queries = 0;
    SMELT__TRY(smelt__attention_check_call(fields));
    const int64_t wanted = smelt__attention_count_queries(fields);
    if (wanted == 0)
        return SMELT_OK; /* an empty call's tensors are not checked */
    SMELT__TRY(smelt__call_check(call, 0, NULL, 0));
    SMELT__TRY(smelt__operator_check_grid(call->op, SMELT_PASS_FORWARD, wanted));
    *queries = wanted;
    return SMELT_OK;
}
