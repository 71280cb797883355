//@use common/base.cuh
//@use common/queries.cuh
//@use common/query_rows.cuh
//@use indexer_scores_fwd.heads.cuh
//@use ptx/cp_async.cuh
//@use ptx/cp_async_mbarrier.cuh
//@use ptx/memory.cuh
//@use ptx/mma.cuh
//@use ptx/mma_fp8.cuh
//@use ptx/shared.cuh
//@use indexer_scores_fwd.params.h
/*
 * The lightning indexer's logits at the selected slots, with mma.sync. Mathematics and shapes:
 * include/smelt/indexer_scores.h; with WINDOWS the lists are candidates of include/smelt/indexer_logits.h.
 * A slot is one of GRANULARITY rows of an entry (indexer_scores_fwd.heads.cuh).
 *
 * Grid: one CTA per query, or fewer that take every gridDim.x-th. All WARPS warps have one role: a
 * warp processes WARP_KEYS slots and every WARPS-th such piece after them. It gathers their keys
 * directly into registers, as operand A, and loops over the query's heads in shared memory, as
 * operand B, eight at a time:
 *
 *   D[16 slots, 8 heads] = K[16 slots, DIM] Q[8 heads, DIM]^T
 *
 * With BLOCK_MAX above WARP_KEYS a warp's pieces are the PIECES of a block, one after the other.
 *
 * A piece without a valid slot is only filled with -inf. The other warps hide the gather's latency.
 *
 * Shared memory (offset and size: the plan above):
 *   QUERY [STAGES][BLOCK_HEADS][ROW_BYTES], 16-byte chunks permuted by query_chunk. Rows past the
 *         last head repeat it and are discarded
 *
 * The next query is copied while one is computed. At the top of a query: wait for this thread's
 * copies of it, then a barrier: the query has landed, and no thread reads the other buffer.
 *
 * Knobs: WARPS, WARP_KEYS, blocks per multiprocessor:
 * src/codegen/families/indexer_scores_fwd_mma.c.
 */

enum {
    PIECES = BLOCK_MAX > WARP_KEYS ? BLOCK_MAX / WARP_KEYS : 1, /* of a block, the same warp's */
    KEY_TILES = WARP_KEYS / 16,                                 /* m16 tiles of D */
    KEY_WORDS = ROW_LOADS * 4,                                  /* of a lane and row */
    QUERY_BYTES = BLOCK_HEADS * ROW_BYTES
};

DEVICE u32 query_buffer(int buffer) {
    return shared_address((u32)(QUERY_OFFSET + buffer * QUERY_BYTES));
}

/* Starts the copy of a query's heads into a buffer. */
DEVICE void load_query(const struct indexer_scores_fwd_params *params, int query, int buffer) {
    const u32 base = query_buffer(buffer);
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < BLOCK_HEADS * ROW_CHUNKS; i += THREADS) {
        const int head = i / ROW_CHUNKS, chunk = i % ROW_CHUNKS;
        const char *const row =
            (const char *)params->q + ELEMENT_BYTES * (query * params->q_token_stride +
                                                       head_of(head) * params->q_head_stride);
        cp_async_16(base + query_chunk(head, chunk), row + chunk % SOURCE_CHUNKS * CHUNK_BYTES,
                    chunk < SOURCE_CHUNKS ? CHUNK_BYTES : 0);
    }
}

/* ---- keys ------------------------------------------------------------------------------------ */

/* A lane's part of a piece's keys: of rows g and g + 8 of each sixteen. */
struct key_piece {
    u32 words[KEY_TILES][2][KEY_WORDS];
    u32 valid[KEY_TILES];   /* a bit per slot, the same in every lane */
    float scale[KEY_TILES]; /* of the key of slot lane % 16, with FP8 */
};

/* Loads this lane's part of a row; zeros, without a read, for a masked slot. */
DEVICE void load_key(u32 *words, const struct indexer_scores_fwd_params *params, int number) {
    const char *const row = (const char *)params->k + (u64)(u32)number * params->k_row_bytes;
#pragma unroll
    for (int i = 0; i < ROW_LOADS; ++i) {
        u32 *const to = &words[i * 4];
        to[0] = to[1] = to[2] = to[3] = 0;
        if (number != MASKED && (SOURCE_CHUNKS == ROW_CHUNKS || threadIdx.x % 4 < SOURCE_CHUNKS)) {
            load_read_only_16(to, row + (i * 4 + (int)(threadIdx.x % 4)) * CHUNK_BYTES);
        }
    }
}

/* Loads the keys of the piece at slot `first`. Returns whether any slot is valid. */
DEVICE bool load_piece(struct key_piece *piece, const struct indexer_scores_fwd_params *params,
                       const struct slot_row *row, int first) {
    const int lane = (int)(threadIdx.x % 32);
    bool any = false;
#pragma unroll
    for (int tile = 0; tile < KEY_TILES; ++tile) {
        const int found = slot_value(row, first + tile * 16 + lane % 16);
        const bool valid = names_row(row, found);
        piece->valid[tile] = __ballot_sync((u32)ALL_LANES, valid) & 0xffffu;
        if (FP8) {
            piece->scale[tile] = valid ? params->k_scale[found] : 0.0f;
        }
        any |= piece->valid[tile] != 0;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int number =
                __shfl_sync((u32)ALL_LANES, valid ? found : MASKED, lane / 4 + half * 8);
            load_key(piece->words[tile][half], params, number);
        }
    }
    return any;
}

/* ---- products -------------------------------------------------------------------------------- */

/* D of eight heads. `address`: of this lane's chunk 0 in the row of head lane / 4 of these. */
DEVICE void multiply_eight(float (*d)[4], const struct key_piece *piece, u32 address) {
#pragma unroll
    for (int tile = 0; tile < KEY_TILES; ++tile) {
        d[tile][0] = d[tile][1] = d[tile][2] = d[tile][3] = 0.0f;
    }
#pragma unroll
    for (int i = 0; i < ROW_LOADS; ++i) {
        u32 heads[4];
        load_shared_16(heads, address ^ (u32)(i * 64));
#pragma unroll
        for (int step = 0; step < 2; ++step) {
#pragma unroll
            for (int tile = 0; tile < KEY_TILES; ++tile) {
                const u32 *const low = &piece->words[tile][0][i * 4 + 2 * step];
                const u32 *const high = &piece->words[tile][1][i * 4 + 2 * step];
                const u32 a[4] = {low[0], high[0], low[1], high[1]};
                if (FP8) {
                    mma_m16n8k32_e4m3(d[tile], a, &heads[2 * step]);
                } else {
                    mma_m16n8k16_bf16(d[tile], a, &heads[2 * step]);
                }
            }
        }
    }
}

/* Adds the heads of a group to the logits of a piece. `query_rows`: the address of the query's
 * buffer. */
DEVICE void add_heads(float (*sums)[2], const struct key_piece *piece,
                      const struct indexer_scores_fwd_params *params, int query, int group,
                      u32 query_rows) {
    const int lane = (int)(threadIdx.x % 32);
    u32 address =
        query_rows + query_chunk(lane / 4, lane % 4) + (u32)(group * SUM_EIGHTS * 8 * ROW_BYTES);
#pragma unroll 1
    for (int eight = 0; eight < SUM_EIGHTS; ++eight) {
        const int first = eight * 8, column = group * SUM_EIGHTS * 8 + first + thread_head();
        const float pair[2] = {weight_of(params, query, column),
                               weight_of(params, query, column + 1)};
        float d[KEY_TILES][4];
        multiply_eight(d, piece, address);
#pragma unroll
        for (int tile = 0; tile < KEY_TILES; ++tile) {
            add_eight(sums[tile], &d[tile][0], pair, first);
        }
        address += 8 * ROW_BYTES;
    }
}

/* ---- the query ------------------------------------------------------------------------------- */

/* A warp's next piece. */
DEVICE int next_piece(int first) {
    const int next = first + WARP_KEYS;
    return PIECES > 1 && next % BLOCK_MAX != 0 ? next : next + (WARPS - 1) * PIECES * WARP_KEYS;
}

/* Computes the warp's pieces of a query, whose heads are in a buffer. */
DEVICE void compute_query(const struct indexer_scores_fwd_params *params, int query, int buffer) {
    const struct slot_row row = open_row(params, query);
    const struct logit_row logits = open_logits(params, query);
    const u32 heads = query_buffer(buffer);
#pragma unroll 1
    for (int first = (int)threadIdx.x / 32 * PIECES * WARP_KEYS; first < params->work.width;
         first = next_piece(first)) {
        struct key_piece piece;
        const bool any = load_piece(&piece, params, &row, first);
#pragma unroll 1
        for (int group = 0; group < HEAD_GROUPS; ++group) {
            float sums[KEY_TILES][2];
#pragma unroll
            for (int tile = 0; tile < KEY_TILES; ++tile) {
                sums[tile][0] = sums[tile][1] = 0.0f;
            }
            if (any) {
                add_heads(sums, &piece, params, query, group, heads);
            }
#pragma unroll
            for (int tile = 0; tile < KEY_TILES; ++tile) {
                const int slot = written_slot();
                const float scale =
                    FP8 ? __shfl_sync((u32)ALL_LANES, piece.scale[tile], slot % 16) : 1.0f;
                write_logit(&logits, group * params->logits_group_stride, first + tile * 16 + slot,
                            params->work.width, sums[tile], piece.valid[tile] >> slot % 16 & 1,
                            scale);
            }
        }
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct indexer_scores_fwd_params params) {
    int buffer = 0;
    load_query(&params, (int)blockIdx.x, buffer);
#pragma unroll 1
    for (u32 query = blockIdx.x; query < (u32)params.work.tokens; query += gridDim.x) {
        cp_async_wait_all();
        __syncthreads();
        if (query + gridDim.x < (u32)params.work.tokens) {
            load_query(&params, (int)(query + gridDim.x), buffer ^ 1);
        }
        compute_query(&params, (int)query, buffer);
        buffer ^= 1;
    }
}
