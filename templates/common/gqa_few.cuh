//@use common/base.cuh
//@use common/few_item.cuh
//@use common/gqa_lists.cuh
//@use common/wgmma_tile.cuh
//@use common/work.cuh
/*
 * What common/few_ring.cuh asks of sparse_gqa's forward and backward pass alike: an item is a query and
 * one of its KV heads. With KEYS_LEAD a row's leading tiles are its key and the others its value, else
 * the other way about.
 */

/* A query, or -1: none; and one of its KV heads. */
struct few_item {
    int query;
    int head_block; /* of the query */
    int entry;      /* of the query list */
};

DEVICE struct few_item item_of(const struct few_params *params, const struct work *work) {
    (void)params;
    const struct few_item item = {work->query, work->head_block,
                                  work_entry((u32)maximum(work->item, 0))};
    return item;
}

DEVICE struct item_slots slots_of(const struct few_params *params, const struct work *work) {
    const int list = LISTS_OF_KV_HEADS ? work->head_block : 0;
    const struct item_slots slots = {gqa_list(&params->work, &params->lists, work->query, list),
                                     gqa_slots(&params->work, &params->lists, work->query, list),
                                     gqa_limit(&params->work, &params->lists, work->query)};
    return slots;
}

/* A head of the KV head's group, of all heads; padded heads repeat the last one. */
DEVICE int query_head(const struct few_item *item, int head) {
    return item->head_block * GROUP_HEADS + minimum(head, LAST_HEAD);
}

DEVICE const char *query_row(const struct few_params *params, const struct few_item *item,
                             int head) {
    const struct few_position at = position_of(&params->work, item->query);
    return (const char *)params->q +
           2 * (at.batch * params->q_batch_stride + at.token * params->q_token_stride +
                query_head(item, head) * params->q_head_stride);
}

/* ---- KV rows, for a copying thread ---- */

struct key_tensor {
    int batch, head;
};

DEVICE struct key_tensor tensor_of(const struct few_params *params, const struct few_item *item) {
    const struct key_tensor tensor = {query_batch(&params->work, item->query), item->head_block};
    return tensor;
}

struct key_source {
    const char *keys, *values; /* this thread's 16 bytes of row 0 */
};

struct key_row {
    u32 number;
};

DEVICE struct key_source open_source(const struct few_params *params,
                                     const struct key_tensor *tensor) {
    const u32 chunk = threadIdx.x % 8 * 16;
    const struct key_source source = {
        (const char *)params->k +
            2 * (tensor->batch * params->k_batch_stride + tensor->head * params->k_head_stride) +
            chunk,
        (const char *)params->v +
            2 * (tensor->batch * params->v_batch_stride + tensor->head * params->v_head_stride) +
            chunk};
    return source;
}

DEVICE struct key_row find_key_row(const struct few_params *params, const struct key_source *source,
                                   int number) {
    const struct key_row row = {(u32)number};
    (void)params, (void)source;
    return row;
}

/* Whether a tile of a block is the key's; its number among the key's or the value's tiles. */
DEVICE bool is_of_key(int tile) {
    return KEYS_LEAD == (tile < LEADING_TILES);
}

DEVICE int own_tile(int tile) {
    return tile < LEADING_TILES ? tile : tile - LEADING_TILES;
}

/* Whether a tile has this thread's 16 bytes of its rows. */
DEVICE bool has_chunk(int tile) {
    const int columns = (is_of_key(tile) ? DQK : DV) - own_tile(tile) * 64;
    return columns >= 64 || (int)(threadIdx.x % 8) < columns / 8;
}

DEVICE const char *row_chunk(const struct few_params *params, const struct key_source *source,
                             const struct key_row *row, int tile) {
    const bool of_key = is_of_key(tile);
    const i64 row_bytes = 2 * (of_key ? params->k_row_stride : params->v_row_stride);
    return (of_key ? source->keys : source->values) + (i64)row->number * row_bytes +
           (has_chunk(tile) ? own_tile(tile) * TILE_PITCH : 0);
}
