/*
 * Written by smelt; do not edit. To write it again:
 *   smelt emit sparse_attn_partition:pass=count --arch sm_90a
 *
 * spec     sparse_attn_partition:pass=count
 * arch     sm_90a
 * variant  count
 * kernel   smelt_sparse_attn_partition_count
 * knobs (by the spec, or by rule)
 * shared memory (offset, bytes)
 *   COUNTS_OFFSET                    0      288  entries of each warp in each bucket
 *   SHARED_BYTES                   288  of 232448 that a block may have on sm_90a
 * launch
 *   256 threads a block, 4 blocks resident per multiprocessor, at most 64 registers a thread
 */

enum {
    THREADS = 256,                  /* of a thread block */
    BLOCKS_PER_MULTIPROCESSOR = 4,  /* resident at once, at least */
    DEPENDENT_LAUNCH = 1,           /* 1: may begin before the kernel ahead of it has ended */
    LOADS = 8,                      /* of 16 bytes that a thread has under way */
};

/* Shared memory, in bytes from the arena's start. */
enum {
    COUNTS_OFFSET = 0,              /* entries of each warp in each bucket */
    SHARED_BYTES = 288,             /* the arena's size */
};

#define KERNEL_NAME smelt_sparse_attn_partition_count

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

#line 2 "templates/ptx/stream.cuh"

/* 16 bytes of global memory that no thread writes while the kernel runs, nor reads again soon: they
 * take no place in L1 (PTX ISA, "ld.global.nc", .L1::no_allocate). The address is a multiple of 16.
 */
DEVICE void load_streaming_16(u32 *values, const void *from) {
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(values[0]), "=r"(values[1]), "=r"(values[2]), "=r"(values[3])
        : "l"(from));
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

#line 6 "templates/sparse_attn_partition.count.cu"
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

/* The block's run. The last ones first: a kernel that wrote the indices just before has left their
 * end in L2. */
DEVICE int own_run(const struct sparse_attn_partition_params *params) {
    return params->runs - 1 - (int)blockIdx.x;
}

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

/* Slots in ascending order only. `rows`: KV rows; a negative index is a large one here. */
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

/* The whole vectors of a row, from slot `first` on. `lane`: this thread among the row's. */
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

/* All of a row; afterwards its threads agree on what was found. */
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

/* The first bucket whose bound the number does not exceed, or the last. */
DEVICE int find_bucket(const struct sparse_attn_partition_params *params, int valid) {
    int bucket = 0;
#pragma unroll
    for (int i = 0; i < PARTITION_MOST_BUCKETS - 1; ++i) {
        bucket += valid > params->bounds[i];
    }
    return bucket;
}

/* How many of a warp's entries, one for `lanes` threads each, are in the bucket of this lane's
 * number. */
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

/* The block's run; returns how many of the warp's entries are in the bucket of this lane's
 * number. */
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

/* Adds up what the warps found, for the second pass, which reads four runs at a time: the last run
 * is followed by empty ones. */
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
    if (DEPENDENT_LAUNCH) {
        grid_launch_dependents();
    }
    /* Rows of a warp each are the common ones: distances between loads are constants then. */
    const int count =
        params.row_lanes == 32 ? count_run(&params, 32) : count_run(&params, params.row_lanes);
    store_histogram(&params, count);
}
