//@use common/ring.cuh
//@use common/warpgroup_slots.cuh
//@use common/work.cuh
//@use ptx/cp_async.cuh
//@use ptx/cp_async_mbarrier.cuh
//@use ptx/mbarrier.cuh
//@use ptx/registers.cuh
//@use ptx/thread.cuh
//@use sparse_attn_fwd.params.h
//@use sparse_attn_fwd.sm90_shared.cuh
/* The gather's warpgroup of sparse_attn_fwd.sm90.cu: scans the slots of its items and copies Q and
 * the KV rows at those slots into the ring of stages. */

/* A row of an item's Q. Padded rows repeat the last head; their results are discarded. */
DEVICE const char *query_row(const struct sparse_attn_fwd_params *params, const struct work *work,
                             int row) {
    const int batch = work_batch(&params->work, work), token = work_token(&params->work, work);
    const int head = minimum(work->head_block * BLOCK_HEADS + row, LAST_HEAD);
    return (const char *)params->q +
           2 * (batch * params->q_batch_stride + token * params->q_token_stride +
                head * params->q_head_stride);
}

/* The address of a thread's first 16 bytes relative to a tile. Eight threads copy a row, 16 rows at
 * once. It is recomputed for each block because registers are short. */
DEVICE u32 thread_chunk(u32 thread) {
    return shared_address(thread / 8 * TILE_PITCH + ((thread % 8) ^ (thread / 8 % 8)) * 16);
}

/* Waits until a stage's lower half is free, and writes the word of the block that it will hold. */
DEVICE void claim_stage(const struct ring_place *stage, int word) {
    mbarrier_wait(barrier_at(EMPTY_LOW + stage->index), stage->parity ^ 1);
    if (threadIdx.x % WARPGROUP == 0) {
        *block_word(stage->index) = word;
        mbarrier_arrive(barrier_at(FULL + stage->index));
    }
}

/* Starts the copy of a row's latent columns, or writes zeros if it is not present. `from`: this
 * thread's first 16 bytes of the row. */
DEVICE void copy_row(u32 to, const char *from, bool present) {
#pragma unroll
    for (int k = 0; k < LATENT_TILES; ++k) {
        cp_async_16(to + (u32)(k * TILE_BYTES), from + k * TILE_PITCH, present ? 16 : 0);
    }
}

/*
 * Copies a key block's latent columns into its stage, each half as it becomes free, then its rope
 * columns into the rope tile. Rows past the word's count become zeros. `source`: this thread's 16
 * bytes of KV row 0; `taken`: the block's first entry in the ring of slots.
 */
DEVICE void fill_keys(const struct sparse_attn_fwd_params *params, const char *source,
                      const struct ring_place *stage, int *rope_parity, int taken, int word) {
    const int *const ring = (const int *)(arena + RING_OFFSET);
    const u32 thread = thread_number() % WARPGROUP, chunk = thread_chunk(thread);
    const u32 latent = chunk + latent_stage(stage->index);
    const int first = (int)(thread / 8), count = word & COUNT_MASK;
    claim_stage(stage, word);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (i == 2) {
            mbarrier_wait(barrier_at(EMPTY_HIGH + stage->index), stage->parity ^ 1);
        }
        const bool present = first + i * 16 < count;
        const u32 row = present ? (u32)ring[(taken + first + i * 16) & RING_MASK] : 0;
        copy_row(latent + (u32)(i * 16 * TILE_PITCH), source + (u64)row * params->kv_row_bytes,
                 present);
    }
    cp_async_arrive_noinc(barrier_at(FULL + stage->index));
    if (ROPE_STEPS == 0) {
        return;
    }
    mbarrier_wait(barrier_at(ROPE_FREE), *rope_parity ^ 1);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const bool present = first + i * 16 < count;
        const u32 row = present ? (u32)ring[(taken + first + i * 16) & RING_MASK] : 0;
        cp_async_16(chunk + (u32)(ROPE_OFFSET + i * 16 * TILE_PITCH),
                    source + (u64)row * params->kv_row_bytes + DV * 2, present ? 16 : 0);
    }
    cp_async_arrive_noinc(barrier_at(ROPE_FULL));
    *rope_parity ^= 1;
}

/* Copies an item's Q into a stage, heads as the rows. */
DEVICE void fill_query(const struct sparse_attn_fwd_params *params, const struct work *work,
                       struct ring_place *stage) {
    const u32 thread = thread_number() % WARPGROUP, chunk = thread_chunk(thread);
    const u32 latent = chunk + latent_stage(stage->index);
    const int first = (int)(thread / 8);
    claim_stage(stage, 0);
    mbarrier_wait(barrier_at(EMPTY_HIGH + stage->index), stage->parity ^ 1);
#pragma unroll 1
    for (int i = 0; i < 4; ++i) {
        copy_row(latent + (u32)(i * 16 * TILE_PITCH),
                 query_row(params, work, first + i * 16) + thread % 8 * 16, true);
    }
    cp_async_arrive_noinc(barrier_at(FULL + stage->index));
    ring_advance(stage, STAGES);
}

/* Copies Q's rope columns into the rope tile. */
DEVICE void fill_query_rope(const struct sparse_attn_fwd_params *params, const struct work *work,
                            int *rope_parity) {
    const u32 thread = thread_number() % WARPGROUP, chunk = thread_chunk(thread);
    const int first = (int)(thread / 8);
    mbarrier_wait(barrier_at(ROPE_FREE), *rope_parity ^ 1);
#pragma unroll 1
    for (int i = 0; i < 4; ++i) {
        cp_async_16(chunk + (u32)(ROPE_OFFSET + i * 16 * TILE_PITCH),
                    query_row(params, work, first + i * 16) + DV * 2 + thread % 8 * 16, 16);
    }
    cp_async_arrive_noinc(barrier_at(ROPE_FULL));
    *rope_parity ^= 1;
}

/* The gather's warpgroup. It copies a block once it knows whether the block is the query's last,
 * and scans the first block's slots before it waits for the rope tile (or for Q's stage, without
 * rope columns). A query without valid slots has one empty block. */
DEVICE void run_gather(const struct sparse_attn_fwd_params *params) {
    registers_decrease(GATHER_REGISTERS);
    struct ring_place stage = {0, 0};
    int rope_parity = 0;
    struct warpgroup_scan scan;
    struct work work = first_work(&params->work);
    warpgroup_scan_open(&scan, &params->work, &work);
    while (work.query >= 0) {
        const char *const source =
            (const char *)params->kv +
            2 * (work_batch(&params->work, &work) * params->kv_batch_stride) +
            thread_number() % 8 * 16;
        int entries = 0, taken = 0, position = FIRST_BLOCK;
        bool ended = false;
        if (ROPE_STEPS > 0) {
            fill_query(params, &work, &stage);
        }
        while (!ended) {
            do {
                entries = warpgroup_scan_more(&scan, params->work.rows, entries);
                ended = warpgroup_scan_ended(&scan, entries);
            } while (!ended && entries - taken <= BLOCK_KEYS);
            if (!(position & FIRST_BLOCK)) {
                /* Q has been copied. */
            } else if (ROPE_STEPS > 0) {
                fill_query_rope(params, &work, &rope_parity);
            } else {
                fill_query(params, &work, &stage);
            }
            if (ended) {
                work = next_work(&params->work, &work);
                warpgroup_scan_open(&scan, &params->work, &work);
            }
            while (entries - taken > BLOCK_KEYS || (ended && !(position & LAST_BLOCK))) {
                const int count = minimum(entries - taken, BLOCK_KEYS);
                position |= ended && entries - taken <= BLOCK_KEYS ? LAST_BLOCK : 0;
                fill_keys(params, source, &stage, &rope_parity, taken, count | position);
                ring_advance(&stage, STAGES);
                taken += count;
                position &= ~FIRST_BLOCK;
            }
        }
    }
    cp_async_wait_all();
}
