//@use common/base.cuh
//@use indexer_bwd_main.params.h
//@use indexer_bwd_main.sm90_shared.cuh
//@use indexer_bwd_main.sm90_scores.cuh
//@use indexer_bwd_main.sm90_sums.cuh
//@use indexer_bwd_main.sm90_gather.cuh
/*
 * The indexer's backward pass with wgmma: dq, dweights, and the sums of dk.
 * Mathematics and shapes: include/smelt/indexer_bwd.h; groups and lists:
 * indexer_bwd_main.params.h.
 *
 * An item is a group: QUERY_ROWS rows (heads, padded) of each of its GROUP_QUERIES queries, in
 * ROW_TILES tiles of 64 rows. Its list of keys is processed in blocks of 64. For each block and
 * tile:
 *
 *   X = Q K^T                         [rows, keys]
 *   dX = grad w where X > 0, else 0
 *   dweights += sum over keys of grad max(X, 0)
 *   dQ += dX K                        [rows, DIM], in registers during the whole item
 *   dK  = dX^T Q                      [keys, DIM], of all tiles together: added to the rows in
 *                                     global memory; with DETERMINISTIC rounded first, so that the
 *                                     additions are exact (common/grain.cuh)
 *
 * Neighbouring queries share most keys, so one addition to a row of dk serves the whole group. A
 * query that lacks a key has a grad of 0 there.
 *
 * With GROUP_TILES 2 a list has three sections: keys of the first tile's queries only, of both
 * tiles', of the second's only. Each tile thus has one contiguous range of blocks and skips the
 * others. Blocks are taken alternately from both ends, so that neither tile idles during the other
 * one's own section.
 *
 * Grid: one CTA per SM, each takes every gridDim.x-th group, the last ones first. Warpgroups:
 *
 *   scores[t]  of tile t: X, dX, dweights, dQ. The tensor cores compute X of the tile's next block
 *              and dQ of this one during the arithmetic of dX
 *   sums       dK in chunks of 32 columns: dX^T as operand A from registers, two alternating
 *              accumulators; added to global memory from registers
 *   gather     copies keys, their numbers and grads, STAGES blocks ahead; Q by tensor copies, one
 *              item ahead
 *
 * The bottleneck is the SM's throughput for reductions (common/row_sums.cuh); everything else is
 * arranged to overlap with it.
 *
 * Rows that do not exist (padded heads, missing members) have Q = 0, so X and dX are 0. Past the
 * end of a list K is 0, so X and dX are 0, and zeros are added to the block's first key.
 *
 * Shared memory (offsets and sizes: the plan above). A tile is 64 rows of 64 columns, 128-byte
 * swizzled:
 *   QUERIES  [2][COLUMN_TILES][ROW_TILES] tiles, rows by columns: of two items alternately
 *   KEYS     [STAGES][COLUMN_TILES] tiles, keys by columns
 *   DX   [ROW_TILES][2] tiles, dX, rows by keys: of a tile's blocks alternately
 *   GRADS    [STAGES][GROUP_QUERIES][64] fp32
 *   NUMBERS  [NUMBER_STAGES][64] key numbers, -1: none
 *
 * Barriers (parities count uses; of KEYS a bit per stage and tile):
 *   barrier            count  arrives                                   waits
 *   QUERIES_FULL[i]      1    gather, and the copies' bytes             scores, sums
 *   QUERIES_FREE[i]   4 each  scores, sums: done with the item          gather
 *   KEYS_FULL[t][s]    128    gather: every thread when its copies have scores[t]
 *                             landed, if the tile has the block
 *   KEYS_FREE[t][s]      4    scores[t]: done with K and grads          gather
 *   DX_FULL[t][i]        4    scores[t]: dX written                     sums
 *   DX_FREE[t][i]        4    sums: fragments loaded                    scores[t]
 * (Counts of 4 are of warps: common/warp_arrival.cuh.)
 * The sums read NUMBERS after DX_FULL; the gather overwrites them NUMBER_STAGES blocks later. By
 * then it has waited for the block STAGES before, and of the blocks before that one, at most two
 * per tile and the current one have not been read by the sums.
 *
 * Knobs: GROUP_QUERIES; legal values and the rule that picks it:
 * src/codegen/families/indexer_bwd_main_sm90.c.
 */

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct indexer_bwd_main_params params) {
    initialise_barriers();
    const int warpgroup = __shfl_sync((u32)ALL_LANES, (int)(threadIdx.x / WARPGROUP), 0);
    if (warpgroup < SUMS_WARPGROUP) {
        run_scores(&params, warpgroup);
    } else if (warpgroup == SUMS_WARPGROUP) {
        run_sums(&params);
    } else {
        run_gather(&params);
    }
}
