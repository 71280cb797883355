//@use micro/params.h
//@use micro/pipe.cuh
//@use ptx/bulk.cuh
//@use ptx/math.cuh
//@use ptx/mbarrier.cuh
//@use ptx/named_barrier.cuh
//@use ptx/proxy.cuh
//@use ptx/registers.cuh
//@use ptx/stmatrix.cuh
//@use ptx/tensor.cuh
//@use ptx/wgmma_ss.cuh n = 64, ta = 0, tb = 0
/*
 * A persistent matrix product with tensor copies in and bulk copies out: C = A B^T in tiles of 128
 * x 64, `count` tiles in columns of `x`, depth `y` steps of 64.
 *
 * maps[0]: A, maps[1]: B, both bf16, boxes of 64 x 64 with the 128-byte swizzle; C: out, bf16.
 *
 * One thread of warpgroup 0 loads. Warpgroups 1 and 2 compute 64 rows of a tile each; 64 of their
 * threads store a row each while the warpgroup continues.
 *
 * Shared memory: LEFT [STAGES][2][64][64] bf16: A for both; RIGHT [STAGES][64][64]: B; STAGED
 * [2][64][64]: C on its way out; BARRIERS: full[s] 1 and the bytes of three boxes; for the products
 * empty[s] 8 warps of the two warpgroups; for the loader Named barriers 1 and 2: a warpgroup's 128
 * threads, for STAGED.
 */

enum {
    ROWS = 64, /* of a warpgroup's part of a tile */
    ROW_BYTES = 128,
    TILE_BYTES = ROWS * ROW_BYTES,
    GROUP_BYTES = 8 * ROW_BYTES, /* of a swizzle atom */
    STEPS = 4,                   /* of 16 elements of depth */
    CONSUMER_WARPS = 8,
    STAGE_BYTES = 3 * TILE_BYTES
};

DEVICE u32 left_tile(int stage, int half) {
    return shared_address((u32)(LEFT_OFFSET + (2 * stage + half) * TILE_BYTES));
}

DEVICE u32 right_tile(int stage) {
    return shared_address((u32)(RIGHT_OFFSET + stage * TILE_BYTES));
}

DEVICE u32 staged_tile(int half) {
    return shared_address((u32)(STAGED_OFFSET + half * TILE_BYTES));
}

/* ---- warpgroup 0 ---- */

DEVICE void load_stage(const struct micro_params *params, int tile, int step, int stage) {
    const u32 barrier = barrier_full(stage);
    const int row = tile / params->x * 128, column = tile % params->x * 64;
    mbarrier_arrive_expect(barrier, STAGE_BYTES);
    tensor_load_2d(left_tile(stage, 0), &params->maps[0], barrier, 64 * step, row);
    tensor_load_2d(left_tile(stage, 1), &params->maps[0], barrier, 64 * step, row + 64);
    tensor_load_2d(right_tile(stage), &params->maps[1], barrier, 64 * step, column);
}

DEVICE void load_tiles(const struct micro_params *params) {
    struct pipe pipe = {0, 0};
    for (int tile = (int)blockIdx.x; tile < params->count; tile += (int)gridDim.x) {
        for (int step = 0; step < params->y; ++step) {
            mbarrier_wait(barrier_empty(pipe.stage), pipe.parity ^ 1);
            load_stage(params, tile, step, pipe.stage);
            pipe_advance(&pipe);
        }
    }
}

/* ---- warpgroups 1 and 2 ---- */

DEVICE void multiply(float *d, int half, int stage, int accumulate) {
    const u64 left = shared_descriptor(left_tile(stage, half), 16, GROUP_BYTES, ROW_BYTES);
    const u64 right = shared_descriptor(right_tile(stage), 16, GROUP_BYTES, ROW_BYTES);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        wgmma_ss_n64_t00(d, descriptor_advance(left, (u32)(32 * step)),
                         descriptor_advance(right, (u32)(32 * step)), accumulate || step > 0);
    }
    wgmma_commit();
}

DEVICE void release(int stage) {
    if (threadIdx.x % 32 == 0) {
        mbarrier_arrive(barrier_empty(stage));
    }
}

/* Computes one tile; a stage is released while the products of the next one run. */
DEVICE void compute_tile(const struct micro_params *params, float *d, int half, struct pipe *pipe) {
    int before = -1;
    for (int step = 0; step < params->y; ++step) {
        mbarrier_wait(barrier_full(pipe->stage), pipe->parity);
        multiply(d, half, pipe->stage, step > 0);
        if (before >= 0) {
            wgmma_wait(1);
            release(before);
        }
        before = pipe->stage;
        pipe_advance(pipe);
    }
    wgmma_wait(0);
    release(before);
}

DEVICE void stage_tile(const float *d, int half) {
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32 % 4;
    const int row = 16 * warp + lane % 16;
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
        const int chunk = 2 * pair + lane / 16;
        u32 packed[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            packed[i] = pack_bf16x2(d[8 * pair + 2 * i], d[8 * pair + 2 * i + 1]);
        }
        stmatrix_x4(staged_tile(half) + (u32)(row * ROW_BYTES + chunk * 16), packed);
    }
}

/* Starts a tile's store; STAGED no longer has the previous tile. */
DEVICE void store_tile(const struct micro_params *params, const float *d, int half, int tile) {
    const int row = (int)threadIdx.x % WARPGROUP;
    const bool issues = row < ROWS;
    if (issues) {
        bulk_wait_read(0);
    }
    barrier_sync(1 + half, WARPGROUP);
    stage_tile(d, half);
    fence_proxy_async();
    barrier_sync(1 + half, WARPGROUP);
    if (issues) {
        const int at = tile / params->x * 128 + ROWS * half + row;
        bulk_store((char *)params->out + (at * params->x + tile % params->x) * ROW_BYTES,
                   staged_tile(half) + (u32)(row * ROW_BYTES), ROW_BYTES);
        bulk_commit();
    }
}

DEVICE void compute_tiles(const struct micro_params *params, int half) {
    struct pipe pipe = {0, 0};
    float d[32];
    for (int tile = (int)blockIdx.x; tile < params->count; tile += (int)gridDim.x) {
        compute_tile(params, d, half, &pipe);
        store_tile(params, d, half, tile);
    }
    bulk_wait(0);
}

KERNEL void __launch_bounds__(384, 1)
    KERNEL_NAME(const __grid_constant__ struct micro_params params) {
    const int warpgroup = (int)threadIdx.x / WARPGROUP;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(barrier_full(stage), 1);
            mbarrier_init(barrier_empty(stage), CONSUMER_WARPS);
        }
        mbarrier_fence_init();
    }
    __syncthreads();
    if (warpgroup == 0) {
        registers_decrease(40);
        if (threadIdx.x == 0) {
            load_tiles(&params);
        }
    } else {
        registers_increase(232);
        compute_tiles(&params, warpgroup - 1);
    }
}
