/*
 * Written by smelt; do not edit. To write it again:
 *   smelt emit sparse_attn_bwd_lists:pass=scan --arch sm_90a
 *
 * spec     sparse_attn_bwd_lists:pass=scan
 * arch     sm_90a
 * variant  scan
 * kernel   smelt_sparse_attn_bwd_lists_scan
 * knobs (by the spec, or by rule)
 * shared memory (offset, bytes)
 *   SUMS_OFFSET                      0     1024  each thread's share
 *   WARPS_OFFSET                  1024       32  sums of warps
 *   SHARED_BYTES                  1056  of 232448 that a block may have on sm_90a
 * launch
 *   256 threads a block, 4 blocks resident per multiprocessor, at most 64 registers a thread
 */

enum {
    THREADS = 256,                  /* of a thread block */
    BLOCKS_PER_MULTIPROCESSOR = 4,  /* resident at once, at least */
};

/* Shared memory, in bytes from the arena's start. */
enum {
    SUMS_OFFSET = 0,                /* each thread's share */
    WARPS_OFFSET = 1024,            /* sums of warps */
    SHARED_BYTES = 1056,            /* the arena's size */
};

#define KERNEL_NAME smelt_sparse_attn_bwd_lists_scan

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

DEVICE int lanes_maximum(int value, int lanes) {
    for (int step = lanes / 2; step > 0; step /= 2) {
        value = maximum(value, __shfl_xor_sync(0xffffffffu, value, step));
    }
    return value;
}

/* (The largest of the negated values would do, but for ptxas of CUDA 13.0: of -a in the smallest of
 * three it drops the sign.) */
DEVICE int lanes_minimum(int value, int lanes) {
    for (int step = lanes / 2; step > 0; step /= 2) {
        value = minimum(value, __shfl_xor_sync(0xffffffffu, value, step));
    }
    return value;
}

#line 1 "templates/common/work.params.h"
/*
 * Which queries a kernel computes and where their index rows are: the part of the arguments that
 * all kernels driven by queries have in common, what common/work.cuh reads. Included by the host
 * code and, by the generator, by the CUDA source: plain C types only. Strides count elements.
 */
struct work_params {
    const int *indices;     /* [batches, tokens, width] */
    const int *topk_length; /* [batches, tokens] or null */
    const int *queries;     /* query list: batch * tokens + token, or null for all queries */
    const int *query_count; /* its length in device memory, or null for query_capacity */
    const int *query_range; /* the first entry to take and how many, in device memory, instead of
                               query_count; or null */
    const int *extents;     /* with entry i of `queries`: slots up to its last valid one; or null */
    long long indices_batch_stride, indices_token_stride;
    long long topk_length_batch_stride, topk_length_token_stride;
    int batches, tokens, rows, width;
    int query_capacity; /* entries of `queries`, or batches * tokens */
    int overlaps;       /* 1: launched early, behind a kernel of the same call: all it reads was
                           there when it began, and it must not end before that one */
};

#line 2 "templates/sparse_attn_bwd_lists.params.h"
/*
 * Arguments of the sparse_attn_bwd_lists kernels. Included by the host code (behind
 * common/work.params.h) and, by the generator, by the CUDA source: plain C types only. See
 * sparse_attn_bwd.params.h for what groups and keys are.
 */

/* Of the pass `group`: each group's list of keys. */
struct sparse_attn_bwd_lists_params {
    struct work_params work;
    const int *last_range; /* with buckets: the work range of the last of them, with which the list
                              ends; work.query_range is then null. Or null */
    int *members;          /* [groups, group_queries] */
    int *counts;           /* [groups] */
    int *keys;             /* [groups, key_stride] */
    unsigned char *masks;  /* [groups, key_stride]; not written when group_queries is 1 */
    float *zeros;          /* [zero_vectors, 4] is filled with zeros, too: what the main kernel adds
                              to */
    long long zero_vectors;
    int groups;        /* entry i of the query list is member i % group_queries of group
                          i / group_queries */
    int group_queries; /* 1, 2, 4 or 8 */
    int key_stride;    /* a multiple of 64, at least group_queries * min(width, topk) */
    int topk;          /* valid slots of a query, at most */
    int ascending;     /* 1: lists are put into ascending order. Lists of several queries are
                          always */
};

/*
 * Of the passes `count`, `scan` and `place`, which turn the lists of `groups` groups, from
 * first_group on, around, chunk by chunk: for each key the partial rows that are its own, by their
 * numbers (group of the chunk) * key_stride + place in the group's list, in the groups' order. A
 * column is a key of a chunk, number chunk * key_count + key. groups * key_stride and parts *
 * columns stay below 2^31. Equal keys of one list: in its order where `united` says that their rows
 * may differ, else in any.
 */
struct sparse_attn_bwd_segments_params {
    const int *counts; /* as above, from the first group of all on */
    const int *keys;
    int *cursors; /* [parts, columns] of a part's groups: how many partial rows a key has, zeros
                     ahead of `count`; then where they go */
    int *starts;  /* [columns + 1] where a column's begin in `entries` */
    int *entries; /* [groups * key_stride] */
    int *sums;    /* [scan_blocks] scratch of the scan: partial rows of each block's columns */
    int first_group, groups;
    int chunk;  /* groups of a chunk; the last may have fewer */
    int chunks; /* columns / key_count */
    int part;   /* groups of a part */
    int parts;  /* of a chunk */
    int key_stride;
    int key_count; /* batches * rows */
    int columns;
    int united;    /* 1: the lists are of several queries each */
    int scan_step; /* of the pass `scan`, which is launched twice: 0 sums up, 1 places */
    int scan_rows; /* threads of the scan that share a column's parts: a power of two, at most
                      THREADS / 32 */
    int scan_keys; /* of a block of the scan: a multiple of its THREADS / scan_rows */
    int scan_blocks;
};

#line 4 "templates/sparse_attn_bwd_lists.scan.cu"
/*
 * Deterministic backward pass, lists by keys, second pass: from how many partial rows each part has
 * of each key to where they go, column by column and part by part. What is written:
 * sparse_attn_bwd_lists.params.h, cursors and starts.
 *
 * Launched twice with scan_blocks blocks of scan_keys keys each. Step 0: each block sums its keys
 * up. Step 1: each adds the sums of the blocks before it, by itself, so that none waits for
 * another, and goes through its keys, a tile at a time: THREADS / scan_rows keys, side by side in
 * the threads, scan_rows threads to each, which share its parts.
 *
 * Shared memory:
 *   SUMS  [THREADS] int: each thread's share of its key
 *   WARPS [THREADS / 32] int: sums of warps
 *
 * Barriers of a tile: SUMS are there; WARPS are there; both were read.
 */

enum { WARPS = THREADS / 32, ALL_LANES = -1, LOADS = 8 };

DEVICE int *thread_sums(void) {
    return (int *)(arena + SUMS_OFFSET);
}

DEVICE int *warp_sums(void) {
    return (int *)(arena + WARPS_OFFSET);
}

/* A thread's part of a tile: a key and a run of its parts. */
struct share {
    int *cursor; /* the first part's */
    int parts;
    int columns; /* from a part to the next */
};

DEVICE struct share find_share(const struct sparse_attn_bwd_segments_params *params, u32 key,
                               u32 end) {
    const int row = (int)threadIdx.x / (THREADS / params->scan_rows);
    const int most = (params->parts + params->scan_rows - 1) / params->scan_rows;
    const int first = minimum(row * most, params->parts);
    struct share share = {params->cursors + first * params->columns + key,
                          minimum(most, params->parts - first), params->columns};
    share.parts = key < end ? share.parts : 0;
    return share;
}

DEVICE int sum_share(const struct share *share) {
    int sum = 0;
#pragma unroll LOADS
    for (int i = 0; i < share->parts; ++i) {
        sum += share->cursor[i * share->columns];
    }
    return sum;
}

/* Replaces what is there by where it goes, from `place` on. */
DEVICE void place_share(const struct share *share, int place) {
#pragma unroll 1
    for (int begin = 0; begin < share->parts; begin += LOADS) {
        int counts[LOADS];
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            counts[i] = begin + i < share->parts ? share->cursor[(begin + i) * share->columns] : 0;
        }
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            if (begin + i < share->parts) {
                share->cursor[(begin + i) * share->columns] = place;
            }
            place += counts[i];
        }
    }
}

/* The same in all threads; barriers. */
DEVICE int block_sum(int value) {
    const int sum = lanes_sum(value, 32);
    int all = 0;
    if (threadIdx.x % 32 == 0) {
        warp_sums()[threadIdx.x / 32] = sum;
    }
    __syncthreads();
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
        all += warp_sums()[w];
    }
    __syncthreads();
    return all;
}

/* Where the block's keys begin and end. Unsigned: the last block's tile may end past 2^31. */
DEVICE u32 block_begin(const struct sparse_attn_bwd_segments_params *params) {
    return blockIdx.x * (u32)params->scan_keys;
}

DEVICE u32 block_end(const struct sparse_attn_bwd_segments_params *params) {
    const u32 end = block_begin(params) + (u32)params->scan_keys, keys = (u32)params->columns;
    return end < keys ? end : keys;
}

/* Step 0. */
DEVICE void sum_block(const struct sparse_attn_bwd_segments_params *params) {
    const u32 tile = THREADS / (u32)params->scan_rows;
    const u32 end = block_end(params);
    int sum = 0;
    for (u32 begin = block_begin(params); begin < end; begin += tile) {
        const struct share share = find_share(params, begin + threadIdx.x % tile, end);
        sum += sum_share(&share);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        params->sums[blockIdx.x] = sum;
    }
}

/* What lies before this block's keys. */
DEVICE int sum_before(const struct sparse_attn_bwd_segments_params *params) {
    int sum = 0;
    for (int i = (int)threadIdx.x; i < (int)blockIdx.x; i += THREADS) {
        sum += params->sums[i];
    }
    return block_sum(sum);
}

/* A tile's keys, of which this thread's share of its own is `own`: partial rows of the keys before
 * it in the tile (*key), of its own before its share (the result), of the whole tile (*all). */
DEVICE int scan_tile(int own, int tile, int *key, int *all) {
    const int lane = (int)threadIdx.x % 32, column = (int)threadIdx.x % tile;
    const int warp = column / 32; /* of the warps that a row of threads has */
    int total = 0, before = 0;
    thread_sums()[threadIdx.x] = own;
    __syncthreads();
    for (int i = column; i < THREADS; i += tile) {
        total += thread_sums()[i];
        before += i < (int)threadIdx.x ? thread_sums()[i] : 0;
    }
    int sum = total;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const int below = __shfl_up_sync((u32)ALL_LANES, sum, step);
        sum += lane >= step ? below : 0;
    }
    if (lane == 31 && (int)threadIdx.x < tile) {
        warp_sums()[warp] = sum;
    }
    __syncthreads();
    *key = sum - total;
    *all = 0;
    for (int w = 0; w < tile / 32; ++w) {
        *key += w < warp ? warp_sums()[w] : 0;
        *all += warp_sums()[w];
    }
    __syncthreads();
    return before;
}

/* Step 1. */
DEVICE void place_block(const struct sparse_attn_bwd_segments_params *params) {
    const u32 tile = THREADS / (u32)params->scan_rows;
    const u32 end = block_end(params);
    int place = sum_before(params);
    for (u32 begin = block_begin(params); begin < end; begin += tile) {
        const u32 key = begin + threadIdx.x % tile;
        const struct share share = find_share(params, key, end);
        int keys_before, all;
        const int before = scan_tile(sum_share(&share), (int)tile, &keys_before, &all);
        place_share(&share, place + keys_before + before);
        if (key < end && threadIdx.x < tile) {
            params->starts[key] = place + keys_before;
        }
        place += all;
    }
    if (end == (u32)params->columns && threadIdx.x == 0) {
        params->starts[end] = place;
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct sparse_attn_bwd_segments_params params) {
    if (params.scan_step == 0) {
        sum_block(&params);
    } else {
        place_block(&params);
    }
}
