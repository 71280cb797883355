//@use common/base.cuh
//@use ptx/mbarrier.cuh

/*
 * One warp's arrival at an mbarrier: after __syncwarp one lane arrives for all. RACECHECK: every
 * lane arrives, and barriers count WARP_ARRIVALS per warp, since compute-sanitizer's racecheck
 * credits an arrival only to the lane that executes it.
 */
enum { WARP_ARRIVALS = RACECHECK ? 32 : 1 };

/* The address of the kernel's mbarrier `number`. */
DEVICE u32 barrier_at(u32 number) {
    return shared_address((u32)BARRIERS_OFFSET + number * 8);
}

DEVICE void arrive_warp(u32 barrier, int count) {
    __syncwarp(0xffffffffu);
    if (RACECHECK || threadIdx.x % 32 == 0) {
        mbarrier_arrive_count(barrier, count);
    }
}
