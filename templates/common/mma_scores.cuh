//@use common/base.cuh
//@use common/block_slots.cuh
//@use common/tile.cuh
//@use ptx/cp_async.cuh
//@use ptx/ldmatrix.cuh
//@use ptx/mma.cuh
/*
 * S[BLOCK_HEADS, BLOCK_KEYS] = Q K^T of a query's heads and one of its key blocks after the other,
 * with mma.sync, by a thread block whose warps stand over heads x keys x depth (SCORE_*_GROUPS). S
 * stays in registers, SCORE_DEPTH_GROUPS partial sums of it.
 *
 * Shared memory: QUERY [BLOCK_HEADS][DQK] bf16; LATENT [STAGES][BLOCK_KEYS][DV] bf16, and ROPE
 * [ROPE_STAGES][BLOCK_KEYS][DQK - DV] bf16, key blocks, gathered STAGES - 1 ahead; what
 * common/block_slots.cuh has.
 */

enum {
    LATENT_PITCH = DV * 2, /* bytes of a row */
    ROPE_PITCH = (DQK - DV) * 2,
    QUERY_PITCH = DQK * 2,
    LATENT_BYTES = BLOCK_KEYS * LATENT_PITCH, /* of a stage */
    ROPE_BYTES = BLOCK_KEYS * ROPE_PITCH,
    LATENT_CHUNKS = DV / CHUNK_COLUMNS, /* of a row */
    ROPE_CHUNKS = (DQK - DV) / CHUNK_COLUMNS,
    QUERY_CHUNKS = DQK / CHUNK_COLUMNS,
    LATENT_STEPS = DV / 16, /* k-steps of the product */
    ROPE_STEPS = (DQK - DV) / 16,

    HEAD_TILES = BLOCK_HEADS / 16,
    SCORE_TILES = HEAD_TILES / SCORE_HEAD_GROUPS,           /* m16 tiles of a warp */
    SCORE_PAIRS = BLOCK_KEYS / 16 / SCORE_KEY_GROUPS,       /* pairs of n8 tiles of a warp */
    SCORE_LATENT_STEPS = LATENT_STEPS / SCORE_DEPTH_GROUPS, /* k-steps of a warp */
    SCORE_ROPE_STEPS = ROPE_STEPS / SCORE_DEPTH_GROUPS,
    SCORE_STEPS = SCORE_LATENT_STEPS + SCORE_ROPE_STEPS,
    QUERY_FRAGMENTS = QUERY_IN_REGISTERS ? SCORE_STEPS * SCORE_TILES * 4 : 1
};

/* Starts the copy of the query tile: BLOCK_HEADS heads of the query at `q`, the first `first_head`;
 * rows past the last head become zeros. `head_stride`: elements. */
DEVICE void load_query(const char *q, i64 head_stride, int first_head) {
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < BLOCK_HEADS * QUERY_CHUNKS; i += THREADS) {
        const int row = i / QUERY_CHUNKS, chunk = i % QUERY_CHUNKS;
        const int head = first_head + row;
        const bool present = head < HEADS;
        const char *const source = present ? q + 2 * (head * head_stride) + chunk * CHUNK_BYTES : q;
        cp_async_16(shared_address(QUERY_OFFSET + tile_chunk(row, chunk, QUERY_PITCH)), source,
                    present ? CHUNK_BYTES : 0);
    }
}

/*
 * Starts the copy of `columns` chunks, from column chunk `skip` on, of a block's KV rows into a
 * tile. Unless `whole`, rows past `count` become zeros, and so do masked ones: nothing is read for
 * them.
 */
DEVICE void gather_rows(const char *kv, u32 row_bytes, int block, int count, bool whole, u32 tile,
                        int pitch, int columns, int skip) {
    const int rows_at_once = THREADS / columns;
    const int chunk = (int)threadIdx.x % columns;
    const int thread_row = (int)threadIdx.x / columns % rows_at_once;
    const char *const source = kv + (skip + chunk) * CHUNK_BYTES;
    const int *const entries = block_scan_entries(block) + thread_row;
#pragma unroll 4
    for (int i = 0; i < (BLOCK_KEYS + rows_at_once - 1) / rows_at_once; ++i) {
        const int key = i * rows_at_once + thread_row;
        if (BLOCK_KEYS % rows_at_once != 0 && key >= BLOCK_KEYS) {
            break;
        }
        const int row = whole || key < count ? entries[i * rows_at_once] : MASKED;
        const bool present = whole || row >= 0;
        cp_async_16(tile + tile_chunk(key, chunk, pitch),
                    present ? source + (u64)(u32)row * row_bytes : kv, present ? CHUNK_BYTES : 0);
    }
}

/* The same for a block that is most often whole. An empty one is left alone. */
DEVICE void gather(const char *kv, u32 row_bytes, int block, int count, u32 tile, int pitch,
                   int columns, int skip) {
    if (COMPACT && count == BLOCK_KEYS) {
        gather_rows(kv, row_bytes, block, count, true, tile, pitch, columns, skip);
    } else if (count > 0) {
        gather_rows(kv, row_bytes, block, count, false, tile, pitch, columns, skip);
    }
}

/*
 * ldmatrix addresses. A warp reads 16 rows and two chunks (16 columns, 32 bytes of a row) at a
 * time; `base` is the address of this lane's row at step 0.
 */
DEVICE u32 step_address(u32 base, int step) {
    return tile_advance(base, step * 2 * CHUNK_BYTES);
}

/* A operand: rows lane % 16, chunk lane / 16. */
DEVICE u32 a_address(u32 tile, int first_row, int pitch) {
    const int lane = (int)threadIdx.x % 32;
    return tile + tile_chunk(first_row + lane % 16, lane / 16, pitch);
}

/* B operand, keys as columns: rows lane % 8 and, for the second n8 tile, 8 more; chunk by bit 3. */
DEVICE u32 b_address(u32 tile, int first_row, int pitch) {
    const int lane = (int)threadIdx.x % 32;
    return tile + tile_chunk(first_row + lane % 8 + lane / 16 * 8, lane / 8 % 2, pitch);
}

/* This warp's place in the formation. */
struct score_place {
    int tile;  /* first m16 tile */
    int key;   /* first key */
    int depth; /* takes the k-steps equal to this modulo SCORE_DEPTH_GROUPS */
    u32 query; /* ldmatrix address of the first query tile at step 0 */
};

DEVICE struct score_place find_score_place(void) {
    const int warp = (int)threadIdx.x / 32;
    struct score_place place;
    place.tile = warp % SCORE_HEAD_GROUPS * SCORE_TILES;
    place.key = warp / SCORE_HEAD_GROUPS % SCORE_KEY_GROUPS * SCORE_PAIRS * 16;
    place.depth = warp / (SCORE_HEAD_GROUPS * SCORE_KEY_GROUPS);
    place.query = a_address(shared_address(QUERY_OFFSET), place.tile * 16, QUERY_PITCH);
    return place;
}

/* The k-step number `index` of this warp. */
DEVICE int find_step(const struct score_place *place, int index) {
    return SCORE_DEPTH_GROUPS == 1 ? index : index * SCORE_DEPTH_GROUPS + place->depth;
}

/* Query fragments of one k-step, from the query tile. */
DEVICE void load_query_step(u32 *a, const struct score_place *place, int step) {
    const u32 address = step_address(place->query, step);
#pragma unroll
    for (int m = 0; m < SCORE_TILES; ++m) {
        ldmatrix_x4(&a[m * 4], address + (u32)(m * 16 * QUERY_PITCH));
    }
}

/* All of this warp's query fragments, when they stay in registers for the whole query. */
DEVICE void load_query_fragments(u32 *query, const struct score_place *place) {
#pragma unroll
    for (int i = 0; i < SCORE_STEPS; ++i) {
        load_query_step(&query[i * SCORE_TILES * 4], place, find_step(place, i));
    }
}

/* Operands of this warp's step number `index`, which lies at column `step` * 16 of the key tile
 * whose ldmatrix address at column 0 is `keys`. */
DEVICE void load_step(u32 *a, u32 *b, const struct score_place *place, int index, u32 keys,
                      int pitch, int step) {
    if (!QUERY_IN_REGISTERS) {
        load_query_step(a, place, find_step(place, index));
    }
    const u32 address = step_address(keys, step);
#pragma unroll
    for (int n = 0; n < SCORE_PAIRS; ++n) {
        ldmatrix_x4(&b[n * 4], address + (u32)(n * 16 * pitch));
    }
}

DEVICE void multiply_step(float *s, const u32 *a, const u32 *b, int tiles) {
#pragma unroll
    for (int n = 0; n < SCORE_PAIRS; ++n) {
#pragma unroll
        for (int m = 0; m < SCORE_TILES; ++m) {
            if (!RAGGED_HEADS || m < tiles) {
                mma_m16n8k16_bf16(&s[(m * SCORE_PAIRS + n) * 8], &a[m * 4], &b[n * 4]);
                mma_m16n8k16_bf16(&s[(m * SCORE_PAIRS + n) * 8 + 4], &a[m * 4], &b[n * 4 + 2]);
            }
        }
    }
}

/*
 * s = this warp's part of Q K^T for the key block in a stage: the rope columns first, then the
 * latent ones. The operands of a step are loaded while the one before is multiplied, into the other
 * of two buffers. Step number `index` counts the latent steps first, as the query tile does.
 * `tiles`: the m16 tiles from the warp's first one on that hold heads.
 */
DEVICE void compute_scores(float *s, const u32 *query, const struct score_place *place, int stage,
                           int tiles) {
    enum { A = SCORE_TILES * 4, B = SCORE_PAIRS * 4 };
    const int rope_stage = ROPE_STAGES == 1 ? 0 : stage;
    const u32 latent = b_address(shared_address(LATENT_OFFSET + (u32)(stage * LATENT_BYTES)),
                                 place->key, LATENT_PITCH);
    const u32 rope = b_address(shared_address(ROPE_OFFSET + (u32)(rope_stage * ROPE_BYTES)),
                               place->key, ROPE_PITCH);
    u32 a[2 * A], b[2 * B];
#pragma unroll
    for (int i = 0; i < SCORE_TILES * SCORE_PAIRS * 8; ++i) {
        s[i] = 0.0f;
    }
    if (SCORE_ROPE_STEPS > 0) {
        load_step(a, b, place, SCORE_LATENT_STEPS, rope, ROPE_PITCH, find_step(place, 0));
    } else {
        load_step(a, b, place, 0, latent, LATENT_PITCH, find_step(place, 0));
    }
#pragma unroll
    for (int i = 0; i < SCORE_ROPE_STEPS; ++i) {
        const int now = i % 2, next = (i + 1) % 2, index = SCORE_LATENT_STEPS + i;
        if (i + 1 < SCORE_ROPE_STEPS) {
            load_step(&a[next * A], &b[next * B], place, index + 1, rope, ROPE_PITCH,
                      find_step(place, i + 1));
        } else {
            load_step(&a[next * A], &b[next * B], place, 0, latent, LATENT_PITCH,
                      find_step(place, 0));
        }
        multiply_step(s, QUERY_IN_REGISTERS ? &query[index * A] : &a[now * A], &b[now * B], tiles);
    }
#pragma unroll SCORE_UNROLL
    for (int i = 0; i < SCORE_LATENT_STEPS; ++i) {
        const int now = (SCORE_ROPE_STEPS + i) % 2, next = (SCORE_ROPE_STEPS + i + 1) % 2;
        if (i + 1 < SCORE_LATENT_STEPS) {
            load_step(&a[next * A], &b[next * B], place, i + 1, latent, LATENT_PITCH,
                      find_step(place, i + 1));
        }
        multiply_step(s, QUERY_IN_REGISTERS ? &query[i * A] : &a[now * A], &b[now * B], tiles);
    }
}

/* Starts the gather of a key block, as one group of copies; nothing when the query has no such. */
DEVICE void begin_block(struct block_scan *scan, const char *kv, u32 row_bytes, int block) {
    block_scan_reach(scan, block);
    const int count = block_scan_count(scan, block), stage = block % STAGES;
    const int rope_stage = ROPE_STAGES == 1 ? 0 : stage;
    gather(kv, row_bytes, block, count, shared_address(LATENT_OFFSET + (u32)(stage * LATENT_BYTES)),
           LATENT_PITCH, LATENT_CHUNKS, 0);
    if (ROPE_STEPS > 0) {
        gather(kv, row_bytes, block, count,
               shared_address(ROPE_OFFSET + (u32)(rope_stage * ROPE_BYTES)), ROPE_PITCH,
               ROPE_CHUNKS > 0 ? ROPE_CHUNKS : 1, LATENT_CHUNKS);
    }
    cp_async_commit();
}

/* Waits until the oldest key block under way has landed, everybody's part of it, and everybody has
 * come so far. The query tile lands with the first. */
DEVICE void wait_for_block(void) {
    cp_async_wait_${STAGES - 2}();
    __syncthreads();
}
