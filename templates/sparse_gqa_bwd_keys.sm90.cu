//@use common/base.cuh
//@use ptx/registers.cuh
//@use sparse_gqa_bwd_keys.block.params.h
//@use sparse_gqa_bwd_keys.sm90_shared.cuh
//@use sparse_gqa_bwd_keys.sm90_copies.cuh
//@use sparse_gqa_bwd_keys.sm90_tiles.cuh
/*
 * Backward pass of sparse_gqa with wgmma, block-stationary: a block of keys stays in shared memory,
 * and dK and dV of it in registers, while the queries that chose it pass by. Mathematics and shapes:
 * include/smelt/sparse_gqa.h. Items, units and pairs: sparse_gqa_items.params.h.
 *
 * A tile is 64 rows, heads of queries. Keys are the rows of the products of scores, 64 for each
 * warpgroup, so that P and dS are operands in registers:
 *
 *   S^T[64 keys, 64 rows] = K Q^T, dP^T = V dO^T; P^T = exp2(S^T - base), dS^T = P^T (dP^T - delta)
 *   dV[64, DV] += P^T dO, dK[64, DQK] += dS^T Q; dQ[64 rows, 64 columns at a time] = dS K
 *
 * dQ needs all keys of the block: the warpgroups of a block (PARTS, a team) write dS to shared memory
 * and divide dQ's columns among them. With blocks of 64 keys two teams take tiles in turn. Softmax
 * scales are applied to dQ and dK when they are stored.
 *
 * Nothing is added in global memory: dQ of each pair is stored in bf16 and, at an item's end, dK and
 * dV of each team in fp32; sparse_gqa_sums adds both in a fixed order.
 *
 * Grid: one CTA per multiprocessor; each takes every gridDim.x-th item. The last warpgroup's first
 * warp is the producer. An item's tiles are padded to a multiple of TEAMS with empty ones.
 *
 * KEY_PARTIALS of an item: for each warpgroup (team * PARTS + part) DQK / 8 vectors of dK, then DV / 8
 * of dV. Vector 2 * m + h of thread 32 * w + 4 * g + c: key 16 * w + g + 8 * h of the warpgroup's 64,
 * columns 16 * m + 2 * c, and the next, and 8 further both again.
 *
 * Shared memory (offsets and sizes: the plan above). A column tile is 64 columns, 128-byte swizzled:
 *   KEYS   [KEY_TILES][BLOCK_KEYS] rows of 128 bytes
 *   VALUES [VALUE_TILES][BLOCK_KEYS] rows
 *   QUERY  [STAGES][KEY_TILES][64] rows
 *   GRAD   [STAGES][VALUE_TILES][64] rows: dO
 *   DS [TEAMS][DS_BUFFERS][BLOCK_KEYS] rows of 64 columns, which are the tile's rows: dS^T
 *   ROWS   [STAGES][64][2] fp32: base and delta
 *   TILES  [STAGES] struct tile
 *
 * Barriers (parity counts uses; stages are used cyclically; a stage belongs to one team, since STAGES
 * is a multiple of TEAMS):
 *   barrier   count              arrives                                        waits
 *   FULL[s]   1                  producer, with the boxes' bytes                team
 *   EMPTY[s]  4 * PARTS          team: warps, all products of the tile complete producer
 *   KV_FULL   1                  producer, with the bytes of K and V            teams
 *   KV_EMPTY  4 * TEAMS * PARTS  teams: warps, an item's last products complete producer
 * (Counts are of warps: common/warp_arrival.cuh.) Named barrier TEAM_BARRIER + team, of the team: dS
 * is written.
 */

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct sparse_gqa_bwd_block_params params) {
    initialise_barriers();
    const int warpgroup = __shfl_sync((u32)ALL_LANES, (int)(threadIdx.x / WARPGROUP), 0);
    if (warpgroup == TEAMS * PARTS) {
        registers_decrease(PRODUCER_REGISTERS);
        if (threadIdx.x % WARPGROUP / 32 == 0) {
            run_producer(&params);
        }
    } else {
        registers_increase(CONSUMER_REGISTERS);
        run_consumer(&params, warpgroup / PARTS, warpgroup % PARTS);
    }
}
