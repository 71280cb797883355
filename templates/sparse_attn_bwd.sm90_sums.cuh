//@use common/descriptor.cuh
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
//@use sparse_attn_bwd.sm90_blocks.cuh
//@use sparse_attn_bwd.sm90_exchange.cuh
/* The sums' warpgroup of sparse_attn_bwd.sm90.cu: dKV of each key block, chunk by chunk, added to
 * the rows in global memory or stored; of pairs one half of its columns, the other one's sums added
 * (sparse_attn_bwd.sm90_exchange.cuh). */

enum {
    SUM_BYTES = DETERMINISTIC ? 2 : 4, /* of a value of dKV in global memory */
    CHUNKS = DQK / SUM_COLUMNS,        /* of dKV */
    PART_CHUNKS = PART_TILES * TILE_COLUMNS / SUM_COLUMNS,
    HELD_CHUNK = PAIR ? CHUNKS - 2 : CHUNKS - 1 /* a block's last, behind where its rows begin */
};

/* Issues a chunk of dKV = dS^T Q + P^T dO: of a tile's columns the half that begins `half` chunks
 * behind the first. */
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

/* Where this thread's values of a chunk of a row stand; chunks are counted over all rows. */
DEVICE char *chunk_at(const struct sparse_attn_bwd_params *params, u32 chunk) {
    /* Of pairs the thread's number anew: else too much is kept that follows from it. */
    const u32 first = first_sum(PAIR ? thread_number() : threadIdx.x);
    char *const to = DETERMINISTIC ? (char *)params->partials : (char *)params->dkv;
    return to + first * SUM_BYTES + (u64)chunk * (SUM_COLUMNS * SUM_BYTES);
}

/* Adds what exchange_rows gave to the rows of global memory, or stores it. rows: where this
 * thread's four of all chunks begin, in chunks. */
DEVICE void send_rows(const struct sparse_attn_bwd_params *params, const float *values,
                      const u32 *rows, int chunk, int half) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        send_sums(chunk_at(params, rows[2 * half + i]) + chunk * SUM_COLUMNS * SUM_BYTES,
                  &values[4 * i], DETERMINISTIC);
    }
}

/* A block's number, but for a multiple of BLOCKS_AHEAD, by its flags: registers are short. */
DEVICE u32 number_of(int flags) {
    return (u32)flags / BLOCK_UNIT;
}

/*
 * Where the block's dKV goes: this thread's rows of the launch's partial ones, or of dkv, from
 * their chunk `first_chunk` on. Behind a list's end, P and dS and so dKV are 0: partial rows there
 * are nobody's, and a zero may as well be added to the block's first key. (A branch at each
 * addition would cost more.)
 */
DEVICE void take_rows(u32 *rows, u32 block, u32 first_chunk) {
    const u32 thread = thread_number() % WARPGROUP;
    const int first = (int)(thread / 32 * 16 + thread / 4 % 4);
    const int *const numbers = block_numbers(block);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int key = numbers[first + 4 * i];
        const int row = DETERMINISTIC ? block_word(block)->place + (first + 4 * i) * KEY_ROWS
                        : key < 0     ? numbers[0]
                                      : key;
        rows[i] = (u32)row * CHUNKS + first_chunk;
    }
}

/*
 * All chunks of a block, each sent while the next one is computed. Half of the last one is `held`,
 * to be sent when the next block's first is in the tensor cores; until then `rows` are the block's
 * before.
 */
DEVICE void sum_block(const struct sparse_attn_bwd_params *params, const u32 *p, const u32 *ds,
                      float *held, u32 *rows, int flags) {
    float sums[2][SUM_VALUES], values[SENT_VALUES];
    issue_chunk(sums[0], p, ds, 0, 0);
    send_rows(params, held, rows, HELD_CHUNK, 1);
    take_rows(rows, number_of(flags), 0);
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS - 1; ++chunk) {
        issue_chunk(sums[(chunk + 1) % 2], p, ds, (chunk + 1) / 2, (u32)(chunk + 1) % 2);
        wgmma_wait_1();
        if ((flags & LAST_BLOCK) && (chunk + 1) % PART_CHUNKS == 0) {
            arrive_warp(barrier_at(QUERY_FREE + chunk / PART_CHUNKS), 1);
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            exchange_rows(values, sums[chunk % 2], half);
            send_rows(params, values, rows, chunk, half);
        }
        __syncwarp((u32)ALL_LANES); /* ptxas would put them behind the next wait */
    }
    wgmma_wait_0();
    if (flags & LAST_BLOCK) {
        arrive_warp(barrier_at(QUERY_FREE + PARTS - 1), 1);
    }
    exchange_rows(values, sums[1], 0);
    send_rows(params, values, rows, HELD_CHUNK, 0);
    exchange_rows(held, sums[1], 1);
}

/* The steps of a pair's block, a chunk each: one for the other thread block of tile t, then the own
 * one of tile t + 1 - FIRST_SENT, to which what comes from there is added; in between it lands. */
enum { PAIR_STEPS = CHUNKS, FIRST_SENT = LANDINGS / 2 + 1 /* chunks, before one is taken */ };

DEVICE bool is_own_step(int step) {
    const int in_turn = step - FIRST_SENT, pairs = TILES - FIRST_SENT;
    return in_turn >= 2 * pairs || (in_turn >= 0 && in_turn % 2 == 0);
}

DEVICE int tile_of_step(int step) {
    const int in_turn = step - FIRST_SENT, pairs = TILES - FIRST_SENT;
    return in_turn < 0            ? step
           : in_turn >= 2 * pairs ? in_turn - pairs
           : in_turn % 2 == 0     ? in_turn / 2
                                  : FIRST_SENT + in_turn / 2;
}

DEVICE void issue_step(float *sums, const u32 *p, const u32 *ds, int step) {
    issue_chunk(sums, p, ds, tile_of_step(step), is_own_step(step) ? cluster_rank() : other_rank());
}

/* A chunk that this thread block adds for both of a pair, complete but for what the other one has:
 * to global memory, but half of a block's last one, which is `held`. */
DEVICE void add_pair_chunk(const struct sparse_attn_bwd_params *params, float *sums, float *held,
                           const u32 *rows, int tile, int flags) {
    float values[SENT_VALUES];
    if ((flags & LAST_BLOCK) && ((tile + 1) % PART_TILES == 0 || tile + 1 == TILES)) {
        arrive_warp(barrier_at(QUERY_FREE + tile / PART_TILES), 1);
    }
    const u32 read = take_chunk(sums, tile, flags);
    if (!LANDS_IN_P || tile + LANDINGS < TILES) {
        free_landing(tile, read, flags);
    } else if (tile + 1 == TILES) {
        arrive_warp(barrier_at(PROBABILITIES_FREE), 1);
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

/* The same of a pair: of each tile the half that the other thread block adds is
 * computed and sent there, and the own one, to which what comes from there is added before it goes
 * to global memory. */
DEVICE void sum_pair_block(const struct sparse_attn_bwd_params *params, const u32 *p, const u32 *ds,
                           float *held, u32 *rows, int flags) {
    float sums[2][SUM_VALUES];
    issue_step(sums[0], p, ds, 0);
    send_rows(params, held, rows, HELD_CHUNK, 1);
    __syncwarp((u32)ALL_LANES);
    take_rows(rows, number_of(flags), cluster_rank());
#pragma unroll
    for (int step = 0; step < PAIR_STEPS; ++step) {
        if (step + 1 < PAIR_STEPS) {
            issue_step(sums[(step + 1) % 2], p, ds, step + 1);
            wgmma_wait_1();
        } else {
            wgmma_wait_0();
        }
        if (is_own_step(step)) {
            add_pair_chunk(params, sums[step % 2], held, rows, tile_of_step(step), flags);
        } else {
            send_chunk(sums[step % 2], tile_of_step(step), flags);
        }
    }
}

/* P and dS of a block into this warpgroup's registers. */
DEVICE void take_operands(u32 *p, u32 *ds, u32 block) {
    mbarrier_wait(barrier_at(SLOPES_FULL), block & 1);
    if (LANDS_IN_P) {
        load_fragments_transposed(ds, SLOPES_OFFSET);
        arrive_warp(barrier_at(SLOPES_FREE), 1);
        mbarrier_wait(barrier_at(PROBABILITIES_FULL), block & 1);
        load_fragments_transposed(p, PROBABILITIES_OFFSET);
    } else {
        load_fragments_transposed(p, PROBABILITIES_OFFSET);
        load_fragments_transposed(ds, SLOPES_OFFSET);
        arrive_warp(barrier_at(SLOPES_FREE), 1);
    }
}

DEVICE void run_sums(const struct sparse_attn_bwd_params *params) {
    registers_decrease(SUMS_REGISTERS);
    float held[SENT_VALUES] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
    u32 rows[4], block = 0;
    int flags;
    /* Where zeros are sent at first; of pairs into this block's own columns. */
    take_rows(rows, block, PAIR && DETERMINISTIC ? cluster_rank() : 0);
    do {
        u32 p[FRAGMENT_WORDS], ds[FRAGMENT_WORDS];
        take_operands(p, ds, block);
        flags = block_word(block)->flags;
        for (int part = 0; part < PARTS && (flags & FIRST_BLOCK); ++part) {
            mbarrier_wait(barrier_at(QUERY_FULL + part), flags & ODD_ITEM ? 1 : 0);
        }
        if (PAIR) {
            if (LANDS_IN_P) {
                const u32 read = p[0] | p[4] | p[8] | p[12]; /* a word of each load */
                free_landing(0, read, flags);
                free_landing(1, read, flags);
            }
            sum_pair_block(params, p, ds, held, rows, flags);
        } else {
            sum_block(params, p, ds, held, rows, flags);
        }
        block = number_of(flags) + 1;
    } while (flags & MORE_BLOCKS);
    send_rows(params, held, rows, HELD_CHUNK, 1);
}
