//@use common/base.cuh
//@use ptx/registers.cuh
//@use sparse_gqa_fwd.block.params.h
//@use sparse_gqa_fwd.sm90_shared.cuh
//@use sparse_gqa_fwd.sm90_copies.cuh
//@use sparse_gqa_fwd.sm90_tiles.cuh
/*
 * Forward pass of sparse_gqa with wgmma, block-stationary: a block of keys stays in shared memory
 * while the queries that chose it pass by. Mathematics and shapes: include/smelt/sparse_gqa.h.
 *
 * An item is a KV head and a segment of a list of the reverse index (sparse_gqa_lists.params.h): a
 * block of BLOCK_KEYS keys and up to SEGMENT queries that chose it. Its rows are the heads of these
 * queries that read the KV head, GROUP_HEADS of each, padded to UNITS times 8. A tile is 64 rows.
 * Each tile is independent:
 *
 *   S[64, BLOCK_KEYS] = Q K^T, masked at the queries' limits; P = exp2(S - max); O = P V / sum
 *
 * O and the logarithm of the sum are partial results of a query, which sparse_gqa_merge combines.
 *
 * Grid: one CTA per multiprocessor; each takes every gridDim.x-th item. CONSUMERS warpgroups take
 * tiles in turn, so that the softmax of one overlaps the products of the others. The last
 * warpgroup's first warp is the producer: it copies K and V of items and Q of tiles, by tensor
 * copies, across items. An item's tiles are padded to a multiple of CONSUMERS with empty ones.
 *
 * O leaves in the order of the accumulators: a warp's 16 rows are two units, and each of a unit's
 * stores covers 512 contiguous bytes.
 *
 * Shared memory (offsets and sizes: the plan above). A column tile is 64 columns, 128-byte swizzled:
 *   KEYS   [KV_BUFFERS][KEY_TILES][BLOCK_KEYS] rows of 128 bytes
 *   VALUES [KV_BUFFERS][VALUE_TILES][BLOCK_KEYS] rows
 *   QUERY  [STAGES][KEY_TILES][64] rows
 *   TILES  [STAGES] struct tile
 *
 * Barriers (parity counts uses; stages and buffers are used cyclically; a stage belongs to one
 * consumer, since STAGES is a multiple of CONSUMERS):
 *   barrier      count          arrives                                   waits
 *   FULL[s]      1              producer, with the boxes' bytes           consumer
 *   EMPTY[s]     4              consumer: warps, Q K^T complete           producer
 *   KV_FULL[b]   1              producer, with the bytes of K and V       consumers
 *   KV_EMPTY[b]  4 * CONSUMERS  consumers: warps, their last tile's P V   producer
 *                               is complete
 * (Counts are of warps: common/warp_arrival.cuh.)
 *
 * Knobs: consumers, segment: src/codegen/families/sparse_gqa_sm90.c.
 */

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct sparse_gqa_block_params params) {
    initialise_barriers();
    const int warpgroup = __shfl_sync((u32)ALL_LANES, (int)(threadIdx.x / WARPGROUP), 0);
    if (warpgroup == CONSUMERS) {
        registers_decrease(PRODUCER_REGISTERS);
        if (threadIdx.x % WARPGROUP / 32 == 0) {
            run_producer(&params);
        }
    } else {
        registers_increase(CONSUMER_REGISTERS);
        run_consumer(&params, warpgroup);
    }
}
