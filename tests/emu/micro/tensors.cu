//@use micro/params.h
//@use ptx/bulk.cuh
//@use ptx/mbarrier.cuh
//@use ptx/policy.cuh
//@use ptx/proxy.cuh
//@use ptx/tensor.cuh
/*
 * One box of the tensor of maps[0], loaded at (x, y, z), its `bytes` shown as they lie in shared
 * memory, then stored into the tensor of maps[1] at the same place, coordinates below 0 as 0 (a
 * store there is an illegal instruction on an H200, unlike a load). out begins with the shown
 * bytes; the second tensor lies behind them.
 *
 * Shared memory: BOX; BARRIER, 8 bytes. 32 threads.
 */

enum {
    LOAD_2D = 0,
    LOAD_3D = 1,
    LOAD_2D_FIRST = 2, /* evict_first */
    LOAD_3D_LAST = 3   /* evict_last */
};

DEVICE void load(const struct micro_params *params, u32 box, u32 barrier) {
    const struct tensor_map *const map = &params->maps[0];
    if (params->form == LOAD_2D) {
        tensor_load_2d(box, map, barrier, params->x, params->y);
    } else if (params->form == LOAD_3D) {
        tensor_load_3d(box, map, barrier, params->x, params->y, params->z);
    } else if (params->form == LOAD_2D_FIRST) {
        tensor_load_2d_hint(box, map, barrier, params->x, params->y, policy_evict_first());
    } else {
        tensor_load_3d_hint(box, map, barrier, params->x, params->y, params->z,
                            policy_evict_last());
    }
}

DEVICE void store(const struct micro_params *params, u32 box) {
    const struct tensor_map *const map = &params->maps[1];
    const int x = maximum(params->x, 0), y = maximum(params->y, 0), z = maximum(params->z, 0);
    if (params->form == LOAD_2D || params->form == LOAD_2D_FIRST) {
        tensor_store_2d(map, box, x, y);
    } else {
        tensor_store_3d(map, box, x, y, z);
    }
    bulk_commit();
    bulk_wait_0();
}

KERNEL void KERNEL_NAME(const __grid_constant__ struct micro_params params) {
    const u32 box = shared_address(BOX_OFFSET), barrier = shared_address(BARRIER_OFFSET);
    if (threadIdx.x == 0) {
        tensor_prefetch(&params.maps[0]);
        mbarrier_init(barrier, 1);
        mbarrier_fence_init();
        mbarrier_arrive_expect(barrier, (u32)params.bytes);
        load(&params, box, barrier);
    }
    __syncwarp(0xffffffffu);
    mbarrier_wait(barrier, 0);
    for (int i = (int)threadIdx.x; i < params.bytes / 4; i += 32) {
        ((u32 *)params.out)[i] = ((const u32 *)(arena + BOX_OFFSET))[i];
    }
    __syncwarp(0xffffffffu);
    if (threadIdx.x == 0) {
        store(&params, box);
    }
}
