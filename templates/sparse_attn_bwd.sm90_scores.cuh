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
//@use sparse_attn_bwd.sm90_copies.cuh
//@use sparse_attn_bwd.sm90_rows.cuh
/* The scores' warpgroup of sparse_attn_bwd.sm90.cu: computes S and dP, from them P and dS for the
 * other roles, and the first columns of dQ. */

enum { PRODUCT_VALUES = 2 * FRAGMENT_WORDS }; /* S or dP of a thread */

/* The i-th tile that S and dP use: the order in which the gather copies them. */
DEVICE int tile_in_order(int i) {
    return !DIVIDES_TILE || i < DIVIDED_TILE ? i
           : i == TILES - 1                  ? DIVIDED_TILE
           : i == TILES - 3                  ? TILES - 1
           : i == TILES - 2                  ? TILES - 2
                                             : i + 1;
}

/* Issues S = Q K^T and dP = dO K^T, in two wgmma groups; all of S is in the first. */
DEVICE void issue_products(float *s, float *dp, int flags, u32 block) {
    const u64 query = tile_descriptor(QUERY_OFFSET), keys = tile_descriptor(key_tile(0));
    const u64 grad_out = tile_descriptor(GRAD_OUT_OFFSET);
#pragma unroll
    for (int i = 0; i < TILES; ++i) {
        const int tile = tile_in_order(i);
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

/* Bit i: the row of this thread's value i of S belongs to a query that has the key. */
DEVICE u32 present_values(u32 block) {
    const int row = fragment_row(), upper = row / MEMBER_ROWS, lower = (row + 8) / MEMBER_ROWS;
    const unsigned short *const pairs =
        (const unsigned short *)block_masks(block) + thread_number() % 4;
    u32 present = 0;
#pragma unroll
    for (int i = 0; i < PRODUCT_VALUES / 4; ++i) {
        const u32 pair = pairs[i * 4]; /* two keys' masks, the first in the lower byte */
        const u32 of_upper = pair >> upper & 0x101, of_lower = pair >> lower & 0x101;
        present |= ((of_upper | of_upper >> 7) & 3) << (4 * i);
        present |= ((of_lower | of_lower >> 7) & 3) << (4 * i + 2);
    }
    return present;
}

/* Whether a block has fewer than BLOCK_KEYS keys. (With several queries the masks cover that.) */
DEVICE bool is_partial(int flags) {
    return GROUP_QUERIES == 1 && (flags & COUNT_MASK) < BLOCK_KEYS;
}

/* Zeroes P or dS of keys past the list's end. */
DEVICE void zero_absent(float *values, int flags) {
    const int column = (int)(threadIdx.x % 4 * 2), count = flags & COUNT_MASK;
#pragma unroll
    for (int i = 0; i < PRODUCT_VALUES; ++i) {
        if (i / 4 * 8 + column + i % 2 >= count) {
            values[i] = 0.0f;
        }
    }
}

/* Computes P from S, in place. */
DEVICE void compute_p(float *s, const struct row_statistics *rows, float scale_log2, u32 present) {
#pragma unroll
    for (int i = 0; i < PRODUCT_VALUES; ++i) {
        const float x = fmaf(s[i], scale_log2, rows->minus_base[i / 2 % 2]);
        s[i] = exp2_approximate(minimum_nan(x, 0.0f));
        if (GROUP_QUERIES > 1) {
            s[i] = present >> i & 1 ? s[i] : 0.0f;
        }
    }
}

/* Computes dS from dP, in place. */
DEVICE void compute_ds(float *dp, const float *p, const struct row_statistics *rows, float scale,
                       u32 present) {
#pragma unroll
    for (int i = 0; i < PRODUCT_VALUES; ++i) {
        dp[i] = p[i] * scale * (dp[i] - rows->delta[i / 2 % 2]);
        if (GROUP_QUERIES > 1) {
            dp[i] = present >> i & 1 ? dp[i] : 0.0f;
        }
    }
}

/* Stores P, as bf16 fragments, to its tile; with RECEIVES_IN_P once the last transfer into the tile
 * has been received. */
DEVICE void store_p(const u32 *p, u32 block) {
    if (RECEIVES_IN_P) {
        mbarrier_wait(barrier_at(P_FREE), (block & 1) ^ 1);
    }
    store_fragments(PROBABILITIES_OFFSET, p);
    if (RECEIVES_IN_P) {
        arrive_warp(barrier_at(P_FULL), 1);
    }
}

/* Waits for S and computes P; stores it, unless RECEIVES_IN_P. */
DEVICE void finish_p(float *s, const struct row_statistics *rows, float scale_log2, u32 present,
                     int flags, u32 block) {
    wgmma_wait(1);
    compute_p(s, rows, scale_log2, present);
    if (is_partial(flags)) {
        zero_absent(s, flags);
    }
    mbarrier_wait(barrier_at(DS_FREE), (block & 1) ^ 1);
    if (!RECEIVES_IN_P) {
        u32 packed[FRAGMENT_WORDS];
        pack_fragments(packed, s);
        store_p(packed, block);
    }
}

/* Waits for dP, computes dS from it and P, and stores dS; `ds`: dS as A fragments. */
DEVICE void finish_ds(u32 *ds, float *dp, const float *p, const struct row_statistics *rows,
                      float scale, u32 present, int flags) {
    if (GROUP_QUERIES > 1) {
        /* Unchanged: it keeps the compiler from holding the bits in separate registers, which are
         * short. */
        present = __shfl_xor_sync((u32)ALL_LANES, present, 0);
    }
    wgmma_wait(0);
    compute_ds(dp, p, rows, scale, present);
    if (is_partial(flags)) {
        zero_absent(dp, flags);
    }
    pack_fragments(ds, dp);
    store_fragments(DS_OFFSET, ds);
    arrive_warp(barrier_at(DS_FULL), 1);
}

/* Issues dQ += dS K, or dQ = dS K for an item's first block, for the scores' columns. */
DEVICE void issue_first_columns(float *dq, float *rest, const u32 *ds, bool first) {
    const u64 keys = columns_descriptor(key_tile(0));
    wgmma_fence();
    if (DIVIDES_TILE) { /* before the others: otherwise ptxas spills in deterministic pairs */
        wgmma_rs_tile_n56_t01(rest, ds, descriptor_advance(keys, DIVIDED_TILE * TILE_BYTES),
                              !first);
    }
    wgmma_rs_tile_n128_t01(dq, ds, keys, !first);
    wgmma_commit();
}

/* Stores the scores' columns of an item's dq to global memory. */
DEVICE void store_first_columns(const struct sparse_attn_bwd_params *params, const float *dq,
                                const float *rest, int item) {
    char *rows[2];
    find_dq_rows(rows, params, item);
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

/* Once dQ's wgmmas are complete, releases the block's K tiles and starts the copies of the next
 * block's first two. */
DEVICE void replace_keys(int flags, u32 block) {
    if (flags & MORE_BLOCKS) {
        /* Before KEYS_FREE: the gather must not get two phases ahead. */
        mbarrier_wait(barrier_at(ANNOUNCED), block & 1);
    }
    wgmma_wait(0);
    if (RACECHECK) {
        /* These tiles have been full since the products, but where a slice of the same item
         * follows, the tool forgets that these threads waited for them (ARCHITECTURE.md, "Tests").
         * */
        mbarrier_wait(barrier_at(KEYS_FULL), block & 1);
        mbarrier_wait(barrier_at(KEYS_FULL + 1), block & 1);
    }
    arrive_warp(barrier_at(KEYS_FREE), 1);
    barrier_sync(SCORES_BARRIER, WARPGROUP);
    if (flags & MORE_BLOCKS) {
        copy_tiles(0, 1, block + 1);
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
        u32 ds[FRAGMENT_WORDS];
        flags = block_word(block)->flags;
        if (flags & FIRST_BLOCK) {
            load_statistics(&rows, params, block_word(block)->item);
        }
        issue_products(s, dp, flags, block);
        const u32 present = GROUP_QUERIES > 1 ? present_values(block) : 0;
        finish_p(s, &rows, scale_log2, present, flags, block);
        finish_ds(ds, dp, s, &rows, params->scale, present, flags);
        u32 p[FRAGMENT_WORDS];
        pack_fragments(p, s);
        issue_first_columns(dq, rest, ds, flags & FIRST_BLOCK);
        if (RECEIVES_IN_P) {
            store_p(p, block);
        }
        replace_keys(flags, block);
        if (flags & LAST_BLOCK) {
            store_first_columns(params, dq, rest, block_word(block)->item);
        }
        ++block;
    } while (flags & MORE_BLOCKS);
}
