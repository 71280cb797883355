//@use common/base.cuh
//@use common/warp_arrival.cuh
//@use common/wgmma_tile.cuh
//@use ptx/cluster.cuh
//@use ptx/cp_async.cuh
//@use ptx/cp_async_mbarrier.cuh
//@use ptx/hint.cuh
//@use ptx/mbarrier.cuh
//@use ptx/named_barrier.cuh
//@use ptx/policy.cuh
//@use ptx/tensor.cuh
//@use ptx/thread.cuh
//@use sparse_attn_bwd.params.h
//@use sparse_attn_bwd.slices.cuh
/*
 * Items and their key blocks, of sparse_attn_bwd.sm90.cu: where its tiles and barriers are, which
 * block comes next, and the copies that bring it. The gather's warpgroup goes through the lists and
 * announces each block to the others, with all that they need to know of it.
 */

enum {

    TILES = DQK / TILE_COLUMNS,
    VALUE_TILES = DV / TILE_COLUMNS,
    MEMBER_ROWS = BLOCK_HEADS / GROUP_QUERIES, /* rows of an item that a query has */
    SIDES = PAIR ? 2 : 1,                      /* thread blocks that take items side by side */
    KEY_ROWS = HEAD_BLOCKS / SIDES,            /* partial rows that a group has of each key */

    /* Q and dO come, and are given back, in parts of some tiles of each: of one where that costs
     * nothing elsewhere (sparse_attn_bwd.lost.md). */
    PART_TILES = GROUP_QUERIES == 1 && !PAIR ? 1 : 3,
    PARTS = (TILES + PART_TILES - 1) / PART_TILES,

    BLOCKS_AHEAD = 4,   /* announced blocks whose numbers are kept */
    ROWS_OF_THREAD = 4, /* of a tile, 16 bytes each: 128 threads copy it */

    /* Named barriers. */
    SCORES_BARRIER = 1,
    GATHER_BARRIER = 2
};

/* ---- in step --------------------------------------------------------------------------------- */

/*
 * Thread blocks that go through ascending lists side by side meet in the same rows of kv and dkv,
 * which then come from memory once for all of them. So every few key blocks a thread block counts
 * itself in and waits until all have come as far: one that is ahead, that is. It is a hint and no
 * more: the wait is short (a poll takes about a microsecond), each time it was in vain the next one
 * is shorter, and who has ended keeps nobody.
 *
 * Where the wait stands says how close they keep together: ahead of announcing a block it costs
 * least, right ahead of the copies that bring it thread blocks begin these at the same moment,
 * which is worth more where a wave's rows hardly fit into the L2 cache (sparse_attn_bwd.lost.md).
 * They fit after all where neighbouring groups have most of their keys in common: then it is loose.
 *
 * And they go through the list of their first item upwards, of the next one downwards, and so on:
 * the rows where one sweep over the table ends are in the L2 cache when the next begins there.
 */
enum {
    LOOSE_STEP = 2,
    CLOSE_STEP = 4,
    FIRST_PATIENCE = 256,
    ENDED = 1 << 24,
    PROBES = 4 /* keys of a group that are looked for in the one before it */
};

/* Polls of a wait, and of the params' enum how they keep in step; in shared memory, since registers
 * are short. */
DEVICE int *patience(void) {
    return (int *)(arena + PATIENCE_OFFSET);
}

DEVICE int *own_step(void) {
    return (int *)(arena + STEP_OFFSET);
}

/* Whether a list, ascending but for keys that it names again, has a key. */
DEVICE bool has_key(const int *keys, int count, int key) {
    int first = 0;
    while (count > 0) {
        const int half = count / 2;
        const bool less = keys[first + half] < key;
        first += less ? half + 1 : 0;
        count = less ? count - half - 1 : half;
    }
    return keys[first] == key; /* behind the list: another one's key, or -1 */
}

/* How the launch's thread blocks keep in step: the same in all of them. By a warp. */
DEVICE int find_step(const struct sparse_attn_bwd_params *params) {
    const int lane = (int)(threadIdx.x % 32);
    if (params->step != STEP_CLOSE || params->groups < 2) {
        return params->step;
    }
    const int group =
        params->first_group + 1 + (int)((i64)(params->groups - 2) * (lane / PROBES) * PROBES / 31);
    const int *const own = params->keys + (i64)group * params->key_stride;
    const int count = params->counts[group], before = params->counts[group - 1];
    const int key = own[(i64)count * (2 * (lane % PROBES) + 1) / (2 * PROBES)];
    const bool shared =
        count > 0 && before > 0 && has_key(own - params->key_stride, before - 1, key);
    return __popc(__ballot_sync((u32)ALL_LANES, shared)) > 16 ? STEP_LOOSE : STEP_CLOSE;
}

/* By one thread of the gather, ahead of block number `block`. */
DEVICE void keep_in_step(const struct sparse_attn_bwd_params *params, u32 block, u32 step) {
    if (block % step == 0) {
        const int polls = *patience();
        hint_add(params->progress, 1);
        if (hint_wait(params->progress, block / step * gridDim.x, polls) < 0) {
            *patience() = polls / 2;
        }
    }
}

/* ---- barriers and tiles ---------------------------------------------------------------------- */

/* 1: what a pair's other thread block sends lands in P's tile. */
enum { LANDS_IN_P = PAIR && LANDING_OFFSET == PROBABILITIES_OFFSET };

/* Places in BARRIERS. */
enum {
    KEYS_FULL = 0,
    KEYS_FREE = KEYS_FULL + TILES,
    ANNOUNCED = KEYS_FREE + 1,
    SLOPES_FULL = ANNOUNCED + 1,
    SLOPES_FREE = SLOPES_FULL + 1,
    QUERY_FULL = SLOPES_FREE + 1,
    QUERY_FREE = QUERY_FULL + PARTS,
    /* Of pairs alone; the first two where LANDS_IN_P. */
    PROBABILITIES_FULL = QUERY_FREE + PARTS,
    PROBABILITIES_FREE = PROBABILITIES_FULL + 1,
    LANDED = PROBABILITIES_FREE + 1,
    LANDING_FREE = LANDED + LANDINGS
};

/* The two thread blocks of a pair wait for each other: by all threads of both. */
DEVICE void meet_pair(void) {
    __syncwarp((u32)ALL_LANES);
    cluster_arrive();
    cluster_wait();
}

DEVICE void initialise_barriers(void) {
    if (threadIdx.x == 0) {
        for (int tile = 0; tile < TILES; ++tile) {
            mbarrier_init(barrier_at(KEYS_FULL + tile), WARPGROUP);
        }
        mbarrier_init(barrier_at(KEYS_FREE), 4 * WARP_ARRIVALS);
        mbarrier_init(barrier_at(ANNOUNCED), 4 * WARP_ARRIVALS);
        mbarrier_init(barrier_at(SLOPES_FULL), 4 * WARP_ARRIVALS);
        mbarrier_init(barrier_at(SLOPES_FREE), 8 * WARP_ARRIVALS);
        for (int part = 0; part < PARTS; ++part) {
            mbarrier_init(barrier_at(QUERY_FULL + part), 1);
            mbarrier_init(barrier_at(QUERY_FREE + part), 4 * WARP_ARRIVALS);
        }
        if (PAIR) {
            mbarrier_init(barrier_at(PROBABILITIES_FULL), 4 * WARP_ARRIVALS);
            mbarrier_init(barrier_at(PROBABILITIES_FREE), 4 * WARP_ARRIVALS);
            for (int landing = 0; landing < LANDINGS; ++landing) {
                mbarrier_init(barrier_at(LANDED + landing), 1);
                mbarrier_init(barrier_at(LANDING_FREE + landing), 4 * WARP_ARRIVALS);
            }
        }
        mbarrier_fence_init();
        *patience() = FIRST_PATIENCE;
    }
    if (PAIR) {
        meet_pair();
    } else {
        __syncthreads();
    }
}

/* ---- items ----------------------------------------------------------------------------------- */

/* Items are numbers from 0 on: that they are divided without a sign spares registers. */
DEVICE int item_group(int item) {
    return (int)((u32)item / HEAD_BLOCKS);
}

DEVICE int first_head(int item) {
    return (int)((u32)item % HEAD_BLOCKS * BLOCK_HEADS);
}

/* The thread block's next whole item with keys: `item`, or gridDim.x before it, and so on; or -1.
 */
DEVICE int next_item(const struct sparse_attn_bwd_params *params, int item) {
    const int begin = params->first_group * HEAD_BLOCKS + (DETERMINISTIC ? 0 : params->sliced);
    while (item >= begin && params->counts[item_group(item)] == 0) {
        item -= (int)gridDim.x;
    }
    return item >= begin ? item : -1;
}

/* ---- announced blocks ------------------------------------------------------------------------ */

/* flags: how many keys; where the block stands in its item, and in the thread block's items, of
 * which every second is odd. */
enum {
    COUNT_MASK = 255,
    FIRST_BLOCK = 256,
    LAST_BLOCK = 512,
    MORE_BLOCKS = 1024,
    ODD_ITEM = 2048,
    BLOCK_UNIT = 4096 /* times the block's number % BLOCKS_AHEAD */
};

struct block_word {
    int item, flags;
    int place; /* with DETERMINISTIC, of its first partial row in the launch's; the next is
                  KEY_ROWS further */
    int unused;
};

/* What is kept of a block, by its number; of the last BLOCKS_AHEAD announced. */
DEVICE struct block_word *block_word(u32 block) {
    return (struct block_word *)(arena + WORDS_OFFSET) + block % BLOCKS_AHEAD;
}

DEVICE int *block_numbers(u32 block) {
    return (int *)(arena + NUMBERS_OFFSET) + block % BLOCKS_AHEAD * BLOCK_KEYS;
}

DEVICE unsigned char *block_masks(u32 block) {
    return arena + MASKS_OFFSET + block % BLOCKS_AHEAD * BLOCK_KEYS;
}

/* Of the last two announced alone: the copies are all that reads them. */
DEVICE u64 *block_addresses(u32 block) {
    return (u64 *)(arena + ADDRESSES_OFFSET) + block % 2 * BLOCK_KEYS;
}

/* A block of the lists that the thread block goes through. */
struct cursor {
    int item;  /* -1: none */
    int first; /* keys before it in the list */
    int count; /* of the item, or up to the end of the slice */
    int marks; /* ODD_ITEM, FIRST_BLOCK, DOWNWARDS, and SLICE_UNIT times the slices opened */
};

enum {
    DOWNWARDS = 4096, /* the item's last block comes first */
    SLICE_UNIT = 8192
};

/* Where block number `block` is, from when the one before it is announced until it is: the gather's
 * own. In shared memory, since registers are short. */
DEVICE struct cursor *cursor_at(u32 block) {
    return (struct cursor *)(arena + CURSORS_OFFSET) + block % 2;
}

/* The thread block's slices, behind its whole items: two at most, then one of item -1. */
DEVICE struct cursor *own_slices(void) {
    return (struct cursor *)(arena + SLICES_OFFSET);
}

/* By one thread. */
DEVICE void find_slices(const struct sparse_attn_bwd_params *params) {
    const int taker = (int)blockIdx.x / SIDES, takers = params->takers;
    const int items = params->sliced / SIDES;
    const struct cursor none = {-1, 0, 0, 0};
    struct cursor *const slices = own_slices();
    int found = 0;
    slices[0] = slices[1] = slices[2] = none;
    if (DETERMINISTIC || items == 0 || taker >= takers) {
        return;
    }
    for (int i = taker * items / takers; i * takers < (taker + 1) * items; ++i) {
        const int item = i * SIDES + (int)blockIdx.x % SIDES;
        const int count = params->counts[item_group(item)];
        const int blocks = (count + BLOCK_KEYS - 1) / BLOCK_KEYS;
        const int begin = blocks_before(blocks, i, items, taker, takers);
        const int end = blocks_before(blocks, i, items, taker + 1, takers);
        if (begin < end) {
            slices[found].item = item;
            slices[found].first = begin * BLOCK_KEYS;
            slices[found].count = minimum(count, end * BLOCK_KEYS);
            ++found;
        }
    }
}

/* Whether a whole item's list is gone through from its end: every second turn of the grid. */
DEVICE bool goes_down(const struct sparse_attn_bwd_params *params, int item) {
    const int end = (params->first_group + params->groups) * HEAD_BLOCKS;
    return params->step != STEP_NONE && (u32)(end - 1 - item) / gridDim.x % 2;
}

/* Goes on to the block that comes first of an item, or of a slice where `item` is -1. */
DEVICE void open_item(struct cursor *cursor, const struct sparse_attn_bwd_params *params,
                      int item) {
    cursor->item = item;
    cursor->first = 0;
    cursor->marks &= ~DOWNWARDS;
    if (item >= 0) {
        cursor->count = params->counts[item_group(item)];
        if (goes_down(params, item)) {
            cursor->first = (cursor->count - 1) / BLOCK_KEYS * BLOCK_KEYS;
            cursor->marks |= DOWNWARDS;
        }
    } else if (!DETERMINISTIC) {
        const int marks = cursor->marks;
        *cursor = own_slices()[marks / SLICE_UNIT];
        cursor->marks = marks + SLICE_UNIT;
    }
    cursor->marks |= FIRST_BLOCK;
}

/* What a thread has of the block to be announced next; the first 64 of the gather have a key each.
 * It is on its way since the block before was announced. */
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

/* Where a key's row begins in global memory, as a number; 0 for none. */
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

/* By one thread: what there is to know of a block as such, and which one comes after it. */
DEVICE void write_word(const struct sparse_attn_bwd_params *params, u32 block) {
    struct cursor cursor = *cursor_at(block);
    struct block_word word = {cursor.item, 0, 0, 0};
    word.flags = minimum(cursor.count - cursor.first, BLOCK_KEYS) |
                 (cursor.marks & (ODD_ITEM | FIRST_BLOCK));
    word.flags |= (int)(block % BLOCKS_AHEAD) * BLOCK_UNIT;
    if (DETERMINISTIC) {
        const u32 item = (u32)(cursor.item - params->first_group * HEAD_BLOCKS);
        word.place = ((int)(item / HEAD_BLOCKS) * params->key_stride + cursor.first) * KEY_ROWS +
                     (int)(item % HEAD_BLOCKS / SIDES);
    }
    cursor.first += cursor.marks & DOWNWARDS ? -BLOCK_KEYS : BLOCK_KEYS;
    cursor.marks &= ~FIRST_BLOCK;
    if (cursor.first < 0 || cursor.first >= cursor.count) {
        word.flags |= LAST_BLOCK;
        cursor.marks ^= ODD_ITEM;
        open_item(&cursor, params, next_item(params, cursor.item - (int)gridDim.x));
    }
    word.flags |= cursor.item >= 0 ? MORE_BLOCKS : 0;
    *block_word(block) = word;
    *cursor_at(block + 1) = cursor;
}

/* Each of the gather's threads writes its part of what the others need of a block. */
DEVICE void write_block(const struct entry *entry, const struct sparse_attn_bwd_params *params,
                        u32 block) {
    const u32 thread = thread_number() % WARPGROUP;
    if (thread < BLOCK_KEYS) {
        block_numbers(block)[thread] = entry->key;
        block_addresses(block)[thread] = key_address(params, entry->key);
        if (GROUP_QUERIES > 1) {
            block_masks(block)[thread] = (unsigned char)entry->mask;
        }
    }
    if (thread == 0) {
        write_word(params, block);
        if (*own_step() == STEP_LOOSE) {
            keep_in_step(params, block, LOOSE_STEP);
        }
    }
}

/*
 * The first block, by the gather, or that there is none, item -1: which one it is, by its first
 * warp, and what there is to know of it. All of the thread block meets behind each of the two, not
 * the gather alone behind the first: compute-sanitizer's racecheck takes a __syncthreads for no
 * order where the writer's warps passed a named barrier of their own since the one before it
 * (ARCHITECTURE.md, "Tests"). Of several queries functions that are called: inlined, they cost the
 * roles behind them a register that they do not have.
 */
//@if GROUP_QUERIES > 1
#define DEVICE_ONCE static __device__ __noinline__
//@else
#define DEVICE_ONCE DEVICE
//@end
DEVICE_ONCE void find_first_block(const struct sparse_attn_bwd_params *params) {
    if (thread_number() % WARPGROUP < 32) {
        const int step = find_step(params);
        if (thread_number() % WARPGROUP == 0) {
            const int end = (params->first_group + params->groups) * HEAD_BLOCKS;
            find_slices(params);
            cursor_at(0)->marks = 0;
            open_item(cursor_at(0), params, next_item(params, end - 1 - (int)blockIdx.x));
            block_word(0)->item = cursor_at(0)->item;
            *own_step() = step;
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

/* A later one. */
DEVICE void announce_block(struct entry *entry, const struct sparse_attn_bwd_params *params,
                           u32 block) {
    write_block(entry, params, block);
    barrier_sync(GATHER_BARRIER, WARPGROUP);
    arrive_warp(barrier_at(ANNOUNCED), 1);
    fetch_entry(entry, params, block + 1);
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* Addresses of this thread's rows of a block: eight threads copy a row of a tile. */
DEVICE void take_addresses(u64 *from, u32 block) {
    const u32 thread = thread_number() % WARPGROUP;
#pragma unroll
    for (int i = 0; i < ROWS_OF_THREAD; ++i) {
        from[i] = block_addresses(block)[thread / 8 + (u32)(16 * i)];
    }
}

/* Starts the copy of a tile of K; rows that are not there become zeros. */
DEVICE void copy_tile(const u64 *from, int tile) {
    const u32 thread = thread_number() % WARPGROUP;
    const u32 to = shared_address((u32)(KEYS_OFFSET + tile * TILE_BYTES) + thread / 8 * TILE_PITCH +
                                  ((thread % 8) ^ (thread / 8 % 8)) * 16);
#pragma unroll
    for (int i = 0; i < ROWS_OF_THREAD; ++i) {
        cp_async_16(to + (u32)(i * 16 * TILE_PITCH),
                    (const void *)(from[i] + (u64)(tile * TILE_PITCH) + thread % 8 * 16),
                    from[i] ? 16 : 0);
    }
    cp_async_arrive_noinc(barrier_at(KEYS_FULL + tile));
}

/* All tiles of the thread block's first key block, by the gather alone. */
DEVICE void copy_first_block(void) {
    u64 from[ROWS_OF_THREAD];
    take_addresses(from, 0);
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
        copy_tile(from, tile);
    }
}

/* Starts the copies of a member's rows of some tiles of Q and dO. A member that is not there has
 * its heads past the last one, where the copy engine finds zeros. */
DEVICE void load_member(const struct sparse_attn_bwd_params *params, int item, int member,
                        int part) {
    const int query = params->members[(i64)item_group(item) * GROUP_QUERIES + member];
    const int head = query < 0 ? HEADS : first_head(item);
    const int batch = query < 0 ? 0 : query / params->tokens;
    const int token = query < 0 ? 0 : query % params->tokens;
    const u32 barrier = barrier_at(QUERY_FULL + part);
    const u64 policy = policy_evict_first();
    for (int tile = part * PART_TILES; tile < minimum((part + 1) * PART_TILES, TILES); ++tile) {
        const u32 at = (u32)(tile * TILE_BYTES + member * MEMBER_ROWS * TILE_PITCH);
        tensor_load_4d_hint(shared_address(QUERY_OFFSET + at), &params->q_map, barrier,
                            tile * TILE_COLUMNS, head, token, batch, policy);
        if (tile < VALUE_TILES) {
            tensor_load_4d_hint(shared_address(GRAD_OUT_OFFSET + at), &params->grad_out_map,
                                barrier, tile * TILE_COLUMNS, head, token, batch, policy);
        }
    }
}

/* Q and dO of the item that begins with a block, part by part as the sums leave them: by one thread
 * of the gather. */
DEVICE void load_queries(const struct sparse_attn_bwd_params *params, u32 block) {
    if (thread_number() % WARPGROUP == 0) {
        const struct block_word word = *block_word(block);
#pragma unroll 1
        for (int part = 0; part < PARTS; ++part) {
            const int tiles = minimum(PART_TILES, TILES - part * PART_TILES) +
                              minimum(PART_TILES, VALUE_TILES - part * PART_TILES);
            mbarrier_wait(barrier_at(QUERY_FREE + part), word.flags & ODD_ITEM ? 0 : 1);
            mbarrier_arrive_expect(barrier_at(QUERY_FULL + part), (u32)(tiles * TILE_BYTES));
#pragma unroll 1
            for (int member = 0; member < GROUP_QUERIES; ++member) {
                load_member(params, word.item, member, part);
            }
        }
    }
    __syncwarp((u32)ALL_LANES);
}
