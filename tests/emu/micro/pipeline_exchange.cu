//@use micro/params.h
//@use ptx/bulk.cuh
//@use ptx/cluster.cuh
//@use ptx/mbarrier.cuh
//@use ptx/proxy.cuh
//@use ptx/wgmma_rs.cuh n = 32, tb = 0
/*
 * Two blocks of a cluster add their halves, as a backward pass over 128 heads would: in round r
 * each computes D [64][32] = A B^T, depth 64, with its own A and round r's B; block r % 2 owns the
 * round, receives the other's D, and adds the sum to out[r].
 *
 * a: A of both blocks, [2][64][64] bf16; b: B of each round, already laid out as [8][32][8] bf16
 * (depth chunk, row, depth in the chunk: no swizzle); out: [count][128][16] fp32, in fragment
 * order.
 *
 * Shared memory: RIGHT [2][4096 bytes]: B; LANDING [2][8192 bytes]: the other's D; STAGED [8192
 * bytes]: the sum on its way out; BARRIERS:
 *   full[i]       1 and B's bytes
 *   landed[i]     1 and D's bytes; for the owner
 *   free[i]       4 warps of the owner, in the other block; for who sends
 */

enum {
    THREADS = 128,
    WARPS = 4,
    COLUMNS = 32,
    VALUES = COLUMNS / 2, /* of D in a thread */
    STEPS = 4,
    RIGHT_BYTES = COLUMNS * 128,
    CHUNK_BYTES = COLUMNS * 16, /* 8 depths of B */
    LANDING_BYTES = THREADS * VALUES * 4
};

DEVICE u32 barrier_full(int i) {
    return shared_address((u32)(BARRIERS_OFFSET + 8 * i));
}

DEVICE u32 barrier_landed(int i) {
    return shared_address((u32)(BARRIERS_OFFSET + 16 + 8 * i));
}

DEVICE u32 barrier_free(int i) {
    return shared_address((u32)(BARRIERS_OFFSET + 32 + 8 * i));
}

DEVICE u32 right_tile(int i) {
    return shared_address((u32)(RIGHT_OFFSET + i * RIGHT_BYTES));
}

/* Where a thread's four values number `part` stand in a landing or in STAGED: lanes side by side.
 */
DEVICE u32 part_place(int part) {
    return (u32)(part * THREADS * 16) + threadIdx.x * 16u;
}

DEVICE void load_right(const struct micro_params *params, int round) {
    const int i = round % 2;
    if (threadIdx.x == 0 && round < params->count) {
        mbarrier_arrive_expect(barrier_full(i), RIGHT_BYTES);
        bulk_load(right_tile(i), (const char *)params->b + round * RIGHT_BYTES, RIGHT_BYTES,
                  barrier_full(i));
    }
}

DEVICE void load_left(const struct micro_params *params, u32 (*left)[4], u32 rank) {
    const int lane = (int)threadIdx.x % 32, row = (int)threadIdx.x / 32 * 16 + lane / 4;
    const u32 *const a = (const u32 *)params->a + rank * 64u * 32u;
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            left[step][i] = a[(row + i % 2 * 8) * 32 + step * 8 + lane % 4 + i / 2 * 4];
        }
    }
}

DEVICE void multiply(float *d, u32 (*left)[4], int round) {
    const u64 right = shared_descriptor(right_tile(round % 2), CHUNK_BYTES, 128, 0);
    mbarrier_wait(barrier_full(round % 2), round / 2 & 1);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        wgmma_rs_n32_t00(d, left[step], descriptor_advance(right, (u32)(2 * CHUNK_BYTES * step)),
                         step > 0);
    }
    wgmma_commit();
    wgmma_wait_0();
}

/* This block's D to the owner's landing number `i`, used for the `use`-th time. */
DEVICE void send(const float *d, int i, int use, u32 owner) {
    const u32 landing = shared_address((u32)(LANDING_OFFSET + i * LANDING_BYTES));
    const u32 landed = cluster_address(barrier_landed(i), owner);
    mbarrier_wait_cluster(barrier_free(i), (use & 1) ^ 1);
#pragma unroll
    for (int part = 0; part < VALUES / 4; ++part) {
        u32 values[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            values[j] = __float_as_uint(d[4 * part + j]);
        }
        cluster_store_async_16(cluster_address(landing + part_place(part), owner), values, landed);
    }
}

/* Adds what landed to D and leaves the sum in STAGED. */
DEVICE void receive(const float *d, int i, int use, u32 other) {
    const unsigned char *const landing = arena + LANDING_OFFSET + i * LANDING_BYTES;
    mbarrier_wait_cluster(barrier_landed(i), use & 1);
#pragma unroll
    for (int part = 0; part < VALUES / 4; ++part) {
        const float *const from = (const float *)(landing + part_place(part));
        float *const to = (float *)(arena + STAGED_OFFSET + part_place(part));
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            to[j] = d[4 * part + j] + from[j];
        }
    }
    __syncwarp(0xffffffffu);
    if (threadIdx.x % 32 == 0) {
        mbarrier_arrive_remote(cluster_address(barrier_free(i), other));
    }
}

DEVICE void own_round(const struct micro_params *params, const float *d, int round, u32 other) {
    const int use = round / 4, i = round / 2 % 2;
    if (threadIdx.x == 0) {
        mbarrier_arrive_expect(barrier_landed(i), LANDING_BYTES);
        bulk_wait_read_0();
    }
    __syncthreads();
    receive(d, i, use, other);
    fence_proxy_async();
    __syncthreads();
    if (threadIdx.x == 0) {
        bulk_reduce_add_f32((char *)params->out + round * LANDING_BYTES,
                            shared_address(STAGED_OFFSET), LANDING_BYTES);
        bulk_commit();
    }
}

KERNEL void __launch_bounds__(128, 1)
    KERNEL_NAME(const __grid_constant__ struct micro_params params) {
    const u32 rank = cluster_rank(), other = rank ^ 1u;
    u32 left[STEPS][4];
    float d[VALUES];
    if (threadIdx.x == 0) {
        for (int i = 0; i < 2; ++i) {
            mbarrier_init(barrier_full(i), 1);
            mbarrier_init(barrier_landed(i), 1);
            mbarrier_init(barrier_free(i), WARPS);
        }
        mbarrier_fence_init();
    }
    cluster_arrive();
    load_left(&params, left, rank);
    cluster_wait();
    load_right(&params, 0);
    for (int round = 0; round < params.count; ++round) {
        load_right(&params, round + 1);
        multiply(d, left, round);
        if ((u32)round % 2 == rank) {
            own_round(&params, d, round, other);
        } else {
            send(d, round / 2 % 2, round / 4, other);
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        bulk_wait_0();
    }
    cluster_arrive();
    cluster_wait();
}
