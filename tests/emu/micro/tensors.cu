//@use micro/params.h
//@use ptx/mbarrier.cuh
//@use ptx/policy.cuh
//@use ptx/proxy.cuh
//@use ptx/tensor.cuh
/*
 * Loads one box of the tensor of maps[0] at (x, y, z, w) and stores its `bytes` as they are in
 * shared memory.
 *
 * Shared memory: BOX; BARRIER, 8 bytes. 32 threads.
 */

enum { LOAD_2D = 0, LOAD_3D_HINT = 1, LOAD_4D_HINT = 2 };

DEVICE void load(const struct micro_params *params, u32 box, u32 barrier) {
    const struct tensor_map *const map = &params->maps[0];
    if (params->form == LOAD_2D) {
        tensor_load_2d(box, map, barrier, params->x, params->y);
    } else if (params->form == LOAD_3D_HINT) {
        tensor_load_3d_hint(box, map, barrier, params->x, params->y, params->z,
                            policy_evict_first());
    } else if (params->z % 2 == 0) { /* a policy changes no result */
        tensor_load_4d(box, map, barrier, params->x, params->y, params->z, params->w);
    } else {
        tensor_load_4d_hint(box, map, barrier, params->x, params->y, params->z, params->w,
                            policy_evict_first());
    }
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
}
