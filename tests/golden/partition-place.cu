/*
 * Written by smelt; do not edit. To write it again:
 *   smelt emit sparse_attn_partition:pass=place --arch sm_80
 *
 * spec     sparse_attn_partition:pass=place
 * arch     sm_80
 * variant  place
 * kernel   smelt_sparse_attn_partition_place
 * knobs (by the spec, or by rule)
 * shared memory (offset, bytes)
 *   COUNTS_OFFSET                    0      288  entries of each warp in each bucket
 *   TOTALS_OFFSET                  288       36  entries of each bucket
 *   PLACES_OFFSET                  324       36  where the next entry of each bucket goes
 *   SHARED_BYTES                   360  of 166912 that a block may have on sm_80
 * launch
 *   256 threads a block, 6 blocks resident per multiprocessor, at most 40 registers a thread
 */

enum {
    THREADS = 256,                  /* of a thread block */
    BLOCKS_PER_MULTIPROCESSOR = 6,  /* resident at once, at least */
    DEPENDENT_LAUNCH = 0,           /* 1: may begin before the kernel ahead of it has ended */
};

/* Shared memory, in bytes from the arena's start. */
enum {
    COUNTS_OFFSET = 0,              /* entries of each warp in each bucket */
    TOTALS_OFFSET = 288,            /* entries of each bucket */
    PLACES_OFFSET = 324,            /* where the next entry of each bucket goes */
    SHARED_BYTES = 360,             /* the arena's size */
};

#define KERNEL_NAME smelt_sparse_attn_partition_place

#line 1 "templates/common/base.cuh"
/* Names every part uses: short integer types, function kinds, the shared-memory arena. */

typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

#ifdef __cplusplus
#define KERNEL extern "C" __global__
#else
#define KERNEL __global__
#endif
#define DEVICE static __device__ __forceinline__

/* The one dynamic shared-memory array. The plan's *_OFFSET constants are byte offsets into it. */
extern __shared__ __align__(1024) unsigned char arena[];

DEVICE int minimum(int a, int b) {
    return a < b ? a : b;
}

DEVICE int maximum(int a, int b) {
    return a > b ? a : b;
}

#line 2 "templates/common/lanes.cuh"

/* Reductions over `lanes` neighbouring threads of a warp, a power of two: the same result in each
 * of them. The whole warp takes part. */

DEVICE int lanes_sum(int value, int lanes) {
    for (int step = lanes / 2; step > 0; step /= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, step);
    }
    return value;
}

/* (Not the smallest by negated values: of -a in the smallest of three ptxas of CUDA 13.0 drops the
 * sign.) */
DEVICE int lanes_maximum(int value, int lanes) {
    for (int step = lanes / 2; step > 0; step /= 2) {
        value = maximum(value, __shfl_xor_sync(0xffffffffu, value, step));
    }
    return value;
}

#line 2 "templates/ptx/grid.cuh"

/* Lets the next kernel of the stream start, when all blocks have said so or ended; nothing is
 * promised about this one's results (PTX ISA, "griddepcontrol"). Without effect where the launch
 * did not ask for it. */
DEVICE void grid_launch_dependents(void) {
    asm volatile("griddepcontrol.launch_dependents;" : : : "memory");
}

/* Waits until the kernels before this one in the stream are complete and their results visible. */
DEVICE void grid_wait(void) {
    asm volatile("griddepcontrol.wait;" : : : "memory");
}

#line 1 "templates/sparse_attn_partition.params.h"
/*
 * Arguments of the sparse_attn_partition kernels, both passes. Included by the host code and, by
 * the generator, by the CUDA source: plain C types only. Strides count elements.
 *
 * Entry i is query number queries[i], or i without a query list; a query's number is batch * tokens
 * + token. Runs are `run` entries each, one after another, the last one short.
 */
enum {
    PARTITION_MOST_BUCKETS = 9,
    /* A packed word: an entry's bucket above its extent. */
    PARTITION_EXTENT_BITS = 28,
    PARTITION_NO_BUCKET = 15 /* of an entry that is no query */
};

struct sparse_attn_partition_params {
    const int *indices;     /* [batches, tokens, width] */
    const int *topk_length; /* [batches, tokens] or null */
    const int *queries;     /* query list, or null for all queries */
    const int *query_count; /* its length in device memory, or null for query_capacity */
    int *ranges;            /* [buckets][2] first entry of the bucket in `list`, number of them */
    int *list;              /* [query_capacity] query numbers, bucket after bucket */
    int *extents;           /* [query_capacity] beside it: 1 + a query's last valid slot, or 0 */
    int *packed;            /* [query_capacity] what the first pass found of each entry */
    int *histograms;        /* [buckets][histogram_stride] entries of each run in the bucket */
    long long indices_batch_stride, indices_token_stride;
    long long topk_length_batch_stride, topk_length_token_stride;
    int batches, tokens, rows, width;
    int query_capacity;   /* entries of `queries`, or batches * tokens */
    int runs;             /* thread blocks of the first pass */
    int run;              /* a power of two, from the threads' warps on */
    int runs_at_once;     /* of a thread block of the second pass: a power of two, at least 4 */
    int histogram_stride; /* runs, rounded up to a multiple of 4 */
    int row_lanes;        /* threads that share a row: a power of two, at most 32 */
    int buckets;          /* 1..PARTITION_MOST_BUCKETS */
    /* The most valid slots of each bucket but the last, which takes the rest; ascending, and
     * 2^31 - 1 where there are fewer. */
    int bounds[PARTITION_MOST_BUCKETS - 1];
};

#line 5 "templates/sparse_attn_partition.place.cu"
/*
 * Partition of queries into buckets by their number of valid slots, second pass: writes each
 * bucket's query numbers and extents, in the entries' order, one bucket after another, and where
 * each bucket lies. Meaning: include/smelt/sparse_attn.h.
 *
 * Grid: a block for each runs_at_once runs; it sums the first pass's histograms before its own
 * entries by itself, so that no block waits for another and the result is always the same. A thread
 * has an entry at a time; each warp has its buckets' sums.
 *
 * Shared memory:
 *   COUNTS [WARPS][PARTITION_MOST_BUCKETS] int: entries of each warp in each bucket
 *   TOTALS [PARTITION_MOST_BUCKETS] int: entries of each bucket
 *   PLACES [PARTITION_MOST_BUCKETS] int: where this block's next entry of each bucket goes, counted
 *          from the bucket's start
 *
 * Barriers, for each THREADS entries: COUNTS and sums are written; and between those and the next:
 * they were read; places are advanced.
 */

enum { WARPS = THREADS / 32, ALL_LANES = -1, VECTOR = 4, VECTORS_AT_ONCE = 4 };

DEVICE int *counts_of(int warp) {
    return (int *)(arena + COUNTS_OFFSET) + warp * PARTITION_MOST_BUCKETS;
}

DEVICE int *totals(void) {
    return (int *)(arena + TOTALS_OFFSET);
}

DEVICE int *places(void) {
    return (int *)(arena + PLACES_OFFSET);
}

/* A bucket's entries, all of them and those of the runs before this block's first, a multiple of
 * VECTOR. */
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

/* Counts the warp's entries in each bucket; returns this thread's rank among those of its own. */
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

/* The bucket's first place in the list: all of the buckets before it. */
DEVICE int bucket_begin(int bucket) {
    int begin = 0;
#pragma unroll
    for (int k = 0; k < PARTITION_MOST_BUCKETS - 1; ++k) {
        begin += k < bucket ? totals()[k] : 0;
    }
    return begin;
}

/* Entries in the bucket of the warps before `warp`. */
DEVICE int entries_before(int bucket, int warp) {
    int before = 0;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
        before += w < warp ? counts_of(w)[bucket] : 0;
    }
    return before;
}

/* Past this block's entries so far: the next ones' places. */
DEVICE void advance_places(int buckets) {
    const int bucket = (int)threadIdx.x;
    if (bucket < buckets) {
        places()[bucket] += entries_before(bucket, WARPS);
    }
}

/* Where each bucket lies, written by the first block. */
DEVICE void store_ranges(const struct sparse_attn_partition_params *params) {
    const int bucket = (int)threadIdx.x;
    if (blockIdx.x == 0 && bucket < params->buckets) {
        params->ranges[2 * bucket] = bucket_begin(bucket);
        params->ranges[2 * bucket + 1] = totals()[bucket];
    }
}

/* The bucket and extent the first pass found. */
DEVICE u32 load_packed(const struct sparse_attn_partition_params *params, i64 entry) {
    return entry < params->query_capacity ? (u32)params->packed[entry]
                                          : (u32)PARTITION_NO_BUCKET << PARTITION_EXTENT_BITS;
}

/* Puts an entry into its bucket's part of the list. */
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
    if (DEPENDENT_LAUNCH) {
        grid_wait();
        grid_launch_dependents();
    }
    const int warp =
        __shfl_sync((u32)ALL_LANES, (int)threadIdx.x / 32, 0); /* known to be uniform */
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
