//@use common/base.cuh
//@use common/descriptor.cuh
//@use common/fragment_tile.cuh
//@use common/row_sums.cuh
//@use common/softmax.cuh
//@use common/warp_arrival.cuh
//@use ptx/grid.cuh
//@use ptx/hint.cuh
//@use ptx/math.cuh
//@use ptx/mbarrier.cuh
//@use ptx/memory.cuh
//@use ptx/named_barrier.cuh
//@use ptx/proxy.cuh
//@use ptx/registers.cuh
//@use ptx/wgmma.cuh
//@use ptx/wgmma_rs.cuh n = 32, tb = 1
//@use ptx/wgmma_rs.cuh n = 56, tb = 1
//@use ptx/wgmma_rs.cuh n = 128, tb = 1
//@use ptx/wgmma_ss.cuh n = 8, ta = 0, tb = 1
//@use ptx/wgmma_ss.cuh n = 64, ta = 0, tb = 0
//@use ptx/wgmma_ss.cuh n = 128, ta = 0, tb = 1
//@use sparse_attn_bwd.params.h
//@use sparse_attn_bwd.sm90_blocks.cuh
//@use sparse_attn_bwd.sm90_exchange.cuh
//@use sparse_attn_bwd.sm90_rows.cuh
/*
 * Sparse attention backward with wgmma: dq, and the sums (or partial rows) of dkv. Mathematics and
 * shapes: include/smelt/sparse_attn.h; what groups, lists and statistics are:
 * sparse_attn_bwd.params.h.
 *
 * An item is a group and BLOCK_HEADS (64) of its rows, a row being a head of one of the group's
 * queries: 64 heads of one query or, with few heads, QUERY_ROWS rows of each of GROUP_QUERIES
 * queries, one after the other. Its list of keys is taken in blocks of 64. Of each block:
 *
 *   S = Q K^T, dP = dO K^T    [rows, keys]
 *   P = 2^(scale log2(e) S - base), dS = scale P (dP - delta)
 *   dQ  += dS K               [rows, DQK], in registers for all of the item
 *   dKV  = dS^T Q + P^T dO    [keys, DQK], added to the rows in global memory, or stored
 *
 * Grid: one block a multiprocessor, each taking every gridDim.x-th item, from the last ones on; the
 * first ones, too few for all, may be cut into slices (sparse_attn_bwd.slices.cuh), which are items
 * with a part of their keys, whose dq goes to `slices`.
 * Items without keys take no part: their dq is zeroed at the very beginning. Three warpgroups:
 *
 *   scores   S and dP, tile by tile behind the gather, P, dS; dQ's first columns, A = dS from its
 *            registers; copies the next block's K tiles 0 and 1 when those are done
 *   gather   the other columns of dQ; copies the next block's other K tiles as its groups of
 *            columns are done; announces key blocks; Q and dO by tensor copies
 *   sums     dKV in chunks of 32 columns: P^T and dS^T as A from registers, dK and dV in one
 *            accumulator, two accumulators in turn; added to global memory from registers
 *
 * There is one stage of K: its tiles are filled one by one as they fall free. dQ of 64 rows fills
 * more than half of the register file, so that no fourth warpgroup fits (ptxas puts no accumulator
 * below R24 of each), and the columns of dQ are divided to make the most of what each role has
 * left. With DQK = 576: 0 to 183 scores, 184 to 575 gather; with 512: 0 to 127, 128 to 511.
 *
 * Pairs: the two thread blocks of a cluster take the halves of a query's heads side by side, and
 * their dKV is added to global memory once for both, or is one partial row: each adds one half of
 * every tile's columns, and sends its sums of the other half to the other one
 * (sparse_attn_bwd.sm90_exchange.cuh). With DQK = 576 there is no room but P's tile for them to
 * land in (LANDS_IN_P): P of the next block is stored when the last of them was taken, behind dS
 * and the issue of dQ.
 *
 * What binds: the additions' way out of the multiprocessor (common/row_sums.cuh).
 *
 * With DETERMINISTIC the sums of the launch's before may run on the multiprocessors that the grid
 * leaves free: they are let begin at once.
 *
 * Rows that do not exist (heads past the last, queries of groups that are not full) have zeros for
 * Q and dO, and a base of +inf: P and dS are 0. Keys behind a list's end are zeros in K, and their
 * dS are zeroed; nothing is added for them. With groups P and dS are 0 where the key is not of the
 * row's query.
 *
 * Shared memory (offsets and sizes: the plan above). A tile is 64 rows of 64 columns, 128-byte
 * swizzled:
 *   QUERY          TILES tiles, rows by columns
 *   GRAD_OUT       VALUE_TILES tiles
 *   KEYS           TILES tiles, keys by columns
 *   PROBABILITIES  P, one tile, rows by keys; of pairs what the other thread block sends
 *   SLOPES         dS, the same
 *   NUMBERS        [BLOCKS_AHEAD][64] the keys' numbers, -1: none
 *   ADDRESSES      [2][64] where their rows lie, 0: none
 *   MASKS          [BLOCKS_AHEAD][64] bytes: which members have the key; with groups
 *   WORDS          [BLOCKS_AHEAD] struct block_word
 *   CURSORS        [2] struct cursor
 *   SLICES         [3] struct cursor
 *   PATIENCE, STEP int: see keep_in_step
 *
 * Barriers (a block's parity: its number, counted over all items of the thread block; an item's the
 * same):
 *   barrier       count  who arrives                              who waits
 *   ANNOUNCED         4  gather: the next block's numbers and     scores
 *                        word are written
 *   KEYS_FULL[t]    128  scores (t = 0, 1) or gather: every       scores, gather
 *                        thread when its copies have landed;
 *                        of the first block gather alone
 *   KEYS_FREE         4  scores: its part of dQ complete          gather, before the last tiles
 *   SLOPES_FULL       4  scores: P and dS written                 gather, sums
 *   SLOPES_FREE       8  sums: fragments loaded; gather: its      scores, before the next P
 *                        part of dQ complete
 *   QUERY_FULL[g]     1  gather: one thread, and the bytes of     scores, sums
 *                        part g of Q and dO
 *   QUERY_FREE[g]     4  sums: the last block's products with     gather, before the next item's
 *                        those tiles complete
 * and of pairs:
 *   PROBABILITIES_FULL  4  scores: P written                      sums
 *   PROBABILITIES_FREE  4  sums: fragments loaded, and what       scores, before the next P
 *                          landed taken
 *   LANDED[i]           1  sums: one thread, and the bytes of a   sums
 *                          landing
 *   LANDING_FREE[i]     4  the other block's sums: what landed    sums, before they send
 *                          there was taken, or P loaded
 * (Counts are of warps where warps arrive: common/warp_arrival.cuh.)
 * Only who reads through the async proxy what others wrote by plain stores or cp.async has the
 * fence, after the wait. Named barriers: 1 the scores' warpgroup, 2 the gather's. All meet
 * when the first block is found, and when it is announced.
 *
 * Knobs: GROUP_QUERIES; legal values and the rule that picks it:
 * src/codegen/families/sparse_attn_bwd_sm90.c.
 */

enum {
    SCORES_WARPGROUP = 0,
    GATHER_WARPGROUP = 1,

    STEP_BYTES = 32,                 /* 16 columns of a row: a k-step along columns */
    ROW_STEP_BYTES = 2 * ATOM_BYTES, /* 16 rows of a tile: a k-step along rows */

    PRODUCT_VALUES = 2 * FRAGMENT_WORDS, /* S or dP of a thread */
    SUM_BYTES = DETERMINISTIC ? 2 : 4,   /* of a value of dKV in global memory */
    CHUNKS = DQK / SUM_COLUMNS,          /* of dKV */
    PART_CHUNKS = PART_TILES * TILE_COLUMNS / SUM_COLUMNS,
    HELD_CHUNK = PAIR ? CHUNKS - 2 : CHUNKS - 1 /* a block's last, behind where its rows begin */
};

/* ---- scores ---------------------------------------------------------------------------------- */

/* Which tile is i-th in S and dP: in the order in which the gather brings them. */
DEVICE int tile_in_turn(int i) {
    return !DIVIDES_TILE || i < DIVIDED_TILE ? i
           : i == TILES - 1                  ? DIVIDED_TILE
           : i == TILES - 3                  ? TILES - 1
           : i == TILES - 2                  ? TILES - 2
                                             : i + 1;
}

/* Issues S = Q K^T and dP = dO K^T, in two groups, the first of which has all of S. */
DEVICE void issue_products(float *s, float *dp, int flags, u32 block) {
    const u64 query = tile_descriptor(QUERY_OFFSET), keys = tile_descriptor(KEYS_OFFSET);
    const u64 grad_out = tile_descriptor(GRAD_OUT_OFFSET);
#pragma unroll
    for (int i = 0; i < TILES; ++i) {
        const int tile = tile_in_turn(i);
        if (tile % PART_TILES == 0 && (flags & FIRST_BLOCK)) {
            mbarrier_wait(barrier_at(QUERY_FULL + tile / PART_TILES), flags & ODD_ITEM ? 1 : 0);
        }
        mbarrier_wait(barrier_at(KEYS_FULL + tile), block & 1);
        fence_proxy_async();
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const u32 at = (u32)(tile * TILE_BYTES + k * STEP_BYTES);
            wgmma_ss_n64_t00(s, descriptor_advance(query, at), descriptor_advance(keys, at),
                             i + k > 0);
        }
        if (i == TILES - 1) {
            wgmma_commit();
        }
#pragma unroll
        for (int k = 0; k < 4 && tile < VALUE_TILES; ++k) {
            const u32 at = (u32)(tile * TILE_BYTES + k * STEP_BYTES);
            wgmma_ss_n64_t00(dp, descriptor_advance(grad_out, at), descriptor_advance(keys, at),
                             i + k > 0);
        }
    }
    wgmma_commit();
}

/* Of this thread's two rows. */
struct row_statistics {
    float minus_base[2], delta[2];
};

DEVICE void load_statistics(struct row_statistics *rows,
                            const struct sparse_attn_bwd_params *params, int item) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const float *const from =
            params->statistics + 2 * ((i64)item * BLOCK_HEADS + fragment_row() + 8 * r);
        rows->minus_base[r] = -from[0];
        rows->delta[r] = from[1];
    }
}

/* Bit i: S's value i of this thread is of a key that its row's query has. */
DEVICE u32 present_values(u32 block) {
    const int row = fragment_row(), upper = row / MEMBER_ROWS, lower = (row + 8) / MEMBER_ROWS;
    const unsigned short *const pairs =
        (const unsigned short *)block_masks(block) + thread_number() % 4;
    u32 present = 0;
#pragma unroll
    for (int i = 0; i < PRODUCT_VALUES / 4; ++i) {
        const u32 pair = pairs[i * 4]; /* of two keys' masks, the first in the lower byte */
        const u32 of_upper = pair >> upper & 0x101, of_lower = pair >> lower & 0x101;
        present |= ((of_upper | of_upper >> 7) & 3) << (4 * i);
        present |= ((of_lower | of_lower >> 7) & 3) << (4 * i + 2);
    }
    return present;
}

/* S -> P in place. */
DEVICE void probabilities(float *s, const struct row_statistics *rows, float scale_log2,
                          u32 present) {
#pragma unroll
    for (int i = 0; i < PRODUCT_VALUES; ++i) {
        const float x = fmaf(s[i], scale_log2, rows->minus_base[i / 2 % 2]);
        s[i] = exp2_approximate(minimum_nan(x, 0.0f));
        if (GROUP_QUERIES > 1) {
            s[i] = present >> i & 1 ? s[i] : 0.0f;
        }
    }
}

/* dP -> dS in place. */
DEVICE void slopes(float *dp, const float *p, const struct row_statistics *rows, float scale,
                   u32 present) {
#pragma unroll
    for (int i = 0; i < PRODUCT_VALUES; ++i) {
        dp[i] = p[i] * scale * (dp[i] - rows->delta[i / 2 % 2]);
        if (GROUP_QUERIES > 1) {
            dp[i] = present >> i & 1 ? dp[i] : 0.0f;
        }
    }
}

/* P or dS of keys behind the list's end becomes 0. (With groups their masks do that.) */
DEVICE void drop_absent(float *values, int count) {
    const int column = (int)(threadIdx.x % 4 * 2);
#pragma unroll
    for (int i = 0; i < PRODUCT_VALUES; ++i) {
        if (i / 4 * 8 + column + i % 2 >= count) {
            values[i] = 0.0f;
        }
    }
}

/* Issues dQ += dS K, or dQ = dS K of an item's first block, for the scores' columns. */
DEVICE void issue_first_columns(float *dq, float *rest, const u32 *ds, bool first) {
    const u64 keys = columns_descriptor(KEYS_OFFSET);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        const u64 b = descriptor_advance(keys, (u32)(k * ROW_STEP_BYTES));
        wgmma_rs_n128_t01(dq, &ds[4 * k], b, k > 0 || !first);
        if (DIVIDES_TILE) {
            wgmma_rs_n56_t01(rest, &ds[4 * k], descriptor_advance(b, DIVIDED_TILE * TILE_BYTES),
                             k > 0 || !first);
        }
    }
    wgmma_commit();
}

/* The scores' columns of an item's dq to global memory. */
DEVICE void store_first_columns(const struct sparse_attn_bwd_params *params, const float *dq,
                                const float *rest, int item) {
    char *rows[2];
    fragment_rows_of_dq(rows, params, item);
#pragma unroll
    for (int i = 0; i < WIDE_VALUES / 16; ++i) {
        store_columns_32(rows, i * 32, &dq[i * 16]);
    }
    if (DIVIDES_TILE) {
        store_columns_32(rows, WIDE_COLUMNS, rest);
#pragma unroll
        for (int i = 4; i < REST_VALUES / 4; ++i) {
            store_columns_8(rows, WIDE_COLUMNS + i * 8, &rest[i * 4]);
        }
    }
}

/* P into its tile; LANDS_IN_P: when nothing can land there any more. */
DEVICE void give_probabilities(const u32 *p, u32 block) {
    if (LANDS_IN_P) {
        mbarrier_wait(barrier_at(PROBABILITIES_FREE), (block & 1) ^ 1);
    }
    store_fragments(PROBABILITIES_OFFSET, p);
    if (LANDS_IN_P) {
        arrive_warp(barrier_at(PROBABILITIES_FULL), 1);
    }
}

DEVICE void run_scores(const struct sparse_attn_bwd_params *params) {
    registers_increase(SCORES_REGISTERS);
    const float scale_log2 = params->scale * LOG2_E;
    float dq[WIDE_VALUES], rest[REST_VALUES];
    struct row_statistics rows = {{0.0f, 0.0f}, {0.0f, 0.0f}};
    int flags;
    u32 block = 0;
    do {
        float s[PRODUCT_VALUES], dp[PRODUCT_VALUES];
        u32 packed[FRAGMENT_WORDS];
        flags = block_word(block)->flags;
        if (flags & FIRST_BLOCK) {
            load_statistics(&rows, params, block_word(block)->item);
        }
        issue_products(s, dp, flags, block);
        u32 present = GROUP_QUERIES > 1 ? present_values(block) : 0;
        wgmma_wait_1();
        probabilities(s, &rows, scale_log2, present);
        if (GROUP_QUERIES == 1 && (flags & COUNT_MASK) < BLOCK_KEYS) {
            drop_absent(s, flags & COUNT_MASK);
        }
        mbarrier_wait(barrier_at(SLOPES_FREE), (block & 1) ^ 1);
        if (!LANDS_IN_P) {
            pack_fragments(packed, s);
            give_probabilities(packed, block);
        }
        if (GROUP_QUERIES > 1) {
            /* The value it has: else the compiler keeps what it was split into, and registers are
             * short. */
            present = __shfl_xor_sync((u32)ALL_LANES, present, 0);
        }
        wgmma_wait_0();
        slopes(dp, s, &rows, params->scale, present);
        if (GROUP_QUERIES == 1 && (flags & COUNT_MASK) < BLOCK_KEYS) {
            drop_absent(dp, flags & COUNT_MASK);
        }
        pack_fragments(packed, dp);
        store_fragments(SLOPES_OFFSET, packed);
        arrive_warp(barrier_at(SLOPES_FULL), 1);
        u32 others[FRAGMENT_WORDS];
        pack_fragments(others, s);
        issue_first_columns(dq, rest, packed, flags & FIRST_BLOCK);
        if (LANDS_IN_P) {
            give_probabilities(others, block);
        }
        if (flags & MORE_BLOCKS) {
            /* Before KEYS_FREE: the gather may not be two phases ahead. */
            mbarrier_wait(barrier_at(ANNOUNCED), block & 1);
        }
        wgmma_wait_0();
        if (RACECHECK) {
            /* They are full since the products. The tool forgets that these threads waited for it
             * where an item's slice follows (ARCHITECTURE.md, "Tests"). */
            mbarrier_wait(barrier_at(KEYS_FULL), block & 1);
            mbarrier_wait(barrier_at(KEYS_FULL + 1), block & 1);
        }
        arrive_warp(barrier_at(KEYS_FREE), 1);
        barrier_sync(SCORES_BARRIER, WARPGROUP);
        if (flags & MORE_BLOCKS) {
            u64 from[ROWS_OF_THREAD];
            take_addresses(from, block + 1);
            copy_tile(from, 0);
            copy_tile(from, 1);
        }
        if (flags & LAST_BLOCK) {
            store_first_columns(params, dq, rest, block_word(block)->item);
        }
        ++block;
    } while (flags & MORE_BLOCKS);
}

/* ---- gather ---------------------------------------------------------------------------------- */

/* Issues dQ += dS K for the gather's columns, in groups of two tiles. */
DEVICE void issue_last_columns(float *dq, float *rest, bool first) {
    const u64 ds = tile_descriptor(SLOPES_OFFSET);
    const u64 keys = columns_descriptor(KEYS_OFFSET + LAST_TILE * TILE_BYTES);
    const u64 eight =
        columns_descriptor(KEYS_OFFSET + DIVIDED_TILE * TILE_BYTES + REST_COLUMNS * 2);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < LAST_GROUPS; ++i) {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const u64 a = descriptor_advance(ds, (u32)(k * STEP_BYTES));
            const u32 at = (u32)(k * ROW_STEP_BYTES);
            wgmma_ss_n128_t01(&dq[i * WIDE_VALUES], a,
                              descriptor_advance(keys, (u32)(i * 2 * TILE_BYTES) + at),
                              k > 0 || !first);
            if (DIVIDES_TILE && i == LAST_GROUPS - 1) {
                wgmma_ss_n8_t01(rest, a, descriptor_advance(eight, at), k > 0 || !first);
            }
        }
        wgmma_commit();
    }
}

/* The gather's columns of an item's dq to global memory. */
DEVICE void store_last_columns(const struct sparse_attn_bwd_params *params, const float *dq,
                               const float *rest, int item) {
    char *rows[2];
    fragment_rows_of_dq(rows, params, item);
    if (DIVIDES_TILE) {
        store_columns_8(rows, LAST_COLUMN - 8, rest);
    }
#pragma unroll
    for (int i = 0; i < LAST_GROUPS * WIDE_VALUES / 16; ++i) {
        store_columns_32(rows, LAST_COLUMN + i * 32, &dq[i * 16]);
    }
}

/* Copies two of the next block's tiles into what their columns have left. */
DEVICE void refill_tiles(int first, int second, u32 block) {
    u64 from[ROWS_OF_THREAD];
    take_addresses(from, block);
    copy_tile(from, first);
    copy_tile(from, second);
}

/* Waits for the groups of columns one after the other, and copies the next block's tiles behind
 * them, if there is one. */
DEVICE void follow_columns(u32 block, bool more) {
    wgmma_wait_2();
    barrier_sync(GATHER_BARRIER, WARPGROUP);
    if (more) {
        refill_tiles(LAST_TILE, LAST_TILE + 1, block + 1);
    }
    wgmma_wait_1();
    barrier_sync(GATHER_BARRIER, WARPGROUP);
    if (more) {
        refill_tiles(LAST_TILE + 2, LAST_TILE + 3, block + 1);
    }
    wgmma_wait_0();
    arrive_warp(barrier_at(SLOPES_FREE), 1);
    mbarrier_wait(barrier_at(KEYS_FREE), block & 1);
    barrier_sync(GATHER_BARRIER, WARPGROUP);
    if (more) {
        u64 from[ROWS_OF_THREAD];
        take_addresses(from, block + 1);
        copy_tile(from, LAST_TILE + 5);
        copy_tile(from, LAST_TILE + 4);
        if (DIVIDES_TILE) {
            copy_tile(from, DIVIDED_TILE);
        }
    }
}

DEVICE void run_gather(const struct sparse_attn_bwd_params *params) {
    registers_increase(GATHER_REGISTERS);
    float dq[LAST_GROUPS * WIDE_VALUES], rest[4];
    struct entry entry;
    u32 block = 0;
    int flags;
    fetch_entry(&entry, params, 1);
    copy_first_block();
    load_queries(params, 0);
    do {
        flags = block_word(block)->flags;
        if (flags & MORE_BLOCKS) {
            announce_block(&entry, params, block + 1);
        }
        mbarrier_wait(barrier_at(SLOPES_FULL), block & 1);
#pragma unroll
        for (int tile = DIVIDES_TILE ? DIVIDED_TILE : LAST_TILE; tile < TILES; ++tile) {
            mbarrier_wait(barrier_at(KEYS_FULL + tile), block & 1);
        }
        fence_proxy_async();
        issue_last_columns(dq, rest, flags & FIRST_BLOCK);
        if (thread_number() % WARPGROUP == 0 && *own_step() == STEP_CLOSE) {
            keep_in_step(params, block + 1, CLOSE_STEP);
        }
        follow_columns(block, flags & MORE_BLOCKS);
        flags = block_word(block)->flags; /* anew: registers are short */
        if (flags & LAST_BLOCK) {
            if (flags & MORE_BLOCKS) {
                load_queries(params, block + 1);
            }
            store_last_columns(params, dq, rest, block_word(block)->item);
        }
        ++block;
    } while (flags & MORE_BLOCKS);
    if (params->step && thread_number() % WARPGROUP == 0) {
        hint_add(params->progress, ENDED);
    }
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* Issues a chunk of dKV = dS^T Q + P^T dO: of a tile's columns the half that begins `half` chunks
 * behind the first. */
DEVICE void issue_chunk(float *sums, const u32 *p, const u32 *ds, int tile, u32 half) {
    const u64 query = columns_descriptor(QUERY_OFFSET);
    const u64 grad_out = columns_descriptor(GRAD_OUT_OFFSET);
    const u32 at = (u32)(tile * TILE_BYTES) + half * (SUM_COLUMNS * 2);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        wgmma_rs_n32_t01(sums, &ds[4 * k],
                         descriptor_advance(query, at + (u32)(k * ROW_STEP_BYTES)), k > 0);
    }
#pragma unroll
    for (int k = 0; k < 4 && tile < VALUE_TILES; ++k) {
        wgmma_rs_n32_t01(sums, &p[4 * k],
                         descriptor_advance(grad_out, at + (u32)(k * ROW_STEP_BYTES)), 1);
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

KERNEL void CLUSTERED __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct sparse_attn_bwd_params params) {
    if (DETERMINISTIC && threadIdx.x == 0) {
        grid_launch_dependents();
    }
    initialise_barriers();
    zero_empty_items(&params);
    const int warpgroup = __shfl_sync((u32)ALL_LANES, (int)(threadIdx.x / WARPGROUP), 0);
    if (warpgroup == GATHER_WARPGROUP) {
        find_first_block(&params);
    }
    __syncthreads();
    if (warpgroup == GATHER_WARPGROUP) {
        announce_first_block(&params);
    }
    /* Here, and not by a barrier in each role: it is to be one instruction for all (synccheck). */
    __syncthreads();
    if (block_word(0)->item < 0) {
        if (params.step && threadIdx.x == 0) {
            hint_add(params.progress, ENDED);
        }
    } else if (warpgroup == SCORES_WARPGROUP) {
        run_scores(&params);
    } else if (warpgroup == GATHER_WARPGROUP) {
        run_gather(&params);
    } else {
        run_sums(&params);
    }
    if (PAIR) {
        meet_pair(); /* neither ends while the other may reach into it */
    }
}
