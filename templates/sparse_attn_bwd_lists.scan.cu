//@use common/base.cuh
//@use common/lanes.cuh
//@use sparse_attn_bwd_lists.params.h
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
