//@use common/base.cuh

/* Inclusive scan over the warp; `lane` is this thread's. By whole warps. */
DEVICE int warp_inclusive_scan(int value, int lane) {
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const int lower = __shfl_up_sync((u32)ALL_LANES, value, (u32)step);
        value += lane >= step ? lower : 0;
    }
    return value;
}
