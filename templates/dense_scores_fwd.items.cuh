//@use common/base.cuh
//@use common/logit.cuh
//@use dense_scores_fwd.params.h
/* Items of dense_scores_fwd, and what every variant does with a query's sums. */

enum {
    GROUP_HEADS = HEADS / KV_HEADS, /* that read one key head */
    ROUNDS = (GROUP_HEADS + QUERY_ROWS - 1) / QUERY_ROWS,
    SLAB_QUERIES = TILE_QUERIES / SLABS,
    QUERY_TILES = QUERY_ROWS / 8, /* n8 tiles of a query */
    ITEM_QUERIES = ITEM_TILES * TILE_QUERIES
};

struct item {
    int first_query, first_key;
    int queries, keys; /* at most ITEM_QUERIES and BLOCK_KEYS */
    int key_head;
};

/* The item's tiles with a query that has one of its keys, a bit each. By whole warps, one lane per
 * tile. */
DEVICE u32 tiles_with_keys(const struct dense_scores_fwd_params *params, const struct item *item) {
    const int tile = (int)threadIdx.x % 32;
    bool any = false;
    for (int i = 0; i < TILE_QUERIES && tile < ITEM_TILES; ++i) {
        const int query = tile * TILE_QUERIES + i;
        if (query < item->queries) {
            const struct key_range window = window_among(
                params->window_begin[item->first_query + query],
                params->window_end[item->first_query + query], item->first_key, item->keys);
            any |= window.begin < window.end;
        }
    }
    return __ballot_sync((u32)ALL_LANES, any);
}

/* Sums two values over a quad: lanes with an even `bit` get that of x, the others that of y. */
DEVICE float exchange(float x, float y, int bit) {
    const bool odd = threadIdx.x & (u32)bit;
    return (odd ? y : x) + __shfl_xor_sync((u32)ALL_LANES, odd ? x : y, bit);
}

/* Whether a query's probabilities are added to what an earlier round wrote. */
DEVICE bool adds_to(int key_head, int round) {
    return KV_HEADS * ROUNDS > 1 && key_head + round > 0;
}

/* The number of items, and number `number` of them. */
DEVICE i64 count_items(const struct dense_scores_fwd_params *params) {
    return (i64)((params->rows - 1) / BLOCK_KEYS + 1) * ((params->tokens - 1) / ITEM_QUERIES + 1);
}

DEVICE struct item find_item(const struct dense_scores_fwd_params *params, i64 number) {
    const int key_blocks = (params->rows - 1) / BLOCK_KEYS + 1;
    const int first_query = (int)(number / key_blocks) * ITEM_QUERIES;
    const int first_key = (int)(number % key_blocks) * BLOCK_KEYS;
    const struct item item = {first_query, first_key,
                              minimum(params->tokens - first_query, ITEM_QUERIES),
                              minimum(params->rows - first_key, BLOCK_KEYS), 0};
    return item;
}
