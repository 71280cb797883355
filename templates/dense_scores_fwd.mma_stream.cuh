//@use common/base.cuh
//@use common/softmax.cuh
//@use common/streamed_product.cuh
//@use dense_scores_fwd.items.cuh
//@use dense_scores_fwd.params.h
/* The stream's parts of dense_scores_fwd.mma.cu, and their copies. */

/* The next part of the stream. `left` has a bit for each remaining tile, from `tile` on. */
struct cursor {
    u32 left; /* 0: no part is left */
    int tile, round, part;
};

DEVICE struct cursor first_part(u32 tiles) {
    const struct cursor cursor = {tiles, __ffs((int)tiles) - 1, 0, 0};
    return cursor;
}

DEVICE void next_part(struct cursor *cursor) {
    if (++cursor->part < PARTS) {
        return;
    }
    cursor->part = 0;
    if (++cursor->round == ROUNDS) {
        *cursor = first_part(cursor->left & (cursor->left - 1));
    }
}

/* ---- operands -------------------------------------------------------------------------------- */

/* Starts the copy of a part of the item's keys; missing ones become zeros. */
DEVICE void copy_keys(const struct dense_scores_fwd_params *params, const struct item *item,
                      int part) {
    const char *const first =
        (const char *)params->k +
        2 * (item->first_key * params->k_row_stride + item->key_head * params->k_head_stride);
    for (int row = (int)threadIdx.x / PART_CHUNKS; row < RESIDENT_ROWS; row += COPY_ROWS) {
        copy_row(resident_part(part), row,
                 row < item->keys ? first + 2 * (row * params->k_row_stride) : 0, first, part);
    }
}

/* A row of the stream: its query within the item, and its head within the group, which may be past
 * the last one. */
DEVICE int row_query(const struct cursor *cursor, int row) {
    return cursor->tile * TILE_QUERIES + row / QUERY_ROWS;
}

DEVICE int row_head(const struct cursor *cursor, int row) {
    return cursor->round * SLAB_ROWS + row % QUERY_ROWS;
}

/* Starts the copy of a part of the stream into a stage; missing rows become zeros. */
DEVICE void copy_queries(const struct dense_scores_fwd_params *params, const struct item *item,
                         const struct cursor *cursor, int stage) {
    const char *const first =
        (const char *)params->q + 2 * (item->first_query * params->q_token_stride +
                                       item->key_head * GROUP_HEADS * params->q_head_stride);
#pragma unroll
    for (int i = 0; i < STREAM_ROWS / COPY_ROWS; ++i) {
        const int row = i * COPY_ROWS + (int)threadIdx.x / PART_CHUNKS;
        const int query = row_query(cursor, row), head = row_head(cursor, row);
        const bool present = query < item->queries && head < GROUP_HEADS;
        copy_row(stream_stage(stage), row,
                 present
                     ? first + 2 * (query * params->q_token_stride + head * params->q_head_stride)
                     : 0,
                 first, cursor->part);
    }
}

/* Starts the copies of the first `count` parts, each with as much of the keys as it needs; the
 * last one with all that is left of them. */
DEVICE void begin_copies(const struct dense_scores_fwd_params *params, const struct item *item,
                         struct cursor *copied, int count) {
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
        const int end = i == count - 1 ? PARTS : minimum(i + 1, PARTS);
        for (int part = i; part < end; ++part) {
            copy_keys(params, item, part);
        }
        if (copied->left) {
            copy_queries(params, item, copied, i);
            next_part(copied);
        }
        cp_async_commit();
    }
}

/* Loads what is subtracted from the scores of this lane's columns of a slab, as powers of two. */
DEVICE void load_offsets(float (*offsets)[2], const struct dense_scores_fwd_params *params,
                         const struct item *item, const struct cursor *cursor, int slab) {
#pragma unroll
    for (int i = 0; i < SLAB_TILES * 2; ++i) {
        const int row = slab * SLAB_ROWS + i / 2 * 8 + (int)threadIdx.x % 4 * 2 + i % 2;
        const int query = row_query(cursor, row), head = row_head(cursor, row);
        float offset = -MINUS_INFINITY;
        if (query < item->queries && head < GROUP_HEADS) {
            offset = LOG2_E *
                     params->lse[(item->first_query + query) * params->lse_token_stride +
                                 (item->key_head * GROUP_HEADS + head) * params->lse_head_stride];
        }
        offsets[i / 2][i % 2] = offset;
    }
}
