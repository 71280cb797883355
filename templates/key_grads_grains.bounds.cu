//@use common/base.cuh
//@use key_grads_grains.finite.cuh
//@use key_grads_grains.params.h
//@use key_grads_grains.unit.cuh
//@use ptx/atomic.cuh
//@use ptx/shared.cuh
/*
 * Deterministic backward pass of the indexer, second pass: for each key, an upper bound of the sum
 * of the addends to its row of dk, counted in whole units; each group's share is rounded up.
 * Integer addition makes the result independent of the order. Large shares are counted in coarse
 * units, small ones in fine ones, so that rows with small addends get bounds of the same precision.
 *
 * A CTA takes a group at a time, a thread a few keys; any grid size. A table of at most BINS rows
 * is first summed in shared memory, because additions in global memory take four times as long.
 *
 * Shared memory: BINS [BINS][UNITS] u32, and unit.cuh's. Barriers: find_scale's, after which the
 * bins are cleared, too; then one when the bins are complete.
 */

enum { ENTRIES = 4 /* of a list, per thread and iteration */ };

/* Upper bounds of what a group adds to the rows of its list's keys from entry `entry` on. */
DEVICE void find_shares(const struct key_grads_grains_params *params, i64 group, int entry,
                        float *shares) {
    for (int i = 0; i < ENTRIES; ++i) {
        shares[i] = 0.0f;
    }
#pragma unroll 2
    for (int member = 0; member < params->group_queries; ++member) {
        const i64 place = group * params->group_queries + member;
        const float4 grads = *(const float4 *)(params->grads + place * params->key_stride + entry);
        const float reach = params->reach[place];
        shares[0] += reach * finite(fabsf(grads.x));
        shares[1] += reach * finite(fabsf(grads.y));
        shares[2] += reach * finite(fabsf(grads.z));
        shares[3] += reach * finite(fabsf(grads.w));
    }
}

/* A count of units of one kind. */
struct units {
    u32 count;
    int kind;
};

/* Fine units if they fit into params.bits, else coarse ones, clamped to the largest legal share. */
DEVICE struct units count_units(const struct key_grads_grains_params *params, float share,
                                int scale) {
    const float most = (float)(1u << params->bits);
    const float coarse = ceilf(share * scale_of(scale, COARSE));
    const float fine = ceilf(share * scale_of(scale, FINE));
    const bool small = fine <= most;
    const struct units units = {(u32)fminf(small ? fine : coarse, most), small ? FINE : COARSE};
    return units;
}

/* Adds a share to a key's bound, in the block's bins or in global memory. */
DEVICE void add_units(const struct key_grads_grains_params *params, int key, struct units units,
                      bool binned) {
    const i64 place = (i64)key * UNITS + units.kind;
    if (binned) {
        atomic_add_shared(shared_address(BINS_OFFSET + (u32)place * 4), units.count);
    } else {
        reduce_add_global(&params->bounds[place], units.count);
    }
}

/* All groups of the CTA. */
DEVICE void visit_groups(const struct key_grads_grains_params *params, int scale, bool binned) {
    for (i64 group = blockIdx.x; group < params->groups; group += gridDim.x) {
        const int count = params->counts[group];
        for (int entry = (int)threadIdx.x * ENTRIES; entry < count; entry += THREADS * ENTRIES) {
            const int4 four = *(const int4 *)(params->keys + group * params->key_stride + entry);
            const int keys[ENTRIES] = {four.x, four.y, four.z, four.w};
            float shares[ENTRIES];
            find_shares(params, group, entry, shares);
#pragma unroll
            for (int i = 0; i < ENTRIES; ++i) {
                if (entry + i < count) {
                    add_units(params, keys[i], count_units(params, shares[i], scale), binned);
                }
            }
        }
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct key_grads_grains_params params) {
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
