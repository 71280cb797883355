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
 * A block takes a group at a time, a thread a few keys; any grid is right. A table of at most BINS
 * rows is added up in shared memory first, since additions to global memory take four times as
 * long.
 *
 * Shared memory: BINS [BINS][UNITS] u32, and what unit.cuh has. Barriers: find_scale's, behind
 * which bins are empty, too; bins are full.
 */

enum { ENTRIES = 4 /* of a list, that a thread takes at a time */ };

/* What a group adds at most to the rows of keys: its entries from number `entry` on. */
DEVICE void find_shares(const struct indexer_bwd_grains_params *params, i64 group, int entry,
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

/* Adds a share to a key's bounds, in the block's bins or at once. */
DEVICE void add_units(const struct indexer_bwd_grains_params *params, int key, struct units units,
                      bool binned) {
    const i64 place = (i64)key * UNITS + units.kind;
    if (binned) {
        atomic_add_shared(shared_address(BINS_OFFSET + (u32)place * 4), units.count);
    } else {
        reduce_add_global(&params->bounds[place], units.count);
    }
}

/* The block's groups. */
DEVICE void visit_groups(const struct indexer_bwd_grains_params *params, int scale, bool binned) {
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
