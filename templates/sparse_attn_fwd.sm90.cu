//@use common/base.cuh
//@use common/work.cuh
//@use sparse_attn_fwd.params.h
//@use sparse_attn_fwd.sm90_shared.cuh
//@use sparse_attn_fwd.sm90_gather.cuh
//@use sparse_attn_fwd.sm90_scores.cuh
//@use sparse_attn_fwd.sm90_output.cuh
/*
 * Sparse attention forward with wgmma, 64 heads at a time: heads are the rows of the products.
 * Mathematics and shapes: include/smelt/sparse_attn.h.
 *
 * Grid: one CTA per multiprocessor; each takes every gridDim.x-th item (a query and 64 of its
 * heads; common/work.cuh), so that the two halves of a query's 128 heads run at the same time. Four
 * warpgroups; they synchronise only through the barriers below:
 *
 *   scores   S[64, 64] = Q K^T and its softmax; most of Q stays in registers, the rest in QUERY
 *   output   two of them, DV / 2 columns each: O[64, DV / 2] += P V, in registers
 *   gather   scans the slots and copies their KV rows, STAGES key blocks ahead, across queries
 *
 * Q travels through the ring of stages like a key block, its heads as the rows; the scores'
 * warpgroup takes it out at once. The next query's slots, Q and first KV rows are in flight while
 * the last blocks are computed, and its first scores are computed while O is written.
 *
 * P is relative to a row's maximum, which starts as the exact maximum of the first key block: the
 * largest P there is 1 and loses nothing when it is rounded to bf16. It changes only when the exact
 * maximum exceeds it by more than RESCALE_THRESHOLD, and then by an integer (in powers of two), so
 * that the factor of O's rows is a power of two and fits into a byte.
 *
 * Shared memory (offsets and sizes: the plan above). A tile is 64 rows of 64 columns, 128-byte
 * swizzled:
 *   LATENT         [STAGES][LATENT_TILES] tiles: the columns that are key and value
 *   ROPE           one tile: the columns that are key alone
 *   PROBABILITIES  [P_BUFFERS] tiles: P, BLOCK_HEADS by BLOCK_KEYS
 *   QUERY          [STEPS - REGISTER_STEPS][BLOCK_HEADS][16]: Q's last k-steps, 32-byte swizzled
 *   EXPONENTS      [P_BUFFERS][BLOCK_HEADS] bytes: the factors of O's rows before P V
 *   DENOMINATORS   [P_BUFFERS][BLOCK_HEADS] fp32: with a query's last block; 0: no valid slot
 *   WORDS          [STAGES]: a key block's word (count, FIRST_BLOCK, LAST_BLOCK)
 *   RING, COUNTS   common/warpgroup_slots.cuh
 *   RANGE          common/work.cuh
 *
 * Barriers (parity counts uses; stages and buffers are used cyclically, a stage s by key blocks and
 * Q, a buffer b by key blocks only):
 *   barrier      count  arrives                                       waits
 *   FULL[s]       129   gather: every thread when its copies have     scores
 *                       landed, one for the word
 *   ROPE_FULL     128   gather: every thread when its copies landed   scores, before those k-steps
 *   ROPE_FREE       4   scores: warps, Q K^T complete, or Q taken     gather
 *   P_FULL[b]       4   scores: warps, P and its exponents written    output
 *   ORDER[b]        4   scores: warps, next Q K^T almost issued (or   output, before P V, so that
 *                       at once after a query's last block)           Q K^T need not share
 *   P_FREE[b]       8   output: warps, P V complete                   scores, before the next P
 *   EMPTY_LOW[s]    8   output: warps, rows 0 to 31 used; of Q's      gather
 *                       stage the scores' warps twice each, Q taken
 *   EMPTY_HIGH[s]   8   the same, all rows                            gather
 * (Counts are of warps where warps arrive: common/warp_arrival.cuh.)
 * A warpgroup whose wgmma reads (async proxy) data that others wrote with plain stores or cp.async
 * executes the proxy fence, after its wait. On the writer's side the fence would wait for all of the
 * writer's loads and stores.
 *
 * Knobs: STAGES, PV_OVERLAP, OUTPUT_REGISTERS and GATHER_REGISTERS (and with them the scores' and
 * REGISTER_STEPS); legal values and the rule that picks them:
 * src/codegen/families/sparse_attn_fwd_sm90.c.
 */

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct sparse_attn_fwd_params params) {
    begin_grid(&params.work);
    initialise_barriers();
    const int warpgroup = __shfl_sync((u32)ALL_LANES, (int)(threadIdx.x / WARPGROUP), 0);
    if (warpgroup == SCORES_WARPGROUP) {
        run_scores(&params);
    } else if (warpgroup < GATHER_WARPGROUP) {
        run_output(&params, warpgroup - OUTPUT_WARPGROUP);
    } else {
        run_gather(&params);
    }
    end_grid(&params.work);
}
