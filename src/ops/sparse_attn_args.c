/* See sparse_attn_args.h. */
#include "ops/sparse_attn_args.h"

#include <inttypes.h>
#include <math.h>
#include <stdint.h>

#include "ops/sparse_attn_partition.h"
#include "runtime/log.h"

enum {
    ROW_ALIGNMENT = 16, /* bytes: q, kv and out are moved 16 bytes at a time */
    ROW_ELEMENTS = 8,   /* bf16 elements in that */
    MAX_DIMENSIONS = 4,
};

/* Times log2(e) this still is finite in fp32, in which the kernel multiplies them. */
static const float MAX_SCALE = 2e38F;

/* A tensor argument: leading dimensions with their strides; the last dimension is contiguous. */
struct tensor {
    const char *name;
    const void *pointer;
    int required;
    int rows;       /* 1: bf16 rows moved 16 bytes at a time */
    int64_t width;  /* extent of the last dimension, elements */
    int dimensions; /* leading ones */
    struct {
        const char *name; /* "token" */
        int64_t extent;
        int64_t *stride; /* filled in when all are 0 */
    } dimension[MAX_DIMENSIONS];
};

static smelt_status refuse_pointer(const struct tensor *tensor) {
    if (!tensor->pointer)
        return tensor->required
                   ? smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                                 "%s is NULL; it must point to device memory", tensor->name)
                   : SMELT_OK;
    const uintptr_t alignment = tensor->rows ? ROW_ALIGNMENT : sizeof(int32_t);
    if ((uintptr_t)tensor->pointer % alignment != 0)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "%s = %p is not aligned; it must start at a multiple of %d bytes",
                           tensor->name, tensor->pointer, (int)alignment);
    return SMELT_OK;
}

/* All strides 0 means packed in C order. */
static void pack_strides(struct tensor *tensor) {
    for (int i = 0; i < tensor->dimensions; i++)
        if (*tensor->dimension[i].stride != 0)
            return;
    int64_t stride = tensor->width;
    for (int i = tensor->dimensions - 1; i >= 0; i--) {
        *tensor->dimension[i].stride = stride;
        if (i > 0) /* the outermost extent is no stride's factor, and its product may overflow */
            stride *= tensor->dimension[i].extent;
    }
}

static smelt_status check_strides(const struct tensor *tensor, int output) {
    for (int i = 0; i < tensor->dimensions; i++) {
        const int64_t stride = *tensor->dimension[i].stride;
        const char *const dimension = tensor->dimension[i].name;
        if (tensor->dimension[i].extent <= 1)
            continue;
        if (stride < 0)
            return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                               "%s_%s_stride = %" PRId64 " is negative; strides count elements "
                               "forward",
                               tensor->name, dimension, stride);
        if (tensor->rows && stride % ROW_ELEMENTS != 0)
            return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                               "%s_%s_stride = %" PRId64 " is not a multiple of %d elements; rows "
                               "must start at multiples of %d bytes",
                               tensor->name, dimension, stride, ROW_ELEMENTS, ROW_ALIGNMENT);
        /* Two rows of an output must not overlap in any dimension; those of an input may, but in
         * the innermost one that is a slip. A stride of 0 repeats one row: see check_output. */
        if ((output || i == tensor->dimensions - 1) && stride != 0 && stride < tensor->width)
            return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                               "%s_%s_stride = %" PRId64 " is below the row's %" PRId64 " elements",
                               tensor->name, dimension, stride, tensor->width);
    }
    return SMELT_OK;
}

/* Outputs must not have two queries or heads write one place: taken by ascending stride, every
 * dimension must step over all that the ones before it span. */
static smelt_status check_output(const struct tensor *tensor) {
    int done[MAX_DIMENSIONS] = {0};
    int64_t span = tensor->width;
    for (int round = 0; round < tensor->dimensions; round++) {
        int next = -1;
        for (int i = 0; i < tensor->dimensions; i++)
            if (!done[i] && tensor->dimension[i].extent > 1 &&
                (next < 0 || *tensor->dimension[i].stride < *tensor->dimension[next].stride))
                next = i;
        if (next < 0)
            return SMELT_OK;
        const int64_t stride = *tensor->dimension[next].stride;
        if (stride < span)
            return smelt__fail(
                SMELT_ERROR_INVALID_ARGUMENT,
                "%s_%s_stride = %" PRId64 " makes outputs overlap: it must step over "
                "%" PRId64 " elements; give every stride of %s, or 0 for all of them "
                "when it is packed",
                tensor->name, tensor->dimension[next].name, stride, span, tensor->name);
        int64_t more;
        if (__builtin_mul_overflow(tensor->dimension[next].extent - 1, stride, &more) ||
            __builtin_add_overflow(span, more, &span))
            return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                               "%s_%s_stride = %" PRId64 " reaches beyond 2^63 elements",
                               tensor->name, tensor->dimension[next].name, stride);
        done[next] = 1;
    }
    return SMELT_OK;
}

static smelt_status check_tensor(struct tensor *tensor, int output) {
    smelt_status status = refuse_pointer(tensor);
    if (status != SMELT_OK || !tensor->pointer)
        return status;
    pack_strides(tensor);
    status = check_strides(tensor, output);
    return status == SMELT_OK && output ? check_output(tensor) : status;
}

static smelt_status check_extent(const char *name, int64_t value, int64_t least, int64_t most) {
    if (value >= least && value <= most)
        return SMELT_OK;
    return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                       "%s = %" PRId64 " is out of range; legal: %" PRId64 "..%" PRId64, name,
                       value, least, most);
}

/* How many queries there are. */
static smelt_status check_tokens(const smelt_sparse_attn_args *args) {
    smelt_status status = check_extent("batches", args->batches, 0, INT32_MAX);
    if (status == SMELT_OK)
        status = check_extent("tokens", args->tokens, 0, INT32_MAX);
    if (status == SMELT_OK && args->batches * args->tokens > INT32_MAX)
        status = smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                             "batches * tokens = %" PRId64 " exceeds 2^31 - 1; split the call",
                             args->batches * args->tokens);
    return status;
}

static smelt_status check_width(const struct smelt__sparse_attn_shape *shape, int64_t width) {
    if (shape->buckets)
        return check_extent("width", width, 1, SMELT__PARTITION_MOST_SLOTS);
    if (width >= 1 && width <= shape->topk)
        return SMELT_OK;
    return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                       "width = %" PRId64 " is out of range; this operator was made for topk=%d: "
                       "legal are 1..%d, or make one with a larger topk or with buckets",
                       width, shape->topk, shape->topk);
}

static smelt_status check_extents(const struct smelt__sparse_attn_shape *shape,
                                  const smelt_sparse_attn_args *args) {
    smelt_status status = check_tokens(args);
    if (status == SMELT_OK)
        status = check_extent("rows", args->rows, 0, INT32_MAX);
    if (status == SMELT_OK)
        status = check_width(shape, args->width);
    if (status != SMELT_OK)
        return status;
    if (!(args->scale > 0.0F) || args->scale > MAX_SCALE)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "scale = %g is not legal; it must be positive and at most %g",
                           (double)args->scale, (double)MAX_SCALE);
    return SMELT_OK;
}

static smelt_status check_query_list(const smelt_sparse_attn_args *args) {
    if (!args->queries) {
        if (args->query_count || args->query_capacity)
            return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                               "queries is NULL but %s is given; a query list needs its entries",
                               args->query_count ? "query_count" : "query_capacity");
        return SMELT_OK;
    }
    if ((uintptr_t)args->queries % sizeof(int32_t) != 0)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "queries = %p is not aligned; it must start at a multiple of 4 bytes",
                           (const void *)args->queries);
    if ((uintptr_t)args->query_count % sizeof(int32_t) != 0)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "query_count = %p is not aligned; it must be at a multiple of 4 bytes",
                           (const void *)args->query_count);
    return check_extent("query_capacity", args->query_capacity, 0, INT32_MAX);
}

/* Queries to compute at most, of checked arguments. */
static int64_t count_queries(const smelt_sparse_attn_args *args) {
    const int64_t all = args->batches * args->tokens;
    return all == 0 || !args->queries ? all : args->query_capacity;
}

static size_t workspace_bytes(const struct smelt__sparse_attn_shape *shape, int64_t queries) {
    return shape->buckets && queries > 0 ? smelt__partition_layout(queries, shape->buckets).bytes
                                         : 0;
}

static smelt_status check_workspace(const struct smelt__sparse_attn_shape *shape,
                                    const smelt_sparse_attn_args *args, int64_t queries) {
    const size_t needed = workspace_bytes(shape, queries);
    if (needed == 0)
        return SMELT_OK;
    if (!args->workspace)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "workspace is NULL; a bucketed operator needs %zu bytes of device "
                           "memory for %" PRId64 " queries (smelt_sparse_attn_forward_workspace)",
                           needed, queries);
    if ((uintptr_t)args->workspace % SMELT__PARTITION_ALIGNMENT != 0)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "workspace = %p is not aligned; it must start at a multiple of %d bytes",
                           args->workspace, (int)SMELT__PARTITION_ALIGNMENT);
    if (args->workspace_bytes < needed)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "workspace_bytes = %zu is too small: %" PRId64 " queries need %zu "
                           "(smelt_sparse_attn_forward_workspace)",
                           args->workspace_bytes, queries, needed);
    return SMELT_OK;
}

/* Tensors whose rows the kernel moves whole. */
static smelt_status check_rows(const struct smelt__sparse_attn_shape *shape,
                               smelt_sparse_attn_args *args) {
    const int64_t B = args->batches, T = args->tokens;
    struct tensor q = {"q",
                       args->q,
                       1,
                       1,
                       shape->dqk,
                       3,
                       {{"batch", B, &args->q_batch_stride},
                        {"token", T, &args->q_token_stride},
                        {"head", shape->heads, &args->q_head_stride}}};
    struct tensor kv = {
        "kv",
        args->kv,
        args->rows > 0,
        1,
        shape->dqk,
        2,
        {{"batch", B, &args->kv_batch_stride}, {"row", args->rows, &args->kv_row_stride}}};
    struct tensor out = {"out",
                         args->out,
                         1,
                         1,
                         shape->dv,
                         3,
                         {{"batch", B, &args->out_batch_stride},
                          {"token", T, &args->out_token_stride},
                          {"head", shape->heads, &args->out_head_stride}}};
    smelt_status status = check_tensor(&q, 0);
    if (status == SMELT_OK)
        status = check_tensor(&kv, 0);
    if (status == SMELT_OK)
        status = check_tensor(&out, 1);
    if (status == SMELT_OK && args->rows > 1 && args->kv_row_stride > INT32_MAX)
        status = smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                             "kv_row_stride = %" PRId64 " exceeds 2^31 - 1 elements",
                             args->kv_row_stride);
    return status;
}

/* The others. */
static smelt_status check_values(const struct smelt__sparse_attn_shape *shape,
                                 smelt_sparse_attn_args *args) {
    const int64_t B = args->batches, T = args->tokens;
    struct tensor indices = {
        "indices",
        args->indices,
        1,
        0,
        args->width,
        2,
        {{"batch", B, &args->indices_batch_stride}, {"token", T, &args->indices_token_stride}}};
    struct tensor length = {"topk_length",
                            args->topk_length,
                            0,
                            0,
                            1,
                            2,
                            {{"batch", B, &args->topk_length_batch_stride},
                             {"token", T, &args->topk_length_token_stride}}};
    struct tensor lse = {"lse",
                         args->lse,
                         1,
                         0,
                         1,
                         3,
                         {{"batch", B, &args->lse_batch_stride},
                          {"token", T, &args->lse_token_stride},
                          {"head", shape->heads, &args->lse_head_stride}}};
    struct tensor max_logits = lse;
    max_logits.name = "max_logits";
    max_logits.pointer = args->max_logits;
    max_logits.required = 0;
    struct tensor sink = {"sink", args->sink, shape->sink, 0, shape->heads, 0, {{0}}};
    if (args->sink && !shape->sink)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "sink is given but the operator was made with sink=0; make one with "
                           "sink=1, or pass NULL");
    struct tensor *const inputs[] = {&indices, &length, &sink}, *const outputs[] = {&lse,
                                                                                    &max_logits};
    smelt_status status = SMELT_OK;
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs && status == SMELT_OK; i++)
        status = check_tensor(inputs[i], 0);
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs && status == SMELT_OK; i++)
        status = check_tensor(outputs[i], 1);
    return status;
}

static void fill(const smelt_sparse_attn_args *args, int64_t queries,
                 struct sparse_attn_fwd_params *params) {
    *params = (struct sparse_attn_fwd_params){
        .q = args->q,
        .kv = args->kv,
        .indices = args->indices,
        .topk_length = args->topk_length,
        .sink = args->sink,
        .out = args->out,
        .lse = args->lse,
        .max_logits = args->max_logits,
        .queries = args->queries,
        .query_count = args->query_count,
        .q_batch_stride = args->q_batch_stride,
        .q_token_stride = args->q_token_stride,
        .q_head_stride = args->q_head_stride,
        .kv_batch_stride = args->kv_batch_stride,
        .indices_batch_stride = args->indices_batch_stride,
        .indices_token_stride = args->indices_token_stride,
        .topk_length_batch_stride = args->topk_length_batch_stride,
        .topk_length_token_stride = args->topk_length_token_stride,
        .out_batch_stride = args->out_batch_stride,
        .out_token_stride = args->out_token_stride,
        .out_head_stride = args->out_head_stride,
        .lse_batch_stride = args->lse_batch_stride,
        .lse_token_stride = args->lse_token_stride,
        .lse_head_stride = args->lse_head_stride,
        .batches = (int)args->batches,
        .tokens = (int)args->tokens,
        .rows = (int)args->rows,
        .width = (int)args->width,
        .query_capacity = (int)queries,
        .kv_row_bytes = args->rows > 1 ? (unsigned)(args->kv_row_stride * 2) : 0,
        .scale = args->scale,
    };
}

static smelt_status check_size(const smelt_sparse_attn_args *args) {
    if (args && args->size == sizeof *args)
        return SMELT_OK;
    return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                       "args is %s; fill it from SMELT_SPARSE_ATTN_ARGS_INIT",
                       args ? "of another size than this library's" : "NULL");
}

smelt_status smelt__sparse_attn_workspace(const struct smelt__sparse_attn_shape *shape,
                                          const smelt_sparse_attn_args *args, size_t *bytes) {
    *bytes = 0;
    smelt_status status = check_size(args);
    if (status == SMELT_OK)
        status = check_tokens(args);
    if (status == SMELT_OK)
        status = check_query_list(args);
    if (status == SMELT_OK)
        *bytes = workspace_bytes(shape, count_queries(args));
    return status;
}

smelt_status smelt__sparse_attn_pack(const struct smelt__sparse_attn_shape *shape,
                                     const smelt_sparse_attn_args *args,
                                     struct sparse_attn_fwd_params *params, int64_t *queries) {
    *queries = 0;
    smelt_status status = check_size(args);
    if (status != SMELT_OK)
        return status;
    smelt_sparse_attn_args packed = *args;
    status = check_extents(shape, &packed);
    if (status == SMELT_OK)
        status = check_query_list(&packed);
    const int64_t wanted = status == SMELT_OK ? count_queries(&packed) : 0;
    if (wanted == 0)
        return status;
    status = check_rows(shape, &packed);
    if (status == SMELT_OK)
        status = check_values(shape, &packed);
    if (status == SMELT_OK)
        status = check_workspace(shape, &packed, wanted);
    if (status != SMELT_OK)
        return status;
    *queries = wanted;
    fill(&packed, wanted, params);
    return SMELT_OK;
}
