//@use common/base.cuh
//@use common/block_slots.cuh
//@use common/tile.cuh
//@use ptx/cp_async.cuh
//@use ptx/ldmatrix.cuh
//@use ptx/mma.cuh
/*
 * S[BLOCK_HEADS, BLOCK_KEYS] = Q K^T of a query's heads and its key blocks, one after another, with
 * mma.sync, by a thread block whose warps partition heads x keys x depth (SCORE_*_GROUPS). S stays
 * in registers, as SCORE_DEPTH_GROUPS partial sums.
 *
 * Shared memory: QUERY [BLOCK_HEADS][KEY_COLUMNS] bf16; key blocks, gathered STAGES - 1 ahead: LATENT
 * [STAGES][BLOCK_KEYS][VALUE_COLUMNS] bf16 and ROPE [ROPE_STAGES][BLOCK_KEYS][KEY_COLUMNS -
 * VALUE_COLUMNS] bf16; and the regions of common/block_slots.cuh. KEY_COLUMNS and VALUE_COLUMNS are
 * DQK and DV rounded up to multiples of 64; columns from DQK on are zeros.
 */

enum {
    LATENT_PITCH = VALUE_COLUMNS * 2, /* bytes of a row */
    ROPE_PITCH = (KEY_COLUMNS - VALUE_COLUMNS) * 2,
    QUERY_PITCH = KEY_COLUMNS * 2,
    LATENT_BYTES = BLOCK_KEYS * LATENT_PITCH, /* of a stage */
    ROPE_BYTES = BLOCK_KEYS * ROPE_PITCH,
    LATENT_CHUNKS = VALUE_COLUMNS / CHUNK_COLUMNS, /* of a row */
    ROPE_CHUNKS = (KEY_COLUMNS - VALUE_COLUMNS) / CHUNK_COLUMNS,
    QUERY_CHUNKS = KEY_COLUMNS / CHUNK_COLUMNS,
    LATENT_STEPS = VALUE_COLUMNS / 16, /* k-steps of the product */
    ROPE_STEPS = (KEY_COLUMNS - VALUE_COLUMNS) / 16,

    HEAD_TILES = BLOCK_HEADS / 16,
    SCORE_TILES = HEAD_TILES / SCORE_HEAD_GROUPS,           /* m16 tiles of a warp */
    SCORE_PAIRS = BLOCK_KEYS / 16 / SCORE_KEY_GROUPS,       /* pairs of n8 tiles of a warp */
    SCORE_LATENT_STEPS = LATENT_STEPS / SCORE_DEPTH_GROUPS, /* k-steps of a warp */
    SCORE_ROPE_STEPS = ROPE_STEPS / SCORE_DEPTH_GROUPS,
    SCORE_STEPS = SCORE_LATENT_STEPS + SCORE_ROPE_STEPS,
    QUERY_FRAGMENTS = QUERY_IN_REGISTERS ? SCORE_STEPS * SCORE_TILES * 4 : 1
};

/* Whether a chunk of a row of shared memory is one of a row of global memory. */
DEVICE bool chunk_exists(int chunk) {
    return DQK == KEY_COLUMNS || chunk < DQK / CHUNK_COLUMNS;
}

/* Starts the copy of BLOCK_HEADS heads from `first_head` on of the query at `q`; rows past the last
 * head become zeros. `head_stride` counts elements. */
DEVICE void load_query(const char *q, i64 head_stride, int first_head) {
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < BLOCK_HEADS * QUERY_CHUNKS; i += THREADS) {
        const int row = i / QUERY_CHUNKS, chunk = i % QUERY_CHUNKS;
        const int head = first_head + row;
        const bool present = head < HEADS && chunk_exists(chunk);
        const char *const source = present ? q + 2 * (head * head_stride) + chunk * CHUNK_BYTES : q;
        cp_async_16(shared_address(QUERY_OFFSET + tile_chunk(row, chunk, QUERY_PITCH)), source,
                    present ? CHUNK_BYTES : 0);
    }
}

/*
 * Starts the copy of `columns` chunks, from chunk `skip` on, of a block's KV rows into a tile.
 * Unless `whole`, rows past `count` and masked rows become zeros without being read. So do chunks past
 * a row's end.
 */
DEVICE void gather_rows(const char *kv, u32 row_bytes, int block, int count, bool whole, u32 tile,
                        int pitch, int columns, int skip) {
    const int rows_at_once = THREADS / columns;
    const int chunk = (int)threadIdx.x % columns;
    const int thread_row = (int)threadIdx.x / columns % rows_at_once;
    const char *const source = kv + (skip + chunk) * CHUNK_BYTES;
    const int *const entries = block_scan_entries(block) + thread_row;
    if (THREADS % columns != 0 && (int)threadIdx.x >= rows_at_once * columns) {
        return; /* left over */
    }
#pragma unroll 4
    for (int i = 0; i < (BLOCK_KEYS + rows_at_once - 1) / rows_at_once; ++i) {
        const int key = i * rows_at_once + thread_row;
        if (BLOCK_KEYS % rows_at_once != 0 && key >= BLOCK_KEYS) {
            break;
        }
        const int row = whole || key < count ? entries[i * rows_at_once] : MASKED;
        const bool present = (whole || row >= 0) && chunk_exists(skip + chunk);
        cp_async_16(tile + tile_chunk(key, chunk, pitch),
                    present ? source + (u64)(u32)row * row_bytes : kv, present ? CHUNK_BYTES : 0);
    }
}

/* The same with the common case of a full block compiled separately. Does nothing for an empty
 * block. */
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

/* A operand: row lane % 16, chunk lane / 16. */
DEVICE u32 a_address(u32 tile, int first_row, int pitch) {
    const int lane = (int)threadIdx.x % 32;
    return tile + tile_chunk(first_row + lane % 16, lane / 16, pitch);
}

/* B operand, keys as columns: row lane % 8, plus 8 for the second n8 tile; the chunk is bit 3 of
 * the lane. */
DEVICE u32 b_address(u32 tile, int first_row, int pitch) {
    const int lane = (int)threadIdx.x % 32;
    return tile + tile_chunk(first_row + lane % 8 + lane / 16 * 8, lane / 8 % 2, pitch);
}

/* This warp's part of S. */
struct score_place {
    int tile;  /* first m16 tile */
    int key;   /* first key */
    int depth; /* it computes the k-steps congruent to this modulo SCORE_DEPTH_GROUPS */
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

/* This warp's k-step number `index`. */
DEVICE int find_step(const struct score_place *place, int index) {
    return SCORE_DEPTH_GROUPS == 1 ? index : index * SCORE_DEPTH_GROUPS + place->depth;
}

/* Loads the query fragments of one k-step. */
DEVICE void load_query_step(u32 *a, const struct score_place *place, int step) {
    const u32 address = step_address(place->query, step);
#pragma unroll
    for (int m = 0; m < SCORE_TILES; ++m) {
        ldmatrix_x4(&a[m * 4], address + (u32)(m * 16 * QUERY_PITCH));
    }
}

/* Loads all of this warp's query fragments, if they stay in registers for the whole query. */
DEVICE void load_query_fragments(u32 *query, const struct score_place *place) {
#pragma unroll
    for (int i = 0; i < SCORE_STEPS; ++i) {
        load_query_step(&query[i * SCORE_TILES * 4], place, find_step(place, i));
    }
}

/* Loads the operands of this warp's step `index`, which is at column `step` * 16 of the key tile.
 * `keys`: the tile's ldmatrix address at column 0. */
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
 * s = this warp's part of Q K^T for the key block in a stage, first the rope columns, then the
 * latent ones. Each step's operands are loaded during the step before it, into the other of two
 * buffers. Step numbers count the latent steps first, as in the query tile. `tiles`: how many of
 * the warp's m16 tiles contain heads.
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

/* Starts the gather of a key block as one group of copies; an empty group past the query's last
 * block. */
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

/* Waits for all threads' copies of the oldest key block in flight (the first one includes the query
 * tile), then for all threads. */
DEVICE void wait_for_block(void) {
    cp_async_wait(STAGES - 2);
    __syncthreads();
}
