//@use common/base.cuh
//@use common/lanes.cuh
//@use ptx/grid.cuh
//@use ptx/memory.cuh
//@use sparse_attn_partition.params.h
/*
 * Partition of queries into buckets by their number of valid slots, first pass: reads every slot
 * once and finds of each entry its bucket and its extent, 1 + its last valid slot; and of each run
 * of entries, how many fall into each bucket. Meaning: include/smelt/sparse_attn.h.
 *
 * Grid: a block a run. WARPS warps of one role; row_lanes threads share a row, so that a warp reads
 * 32 / row_lanes rows at a time, 16 bytes a thread, LOADS of them under way. A row may start at any
 * multiple of 4 bytes: what lies before its first and after its last multiple of 16 is read slot by
 * slot.
 *
 * Shared memory: COUNTS [WARPS][PARTITION_MOST_BUCKETS] int, entries that each warp found.
 *
 * The caller's memory alone is read, and the kernel before this one in the stream is complete: the
 * first of a chain of kernels is launched without overlap.
 */

enum { WARPS = THREADS / 32, ALL_LANES = -1, MASKED = -1, VECTOR = 4 /* slots of 16 bytes */ };

/* A query's index row, and what one thread found in it so far. */
struct scan {
    const int *row;
    int slots;  /* to look at */
    int valid;  /* number of valid ones */
    int extent; /* 1 + the last valid one, or 0 */
};

/* The entry's query number, or -1: it is past the list's end, or none. */
DEVICE int find_query(const struct sparse_attn_partition_params *params, int entry) {
    int entries = params->query_capacity;
    if (params->query_count) {
        entries = minimum(*params->query_count, entries);
    }
    if (entry >= entries) {
        return -1;
    }
    const int query = params->queries ? params->queries[entry] : entry;
    return query < params->batches * params->tokens ? query : -1;
}

/* Begins the row of a query; of none, an empty one. */
DEVICE struct scan open_row(const struct sparse_attn_partition_params *params, int query) {
    struct scan scan = {params->indices, 0, 0, 0};
    if (query >= 0) {
        const i64 batch = query / params->tokens, token = query % params->tokens;
        scan.row += batch * params->indices_batch_stride + token * params->indices_token_stride;
        scan.slots = params->width;
        if (params->topk_length) {
            const int length = params->topk_length[batch * params->topk_length_batch_stride +
                                                   token * params->topk_length_token_stride];
            scan.slots = minimum(maximum(length, 0), params->width);
        }
    }
    return scan;
}

/* Slots in ascending order only. `rows`: KV rows; a negative index is a large one here. */
DEVICE void look_at(struct scan *scan, u32 index, int slot, u32 rows) {
    const bool valid = index < rows;
    scan->valid += valid;
    scan->extent = valid ? slot + 1 : scan->extent;
}

/* The whole vectors of a row, from slot `first` on. `lane`: this thread among the row's. */
DEVICE void look_at_vectors(const struct sparse_attn_partition_params *params, struct scan *scan,
                            int first, int vectors, int lane) {
    const int lanes = params->row_lanes;
    const int *const slots = scan->row + first;
    for (int begin = lane; begin < vectors; begin += LOADS * lanes) {
        u32 values[LOADS][VECTOR];
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            const int vector = begin + i * lanes;
            values[i][0] = values[i][1] = values[i][2] = values[i][3] = (u32)MASKED;
            if (vector < vectors) {
                load_read_only_16(values[i], slots + (i64)vector * VECTOR);
            }
        }
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
#pragma unroll
            for (int k = 0; k < VECTOR; ++k) {
                look_at(scan, values[i][k], first + (begin + i * lanes) * VECTOR + k,
                        (u32)params->rows);
            }
        }
    }
}

/* All of a row; afterwards its threads agree on what was found. */
DEVICE void look_at_row(const struct sparse_attn_partition_params *params, struct scan *scan,
                        int lane) {
    const int past = (int)((u64)scan->row / sizeof(int) % VECTOR);
    const int head = minimum((VECTOR - past) % VECTOR, scan->slots);
    const int vectors = (scan->slots - head) / VECTOR;
    const int tail = scan->slots - head - vectors * VECTOR;
    int extent = 0;
    for (int i = lane; i < head + tail; i += params->row_lanes) {
        const int slot = i < head ? i : i + vectors * VECTOR;
        look_at(scan, (u32)scan->row[slot], slot, (u32)params->rows);
    }
    extent = scan->extent;
    scan->extent = 0;
    look_at_vectors(params, scan, head, vectors, lane);
    scan->valid = lanes_sum(scan->valid, params->row_lanes);
    scan->extent = lanes_maximum(maximum(scan->extent, extent), params->row_lanes);
}

/* The first bucket whose bound the number does not exceed, or the last. */
DEVICE int find_bucket(const struct sparse_attn_partition_params *params, int valid) {
    int bucket = 0;
#pragma unroll
    for (int i = 0; i < PARTITION_MOST_BUCKETS - 1; ++i) {
        bucket += valid > params->bounds[i];
    }
    return bucket;
}

/* Adds a warp's entries to lane k's count of bucket k. `first`: this thread is its row's first. */
DEVICE void add_entries(int *count, int buckets, int bucket, bool first) {
    const int thread_bucket = (int)(threadIdx.x % 32);
    for (int k = 0; k < buckets; ++k) {
        const u32 votes = __ballot_sync((u32)ALL_LANES, first && bucket == k);
        *count += k == thread_bucket ? __popc(votes) : 0;
    }
}

/* Adds up what the warps found, for the second pass. */
DEVICE void store_histogram(const struct sparse_attn_partition_params *params, int count) {
    int *const counts = (int *)(arena + COUNTS_OFFSET);
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    if (lane < params->buckets) {
        counts[warp * PARTITION_MOST_BUCKETS + lane] = count;
    }
    __syncthreads();
    if ((int)threadIdx.x < params->buckets) {
        int sum = 0;
#pragma unroll
        for (int w = 0; w < WARPS; ++w) {
            sum += counts[w * PARTITION_MOST_BUCKETS + (int)threadIdx.x];
        }
        params->histograms[(i64)threadIdx.x * params->histogram_stride + blockIdx.x] = sum;
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct sparse_attn_partition_params params) {
    if (DEPENDENT_LAUNCH) {
        grid_launch_dependents();
    }
    const int lane = (int)threadIdx.x % params.row_lanes;
    const int rows_at_once = THREADS / params.row_lanes;
    const i64 begin = (i64)blockIdx.x * params.run;
    int count = 0;
    for (int i = 0; i < params.run; i += rows_at_once) {
        const i64 entry = begin + i + (int)threadIdx.x / params.row_lanes;
        const bool inside = entry < params.query_capacity;
        const int query = inside ? find_query(&params, (int)entry) : -1;
        struct scan scan = open_row(&params, query);
        look_at_row(&params, &scan, lane);
        const int bucket = query >= 0 ? find_bucket(&params, scan.valid) : PARTITION_NO_BUCKET;
        if (inside && lane == 0) {
            params.packed[entry] = (int)((u32)bucket << PARTITION_EXTENT_BITS | (u32)scan.extent);
        }
        add_entries(&count, params.buckets, bucket, lane == 0);
    }
    store_histogram(&params, count);
}
