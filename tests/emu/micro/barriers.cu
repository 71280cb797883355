//@use micro/params.h
//@use ptx/grid.cuh
//@use ptx/mbarrier.cuh
//@use ptx/named_barrier.cuh
//@use ptx/redux.cuh
//@use ptx/thread.cuh
//@use ptx/warp.cuh
/*
 * Barriers inside a block, and exchanges between a warp's lanes. 256 threads. out and b have one
 * word per thread.
 *
 * Shared memory: WORDS, 4 bytes a thread; BARRIER, two of 8 bytes.
 */

enum {
    PHASES = 0,      /* an mbarrier through ten phases, tested before and after each */
    COUNTS = 1,      /* arrivals by count */
    HAND_OVER = 2,   /* barrier_arrive on one side, barrier_sync on the other */
    ANY = 3,         /* barrier_or over half the block */
    WHOLE_BLOCK = 4, /* __syncthreads_or, _and, _count */
    LANES = 5,       /* shuffles, votes, redux */
    BITS = 6,
    REDUX = 7, /* sum, minimum and maximum of a warp's values */
    GRID = 8,  /* griddepcontrol without a dependent launch: no effect */

    THREADS = 256,
    HALF = 128
};

/* Every thread arrives in each phase; thread 0 records its view of the previous and the current
 * phase. */
DEVICE u32 phases(u32 barrier) {
    u32 seen = 0;
    for (int phase = 0; phase < 10; ++phase) {
        const int parity = phase & 1;
        if (threadIdx.x == 0) {
            seen = seen * 4 + (u32)mbarrier_test(barrier, parity ^ 1) * 2 +
                   (u32)mbarrier_test(barrier, parity);
        }
        __syncthreads();
        mbarrier_arrive(barrier);
        mbarrier_wait(barrier, parity);
        __syncthreads();
    }
    return seen;
}

/* Thread 0 only, on a barrier of THREADS arrivals. */
DEVICE u32 counts(u32 barrier) {
    u32 seen = 0;
    if (threadIdx.x != 0) {
        return 0;
    }
    mbarrier_arrive_count(barrier, THREADS - 1);
    seen = seen * 2 + (u32)mbarrier_test(barrier, 0);
    mbarrier_arrive(barrier);
    seen = seen * 2 + (u32)mbarrier_test(barrier, 0);
    mbarrier_arrive_count(barrier, THREADS / 2);
    mbarrier_arrive_count(barrier, THREADS / 2);
    seen = seen * 2 + (u32)mbarrier_test(barrier, 1);
    seen = seen * 2 + (u32)mbarrier_test(barrier, 0);
    mbarrier_arrive_count(barrier, THREADS);
    mbarrier_wait(barrier, 0);
    return seen * 2 + (u32)mbarrier_test(barrier, 0);
}

/* The first half writes and continues, the second half waits and reads; then the halves change
 * roles. */
DEVICE u32 hand_over(const u32 *in) {
    u32 *const words = (u32 *)(arena + WORDS_OFFSET);
    const u32 me = threadIdx.x, other = me ^ HALF;
    u32 sum = 0;
    for (int round = 0; round < 4; ++round) {
        const bool writes = (me < HALF) == (round % 2 == 0);
        if (writes) {
            words[me] = in[me] + (u32)round;
            barrier_arrive(1, THREADS);
        } else {
            barrier_sync(1, THREADS);
            sum = sum * 3 + words[other];
        }
        barrier_sync(2 + round, THREADS);
    }
    return sum;
}

DEVICE u32 any(const u32 *in) {
    const int id = 4 + (int)threadIdx.x / HALF;
    u32 seen = 0;
    for (int bit = 0; bit < 8; ++bit) {
        seen = seen * 2 + (u32)barrier_or(id, HALF, (in[threadIdx.x] >> bit & 0xffu) == 0x5au);
    }
    return seen;
}

DEVICE u32 whole_block(const u32 *in) {
    const u32 value = in[threadIdx.x];
    u32 seen = 0;
    for (int bit = 0; bit < 6; ++bit) {
        const int condition = (int)(value >> (4 * bit) & 15u) <= bit * bit;
        seen = seen * 2 + (u32)(__syncthreads_or(condition) != 0);
        seen = seen * 2 + (u32)(__syncthreads_and(condition) != 0);
        seen += (u32)__syncthreads_count(condition) << 16;
    }
    return seen;
}

DEVICE u32 lanes(const u32 *in) {
    const u32 all = 0xffffffffu, value = in[threadIdx.x];
    const int lane = (int)threadIdx.x % 32;
    u32 mixed = __shfl_xor_sync(all, value, 5);
    mixed = mixed * 3 + __shfl_sync(all, value, (lane * 7 + 3) % 32);
    mixed = mixed * 3 + __shfl_up_sync(all, value, 4);
    mixed = mixed * 3 + __shfl_down_sync(all, value, 9);
    mixed = mixed * 3 + (u32)__float_as_int(__shfl_xor_sync(all, __uint_as_float(value), 16));
    mixed = mixed * 3 + __ballot_sync(all, (int)(value & 1u));
    mixed = mixed * 3 + (u32)(__any_sync(all, (value & 31u) == 7u) != 0) * 2 +
            (u32)(__all_sync(all, value != 5u) != 0);
    mixed = mixed * 3 + warp_reduce_or(value & (1u << lane));
    if (lane < 12) {
        mixed += __ballot_sync(0xfffu, (int)(value & 2u)) + __shfl_sync(0xfffu, value, 11 - lane);
    }
    return mixed;
}

DEVICE u32 bits(const u32 *in) {
    const u32 value = in[threadIdx.x] >> (threadIdx.x % 32u);
    return (u32)__popc(value) + (u32)__ffs((int)value) * 64u + (u32)__clz((int)value) * 4096u +
           __dp4a(value, in[threadIdx.x ^ 1u], threadIdx.x) * 262144u;
}

KERNEL void __launch_bounds__(256, 1)
    KERNEL_NAME(const __grid_constant__ struct micro_params params) {
    const u32 *const in = (const u32 *)params.b;
    const u32 barrier = shared_address(BARRIER_OFFSET);
    u32 result = 0;
    if (threadIdx.x == 0) {
        mbarrier_init(barrier, THREADS);
    }
    __syncthreads();
    if (params.form == PHASES) {
        result = phases(barrier);
    } else if (params.form == COUNTS) {
        result = counts(barrier);
    } else if (params.form == HAND_OVER) {
        result = hand_over(in);
    } else if (params.form == ANY) {
        result = any(in);
    } else if (params.form == WHOLE_BLOCK) {
        result = whole_block(in);
    } else if (params.form == LANES) {
        result = lanes(in);
    } else if (params.form == BITS) {
        result = bits(in);
    } else if (params.form == REDUX) {
        const u32 value = in[thread_number()];
        result = warp_reduce_add(value) + 3u * warp_reduce_min(value) + 5u * warp_reduce_max(value);
    } else {
        grid_launch_dependents();
        grid_wait();
        result = in[threadIdx.x];
    }
    ((u32 *)params.out)[threadIdx.x] = result;
}
