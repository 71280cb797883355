//@use common/fragment_tile.cuh
//@use common/row_sums.cuh
//@use common/warp_arrival.cuh
//@use ptx/cluster.cuh
//@use ptx/mbarrier.cuh
//@use ptx/registers.cuh
//@use ptx/thread.cuh
//@use ptx/wgmma.cuh
//@use ptx/wgmma_rs_tile.cuh n = 32, tb = 1
//@use sparse_attn_bwd.params.h
//@use sparse_attn_bwd.sm90_exchange.cuh
//@use sparse_attn_bwd.sm90_shared.cuh
/* The sums' warpgroup of sparse_attn_bwd.sm90.cu: dKV of each key block in chunks of 32 columns,
 * added to dkv in global memory or stored as partial rows. With pairs, half of the columns, plus
 * the other CTA's sums (sparse_attn_bwd.sm90_exchange.cuh). */

enum {
    SUM_BYTES = DETERMINISTIC ? 2 : 4, /* of a value of dKV in global memory */
    CHUNKS = DQK / SUM_COLUMNS,        /* of dKV */
    PART_CHUNKS = PART_TILES * TILE_COLUMNS / SUM_COLUMNS,
    HELD_CHUNK =
        PAIR ? CHUNKS - 2 : CHUNKS - 1 /* a block's last, relative to where its rows begin */
};

/* Issues one chunk of dKV = dS^T Q + P^T dO: the first or second half of a tile's columns. */
DEVICE void issue_chunk(float *sums, const u32 *p, const u32 *ds, int tile, u32 half) {
    const u64 query = columns_descriptor(QUERY_OFFSET);
    const u64 grad_out = columns_descriptor(GRAD_OUT_OFFSET);
    const u32 at = (u32)(tile * TILE_BYTES) + half * (SUM_COLUMNS * 2);
    wgmma_fence();
    wgmma_rs_tile_n32_t01(sums, ds, descriptor_advance(query, at), 0);
    if (tile < VALUE_TILES) {
        wgmma_rs_tile_n32_t01(sums, p, descriptor_advance(grad_out, at), 1);
    }
    wgmma_commit();
}

/* The global address of this thread's values of a chunk; chunks are counted over all rows. */
DEVICE char *chunk_at(const struct sparse_attn_bwd_params *params, u32 chunk) {
    /* With pairs the thread's number is read anew: otherwise too many values derived from it stay
     * in registers. */
    const u32 first = first_sum(PAIR ? thread_number() : threadIdx.x);
    char *const to = DETERMINISTIC ? (char *)params->partials : (char *)params->dkv;
    return to + first * SUM_BYTES + (u64)chunk * (SUM_COLUMNS * SUM_BYTES);
}

/* Adds the result of exchange_rows to rows in global memory, or stores it. `rows`: the chunk number
 * at which each of this thread's four rows begins. */
DEVICE void send_rows(const struct sparse_attn_bwd_params *params, const float *values,
                      const u32 *rows, int chunk, int half) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        send_sums(chunk_at(params, rows[2 * half + i]) + chunk * SUM_COLUMNS * SUM_BYTES,
                  &values[4 * i], DETERMINISTIC);
    }
}

/* A block's number modulo BLOCKS_AHEAD, from its flags: registers are short. */
DEVICE u32 block_number(int flags) {
    return (u32)flags / BLOCK_UNIT;
}

/*
 * Finds the destination of the block's dKV: this thread's partial rows or rows of dkv, from chunk
 * `first_chunk` of each. Past the list's end dKV is 0, because P and dS are: the partial rows there
 * are not used, and zeros are added to the row of the block's first key, since a branch at each
 * addition would cost more.
 */
DEVICE void find_rows(u32 *rows, u32 block, u32 first_chunk) {
    const u32 thread = thread_number() % WARPGROUP;
    const int first = (int)(thread / 32 * 16 + thread / 4 % 4);
    const int *const keys = block_keys(block);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int key = keys[first + 4 * i];
        const int row = DETERMINISTIC ? block_word(block)->partial_row + (first + 4 * i) * KEY_ROWS
                        : key < 0     ? keys[0]
                                      : key;
        rows[i] = (u32)row * CHUNKS + first_chunk;
    }
}

/*
 * Computes and sends all chunks of a block; each is sent while the next one is computed. Half of
 * the last chunk is `held` and sent once the next block's first chunk is issued; until then `rows`
 * are those of the previous block.
 */
DEVICE void sum_block(const struct sparse_attn_bwd_params *params, const u32 *p, const u32 *ds,
                      float *held, u32 *rows, int flags) {
    float sums[2][SUM_VALUES], values[SENT_VALUES];
    issue_chunk(sums[0], p, ds, 0, 0);
    send_rows(params, held, rows, HELD_CHUNK, 1);
    find_rows(rows, block_number(flags), 0);
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS - 1; ++chunk) {
        issue_chunk(sums[(chunk + 1) % 2], p, ds, (chunk + 1) / 2, (u32)(chunk + 1) % 2);
        wgmma_wait(1);
        if ((flags & LAST_BLOCK) && (chunk + 1) % PART_CHUNKS == 0) {
            arrive_warp(barrier_at(QUERY_FREE + chunk / PART_CHUNKS), 1);
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            exchange_rows(values, sums[chunk % 2], half);
            send_rows(params, values, rows, chunk, half);
        }
        __syncwarp((u32)ALL_LANES); /* otherwise ptxas moves them behind the next wait */
    }
    wgmma_wait(0);
    if (flags & LAST_BLOCK) {
        arrive_warp(barrier_at(QUERY_FREE + PARTS - 1), 1);
    }
    exchange_rows(values, sums[1], 0);
    send_rows(params, values, rows, HELD_CHUNK, 0);
    exchange_rows(held, sums[1], 1);
}

/* With pairs a block takes PAIR_STEPS steps of one chunk each: a chunk of tile t for the other CTA,
 * then this CTA's own chunk of tile t + 1 - FIRST_SENT, to which the other CTA's sums are added;
 * they arrive in between. */
enum {
    PAIR_STEPS = CHUNKS,
    FIRST_SENT = RECEIVE_BUFFERS / 2 + 1 /* chunks sent before one is received */
};

DEVICE bool is_own_step(int step) {
    const int position = step - FIRST_SENT, pairs = TILES - FIRST_SENT;
    return position >= 2 * pairs || (position >= 0 && position % 2 == 0);
}

DEVICE int tile_of_step(int step) {
    const int position = step - FIRST_SENT, pairs = TILES - FIRST_SENT;
    return position < 0            ? step
           : position >= 2 * pairs ? position - pairs
           : position % 2 == 0     ? position / 2
                                   : FIRST_SENT + position / 2;
}

DEVICE void issue_step(float *sums, const u32 *p, const u32 *ds, int step) {
    issue_chunk(sums, p, ds, tile_of_step(step), is_own_step(step) ? cluster_rank() : other_rank());
}

/* Completes a chunk that this CTA adds for both: adds the other CTA's sums and sends the result to
 * global memory; half of a block's last chunk is `held`. */
DEVICE void add_pair_chunk(const struct sparse_attn_bwd_params *params, float *sums, float *held,
                           const u32 *rows, int tile, int flags) {
    float values[SENT_VALUES];
    if ((flags & LAST_BLOCK) && ((tile + 1) % PART_TILES == 0 || tile + 1 == TILES)) {
        arrive_warp(barrier_at(QUERY_FREE + tile / PART_TILES), 1);
    }
    const u32 read = receive_chunk(sums, tile, flags);
    if (!RECEIVES_IN_P || tile + RECEIVE_BUFFERS < TILES) {
        free_receive_buffer(tile, read, flags);
    } else if (tile + 1 == TILES) {
        arrive_warp(barrier_at(P_FREE), 1);
    }
    exchange_rows(values, sums, 0);
    send_rows(params, values, rows, 2 * tile, 0);
    if (tile + 1 < TILES) {
        exchange_rows(values, sums, 1);
        send_rows(params, values, rows, 2 * tile, 1);
        __syncwarp((u32)ALL_LANES);
    } else {
        exchange_rows(held, sums, 1);
    }
}

/* sum_block for a pair: of each tile, computes the other CTA's half of the columns and sends it
 * there, and computes its own half and adds it to global memory with the other CTA's sums. */
DEVICE void sum_pair_block(const struct sparse_attn_bwd_params *params, const u32 *p, const u32 *ds,
                           float *held, u32 *rows, int flags) {
    float sums[2][SUM_VALUES];
    issue_step(sums[0], p, ds, 0);
    send_rows(params, held, rows, HELD_CHUNK, 1);
    __syncwarp((u32)ALL_LANES);
    find_rows(rows, block_number(flags), cluster_rank());
#pragma unroll
    for (int step = 0; step < PAIR_STEPS; ++step) {
        if (step + 1 < PAIR_STEPS) {
            issue_step(sums[(step + 1) % 2], p, ds, step + 1);
            wgmma_wait(1);
        } else {
            wgmma_wait(0);
        }
        if (is_own_step(step)) {
            add_pair_chunk(params, sums[step % 2], held, rows, tile_of_step(step), flags);
        } else {
            send_chunk(sums[step % 2], tile_of_step(step), flags);
        }
    }
}

/* Loads P^T and dS^T of a block as A fragments. */
DEVICE void load_operands(u32 *p, u32 *ds, u32 block) {
    mbarrier_wait(barrier_at(DS_FULL), block & 1);
    if (RECEIVES_IN_P) {
        load_fragments_transposed(ds, DS_OFFSET);
        arrive_warp(barrier_at(DS_FREE), 1);
        mbarrier_wait(barrier_at(P_FULL), block & 1);
        load_fragments_transposed(p, PROBABILITIES_OFFSET);
    } else {
        load_fragments_transposed(p, PROBABILITIES_OFFSET);
        load_fragments_transposed(ds, DS_OFFSET);
        arrive_warp(barrier_at(DS_FREE), 1);
    }
}

DEVICE void run_sums(const struct sparse_attn_bwd_params *params) {
    registers_decrease(SUMS_REGISTERS);
    float held[SENT_VALUES] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
    u32 rows[4], block = 0;
    int flags;
    /* The first `held` values are zeros; partial rows of a pair get them in this CTA's columns. */
    find_rows(rows, block, PAIR && DETERMINISTIC ? cluster_rank() : 0);
    do {
        u32 p[FRAGMENT_WORDS], ds[FRAGMENT_WORDS];
        load_operands(p, ds, block);
        flags = block_word(block)->flags;
        for (int part = 0; part < PARTS && (flags & FIRST_BLOCK); ++part) {
            mbarrier_wait(barrier_at(QUERY_FULL + part), flags & ODD_ITEM ? 1 : 0);
        }
        if (PAIR) {
            if (RECEIVES_IN_P) {
                const u32 read = p[0] | p[4] | p[8] | p[12]; /* a word of each load */
                free_receive_buffer(0, read, flags);
                free_receive_buffer(1, read, flags);
            }
            sum_pair_block(params, p, ds, held, rows, flags);
        } else {
            sum_block(params, p, ds, held, rows, flags);
        }
        block = block_number(flags) + 1;
    } while (flags & MORE_BLOCKS);
    send_rows(params, held, rows, HELD_CHUNK, 1);
}
