//@use common/descriptor.cuh
//@use common/warp_arrival.cuh
//@use ptx/hint.cuh
//@use ptx/mbarrier.cuh
//@use ptx/named_barrier.cuh
//@use ptx/proxy.cuh
//@use ptx/registers.cuh
//@use ptx/thread.cuh
//@use ptx/wgmma.cuh
//@use ptx/wgmma_ss_tile.cuh n = 8, ta = 0, tb = 1
//@use ptx/wgmma_ss_tile.cuh n = 128, ta = 0, tb = 1
//@use sparse_attn_bwd.params.h
//@use sparse_attn_bwd.sm90_blocks.cuh
//@use sparse_attn_bwd.sm90_rows.cuh
/* The gather's warpgroup of sparse_attn_bwd.sm90.cu: it announces key blocks and copies them
 * (sparse_attn_bwd.sm90_blocks.cuh), and computes the last columns of dQ. */

/* Issues dQ += dS K for the gather's columns, in groups of two tiles. */
DEVICE void issue_last_columns(float *dq, float *rest, bool first) {
    const u64 ds = tile_descriptor(SLOPES_OFFSET);
    const u64 keys = columns_descriptor(KEYS_OFFSET + LAST_TILE * TILE_BYTES);
    const u64 eight =
        columns_descriptor(KEYS_OFFSET + DIVIDED_TILE * TILE_BYTES + REST_COLUMNS * 2);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < LAST_GROUPS; ++i) {
        wgmma_ss_tile_n128_t01(&dq[i * WIDE_VALUES], ds,
                               descriptor_advance(keys, (u32)(i * 2 * TILE_BYTES)), !first);
        if (DIVIDES_TILE && i == LAST_GROUPS - 1) {
            wgmma_ss_tile_n8_t01(rest, ds, eight, !first);
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
