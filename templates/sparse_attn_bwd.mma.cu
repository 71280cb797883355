//@use common/base.cuh
//@use common/fragments.cuh
//@use common/transposed.cuh
//@use common/key_units.cuh
//@use common/softmax.cuh
//@use common/tile.cuh
//@use ptx/cp_async.cuh
//@use ptx/cp_async_mbarrier.cuh
//@use ptx/ldmatrix.cuh
//@use ptx/ldmatrix_x2.cuh
//@use ptx/math.cuh
//@use ptx/mma.cuh
//@use ptx/thread.cuh
//@use sparse_attn_bwd.params.h
/*
 * Sparse attention backward with mma.sync: dq, and the sums (or partial rows) of dkv. Mathematics
 * and shapes: include/smelt/sparse_attn.h; lists and statistics: sparse_attn_bwd.params.h.
 *
 * Grid: persistent CTAs; each takes every gridDim.x-th item, from the last one down. An item is
 * BLOCK_HEADS heads of a query (groups have one member); padded rows are zeros. WARPS warps, all of
 * one role; for each block of BLOCK_KEYS keys they divide the products in three ways:
 *
 *   scores   S = Q K^T and dP = dO K^T, [BLOCK_HEADS, BLOCK_KEYS]: warps over heads x keys x depth
 *            (SCORE_*_GROUPS), both products of the same heads and keys, so that each fragment
 *            of K serves twice and P and dS are computed in registers
 *   dQ       [BLOCK_HEADS, KEY_COLUMNS] += dS K: warps over columns, 8 of every 64 with eight warps; in
 *            registers throughout the item
 *   dKV      [BLOCK_KEYS, DQK] = dS^T Q + P^T dO: units of 32 columns and some keys, which the warps
 *            take cyclically. Each unit goes from registers to global memory; dkv's columns are kept
 *            in the fragments' order (common/key_columns.cuh), which gives wide accesses
 *
 * Shared memory (offsets and sizes: the plan above):
 *   QUERY      [BLOCK_HEADS][KEY_COLUMNS] bf16; at the end dQ, staged for global memory
 *   GRAD       [BLOCK_HEADS][VALUE_COLUMNS] bf16: dO
 *   KEYS       [STAGES][BLOCK_KEYS][KEY_COLUMNS] bf16
 *   WEIGHTS    [BLOCK_HEADS] rows of P and dS, BLOCK_KEYS bf16 each, at least 128 bytes; before that
 *              the partial sums of S and dP, fp32, of SCORE_DEPTH_GROUPS - 1 groups
 *   STATISTICS [BLOCK_HEADS] base and delta
 *   ITEM       struct item
 *   ENTRIES    [ENTRY_SLOTS][BLOCK_KEYS] key numbers, -1: none; block j's in slot
 *              j % ENTRY_SLOTS
 *
 * KEY_COLUMNS and VALUE_COLUMNS are DQK and DV rounded up to multiples of 64; further columns are zeros.
 *
 * Copies and barriers, for key block j in stage j % STAGES:
 *   top:          own copies of block j done (groups of STAGES - 2 later blocks may be under way),
 *                 then a barrier: all copies have landed, and all threads are done with block
 *                 j - 1. With several stages: gather block j + STAGES - 1
 *   after scores: with several depth groups, partial sums complete; and read
 *   before dQ:    WEIGHTS complete
 *   after dQ:     with one stage, K is free: gather block j + 1, which dKV hides
 * The copies of block b's rows include the key numbers of block b + ENTRY_LEAD.
 *
 * Knobs: BLOCK_KEYS, STAGES, WARPS, BLOCK_HEADS, blocks per multiprocessor; legal values and the
 * rule that picks them: src/codegen/families/sparse_attn_bwd_mma.c.
 */

enum {
    QUERY_PITCH = KEY_COLUMNS * 2, /* bytes of a row, here and below */
    GRAD_PITCH = VALUE_COLUMNS * 2,
    KEY_PITCH = KEY_COLUMNS * 2,
    KEY_BYTES = BLOCK_KEYS * KEY_PITCH, /* of a stage */
    WEIGHT_PITCH = BLOCK_KEYS < 32 ? 128 : BLOCK_KEYS * 4,
    DS_BYTES = BLOCK_KEYS * 2, /* from P to dS in a row of WEIGHTS */
    ENTRY_LEAD = STAGES > 1 ? STAGES - 1 : 1,

    /* The gather: eight threads per row, each 16 of every 128 bytes. */
    GATHER_ROWS = BLOCK_KEYS < THREADS / 8 ? BLOCK_KEYS : THREADS / 8, /* at once */
    GATHER_PARTS = THREADS / 8 / GATHER_ROWS,                          /* parts of a row */

    HEAD_TILES = BLOCK_HEADS / 16,
    SCORE_TILES = HEAD_TILES / SCORE_HEAD_GROUPS,     /* m16 tiles per warp */
    SCORE_PAIRS = BLOCK_KEYS / 16 / SCORE_KEY_GROUPS, /* pairs of n8 tiles per warp */
    SCORE_COLUMNS = SCORE_PAIRS * 2,
    /* k-steps per warp: of both products, and of S alone. */
    SCORE_LATENT_STEPS = VALUE_COLUMNS / 16 / SCORE_DEPTH_GROUPS,
    SCORE_ROPE_STEPS = (KEY_COLUMNS - VALUE_COLUMNS) / 16 / SCORE_DEPTH_GROUPS,
    SCORE_STEPS = SCORE_LATENT_STEPS + SCORE_ROPE_STEPS,
    SCORE_STEP_BYTES = SCORE_DEPTH_GROUPS * 2 * CHUNK_BYTES, /* from one step to the next */
    SCORE_VALUES = SCORE_TILES * SCORE_PAIRS * 8,
    /* Unrolled: the swizzle repeats after four k-steps. */
    SCORE_UNROLL = SCORE_LATENT_STEPS % 4 == 0 ? 4 : SCORE_LATENT_STEPS,
    SUM_BYTES = BLOCK_HEADS * BLOCK_KEYS * 8, /* of a depth group */
    SUM_WARP_BYTES = SCORE_VALUES * 8 * 32,

    OUTPUT_COLUMNS = KEY_COLUMNS / WARPS / 8, /* n8 tiles of dQ per warp */
    OUTPUT_VALUES = HEAD_TILES * OUTPUT_COLUMNS * 4,
    OUTPUT_UNROLL = 2, /* k-steps */

    LATENT_PARTS = BLOCK_KEYS / 16 / LATENT_KEY_TILES,
    ROPE_PARTS = BLOCK_KEYS / 16 / ROPE_KEY_TILES,
    LATENT_COLUMNS = VALUE_COLUMNS < DQK ? VALUE_COLUMNS : DQK,
    LATENT_UNITS = (LATENT_COLUMNS + UNIT_COLUMNS - 1) / UNIT_COLUMNS * LATENT_PARTS,
    ROPE_UNITS = (DQK - LATENT_COLUMNS + UNIT_COLUMNS - 1) / UNIT_COLUMNS * ROPE_PARTS
};

/* The CTA's item, at ITEM_OFFSET because registers are short. */
struct item {
    int number; /* in the launch */
    int group;
    int query; /* batch * tokens + token, or -1: none */
    int first_head;
    int blocks; /* key blocks of its list */
};

DEVICE struct item *block_item(void) {
    return (struct item *)(arena + ITEM_OFFSET);
}

/* Writes the CTA's item. Ends in a barrier. */
DEVICE void describe_item(const struct sparse_attn_bwd_params *params, u32 number) {
    if (threadIdx.x == 0) {
        struct item *const item = block_item();
        item->number = (int)number;
        item->group = params->first_group + (int)(number / HEAD_BLOCKS);
        item->query = params->members[item->group];
        item->first_head = (int)(number % HEAD_BLOCKS) * BLOCK_HEADS;
        item->blocks = (params->counts[item->group] + BLOCK_KEYS - 1) / BLOCK_KEYS;
    }
    __syncthreads();
}

/* ---- copies into shared memory --------------------------------------------------------------- */

/* The offset of a query's rows in a tensor, in elements. */
DEVICE i64 query_offset(const struct sparse_attn_bwd_params *params, i64 batch_stride,
                        i64 token_stride) {
    const int batch = block_item()->query / params->tokens;
    return batch * batch_stride + (block_item()->query - batch * params->tokens) * token_stride;
}

/* Starts the copy of the item's rows of q or grad_out, of so many columns; what is padded becomes
 * zeros. */
DEVICE void load_rows(const void *tensor, i64 offset, i64 head_stride, int columns, u32 tile,
                      int pitch) {
    const char *const rows = (const char *)tensor + 2 * offset;
    const int chunks = pitch / CHUNK_BYTES;
#pragma unroll 4
    for (int i = (int)thread_number(); i < BLOCK_HEADS * chunks; i += THREADS) {
        const int row = i / chunks, chunk = i % chunks, head = block_item()->first_head + row;
        const bool present = head < HEADS && (columns % 64 == 0 || chunk < columns / CHUNK_COLUMNS);
        cp_async_16(tile + tile_chunk(row, chunk, pitch),
                    present ? rows + 2 * (head * head_stride) + chunk * CHUNK_BYTES : rows,
                    present ? CHUNK_BYTES : 0);
    }
}

/* Loads base and delta of the item's rows. */
DEVICE void load_statistics(const struct sparse_attn_bwd_params *params) {
    const float2 *const rows = (const float2 *)params->statistics +
                               (i64)block_item()->group * QUERY_ROWS + block_item()->first_head;
    for (int row = (int)thread_number(); row < BLOCK_HEADS; row += THREADS) {
        ((float2 *)(arena + STATISTICS_OFFSET))[row] = rows[row];
    }
}

/* The key numbers of a block, in shared memory and in global memory. */
DEVICE const int *block_entries(int block) {
    return (const int *)(arena + ENTRIES_OFFSET) + block % ENTRY_SLOTS * BLOCK_KEYS;
}

DEVICE const int *listed_entries(const struct sparse_attn_bwd_params *params, int block) {
    return params->keys + (i64)block_item()->group * params->key_stride + block * BLOCK_KEYS;
}

/* Starts the copy of a block's key numbers, if the block exists. */
DEVICE void load_entries(const struct sparse_attn_bwd_params *params, int block) {
    const int at = (int)thread_number() * 4;
    if (block < block_item()->blocks && at < BLOCK_KEYS) {
        cp_async_16(
            shared_address((u32)(ENTRIES_OFFSET + (block % ENTRY_SLOTS * BLOCK_KEYS + at) * 4)),
            listed_entries(params, block) + at, CHUNK_BYTES);
    }
}

/* A key's row in kv. */
DEVICE const char *key_row(const struct sparse_attn_bwd_params *params, int key) {
    const char *kv = (const char *)params->kv;
    if (!params->even_batches) {
        const int batch = key / params->rows;
        kv += 2 * (batch * params->kv_batch_stride);
        key -= batch * params->rows;
    }
    return kv + (u64)(u32)key * params->kv_row_bytes;
}

/* Starts the copy of a block's rows; rows without a key, and columns from DQK on, become zeros. */
DEVICE void gather(const struct sparse_attn_bwd_params *params, const int *entries, int stage) {
    const int chunk = (int)thread_number() % 8, first = (int)thread_number() / 8 % GATHER_ROWS;
    const int part = (int)thread_number() / 8 / GATHER_ROWS;
    const u32 tile = shared_address((u32)(KEYS_OFFSET + stage * KEY_BYTES));
#pragma unroll
    for (int i = 0; i < BLOCK_KEYS / GATHER_ROWS; ++i) {
        const int row = i * GATHER_ROWS + first, key = entries[row];
        const char *const source =
            (key >= 0 ? key_row(params, key) : (const char *)params->kv) + chunk * CHUNK_BYTES;
        const u32 target = tile + tile_chunk(row, chunk, KEY_PITCH);
#pragma unroll
        for (int group = 0; group < KEY_COLUMNS / 64; ++group) {
            if (GATHER_PARTS == 1 || group % GATHER_PARTS == part) {
                const bool exists = group < DQK / 64 || group * 8 + chunk < DQK / CHUNK_COLUMNS;
                cp_async_16(target + (u32)(group * 128), exists ? source + group * 128 : source,
                            exists && key >= 0 ? CHUNK_BYTES : 0);
            }
        }
    }
}

/* Starts the copies of a key block, as one group; an empty group if the item has no such block. */
DEVICE void begin_block(const struct sparse_attn_bwd_params *params, const int *entries,
                        int block) {
    if (block < block_item()->blocks) {
        gather(params, entries, block % STAGES);
        load_entries(params, block + ENTRY_LEAD);
    }
    cp_async_commit();
}

/* Starts the copies of the item's rows and statistics and of the first key blocks. */
DEVICE void begin_item(const struct sparse_attn_bwd_params *params) {
    load_rows(params->q, query_offset(params, params->q_batch_stride, params->q_token_stride),
              params->q_head_stride, DQK, shared_address(QUERY_OFFSET), QUERY_PITCH);
    load_rows(params->grad_out,
              query_offset(params, params->grad_out_batch_stride, params->grad_out_token_stride),
              params->grad_out_head_stride, DV, shared_address(GRAD_OFFSET), GRAD_PITCH);
    load_statistics(params);
#pragma unroll
    for (int block = 0; block < ENTRY_LEAD; ++block) {
        load_entries(params, block);
    }
#pragma unroll
    for (int block = 0; block < ENTRY_LEAD; ++block) {
        begin_block(params, listed_entries(params, block), block);
    }
}

/* Waits until all threads' copies of the oldest key block in flight have landed; a CTA-wide
 * barrier. The item's rows land with the first block. */
DEVICE void wait_for_block(void) {
    //@if STAGES == 1
    cp_async_wait_all();
    //@else
    cp_async_wait(STAGES - 2);
    //@end
    __syncthreads();
}

/* ---- scores: S and dP, P and dS -------------------------------------------------------------- */

/* This warp's part of the scores. */
struct score_place {
    int tile;  /* first m16 tile */
    int key;   /* first key */
    int depth; /* takes the k-steps equal to this modulo SCORE_DEPTH_GROUPS */
};

DEVICE struct score_place find_score_place(void) {
    const int warp = (int)thread_number() / 32;
    struct score_place place;
    place.tile = warp % SCORE_HEAD_GROUPS * SCORE_TILES;
    place.key = warp / SCORE_HEAD_GROUPS % SCORE_KEY_GROUPS * SCORE_PAIRS * 16;
    place.depth = warp / (SCORE_HEAD_GROUPS * SCORE_KEY_GROUPS);
    return place;
}

/* ldmatrix addresses of the operands of this warp's first k-step. */
struct score_operands {
    u32 query, grad, keys;
};

DEVICE struct score_operands find_score_operands(const struct score_place *place, int stage) {
    const int chunk = place->depth * 2;
    struct score_operands at;
    at.query = rows_first(shared_address(QUERY_OFFSET), place->tile * 16, chunk, QUERY_PITCH);
    at.grad = rows_first(shared_address(GRAD_OFFSET), place->tile * 16, chunk, GRAD_PITCH);
    at.keys = columns_first(shared_address((u32)(KEYS_OFFSET + stage * KEY_BYTES)), place->key,
                            chunk, KEY_PITCH);
    return at;
}

/* Loads the operands of k-step `step`, if it exists; dO's for a step of both products. */
DEVICE void load_step(u32 *q, u32 *grad, u32 *k, const struct score_operands *at, int step) {
    const int delta = step * SCORE_STEP_BYTES;
    if (step < SCORE_STEPS) {
        load_fragments(q, SCORE_TILES, tile_advance(at->query, delta), QUERY_PITCH);
        load_fragments(k, SCORE_PAIRS, tile_advance(at->keys, delta), KEY_PITCH);
    }
    if (step < SCORE_LATENT_STEPS) {
        load_fragments(grad, SCORE_TILES, tile_advance(at->grad, delta), GRAD_PITCH);
    }
}

DEVICE void multiply_step(float *sums, const u32 *a, const u32 *k) {
#pragma unroll
    for (int m = 0; m < SCORE_TILES; ++m) {
#pragma unroll
        for (int n = 0; n < SCORE_COLUMNS; ++n) {
            mma_m16n8k16_bf16(&sums[(m * SCORE_COLUMNS + n) * 4], &a[m * 4], &k[n * 2]);
        }
    }
}

/* Computes s and dp, this warp's parts of Q K^T and dO K^T. The operands of a step are loaded, into
 * the other of two buffers, while the step before is multiplied. */
DEVICE void multiply_scores(float *s, float *dp, const struct score_place *place, int stage) {
    enum { A = SCORE_TILES * 4, B = SCORE_PAIRS * 4 };
    const struct score_operands at = find_score_operands(place, stage);
    u32 q[2 * A], grad[2 * A], k[2 * B];
    clear(s, SCORE_VALUES);
    clear(dp, SCORE_VALUES);
    load_step(q, grad, k, &at, 0);
#pragma unroll 1
    for (int first = 0; first < SCORE_LATENT_STEPS; first += SCORE_UNROLL) {
#pragma unroll
        for (int i = 0; i < SCORE_UNROLL; ++i) {
            const int now = i % 2, next = (i + 1) % 2;
            load_step(&q[next * A], &grad[next * A], &k[next * B], &at, first + i + 1);
            multiply_step(s, &q[now * A], &k[now * B]);
            multiply_step(dp, &grad[now * A], &k[now * B]);
        }
    }
#pragma unroll
    for (int i = SCORE_LATENT_STEPS; i < SCORE_STEPS; ++i) {
        const int now = i % 2, next = (i + 1) % 2;
        load_step(&q[next * A], &grad[next * A], &k[next * B], &at, i + 1);
        multiply_step(s, &q[now * A], &k[now * B]);
    }
}

/* Whether this depth group adds up the partial sums of a warp's n8 tile. */
DEVICE bool completes(const struct score_place *place, int tile) {
    return SCORE_DEPTH_GROUPS == 1 || tile % SCORE_DEPTH_GROUPS == place->depth;
}

/* The partial sums of an n8 tile: S, and dP 512 bytes further. `from`: the contributing depth
 * group's distance from the completing one, less one. */
DEVICE float4 *partial_sums(int tile, int from) {
    const int warp = (int)thread_number() / 32 % (SCORE_HEAD_GROUPS * SCORE_KEY_GROUPS);
    const int lane = (int)thread_number() % 32;
    return (float4 *)(arena + WEIGHTS_OFFSET + from * SUM_BYTES + warp * SUM_WARP_BYTES +
                      tile * 1024) +
           lane;
}

/* Stores the partial sums of tiles that other depth groups complete. */
DEVICE void store_partial_sums(const float *s, const float *dp, const struct score_place *place) {
#pragma unroll
    for (int tile = 0; tile < SCORE_VALUES / 4; ++tile) {
        if (!completes(place, tile)) {
            const int from =
                (place->depth - tile % SCORE_DEPTH_GROUPS - 1 + 2 * SCORE_DEPTH_GROUPS) %
                SCORE_DEPTH_GROUPS;
            const float *const a = &s[tile * 4], *const b = &dp[tile * 4];
            float4 *const to = partial_sums(tile, from);
            const float4 first = {a[0], a[1], a[2], a[3]}, second = {b[0], b[1], b[2], b[3]};
            to[0] = first;
            to[32] = second;
        }
    }
}

DEVICE void add_float4(float *sums, const float4 *more) {
    const float4 values = *more;
    sums[0] += values.x;
    sums[1] += values.y;
    sums[2] += values.z;
    sums[3] += values.w;
}

/* Adds the other depth groups' partial sums to the tiles that this warp completes. */
DEVICE void add_partial_sums(float *s, float *dp, const struct score_place *place) {
#pragma unroll
    for (int tile = 0; tile < SCORE_VALUES / 4; ++tile) {
        if (completes(place, tile)) {
#pragma unroll
            for (int from = 0; from < SCORE_DEPTH_GROUPS - 1; ++from) {
                const float4 *const more = partial_sums(tile, from);
                add_float4(&s[tile * 4], &more[0]);
                add_float4(&dp[tile * 4], &more[32]);
            }
        }
    }
}

/* Computes P and dS from two neighbouring values of S and dP and stores them in WEIGHTS at an
 * offset of the arena. An absent key's values are selected, not multiplied by 0: its scores need
 * not be finite where a row's base is infinite. */
DEVICE void weigh(u32 offset, const float *s, const float *dp, const bool *present,
                  float2 statistics, float scale) {
    float p[2], ds[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
        const float x = fmaf(s[e], scale * LOG2_E, -statistics.x);
        const float exponential = exp2_approximate(x > 0.0f ? 0.0f : x);
        p[e] = present[e] ? exponential : 0.0f;
        ds[e] = present[e] ? scale * exponential * (dp[e] - statistics.y) : 0.0f;
    }
    *(u32 *)(arena + offset) = pack_bf16x2(p[0], p[1]);
    *(u32 *)(arena + tile_advance(offset, DS_BYTES)) = pack_bf16x2(ds[0], ds[1]);
}

/* Stores P and dS of the tiles that this warp completes in WEIGHTS. */
DEVICE void store_weights(const float *s, const float *dp, const struct score_place *place,
                          const int *entries, float scale) {
    const int lane = (int)thread_number() % 32, first = place->tile * 16 + lane / 4;
    const float2 *const statistics = (const float2 *)(arena + STATISTICS_OFFSET) + first;
    const u32 base = WEIGHTS_OFFSET + tile_chunk(first, place->key / CHUNK_COLUMNS, WEIGHT_PITCH) +
                     (u32)(lane % 4 * 4);
#pragma unroll
    for (int n = 0; n < SCORE_COLUMNS; ++n) {
        const int *const keys = &entries[place->key + n * 8 + lane % 4 * 2];
        const bool present[2] = {keys[0] >= 0, keys[1] >= 0};
        const u32 offset = tile_advance(base, n * CHUNK_BYTES);
#pragma unroll
        for (int m = 0; m < SCORE_TILES; ++m) {
            const int tile = m * SCORE_COLUMNS + n;
            if (completes(place, tile)) {
                weigh(offset + m * 16 * WEIGHT_PITCH, &s[tile * 4], &dp[tile * 4], present,
                      statistics[m * 16], scale);
                weigh(offset + (m * 16 + 8) * WEIGHT_PITCH, &s[tile * 4 + 2], &dp[tile * 4 + 2],
                      present, statistics[m * 16 + 8], scale);
            }
        }
    }
}

/* Computes P and dS of a key block, in WEIGHTS. */
DEVICE void compute_weights(const struct sparse_attn_bwd_params *params, int block) {
    const struct score_place place = find_score_place();
    float s[SCORE_VALUES], dp[SCORE_VALUES];
    multiply_scores(s, dp, &place, block % STAGES);
    if (SCORE_DEPTH_GROUPS > 1) {
        store_partial_sums(s, dp, &place);
        __syncthreads();
        add_partial_sums(s, dp, &place);
        __syncthreads();
    }
    store_weights(s, dp, &place, block_entries(block), params->scale);
}

/* ---- dQ -------------------------------------------------------------------------------------- */

/* The first of this warp's columns of every 64, in chunks. */
DEVICE int output_chunk(void) {
    return (int)thread_number() / 32 * (8 / WARPS);
}

/* Computes dq += dS K for the key block in a stage. With eight warps, a warp's n8 tile i lies in
 * columns 64 * i to 64 * i + 63, and one ldmatrix loads two of them; with four warps, tiles 2 * i
 * and 2 * i + 1 lie there. */
DEVICE void accumulate_dq(float *dq, int stage) {
    const int lane = (int)thread_number() % 32;
    const u32 weights =
        tile_advance(rows_first(shared_address(WEIGHTS_OFFSET), 0, 0, WEIGHT_PITCH), DS_BYTES);
    const u32 tile = shared_address((u32)(KEYS_OFFSET + stage * KEY_BYTES));
    const u32 keys = WARPS == 8 ? tile + tile_chunk(lane % 16, output_chunk(), KEY_PITCH) +
                                      (u32)(lane / 16 * 128)
                                : rows_first(tile, 0, output_chunk(), KEY_PITCH);
#pragma unroll OUTPUT_UNROLL
    for (int step = 0; step < BLOCK_KEYS / 16; ++step) {
        u32 a[HEAD_TILES * 4];
        load_fragments(a, HEAD_TILES, tile_advance(weights, step * 32), WEIGHT_PITCH);
#pragma unroll
        for (int n = 0; n < OUTPUT_COLUMNS; n += 2) {
            const bool pair = n + 1 < OUTPUT_COLUMNS;
            const u32 address = keys + (u32)(step * 16 * KEY_PITCH + n * (WARPS == 8 ? 128 : 64));
            u32 b[4];
            if (pair) {
                ldmatrix_x4_trans(b, address);
            } else {
                ldmatrix_x2_trans(b, address);
            }
#pragma unroll
            for (int m = 0; m < HEAD_TILES; ++m) {
                float *const sums = &dq[(m * OUTPUT_COLUMNS + n) * 4];
                mma_m16n8k16_bf16(sums, &a[m * 4], &b[0]);
                if (pair) {
                    mma_m16n8k16_bf16(sums + 4, &a[m * 4], &b[2]);
                }
            }
        }
    }
}

/* Stages dQ as bf16 in place of the query. */
DEVICE void stage_dq(const float *dq) {
    const int lane = (int)thread_number() % 32;
    const u32 base =
        QUERY_OFFSET + tile_chunk(lane / 4, output_chunk(), QUERY_PITCH) + (u32)(lane % 4 * 4);
#pragma unroll
    for (int n = 0; n < OUTPUT_COLUMNS; ++n) {
        const u32 offset = WARPS == 8
                               ? base + (u32)(n * 128)
                               : tile_advance(base, n % 2 * CHUNK_BYTES) + (u32)(n / 2 * 128);
#pragma unroll
        for (int m = 0; m < HEAD_TILES; ++m) {
            const float *const tile = &dq[(m * OUTPUT_COLUMNS + n) * 4];
            *(u32 *)(arena + offset + m * 16 * QUERY_PITCH) = pack_bf16x2(tile[0], tile[1]);
            *(u32 *)(arena + offset + (m * 16 + 8) * QUERY_PITCH) = pack_bf16x2(tile[2], tile[3]);
        }
    }
}

/* Stores the item's rows of dq, the staged ones or zeros, 16 bytes per thread. */
DEVICE void store_dq(const struct sparse_attn_bwd_params *params, bool zeros) {
    enum { CHUNKS = DQK / CHUNK_COLUMNS };
    char *const rows = (char *)params->dq +
                       2 * query_offset(params, params->dq_batch_stride, params->dq_token_stride);
#pragma unroll 4
    for (int i = (int)thread_number(); i < BLOCK_HEADS * CHUNKS; i += THREADS) {
        const int row = i / CHUNKS, chunk = i % CHUNKS, head = block_item()->first_head + row;
        if (head < HEADS) {
            const uint4 nothing = {0, 0, 0, 0};
            *(uint4 *)(rows + 2 * (head * params->dq_head_stride) + chunk * CHUNK_BYTES) =
                zeros
                    ? nothing
                    : *(const uint4 *)(arena + QUERY_OFFSET + tile_chunk(row, chunk, QUERY_PITCH));
        }
    }
}

/* ---- dKV ------------------------------------------------------------------------------------- */

/* The rows of a block's keys in dkv, or their partial rows of the launch, from a column on. */
DEVICE struct unit_rows find_unit_rows(const struct sparse_attn_bwd_params *params, int block,
                                       int column) {
    const int place = column + unit_place(DETERMINISTIC);
    struct unit_rows rows = {(char *)params->dkv + 4 * place, DQK * 4, block_entries(block),
                             unit_columns(DQK, column, DETERMINISTIC), DETERMINISTIC};
    if (DETERMINISTIC) {
        const u32 item = (u32)block_item()->number;
        const i64 key = (i64)(item / HEAD_BLOCKS) * params->key_stride + block * BLOCK_KEYS;
        const i64 row = key * HEAD_BLOCKS + item % HEAD_BLOCKS;
        rows.first = (char *)params->partials + 2 * (row * DQK + place);
        rows.row_bytes = HEAD_BLOCKS * DQK * 2;
    }
    return rows;
}

/* Computes one unit: `tiles` m16 tiles of the block's keys, from key `slot` on, by 32 columns. */
DEVICE void compute_unit(const struct sparse_attn_bwd_params *params, int block, int slot,
                         int tiles, int column, bool latent) {
    float sums[64];
    const u32 p =
        columns_first(shared_address(WEIGHTS_OFFSET), 0, slot / CHUNK_COLUMNS, WEIGHT_PITCH);
    const u32 query =
        rows_first(shared_address(QUERY_OFFSET), 0, column / CHUNK_COLUMNS, QUERY_PITCH);
    clear(sums, tiles * 16);
    multiply_transposed(sums, tiles, HEAD_TILES, tile_advance(p, DS_BYTES), WEIGHT_PITCH, query,
                        QUERY_PITCH);
    if (latent) {
        const u32 grad =
            rows_first(shared_address(GRAD_OFFSET), 0, column / CHUNK_COLUMNS, GRAD_PITCH);
        multiply_transposed(sums, tiles, HEAD_TILES, p, WEIGHT_PITCH, grad, GRAD_PITCH);
    }
    const struct unit_rows rows = find_unit_rows(params, block, column);
    put_unit(&rows, slot, tiles, sums);
}

/* Computes dKV of a key block and adds it to global memory. */
DEVICE void add_dkv(const struct sparse_attn_bwd_params *params, int block) {
    const int warp = (int)thread_number() / 32;
#pragma unroll 1
    for (int unit = warp; unit < LATENT_UNITS; unit += WARPS) {
        compute_unit(params, block, unit % LATENT_PARTS * LATENT_KEY_TILES * 16, LATENT_KEY_TILES,
                     unit / LATENT_PARTS * UNIT_COLUMNS, true);
    }
#pragma unroll 1
    for (int unit = warp; unit < ROPE_UNITS; unit += WARPS) {
        compute_unit(params, block, unit % ROPE_PARTS * ROPE_KEY_TILES * 16, ROPE_KEY_TILES,
                     VALUE_COLUMNS + unit / ROPE_PARTS * UNIT_COLUMNS, false);
    }
}

/* ---- items ----------------------------------------------------------------------------------- */

/* Computes one item with keys. The whole CTA calls it; it does not end in a barrier. */
DEVICE void compute_item(const struct sparse_attn_bwd_params *params) {
    float dq[OUTPUT_VALUES];
    begin_item(params);
    clear(dq, OUTPUT_VALUES);
#pragma unroll 1
    for (int block = 0; block < block_item()->blocks; ++block) {
        const int next = block + ENTRY_LEAD;
        wait_for_block();
        if (STAGES > 1) {
            begin_block(params, block_entries(next), next);
        }
        compute_weights(params, block);
        __syncthreads();
        accumulate_dq(dq, block % STAGES);
        if (STAGES == 1) {
            __syncthreads();
            begin_block(params, block_entries(next), next);
        }
        add_dkv(params, block);
    }
    __syncthreads();
    stage_dq(dq);
    __syncthreads();
    store_dq(params, false);
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct sparse_attn_bwd_params params) {
    const u32 items = (u32)params.groups * HEAD_BLOCKS;
#pragma unroll 1
    for (u32 i = blockIdx.x; i < items; i += gridDim.x) {
        describe_item(&params, items - 1 - i);
        if (block_item()->query >= 0) {
            if (block_item()->blocks > 0) {
                compute_item(&params);
            } else {
                store_dq(&params, true);
            }
        }
        __syncthreads();
    }
}
