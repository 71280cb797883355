//@use common/base.cuh
//@use ptx/math.cuh
//@use sparse_attn_bwd.slices.cuh
//@use key_grads_finish.params.h
/*
 * Adds rows of dq from their split-K slices, for key_grads_finish.cu: a thread adds 8 columns of a
 * row.
 */

enum {
    ITEM_ROWS = 64,
    ROW_CHUNKS = DQK / 8, /* of 16 bytes */
    BLOCK_KEYS = 64,
    LOADED = 2 /* slices in flight */
};

/* An iterator over an item's slices: those of the CTAs that have key blocks of it. */
struct slice_walk {
    int item, blocks; /* the item, of pairs that of the cluster; its key blocks */
    int cta, before;  /* the next CTA (of pairs: cluster), and the item's key blocks before its
                          own */
};

/* The next slice's number, or -1 after the last. */
DEVICE int next_slice(const struct dq_slices *slices, struct slice_walk *walk) {
    while (walk->before < walk->blocks) {
        const int cta = walk->cta++, before = walk->before;
        walk->before =
            blocks_before(walk->blocks, walk->item, slices->items, cta + 1, slices->slice_ctas);
        if (walk->before > before) {
            return cta + walk->item;
        }
    }
    return -1;
}

/* The address of a row of dq, or null if the row does not exist. */
DEVICE char *sliced_row(const struct dq_slices *slices, int item, int row) {
    const int group = item / slices->head_blocks, member = row / slices->member_rows;
    const int query = slices->members[group * slices->group_queries + member];
    const int head = item % slices->head_blocks * ITEM_ROWS + row % slices->member_rows;
    if (query < 0 || head >= slices->heads) {
        return 0;
    }
    return (char *)slices->dq +
           2 * (query / slices->tokens * slices->dq_batch_stride +
                query % slices->tokens * slices->dq_token_stride + head * slices->dq_head_stride);
}

DEVICE void store_bf16(void *to, const float *columns) {
    uint4 packed;
    packed.x = pack_bf16x2(columns[0], columns[1]);
    packed.y = pack_bf16x2(columns[2], columns[3]);
    packed.z = pack_bf16x2(columns[4], columns[5]);
    packed.w = pack_bf16x2(columns[6], columns[7]);
    *(uint4 *)to = packed;
}

/* Adds chunk `i` of all sliced items' rows. */
DEVICE void add_slices(const struct dq_slices *slices, int i) {
    const int chunk = i % ROW_CHUNKS, row = i / ROW_CHUNKS % ITEM_ROWS;
    const int item = i / ROW_CHUNKS / ITEM_ROWS, side = item % slices->sides;
    const int keys = slices->counts[item / slices->head_blocks];
    char *const to = sliced_row(slices, item, row);
    if (keys == 0 || !to) {
        return; /* the main kernel has written zeros */
    }
    struct slice_walk walk = {item / slices->sides, (keys + BLOCK_KEYS - 1) / BLOCK_KEYS, 0, 0};
    walk.cta = walk.item * slices->slice_ctas / slices->items;
    float sums[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
    while (walk.before < walk.blocks) {
        uint4 parts[LOADED];
#pragma unroll
        for (int k = 0; k < LOADED; ++k) {
            const int slice = next_slice(slices, &walk);
            const i64 at = ((i64)slice * slices->sides + side) * ITEM_ROWS + row;
            const uint4 nothing = {0, 0, 0, 0};
            parts[k] = nothing;
            if (slice >= 0) {
                parts[k] =
                    *(const uint4 *)((const char *)slices->slices + at * (DQK * 2) + chunk * 16);
            }
        }
#pragma unroll
        for (int k = 0; k < LOADED * 4; ++k) {
            const u32 words[4] = {parts[k / 4].x, parts[k / 4].y, parts[k / 4].z, parts[k / 4].w};
            const u32 pair = words[k % 4];
            sums[k % 4 * 2] += __int_as_float((int)(pair << 16));
            sums[k % 4 * 2 + 1] += __int_as_float((int)(pair & 0xffff0000u));
        }
    }
    store_bf16(to + chunk * 16, sums);
}
