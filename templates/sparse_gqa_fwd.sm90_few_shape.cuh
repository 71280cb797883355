//@use common/base.cuh
//@use sparse_gqa_fwd.params.h united = ITEM_QUERIES > 1
/* The constants that common/few_ring.cuh, common/few_tiles.cuh and common/few_heads.cuh ask of
 * sparse_gqa's forward pass. */
#define few_params sparse_gqa_fwd_params

enum {
    KEY_NUMBERS = ITEM_QUERIES > 1, /* with the masks of their readers */
                                    //@if ITEM_QUERIES == 1
    NUMBERS_OFFSET = 0,
    //@end
    SLOT_ROWS = GRANULARITY,
    TOPK = 0x7fffffff, /* a list has no more slots than may count */
    ITEM_HEADS = ITEM_QUERIES * GROUP_HEADS,
    QUERY_TILES = (DQK + 63) / 64,
    VALUE_TILES = (DV + 63) / 64,
    KEYS_LEAD = 1, /* the leading tiles are the key's */
    LEADING_TILES = QUERY_TILES,
    LEADING_PARTS = (LEADING_TILES + PART_TILES - 1) / PART_TILES,
    LEADING_COLUMN = 0,
    OUTPUT_COLUMNS = DV,
    STATISTICS_IN_TILE = 0,
    LAST_HEAD = ITEM_HEADS - 1
};
