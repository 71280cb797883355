//@takes columns
//@use common/base.cuh
//@use common/descriptor.cuh
//@use ptx/grid.cuh
//@use ptx/registers.cuh
//@use ptx/shared.cuh
//@use ptx/wgmma.cuh
//@use ptx/wgmma_fp8_ss.cuh n = columns
//@use ptx/wgmma_ss.cuh n = columns, ta = 0, tb = 0
//@use indexer_logits_fwd.params.h
//@use indexer_logits_fwd.sm90_copies.cuh
/*
 * The kernel of indexer_logits_fwd.sm90.cu and .sm90_heads.cu, which differ only in run_math, and the
 * product of a tile, in which the first has keys as A and queries as B, the second the reverse.
 */

/* The descriptor of an operand whose rows begin at an offset of the arena. */
DEVICE u64 operand_at(u32 offset) {
    return shared_descriptor(shared_address(offset), 16, ATOM_ROWS * SWIZZLE, SWIZZLE);
}

/* Issues D = A B^T of 64 rows and ${columns} columns. `a_half`, `b_half`: bytes from the first half of
 * an operand's rows to the second. */
DEVICE void issue_product(float *d, u64 a, int a_half, u64 b, int b_half) {
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < STEPS; ++k) {
        const int half = k / HALF_STEPS, step = k % HALF_STEPS * STEP_BYTES;
        const u64 rows = descriptor_advance(a, (u32)(half * a_half + step));
        const u64 columns = descriptor_advance(b, (u32)(half * b_half + step));
        // clang-format off
        if (FP8) {
            wgmma_fp8_ss_n${columns}(d, rows, columns, k > 0);
        } else {
            wgmma_ss_n${columns}_t00(d, rows, columns, k > 0);
        }
        // clang-format on
    }
    wgmma_commit();
}

/* A math warpgroup. Tiles are numbered across all runs; this warpgroup takes those congruent to
 * `group` modulo WARPGROUPS, and owns every WARPGROUPS-th stage. */
DEVICE void run_math(const struct indexer_logits_fwd_params *params, int group);

KERNEL void __launch_bounds__(THREADS, 1)
    KERNEL_NAME(const __grid_constant__ struct indexer_logits_fwd_params params) {
    initialise(&params);
    if (params.launch_dependents) {
        grid_launch_dependents();
    }
    count_costs(&params);
    __syncthreads();
    const int group = __shfl_sync((u32)ALL_LANES, (int)threadIdx.x / WARPGROUP, 0);
    if (group < WARPGROUPS) {
        registers_increase(MATH_REGISTERS);
        if (params.pdl) {
            grid_wait();
        }
        run_math(&params, group);
    } else {
        registers_decrease(OTHER_REGISTERS);
        const int warp = (int)threadIdx.x % WARPGROUP / 32;
        if (warp == KEY_WARP || warp == QUERY_WARP) {
            run_producer(&params, warp == QUERY_WARP);
        } else if (warp == FILLER_WARP && params.fills) {
            run_filler(&params);
        }
    }
}
