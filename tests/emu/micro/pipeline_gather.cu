//@use micro/params.h
//@use micro/pipe.cuh
//@use ptx/cp_async.cuh
//@use ptx/cp_async_mbarrier.cuh
//@use ptx/mbarrier.cuh
//@use ptx/math.cuh
//@use ptx/proxy.cuh
//@use ptx/registers.cuh
//@use ptx/stmatrix.cuh
//@use ptx/tensor.cuh
//@use ptx/wgmma_ss.cuh n = 64, ta = 0, tb = 0
//@use ptx/wgmma_ss.cuh n = 64, ta = 0, tb = 1
/*
 * A small model of a sparse attention forward kernel: O [64][64] = clamp(Q K^T) K over `count`
 * blocks of 64 gathered rows; a clamp to -3..3 replaces the softmax.
 *
 * a: rows of 64 bf16; b: row numbers, negative ones masked (rows of zeros); maps[0]: Q [64][64]
 * bf16, 128-byte swizzle; out: O, fp32.
 *
 * Warpgroup 0 gathers with cp.async, 1 computes scores and P, 2 the output.
 *
 * Shared memory: QUERY and SCORES [64][64] bf16; KEYS [STAGES][64][64] bf16, all with the 128-byte
 * swizzle; WORDS [STAGES]: what a stage holds; BARRIERS:
 *   full[s]   128 copies' arrivals and 1 of the thread that wrote the stage's word; for scores
 *   empty[s]  4 warps of the output warpgroup; for the gather
 *   query     1 and the bytes of Q; for scores
 *   p_full    4 warps of the scores warpgroup; for the output
 *   p_free    4 warps of the output warpgroup; for scores
 */

enum {
    ROW_BYTES = 128,
    BLOCK_ROWS = 64,
    TILE_BYTES = BLOCK_ROWS * ROW_BYTES,
    GROUP_BYTES = 8 * ROW_BYTES, /* of a swizzle atom */
    STEPS = 4,                   /* of 16 elements of depth, or 16 keys */
    WARPS = 4,                   /* of a warpgroup */
    LAST = 1                     /* in a stage's word */
};

DEVICE u32 barrier_query(void) {
    return shared_address((u32)(BARRIERS_OFFSET + 8 * 2 * STAGES));
}

DEVICE u32 barrier_p_full(void) {
    return shared_address((u32)(BARRIERS_OFFSET + 8 * (2 * STAGES + 1)));
}

DEVICE u32 barrier_p_free(void) {
    return shared_address((u32)(BARRIERS_OFFSET + 8 * (2 * STAGES + 2)));
}

DEVICE u32 keys_tile(int stage) {
    return shared_address((u32)(KEYS_OFFSET + stage * TILE_BYTES));
}

DEVICE int *stage_word(int stage) {
    return (int *)(arena + WORDS_OFFSET) + stage;
}

DEVICE void barriers_begin(void) {
    for (int stage = 0; stage < STAGES; ++stage) {
        mbarrier_init(barrier_full(stage), WARPGROUP + 1);
        mbarrier_init(barrier_empty(stage), WARPS);
    }
    mbarrier_init(barrier_query(), 1);
    mbarrier_init(barrier_p_full(), WARPS);
    mbarrier_init(barrier_p_free(), WARPS);
    mbarrier_fence_init();
}

/* ---- warpgroup 0 ---- */

DEVICE void gather_block(const struct micro_params *params, int block, int stage) {
    const int thread = (int)threadIdx.x % WARPGROUP, chunk = thread % 8;
    const int *const rows = (const int *)params->b + block * BLOCK_ROWS;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int line = thread / 8 + 16 * i, row = rows[line];
        const bool valid = row >= 0;
        const char *const from =
            (const char *)params->a + (valid ? row * ROW_BYTES + chunk * 16 : 0);
        const u32 to = keys_tile(stage) + (u32)(line * ROW_BYTES + ((chunk ^ (line & 7)) << 4));
        cp_async_16(to, from, valid ? 16 : 0);
    }
}

DEVICE void gather(const struct micro_params *params) {
    struct pipe pipe = {0, 0};
    for (int block = 0; block < params->count; ++block) {
        mbarrier_wait(barrier_empty(pipe.stage), pipe.parity ^ 1);
        if (threadIdx.x == 0) {
            *stage_word(pipe.stage) = block + 1 == params->count ? LAST : 0;
            mbarrier_arrive(barrier_full(pipe.stage));
        }
        gather_block(params, block, pipe.stage);
        cp_async_arrive_noinc(barrier_full(pipe.stage));
        pipe_advance(&pipe);
    }
}

/* ---- warpgroup 1 ---- */

DEVICE void load_query(const struct micro_params *params) {
    if (threadIdx.x == WARPGROUP) {
        mbarrier_arrive_expect(barrier_query(), TILE_BYTES);
        tensor_load_2d(shared_address(QUERY_OFFSET), &params->maps[0], barrier_query(), 0, 0);
    }
    mbarrier_wait(barrier_query(), 0);
}

DEVICE void multiply_scores(float *scores, int stage) {
    const u64 query = shared_descriptor(shared_address(QUERY_OFFSET), 16, GROUP_BYTES, ROW_BYTES);
    const u64 keys = shared_descriptor(keys_tile(stage), 16, GROUP_BYTES, ROW_BYTES);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        wgmma_ss_n64_t00(scores, descriptor_advance(query, (u32)(32 * step)),
                         descriptor_advance(keys, (u32)(32 * step)), step > 0);
    }
    wgmma_commit();
    wgmma_wait(0);
}

/* Stores clamp(scores) as bf16 to SCORES: each warp its 16 rows, two stripes of 8 columns per
 * instruction. */
DEVICE void store_p(const float *scores) {
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32 % WARPS;
    const int row = 16 * warp + lane % 16;
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
        u32 packed[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float low = scores[8 * pair + 2 * i], high = scores[8 * pair + 2 * i + 1];
            packed[i] =
                pack_bf16x2(fminf(fmaxf(low, -3.0f), 3.0f), fminf(fmaxf(high, -3.0f), 3.0f));
        }
        const int chunk = 2 * pair + lane / 16;
        stmatrix_x4(shared_address((u32)(SCORES_OFFSET + row * ROW_BYTES)) +
                        (u32)((chunk ^ (row & 7)) << 4),
                    packed);
    }
}

DEVICE void compute_scores(const struct micro_params *params) {
    struct pipe pipe = {0, 0};
    int p_parity = 0, last;
    float scores[32];
    load_query(params);
    do {
        mbarrier_wait(barrier_full(pipe.stage), pipe.parity);
        last = *stage_word(pipe.stage) & LAST;
        fence_proxy_async();
        multiply_scores(scores, pipe.stage);
        mbarrier_wait(barrier_p_free(), p_parity ^ 1);
        store_p(scores);
        fence_proxy_async();
        __syncwarp(0xffffffffu);
        if (threadIdx.x % 32 == 0) {
            mbarrier_arrive(barrier_p_full());
        }
        p_parity ^= 1;
        pipe_advance(&pipe);
    } while (!last);
}

/* ---- warpgroup 2 ---- */

DEVICE void multiply_output(float *output, int stage, int accumulate) {
    const u64 p = shared_descriptor(shared_address(SCORES_OFFSET), 16, GROUP_BYTES, ROW_BYTES);
    const u64 values = shared_descriptor(keys_tile(stage), TILE_BYTES, GROUP_BYTES, ROW_BYTES);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        wgmma_ss_n64_t01(output, descriptor_advance(p, (u32)(32 * step)),
                         descriptor_advance(values, (u32)(16 * ROW_BYTES * step)),
                         step > 0 || accumulate);
    }
    wgmma_commit();
    wgmma_wait(0);
}

DEVICE void store_output(const struct micro_params *params, const float *output) {
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32 % WARPS;
    float *const out = (float *)params->out;
#pragma unroll
    for (int i = 0; i < 32; ++i) {
        const int row = 16 * warp + lane / 4 + i / 2 % 2 * 8;
        out[row * 64 + i / 4 * 8 + lane % 4 * 2 + i % 2] = output[i];
    }
}

DEVICE void compute_output(const struct micro_params *params) {
    struct pipe pipe = {0, 0};
    int p_parity = 0, last, blocks = 0;
    float output[32];
    do {
        mbarrier_wait(barrier_p_full(), p_parity);
        last = *stage_word(pipe.stage) & LAST;
        multiply_output(output, pipe.stage, blocks > 0);
        __syncwarp(0xffffffffu); /* every lane has read the stage's word */
        if (threadIdx.x % 32 == 0) {
            mbarrier_arrive(barrier_p_free());
            mbarrier_arrive(barrier_empty(pipe.stage));
        }
        ++blocks;
        p_parity ^= 1;
        pipe_advance(&pipe);
    } while (!last);
    store_output(params, output);
}

KERNEL void __launch_bounds__(384, 1)
    KERNEL_NAME(const __grid_constant__ struct micro_params params) {
    const int warpgroup = (int)threadIdx.x / WARPGROUP;
    if (threadIdx.x == 0) {
        tensor_prefetch(&params.maps[0]);
        barriers_begin();
    }
    __syncthreads();
    if (warpgroup == 0) {
        registers_decrease(40);
        gather(&params);
    } else if (warpgroup == 1) {
        registers_increase(232);
        compute_scores(&params);
    } else {
        registers_increase(232);
        compute_output(&params);
    }
}
