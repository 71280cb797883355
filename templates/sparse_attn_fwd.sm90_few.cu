//@use common/base.cuh
//@use sparse_attn_fwd.sm90_few_source.cuh
//@use common/few_heads.cuh united = 0
//@use sparse_attn_fwd.params.h
/*
 * Sparse attention forward with wgmma for at most 32 heads: keys are the rows of the products and
 * heads their columns, so that no product is padded to 64 heads. Each CTA has two queries in
 * flight; one query's products hide the other's softmax and epilogue. Mathematics and shapes:
 * include/smelt/sparse_attn.h.
 *
 * Grid: one CTA per multiprocessor; CTA b takes queries b, b + gridDim.x, ... (common/work.cuh).
 *
 *   role     warps            work
 *   math     two warpgroups   each has one query, from its first key block to its output:
 *                               S^T[BLOCK_KEYS, BLOCK_HEADS] = K Q^T, softmax down the columns
 *                               O^T[DV, BLOCK_HEADS] += V^T P^T, in registers, DV / 64 slices of
 *                               64 rows
 *   gather   one warpgroup    common/few_ring.cuh: one warp scans the slots of both queries
 *                             and requests their key blocks alternately; two warps copy
 *                             the rows as far ahead as the ring allows. A math warpgroup that
 *                             finishes its query takes the CTA's next one
 *
 * The math is in common/few_heads.cuh. The ring binds: gather bandwidth is the bytes in flight over the time from a byte's load to its
 * last use. So a key block is loaded, used and released in parts of PART_TILES tiles of 64 columns:
 * K Q^T starts on the first part while the others are in flight, and each finished part of V^T P^T
 * frees room for a part of a later block. The ring consists of tiles, not of whole blocks, so that
 * it fills shared memory.
 *
 * Every query has at least one key block, possibly empty. Its blocks do not depend on the other
 * query: the same keys are summed in the same order. P is relative to a head's maximum, which is
 * exact when it is taken, so that the largest P is 1 and loses nothing when it is rounded to bf16;
 * it is updated only when the true maximum exceeds it by more than RESCALE_THRESHOLD (in powers of
 * two).
 *
 * Shared memory (offsets and sizes: the plan above). A tile is rows of 64 columns, 128-byte
 * swizzled:
 *   KEYS       [RING_TILES] tiles of BLOCK_KEYS rows, a ring: a block's tiles
 *              follow each other, its rope columns first. A query's last block
 *              then holds the statistics, if it has rope columns, and the output
 *              on its way to global memory
 *   QUERY      [2][DQK / 64] tiles of BLOCK_HEADS rows
 *   P          [2] tiles of BLOCK_HEADS heads by BLOCK_KEYS keys
 *   STATISTICS [2][STATISTICS][BLOCK_HEADS] fp32: exchanged by the warps of a
 *              warpgroup; with rope columns they are in their block's first
 *              tile, once S^T is complete
 *   WORDS      [RING_BLOCKS]: struct block_word
 *   REQUESTS   [REQUESTS]: struct request
 *   RING       [2]: common/warp_slots.cuh; RANGE: common/work.cuh
 *
 * Barriers (parity counts uses; b: block number % RING_BLOCKS; m: the math warpgroup. Each of the
 * two has its own FULL barriers, because it waits for its own blocks only and would miss phases of
 * a shared barrier):
 *   barrier           count  arrives                                    waits
 *   READY[r]              1  gather: the scan, request r is posted      copies
 *   TAKEN[r]              2  gather: copies, its row numbers are read   scan
 *   FULL[b][part][m]     64  copies: every thread when they have        math warpgroup m
 *                            landed; the first part: and one for the
 *                            word, 65
 *   EMPTY[b][part]        4  math: the block's warps; of the rope       copies, as the head of
 *                            columns one of their own common/few_ring.cuh says
 *   QUERY_FULL[m]       128  math: every thread when its copies have    math warpgroup m
 *                            landed
 * (Counts are of warps where warps arrive: common/warp_arrival.cuh.)
 * Named barriers: MATH_BARRIER and the next, one per math warpgroup.
 *
 * Knobs: STAGES, PART_TILES, the registers of each role; legal values and the rule that picks them:
 * src/codegen/families/sparse_attn_fwd_sm90_few.c.
 */

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct sparse_attn_fwd_params params) {
    run_few_heads(&params);
}
