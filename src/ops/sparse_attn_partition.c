/* See sparse_attn_partition.h. */
#include "ops/sparse_attn_partition.h"

#include <limits.h>

#include "codegen/families/sparse_attn_partition.h"
#include "ops/split_sizes.h"
#include "runtime/log.h"

_Static_assert((int)SMELT__PARTITION_MOST_SLOTS == (1 << PARTITION_EXTENT_BITS) - 1,
               "an extent's bits");

enum {
    WARP = 32,
    SHORTEST_RUN = SMELT__PARTITION_COUNT_THREADS / WARP, /* each warp has a row at the least */
    RESIDENT_RUNS = SMELT__SPLIT_RESIDENT_RUNS,
    LONG_RUN = SMELT__SPLIT_LONG_RUN,
    MOST_RUNS = SMELT__SPLIT_MOST_RUNS,
    SLOTS_A_LOAD = 4,   /* of 16 bytes */
    LOADS_A_THREAD = 4, /* of a row, before more threads share it */
    LEAST_LANES = 4,    /* that share a row: 64 bytes side by side */
    HISTOGRAM_STEP = 4  /* runs that the second pass loads at once */
};

/* Entries of a run, a power of two: as few as fill one wave of blocks, then as few as leave no more
 * than MOST_RUNS. */
static int64_t run_length(int64_t queries) {
    int64_t run = SHORTEST_RUN;
    while (run * MOST_RUNS < queries || (run < LONG_RUN && run * RESIDENT_RUNS < queries))
        run *= 2;
    return run;
}

static int64_t run_count(int64_t queries) {
    const int64_t run = run_length(queries);
    return (queries + run - 1) / run;
}

static int64_t histogram_stride(int64_t queries) {
    return (run_count(queries) + HISTOGRAM_STEP - 1) / HISTOGRAM_STEP * HISTOGRAM_STEP;
}

/* What is reserved for a histogram: never less for more queries, so that a workspace for many does
 * for few. */
static int64_t histogram_reserve(int64_t queries) {
    int64_t runs = (queries + SHORTEST_RUN - 1) / SHORTEST_RUN;
    if (runs > RESIDENT_RUNS) {
        const int64_t more = (queries + LONG_RUN - 1) / LONG_RUN;
        runs = more < RESIDENT_RUNS ? RESIDENT_RUNS : more < MOST_RUNS ? more : MOST_RUNS;
    }
    return (runs + HISTOGRAM_STEP - 1) / HISTOGRAM_STEP * HISTOGRAM_STEP;
}

/* Appends an array of `ints` numbers at the next aligned offset. */
static size_t append_array(size_t *end, int64_t ints) {
    const size_t offset = *end;
    const size_t bytes = (size_t)ints * sizeof(int);
    *end = offset + (bytes + SMELT__PARTITION_ALIGNMENT - 1) / SMELT__PARTITION_ALIGNMENT *
                        SMELT__PARTITION_ALIGNMENT;
    return offset;
}

struct smelt__partition_layout smelt__partition_layout(int64_t queries, int buckets) {
    struct smelt__partition_layout layout = {0};
    layout.ranges = append_array(&layout.bytes, 2 * (int64_t)buckets);
    layout.list = append_array(&layout.bytes, queries);
    layout.extents = append_array(&layout.bytes, queries);
    layout.packed = append_array(&layout.bytes, queries);
    layout.histograms = append_array(&layout.bytes, buckets * histogram_reserve(queries));
    return layout;
}

/* Threads that share a row: fewer for a short one, so that each has several loads under way, but
 * no fewer than keep every warp busy in a run. */
static int row_lanes(int width, int64_t run) {
    int lanes = LEAST_LANES;
    while (lanes < WARP && (lanes * SLOTS_A_LOAD * LOADS_A_THREAD < width ||
                            SMELT__PARTITION_COUNT_THREADS / lanes > run))
        lanes *= 2;
    return lanes;
}

/* Runs that a block of the second pass takes: enough for its threads, and whole steps. */
static int runs_at_once(int64_t run) {
    int runs = HISTOGRAM_STEP;
    while (runs * run < SMELT__PARTITION_PLACE_THREADS)
        runs *= 2;
    return runs;
}

static int *ints_at(void *workspace, size_t offset) {
    return (int *)(void *)((char *)workspace + offset);
}

struct sparse_attn_partition_params smelt__partition_params(const struct work_params *work,
                                                            const int *bounds, int buckets,
                                                            void *workspace) {
    const int64_t queries = work->query_capacity, run = run_length(queries);
    const struct smelt__partition_layout layout = smelt__partition_layout(queries, buckets);
    struct sparse_attn_partition_params params = {
        .indices = work->indices,
        .topk_length = work->topk_length,
        .queries = work->queries,
        .query_count = work->query_count,
        .ranges = ints_at(workspace, layout.ranges),
        .list = ints_at(workspace, layout.list),
        .extents = ints_at(workspace, layout.extents),
        .packed = ints_at(workspace, layout.packed),
        .histograms = ints_at(workspace, layout.histograms),
        .indices_batch_stride = work->indices_batch_stride,
        .indices_token_stride = work->indices_token_stride,
        .topk_length_batch_stride = work->topk_length_batch_stride,
        .topk_length_token_stride = work->topk_length_token_stride,
        .batches = work->batches,
        .tokens = work->tokens,
        .rows = work->rows,
        .width = work->width,
        .query_capacity = work->query_capacity,
        .runs = (int)run_count(queries),
        .run = (int)run,
        .runs_at_once = runs_at_once(run),
        .histogram_stride = (int)histogram_stride(queries),
        .row_lanes = row_lanes(work->width, run),
        .buckets = buckets,
    };
    for (int i = 0; i < PARTITION_MOST_BUCKETS - 1; i++)
        params.bounds[i] = i < buckets - 1 ? bounds[i] : INT_MAX;
    return params;
}

void smelt__partition_apply(const struct sparse_attn_partition_params *partition,
                            struct work_params *work) {
    work->queries = partition->list;
    work->query_count = NULL;
    work->extents = partition->extents;
}

smelt_status smelt__partition_launch(const smelt_context *context,
                                     const struct smelt__partition_kernels *kernels,
                                     const struct sparse_attn_partition_params *params,
                                     struct CUstream_st *stream) {
    const uint32_t blocks =
        (uint32_t)((params->runs + params->runs_at_once - 1) / params->runs_at_once);
    const struct smelt__launch count = {.blocks = {(uint32_t)params->runs}, .params = params};
    const struct smelt__launch place = {.blocks = {blocks}, .pdl = 1, .params = params};
    SMELT__TRY(smelt__kernel_launch(context, kernels->count, &count, stream));
    return smelt__kernel_launch(context, kernels->place, &place, stream);
}
