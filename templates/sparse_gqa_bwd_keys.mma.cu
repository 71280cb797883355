//@use common/base.cuh
//@use common/fragments.cuh
//@use common/gqa_lists.cuh
//@use common/key_units.cuh
//@use common/softmax.cuh
//@use common/tile.cuh
//@use common/transposed.cuh
//@use ptx/cp_async.cuh
//@use ptx/ldmatrix.cuh
//@use ptx/math.cuh
//@use ptx/mma.cuh
//@use sparse_gqa_bwd.params.h
/*
 * dk and dv of sparse attention for grouped heads with mma.sync, key-stationary: an item is a KV head,
 * BLOCK_KEYS rows of a block and a segment of the queries that chose the block (the reverse index,
 * sparse_gqa_lists.params.h). Mathematics and shapes: include/smelt/sparse_gqa.h.
 *
 * Grid: persistent CTAs; only the device knows how many items there are. K and V of the rows stay in
 * shared memory, their gradients in registers. The queries' heads are the rows of tiles of TILE_ROWS:
 * TILE_QUERIES queries of PADDED_HEADS rows each, or one of TILE_PARTS parts of a query. For each tile
 *
 *   scores   S = Q K^T and dP = dO V^T, [TILE_ROWS, BLOCK_KEYS], in units of 16 rows by 16 or 32 keys,
 *            which the warps take cyclically; P and dS go to shared memory as bf16
 *   sums     dV += P^T dO and dK += dS^T Q, in units of 16 keys by 32 columns: unit i is warp i %
 *            WARPS's
 *
 * At the end the units are added to the fp32 sums. With one segment a list (host code, deterministic)
 * every sum has a fixed order: the list's.
 *
 * Shared memory (offsets and sizes: the plan above):
 *   KEYS    [BLOCK_KEYS][KEY_PITCH bytes] bf16, VALUES [BLOCK_KEYS][VALUE_PITCH]
 *   QUERY   [STAGES][TILE_ROWS][KEY_PITCH] bf16, GRAD [STAGES][TILE_ROWS][VALUE_PITCH]
 *   WEIGHTS [TILE_ROWS][WEIGHT_PITCH]: P and, DS_BYTES later, dS
 *   STATISTICS [STAGES][TILE_ROWS] base and delta
 *   MEMBERS [3][TILE_QUERIES] struct member: of the tiles t to t + 2
 *   ROWS    [BLOCK_KEYS] row numbers, -1: none
 *   REACH   int
 *
 * In iteration t, behind the barrier at its top: tile t's copies have landed, its statistics are
 * written and the members of tile t + 1 known, whose copies begin. Behind the second one: P and dS are
 * complete.
 */

enum {
    KEY_PITCH = (DQK + 63) / 64 * 128, /* bytes of a row */
    VALUE_PITCH = (DV + 63) / 64 * 128,
    QUERY_BYTES = TILE_ROWS * KEY_PITCH, /* of a stage */
    GRAD_BYTES = TILE_ROWS * VALUE_PITCH,
    WEIGHT_PITCH = BLOCK_KEYS < 32 ? 128 : BLOCK_KEYS * 4,
    DS_BYTES = BLOCK_KEYS * 2, /* from P to dS in a row of WEIGHTS */

    TILE_QUERIES = TILE_ROWS < PADDED_HEADS ? 1 : TILE_ROWS / PADDED_HEADS,
    TILE_PARTS = TILE_ROWS < PADDED_HEADS ? PADDED_HEADS / TILE_ROWS : 1,
    KEY_PARTS = GRANULARITY > BLOCK_KEYS ? GRANULARITY / BLOCK_KEYS : 1, /* items of a block */
    LIST_HEADS = LISTS_OF_KV_HEADS ? 1 : KV_HEADS,                       /* that share a list */

    SCORE_TILES = BLOCK_KEYS < 32 ? 2 : 4, /* n8 tiles of a unit */
    SCORE_COLUMNS = BLOCK_KEYS / 8 / SCORE_TILES,
    SCORE_UNITS = TILE_ROWS / 16 * SCORE_COLUMNS,

    KEY_TILES = BLOCK_KEYS / 16,
    KEY_UNITS = DQK / UNIT_COLUMNS * KEY_TILES, /* of dk; dv's follow */
    UNITS = KEY_UNITS + DV / UNIT_COLUMNS * KEY_TILES,
    WARP_UNITS = (UNITS + WARPS - 1) / WARPS
};

/* A query of a tile. */
struct member {
    int entry; /* of the query list, or -1: none */
    int token;
    int limit; /* rows of the batch that it reads */
    int unused;
};

struct item {
    int batch, kv_head;
    int list;
    int first_row;    /* of BLOCK_KEYS */
    int begin, count; /* its queries in the index */
    int tiles;
};

DEVICE struct member *tile_member(int tile, int number) {
    return (struct member *)(arena + MEMBERS_OFFSET) + tile % 3 * TILE_QUERIES + number;
}

/* The list of a segment: the last one with items[list] <= segment. */
DEVICE int find_list(const struct sparse_gqa_bwd_params *params, int segment) {
    int low = 0, high = params->index_lists;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (params->items[middle] <= segment) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

DEVICE struct item find_item(const struct sparse_gqa_bwd_params *params, int number) {
    const int segment = number / (LIST_HEADS * KEY_PARTS);
    const int head = number / KEY_PARTS % LIST_HEADS, part = number % KEY_PARTS;
    const int list = find_list(params, segment);
    const int groups = KV_HEADS / LIST_HEADS;
    struct item item;
    item.list = list;
    item.batch = list / params->blocks / groups;
    item.kv_head = LIST_HEADS > 1 ? head : list / params->blocks % groups;
    item.first_row = list % params->blocks * GRANULARITY + part * BLOCK_KEYS;
    item.begin = params->starts[list] + (segment - params->items[list]) * params->segment;
    item.count = minimum(params->starts[list + 1] - item.begin, params->segment);
    item.tiles = (item.count + TILE_QUERIES - 1) / TILE_QUERIES * TILE_PARTS;
    return item;
}

/* A query's number, of an entry; its token in the item's batch. */
DEVICE struct member describe_member(const struct sparse_gqa_bwd_params *params,
                                     const struct item *item, int number) {
    struct member member = {-1, 0, 0, 0};
    if (number < item->count) {
        member.entry = params->queries[item->begin + number];
        const int query = params->work.queries ? params->work.queries[member.entry] : member.entry;
        member.token = query - item->batch * params->work.tokens;
        member.limit = gqa_limit(&params->work, &params->lists, query);
    }
    return member;
}

/* Writes the members of a tile. */
DEVICE void write_members(const struct sparse_gqa_bwd_params *params, const struct item *item,
                          int tile) {
    if ((int)threadIdx.x < TILE_QUERIES) {
        *tile_member(tile, (int)threadIdx.x) =
            describe_member(params, item, tile / TILE_PARTS * TILE_QUERIES + (int)threadIdx.x);
    }
}

/* The member and the head of a tile's row; the head is past the group's where the row is padded. */
DEVICE int row_member(int row) {
    return TILE_PARTS > 1 ? 0 : row / PADDED_HEADS;
}

DEVICE int row_head(int tile, int row) {
    return TILE_PARTS > 1 ? tile % TILE_PARTS * TILE_ROWS + row : row % PADDED_HEADS;
}

/* Starts the copy of a tile's rows of a tensor; rows of no query become zeros. */
DEVICE void gather_tile(const char *data, i64 token_bytes, i64 head_bytes, int tile, u32 to,
                        int pitch, int chunks) {
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < TILE_ROWS * chunks; i += THREADS) {
        const int row = i / chunks, chunk = i % chunks, head = row_head(tile, row);
        const struct member *const member = tile_member(tile, row_member(row));
        const bool present = head < GROUP_HEADS && member->entry >= 0;
        cp_async_16(to + tile_chunk(row, chunk, pitch),
                    present ? data + member->token * token_bytes + head * head_bytes +
                                  chunk * CHUNK_BYTES
                            : data,
                    present ? CHUNK_BYTES : 0);
    }
}

/* Starts the copies of a tile, if there is one. */
DEVICE void begin_tile(const struct sparse_gqa_bwd_params *params, const struct item *item,
                       int tile) {
    const int head = item->kv_head * GROUP_HEADS, stage = tile % STAGES;
    if (tile < item->tiles) {
        gather_tile((const char *)params->q +
                        2 * (item->batch * params->q_batch_stride + head * params->q_head_stride),
                    2 * params->q_token_stride, 2 * params->q_head_stride, tile,
                    shared_address(QUERY_OFFSET + (u32)(stage * QUERY_BYTES)), KEY_PITCH, DQK / 8);
        gather_tile((const char *)params->grad_out +
                        2 * (item->batch * params->grad_out_batch_stride +
                             head * params->grad_out_head_stride),
                    2 * params->grad_out_token_stride, 2 * params->grad_out_head_stride, tile,
                    shared_address(GRAD_OFFSET + (u32)(stage * GRAD_BYTES)), VALUE_PITCH, DV / 8);
    }
    cp_async_commit();
}

/* This thread's row of a tile: base and delta. Threads past the rows have none. */
DEVICE float2 load_statistics(const struct sparse_gqa_bwd_params *params, const struct item *item,
                              int tile) {
    const int row = (int)threadIdx.x, head = row_head(tile, row);
    float2 found = {-MINUS_INFINITY, 0.0f};
    if (tile < item->tiles && row < TILE_ROWS && head < GROUP_HEADS) {
        const int entry = tile_member(tile, row_member(row))->entry;
        if (entry >= 0) {
            found =
                *(const float2 *)&params
                     ->statistics[2 * ((i64)entry * HEADS + item->kv_head * GROUP_HEADS + head)];
        }
    }
    return found;
}

DEVICE float2 *row_statistics(int tile, int row) {
    return (float2 *)(arena + STATISTICS_OFFSET) + tile % STAGES * TILE_ROWS + row;
}

/* The rows that some query of the item reads lie below it. By the whole CTA; contains a barrier. */
DEVICE int find_reach(const struct sparse_gqa_bwd_params *params, const struct item *item) {
    int *const reach = (int *)(arena + REACH_OFFSET);
    int own = params->lists.limit ? 0 : params->work.rows;
    if (params->lists.limit) {
        for (int i = (int)threadIdx.x; i < item->count; i += THREADS) {
            own = maximum(own, describe_member(params, item, i).limit);
        }
    }
#pragma unroll
    for (int mask = 1; mask < 32; mask *= 2) {
        own = maximum(own, __shfl_xor_sync((u32)ALL_LANES, own, mask));
    }
    if (threadIdx.x % 32 == 0) {
        reach[threadIdx.x / 32] = own;
    }
    __syncthreads();
#pragma unroll
    for (int warp = 0; warp < WARPS; ++warp) {
        own = maximum(own, reach[warp]);
    }
    return own;
}

/* Starts the copy of the item's rows of K or V; others become zeros. */
DEVICE void load_rows(const char *data, i64 row_bytes, int first, int end, u32 to, int pitch,
                      int chunks) {
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < BLOCK_KEYS * chunks; i += THREADS) {
        const int key = i / chunks, chunk = i % chunks;
        const bool present = key < GRANULARITY && first + key < end;
        cp_async_16(to + tile_chunk(key, chunk, pitch),
                    present ? data + (first + key) * row_bytes + chunk * CHUNK_BYTES : data,
                    present ? CHUNK_BYTES : 0);
    }
}

/* Starts the copies of K and V, and writes their row numbers. */
DEVICE void begin_item(const struct sparse_gqa_bwd_params *params, const struct item *item) {
    const int end = find_reach(params, item), key = (int)threadIdx.x;
    load_rows((const char *)params->k + 2 * (item->batch * params->k_batch_stride +
                                             item->kv_head * params->k_head_stride),
              2 * params->k_row_stride, item->first_row, end, shared_address(KEYS_OFFSET),
              KEY_PITCH, DQK / 8);
    load_rows((const char *)params->v + 2 * (item->batch * params->v_batch_stride +
                                             item->kv_head * params->v_head_stride),
              2 * params->v_row_stride, item->first_row, end, shared_address(VALUES_OFFSET),
              VALUE_PITCH, DV / 8);
    if (key < BLOCK_KEYS) {
        ((int *)(arena + ROWS_OFFSET))[key] =
            key < GRANULARITY && item->first_row + key < end ? item->first_row + key : -1;
    }
}

/* ---- a tile ---- */

/* s = A B^T: 16 rows by SCORE_TILES n8 tiles of keys. */
DEVICE void multiply_unit(float *s, u32 rows, u32 keys, int steps, int pitch) {
    clear(s, SCORE_TILES * 4);
#pragma unroll 4
    for (int step = 0; step < steps; ++step) {
        u32 a[4];
        ldmatrix_x4(a, tile_advance(rows, step * 32));
#pragma unroll
        for (int n = 0; n < SCORE_TILES / 2; ++n) {
            u32 b[4];
            ldmatrix_x4(b, tile_advance(keys, step * 32) + (u32)(n * 16 * pitch));
            mma_m16n8k16_bf16(&s[n * 8], a, &b[0]);
            mma_m16n8k16_bf16(&s[n * 8 + 4], a, &b[2]);
        }
    }
}

/* Computes P and dS of a unit from its scores and writes them to WEIGHTS. */
DEVICE void write_weights(const struct sparse_gqa_bwd_params *params, const struct item *item,
                          const float *s, const float *dp, int tile, int first_row, int first_key) {
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = first_row + lane / 4 + half * 8;
        const float2 own = *row_statistics(tile, row);
        const int keys = tile_member(tile, row_member(row))->limit - item->first_row;
#pragma unroll
        for (int n = 0; n < SCORE_TILES; ++n) {
            const int key = first_key + n * 8 + lane % 4 * 2;
            float p[2], ds[2];
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                const bool valid =
                    key + e < keys && (GRANULARITY >= BLOCK_KEYS || key + e < GRANULARITY);
                const float score = s[n * 4 + half * 2 + e];
                const float weight = exp2_approximate(fmaf(score, params->scale * LOG2_E, -own.x));
                p[e] = valid ? weight : 0.0f;
                ds[e] = valid ? weight * (dp[n * 4 + half * 2 + e] - own.y) * params->scale : 0.0f;
            }
            const u32 at = WEIGHTS_OFFSET + (u32)(key % 8 * 2);
            *(u32 *)(arena + at + tile_chunk(row, key / 8, WEIGHT_PITCH)) = pack_bf16x2(p[0], p[1]);
            *(u32 *)(arena + at + tile_chunk(row, key / 8 + DS_BYTES / CHUNK_BYTES, WEIGHT_PITCH)) =
                pack_bf16x2(ds[0], ds[1]);
        }
    }
}

DEVICE void compute_scores(const struct sparse_gqa_bwd_params *params, const struct item *item,
                           int tile) {
    const u32 query = shared_address(QUERY_OFFSET + (u32)(tile % STAGES * QUERY_BYTES));
    const u32 grad = shared_address(GRAD_OFFSET + (u32)(tile % STAGES * GRAD_BYTES));
#pragma unroll 1
    for (int unit = (int)threadIdx.x / 32; unit < SCORE_UNITS; unit += WARPS) {
        const int row = unit / SCORE_COLUMNS * 16, key = unit % SCORE_COLUMNS * SCORE_TILES * 8;
        float s[SCORE_TILES * 4], dp[SCORE_TILES * 4];
        multiply_unit(s, rows_first(query, row, 0, KEY_PITCH),
                      columns_first(shared_address(KEYS_OFFSET), key, 0, KEY_PITCH), DQK / 16,
                      KEY_PITCH);
        multiply_unit(dp, rows_first(grad, row, 0, VALUE_PITCH),
                      columns_first(shared_address(VALUES_OFFSET), key, 0, VALUE_PITCH), DV / 16,
                      VALUE_PITCH);
        write_weights(params, item, s, dp, tile, row, key);
    }
}

/* A unit's part of dk or dv: its keys and columns. */
struct unit {
    bool of_values;
    int key_tile;
    int column; /* first of UNIT_COLUMNS */
};

DEVICE struct unit find_unit(int number) {
    const bool of_values = number >= KEY_UNITS;
    const int own = of_values ? number - KEY_UNITS : number;
    const struct unit unit = {of_values, own % KEY_TILES, own / KEY_TILES * UNIT_COLUMNS};
    return unit;
}

/* Adds a tile's products to this warp's units. */
DEVICE void accumulate_tile(float *sums, int tile) {
    const u32 weights = shared_address(WEIGHTS_OFFSET);
#pragma unroll
    for (int i = 0; i < WARP_UNITS; ++i) {
        const int number = (int)threadIdx.x / 32 + i * WARPS;
        const struct unit unit = find_unit(number);
        if (number >= UNITS) {
            break;
        }
        const u32 from = unit.of_values
                             ? shared_address(GRAD_OFFSET + (u32)(tile % STAGES * GRAD_BYTES))
                             : shared_address(QUERY_OFFSET + (u32)(tile % STAGES * QUERY_BYTES));
        const int pitch = unit.of_values ? VALUE_PITCH : KEY_PITCH;
        multiply_transposed(
            &sums[i * 16], 1, TILE_ROWS / 16,
            columns_first(weights, 0,
                          unit.key_tile * 2 + (unit.of_values ? 0 : DS_BYTES / CHUNK_BYTES),
                          WEIGHT_PITCH),
            WEIGHT_PITCH, rows_first(from, 0, unit.column / CHUNK_COLUMNS, pitch), pitch);
    }
}

/* Adds this warp's units to the sums in global memory. */
DEVICE void store_units(const struct sparse_gqa_bwd_params *params, const struct item *item,
                        const float *sums) {
    const i64 first = ((i64)item->batch * KV_HEADS + item->kv_head) * params->work.rows;
#pragma unroll
    for (int i = 0; i < WARP_UNITS; ++i) {
        const int number = (int)threadIdx.x / 32 + i * WARPS;
        const struct unit unit = find_unit(number);
        if (number >= UNITS) {
            break;
        }
        float *const to = unit.of_values ? params->dv + first * DV : params->dk + first * DQK;
        const struct unit_rows rows = {(char *)(to + unit.column + unit_place(false)),
                                       (unit.of_values ? DV : DQK) * 4,
                                       (const int *)(arena + ROWS_OFFSET), UNIT_COLUMNS, false};
        put_unit(&rows, unit.key_tile * 16, 1, &sums[i * 16]);
    }
}

/* Computes one item; the whole CTA calls it. Ends in a barrier. */
DEVICE void compute_item(const struct sparse_gqa_bwd_params *params, const struct item *item) {
    float sums[WARP_UNITS * 16];
    clear(sums, WARP_UNITS * 16);
    begin_item(params, item);
    write_members(params, item, 0);
    write_members(params, item, 1);
    __syncthreads();
    begin_tile(params, item, 0);
    float2 statistics = load_statistics(params, item, 0);
#pragma unroll 1
    for (int tile = 0; tile < item->tiles; ++tile) {
        if ((int)threadIdx.x < TILE_ROWS) {
            *row_statistics(tile, (int)threadIdx.x) = statistics;
        }
        cp_async_wait(0);
        __syncthreads();
        begin_tile(params, item, tile + 1);
        statistics = load_statistics(params, item, tile + 1);
        compute_scores(params, item, tile);
        write_members(params, item, tile + 2);
        __syncthreads();
        accumulate_tile(sums, tile);
    }
    store_units(params, item, sums);
    cp_async_wait(0);
    __syncthreads();
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct sparse_gqa_bwd_params params) {
    const int items = params.items[params.index_lists] * (LIST_HEADS * KEY_PARTS);
#pragma unroll 1
    for (int number = (int)blockIdx.x; number < items; number += (int)gridDim.x) {
        const struct item item = find_item(&params, number);
        if (item.first_row < params.work.rows) {
            compute_item(&params, &item);
        }
    }
}
