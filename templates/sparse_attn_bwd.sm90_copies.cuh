//@use common/base.cuh
//@use ptx/cp_async.cuh
//@use ptx/cp_async_mbarrier.cuh
//@use ptx/mbarrier.cuh
//@use ptx/policy.cuh
//@use ptx/tensor.cuh
//@use ptx/thread.cuh
//@use sparse_attn_bwd.params.h
//@use sparse_attn_bwd.sm90_shared.cuh
/* Copies into shared memory, of sparse_attn_bwd.sm90.cu: K tile by tile with cp.async, Q and dO
 * with tensor copies (TMA). */

enum { ROWS_OF_THREAD = 4 }; /* of a K tile, 16 bytes each: 128 threads copy it */

/* Addresses of this thread's rows of a block: eight threads copy a row of a tile. */
DEVICE void take_addresses(u64 *from, u32 block) {
    const u32 thread = thread_number() % WARPGROUP;
#pragma unroll
    for (int i = 0; i < ROWS_OF_THREAD; ++i) {
        from[i] = block_addresses(block)[thread / 8 + (u32)(16 * i)];
    }
}

/* Starts the copy of a K tile; rows past the list's end become zeros. */
DEVICE void copy_tile(const u64 *from, int tile) {
    const u32 thread = thread_number() % WARPGROUP;
    const u32 to = shared_address(key_tile(tile)) + thread / 8 * TILE_PITCH +
                   ((thread % 8) ^ (thread / 8 % 8)) * 16;
#pragma unroll
    for (int i = 0; i < ROWS_OF_THREAD; ++i) {
        cp_async_16(to + (u32)(i * 16 * TILE_PITCH),
                    (const void *)(from[i] + (u64)(tile * TILE_PITCH) + thread % 8 * 16),
                    from[i] ? 16 : 0);
    }
    cp_async_arrive_noinc(barrier_at(KEYS_FULL + tile));
}

/* Starts the copies of two K tiles of a block. */
DEVICE void copy_tiles(int first, int second, u32 block) {
    u64 from[ROWS_OF_THREAD];
    take_addresses(from, block);
    copy_tile(from, first);
    copy_tile(from, second);
}

/* Starts the copies of all tiles of the CTA's first key block. Only the gather calls it. */
DEVICE void copy_first_block(void) {
    u64 from[ROWS_OF_THREAD];
    take_addresses(from, 0);
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
        copy_tile(from, tile);
    }
}

/* Starts the tensor copies of a member's rows of one part of Q and dO. For a missing member the
 * heads are past the last one, where tensor copies read zeros. */
DEVICE void load_member(const struct sparse_attn_bwd_params *params, int item, int member,
                        int part) {
    const int query = params->members[(i64)item_group(item) * GROUP_QUERIES + member];
    const int head = query < 0 ? HEADS : first_head(item);
    const int batch = query < 0 ? 0 : query / params->tokens;
    const int token = query < 0 ? 0 : query % params->tokens;
    const u32 barrier = barrier_at(QUERY_FULL + part);
    const u64 policy = policy_evict_first();
    for (int tile = part * PART_TILES; tile < minimum((part + 1) * PART_TILES, TILES); ++tile) {
        const u32 at = (u32)(tile * TILE_BYTES + member * MEMBER_ROWS * TILE_PITCH);
        tensor_load_4d_hint(shared_address(QUERY_OFFSET) + at, &params->q_map, barrier,
                            tile * TILE_COLUMNS, head, token, batch, policy);
        if (tile < VALUE_TILES) {
            tensor_load_4d_hint(shared_address(GRAD_OUT_OFFSET) + at, &params->grad_out_map,
                                barrier, tile * TILE_COLUMNS, head, token, batch, policy);
        }
    }
}

/* Loads Q and dO of the item that begins with a block, each part as soon as the sums release it.
 * One thread of the gather starts the copies. */
DEVICE void load_queries(const struct sparse_attn_bwd_params *params, u32 block) {
    if (thread_number() % WARPGROUP == 0) {
        const struct block_word word = *block_word(block);
#pragma unroll 1
        for (int part = 0; part < PARTS; ++part) {
            const int tiles = minimum(PART_TILES, TILES - part * PART_TILES) +
                              minimum(PART_TILES, VALUE_TILES - part * PART_TILES);
            mbarrier_wait(barrier_at(QUERY_FREE + part), word.flags & ODD_ITEM ? 0 : 1);
            mbarrier_arrive_expect(barrier_at(QUERY_FULL + part), (u32)(tiles * TILE_BYTES));
#pragma unroll 1
            for (int member = 0; member < GROUP_QUERIES; ++member) {
                load_member(params, word.item, member, part);
            }
        }
    }
    __syncwarp((u32)ALL_LANES);
}
