//@use common/base.cuh
//@use key_grads_grains.params.h
//@use key_grads_grains.unit.cuh
/*
 * Deterministic backward pass of the indexer, third pass: each key's grain from the bound of the
 * addends to its row. A quarter is added to the bound for what rounding to u adds: at most u / 2
 * per addend, of fewer than 2^21 addends.
 *
 * One thread per key; any grid size.
 */

enum { LEAST_EXPONENT = 24 /* 2^23 times the smallest normal number */ };

/* 2^23 u for the smallest u with bound < 2^24 u. `unit`: the bound's unit, as an exponent field. */
DEVICE float find_grain(u32 bound, int unit) {
    const int digits = 32 - __clz(bound + bound / 4 + 1);
    const int exponent = minimum(maximum(unit + digits - 1, LEAST_EXPONENT), EXPONENT_MOST);
    return bound > 0 ? __uint_as_float((u32)exponent << MANTISSA_BITS) : 0.0f;
}

/* A row's grain from its units; fine ones are converted to coarse ones, rounded up, if there are
 * any of these. */
DEVICE float key_grain(const uint2 *bounds, int scale) {
    const int coarse = scale_exponent(scale, COARSE), fine = scale_exponent(scale, FINE);
    const uint2 units = *bounds; /* COARSE, FINE */
    return units.x > 0
               ? find_grain(units.x + (units.y >> (fine - coarse)) + 1, 2 * EXPONENT_ONE - coarse)
               : find_grain(units.y, 2 * EXPONENT_ONE - fine);
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct key_grads_grains_params params) {
    const int scale = find_scale(&params);
    for (i64 key = blockIdx.x * (i64)THREADS + threadIdx.x; key < params.rows;
         key += gridDim.x * (i64)THREADS) {
        params.grains[key] = key_grain((const uint2 *)params.bounds + key, scale);
    }
}
