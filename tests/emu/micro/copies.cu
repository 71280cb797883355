//@use micro/params.h
//@use ptx/append.cuh
//@use ptx/atomic.cuh
//@use ptx/bulk.cuh
//@use ptx/cp_async.cuh
//@use ptx/cp_async_mbarrier.cuh
//@use ptx/hint.cuh
//@use ptx/mbarrier.cuh
//@use ptx/memory.cuh
//@use ptx/once.cuh
//@use ptx/prefetch.cuh
//@use ptx/proxy.cuh
//@use ptx/reduce.cuh
//@use ptx/stream.cuh
/*
 * Copies between global and shared memory, and additions to global memory. a: the source; b: the
 * number of bytes that each thread's cp.async reads; out: the target.
 *
 * Shared memory: TILE, 16 bytes a thread; BARRIER, 8 bytes. 64 threads.
 */

enum {
    CP_ASYNC = 0,        /* 0..16 bytes of 16; the others are 0 */
    CP_ASYNC_GROUPS = 1, /* three groups; waits for the first one only */
    CP_ASYNC_NOINC = 2,  /* arrivals on a barrier, among the expected */
    CP_ASYNC_ALL = 3,    /* wait_all */
    BULK_COPY = 4,       /* `bytes` in and out again */
    RED_F32 = 5,         /* all threads add to the same values */
    RED_F32X4 = 6,
    STREAMING = 7,    /* read-only 16-byte loads, streaming stores */
    STREAMING_IN = 8, /* loads past L1 */
    ONCE = 9,         /* the same for data that may have been written before; 8-byte stores */
    PREFETCHED = 10,
    THROUGH_L2 = 11,
    SHARED_16 = 12, /* 16-byte loads of shared memory */
    APPENDED = 13,  /* pairs of words to shared memory, if the second is odd */
    ATOMICS = 14,   /* on each thread's own word and on a common one */
    HINT = 15,

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
        mbarrier_init(barrier, THREADS);
    }
    __syncthreads();
    cp_async_16(thread_tile(), from, bytes);
    if (params->form == CP_ASYNC) {
        cp_async_commit();
        cp_async_wait(0);
    } else if (params->form == CP_ASYNC_GROUPS) {
        cp_async_commit();
        cp_async_16(shared_address((u32)SECOND_OFFSET + threadIdx.x * 16u), from, 16);
        cp_async_commit();
        cp_async_commit();
        cp_async_wait(2);
        copy_out(params);
        cp_async_wait(1);
    } else if (params->form == CP_ASYNC_NOINC) {
        cp_async_arrive_noinc(barrier);
        mbarrier_wait(barrier, 0);
    } else {
        cp_async_wait_all();
    }
    copy_out(params);
    cp_async_wait_all();
}

DEVICE void wait_for_groups(void) {
    bulk_wait_read(3);
    bulk_wait_read(2);
    bulk_wait_read(1);
    bulk_wait_read(0);
    bulk_wait(3);
    bulk_wait(2);
    bulk_wait(1);
    bulk_wait(0);
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
    mbarrier_expect(barrier, bytes);
    bulk_load(tile, params->a, bytes, barrier);
    mbarrier_arrive(barrier);
    mbarrier_wait(barrier, 0);
    for (u32 part = 0; part < 4; ++part) { /* a group each */
        char *const to = (char *)params->out + part * (bytes / 4);
        const u32 from = tile + part * (bytes / 4);
        bulk_store(to, from, bytes / 4);
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
    } else if (params->form == ONCE) {
        if (threadIdx.x % 2) {
            load_once_8(values, from);
            load_once_8(values + 2, from + 8);
        } else {
            load_once_16(values, from);
        }
        store_streaming_8(to, values);
        store_streaming_8(to + 8, values + 2);
        return;
    } else if (params->form == PREFETCHED) {
        prefetch_l2(from, 16);
        load_read_only_16(values, from);
    } else if (params->form == THROUGH_L2) {
        for (int i = 0; i < 4; ++i) {
            values[i] = load_l2_32(from + 4 * i);
        }
    } else {
        load_read_only_16(values, from);
        for (int i = 0; i < 4; ++i) {
            ((u32 *)(arena + TILE_OFFSET))[4 * threadIdx.x + (u32)i] = values[i];
        }
        __syncthreads();
        load_shared_16(values, shared_address((u32)TILE_OFFSET + (threadIdx.x ^ 1u) * 16u));
    }
    store_streaming_16(to, values);
}

/* Stores three words of the thread's tile and the number of appended bytes. */
DEVICE void append(const struct micro_params *params) {
    const u32 *const values = (const u32 *)params->a + 4 * threadIdx.x;
    u32 *const tile = (u32 *)(arena + TILE_OFFSET) + 4 * threadIdx.x;
    u32 *const out = (u32 *)params->out + 4 * threadIdx.x;
    u32 address = thread_tile();
    for (u32 i = 0; i < 4; ++i) {
        tile[i] = 0;
    }
    for (u32 i = 0; i < 4; i += 2) {
        address = append_shared_8(address, values[i + 1] & 1u, values[i], values[i + 1]);
    }
    for (u32 i = 0; i < 3; ++i) {
        out[i] = tile[i];
    }
    out[3] = address - thread_tile();
}

/* Stores the previous value of a word that only this thread changes, and the final value of the
 * words that all change. */
DEVICE void change_words(const struct micro_params *params) {
    const u32 *const values = (const u32 *)params->a + 4 * threadIdx.x;
    u32 *const own = (u32 *)(arena + TILE_OFFSET) + threadIdx.x;
    u32 *const shared = (u32 *)(arena + SECOND_OFFSET);
    u32 *const out = (u32 *)params->out + 4 * threadIdx.x;
    const u32 own_address = shared_address((u32)TILE_OFFSET + 4u * threadIdx.x);
    *own = values[0];
    if (threadIdx.x < 2) {
        shared[threadIdx.x] = 0;
    }
    __syncthreads();
    out[0] = atomic_add_shared(own_address, values[1]);
    out[1] = atomic_or_shared(own_address, values[2]);
    atomic_add_shared(shared_address(SECOND_OFFSET), values[3]);
    atomic_or_shared(shared_address(SECOND_OFFSET + 4), values[3] & 1u << threadIdx.x % 32u);
    if (threadIdx.x % 2 == 0) {
        reduce_add_global((u32 *)params->b, values[3]);
    } else {
        reduce_add_global_64((u64 *)params->b, values[3]); /* whose lower word is compared */
    }
    __syncthreads();
    out[2] = *own;
    out[3] = threadIdx.x % 4 < 2 ? shared[threadIdx.x % 2] : load_l2_32(params->b);
}

/* All threads hint; one waits for all hints, and then for one that never comes. A wait's result
 * depends on time, but it always ends. */
DEVICE void hint(const struct micro_params *params) {
    u32 *const out = (u32 *)params->out;
    hint_add(out, threadIdx.x);
    __syncthreads();
    if (threadIdx.x == 0) {
        out[1] = hint_wait(out, (u32)params->count, 1000) < 1000;
        out[2] = hint_wait(out, (u32)params->count + 1u, 3) < 3;
    }
}

KERNEL void KERNEL_NAME(const __grid_constant__ struct micro_params params) {
    if (params.form <= CP_ASYNC_ALL) {
        copy_async(&params);
    } else if (params.form <= BULK_COPY) {
        copy_bulk(&params);
    } else if (params.form <= RED_F32X4) {
        add(&params);
    } else if (params.form <= SHARED_16) {
        load_and_store(&params);
    } else if (params.form == APPENDED) {
        append(&params);
    } else if (params.form == ATOMICS) {
        change_words(&params);
    } else {
        hint(&params);
    }
}
