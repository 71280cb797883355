//@use common/base.cuh
//@use sparse_gqa_bwd.params.h
/* The constants that common/few_ring.cuh and common/few_tiles.cuh ask of sparse_gqa's backward pass: an
 * item's heads have q's tiles, then grad_out's. */
#define few_params sparse_gqa_bwd_params

enum {
    KEY_NUMBERS = 1,
    SLOT_ROWS = GRANULARITY,
    TOPK = 0x7fffffff, /* a list has no more slots than may count */
    ITEM_HEADS = GROUP_HEADS,
    KEY_COLUMN_TILES = (DQK + 63) / 64,
    VALUE_COLUMN_TILES = (DV + 63) / 64,
    QUERY_TILES = KEY_COLUMN_TILES + VALUE_COLUMN_TILES,
    KEYS_LEAD = 0, /* V, of which dP alone is computed, leads */
    VALUE_TILES = KEY_COLUMN_TILES,
    LEADING_TILES = VALUE_COLUMN_TILES,
    LEADING_PARTS = (LEADING_TILES + PART_TILES - 1) / PART_TILES,
    LEADING_COLUMN = KEY_COLUMN_TILES,
    OUTPUT_COLUMNS = DQK,
    LAST_HEAD = GROUP_HEADS - 1
};
