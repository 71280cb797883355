//@use common/base.cuh
//@use ptx/grid.cuh
//@use ptx/hint.cuh
//@use sparse_attn_bwd.params.h
//@use sparse_attn_bwd.sm90_in_step.cuh
//@use sparse_attn_bwd.sm90_exchange.cuh
//@use sparse_attn_bwd.sm90_rows.cuh
//@use sparse_attn_bwd.sm90_scores.cuh
//@use sparse_attn_bwd.sm90_gather.cuh
//@use sparse_attn_bwd.sm90_sums.cuh
/*
 * Sparse attention backward with wgmma: dq, and the sums (or partial rows) of dkv. Mathematics and
 * shapes: include/smelt/sparse_attn.h; groups, key lists and statistics: sparse_attn_bwd.params.h.
 *
 * An item is a group and BLOCK_HEADS (64) of its rows; a row is one head of one of the group's
 * queries: 64 heads of one query or, with few heads, QUERY_ROWS rows of each of GROUP_QUERIES
 * queries, one query after the other. The item's key list is processed in blocks of 64 keys, in
 * ascending or descending order (sparse_attn_bwd.sm90_in_step.cuh). For each block:
 *
 *   S = Q K^T, dP = dO K^T    [rows, keys]
 *   P = 2^(scale log2(e) S - base), dS = scale P (dP - delta)
 *   dQ  += dS K               [rows, DQK], in registers throughout the item
 *   dKV  = dS^T Q + P^T dO    [keys, DQK], added to dkv in global memory, or stored
 *
 * Grid: one CTA per multiprocessor; each takes every gridDim.x-th item, from the last one down. The
 * first items, too few to give every CTA one, may be split by keys into slices (split-K,
 * sparse_attn_bwd.slices.cuh): items with part of their keys, whose dq goes to `slices`. Items
 * without keys are not scheduled: the kernel zeroes their dq at its start. Three warpgroups:
 *
 *   scores   S and dP, tile by tile as the gather's copies land; P, dS; dQ's first columns, with dS
 *            as A from registers; copies the next block's K tiles 0 and 1 when those are done
 *   gather   the other columns of dQ; copies the next block's other K tiles as its wgmma groups
 *            complete; announces key blocks; Q and dO by tensor copies
 *   sums     dKV in chunks of 32 columns: P^T and dS^T as A from registers, dK and dV in one
 *            accumulator, two accumulators in turn; added to global memory from registers
 *
 * K has one stage, whose tiles are refilled one by one as they become free. dQ of 64 rows takes
 * more than half of the register file, which leaves no room for a fourth warpgroup (ptxas reserves
 * R0 to R23 of each), and dQ's columns are divided by the registers that each role has left. With
 * DQK = 576: 0 to 183 scores, 184 to 575 gather; with 512: 0 to 127, 128 to 511.
 *
 * Pairs: the two CTAs of a cluster process the halves of a query's heads side by side, and their
 * dKV is added to global memory once for both, or is one partial row: each CTA adds one half of
 * every tile's columns and sends its sums of the other half to the other CTA
 * (sparse_attn_bwd.sm90_exchange.cuh). With DQK = 576 the only room for them is P's tile
 * (RECEIVES_IN_P): the next block's P is stored once the last of them has been received, after dS
 * and the issue of dQ.
 *
 * Bottleneck: the path of the additions out of the multiprocessor (common/row_sums.cuh).
 *
 * With DETERMINISTIC, the kernel that sums the previous launch's partial rows may run on the
 * multiprocessors that the grid leaves free: it may start at once (programmatic dependent launch).
 *
 * Padded rows (heads past the last, queries of incomplete groups) have zeros for Q and dO and a
 * base of +inf, so that P and dS are 0. Keys past a list's end are zeros in K, and their P and dS
 * are zeroed; nothing is added for them. With groups, P and dS are 0 for keys that the row's query
 * does not have.
 *
 * Shared memory (offsets and sizes: the plan above). A tile is 64 rows of 64 columns, 128-byte
 * swizzled:
 *   QUERY          TILES tiles, rows by columns
 *   GRAD_OUT       VALUE_TILES tiles
 *   KEYS           TILES tiles, keys by columns
 *   PROBABILITIES  P, one tile, rows by keys; may hold the receive buffers
 *   DS             dS, the same
 *   RECEIVE        [RECEIVE_BUFFERS] the other CTA's sums of a chunk; pairs
 *   KEY_NUMBERS    [BLOCKS_AHEAD][64] the keys' numbers, -1: none
 *   ADDRESSES      [2][64] the global addresses of their rows, 0: none
 *   MASKS          [BLOCKS_AHEAD][64] bytes: which members have the key; groups
 *   WORDS          [BLOCKS_AHEAD] struct block_word
 *   CURSORS        [2] struct cursor
 *   SLICES         [3] struct cursor
 *   SPIN_LIMIT, STEP  int: sparse_attn_bwd.sm90_in_step.cuh
 *
 * Barriers (a block's parity is that of its number, counted over all items of the CTA; an item's
 * likewise):
 *   barrier       count  arrives                                  waits
 *   ANNOUNCED         4  gather: the next block's description is  scores
 *                        written
 *   KEYS_FULL[t]    128  scores (t = 0, 1) or gather: every       scores, gather
 *                        thread when its copies have landed;
 *                        for the first block the gather alone
 *   KEYS_FREE         4  scores: its part of dQ complete          gather, before the last tiles
 *   DS_FULL           4  scores: P and dS written                 gather, sums
 *   DS_FREE           8  sums: fragments loaded; gather: its      scores, before the next P
 *                        part of dQ complete
 *   QUERY_FULL[g]     1  gather: one thread, and the bytes of     scores, sums
 *                        part g of Q and dO
 *   QUERY_FREE[g]     4  sums: the last block's products with     gather, before the next item's
 *                        those tiles complete
 * With pairs:
 *   P_FULL            4  scores: P written                        sums
 *   P_FREE            4  sums: fragments loaded, last transfer    scores, before the next P
 *                        received
 *   RECEIVED[i]       1  sums: one thread, and the bytes of a     sums
 *                        chunk
 *   RECEIVE_FREE[i]   4  the other CTA's sums: its buffer i was   sums, before they send
 *                        read, or P loaded
 * (Counts are of warps where warps arrive: common/warp_arrival.cuh.)
 * A thread that reads through the async proxy data that others wrote with plain stores or cp.async
 * executes the proxy fence, after its wait. All threads synchronise when the first block is found,
 * and when it is announced.
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
    initialise_shared();
    zero_empty_items(&params);
    const int warpgroup = __shfl_sync((u32)ALL_LANES, (int)(threadIdx.x / WARPGROUP), 0);
    if (warpgroup == GATHER_WARPGROUP) {
        find_first_block(&params);
    }
    __syncthreads();
    if (warpgroup == GATHER_WARPGROUP) {
        announce_first_block(&params);
    }
    /* Here, not in each role: synccheck wants one instruction for all threads. */
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
        sync_pair(); /* neither CTA exits while the other may access its shared memory */
    }
}
