//@use common/base.cuh
//@use common/few_item.cuh
//@use common/gqa_lists.cuh
//@use common/wgmma_tile.cuh
//@use common/work.cuh
//@use ptx/prefetch.cuh
//@use ptx/redux.cuh
//@use sparse_gqa_bwd_keys.few.params.h
/*
 * What common/few_ring.cuh and common/few_tiles.cuh ask of sparse_gqa's gradients by key. The roles of
 * queries and keys are exchanged: an item ("query") is a block of keys of one KV head, its keys are the
 * heads, and what is gathered ("keys") are the heads of the queries that chose the block. An entry of
 * its list has GROUP_HEADS rows, so that row number n is head n % GROUP_HEADS of entry n / GROUP_HEADS
 * of the query list. A row's tiles are q's, then grad_out's.
 */
#define few_params sparse_gqa_bwd_few_params

enum {
    KEY_NUMBERS = 1,
    SLOT_ROWS = GROUP_HEADS,
    TOPK = 0x7fffffff, /* a list has no more slots than may count */
    ITEM_HEADS = GRANULARITY,
    KEY_COLUMN_TILES = (DQK + 63) / 64,
    VALUE_COLUMN_TILES = (DV + 63) / 64,
    QUERY_TILES = KEY_COLUMN_TILES + VALUE_COLUMN_TILES,
    LEADING_TILES = 0,
    LEADING_PARTS = 0,
    LEADING_COLUMN = 0,
    VALUE_TILES = QUERY_TILES
};

/* A block of keys, or -1: none. */
struct few_item {
    int query; /* its number (sparse_gqa_bwd_keys.few.params.h) */
    int table; /* batch * KV_HEADS + KV head */
    int first; /* row of the table */
    int reach; /* the end: each row from `first` on and below it is read by some query */
};

/* A block's part of the reverse index. */
struct chosen {
    const int *entries;
    int count;
};

DEVICE struct chosen find_chosen(const struct few_params *params, int number) {
    const struct sparse_gqa_bwd_params *const pass = &params->pass;
    const int table = number / pass->blocks, block = number - table * pass->blocks;
    const int list = LISTS_OF_KV_HEADS ? number : table / KV_HEADS * pass->blocks + block;
    const int start = pass->starts[list], begin = start + params->begin[list];
    const int end = params->end ? start + params->end[list] : pass->starts[list + 1];
    const struct chosen chosen = {pass->queries + begin, end - begin};
    return chosen;
}

/* The query of an entry, and how many rows it may read. */
DEVICE int entry_query(const struct sparse_gqa_bwd_params *pass, int entry) {
    return pass->work.queries ? pass->work.queries[entry] : entry;
}

DEVICE int entry_limit(const struct sparse_gqa_bwd_params *pass, int entry) {
    return pass->lists.limit ? gqa_limit(&pass->work, &pass->lists, entry_query(pass, entry))
                             : pass->work.rows;
}

/* The greatest limit of the queries that chose a block, up to `end`. The last one's is looked at first:
 * limits mostly ascend. By a warp. */
DEVICE int find_reach(const struct sparse_gqa_bwd_params *pass, const struct chosen *chosen,
                      int end) {
    int reach = chosen->count > 0 ? entry_limit(pass, chosen->entries[chosen->count - 1]) : 0;
    if (reach < end) {
        for (int i = (int)(threadIdx.x % 32); i < chosen->count; i += 32) {
            reach = maximum(reach, entry_limit(pass, chosen->entries[i]));
        }
        reach = (int)warp_reduce_max((u32)reach);
    }
    return minimum(reach, end);
}

DEVICE struct few_item item_of(const struct few_params *params, const struct work *work) {
    struct few_item item = {work->query};
    if (work->query >= 0) {
        const struct chosen chosen = find_chosen(params, work->query);
        item.table = work->query / params->pass.blocks;
        item.first = (work->query - item.table * params->pass.blocks) * GRANULARITY;
        item.reach = find_reach(&params->pass, &chosen,
                                minimum(item.first + GRANULARITY, params->pass.work.rows));
    }
    return item;
}

DEVICE struct item_slots slots_of(const struct few_params *params, const struct work *work) {
    const struct chosen chosen = find_chosen(params, work->query);
    const struct item_slots slots = {chosen.entries, chosen.count, 0x7fffffff};
    return slots;
}

/* ---- the block's keys and values ---- */

DEVICE i64 item_batch(const struct few_item *item) {
    return item->table / KV_HEADS;
}

DEVICE i64 item_head(const struct few_item *item) {
    return item->table % KV_HEADS;
}

/* Rows that no query reads repeat the last one that a query reads; their products are discarded. */
DEVICE i64 item_row(const struct few_item *item, int key) {
    return minimum(item->first + key, item->reach - 1);
}

DEVICE const char *key_row_of(const struct few_params *params, const struct few_item *item,
                              int key) {
    const struct sparse_gqa_bwd_params *const pass = &params->pass;
    return (const char *)pass->k +
           2 * (item_batch(item) * pass->k_batch_stride + item_head(item) * pass->k_head_stride +
                item_row(item, key) * pass->k_row_stride);
}

DEVICE const char *value_row_of(const struct few_params *params, const struct few_item *item,
                                int key) {
    const struct sparse_gqa_bwd_params *const pass = &params->pass;
    return (const char *)pass->v +
           2 * (item_batch(item) * pass->v_batch_stride + item_head(item) * pass->v_head_stride +
                item_row(item, key) * pass->v_row_stride);
}

DEVICE bool has_query_chunk(const struct few_params *params, const struct few_item *item, int head,
                            int chunk) {
    (void)params, (void)head;
    const int own = chunk < KEY_COLUMN_TILES * 8 ? chunk : chunk - KEY_COLUMN_TILES * 8;
    return own < (chunk < KEY_COLUMN_TILES * 8 ? DQK : DV) / 8 && item->reach > item->first;
}

DEVICE const char *query_chunk(const struct few_params *params, const struct few_item *item,
                               int head, int chunk) {
    return chunk < KEY_COLUMN_TILES * 8
               ? key_row_of(params, item, head) + chunk * 16
               : value_row_of(params, item, head) + (chunk - KEY_COLUMN_TILES * 8) * 16;
}

DEVICE void prefetch_head(const struct few_params *params, const struct few_item *item, int head) {
    if (item->first + head < item->reach) {
        prefetch_l2(key_row_of(params, item, head), DQK * 2);
        prefetch_l2(value_row_of(params, item, head), DV * 2);
    }
}

/* ---- rows of heads of queries, for a copying thread ---- */

struct key_tensor {
    int table;
};

DEVICE struct key_tensor tensor_of(const struct few_params *params, const struct few_item *item) {
    const struct key_tensor tensor = {item->table};
    (void)params;
    return tensor;
}

struct key_source {
    const char *queries, *grads; /* this thread's 16 bytes of token 0 and the group's first head */
    int first_query;             /* of the batch */
};

struct key_row {
    u32 number; /* token * GROUP_HEADS + head: one register, of which copies hold many */
};

DEVICE struct key_source open_source(const struct few_params *params,
                                     const struct key_tensor *tensor) {
    const struct sparse_gqa_bwd_params *const pass = &params->pass;
    const u32 chunk = threadIdx.x % 8 * 16;
    const int batch = tensor->table / KV_HEADS;
    const i64 head = tensor->table % KV_HEADS * GROUP_HEADS;
    const struct key_source source = {
        (const char *)pass->q + 2 * (batch * pass->q_batch_stride + head * pass->q_head_stride) +
            chunk,
        (const char *)pass->grad_out +
            2 * (batch * pass->grad_out_batch_stride + head * pass->grad_out_head_stride) + chunk,
        batch * pass->work.tokens};
    return source;
}

DEVICE struct key_row find_key_row(const struct few_params *params, const struct key_source *source,
                                   int number, bool any) {
    const int *const queries =
        any ? params->pass.work.queries : 0; /* of an empty list no entry is read */
    const int entry = number / GROUP_HEADS;
    /* Unsigned, so that any value of an invalid entry is defined; its row is not read. */
    const u32 token = (u32)(queries ? queries[entry] : entry) - (u32)source->first_query;
    const struct key_row row = {token * GROUP_HEADS + (u32)number % GROUP_HEADS};
    return row;
}

DEVICE bool is_of_query(int tile) {
    return tile < KEY_COLUMN_TILES;
}

/* A tile's number among its tensor's. */
DEVICE int own_tile(int tile) {
    return is_of_query(tile) ? tile : tile - KEY_COLUMN_TILES;
}

/* Whether a tile has this thread's 16 bytes of its rows. */
DEVICE bool has_chunk(int tile) {
    const int columns = (is_of_query(tile) ? DQK : DV) - own_tile(tile) * 64;
    return columns >= 64 || (int)(threadIdx.x % 8) < columns / 8;
}

DEVICE const char *row_chunk(const struct few_params *params, const struct key_source *source,
                             const struct key_row *row, int tile) {
    const struct sparse_gqa_bwd_params *const pass = &params->pass;
    const bool of_query = is_of_query(tile);
    /* Unsigned, since the offset of a row that is not read may overflow. */
    const u64 token = row->number / GROUP_HEADS, head = row->number % GROUP_HEADS;
    return (of_query ? source->queries : source->grads) +
           2 * (token * (u64)(of_query ? pass->q_token_stride : pass->grad_out_token_stride) +
                head * (u64)(of_query ? pass->q_head_stride : pass->grad_out_head_stride)) +
           (has_chunk(tile) ? own_tile(tile) * TILE_PITCH : 0);
}
