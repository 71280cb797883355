//@use common/base.cuh
//@use common/lanes.cuh
//@use ptx/grid.cuh
//@use ptx/stream.cuh
//@use sparse_attn_partition.params.h
/*
 * Partition of queries into buckets by their number of valid slots, first pass: reads every slot
 * once and finds each entry's bucket and extent (1 + its last valid slot), and for each run of
 * entries how many fall into each bucket. Semantics: include/smelt/sparse_attn.h.
 *
 * Grid: one CTA per run. WARPS warps of one role; row_lanes threads share a row, so that a warp
 * reads 32 / row_lanes rows at a time, 16 bytes per load, LOADS loads per thread in flight. A row
 * may start at any multiple of 4 bytes: slots before its first and after its last multiple of 16
 * bytes are read one by one.
 *
 * Shared memory: COUNTS [WARPS][PARTITION_MOST_BUCKETS] int: entries of each warp in each bucket.
 *
 * The kernel reads only the caller's memory, and the previous kernel of the stream is complete: the
 * first of a chain of kernels is launched without PDL.
 */

enum { WARPS = THREADS / 32, MASKED = -1, VECTOR = 4 /* slots of 16 bytes */ };

/* A query's index row, and one thread's findings so far. */
struct scan {
    const int *row;
    int slots;  /* to read */
    int valid;  /* number of valid slots */
    int extent; /* 1 + the last valid slot, or 0 */
};

/* The CTA's run. The last runs come first: if a kernel has just written the indices, their end is
 * in L2. */
DEVICE int own_run(const struct sparse_attn_partition_params *params) {
    return params->runs - 1 - (int)blockIdx.x;
}

/* The entry's query number, or -1 if the entry is past the list's end or invalid. */
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

/* Opens the row of a query; without a query, an empty row. */
DEVICE struct scan open_row(const struct sparse_attn_partition_params *params, int query) {
    struct scan scan = {params->indices, 0, 0, 0};
    if (query >= 0) {
        const int batch = params->batches > 1 ? query / params->tokens : 0;
        const int token = query - batch * params->tokens;
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

/* Processes a slot; call it in ascending slot order. `rows`: KV rows; as u32, negative indices are
 * large. */
DEVICE void look_at(struct scan *scan, u32 index, int slot, u32 rows) {
    const bool valid = index < rows;
    scan->valid += valid;
    scan->extent = valid ? slot + 1 : scan->extent;
}

/* LOADS vectors, `lanes` of them apart, the first at `slots`, which is slot `first`. Unless `whole`
 * there are but `vectors`, counted from the first one on. */
DEVICE void look_at_batch(struct scan *scan, const int *slots, int first, int lanes, bool whole,
                          int vectors, u32 rows) {
    u32 values[LOADS][VECTOR];
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
        if (!whole) {
            values[i][0] = values[i][1] = values[i][2] = values[i][3] = (u32)MASKED;
        }
        if (whole || i * lanes < vectors) {
            load_streaming_16(values[i], slots + i * lanes * VECTOR);
        }
    }
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
#pragma unroll
        for (int k = 0; k < VECTOR; ++k) {
            look_at(scan, values[i][k], first + i * lanes * VECTOR + k, rows);
        }
    }
}

/* Processes the whole vectors of a row, from slot `first` on. `lane`: this thread's among the
 * row's. */
DEVICE void look_at_vectors(struct scan *scan, int first, int vectors, int lane, int lanes,
                            u32 rows) {
    const int *slots = scan->row + first + lane * VECTOR;
    const int step = LOADS * lanes;
    int begin = 0;
    for (; begin + step <= vectors; begin += step) {
        look_at_batch(scan, slots, first + (begin + lane) * VECTOR, lanes, true, 0, rows);
        slots += step * VECTOR;
    }
    if (begin + lane < vectors) {
        look_at_batch(scan, slots, first + (begin + lane) * VECTOR, lanes, false,
                      vectors - begin - lane, rows);
    }
}

/* Processes a whole row; afterwards all its threads have the row's result. */
DEVICE void look_at_row(struct scan *scan, int lane, int lanes, u32 rows) {
    const int past = (int)((u64)scan->row / sizeof(int) % VECTOR);
    const int head = minimum((VECTOR - past) % VECTOR, scan->slots);
    const int vectors = (scan->slots - head) / VECTOR;
    const int tail = scan->slots - head - vectors * VECTOR;
#pragma unroll 1
    for (int i = lane; i < head + tail; i += lanes) {
        const int slot = i < head ? i : i + vectors * VECTOR;
        look_at(scan, (u32)scan->row[slot], slot, rows);
    }
    const int extent = scan->extent;
    scan->extent = 0;
    look_at_vectors(scan, head, vectors, lane, lanes, rows);
    scan->valid = lanes_sum(scan->valid, lanes);
    scan->extent = lanes_maximum(maximum(scan->extent, extent), lanes);
}

/* The first bucket whose bound is at least `valid`, or the last bucket. */
DEVICE int find_bucket(const struct sparse_attn_partition_params *params, int valid) {
    int bucket = 0;
#pragma unroll
    for (int i = 0; i < PARTITION_MOST_BUCKETS - 1; ++i) {
        bucket += valid > params->bounds[i];
    }
    return bucket;
}

/* The number of the warp's entries (one per `lanes` threads) in the bucket whose number is this
 * lane's. */
DEVICE int own_entries(int bucket, int lanes, int buckets) {
    const int lane = (int)threadIdx.x % 32;
    int entries = 0;
    if (lanes == 32) {
        return bucket == lane;
    }
#pragma unroll 1
    for (int k = 0; k < buckets; ++k) {
        const u32 votes =
            __ballot_sync((u32)ALL_LANES, bucket == k && (int)threadIdx.x % lanes == 0);
        entries += k == lane ? __popc(votes) : 0;
    }
    return entries;
}

/* Processes the CTA's run; returns the number of the warp's entries in the bucket whose number is
 * this lane's. */
DEVICE int count_run(const struct sparse_attn_partition_params *params, int lanes) {
    const int lane = (int)threadIdx.x % lanes;
    const i64 begin = (i64)own_run(params) * params->run;
    int count = 0;
    for (int i = 0; i < params->run; i += THREADS / lanes) {
        const i64 entry = begin + i + (int)threadIdx.x / lanes;
        const bool inside = entry < params->query_capacity;
        const int query = inside ? find_query(params, (int)entry) : -1;
        struct scan scan = open_row(params, query);
        look_at_row(&scan, lane, lanes, (u32)params->rows);
        const int bucket = query >= 0 ? find_bucket(params, scan.valid) : PARTITION_NO_BUCKET;
        if (inside && lane == 0) {
            params->packed[entry] = (int)((u32)bucket << PARTITION_EXTENT_BITS | (u32)scan.extent);
        }
        count += own_entries(bucket, lanes, params->buckets);
    }
    return count;
}

/* Adds up the warps' counts for the second pass, which reads four runs at a time: empty runs follow
 * the last one. */
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
        int *const histogram = params->histograms + (i64)threadIdx.x * params->histogram_stride;
        const int run = own_run(params);
        histogram[run] = sum;
        for (int i = run + 1; run == params->runs - 1 && i < params->histogram_stride; ++i) {
            histogram[i] = 0;
        }
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct sparse_attn_partition_params params) {
    if (PDL) {
        grid_launch_dependents();
    }
    /* One row per warp is the common case: with a constant, distances between loads are constants.
     * */
    const int count =
        params.row_lanes == 32 ? count_run(&params, 32) : count_run(&params, params.row_lanes);
    store_histogram(&params, count);
}
