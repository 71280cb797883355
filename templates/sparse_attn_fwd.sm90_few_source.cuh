//@use common/base.cuh
//@use common/few_item.cuh
//@use common/wgmma_tile.cuh
//@use common/work.cuh
//@use ptx/prefetch.cuh
//@use sparse_attn_fwd.params.h
/*
 * What common/few_ring.cuh, common/few_tiles.cuh and common/few_heads.cuh ask of sparse_attn: an item is a query. A KV row is
 * a key, and its first DV columns are the value; the rope columns behind them are the leading tiles.
 */
#define few_params sparse_attn_fwd_params

enum {
    KEY_NUMBERS = 0,
    NUMBERS_OFFSET = 0,
    SLOT_ROWS = 1,
    ITEM_HEADS = HEADS,
    QUERY_TILES = DQK / 64,
    VALUE_TILES = DV / 64,
    LEADING_TILES = QUERY_TILES - VALUE_TILES, /* the rope columns */
    LEADING_PARTS = 0,
    LEADING_COLUMN = VALUE_TILES,
    OUTPUT_COLUMNS = DV,
    STATISTICS_IN_TILE = LEADING_TILES > 0,
    LAST_HEAD = HEADS - 1
};

/* A query, or -1: none. */
struct few_item {
    int query;
};

DEVICE struct few_item item_of(const struct few_params *params, const struct work *work) {
    (void)params;
    const struct few_item item = {work->query};
    return item;
}

DEVICE struct item_slots slots_of(const struct few_params *params, const struct work *work) {
    const struct item_slots slots = {work_row(&params->work, work), work_slots(&params->work, work),
                                     params->work.rows};
    return slots;
}

/* The row of a query's head in Q. Padded heads repeat the last one; their results are discarded. */
DEVICE const char *query_row(const struct few_params *params, const struct few_item *item,
                             int head) {
    const struct few_position at = position_of(&params->work, item->query);
    return (const char *)params->q +
           2 * (at.batch * params->q_batch_stride + at.token * params->q_token_stride +
                minimum(head, LAST_HEAD) * params->q_head_stride);
}

DEVICE bool has_query_chunk(const struct few_params *params, const struct few_item *item, int head,
                            int chunk) {
    (void)params, (void)item, (void)head, (void)chunk;
    return true;
}

DEVICE const char *query_chunk(const struct few_params *params, const struct few_item *item,
                               int head, int chunk) {
    return query_row(params, item, head) + chunk * 16;
}

DEVICE void prefetch_head(const struct few_params *params, const struct few_item *item, int head) {
    prefetch_l2(query_row(params, item, head), DQK * 2);
}

/* ---- KV rows, for a copying thread ---- */

struct key_tensor {
    int batch;
};

DEVICE struct key_tensor tensor_of(const struct few_params *params, const struct few_item *item) {
    const struct key_tensor tensor = {query_batch(&params->work, item->query)};
    return tensor;
}

struct key_source {
    const char *rows; /* this thread's 16 bytes of row 0 */
};

struct key_row {
    const char *from; /* 16 bytes of the first columns */
};

DEVICE struct key_source open_source(const struct few_params *params,
                                     const struct key_tensor *tensor) {
    const struct key_source source = {(const char *)params->kv +
                                      2 * (tensor->batch * params->kv_batch_stride) +
                                      threadIdx.x % 8 * 16};
    return source;
}

DEVICE struct key_row find_key_row(const struct few_params *params, const struct key_source *source,
                                   int number, bool any) {
    const struct key_row row = {source->rows + (u64)(u32)number * params->kv_row_bytes};
    (void)any;
    return row;
}

DEVICE const char *row_chunk(const struct few_params *params, const struct key_source *source,
                             const struct key_row *row, int tile) {
    (void)params, (void)source;
    return row->from +
           (tile < LEADING_TILES ? LEADING_COLUMN + tile : tile - LEADING_TILES) * TILE_PITCH;
}

DEVICE bool has_chunk(int tile) {
    (void)tile;
    return true;
}

/* ---- results ---- */

DEVICE float head_sink(const struct few_params *params, const struct few_item *item, int head) {
    (void)item;
    return params->sink[minimum(head, LAST_HEAD)];
}

DEVICE bool wants_maxima(const struct few_params *params) {
    return params->max_logits != 0;
}

DEVICE void store_head(const struct few_params *params, const struct few_item *item, int head,
                       float lse, float maximum) {
    const struct few_position at = position_of(&params->work, item->query);
    params->lse[at.batch * params->lse_batch_stride + at.token * params->lse_token_stride +
                head * params->lse_head_stride] = lse;
    if (params->max_logits) {
        params->max_logits[at.batch * params->max_logits_batch_stride +
                           at.token * params->max_logits_token_stride +
                           head * params->max_logits_head_stride] = maximum;
    }
}

DEVICE struct output_rows find_output(const struct few_params *params,
                                      const struct few_item *item) {
    const struct few_position at = position_of(&params->work, item->query);
    const struct output_rows rows = {
        (char *)params->out +
            2 * (at.batch * params->out_batch_stride + at.token * params->out_token_stride),
        2 * params->out_head_stride};
    return rows;
}
