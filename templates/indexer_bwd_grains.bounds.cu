//@use common/base.cuh
//@use indexer_bwd_grains.finite.cuh
//@use indexer_bwd_grains.params.h
//@use indexer_bwd_grains.unit.cuh
//@use ptx/atomic.cuh
//@use ptx/shared.cuh
/*
 * Deterministic backward pass of the indexer, second pass: adds up, for each key, what is added to
 * its row of dk at most, in whole units, each group's share rounded up. Integers, so that the
 * order does not matter.
 *
 * A block takes a group at a time, a thread a key; any grid is right. A table of at most BINS rows
 * is added up in shared memory first, since additions to global memory take four times as long.
 *
 * Shared memory: BINS [BINS] u32, and what unit.cuh has. Barriers: find_scale's, behind which bins
 * are empty, too; bins are full.
 */

/* What a group adds to a key's row, in units: its entry number `entry` of the list. */
DEVICE u32 count_units(const struct indexer_bwd_grains_params *params, i64 group, int entry,
                       float scale) {
    float sum = 0.0f;
    for (int member = 0; member < params->group_queries; ++member) {
        const i64 place = group * params->group_queries + member;
        const float size = fabsf(params->grads[place * params->key_stride + entry]);
        sum += params->reach[place] * finite(size);
    }
    /* What is too large for all of them counts as the largest that there may be. */
    return (u32)fminf(ceilf(sum * scale), (float)(1u << params->bits));
}

DEVICE u32 *bins(void) {
    return (u32 *)(arena + BINS_OFFSET);
}

/* The block's groups. */
DEVICE void visit_groups(const struct indexer_bwd_grains_params *params, float scale, bool binned) {
    for (i64 group = blockIdx.x; group < params->groups; group += gridDim.x) {
        const int *const keys = params->keys + group * params->key_stride;
        for (int i = (int)threadIdx.x; i < params->counts[group]; i += THREADS) {
            const u32 units = count_units(params, group, i, scale);
            if (binned) {
                atomic_add_shared(shared_address(BINS_OFFSET + (u32)keys[i] * 4), units);
            } else {
                reduce_add_global(&params->bounds[keys[i]], units);
            }
        }
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct indexer_bwd_grains_params params) {
    const bool binned = params.rows <= BINS;
    for (int i = (int)threadIdx.x; i < params.rows && binned; i += THREADS) {
        bins()[i] = 0;
    }
    const float scale = __uint_as_float((u32)find_scale(&params) << MANTISSA_BITS);
    visit_groups(&params, scale, binned);
    __syncthreads();
    for (int i = (int)threadIdx.x; i < params.rows && binned; i += THREADS) {
        if (bins()[i] > 0) {
            reduce_add_global(&params.bounds[i], bins()[i]);
        }
    }
}
