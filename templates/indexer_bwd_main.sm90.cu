//@use common/base.cuh
//@use indexer_bwd_main.params.h
//@use indexer_bwd_main.sm90_shared.cuh
//@use indexer_bwd_main.sm90_scores.cuh
//@use indexer_bwd_main.sm90_sums.cuh
//@use indexer_bwd_main.sm90_gather.cuh
/*
 * The indexer's backward pass with wgmma: dq, dweights, and the sums of dk.
 * Mathematics and shapes: include/smelt/indexer_bwd.h; what groups and lists are:
 * indexer_bwd_main.params.h.
 *
 * An item is a group: QUERY_ROWS rows (heads, padded) of each of its GROUP_QUERIES queries, one
 * after the other, in ROW_TILES tiles of 64 rows. Its list of keys is taken in blocks of 64. Of
 * each block and tile:
 *
 *   X = Q K^T                         [rows, keys]
 *   dX = grad w where X > 0, else 0
 *   dweights += sum over keys of grad max(X, 0)
 *   dQ += dX K                        [rows, DIM], in registers for all of the item
 *   dK  = dX^T Q                      [keys, DIM], of all tiles together: added to the rows in
 *                                     global memory, with DETERMINISTIC rounded before, so that
 *                                     additions are exact (common/grain.cuh)
 *
 * Neighbouring queries share most keys: one addition of a row of dk serves all of a group. A key
 * that a query lacks has a grad of 0 there.
 *
 * With GROUP_TILES 2 a list is in sections: keys of the first tile's queries alone, of both tiles',
 * of the second's alone. So each tile has a run of the list's blocks, and does nothing for others.
 * Blocks are taken from both ends by turns, so that neither tile waits while the other one has its
 * own section.
 *
 * Grid: one block a multiprocessor, each taking every gridDim.x-th group, from the last ones on.
 * Warpgroups:
 *
 *   scores[t]  of tile t: X, dX, dweights, dQ. X of the tile's next block and dQ of this one are in
 *              the tensor cores during the arithmetic of dX
 *   sums       dK in chunks of 32 columns: dX^T as A from registers, two accumulators in turn;
 *              added to global memory from registers
 *   gather     copies keys, their numbers and grads, STAGES blocks ahead; Q by tensor copies, an
 *              item ahead
 *
 * What binds: the additions' way out of the multiprocessor (common/row_sums.cuh); all else is to
 * fit beside them.
 *
 * Rows that do not exist (heads past the last, members that are not there) have zeros for Q, so
 * that X and dX are 0. Keys behind a list's end are zeros in K, so their X is 0 and dX, too; zeros
 * are added for them to the block's first key.
 *
 * Shared memory (offsets and sizes: the plan above). A tile is 64 rows of 64 columns, 128-byte
 * swizzled:
 *   QUERIES  [2][COLUMN_TILES][ROW_TILES] tiles, rows by columns: an item's, by turns
 *   KEYS     [STAGES][COLUMN_TILES] tiles, keys by columns
 *   SLOPES   [ROW_TILES][2] tiles, dX, rows by keys: of a tile's blocks, by turns
 *   GRADS    [STAGES][GROUP_QUERIES][64] fp32
 *   NUMBERS  [NUMBER_STAGES][64] the keys' numbers, -1: none
 *
 * Barriers (parities count uses; of KEYS those of a stage by a tile, in bits):
 *   barrier            count  who arrives                               who waits
 *   QUERIES_FULL[i]      1    gather, and the copies' bytes             scores, sums
 *   QUERIES_FREE[i]   4 each  scores, sums: done with the item          gather
 *   KEYS_FULL[t][s]    128    gather: every thread's copies have        scores[t]
 *                             landed, of a block that the tile has
 *   KEYS_FREE[t][s]      4    scores[t]: done with K and grads          gather
 *   SLOPES_FULL[t][i]    4    scores[t]: dX written                     sums
 *   SLOPES_FREE[t][i]    4    sums: fragments loaded                    scores[t]
 * (Counts are of warps where warps arrive: common/warp_arrival.cuh.)
 * NUMBERS are read by the sums behind SLOPES_FULL, and written again NUMBER_STAGES blocks later: by
 * then the gather has waited for a block STAGES before, and of those before that one no more than
 * two a tile, and the one at work, are ahead of the sums.
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
