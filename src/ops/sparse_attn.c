/* The operator sparse_attn: see smelt/sparse_attn.h. */
#include "smelt/sparse_attn.h"

#include "codegen/families/sparse_attn.h"
#include "ops/attention_call.h"
#include "ops/call.h"
#include "ops/sparse_attn.h"
#include "ops/sparse_attn_partition.h"
#include "runtime/log.h"

_Static_assert((int)SMELT__SPARSE_ATTN_MOST_BUCKETS <= (int)PARTITION_MOST_BUCKETS,
               "the kernels' limit");

enum { PARTITION_KERNELS = 2 }; /* ahead of the buckets' */

struct sparse_attn {
    smelt_operator op;
    int buckets;                                 /* 0: a plain operator */
    int bounds[SMELT__SPARSE_ATTN_MOST_BUCKETS]; /* ascending */
    struct smelt__sparse_attn_backward backward; /* when it was made for that pass */
};

static void prepare(smelt_operator *op) {
    struct sparse_attn *made = (struct sparse_attn *)op;
    made->buckets = smelt__sparse_attn_bounds(&op->spec, made->bounds);
    if (op->passes & SMELT_PASS_BACKWARD)
        smelt__sparse_attn_backward_make(op, made->bounds, made->buckets, &made->backward);
}

/* ---- the forward pass ------------------------------------------------------------------------ */

/* Bytes of workspace of a forward call. */
static size_t bytes_of(int64_t queries, int buckets) {
    return buckets && queries > 0 ? smelt__partition_layout(queries, buckets).bytes : 0;
}

static smelt_status workspace(const struct smelt__call *call, size_t *bytes) {
    const struct smelt__attention_call fields =
        SMELT__ATTENTION_CALL((smelt_sparse_attn_args *)call->args);
    SMELT__TRY(smelt__attention_check_queries(&fields));
    *bytes = bytes_of(smelt__attention_count_queries(&fields),
                      ((const struct sparse_attn *)call->op)->buckets);
    return SMELT_OK;
}

/*
 * The partition, then the buckets' kernels, the largest bound first. All but the first are launched
 * with PDL. The largest bucket's kernel waits for the partition and lets the next kernels start only
 * then, so these need not wait before they read the lists; each waits at its end, so that it ends
 * after the previous kernel. Only the device knows a bucket's size, so every grid has as many thread
 * blocks as are resident at once, and these loop over the items.
 */
static smelt_status launch_buckets(const struct sparse_attn *attn, const struct smelt__call *call,
                                   int64_t queries, struct sparse_attn_fwd_params *params) {
    const smelt_sparse_attn_args *args = call->args;
    const struct smelt__kernel *const *kernels = attn->op.kernels;
    const struct smelt__partition_kernels passes = {kernels[0], kernels[1]};
    const struct sparse_attn_partition_params partition =
        smelt__partition_params(&params->work, attn->bounds, attn->buckets, args->workspace);
    SMELT__TRY(smelt__partition_launch(attn->op.context, &passes, &partition, call->stream));
    smelt__partition_apply(&partition, &params->work);
    for (int i = 0; i < attn->buckets; i++) {
        const struct smelt__kernel *kernel = kernels[PARTITION_KERNELS + i];
        const int64_t available = smelt__available_blocks(kernel, args->free_multiprocessors);
        const int64_t most =
            available < kernel->resident_blocks ? available : kernel->resident_blocks;
        const struct smelt__launch one = {
            .blocks = {smelt__blocks_for(kernel, queries, most)}, .pdl = 1, .params = params};
        params->work.query_range = partition.ranges + 2 * (attn->buckets - 1 - i);
        params->work.pdl_wait_at_end = i > 0;
        SMELT__TRY(smelt__kernel_launch(attn->op.context, kernel, &one, call->stream));
    }
    return SMELT_OK;
}

smelt_status smelt__sparse_attn_pack(struct smelt__call *call, int buckets,
                                     struct sparse_attn_fwd_params *params, int64_t *queries) {
    const smelt_sparse_attn_args *args = call->args;
    const struct smelt__attention_call fields = SMELT__ATTENTION_CALL(args);
    *queries = 0;
    SMELT__TRY(smelt__attention_check_call(&fields));
    const int64_t wanted = smelt__attention_count_queries(&fields);
    if (wanted == 0)
        return SMELT_OK; /* an empty call's tensors are not checked */
    SMELT__TRY(smelt__call_check(call, bytes_of(wanted, buckets), NULL, 0));
    SMELT__TRY(smelt__operator_check_grid(call->op, SMELT_PASS_FORWARD, wanted));
    *params = (struct sparse_attn_fwd_params){
        .work = smelt__attention_work(&fields, wanted),
        SMELT__TENSOR_BTH(q, args->q),
        .kv = args->kv.data,
        .sink = args->sink.data,
        SMELT__TENSOR_BTH(out, args->out),
        SMELT__TENSOR_BTH(lse, args->lse),
        SMELT__TENSOR_BTH(max_logits, args->max_logits),
        .kv_batch_stride = args->kv.strides[0],
        .kv_row_bytes = args->rows > 1 ? (unsigned)(args->kv.strides[1] * 2) : 0,
        .scale = args->scale,
    };
    *queries = wanted;
    return SMELT_OK;
}

static smelt_status launch(struct smelt__call *call) {
    const struct sparse_attn *attn = (const struct sparse_attn *)call->op;
    const smelt_sparse_attn_args *args = call->args;
    struct sparse_attn_fwd_params params;
    int64_t queries;
    SMELT__TRY(smelt__sparse_attn_pack(call, attn->buckets, &params, &queries));
    if (queries == 0)
        return SMELT_OK;
    if (attn->buckets)
        return launch_buckets(attn, call, queries, &params);
    /* With programmatic dependent launch (PDL), which costs the driver less (bench/log/tools.md).
     * The kernel itself waits for earlier work in the stream. */
    return smelt__call_launch_pdl(call, call->op->kernels[0], queries, args->free_multiprocessors,
                                  &params);
}

/* ---- the backward pass ----------------------------------------------------------------------- */

static smelt_status backward_workspace(const struct smelt__call *call, size_t *bytes) {
    return smelt__sparse_attn_backward_workspace(&((const struct sparse_attn *)call->op)->backward,
                                                 call, bytes);
}

static smelt_status launch_backward(struct smelt__call *call) {
    return smelt__sparse_attn_backward_launch(&((const struct sparse_attn *)call->op)->backward,
                                              call);
}

/* ---- the operator ---------------------------------------------------------------------------- */

static const struct smelt__pass passes[] = {
    SMELT__PASS(sparse_attn, forward, FORWARD, .tables = &smelt__sparse_attn_table,
                .workspace = workspace, .launch = launch),
    SMELT__PASS(sparse_attn, backward, BACKWARD, .tables = &smelt__sparse_attn_grad_table,
                .workspace = backward_workspace, .launch = launch_backward),
};

SMELT__TYPE(sparse_attn, struct sparse_attn, prepare)
SMELT__CALL(sparse_attn, forward, FORWARD, smelt_sparse_attn_args)
SMELT__ASK(sparse_attn, forward, FORWARD, smelt_sparse_attn_args)
SMELT__CALL(sparse_attn, backward, BACKWARD, smelt_sparse_attn_grad_args)
SMELT__ASK(sparse_attn, backward, BACKWARD, smelt_sparse_attn_grad_args)
