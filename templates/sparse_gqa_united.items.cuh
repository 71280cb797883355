//@use common/base.cuh
//@use common/queries.cuh
//@use ptx/memory.cuh
//@use sparse_gqa_united.params.h
//@use sparse_gqa_united.sm90_shared.cuh
/* Items of sparse_gqa_united.sm90.cu: a KV head after the other, whose K and V are then in L2, and
 * its tiles of united lists. */

/* An item, or no blocks: there is no further one. */
struct tile_item {
    const int4 *united;
    int blocks;
    int first_entry; /* of the query list */
    int kv_head;
};

/* The first item from number *number on; *number becomes the next one's. By whole warps: each lane looks
 * at one number at a time, since most tiles may have none. */
DEVICE struct tile_item next_item(const struct sparse_gqa_united_params *params, int *number) {
    enum { GROUPS = KV_HEADS / LIST_HEADS };
    const int tiles = (params->entries + TILE_ENTRIES - 1) / TILE_ENTRIES, step = (int)gridDim.x;
    struct tile_item item = {(const int4 *)params->united, 0, 0, 0};
    while (*number < tiles * KV_HEADS) {
        const int own = *number + (int)threadIdx.x % 32 * step;
        const int kv_head = minimum(own / tiles, KV_HEADS - 1);
        const int list = own % tiles * GROUPS + kv_head / LIST_HEADS;
        const int blocks = own < tiles * KV_HEADS ? params->tiles[list] : 0;
        const u32 found = __ballot_sync((u32)ALL_LANES, blocks > 0);
        if (found) {
            const int lane = __ffs((int)found) - 1, first = *number + lane * step;
            item.blocks = __shfl_sync((u32)ALL_LANES, blocks, lane);
            item.united +=
                (i64)__shfl_sync((u32)ALL_LANES, list, lane) * TILE_ENTRIES * params->work.width;
            item.first_entry = params->first + first % tiles * TILE_ENTRIES;
            item.kv_head = first / tiles;
            *number = first + step;
            return item;
        }
        *number += 32 * step;
    }
    return item;
}

/* The query number of an entry of the tile, or -1. */
DEVICE int find_query(const struct sparse_gqa_united_params *params, const struct tile_item *item,
                      int entry) {
    const int listed =
        minimum(find_query_range(&params->work).queries - params->first, params->entries);
    const int number = item->first_entry + entry;
    int query = number;
    if (number - params->first >= listed) {
        return -1;
    }
    if (params->work.queries) {
        query = (int)load_l2_32(&params->work.queries[number]);
    }
    return query >= 0 && query < params->work.batches * params->work.tokens ? query : -1;
}

/* How many keys a query may read. */
DEVICE int find_limit(const struct sparse_gqa_united_params *params, int query) {
    const struct work_params *const work = &params->work;
    if (!params->lists.limit || query < 0) {
        return work->rows;
    }
    const int batch = query_batch(work, query), token = query - batch * work->tokens;
    return minimum(params->lists.limit[batch * params->lists.limit_batch_stride +
                                       token * params->lists.limit_token_stride],
                   work->rows);
}
