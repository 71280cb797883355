//@use common/base.cuh
//@use sparse_gqa_fwd.sm90_few_source.cuh
//@use common/few_heads.cuh united = ITEM_QUERIES > 1
//@use sparse_gqa_fwd.params.h united = ITEM_QUERIES > 1
/*
 * Forward pass of sparse attention for grouped heads with wgmma, a query and one of its KV heads at a
 * time: gathered keys are the rows of the products, the heads of the KV head's group their columns.
 * Each CTA has two items in flight; one item's products hide the other's softmax and epilogue.
 * Mathematics and shapes: include/smelt/sparse_gqa.h; the roles, the ring and the math are those of
 * sparse_attn_fwd.sm90_few.cu (common/few_ring.cuh, common/few_heads.cuh).
 *
 * Grid: one CTA per multiprocessor; CTA b takes items b, b + gridDim.x, ... (common/work.cuh).
 *
 * A block is 64 rows of the list: its keys' tiles, then its values'. The keys' are released as soon as
 * S^T is complete. The ring binds, as there. An item's blocks depend on nothing but its list: a query's
 * results are the same bits whatever the other queries are.
 *
 * With ITEM_QUERIES above 1 an item is a group of so many neighbouring queries: its columns are the heads
 * of all, 48 for QSA. Each row of their united list (sparse_gqa.groups.params.h) is gathered once; a row's
 * number has a bit for each query that reads it, by which scores are masked. The gather then reads the
 * united lists only: 0.33 of the rows if a tenth of a list changes from query to query.
 *
 * Shared memory (offsets and sizes: the plan above): as in sparse_attn_fwd.sm90_few.cu; QUERY has
 * [2][QUERY_TILES] tiles, STATISTICS their own place. Columns of a last tile of which the tensor has
 * only 32 are zeros.
 *
 * Barriers: likewise, with FULL_PARTS parts of a block; EMPTY's part LEADING_PART is the keys'.
 *
 * Knobs: STAGES, PART_TILES, ITEM_QUERIES; legal values and the rule that picks them:
 * src/codegen/families/sparse_gqa_sm90_few.c.
 */

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct sparse_gqa_fwd_params params) {
    run_few_heads(&params);
}
