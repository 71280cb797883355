//@use common/base.cuh
//@use indexer_bwd_grains.finite.cuh
//@use indexer_bwd_grains.params.h
//@use indexer_bwd_grains.unit.cuh
//@use ptx/atomic.cuh
//@use ptx/shared.cuh
/*
 * Deterministic backward pass of the indexer, second pass: adds up, for each key, what is added to
 * its row of dk at most, in whole units, each group's share rounded up. Integers, so that the
 * order does not matter. Large shares are counted in coarse units, small ones in fine ones: rows
 * that are far from the largest of all have bounds of as many digits.
 *
 * A block takes a group at a time, a thread a key; any grid is right. A table of at most BINS rows
 * is added up in shared memory first, since additions to global memory take four times as long.
 *
 * Shared memory: BINS [BINS][UNITS] u32, and what unit.cuh has. Barriers: find_scale's, behind
 * which bins are empty, too; bins are full.
 */

/* What a group adds to a key's row at most: its entry number `entry` of the list. */
DEVICE float find_share(const struct indexer_bwd_grains_params *params, i64 group, int entry) {
    float sum = 0.0f;
    for (int member = 0; member < params->group_queries; ++member) {
        const i64 place = group * params->group_queries + member;
        const float size = fabsf(params->grads[place * params->key_stride + entry]);
        sum += params->reach[place] * finite(size);
    }
    return sum;
}

/* Units of one kind. */
struct units {
    u32 count;
    int kind;
};

/* In fine units, where they are no more than the most that a share may have; else in coarse ones,
 * where what is too large for all of them counts as the largest that there may be. */
DEVICE struct units count_units(const struct indexer_bwd_grains_params *params, float share,
                                int scale) {
    const float most = (float)(1u << params->bits);
    const float coarse = ceilf(share * scale_of(scale, COARSE));
    const float fine = ceilf(share * scale_of(scale, FINE));
    const bool small = fine <= most;
    const struct units units = {(u32)fminf(small ? fine : coarse, most), small ? FINE : COARSE};
    return units;
}

/* The block's groups. */
DEVICE void visit_groups(const struct indexer_bwd_grains_params *params, int scale, bool binned) {
    for (i64 group = blockIdx.x; group < params->groups; group += gridDim.x) {
        const int *const keys = params->keys + group * params->key_stride;
        for (int i = (int)threadIdx.x; i < params->counts[group]; i += THREADS) {
            const struct units units = count_units(params, find_share(params, group, i), scale);
            const i64 place = (i64)keys[i] * UNITS + units.kind;
            if (binned) {
                atomic_add_shared(shared_address(BINS_OFFSET + (u32)place * 4), units.count);
            } else {
                reduce_add_global(&params->bounds[place], units.count);
            }
        }
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct indexer_bwd_grains_params params) {
    const int binned = params.rows <= BINS ? params.rows * UNITS : 0;
    u32 *const bins = (u32 *)(arena + BINS_OFFSET);
    for (int i = (int)threadIdx.x; i < binned; i += THREADS) {
        bins[i] = 0;
    }
    visit_groups(&params, find_scale(&params), binned > 0);
    __syncthreads();
    for (int i = (int)threadIdx.x; i < binned; i += THREADS) {
        if (bins[i] > 0) {
            reduce_add_global(&params.bounds[i], bins[i]);
        }
    }
}
