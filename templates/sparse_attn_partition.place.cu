//@use common/base.cuh
//@use common/lanes.cuh
//@use ptx/grid.cuh
//@use sparse_attn_partition.params.h
/*
 * Partition of queries into buckets by their number of valid slots, second pass: writes each
 * bucket's query numbers and extents, in the entries' order, one bucket after another, and each
 * bucket's range. Semantics: include/smelt/sparse_attn.h.
 *
 * Grid: one CTA per runs_at_once runs. Each CTA itself sums the first pass's histograms over the
 * runs before its own, so that no CTA waits for another and the result is deterministic. A thread
 * has one entry at a time; each warp sums the histograms of some buckets.
 *
 * Shared memory:
 *   COUNTS [WARPS][PARTITION_MOST_BUCKETS] int: entries of each warp in each bucket
 *   TOTALS [PARTITION_MOST_BUCKETS] int: entries of each bucket
 *   PLACES [PARTITION_MOST_BUCKETS] int: index of the CTA's next entry of each bucket, counted
 *          from the bucket's start
 *
 * Barriers, for each THREADS entries: COUNTS and sums are written; before the next THREADS entries:
 * they were read; PLACES are advanced.
 */

enum { WARPS = THREADS / 32, VECTOR = 4, VECTORS_AT_ONCE = 4 };

DEVICE int *counts_of(int warp) {
    return (int *)(arena + COUNTS_OFFSET) + warp * PARTITION_MOST_BUCKETS;
}

DEVICE int *totals(void) {
    return (int *)(arena + TOTALS_OFFSET);
}

DEVICE int *places(void) {
    return (int *)(arena + PLACES_OFFSET);
}

/* Counts a bucket's entries in all runs, and in the runs before `first_run`, the CTA's first, a
 * multiple of VECTOR. */
DEVICE void sum_histogram(const struct sparse_attn_partition_params *params, int bucket,
                          int first_run) {
    const int lane = (int)threadIdx.x % 32;
    const int4 *const histogram =
        (const int4 *)(params->histograms + (i64)bucket * params->histogram_stride);
    int before = 0, all = 0;
    for (int begin = lane; begin * VECTOR < params->histogram_stride;
         begin += 32 * VECTORS_AT_ONCE) {
        int4 vectors[VECTORS_AT_ONCE];
#pragma unroll
        for (int i = 0; i < VECTORS_AT_ONCE; ++i) {
            const int4 nothing = {0, 0, 0, 0};
            const int vector = begin + i * 32;
            vectors[i] = vector * VECTOR < params->histogram_stride ? histogram[vector] : nothing;
        }
#pragma unroll
        for (int i = 0; i < VECTORS_AT_ONCE; ++i) {
            const int sum = vectors[i].x + vectors[i].y + vectors[i].z + vectors[i].w;
            all += sum;
            before += (begin + i * 32) * VECTOR < first_run ? sum : 0;
        }
    }
    all = lanes_sum(all, 32);
    before = lanes_sum(before, 32);
    if (lane == 0) {
        totals()[bucket] = all;
        places()[bucket] = before;
    }
}

/* Counts the warp's entries in each bucket; returns this thread's rank within its bucket. */
DEVICE int count_entries(int buckets, int bucket) {
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    int rank = 0;
#pragma unroll 1
    for (int k = 0; k < buckets; ++k) {
        const u32 votes = __ballot_sync((u32)ALL_LANES, bucket == k);
        if (lane == k) {
            counts_of(warp)[k] = __popc(votes);
        }
        if (bucket == k) {
            rank = __popc(votes & ((1u << lane) - 1u));
        }
    }
    return rank;
}

/* The bucket's first index in the list: the sum of the buckets before it. */
DEVICE int bucket_begin(int bucket) {
    int begin = 0;
#pragma unroll
    for (int k = 0; k < PARTITION_MOST_BUCKETS - 1; ++k) {
        begin += k < bucket ? totals()[k] : 0;
    }
    return begin;
}

/* Entries of the warps before `warp` in the bucket. */
DEVICE int entries_before(int bucket, int warp) {
    int before = 0;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
        before += w < warp ? counts_of(w)[bucket] : 0;
    }
    return before;
}

/* Advances PLACES past the entries stored. */
DEVICE void advance_places(int buckets) {
    const int bucket = (int)threadIdx.x;
    if (bucket < buckets) {
        places()[bucket] += entries_before(bucket, WARPS);
    }
}

/* Stores each bucket's range; the first CTA does it. */
DEVICE void store_ranges(const struct sparse_attn_partition_params *params) {
    const int bucket = (int)threadIdx.x;
    if (blockIdx.x == 0 && bucket < params->buckets) {
        params->ranges[2 * bucket] = bucket_begin(bucket);
        params->ranges[2 * bucket + 1] = totals()[bucket];
    }
}

/* The first pass's bucket and extent of an entry. */
DEVICE u32 load_packed(const struct sparse_attn_partition_params *params, i64 entry) {
    return entry < params->query_capacity ? (u32)params->packed[entry]
                                          : (u32)PARTITION_NO_BUCKET << PARTITION_EXTENT_BITS;
}

/* Stores an entry in its bucket's part of the list. */
DEVICE void store_entry(const struct sparse_attn_partition_params *params, i64 entry, u32 packed,
                        int rank) {
    const int bucket = (int)(packed >> PARTITION_EXTENT_BITS);
    if (bucket != PARTITION_NO_BUCKET) {
        const int place = bucket_begin(bucket) + places()[bucket] +
                          entries_before(bucket, (int)threadIdx.x / 32) + rank;
        params->list[place] = params->queries ? params->queries[entry] : (int)entry;
        params->extents[place] = (int)(packed & ((1u << PARTITION_EXTENT_BITS) - 1u));
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct sparse_attn_partition_params params) {
    if (PDL) {
        grid_wait();
        grid_launch_dependents();
    }
    const int warp =
        __shfl_sync((u32)ALL_LANES, (int)threadIdx.x / 32, 0); /* uniform for the compiler */
    const i64 entries = params.runs_at_once * params.run, begin = blockIdx.x * entries;
    u32 packed = load_packed(&params, begin + threadIdx.x);
#pragma unroll 1
    for (int k = warp; k < params.buckets; k += WARPS) {
        sum_histogram(&params, k, (int)blockIdx.x * params.runs_at_once);
    }
    for (i64 entry = begin + threadIdx.x;; entry += THREADS) {
        const int rank = count_entries(params.buckets, (int)(packed >> PARTITION_EXTENT_BITS));
        __syncthreads();
        store_entry(&params, entry, packed, rank);
        if (entry + THREADS >= begin + entries) {
            break;
        }
        packed = load_packed(&params, entry + THREADS);
        __syncthreads();
        advance_places(params.buckets);
        __syncthreads();
    }
    store_ranges(&params);
}
