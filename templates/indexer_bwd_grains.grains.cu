//@use common/base.cuh
//@use indexer_bwd_grains.params.h
//@use indexer_bwd_grains.unit.cuh
/*
 * Deterministic backward pass of the indexer, third pass: each key's grain out of the bound of what
 * is added to its row. A quarter more makes room for what rounding to u adds, half a u an addend,
 * of which there are fewer than 2^21.
 *
 * A thread takes a key at a time; any grid is right.
 */

enum { LEAST_EXPONENT = 24 /* 2^23 times the least normal number */ };

/* 2^23 times the least u such that the bound is below 2^24 u. */
DEVICE float find_grain(u32 bound, int unit) {
    const int digits = 32 - __clz(bound + bound / 4 + 1);
    const int exponent = minimum(maximum(unit + digits - 1, LEAST_EXPONENT), EXPONENT_MOST);
    return bound > 0 ? __uint_as_float((u32)exponent << MANTISSA_BITS) : 0.0f;
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct indexer_bwd_grains_params params) {
    const int unit = 2 * EXPONENT_ONE - find_scale(&params);
    for (i64 key = blockIdx.x * (i64)THREADS + threadIdx.x; key < params.rows;
         key += gridDim.x * (i64)THREADS) {
        params.grains[key] = find_grain(params.bounds[key], unit);
    }
}
