//@use common/base.cuh
//@use common/gqa_lists.cuh
//@use common/tile.cuh
//@use ptx/cp_async.cuh
/*
 * The rows of a query's list, in key blocks of BLOCK_KEYS positions: entry i of the list has the
 * positions i * GRANULARITY to (i + 1) * GRANULARITY - 1. Thread t numbers position t of each block;
 * the numbers stay in shared memory until the block is computed. Its K and V rows are gathered into
 * stages, STAGES - 1 blocks ahead. A block of masked rows alone is dead: it is neither gathered nor
 * computed.
 *
 * For block j, in stage j % STAGES and numbers' slot j % ROW_SLOTS, in iteration i:
 *   i = j - STAGES - 1   its entries are loaded
 *   i = j - STAGES       its rows are numbered
 *   i = j - STAGES + 1   after a barrier, they are gathered
 *   i = j                after a barrier, the block is computed
 *
 * Shared memory: KEYS [STAGES][BLOCK_KEYS][KEY_PITCH bytes] and VALUES [STAGES][BLOCK_KEYS]
 * [VALUE_PITCH], bf16, swizzled; ROWS [ROW_SLOTS][BLOCK_KEYS] row numbers, MASKED: none. With DV = 0
 * there are no values.
 */

enum {
    MASKED = -1,
    ROW_SLOTS = STAGES + 1,
    KEY_PITCH = (DQK + 63) / 64 * 128, /* bytes of a row */
    VALUE_PITCH = (DV + 63) / 64 * 128,
    KEY_CHUNKS = DQK / 8,
    VALUE_CHUNKS = DV / 8,
    KEY_BYTES = BLOCK_KEYS * KEY_PITCH, /* of a stage */
    VALUE_BYTES = BLOCK_KEYS * VALUE_PITCH
};

struct row_list {
    const int *list;
    int slots;   /* of the list, that count */
    int entries; /* an entry in [0, entries) is valid */
    int limit;   /* rows from it on are masked */
    int blocks;
    int entry; /* this thread's of the block to be numbered next */
    u32 alive; /* bit i: the block that was begun i blocks before the last one has a row */
};

/* A tensor's rows of one KV head. */
struct row_source {
    const char *data;
    i64 row_bytes;
};

/* Loads this thread's entry of a block. */
DEVICE void load_entry(struct row_list *rows, int block) {
    const i64 slot = ((i64)block * BLOCK_KEYS + (int)threadIdx.x) / GRANULARITY;
    const bool present = (int)threadIdx.x < BLOCK_KEYS && slot < rows->slots;
    rows->entry = present ? rows->list[slot] : MASKED;
}

/* Numbers the rows of a block, whose entries were loaded, and loads the next block's. Returns whether
 * this thread's position has a row. */
DEVICE bool number_rows(struct row_list *rows, int block) {
    const int thread = (int)threadIdx.x, entry = rows->entry;
    const u32 row = (u32)entry * GRANULARITY + (u32)((block * BLOCK_KEYS + thread) % GRANULARITY);
    const bool valid = entry >= 0 && entry < rows->entries && row < (u32)rows->limit;
    if (thread < BLOCK_KEYS) {
        ((int *)(arena + ROWS_OFFSET))[block % ROW_SLOTS * BLOCK_KEYS + thread] =
            valid ? (int)row : MASKED;
    }
    load_entry(rows, block + 1);
    return valid;
}

/* The numbers of a block's rows. */
DEVICE const int *block_rows(int block) {
    return (const int *)(arena + ROWS_OFFSET) + block % ROW_SLOTS * BLOCK_KEYS;
}

/* Starts the copy of a block's rows, `chunks` of 16 bytes each; masked ones become zeros without being
 * read. */
DEVICE void gather_rows(const struct row_source *source, int block, u32 tile, int pitch,
                        int chunks) {
    const int rows_at_once = THREADS / chunks;
    const int chunk = (int)threadIdx.x % chunks, first = (int)threadIdx.x / chunks;
    const char *const from = source->data + chunk * CHUNK_BYTES;
    const int *const rows = block_rows(block);
    if (first >= rows_at_once) {
        return;
    }
#pragma unroll 4
    for (int key = first; key < BLOCK_KEYS; key += rows_at_once) {
        const int row = rows[key];
        cp_async_16(tile + tile_chunk(key, chunk, pitch),
                    row >= 0 ? from + row * source->row_bytes : from, row >= 0 ? CHUNK_BYTES : 0);
    }
}

/* Begins a block, whose rows are numbered: starts its gather, if `alive`, as one group of copies. */
DEVICE void begin_block(struct row_list *rows, const struct row_source *keys,
                        const struct row_source *values, int block, bool alive) {
    const int stage = block % STAGES;
    rows->alive = rows->alive << 1 | (alive ? 1u : 0u);
    if (alive) {
        gather_rows(keys, block, shared_address(KEYS_OFFSET + (u32)(stage * KEY_BYTES)), KEY_PITCH,
                    KEY_CHUNKS);
        if (DV > 0) {
            gather_rows(values, block, shared_address(VALUES_OFFSET + (u32)(stage * VALUE_BYTES)),
                        VALUE_PITCH, VALUE_CHUNKS);
        }
    }
    cp_async_commit();
}

/* Begins the first STAGES - 1 blocks of a query's list, and numbers the next. Copies that were started
 * before belong to the first block's group. Returns number_rows' result for that next block. By the
 * whole CTA. */
DEVICE bool begin_rows(struct row_list *rows, const struct work_params *work,
                       const struct gqa_lists_params *lists, int query, int list,
                       const struct row_source *keys, const struct row_source *values) {
    rows->list = gqa_list(work, lists, query, list);
    rows->slots = gqa_slots(work, lists, query, list);
    rows->limit = gqa_limit(work, lists, query);
    rows->entries = gqa_entries(rows->limit);
    rows->blocks = (int)(((i64)rows->slots * GRANULARITY + BLOCK_KEYS - 1) / BLOCK_KEYS);
    rows->alive = 0;
    load_entry(rows, 0);
#pragma unroll 1
    for (int block = 0; block < STAGES - 1; ++block) {
        const bool valid = number_rows(rows, block);
        begin_block(rows, keys, values, block, __syncthreads_or(valid));
    }
    return number_rows(rows, STAGES - 1);
}

/* Waits for a block's rows, begins the block STAGES - 1 after it and numbers the one after that.
 * `next`: number_rows' result of the block that is begun, then of the one that was numbered. Returns
 * whether the block is to be computed. By the whole CTA. */
DEVICE bool next_block(struct row_list *rows, const struct row_source *keys,
                       const struct row_source *values, int block, bool *next) {
    cp_async_wait(STAGES - 2);
    begin_block(rows, keys, values, block + STAGES - 1, __syncthreads_or(*next));
    *next = number_rows(rows, block + STAGES);
    return rows->alive >> (STAGES - 1) & 1;
}
