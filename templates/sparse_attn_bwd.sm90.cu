//@use common/base.cuh
//@use ptx/grid.cuh
//@use ptx/hint.cuh
//@use sparse_attn_bwd.params.h
//@use sparse_attn_bwd.sm90_blocks.cuh
//@use sparse_attn_bwd.sm90_exchange.cuh
//@use sparse_attn_bwd.sm90_rows.cuh
//@use sparse_attn_bwd.sm90_scores.cuh
//@use sparse_attn_bwd.sm90_gather.cuh
//@use sparse_attn_bwd.sm90_sums.cuh
/*
 * Sparse attention backward with wgmma: dq, and the sums (or partial rows) of dkv. Mathematics and
 * shapes: include/smelt/sparse_attn.h; what groups, lists and statistics are:
 * sparse_attn_bwd.params.h.
 *
 * An item is a group and BLOCK_HEADS (64) of its rows, a row being a head of one of the group's
 * queries: 64 heads of one query or, with few heads, QUERY_ROWS rows of each of GROUP_QUERIES
 * queries, one after the other. Its list of keys is taken in blocks of 64, upwards or downwards
 * ("In step", sparse_attn_bwd.sm90_blocks.cuh). Of each block:
 *
 *   S = Q K^T, dP = dO K^T    [rows, keys]
 *   P = 2^(scale log2(e) S - base), dS = scale P (dP - delta)
 *   dQ  += dS K               [rows, DQK], in registers for all of the item
 *   dKV  = dS^T Q + P^T dO    [keys, DQK], added to the rows in global memory, or stored
 *
 * Grid: one block a multiprocessor, each taking every gridDim.x-th item, from the last ones on; the
 * first ones, too few for all, may be cut into slices (sparse_attn_bwd.slices.cuh), which are items
 * with a part of their keys, whose dq goes to `slices`.
 * Items without keys take no part: their dq is zeroed at the very beginning. Three warpgroups:
 *
 *   scores   S and dP, tile by tile behind the gather, P, dS; dQ's first columns, A = dS from its
 *            registers; copies the next block's K tiles 0 and 1 when those are done
 *   gather   the other columns of dQ; copies the next block's other K tiles as its groups of
 *            columns are done; announces key blocks; Q and dO by tensor copies
 *   sums     dKV in chunks of 32 columns: P^T and dS^T as A from registers, dK and dV in one
 *            accumulator, two accumulators in turn; added to global memory from registers
 *
 * There is one stage of K: its tiles are filled one by one as they fall free. dQ of 64 rows fills
 * more than half of the register file, so that no fourth warpgroup fits (ptxas puts no accumulator
 * below R24 of each), and the columns of dQ are divided to make the most of what each role has
 * left. With DQK = 576: 0 to 183 scores, 184 to 575 gather; with 512: 0 to 127, 128 to 511.
 *
 * Pairs: the two thread blocks of a cluster take the halves of a query's heads side by side, and
 * their dKV is added to global memory once for both, or is one partial row: each adds one half of
 * every tile's columns, and sends its sums of the other half to the other one
 * (sparse_attn_bwd.sm90_exchange.cuh). With DQK = 576 there is no room but P's tile for them to
 * land in (LANDS_IN_P): P of the next block is stored when the last of them was taken, behind dS
 * and the issue of dQ.
 *
 * What binds: the additions' way out of the multiprocessor (common/row_sums.cuh).
 *
 * With DETERMINISTIC the sums of the launch's before may run on the multiprocessors that the grid
 * leaves free: they are let begin at once.
 *
 * Rows that do not exist (heads past the last, queries of groups that are not full) have zeros for
 * Q and dO, and a base of +inf: P and dS are 0. Keys behind a list's end are zeros in K, and their
 * dS are zeroed; nothing is added for them. With groups P and dS are 0 where the key is not of the
 * row's query.
 *
 * Shared memory (offsets and sizes: the plan above). A tile is 64 rows of 64 columns, 128-byte
 * swizzled:
 *   QUERY          TILES tiles, rows by columns
 *   GRAD_OUT       VALUE_TILES tiles
 *   KEYS           TILES tiles, keys by columns
 *   PROBABILITIES  P, one tile, rows by keys; of pairs what the other thread block sends
 *   SLOPES         dS, the same
 *   NUMBERS        [BLOCKS_AHEAD][64] the keys' numbers, -1: none
 *   ADDRESSES      [2][64] where their rows lie, 0: none
 *   MASKS          [BLOCKS_AHEAD][64] bytes: which members have the key; with groups
 *   WORDS          [BLOCKS_AHEAD] struct block_word
 *   CURSORS        [2] struct cursor
 *   SLICES         [3] struct cursor
 *   PATIENCE, STEP int: see keep_in_step
 *
 * Barriers (a block's parity: its number, counted over all items of the thread block; an item's the
 * same):
 *   barrier       count  who arrives                              who waits
 *   ANNOUNCED         4  gather: the next block's numbers and     scores
 *                        word are written
 *   KEYS_FULL[t]    128  scores (t = 0, 1) or gather: every       scores, gather
 *                        thread when its copies have landed;
 *                        of the first block gather alone
 *   KEYS_FREE         4  scores: its part of dQ complete          gather, before the last tiles
 *   SLOPES_FULL       4  scores: P and dS written                 gather, sums
 *   SLOPES_FREE       8  sums: fragments loaded; gather: its      scores, before the next P
 *                        part of dQ complete
 *   QUERY_FULL[g]     1  gather: one thread, and the bytes of     scores, sums
 *                        part g of Q and dO
 *   QUERY_FREE[g]     4  sums: the last block's products with     gather, before the next item's
 *                        those tiles complete
 * and of pairs:
 *   PROBABILITIES_FULL  4  scores: P written                      sums
 *   PROBABILITIES_FREE  4  sums: fragments loaded, and what       scores, before the next P
 *                          landed taken
 *   LANDED[i]           1  sums: one thread, and the bytes of a   sums
 *                          landing
 *   LANDING_FREE[i]     4  the other block's sums: what landed    sums, before they send
 *                          there was taken, or P loaded
 * (Counts are of warps where warps arrive: common/warp_arrival.cuh.)
 * Only who reads through the async proxy what others wrote by plain stores or cp.async has the
 * fence, after the wait. Named barriers: 1 the scores' warpgroup, 2 the gather's. All meet
 * when the first block is found, and when it is announced.
 *
 * Knobs: GROUP_QUERIES; legal values and the rule that picks it:
 * src/codegen/families/sparse_attn_bwd_sm90.c.
 */

enum { SCORES_WARPGROUP = 0, GATHER_WARPGROUP = 1 };

KERNEL void CLUSTERED __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct sparse_attn_bwd_params params) {
    if (DETERMINISTIC && threadIdx.x == 0) {
        grid_launch_dependents();
    }
    initialise_barriers();
    zero_empty_items(&params);
    const int warpgroup = __shfl_sync((u32)ALL_LANES, (int)(threadIdx.x / WARPGROUP), 0);
    if (warpgroup == GATHER_WARPGROUP) {
        find_first_block(&params);
    }
    __syncthreads();
    if (warpgroup == GATHER_WARPGROUP) {
        announce_first_block(&params);
    }
    /* Here, and not by a barrier in each role: it is to be one instruction for all (synccheck). */
    __syncthreads();
    if (block_word(0)->item < 0) {
        if (params.step && threadIdx.x == 0) {
            hint_add(params.progress, ENDED);
        }
    } else if (warpgroup == SCORES_WARPGROUP) {
        run_scores(&params);
    } else if (warpgroup == GATHER_WARPGROUP) {
        run_gather(&params);
    } else {
        run_sums(&params);
    }
    if (PAIR) {
        meet_pair(); /* neither ends while the other may reach into it */
    }
}
