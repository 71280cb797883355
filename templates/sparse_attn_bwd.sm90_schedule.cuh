//@use common/base.cuh
//@use common/warp_arrival.cuh
//@use ptx/named_barrier.cuh
//@use ptx/thread.cuh
//@use sparse_attn_bwd.params.h
//@use sparse_attn_bwd.slices.cuh
//@use sparse_attn_bwd.sm90_in_step.cuh
//@use sparse_attn_bwd.sm90_shared.cuh
/*
 * The schedule of sparse_attn_bwd.sm90.cu: which items and key blocks a CTA processes, and in which
 * order. The gather's warpgroup walks the key lists and announces each block to the other roles,
 * with everything they need to know about it.
 */

/* ---- cursors: positions in the CTA's key lists ----------------------------------------------- */

struct cursor {
    int item;  /* -1: none */
    int first; /* index of the block's first key in the list */
    int count; /* keys of the item, or the end of the slice */
    int flags; /* ODD_ITEM, FIRST_BLOCK, DESCENDING, and SLICE_UNIT times the slices opened */
};

enum {
    DESCENDING = 4096, /* the item's last block comes first */
    SLICE_UNIT = 8192
};

/* The cursor of block number `block`, valid from the announcement of the previous block to its own.
 * Private to the gather; in shared memory because registers are short. */
DEVICE struct cursor *cursor_at(u32 block) {
    return (struct cursor *)(arena + CURSORS_OFFSET) + block % 2;
}

/* The CTA's slices, processed after its whole items: at most two, then one with item -1. */
DEVICE struct cursor *own_slices(void) {
    return (struct cursor *)(arena + SLICES_OFFSET);
}

/* Finds the CTA's slices. One thread calls it. */
DEVICE void find_slices(const struct sparse_attn_bwd_params *params) {
    const int cta = (int)blockIdx.x / SIDES, ctas = params->slice_ctas;
    const int items = params->sliced / SIDES;
    const struct cursor none = {-1, 0, 0, 0};
    struct cursor *const slices = own_slices();
    int found = 0;
    slices[0] = slices[1] = slices[2] = none;
    if (DETERMINISTIC || items == 0 || cta >= ctas) {
        return;
    }
    for (int i = cta * items / ctas; i * ctas < (cta + 1) * items; ++i) {
        const int item = i * SIDES + (int)blockIdx.x % SIDES;
        const int count = params->counts[item_group(item)];
        const int blocks = (count + BLOCK_KEYS - 1) / BLOCK_KEYS;
        const int begin = blocks_before(blocks, i, items, cta, ctas);
        const int end = blocks_before(blocks, i, items, cta + 1, ctas);
        if (begin < end) {
            slices[found].item = item;
            slices[found].first = begin * BLOCK_KEYS;
            slices[found].count = minimum(count, end * BLOCK_KEYS);
            ++found;
        }
    }
}

/* The CTA's next whole item with keys: `item`, or the first of item - gridDim.x, ... that has any;
 * or -1. */
DEVICE int next_item(const struct sparse_attn_bwd_params *params, int item) {
    const int begin = params->first_group * HEAD_BLOCKS + (DETERMINISTIC ? 0 : params->sliced);
    while (item >= begin && params->counts[item_group(item)] == 0) {
        item -= (int)gridDim.x;
    }
    return item >= begin ? item : -1;
}

/* Whether a whole item's list is processed in descending order: every other round of the grid. */
DEVICE bool is_descending(const struct sparse_attn_bwd_params *params, int item) {
    const int end = (params->first_group + params->groups) * HEAD_BLOCKS;
    return params->step != STEP_NONE && (u32)(end - 1 - item) / gridDim.x % 2;
}

/* Moves to the first block of an item, or of the next slice if `item` is -1. */
DEVICE void open_item(struct cursor *cursor, const struct sparse_attn_bwd_params *params,
                      int item) {
    cursor->item = item;
    cursor->first = 0;
    cursor->flags &= ~DESCENDING;
    if (item >= 0) {
        cursor->count = params->counts[item_group(item)];
        if (is_descending(params, item)) {
            cursor->first = (cursor->count - 1) / BLOCK_KEYS * BLOCK_KEYS;
            cursor->flags |= DESCENDING;
        }
    } else if (!DETERMINISTIC) {
        const int flags = cursor->flags;
        *cursor = own_slices()[flags / SLICE_UNIT];
        cursor->flags = flags + SLICE_UNIT;
    }
    cursor->flags |= FIRST_BLOCK;
}

/* ---- announcing key blocks ------------------------------------------------------------------- */

/* A thread's key of the block to be announced next; the gather's first 64 threads have one each.
 * Its load starts when the block before is announced. */
struct entry {
    int key, mask;
};

DEVICE void fetch_entry(struct entry *entry, const struct sparse_attn_bwd_params *params,
                        u32 block) {
    const u32 thread = thread_number() % WARPGROUP;
    const struct cursor *const cursor = cursor_at(block);
    if (thread < BLOCK_KEYS && cursor->item >= 0) {
        const int side = (int)((u32)cursor->item % HEAD_BLOCKS);
        const i64 at = (i64)item_group(cursor->item) * params->key_stride +
                       side * params->side_stride + cursor->first + (int)thread;
        entry->key = params->keys[at];
        entry->mask = GROUP_QUERIES > 1 ? params->masks[at] : 0;
    }
}

/* The global address of a key's row, 0 for no key. */
DEVICE u64 key_address(const struct sparse_attn_bwd_params *params, int key) {
    if (key < 0) {
        return 0;
    }
    const u64 kv = (u64)params->kv;
    if (params->even_batches) {
        return kv + (u64)key * params->kv_row_bytes;
    }
    return kv + (u64)(2 * (key / params->rows * params->kv_batch_stride)) +
           (u64)(key % params->rows) * params->kv_row_bytes;
}

/* Describes a block and advances the cursor to the next one. One thread calls it. */
DEVICE void write_word(const struct sparse_attn_bwd_params *params, u32 block) {
    struct cursor cursor = *cursor_at(block);
    struct block_word word = {cursor.item, 0, 0, 0};
    word.flags = minimum(cursor.count - cursor.first, BLOCK_KEYS) |
                 (cursor.flags & (ODD_ITEM | FIRST_BLOCK));
    word.flags |= (int)(block % BLOCKS_AHEAD) * BLOCK_UNIT;
    if (DETERMINISTIC) {
        const u32 item = (u32)(cursor.item - params->first_group * HEAD_BLOCKS);
        word.partial_row =
            ((int)(item / HEAD_BLOCKS) * params->key_stride + cursor.first) * KEY_ROWS +
            (int)(item % HEAD_BLOCKS / SIDES);
    }
    cursor.first += cursor.flags & DESCENDING ? -BLOCK_KEYS : BLOCK_KEYS;
    cursor.flags &= ~FIRST_BLOCK;
    if (cursor.first < 0 || cursor.first >= cursor.count) {
        word.flags |= LAST_BLOCK;
        cursor.flags ^= ODD_ITEM;
        open_item(&cursor, params, next_item(params, cursor.item - (int)gridDim.x));
    }
    word.flags |= cursor.item >= 0 ? MORE_BLOCKS : 0;
    *block_word(block) = word;
    *cursor_at(block + 1) = cursor;
}

/* Writes a block's description; each thread of the gather its part. */
DEVICE void write_block(const struct entry *entry, const struct sparse_attn_bwd_params *params,
                        u32 block) {
    const u32 thread = thread_number() % WARPGROUP;
    if (thread < BLOCK_KEYS) {
        block_keys(block)[thread] = entry->key;
        block_addresses(block)[thread] = key_address(params, entry->key);
        if (GROUP_QUERIES > 1) {
            block_masks(block)[thread] = (unsigned char)entry->mask;
        }
    }
    if (thread == 0) {
        write_word(params, block);
        if (*step_mode() == STEP_LOOSE) {
            keep_in_step(params, block, LOOSE_STEP);
        }
    }
}

/*
 * The gather finds the CTA's first block (item -1: there is none), then describes it. The whole CTA
 * synchronises after each of the two steps, not the gather alone after the first:
 * compute-sanitizer's racecheck ignores the order that __syncthreads gives if the writer's warps
 * passed a named barrier of their own since the previous __syncthreads (ARCHITECTURE.md, "Tests").
 * With several queries per item both functions are called, not inlined: inlined, they cost the
 * roles a register that these do not have.
 */
//@if GROUP_QUERIES > 1
#define DEVICE_ONCE static __device__ __noinline__
//@else
#define DEVICE_ONCE DEVICE
//@end
DEVICE_ONCE void find_first_block(const struct sparse_attn_bwd_params *params) {
    if (thread_number() % WARPGROUP < 32) {
        const int mode = find_step_mode(params);
        if (thread_number() % WARPGROUP == 0) {
            const int end = (params->first_group + params->groups) * HEAD_BLOCKS;
            find_slices(params);
            cursor_at(0)->flags = 0;
            open_item(cursor_at(0), params, next_item(params, end - 1 - (int)blockIdx.x));
            block_word(0)->item = cursor_at(0)->item;
            *step_mode() = mode;
        }
    }
}

DEVICE_ONCE void announce_first_block(const struct sparse_attn_bwd_params *params) {
    struct entry entry;
    if (cursor_at(0)->item >= 0) {
        fetch_entry(&entry, params, 0);
        write_block(&entry, params, 0);
    }
}

/* Announces a later block. */
DEVICE void announce_block(struct entry *entry, const struct sparse_attn_bwd_params *params,
                           u32 block) {
    write_block(entry, params, block);
    barrier_sync(GATHER_BARRIER, WARPGROUP);
    arrive_warp(barrier_at(ANNOUNCED), 1);
    fetch_entry(entry, params, block + 1);
}
