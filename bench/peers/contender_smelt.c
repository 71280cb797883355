/* smelt as a contender, through its public headers alone. Options are appended to the operator's
 * text: "buckets=auto", "variant=mma". */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "contender.h"
#include "smelt/smelt.h"

enum { SPEC_BYTES = 512 };

/* One for the process; it goes with it. */
static smelt_context *context;
static char context_problem[512];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_context(void) {
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    options.kind = SMELT_CONTEXT_DEVICE;
    if (smelt_context_create(&context, &options) != SMELT_OK)
        snprintf(context_problem, sizeof context_problem, "%s", smelt_last_error());
}

static int open_operator(void **operation, const struct contender_shape *shape, const char *options,
                         char *message, size_t message_bytes) {
    smelt_sparse_attn_spec spec = SMELT_SPARSE_ATTN_SPEC_INIT;
    smelt_sparse_attn *attn = NULL;
    char text[SPEC_BYTES], *knobs = NULL;
    *operation = NULL;
    pthread_once(&once, make_context);
    if (!context) {
        snprintf(message, message_bytes, "%s", context_problem);
        return -1;
    }
    snprintf(text, sizeof text, "sparse_attn:heads=%d,dqk=%d,dv=%d,topk=%d%s%s%s", shape->heads,
             shape->dqk, shape->dv, shape->topk, shape->sink ? ",sink=1" : "", *options ? "," : "",
             options);
    smelt_status status = smelt_sparse_attn_spec_parse(text, &spec, &knobs);
    if (status == SMELT_OK)
        status = smelt_sparse_attn_create(&attn, context, &spec);
    smelt_free(knobs);
    if (status != SMELT_OK) {
        snprintf(message, message_bytes, "%s: %s", text, smelt_last_error());
        return -1;
    }
    *operation = attn;
    return 0;
}

static smelt_sparse_attn_args args_of(const struct contender_call *call) {
    smelt_sparse_attn_args args = SMELT_SPARSE_ATTN_ARGS_INIT;
    args.tokens = call->queries;
    args.rows = call->rows;
    args.width = call->topk;
    args.scale = call->scale;
    args.q.data = call->q;
    args.q.strides[1] = call->q_token_stride;
    args.q.strides[2] = call->q_head_stride;
    args.kv.data = call->kv;
    args.kv.strides[1] = call->kv_row_stride;
    args.indices.data = call->indices;
    args.indices.strides[1] = call->indices_token_stride;
    args.topk_length.data = call->topk_length;
    args.sink.data = call->sink;
    args.out.data = call->out;
    args.lse.data = call->lse;
    args.max_logits.data = call->max_logits;
    return args;
}

static size_t workspace(void *operation, const struct contender_call *call) {
    smelt_sparse_attn_args args = args_of(call);
    size_t bytes = 0;
    return smelt_sparse_attn_forward_workspace(operation, &args, &bytes) == SMELT_OK ? bytes : 0;
}

static int launch(void *operation, const struct contender_call *call, void *space, size_t bytes,
                  struct CUstream_st *stream, char *message, size_t message_bytes) {
    smelt_sparse_attn_args args = args_of(call);
    args.workspace = space;
    args.workspace_bytes = bytes;
    if (smelt_sparse_attn_forward(operation, &args, stream) == SMELT_OK)
        return 0;
    snprintf(message, message_bytes, "%s", smelt_last_error());
    return -1;
}

static void close_operator(void *operation) {
    smelt_sparse_attn *attn = operation;
    smelt_sparse_attn_destroy(&attn);
}

const struct contender peers_contender = {
    .version = CONTENDER_VERSION,
    .heads_unit = 1,
    .topk_unit = 1,
    .open = open_operator,
    .workspace = workspace,
    .launch = launch,
    .close = close_operator,
};
