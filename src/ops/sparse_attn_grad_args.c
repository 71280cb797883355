/* See sparse_attn_grad_args.h. */
#include "ops/sparse_attn_grad_args.h"

#include <inttypes.h>
#include <stdint.h>

#include "codegen/families/sparse_attn_bwd.h"
#include "ops/arguments.h"
#include "ops/sparse_attn_partition.h"
#include "ops/sparse_attn_segments.h"
#include "runtime/abi.h"
#include "runtime/log.h"

enum {
    KEY_STEP = 64,    /* lists are padded to whole blocks of it */
    WAVE_ITEMS = 132, /* of the largest Hopper GPUs: chunks are whole waves where they can. No
                         device is asked, since the order of sums must not depend on it */
    FEWEST_CHUNKS =
        6, /* where sums run beside the next chunk's main kernel: the last ones do not */
    /* Partial rows a key, below which chunks of half the size cost more than that brings: each
     * chunk reads and writes the sums of every key. (Measured: 21 bring a little, 5 cost 9 %.) */
    FEWEST_ROWS = 16
};

/* What partial rows may take when the caller does not say. */
static const size_t DEFAULT_LIMIT = 1536UL << 20;

/* ---- workspace ------------------------------------------------------------------------------- */

static size_t place(size_t *end, int64_t count, size_t bytes) {
    const size_t offset = *end, size = (size_t)count * bytes;
    *end = offset + (size + SMELT__BACKWARD_ALIGNMENT - 1) / SMELT__BACKWARD_ALIGNMENT *
                        SMELT__BACKWARD_ALIGNMENT;
    return offset;
}

static int64_t up_to(int64_t value, int64_t step) {
    return (value + step - 1) / step * step;
}

/* Chunks of two halves of `most` groups, which take turns: whole waves of the multiprocessors that
 * the sums leave to the main kernel. 0: not one wave fits, or is there, or the table is too large.
 */
static int64_t half_chunk(const struct smelt__sparse_attn_backward *backward,
                          const struct smelt__grad_layout *layout, int64_t key_count,
                          int64_t most) {
    const int64_t wave = (WAVE_ITEMS - backward->sums_beside) / backward->head_blocks;
    const int64_t wanted = up_to(layout->groups, FEWEST_CHUNKS) / FEWEST_CHUNKS;
    if (backward->sums_beside == 0 || wave == 0 || most / 2 < wave || layout->groups <= wave)
        return 0;
    const int64_t chunk = most / 2 < wanted ? most / 2 / wave * wave : up_to(wanted, wave);
    return chunk * layout->key_stride < FEWEST_ROWS * key_count ? 0 : chunk;
}

/* Groups whose partial rows stay below the limit, one at the least. It depends on nothing of the
 * device, since it says in which order sums are taken. */
static int64_t whole_chunk(const struct smelt__sparse_attn_backward *backward,
                           const struct smelt__grad_layout *layout, int64_t most) {
    const int64_t wave = up_to(WAVE_ITEMS, backward->head_blocks) / backward->head_blocks;
    if (most >= layout->groups)
        return layout->groups;
    if (most > wave)
        most -= most % wave;
    return most > 0 ? most : 1;
}

/* Cuts the groups into chunks: all of them at once, or within the limit of the partial rows. */
static void cut_chunks(const struct smelt__sparse_attn_backward *backward, int64_t key_count,
                       size_t limit, struct smelt__grad_layout *layout) {
    const size_t group = (size_t)layout->key_stride * (size_t)backward->shape.dqk * 2 *
                         (size_t)backward->head_blocks;
    int64_t most = (int64_t)((limit ? limit : DEFAULT_LIMIT) / group);
    layout->chunk = layout->groups;
    if (!backward->deterministic || layout->groups == 0)
        return;
    const int64_t numbered = INT32_MAX / layout->key_stride / backward->head_blocks; /* by an int */
    if (most > numbered)
        most = numbered;
    layout->chunk = half_chunk(backward, layout, key_count, most);
    layout->kept = layout->chunk > 0 ? 2 : 1;
    if (layout->chunk == 0)
        layout->chunk = whole_chunk(backward, layout, most);
    layout->kept_bytes = (size_t)layout->chunk * group;
    layout->round =
        layout->chunk * smelt__segments_round(layout->chunk, layout->key_stride, key_count);
}

/* What the deterministic mode has besides. */
static void add_partials(int64_t key_count, struct smelt__grad_layout *layout) {
    const int64_t groups = layout->round < layout->groups ? layout->round : layout->groups;
    const struct smelt__segments_layout segments =
        smelt__segments_layout(groups, layout->chunk, layout->key_stride, key_count);
    layout->cursors = place(&layout->bytes, segments.cursors, sizeof(int));
    layout->starts = place(&layout->bytes, segments.starts, sizeof(int));
    layout->entry_list = place(&layout->bytes, segments.entries, sizeof(int));
    layout->scan_sums = place(&layout->bytes, segments.sums, sizeof(int));
    layout->partials = place(&layout->bytes, layout->kept, layout->kept_bytes);
}

struct smelt__grad_layout
smelt__grad_find_layout(const struct smelt__sparse_attn_backward *backward,
                        const struct smelt__sparse_attn_call *call, size_t limit) {
    const struct smelt__sparse_attn_shape *shape = &backward->shape;
    const int64_t slots = call->width < shape->topk ? call->width : shape->topk;
    const int64_t key_count = call->batches * call->rows;
    struct smelt__grad_layout layout = {.queries = smelt__sparse_attn_count_queries(call)};
    layout.groups = (layout.queries + backward->group_queries - 1) / backward->group_queries;
    layout.entries = layout.groups * backward->group_queries;
    layout.parts =
        up_to(layout.entries, SMELT__SPARSE_ATTN_BWD_ENTRIES) / SMELT__SPARSE_ATTN_BWD_ENTRIES;
    layout.key_stride = (int)up_to(slots * backward->group_queries, KEY_STEP);
    cut_chunks(backward, key_count, limit, &layout);
    if (shape->buckets && layout.queries > 0) {
        const size_t bytes = smelt__partition_layout(layout.queries, shape->buckets).bytes;
        layout.partition = place(&layout.bytes, (int64_t)bytes, 1);
    }
    const int64_t keys = layout.groups * layout.key_stride;
    layout.members = place(&layout.bytes, layout.entries, sizeof(int));
    layout.counts = place(&layout.bytes, layout.groups, sizeof(int));
    layout.keys = place(&layout.bytes, keys, sizeof(int));
    layout.masks = place(&layout.bytes, backward->group_queries > 1 ? keys : 0, 1);
    layout.statistics =
        place(&layout.bytes, layout.entries * backward->query_rows, 2 * sizeof(float));
    layout.dsink_parts =
        place(&layout.bytes, shape->sink ? layout.parts * shape->heads : 0, sizeof(float));
    layout.progress = place(&layout.bytes, key_count > 0, SMELT__BACKWARD_ALIGNMENT);
    layout.sums = place(&layout.bytes, key_count * shape->dqk, sizeof(float));
    if (backward->deterministic && layout.groups > 0 && key_count > 0)
        add_partials(key_count, &layout);
    return layout;
}

/* ---- arguments ------------------------------------------------------------------------------- */

smelt_status smelt__grad_read_args(const smelt_sparse_attn_grad_args *given,
                                   smelt_sparse_attn_grad_args *args) {
    smelt_status status =
        smelt__struct_read(SMELT__STRUCT(smelt_sparse_attn_grad_args, "args",
                                         "SMELT_SPARSE_ATTN_GRAD_ARGS_INIT", workspace_limit),
                           given, args);
    if (status == SMELT_OK && args->batches == 0)
        args->batches = 1;
    return status;
}

smelt_status smelt__grad_check_rows(const struct smelt__sparse_attn_call *call) {
    smelt_status status = smelt__check_extent("rows", call->rows, 0, INT32_MAX);
    if (status != SMELT_OK || call->batches == 0 || call->rows <= INT32_MAX / call->batches)
        return status;
    return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                       "batches = %" PRId64 " times rows = %" PRId64
                       " exceeds 2^31 - 1, the most rows of dkv; split the call",
                       call->batches, call->rows);
}

/* Exactly one kind of dkv, dsink with a sink alone. */
static smelt_status check_outputs(const struct smelt__sparse_attn_backward *backward,
                                  const smelt_sparse_attn_grad_args *args) {
    const int kinds = !!args->dkv.data + !!args->dkv_fp32.data + !!args->dkv_sum.data;
    if (kinds > 1 || (kinds == 0 && args->rows > 0))
        return smelt__fail(
            SMELT_ERROR_INVALID_ARGUMENT,
            "%s of dkv, dkv_fp32 and dkv_sum %s given; give exactly one: bf16, fp32, "
            "or fp32 to be added to",
            kinds ? "several" : "none", kinds ? "are" : "is");
    if (args->dsink.data && !backward->shape.sink)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "dsink is given but the operator was made with sink=0; make one with "
                           "sink=1, or pass NULL");
    return SMELT_OK;
}

/* The forward's workspace, whose partition is used again. */
static smelt_status check_partition(const struct smelt__sparse_attn_backward *backward,
                                    const smelt_sparse_attn_grad_args *args, int64_t queries) {
    if (!args->partition)
        return SMELT_OK;
    if (!backward->shape.buckets)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "partition is given but the operator has no buckets; pass NULL");
    const size_t needed = smelt__partition_layout(queries, backward->shape.buckets).bytes;
    if ((uintptr_t)args->partition % SMELT__PARTITION_ALIGNMENT)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "partition = %p is not aligned; a forward call's workspace starts at a "
                           "multiple of %d bytes",
                           args->partition, SMELT__PARTITION_ALIGNMENT);
    if (args->partition_bytes < needed)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "partition_bytes = %zu is too small: a forward call with these queries "
                           "leaves %zu in its workspace",
                           args->partition_bytes, needed);
    return SMELT_OK;
}

smelt_status smelt__grad_check_memory(const struct smelt__sparse_attn_backward *backward,
                                      const struct smelt__sparse_attn_call *call,
                                      const struct smelt__grad_layout *layout,
                                      smelt_sparse_attn_grad_args *args) {
    int64_t extents[SMELT__SPARSE_ATTN_SYMBOLS];
    const struct smelt__memory others[] = {
        {"workspace", args->workspace, args->workspace_bytes, 1},
        {"partition", args->partition, args->partition ? args->partition_bytes : 0, 0},
    };
    smelt_status status = check_outputs(backward, args);
    if (status == SMELT_OK)
        status = check_partition(backward, args, layout->queries);
    smelt__sparse_attn_extents(&backward->shape, call, extents);
    if (status == SMELT_OK)
        status = smelt__check_tensors(&smelt__sparse_attn_grad_tensors, SMELT_PASS_BACKWARD,
                                      extents, args, others, 2);
    return status == SMELT_OK ? smelt__check_workspace(args->workspace, args->workspace_bytes,
                                                       layout->bytes, SMELT__BACKWARD_ALIGNMENT,
                                                       "smelt_sparse_attn_backward_workspace")
                              : status;
}
