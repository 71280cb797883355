//@use common/base.cuh
//@use indexer_bwd_grains.params.h
//@use indexer_bwd_grains.unit.cuh
//@use ptx/atomic.cuh
/*
 * Deterministic backward pass of the indexer, second pass: adds up, for each key, what is added to
 * its row of dik at most, in whole units, each group's share rounded up. Integers, so that the
 * order does not matter.
 *
 * A block takes a group at a time, a thread a key; any grid is right.
 */

/* What a group adds to a key's row, in units: its entry number `entry` of the list. */
DEVICE u32 count_units(const struct indexer_bwd_grains_params *params, i64 group, int entry,
                       float scale) {
    float sum = 0.0f;
    for (int member = 0; member < params->group_queries; ++member) {
        const i64 place = group * params->group_queries + member;
        const float size = fabsf(params->grads[place * params->key_stride + entry]);
        sum += params->reach[place] * (size <= 3.4028235e38f ? size : 0.0f);
    }
    /* What is too large for all of them counts as the largest that there may be. */
    return (u32)fminf(ceilf(sum * scale), (float)(1u << params->bits));
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct indexer_bwd_grains_params params) {
    const float scale = __uint_as_float((u32)find_scale(&params) << MANTISSA_BITS);
    for (i64 group = blockIdx.x; group < params.groups; group += gridDim.x) {
        const int *const keys = params.keys + group * params.key_stride;
        for (int i = (int)threadIdx.x; i < params.counts[group]; i += THREADS) {
            reduce_add_global(&params.bounds[keys[i]], count_units(&params, group, i, scale));
        }
    }
}
