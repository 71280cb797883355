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
//@use sparse_attn_bwd.sm90_copies.cuh
//@use sparse_attn_bwd.sm90_rows.cuh
//@use sparse_attn_bwd.sm90_schedule.cuh
/* The gather's warpgroup of sparse_attn_bwd.sm90.cu: announces key blocks, copies their rows, and
 * computes the last columns of dQ. */

/* Issues dQ += dS K for the gather's columns, one wgmma group per two tiles. */
DEVICE void issue_last_columns(float *dq, float *rest, bool first) {
    const u64 ds = tile_descriptor(DS_OFFSET);
    const u64 keys = columns_descriptor(key_tile(LAST_TILE));
    const u64 eight = columns_descriptor(key_tile(DIVIDED_TILE) + REST_COLUMNS * 2);
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

/* Stores the gather's columns of an item's dq to global memory. */
DEVICE void store_last_columns(const struct sparse_attn_bwd_params *params, const float *dq,
                               const float *rest, int item) {
    char *rows[2];
    find_dq_rows(rows, params, item);
    if (DIVIDES_TILE) {
        store_columns_8(rows, LAST_COLUMN - 8, rest);
    }
#pragma unroll
    for (int i = 0; i < LAST_GROUPS * WIDE_VALUES / 16; ++i) {
        store_columns_32(rows, LAST_COLUMN + i * 32, &dq[i * 16]);
    }
}

/* Waits for the wgmma groups in order. As each completes, its K tiles are free: starts the copies of
 * the next block's tiles into them, if there is a next block. */
DEVICE void refill_tiles(u32 block, bool more) {
    wgmma_wait(2);
    barrier_sync(GATHER_BARRIER, WARPGROUP);
    if (more) {
        copy_tiles(LAST_TILE, LAST_TILE + 1, block + 1);
    }
    wgmma_wait(1);
    barrier_sync(GATHER_BARRIER, WARPGROUP);
    if (more) {
        copy_tiles(LAST_TILE + 2, LAST_TILE + 3, block + 1);
    }
    wgmma_wait(0);
    arrive_warp(barrier_at(DS_FREE), 1);
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
        mbarrier_wait(barrier_at(DS_FULL), block & 1);
#pragma unroll
        for (int tile = DIVIDES_TILE ? DIVIDED_TILE : LAST_TILE; tile < TILES; ++tile) {
            mbarrier_wait(barrier_at(KEYS_FULL + tile), block & 1);
        }
        fence_proxy_async();
        issue_last_columns(dq, rest, flags & FIRST_BLOCK);
        if (thread_number() % WARPGROUP == 0 && *step_mode() == STEP_CLOSE) {
            keep_in_step(params, block + 1, CLOSE_STEP);
        }
        refill_tiles(block, flags & MORE_BLOCKS);
        flags = block_word(block)->flags; /* reloaded: registers are short */
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
