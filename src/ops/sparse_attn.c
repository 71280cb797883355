/* The operator sparse_attn: see smelt/sparse_attn.h. */

#include "codegen/families/sparse_attn.h"
#include "ops/operator.h"
#include "ops/sparse_attn_args.h"
#include "ops/sparse_attn_backward.h"
#include "ops/sparse_attn_grad_args.h"
#include "ops/sparse_attn_partition.h"
#include "runtime/log.h"
#include "smelt/sparse_attn.h"

_Static_assert((int)SMELT_MAX_BUCKETS == (int)SMELT__MAX_LIST, "a list key holds the buckets");
_Static_assert((int)SMELT__SPARSE_ATTN_MOST_BUCKETS <= (int)PARTITION_MOST_BUCKETS,
               "the kernels' limit");
_Static_assert(sizeof(smelt_sparse_attn_spec) <= SMELT__MOST_SPEC_BYTES, "operator.c copies it");

enum { PARTITION_KERNELS = 2 }; /* ahead of the buckets' */

struct smelt_sparse_attn {
    struct smelt__operator kernels;
    struct smelt__sparse_attn_shape shape;
    int bounds[SMELT__SPARSE_ATTN_MOST_BUCKETS]; /* ascending, shape.buckets of them */
    struct smelt__sparse_attn_backward backward; /* when it was made for that pass */
};

/* ---- the spec -------------------------------------------------------------------------------- */

#define FIELD(name)                                                                                \
    { #name, offsetof(smelt_sparse_attn_spec, name) }

static const struct smelt__spec_field fields[] = {FIELD(heads), FIELD(dqk),  FIELD(dv),
                                                  FIELD(topk),  FIELD(sink), FIELD(deterministic)};

static const struct smelt__struct spec_struct =
    SMELT__STRUCT_VALUE(smelt_sparse_attn_spec, "spec", "SMELT_SPARSE_ATTN_SPEC_INIT", buckets);

static const struct smelt__spec_table spec_table = {
    .family = &smelt__sparse_attn,
    .about = &spec_struct,
    .object = "attn",
    .object_bytes = sizeof(smelt_sparse_attn),
    .fields = fields,
    .count = sizeof fields / sizeof *fields,
    .knobs = offsetof(smelt_sparse_attn_spec, knobs),
    .passes = offsetof(smelt_sparse_attn_spec, passes),
    .reserved = offsetof(smelt_sparse_attn_spec, reserved),
    .list = "buckets",
    .list_field = offsetof(smelt_sparse_attn_spec, buckets),
    .list_auto = "SMELT_BUCKETS_AUTO",
};

smelt_status smelt_sparse_attn_spec_print(const smelt_sparse_attn_spec *spec, char **text) {
    return smelt__operator_print_spec(&spec_table, spec, text);
}

smelt_status smelt_sparse_attn_spec_parse(const char *text, smelt_sparse_attn_spec *spec,
                                          char **knobs) {
    return smelt__operator_parse_spec(&spec_table, text, spec, knobs);
}

smelt_status smelt_sparse_attn_supported(const smelt_context *context,
                                         const smelt_sparse_attn_spec *spec, const char **why) {
    return smelt__operator_supported(&spec_table, context, spec, why);
}

/* ---- the operator ---------------------------------------------------------------------------- */

/* What is kept besides the kernels. */
static void keep_shape(smelt_sparse_attn *made, const struct smelt__spec *spec) {
    made->shape = (struct smelt__sparse_attn_shape){
        .heads = (int)smelt__spec_get(spec, "heads"),
        .dqk = (int)smelt__spec_get(spec, "dqk"),
        .dv = (int)smelt__spec_get(spec, "dv"),
        .topk = (int)smelt__spec_get(spec, "topk"),
        .sink = (int)smelt__spec_get(spec, "sink"),
        .buckets = smelt__sparse_attn_bounds(spec, made->bounds),
    };
    made->backward = (struct smelt__sparse_attn_backward){
        .kernels = &made->kernels, .shape = made->shape, .bounds = made->bounds};
    if (made->kernels.passes & SMELT_PASS_BACKWARD)
        smelt__sparse_attn_backward_make(spec, &made->backward);
}

smelt_status smelt_sparse_attn_create(smelt_sparse_attn **attn, smelt_context *context,
                                      const smelt_sparse_attn_spec *given) {
    struct smelt__spec spec;
    smelt_status status = smelt__operator_create(&spec_table, attn, context, given, &spec);
    if (status == SMELT_OK)
        keep_shape(*attn, &spec);
    return status;
}

void smelt_sparse_attn_destroy(smelt_sparse_attn **attn) {
    smelt__operator_destroy(attn);
}

smelt_status smelt_sparse_attn_get_kernel_info(const smelt_sparse_attn *attn, unsigned pass,
                                               int index, smelt_kernel_info *info) {
    if (!attn)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "attn is NULL");
    return smelt__operator_get_kernel_info(&attn->kernels, pass, index, info);
}

smelt_status smelt_sparse_attn_forward_workspace(const smelt_sparse_attn *attn,
                                                 const smelt_sparse_attn_args *args,
                                                 size_t *bytes) {
    if (!attn || !bytes)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "%s is NULL", attn ? "bytes" : "attn");
    return smelt__sparse_attn_workspace(&attn->shape, args, bytes);
}

/* ---- launching ------------------------------------------------------------------------------- */

/*
 * The partition, then the buckets' kernels, the largest bound first. All but the first are launched
 * with PDL. The largest bucket's kernel waits for the partition and lets the next kernels start only
 * then, so these need not wait before they read the lists; each waits at its end, so that it ends
 * after the previous kernel. Only the device knows a bucket's size, so every grid has as many thread
 * blocks as are resident at once, and these loop over the items.
 */
static smelt_status launch_buckets(const smelt_sparse_attn *attn,
                                   struct smelt__sparse_attn_packed *call,
                                   struct CUstream_st *stream) {
    const int buckets = attn->shape.buckets;
    struct sparse_attn_fwd_params *const params = &call->params;
    const struct smelt__kernel *const *kernels = attn->kernels.kernels;
    const struct smelt__partition_kernels passes = {kernels[0], kernels[1]};
    const struct sparse_attn_partition_params partition =
        smelt__partition_params(&params->work, attn->bounds, buckets, call->workspace);
    smelt_status status =
        smelt__partition_launch(attn->kernels.context, &passes, &partition, stream);
    params->work.queries = partition.list;
    params->work.query_count = NULL;
    params->work.extents = partition.extents;
    for (int i = 0; i < buckets && status == SMELT_OK; i++) {
        const struct smelt__kernel *kernel = kernels[PARTITION_KERNELS + i];
        const int64_t beside = smelt__blocks_beside(kernel, call->free_multiprocessors);
        const int64_t most = beside < kernel->resident_blocks ? beside : kernel->resident_blocks;
        const struct smelt__launch launch = {
            .blocks = {smelt__blocks_for(kernel, call->queries, most)}, .pdl = 1, .params = params};
        params->work.query_range = partition.ranges + 2 * (buckets - 1 - i);
        params->work.pdl_wait_at_end = i > 0;
        status = smelt__kernel_launch(attn->kernels.context, kernel, &launch, stream);
    }
    return status;
}

smelt_status smelt_sparse_attn_forward(const smelt_sparse_attn *attn,
                                       const smelt_sparse_attn_args *args,
                                       struct CUstream_st *stream) {
    if (!attn)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "attn is NULL");
    struct smelt__sparse_attn_packed call;
    smelt_status status = smelt__operator_need_pass(&attn->kernels, SMELT_PASS_FORWARD);
    if (status == SMELT_OK)
        status = smelt__sparse_attn_pack(&attn->shape, args, &call);
    if (status == SMELT_OK)
        status = smelt__operator_check_grid(&attn->kernels, SMELT_PASS_FORWARD, call.queries);
    if (status != SMELT_OK || call.queries == 0)
        return status;
    if (attn->shape.buckets)
        return launch_buckets(attn, &call, stream);
    const struct smelt__kernel *kernel = attn->kernels.kernels[0];
    const int64_t most = smelt__blocks_beside(kernel, call.free_multiprocessors);
    /* With PDL, which costs the driver less (bench/log/tools.md). The kernel itself waits for earlier
     * work in the stream. */
    const struct smelt__launch launch = {.blocks = {smelt__blocks_for(kernel, call.queries, most)},
                                         .pdl = 1,
                                         .params = &call.params};
    return smelt__kernel_launch(attn->kernels.context, kernel, &launch, stream);
}

smelt_status smelt_sparse_attn_backward_workspace(const smelt_sparse_attn *attn,
                                                  const smelt_sparse_attn_grad_args *args,
                                                  size_t *bytes) {
    if (!attn || !bytes)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "%s is NULL", attn ? "bytes" : "attn");
    smelt_status status = smelt__operator_need_pass(&attn->kernels, SMELT_PASS_BACKWARD);
    return status == SMELT_OK ? smelt__grad_workspace(&attn->backward, args, bytes) : status;
}

smelt_status smelt_sparse_attn_backward(const smelt_sparse_attn *attn,
                                        const smelt_sparse_attn_grad_args *args,
                                        struct CUstream_st *stream) {
    if (!attn)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "attn is NULL");
    smelt_status status = smelt__operator_need_pass(&attn->kernels, SMELT_PASS_BACKWARD);
    return status == SMELT_OK ? smelt__sparse_attn_backward_launch(&attn->backward, args, stream)
                              : status;
}
