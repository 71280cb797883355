//@use micro/params.h
//@use ptx/registers.cuh
/* Three warpgroups share a multiprocessor's registers: one releases registers, the two others take
 * and need them. b and out have one word per thread; each thread mixes it with VALUES others
 * `count` times. 384 threads. */

enum { VALUES = 180 };

/* VALUES values are live at once and must all be in registers. */
DEVICE u32 mix(u32 seed, int times) {
    u32 held[VALUES], sum = 0;
#pragma unroll
    for (u32 i = 0; i < VALUES; ++i) {
        held[i] = seed * (2 * i + 1);
    }
    for (int time = 0; time < times; ++time) {
#pragma unroll
        for (u32 i = 0; i < VALUES; ++i) {
            held[i] += held[(i + 1) % VALUES] >> 3;
        }
    }
#pragma unroll
    for (u32 i = 0; i < VALUES; ++i) {
        sum ^= held[i];
    }
    return sum;
}

KERNEL void __launch_bounds__(384, 1)
    KERNEL_NAME(const __grid_constant__ struct micro_params params) {
    const u32 value = ((const u32 *)params.b)[threadIdx.x];
    u32 result = value;
    if (threadIdx.x < WARPGROUP) {
        registers_decrease(24);
    } else {
        registers_increase(240);
        result = mix(value, params.count);
    }
    ((u32 *)params.out)[threadIdx.x] = result;
}
