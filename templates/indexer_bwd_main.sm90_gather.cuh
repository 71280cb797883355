//@use ptx/cp_async.cuh
//@use ptx/cp_async_mbarrier.cuh
//@use ptx/mbarrier.cuh
//@use ptx/policy.cuh
//@use ptx/registers.cuh
//@use ptx/tensor.cuh
//@use ptx/thread.cuh
//@use indexer_bwd_main.params.h
//@use indexer_bwd_main.sm90_shared.cuh
/* The gather warpgroup of indexer_bwd_main.sm90.cu: copies Q of an item, and for each block of its
 * list the rows of k, their numbers and grads. */

enum {
    ROW_PIECES = DIM / 8,                /* of a key, 16 bytes each */
    ROW_STEP = WARPGROUP / ROW_PIECES,   /* keys copied at once */
    THREAD_ROWS = BLOCK_KEYS / ROW_STEP, /* rows per thread */
    LIST_PIECES = BLOCK_KEYS / 4         /* of a block's numbers, or of a member's grads */
};

/* Copies Q of an item once its buffer is free; by one thread. A missing member addresses heads past
 * the last one, which the copy engine fills with zeros. */
DEVICE void load_queries(const struct indexer_bwd_main_params *params, int group, u32 item) {
    const u32 barrier = barrier_at(QUERIES_FULL + item % 2);
    const u64 policy = policy_evict_first();
    wait_free(QUERIES_FREE, item);
    mbarrier_arrive_expect(barrier, QUERY_BYTES);
#pragma unroll 1
    for (int member = 0; member < GROUP_QUERIES; ++member) {
        const int query = params->members[(i64)group * GROUP_QUERIES + member];
        const u32 to = queries_at(item, 0) + (u32)(member * QUERY_ROWS * TILE_PITCH);
        for (int column = 0; column < COLUMN_TILES; ++column) {
            tensor_load_3d_hint(shared_address(to + (u32)(column * QUERY_TILE_BYTES)),
                                &params->q_map, barrier, column * TILE_COLUMNS,
                                query < 0 ? HEADS : 0, query < 0 ? 0 : query, policy);
        }
    }
}

/* Loads the key numbers of this thread's rows of a block, whose list starts at `keys`. */
DEVICE void fetch_keys(int *own, const int *keys) {
    const u32 thread = thread_number() % WARPGROUP;
#pragma unroll
    for (int i = 0; i < THREAD_ROWS; ++i) {
        own[i] = keys[thread / ROW_PIECES + (u32)(i * ROW_STEP)];
    }
}

/* Starts the copies of a block: rows of k (zeros for missing keys), numbers and grads. `keys` and
 * `grads` (of the first member) point to the block's entries. */
DEVICE void copy_block(const struct indexer_bwd_main_params *params, const int *own,
                       const int *keys, const float *grads, u32 block) {
    const u32 thread = thread_number() % WARPGROUP, piece = thread % ROW_PIECES;
    const u32 row = thread / ROW_PIECES;
    const u32 to = shared_address(keys_at(block % STAGES) + piece / 8 * TILE_BYTES +
                                  row * TILE_PITCH + (piece % 8 ^ row % 8) * 16);
#pragma unroll
    for (int i = 0; i < THREAD_ROWS; ++i) {
        const i64 from = own[i] < 0 ? 0 : (i64)own[i] * params->k_row_bytes + piece * 16;
        cp_async_16(to + (u32)(i * ROW_STEP * TILE_PITCH), (const char *)params->k + from,
                    own[i] < 0 ? 0 : 16);
    }
    if (thread < GROUP_QUERIES * LIST_PIECES) {
        cp_async_16(
            shared_address(grads_at(block % STAGES) + thread * 16),
            grads + thread / LIST_PIECES * (u32)params->key_stride + thread % LIST_PIECES * 4, 16);
    }
    if (thread < LIST_PIECES) {
        cp_async_16(
            shared_address(NUMBERS_OFFSET + block % NUMBER_STAGES * (BLOCK_KEYS * 4) + thread * 16),
            keys + thread * 4, 16);
    }
}

/* Of a tile, one bit per stage: the parity of KEYS_FREE that the gather waits for next, and whether
 * the tile uses the stage. */
struct stages {
    u32 phases, taken;
};

/* Waits until every tile that had a block in this stage is done with it. */
DEVICE void free_stage(struct stages *stages, u32 stage) {
#pragma unroll
    for (u32 tile = 0; tile < ROW_TILES; ++tile) {
        if (stages[tile].taken >> stage & 1) {
            wait_keys(KEYS_FREE, tile, stage, &stages[tile].phases);
        }
    }
}

/* Arrives at KEYS_FULL of the tiles that have the block, once this thread's copies have landed. */
DEVICE void announce_block(struct stages *stages, const struct run *runs, int block, u32 stage) {
#pragma unroll
    for (u32 tile = 0; tile < ROW_TILES; ++tile) {
        stages[tile].taken &= ~(1u << stage);
        if (has_block(runs[tile], block)) {
            stages[tile].taken |= 1u << stage;
            cp_async_arrive_noinc(barrier_at(KEYS_FULL + tile * STAGES + stage));
        }
    }
}

DEVICE void run_gather(const struct indexer_bwd_main_params *params) {
    registers_decrease(GATHER_REGISTERS);
    struct stages stages[ROW_TILES];
    u32 block = 0, item = 0;
#pragma unroll
    for (int tile = 0; tile < ROW_TILES; ++tile) {
        stages[tile].phases = stages[tile].taken = 0;
    }
#pragma unroll 1
    for (int group = first_group(params); group >= params->first_group; group -= (int)gridDim.x) {
        const int blocks = group_blocks(params, group);
        const int *const keys = params->keys + (i64)group * params->key_stride;
        const float *const grads = params->grads + (i64)group * params->key_stride * GROUP_QUERIES;
        struct run runs[ROW_TILES];
        int own[THREAD_ROWS];
#pragma unroll
        for (int tile = 0; tile < ROW_TILES; ++tile) {
            runs[tile] = tile_run(params, group, tile);
        }
        if (blocks > 0) {
            fetch_keys(own, keys);
        }
        if (thread_number() % WARPGROUP == 0) {
            load_queries(params, group, item);
        }
        __syncwarp((u32)ALL_LANES);
#pragma unroll 1
        for (int iteration = 0; iteration < blocks; ++iteration) {
            const int at = block_of_iteration(iteration, blocks) * BLOCK_KEYS;
            const u32 stage = block % STAGES;
            free_stage(stages, stage);
            copy_block(params, own, keys + at, grads + at, block);
            announce_block(stages, runs, at / BLOCK_KEYS, stage);
            if (iteration + 1 < blocks) {
                fetch_keys(own, keys + block_of_iteration(iteration + 1, blocks) * BLOCK_KEYS);
            }
            ++block;
        }
        ++item;
    }
}
