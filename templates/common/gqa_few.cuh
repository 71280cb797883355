//@use common/base.cuh
//@use common/few_item.cuh
//@use common/gqa_lists.cuh
//@use common/wgmma_tile.cuh
//@use common/work.cuh
/*
 * What common/few_ring.cuh asks of sparse_gqa's forward and backward pass alike: an item is a query and
 * one of its KV heads or, with ITEM_QUERIES above 1, a group of so many neighbouring queries, whose lists
 * are united: its heads are one query's after the other's, and a row's number has above ROW_BITS the mask
 * of the queries that read it. With KEYS_LEAD a row's leading tiles are its key and the others its value, else
 * the other way about.
 */

//@if ITEM_QUERIES > 1
enum { ROW_BITS = 28, ROW_MASK = (1 << ROW_BITS) - 1 };
//@end

/* A query or a group's number, or -1: none; and one of its KV heads. */
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

/* Of the queries. */
DEVICE const struct work_params *query_work(const struct few_params *params) {
    //@if ITEM_QUERIES > 1
    return &params->groups.work;
    //@else
    return &params->work;
    //@end
}

//@if ITEM_QUERIES > 1
/* The query of one of an item's heads, or -1. */
DEVICE int item_query(const struct few_params *params, const struct few_item *item, int head) {
    return params->groups
        .members[(i64)item->query * ITEM_QUERIES + minimum(head, LAST_HEAD) / GROUP_HEADS];
}

/* Row numbers of a batch, and the batch of a number. */
DEVICE int batch_rows(const struct few_params *params) {
    return params->groups.blocks * GRANULARITY;
}

DEVICE int batch_of_row(const struct few_params *params, int number) {
    return (number & ROW_MASK) / batch_rows(params);
}

/* A united list: entries and masks; `limit`: of query `lane`, among all batches' rows. */
struct united_slots {
    const int *row;
    const unsigned char *masks;
    int count, limit;
};

DEVICE struct united_slots slots_of(const struct few_params *params, const struct work *work) {
    const struct gqa_groups_params *const groups = &params->groups;
    const int lane = (int)threadIdx.x % 32, list = LISTS_OF_KV_HEADS ? work->head_block : 0;
    const i64 number = (i64)list * groups->groups + work->query;
    struct united_slots slots = {groups->keys + number * groups->key_stride,
                                 groups->masks + number * groups->key_stride,
                                 groups->counts[number], 0};
    if (lane < ITEM_QUERIES) {
        const int query = groups->members[(i64)work->query * ITEM_QUERIES + lane];
        if (query >= 0) {
            slots.limit = query_batch(&groups->work, query) * batch_rows(params) +
                          gqa_limit(&groups->work, &params->lists, query);
        }
    }
    return slots;
}

DEVICE int query_head(const struct few_item *item, int head) {
    return item->head_block * GROUP_HEADS + minimum(head, LAST_HEAD) % GROUP_HEADS;
}
//@else
DEVICE int item_query(const struct few_params *params, const struct few_item *item, int head) {
    (void)params, (void)head;
    return item->query;
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
//@end

/* Not read if the head's query is absent. */
DEVICE const char *query_row(const struct few_params *params, const struct few_item *item,
                             int head) {
    const struct few_position at = position_of(query_work(params), item_query(params, item, head));
    return (const char *)params->q +
           2 * (at.batch * params->q_batch_stride + at.token * params->q_token_stride +
                query_head(item, head) * params->q_head_stride);
}

/* ---- KV rows, for a copying thread ---- */

struct key_tensor {
    int batch, head;
};

DEVICE struct key_tensor tensor_of(const struct few_params *params, const struct few_item *item) {
    //@if ITEM_QUERIES > 1
    const struct key_tensor tensor = {0, item->head_block}; /* the batch is a block's */
    (void)params;
    //@else
    const struct key_tensor tensor = {query_batch(&params->work, item->query), item->head_block};
    //@end
    return tensor;
}

struct key_source {
    const char *keys, *values; /* this thread's 16 bytes of row 0 */
                               //@if ITEM_QUERIES > 1
    int first_row;             /* of the batch */
    //@end
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
            chunk,
        //@if ITEM_QUERIES > 1
        tensor->batch * batch_rows(params),
        //@end
    };
    return source;
}

DEVICE struct key_row find_key_row(const struct few_params *params, const struct key_source *source,
                                   int number, bool any) {
    //@if ITEM_QUERIES > 1
    /* Past a block's end the number is 0. */
    const struct key_row row = {(u32)maximum((number & ROW_MASK) - source->first_row, 0)};
    //@else
    const struct key_row row = {(u32)number};
    //@end
    (void)params, (void)source, (void)any;
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
