//@use micro/params.h
//@use ptx/bulk.cuh
//@use ptx/counter.cuh
//@use ptx/cp_async.cuh
//@use ptx/cp_async_mbarrier.cuh
//@use ptx/mbarrier.cuh
//@use ptx/memory.cuh
//@use ptx/proxy.cuh
//@use ptx/reduce.cuh
//@use ptx/stream.cuh
/*
 * Copies between global and shared memory, and additions to global memory. a is what is copied or
 * added, b the number of bytes each thread's cp.async reads, out what was copied or added to.
 *
 * Shared memory: TILE, 16 bytes a thread; BARRIER, 8 bytes. 64 threads.
 */

enum {
    CP_ASYNC = 0,        /* 0..16 bytes of 16, the others zero */
    CP_ASYNC_GROUPS = 1, /* three groups, the first waited for alone */
    CP_ASYNC_NOINC = 2,  /* arrivals on a barrier, among the expected */
    CP_ASYNC_ARRIVE = 3, /* arrivals that are not */
    CP_ASYNC_ALL = 4,    /* wait_all */
    BULK_COPY = 5,       /* `bytes` in and out again */
    BULK_ADD_F32 = 6,
    BULK_ADD_BF16 = 7,
    RED_F32 = 8, /* every thread on the same values */
    RED_F32X2 = 9,
    RED_F32X4 = 10,
    STREAMING = 11, /* read-only 16-byte loads, streaming stores */
    THROUGH_L2 = 12,
    SHARED_16 = 13, /* 16-byte loads and stores of shared memory */
    COUNTER = 14,
    STREAMING_IN = 15, /* loads past L1 */

    THREADS = 64
};

DEVICE u32 thread_tile(void) {
    return shared_address((u32)TILE_OFFSET + threadIdx.x * 16u);
}

DEVICE void copy_out(const struct micro_params *params) {
    for (int i = 0; i < 4; ++i) {
        ((u32 *)params->out)[4 * threadIdx.x + (u32)i] =
            ((const u32 *)(arena + TILE_OFFSET))[4 * threadIdx.x + (u32)i];
    }
}

DEVICE void copy_async(const struct micro_params *params) {
    const char *const from = (const char *)params->a + threadIdx.x * 16u;
    const int bytes = ((const int *)params->b)[threadIdx.x];
    const u32 barrier = shared_address(BARRIER_OFFSET);
    if (threadIdx.x == 0) {
        mbarrier_init(barrier, params->form == CP_ASYNC_NOINC ? THREADS : 1);
    }
    __syncthreads();
    cp_async_16(thread_tile(), from, bytes);
    if (params->form == CP_ASYNC) {
        cp_async_commit();
        cp_async_wait_0();
    } else if (params->form == CP_ASYNC_GROUPS) {
        cp_async_commit();
        cp_async_16(shared_address((u32)SECOND_OFFSET + threadIdx.x * 16u), from, 16);
        cp_async_commit();
        cp_async_commit();
        cp_async_wait_2();
        copy_out(params);
        cp_async_wait_1();
    } else if (params->form == CP_ASYNC_NOINC) {
        cp_async_arrive_noinc(barrier);
        mbarrier_wait(barrier, 0);
    } else if (params->form == CP_ASYNC_ARRIVE) {
        cp_async_arrive(barrier);
        __syncthreads();
        if (threadIdx.x == 0) {
            mbarrier_arrive(barrier);
        }
        mbarrier_wait(barrier, 0);
    } else {
        cp_async_wait_all();
    }
    copy_out(params);
    cp_async_wait_all();
    __syncthreads();
    if (threadIdx.x == 0) {
        mbarrier_invalidate(barrier);
    }
}

DEVICE void wait_for_groups(void) {
    bulk_wait_read_3();
    bulk_wait_read_2();
    bulk_wait_read_1();
    bulk_wait_read_0();
    bulk_wait_3();
    bulk_wait_2();
    bulk_wait_1();
    bulk_wait_0();
}

/* One thread's. */
DEVICE void copy_bulk(const struct micro_params *params) {
    const u32 barrier = shared_address(BARRIER_OFFSET), tile = shared_address(TILE_OFFSET);
    const u32 bytes = (u32)params->bytes;
    if (threadIdx.x != 0) {
        return;
    }
    mbarrier_init(barrier, 1);
    mbarrier_fence_init();
    if (params->form == BULK_COPY) {
        mbarrier_arrive_expect(barrier, bytes);
        bulk_load(tile, params->a, bytes, barrier);
    } else {
        mbarrier_expect(barrier, bytes);
        bulk_load(tile, params->a, bytes, barrier);
        mbarrier_arrive(barrier);
    }
    mbarrier_wait(barrier, 0);
    for (u32 part = 0; part < 4; ++part) { /* a group each */
        char *const to = (char *)params->out + part * (bytes / 4);
        const u32 from = tile + part * (bytes / 4);
        if (params->form == BULK_COPY) {
            bulk_store(to, from, bytes / 4);
        } else if (params->form == BULK_ADD_F32) {
            bulk_reduce_add_f32(to, from, bytes / 4);
        } else {
            bulk_reduce_add_bf16(to, from, bytes / 4);
        }
        bulk_commit();
    }
    wait_for_groups();
}

DEVICE void add(const struct micro_params *params) {
    const float *const values = (const float *)params->a + 4 * threadIdx.x;
    float *const out = (float *)params->out;
    for (int i = 0; i < params->count; ++i) {
        if (params->form == RED_F32) {
            reduce_add_f32(out + i, values[i % 4]);
        } else if (params->form == RED_F32X2) {
            reduce_add_f32x2(out + 2 * i, values + i % 3);
        } else {
            reduce_add_f32x4(out + 4 * i, values);
        }
    }
}

DEVICE void load_and_store(const struct micro_params *params) {
    u32 values[4];
    const char *const from = (const char *)params->a + threadIdx.x * 16u;
    char *const to = (char *)params->out + threadIdx.x * 16u;
    if (params->form == STREAMING) {
        load_read_only_16(values, from);
    } else if (params->form == STREAMING_IN) {
        load_streaming_16(values, from);
    } else if (params->form == THROUGH_L2) {
        for (int i = 0; i < 4; ++i) {
            values[i] = load_l2_32(from + 4 * i);
        }
    } else {
        load_read_only_16(values, from);
        store_shared_16(thread_tile(), values);
        __syncthreads();
        load_shared_16(values, shared_address((u32)TILE_OFFSET + (threadIdx.x ^ 1u) * 16u));
    }
    store_streaming_16(to, values);
}

KERNEL void KERNEL_NAME(const __grid_constant__ struct micro_params params) {
    if (params.form <= CP_ASYNC_ALL) {
        copy_async(&params);
    } else if (params.form <= BULK_ADD_BF16) {
        copy_bulk(&params);
    } else if (params.form <= RED_F32X4) {
        add(&params);
    } else if (params.form <= SHARED_16 || params.form == STREAMING_IN) {
        load_and_store(&params);
    } else {
        counter_add((u32 *)params.out, threadIdx.x + 1u);
        while (counter_read((const u32 *)params.out) < (u32)params.count) {
        }
    }
}
