//@use common/base.cuh
//@use common/fragments.cuh
//@use common/head_weight.cuh
//@use common/transposed.cuh
//@use common/grain.cuh
//@use common/key_units.cuh
//@use common/tile.cuh
//@use ptx/cp_async.cuh
//@use ptx/cp_async_mbarrier.cuh
//@use ptx/ldmatrix.cuh
//@use ptx/math.cuh
//@use ptx/mma.cuh
//@use ptx/thread.cuh
//@use indexer_bwd_main.dweights.cuh
//@use indexer_bwd_main.params.h
/*
 * The lightning indexer's backward pass with mma.sync: dq, dweights, and the sums of dk.
 * Mathematics and shapes: include/smelt/indexer_bwd.h; groups and lists: indexer_bwd_main.params.h.
 *
 * Grid: persistent; a CTA takes every gridDim.x-th item, the last ones first. An item is a group:
 * BLOCK_HEADS rows, QUERY_ROWS (heads) of each of its GROUP_QUERIES queries; rows of padded heads
 * and of missing members are zeros. WARPS warps of 16 rows each; for each block of BLOCK_KEYS keys:
 *
 *   scores  X = Q K^T, a warp's own rows by all keys, in registers. With g a key's gradient for the
 *           row's query and w the row's weight: dweights += g max(0, X), and dX = g w where X > 0,
 *           else 0 (without RELU: g X, and g w). dX stays in registers as operand A of dQ, and is stored to shared memory for dK
 *   dQ      [16, DIM] += dX K, of a warp's own rows, in registers during the whole item
 *   dK      [BLOCK_KEYS, DIM] = dX^T Q: units of 32 columns and KEY_TILES tiles of 16 keys,
 *           distributed over the warps, written to global memory from registers
 *           (common/key_units.cuh)
 *
 * A key that several members share is thus added to dk once. With DETERMINISTIC addends are rounded
 * first, so that the additions are exact (common/grain.cuh).
 *
 * Shared memory (offsets and sizes: the plan above):
 *   QUERY   [BLOCK_HEADS][DIM] bf16; finally dQ, on its way to global memory
 *   KEYS    [STAGES][BLOCK_KEYS][DIM] bf16
 *   WEIGHTS [BLOCK_HEADS][BLOCK_KEYS] bf16: dX
 *   ITEM    struct item
 *   GRADS   [ENTRY_SLOTS][GROUP_QUERIES][BLOCK_KEYS] fp32: g of block j in slot j % ENTRY_SLOTS
 *   ENTRIES [ENTRY_SLOTS][BLOCK_KEYS] key numbers, -1: none; slots as in GRADS
 *
 * Copies and barriers, for key block j in stage j % STAGES:
 *   top:        wait for this thread's copies of block j (groups of STAGES - 2 later blocks may be
 *               in flight), then a barrier: block j has landed and no thread still uses block
 *               j - 1. Then gather block j + STAGES - 1
 *   before dK:  a barrier: WEIGHTS is complete
 * The group of block b also copies the key numbers and gradients of block b + STAGES - 1.
 *
 * Knobs: BLOCK_KEYS, STAGES, GROUP_QUERIES, blocks per multiprocessor; legal values and the rule
 * that picks them: src/codegen/families/indexer_bwd_main_mma.c.
 */

enum {
    ROW_CHUNKS = DIM / CHUNK_COLUMNS,          /* of a query's head, and of a key */
    ROW_BYTES = DIM * 2 > 128 ? DIM * 2 : 128, /* in shared memory; what is past DIM is not read */
    KEY_BYTES = BLOCK_KEYS * ROW_BYTES,
    WEIGHT_PITCH = BLOCK_KEYS * 2, /* a multiple of 128 */
    LEAD = STAGES - 1,

    /* The gather: eight threads per row, each 16 of every 128 bytes. */
    GATHER_ROWS = THREADS / 8, /* rows copied at once */

    SCORE_STEPS = DIM / 16,
    SCORE_COLUMNS = BLOCK_KEYS / 8, /* n8 tiles of X of a warp */
    SCORE_VALUES = SCORE_COLUMNS * 4,
    OUTPUT_STEPS = BLOCK_KEYS / 16,
    OUTPUT_COLUMNS = DIM / 8, /* n8 tiles of dQ of a warp */
    OUTPUT_VALUES = OUTPUT_COLUMNS * 4,
    UNIT_KEYS = KEY_TILES * 16,
    KEY_PARTS = BLOCK_KEYS / UNIT_KEYS,
    UNITS = DIM / UNIT_COLUMNS * KEY_PARTS
};

/* The current item, at ITEM_OFFSET because registers are short. */
struct item {
    int group;
    int blocks;                 /* of keys */
    int queries[GROUP_QUERIES]; /* tokens, or -1: none */
};

DEVICE struct item *block_item(void) {
    return (struct item *)(arena + ITEM_OFFSET);
}

/* Writes the item for the whole block. Ends with a barrier. */
DEVICE void describe_item(const struct indexer_bwd_main_params *params, u32 number) {
    const int group = params->first_group + (int)number, member = (int)threadIdx.x;
    struct item *const item = block_item();
    if (member < GROUP_QUERIES) {
        item->queries[member] = params->members[(i64)group * GROUP_QUERIES + member];
    }
    if (member == 0) {
        item->group = group;
        item->blocks = (params->counts[group] + BLOCK_KEYS - 1) / BLOCK_KEYS;
    }
    __syncthreads();
}

/* A row's query, or -1; and its head, which may be past the last one. */
DEVICE int row_query(int row) {
    return block_item()->queries[GROUP_QUERIES == 1 ? 0 : row / QUERY_ROWS];
}

DEVICE int row_head(int row) {
    return GROUP_QUERIES == 1 ? row : row % QUERY_ROWS;
}

/* The keys of a stage; the key numbers and gradients of a block. */
DEVICE u32 stage_keys(int stage) {
    return shared_address((u32)(KEYS_OFFSET + stage * KEY_BYTES));
}

DEVICE const int *block_entries(int block) {
    return (const int *)(arena + ENTRIES_OFFSET) + block % ENTRY_SLOTS * BLOCK_KEYS;
}

DEVICE const float *block_grads(int block) {
    return (const float *)(arena + GRADS_OFFSET) +
           block % ENTRY_SLOTS * (BLOCK_KEYS * GROUP_QUERIES);
}

/* ---- copies into shared memory --------------------------------------------------------------- */

/* Starts the copy of the item's rows of q; missing rows become zeros. */
DEVICE void load_queries(const struct indexer_bwd_main_params *params) {
    enum { CHUNKS = ROW_CHUNKS };
    const u32 tile = shared_address(QUERY_OFFSET);
#pragma unroll 4
    for (int i = (int)thread_number(); i < BLOCK_HEADS * CHUNKS; i += THREADS) {
        const int row = i / CHUNKS, chunk = i % CHUNKS, query = row_query(row);
        const bool present = query >= 0 && row_head(row) < HEADS;
        const i64 from =
            present ? query * params->q_token_stride + row_head(row) * params->q_head_stride : 0;
        cp_async_16(tile + tile_chunk(row, chunk, ROW_BYTES),
                    (const char *)params->q + 2 * from + (present ? chunk * CHUNK_BYTES : 0),
                    present ? CHUNK_BYTES : 0);
    }
}

/* A block's first entry in the group's list. */
DEVICE i64 block_begin(const struct indexer_bwd_main_params *params, int block) {
    return (i64)block_item()->group * params->key_stride + block * BLOCK_KEYS;
}

/* Starts the copy of a block's key numbers and gradients; nothing past the last block. */
DEVICE void load_entries(const struct indexer_bwd_main_params *params, int block) {
    const i64 begin = block_begin(params, block);
    const u32 slot = (u32)(block % ENTRY_SLOTS);
    const int at = (int)thread_number() * 4;
    if (block >= block_item()->blocks) {
        return;
    }
    if (at < BLOCK_KEYS) {
        cp_async_16(shared_address(ENTRIES_OFFSET + (slot * BLOCK_KEYS + (u32)at) * 4),
                    params->keys + begin + at, CHUNK_BYTES);
    }
#pragma unroll
    for (int i = at; i < BLOCK_KEYS * GROUP_QUERIES; i += THREADS * 4) {
        const int member = i / BLOCK_KEYS;
        const i64 row = (i64)block_item()->group * GROUP_QUERIES + member;
        cp_async_16(
            shared_address(GRADS_OFFSET + (slot * (BLOCK_KEYS * GROUP_QUERIES) + (u32)i) * 4),
            params->grads + row * params->key_stride + block * BLOCK_KEYS + i % BLOCK_KEYS,
            CHUNK_BYTES);
    }
}

/* Starts the copy of a block's rows; missing keys become zeros. */
DEVICE void gather(const struct indexer_bwd_main_params *params, const int *entries, int stage) {
    const int chunk = (int)thread_number() % 8, first = (int)thread_number() / 8;
    const u32 tile = stage_keys(stage);
#pragma unroll
    for (int row = first; row < BLOCK_KEYS; row += GATHER_ROWS) {
        const int key = entries[row];
        const char *const source = (const char *)params->k +
                                   (u64)(u32)(key >= 0 ? key : 0) * params->k_row_bytes +
                                   chunk * CHUNK_BYTES;
        const u32 target = tile + tile_chunk(row, chunk, ROW_BYTES);
        if (ROW_CHUNKS < 8 && chunk >= ROW_CHUNKS) {
            break;
        }
#pragma unroll
        for (int part = 0; part < ROW_BYTES; part += 128) {
            cp_async_16(target + (u32)part, source + part, key >= 0 ? CHUNK_BYTES : 0);
        }
    }
}

/* Starts the copies of a key block as one group, empty past the last block. `entries`: its keys, in
 * shared or global memory. */
DEVICE void begin_block(const struct indexer_bwd_main_params *params, const int *entries,
                        int block) {
    if (block < block_item()->blocks) {
        gather(params, entries, block % STAGES);
        load_entries(params, block + LEAD);
    }
    cp_async_commit();
}

/* Starts the copies of the item's queries and of its first LEAD blocks. */
DEVICE void begin_item(const struct indexer_bwd_main_params *params) {
    load_queries(params);
#pragma unroll
    for (int block = 0; block < LEAD; ++block) {
        load_entries(params, block);
    }
#pragma unroll
    for (int block = 0; block < LEAD; ++block) {
        begin_block(params, params->keys + block_begin(params, block), block);
    }
}

/* Waits for all threads' copies of the oldest key block in flight (the first one includes the
 * item's rows), then for all threads. */
DEVICE void wait_for_block(void) {
    cp_async_wait(STAGES - 2);
    __syncthreads();
}

/* ---- scores: X, dweights and dX -------------------------------------------------------------- */

/* This warp's first row, and the member whose rows the warp has. */
DEVICE int first_row(void) {
    return (int)thread_number() / 32 * 16;
}

DEVICE int own_member(void) {
    return GROUP_QUERIES == 1 ? 0 : first_row() / QUERY_ROWS;
}

/* x = this warp's rows of Q K^T. */
DEVICE void multiply_scores(float *x, int stage) {
    const u32 query = rows_first(shared_address(QUERY_OFFSET), first_row(), 0, ROW_BYTES);
    const u32 keys = columns_first(stage_keys(stage), 0, 0, ROW_BYTES);
    clear(x, SCORE_VALUES);
#pragma unroll
    for (int step = 0; step < SCORE_STEPS; ++step) {
        u32 a[4];
        ldmatrix_x4(a, tile_advance(query, step * 32));
#pragma unroll
        for (int n = 0; n < SCORE_COLUMNS; n += 2) {
            u32 b[4];
            ldmatrix_x4(b, tile_advance(keys, step * 32) + (u32)(n * 8 * ROW_BYTES));
            mma_m16n8k16_bf16(&x[n * 4], a, &b[0]);
            mma_m16n8k16_bf16(&x[n * 4 + 4], a, &b[2]);
        }
    }
}

/* A lane's two rows, 8 apart. */
struct row_pair {
    float weight[2];
    float dweights[2]; /* sums over this lane's columns */
};

/* Returns dX of x and adds its part of dweights. */
DEVICE float weigh(float x, float grad, float w, float *dweights) {
    *dweights = fmaf(grad, RELU ? fmaxf(x, 0.0f) : x, *dweights);
    return !RELU || x > 0.0f ? grad * w : 0.0f;
}

/* dX of a block, packed as A operands of dX K: four words per 16 keys. */
DEVICE void weigh_scores(u32 *weights, const float *x, struct row_pair *rows, int block) {
    const float *const grads =
        block_grads(block) + own_member() * BLOCK_KEYS + (int)thread_number() % 4 * 2;
#pragma unroll
    for (int n = 0; n < SCORE_COLUMNS; ++n) {
        const float2 grad = *(const float2 *)&grads[n * 8];
#pragma unroll
        for (int row = 0; row < 2; ++row) {
            const float *const values = &x[n * 4 + row * 2];
            const float first = weigh(values[0], grad.x, rows->weight[row], &rows->dweights[row]);
            const float second = weigh(values[1], grad.y, rows->weight[row], &rows->dweights[row]);
            weights[n * 2 + row] = pack_bf16x2(first, second);
        }
    }
}

/* Stores dX to WEIGHTS, for dK. */
DEVICE void store_weights(const u32 *weights) {
    const int lane = (int)thread_number() % 32;
    const u32 base =
        WEIGHTS_OFFSET + tile_chunk(first_row() + lane / 4, 0, WEIGHT_PITCH) + (u32)(lane % 4 * 4);
#pragma unroll
    for (int n = 0; n < SCORE_COLUMNS; ++n) {
        const u32 offset = tile_advance(base, n * CHUNK_BYTES);
        *(u32 *)(arena + offset) = weights[n * 2];
        *(u32 *)(arena + offset + 8 * WEIGHT_PITCH) = weights[n * 2 + 1];
    }
}

/* ---- dQ -------------------------------------------------------------------------------------- */

/* dq += dX K for the key block in a stage. */
DEVICE void accumulate_dq(float *dq, const u32 *weights, int stage) {
    const u32 keys = rows_first(stage_keys(stage), 0, 0, ROW_BYTES);
#pragma unroll
    for (int step = 0; step < OUTPUT_STEPS; ++step) {
#pragma unroll
        for (int n = 0; n < OUTPUT_COLUMNS; n += 2) {
            u32 b[4];
            ldmatrix_x4_trans(b,
                              tile_advance(keys, n * CHUNK_BYTES) + (u32)(step * 16 * ROW_BYTES));
            mma_m16n8k16_bf16(&dq[n * 4], &weights[step * 4], &b[0]);
            mma_m16n8k16_bf16(&dq[n * 4 + 4], &weights[step * 4], &b[2]);
        }
    }
}

/* Stores dQ as bf16 over the queries in shared memory. */
DEVICE void stage_dq(const float *dq) {
    const int lane = (int)thread_number() % 32;
    const u32 base =
        QUERY_OFFSET + tile_chunk(first_row() + lane / 4, 0, ROW_BYTES) + (u32)(lane % 4 * 4);
#pragma unroll
    for (int n = 0; n < OUTPUT_COLUMNS; ++n) {
        const u32 offset = tile_advance(base, n * CHUNK_BYTES);
        *(u32 *)(arena + offset) = pack_bf16x2(dq[n * 4], dq[n * 4 + 1]);
        *(u32 *)(arena + offset + 8 * ROW_BYTES) = pack_bf16x2(dq[n * 4 + 2], dq[n * 4 + 3]);
    }
}

/* Writes the item's rows of dq, 16 bytes per thread: the staged ones, or zeros. */
DEVICE void store_dq(const struct indexer_bwd_main_params *params, bool zeros) {
    enum { CHUNKS = ROW_CHUNKS };
#pragma unroll 4
    for (int i = (int)thread_number(); i < BLOCK_HEADS * CHUNKS; i += THREADS) {
        const int row = i / CHUNKS, chunk = i % CHUNKS, query = row_query(row);
        const uint4 nothing = {0, 0, 0, 0};
        if (query >= 0 && row_head(row) < HEADS) {
            char *const to = (char *)params->dq + 2 * (query * params->dq_token_stride +
                                                       row_head(row) * params->dq_head_stride);
            *(uint4 *)(to + chunk * CHUNK_BYTES) =
                zeros ? nothing
                      : *(const uint4 *)(arena + QUERY_OFFSET + tile_chunk(row, chunk, ROW_BYTES));
        }
    }
}

/* ---- weights and dweights -------------------------------------------------------------------- */

/* Whether a row is a query's head. */
DEVICE bool is_row(int row) {
    return row_query(row) >= 0 && row_head(row) < HEADS;
}

/* Loads this lane's rows' weights and clears dweights. */
DEVICE void begin_rows(const struct indexer_bwd_main_params *params, struct row_pair *rows) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int row = first_row() + (int)thread_number() % 32 / 4 + i * 8;
        rows->dweights[i] = 0.0f;
        rows->weight[i] =
            is_row(row) ? head_weight(params->weights,
                                      row_query(row) * params->weights_token_stride + row_head(row),
                                      params->weights_bf16)
                        : 0.0f;
    }
}

/* Writes each quad's sums to dweights. */
DEVICE void store_dweights(const struct indexer_bwd_main_params *params, const float *sums) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int row = first_row() + (int)thread_number() % 32 / 4 + i * 8;
        float sum = sums[i];
        sum += __shfl_xor_sync((u32)ALL_LANES, sum, 1);
        sum += __shfl_xor_sync((u32)ALL_LANES, sum, 2);
        if (thread_number() % 4 == 0 && is_row(row)) {
            store_dweight(params, row_query(row), row_head(row), sum);
        }
    }
}

/* ---- dK -------------------------------------------------------------------------------------- */

/* The rows of dk of a block's keys, from a column on. */
DEVICE struct unit_rows find_unit_rows(const struct indexer_bwd_main_params *params, int block,
                                       int column) {
    const int place = column + unit_place(false);
    struct unit_rows rows = {(char *)params->dk + 4 * place, DIM * 4, block_entries(block),
                             UNIT_COLUMNS, false};
    return rows;
}

/* The grains of this lane's rows in a unit, 8 apart; 0 leaves values unchanged. */
DEVICE void load_grains(float *grains, const struct indexer_bwd_main_params *params,
                        const struct unit_rows *rows, int slot) {
#pragma unroll
    for (int i = 0; i < KEY_TILES * 2; ++i) {
        const int key = rows->keys[slot + i * 8 + (int)thread_number() % 32 / 4];
        grains[i] = DETERMINISTIC && key >= 0 ? params->grains[key] : 0.0f;
    }
}

/* Rounds a unit's sums to their rows' grains. */
DEVICE void round_unit(float *sums, const float *grains) {
#pragma unroll
    for (int i = 0; i < KEY_TILES * 16; ++i) {
        sums[i] = round_to_grain(sums[i], grains[i / 16 * 2 + i % 4 / 2]);
    }
}

DEVICE void add_dk(const struct indexer_bwd_main_params *params, int block) {
#pragma unroll 1
    for (int unit = (int)thread_number() / 32; unit < UNITS; unit += WARPS) {
        const int slot = unit % KEY_PARTS * UNIT_KEYS, column = unit / KEY_PARTS * UNIT_COLUMNS;
        const u32 weights =
            columns_first(shared_address(WEIGHTS_OFFSET), 0, slot / CHUNK_COLUMNS, WEIGHT_PITCH);
        const u32 query =
            rows_first(shared_address(QUERY_OFFSET), 0, column / CHUNK_COLUMNS, ROW_BYTES);
        const struct unit_rows rows = find_unit_rows(params, block, column);
        float sums[KEY_TILES * 16], grains[KEY_TILES * 2];
        load_grains(grains, params, &rows, slot);
        clear(sums, KEY_TILES * 16);
        multiply_transposed(sums, KEY_TILES, BLOCK_HEADS / 16, weights, WEIGHT_PITCH, query,
                            ROW_BYTES);
        if (DETERMINISTIC) {
            round_unit(sums, grains);
        }
        put_unit(&rows, slot, KEY_TILES, sums);
    }
}

/* ---- items ----------------------------------------------------------------------------------- */

/* One key block: dX into WEIGHTS, its part of dweights and dQ. */
DEVICE void compute_block(float *dq, struct row_pair *rows, int block) {
    float x[SCORE_VALUES];
    u32 weights[SCORE_COLUMNS * 2];
    multiply_scores(x, block % STAGES);
    weigh_scores(weights, x, rows, block);
    store_weights(weights);
    accumulate_dq(dq, weights, block % STAGES);
}

/* An item with keys. By the whole block; ends without a barrier. */
DEVICE void compute_item(const struct indexer_bwd_main_params *params) {
    float dq[OUTPUT_VALUES];
    struct row_pair rows;
    begin_item(params);
    begin_rows(params, &rows);
    clear(dq, OUTPUT_VALUES);
#pragma unroll 1
    for (int block = 0; block < block_item()->blocks; ++block) {
        const int next = block + LEAD;
        wait_for_block();
        begin_block(params, block_entries(next), next);
        compute_block(dq, &rows, block);
        __syncthreads();
        add_dk(params, block);
    }
    store_dweights(params, rows.dweights);
    __syncthreads();
    stage_dq(dq);
    __syncthreads();
    store_dq(params, false);
}

/* Writes zeros for queries without keys. */
DEVICE void clear_item(const struct indexer_bwd_main_params *params) {
    const float nothing[2] = {0.0f, 0.0f};
    store_dweights(params, nothing);
    store_dq(params, true);
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct indexer_bwd_main_params params) {
    const u32 items = (u32)params.groups;
#pragma unroll 1
    for (u32 iteration = blockIdx.x; iteration < items; iteration += gridDim.x) {
        describe_item(&params, items - 1 - iteration);
        if (block_item()->blocks > 0) {
            compute_item(&params);
        } else {
            clear_item(&params);
        }
        __syncthreads();
    }
}
