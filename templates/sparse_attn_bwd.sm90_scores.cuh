//@use common/descriptor.cuh
//@use common/fragment_tile.cuh
//@use common/softmax.cuh
//@use common/warp_arrival.cuh
//@use ptx/math.cuh
//@use ptx/mbarrier.cuh
//@use ptx/named_barrier.cuh
//@use ptx/proxy.cuh
//@use ptx/registers.cuh
//@use ptx/thread.cuh
//@use ptx/wgmma.cuh
//@use ptx/wgmma_rs_tile.cuh n = 56, tb = 1
//@use ptx/wgmma_rs_tile.cuh n = 128, tb = 1
//@use ptx/wgmma_ss_tile.cuh n = 64, ta = 0, tb = 0
//@use sparse_attn_bwd.params.h
//@use sparse_attn_bwd.sm90_blocks.cuh
//@use sparse_attn_bwd.sm90_rows.cuh
/* The scores' warpgroup of sparse_attn_bwd.sm90.cu: S and dP, from them P and dS, which it hands to
 * the others, and the first columns of dQ. */

enum { PRODUCT_VALUES = 2 * FRAGMENT_WORDS }; /* S or dP of a thread */

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
        const u32 at = (u32)(tile * TILE_BYTES);
        wgmma_ss_tile_n64_t00(s, descriptor_advance(query, at), descriptor_advance(keys, at),
                              i > 0);
        if (i == TILES - 1) {
            wgmma_commit();
        }
        if (tile < VALUE_TILES) {
            wgmma_ss_tile_n64_t00(dp, descriptor_advance(grad_out, at),
                                  descriptor_advance(keys, at), i > 0);
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
    if (DIVIDES_TILE) { /* first: else ptxas spills in deterministic pairs */
        wgmma_rs_tile_n56_t01(rest, ds, descriptor_advance(keys, DIVIDED_TILE * TILE_BYTES),
                              !first);
    }
    wgmma_rs_tile_n128_t01(dq, ds, keys, !first);
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
