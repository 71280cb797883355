//@use common/base.cuh
//@use common/descriptor.cuh
//@use common/fragment_tile.cuh
//@use common/grain.cuh
//@use common/quad.cuh
//@use common/row_sums.cuh
//@use common/warp_arrival.cuh
//@use ptx/cp_async.cuh
//@use ptx/cp_async_mbarrier.cuh
//@use ptx/math.cuh
//@use ptx/mbarrier.cuh
//@use ptx/memory.cuh
//@use ptx/policy.cuh
//@use ptx/proxy.cuh
//@use ptx/registers.cuh
//@use ptx/tensor.cuh
//@use ptx/thread.cuh
//@use ptx/wgmma.cuh
//@use ptx/wgmma_rs.cuh n = DIM, tb = 1
//@use ptx/wgmma_rs.cuh n = 32, tb = 1
//@use ptx/wgmma_ss.cuh n = 64, ta = 0, tb = 0
//@use indexer_bwd_main.params.h
/*
 * The indexer's backward pass with wgmma: dq, dweights, and the sums of dk.
 * Mathematics and shapes: include/smelt/indexer_bwd.h; what groups and lists are:
 * indexer_bwd_main.params.h.
 *
 * An item is a group: QUERY_ROWS rows (heads, padded) of each of its GROUP_QUERIES queries, one
 * after the other, in ROW_TILES tiles of 64 rows. Its list of keys is taken in blocks of 64. Of
 * each block and tile:
 *
 *   X = Q K^T                         [rows, keys]
 *   dX = grad w where X > 0, else 0
 *   dweights += sum over keys of grad max(X, 0)
 *   dQ += dX K                        [rows, DIM], in registers for all of the item
 *   dK  = dX^T Q                      [keys, DIM], of all tiles together: added to the rows in
 *                                     global memory, with DETERMINISTIC rounded before, so that
 *                                     additions are exact (common/grain.cuh)
 *
 * Neighbouring queries share most keys: one addition of a row of dk serves all of a group. A key
 * that a query lacks has a grad of 0 there.
 *
 * With GROUP_TILES 2 a list is in sections: keys of the first tile's queries alone, of both tiles',
 * of the second's alone. So each tile has a run of the list's blocks, and does nothing for others.
 * Blocks are taken from both ends by turns, so that neither tile waits while the other one has its
 * own section.
 *
 * Grid: one block a multiprocessor, each taking every gridDim.x-th group, from the last ones on.
 * Warpgroups:
 *
 *   scores[t]  of tile t: X, dX, dweights, dQ. X of the tile's next block and dQ of this one are in
 * the tensor cores during the arithmetic of dX sums       dK in chunks of 32 columns: dX^T as A
 * from registers, two accumulators in turn; added to global memory from registers gather     copies
 * keys, their numbers and grads, STAGES blocks ahead; Q by tensor copies, an item ahead
 *
 * What binds: the additions' way out of the multiprocessor (common/row_sums.cuh); all else is to
 * fit beside them.
 *
 * Rows that do not exist (heads past the last, members that are not there) have zeros for Q, so
 * that X and dX are 0. Keys behind a list's end are zeros in K, so their X is 0 and dX, too; zeros
 * are added for them to the block's first key.
 *
 * Shared memory (offsets and sizes: the plan above). A tile is 64 rows of 64 columns, 128-byte
 * swizzled:
 *   QUERIES  [2][COLUMN_TILES][ROW_TILES] tiles, rows by columns: an item's, by turns
 *   KEYS     [STAGES][COLUMN_TILES] tiles, keys by columns
 *   SLOPES   [ROW_TILES][2] tiles, dX, rows by keys: of a tile's blocks, by turns
 *   GRADS    [STAGES][GROUP_QUERIES][64] fp32
 *   NUMBERS  [NUMBER_STAGES][64] the keys' numbers, -1: none
 *
 * Barriers (parities count uses; of KEYS those of a stage by a tile, in bits):
 *   barrier            count  who arrives                               who waits
 *   QUERIES_FULL[i]      1    gather, and the copies' bytes             scores, sums
 *   QUERIES_FREE[i]   4 each  scores, sums: done with the item          gather
 *   KEYS_FULL[t][s]    128    gather: every thread's copies have        scores[t]
 *                             landed, of a block that the tile has
 *   KEYS_FREE[t][s]      4    scores[t]: done with K and grads          gather
 *   SLOPES_FULL[t][i]    4    scores[t]: dX written                     sums
 *   SLOPES_FREE[t][i]    4    sums: fragments loaded                    scores[t]
 * (Counts are of warps where warps arrive: common/warp_arrival.cuh.)
 * NUMBERS are read by the sums behind SLOPES_FULL, and written again NUMBER_STAGES blocks later: by
 * then the gather has waited for a block STAGES before, and of those before that one no more than
 * two a tile, and the one at work, are ahead of the sums.
 *
 * Knobs: GROUP_QUERIES; legal values and the rule that picks it:
 * src/codegen/families/indexer_bwd_main_sm90.c.
 */

enum {
    WARPGROUP = 128, /* threads */
    ALL_LANES = -1,
    SUMS_WARPGROUP = ROW_TILES, /* the gather is the one behind it */

    TILE_ROWS = 64,
    TILE_COLUMNS = 64,
    TILE_PITCH = 2 * TILE_COLUMNS, /* bytes of a row */
    TILE_BYTES = TILE_ROWS * TILE_PITCH,
    ATOM_BYTES = 8 * TILE_PITCH,     /* eight rows of a tile */
    STEP_BYTES = 32,                 /* 16 columns of a row: a k-step along columns */
    ROW_STEP_BYTES = 2 * ATOM_BYTES, /* 16 rows of a tile: a k-step along rows */
    COLUMN_TILES = DIM / TILE_COLUMNS,
    QUERY_TILE_BYTES = ROW_TILES * TILE_BYTES, /* of 64 columns of all rows of an item */
    QUERY_BYTES = COLUMN_TILES * QUERY_TILE_BYTES,
    KEY_BYTES = COLUMN_TILES * TILE_BYTES, /* of a block */

    X_VALUES = 2 * FRAGMENT_WORDS, /* of a thread */
    DQ_VALUES = DIM / 2,
    CHUNKS = DIM / SUM_COLUMNS, /* of dK */
    SUM_BYTES = 4,              /* of a value of it in global memory */

    ROW_PIECES = DIM / 8,                        /* of a key, 16 bytes each */
    ROW_STEP = WARPGROUP / ROW_PIECES,           /* keys copied at a time */
    THREAD_ROWS = BLOCK_KEYS / ROW_STEP,         /* that a thread copies pieces of */
    GRAD_BYTES = GROUP_QUERIES * BLOCK_KEYS * 4, /* of a block */
    LIST_PIECES = BLOCK_KEYS / 4                 /* of a block's numbers, or of a member's grads */
};

/* ---- barriers and tiles ---------------------------------------------------------------------- */

/* Places in BARRIERS; those of a tile follow each other. */
enum {
    QUERIES_FULL = 0,
    QUERIES_FREE = QUERIES_FULL + 2,
    SLOPES_FULL = QUERIES_FREE + 2,
    SLOPES_FREE = SLOPES_FULL + 2 * ROW_TILES,
    KEYS_FULL = SLOPES_FREE + 2 * ROW_TILES,
    KEYS_FREE = KEYS_FULL + STAGES * ROW_TILES
};

DEVICE u32 barrier_at(u32 number) {
    return shared_address((u32)BARRIERS_OFFSET + number * 8);
}

DEVICE void initialise_barriers(void) {
    if (threadIdx.x == 0) {
        for (u32 i = 0; i < 2; ++i) {
            mbarrier_init(barrier_at(QUERIES_FULL + i), 1);
            mbarrier_init(barrier_at(QUERIES_FREE + i), (ROW_TILES + 1) * 4 * WARP_ARRIVALS);
        }
        for (u32 i = 0; i < 2 * ROW_TILES; ++i) {
            mbarrier_init(barrier_at(SLOPES_FULL + i), 4 * WARP_ARRIVALS);
            mbarrier_init(barrier_at(SLOPES_FREE + i), 4 * WARP_ARRIVALS);
        }
        for (u32 i = 0; i < STAGES * ROW_TILES; ++i) {
            mbarrier_init(barrier_at(KEYS_FULL + i), WARPGROUP);
            mbarrier_init(barrier_at(KEYS_FREE + i), 4 * WARP_ARRIVALS);
        }
        mbarrier_fence_init();
    }
    __syncthreads();
}

/* Waits for the end of the phase in which one of two places is filled for the use of that number,
 * of both together, or in which what was there before is given back. */
DEVICE void wait_full(u32 barriers, u32 use) {
    mbarrier_wait(barrier_at(barriers + use % 2), (int)(use / 2 & 1));
}

DEVICE void wait_free(u32 barriers, u32 use) {
    mbarrier_wait(barrier_at(barriers + use % 2), (int)(use / 2 & 1 ^ 1));
}

/* The same of a stage of keys, of a tile whose phases are a bit a stage. */
DEVICE void wait_keys(u32 barriers, u32 tile, u32 stage, u32 *phases) {
    mbarrier_wait(barrier_at(barriers + tile * STAGES + stage), (int)(*phases >> stage & 1));
    *phases ^= 1u << stage;
}

/* Tiles from an offset on as A or B, columns the depth; or as B, rows the depth. */
DEVICE u64 tile_descriptor(u32 offset) {
    return shared_descriptor(shared_address(offset), 16, ATOM_BYTES, 128);
}

DEVICE u64 columns_descriptor(u32 offset) {
    return shared_descriptor(shared_address(offset), TILE_BYTES, ATOM_BYTES, 128);
}

DEVICE u32 queries_at(u32 item, u32 tile) {
    return QUERIES_OFFSET + item % 2 * QUERY_BYTES + tile * TILE_BYTES;
}

DEVICE u32 keys_at(u32 stage) {
    return KEYS_OFFSET + stage * KEY_BYTES;
}

/* Of the use of that number by a tile. */
DEVICE int slopes_at(u32 tile, u32 use) {
    return (int)(SLOPES_OFFSET + (tile * 2 + use % 2) * TILE_BYTES);
}

/* ---- items ----------------------------------------------------------------------------------- */

/* The thread block's first group; the next one is gridDim.x before it. */
DEVICE int first_group(const struct indexer_bwd_main_params *params) {
    return params->first_group + params->groups - 1 - (int)blockIdx.x;
}

/* Key blocks of a group. */
DEVICE int group_blocks(const struct indexer_bwd_main_params *params, int group) {
    return (params->counts[group] + BLOCK_KEYS - 1) / BLOCK_KEYS;
}

/* Where in the list the block is whose turn it is. */
DEVICE int block_in_turn(int turn, int blocks) {
    return GROUP_TILES == 1 ? turn : turn % 2 ? blocks - 1 - turn / 2 : turn / 2;
}

/* Which blocks of its group's list a tile has. */
struct run {
    int begin, end;
};

DEVICE struct run tile_run(const struct indexer_bwd_main_params *params, int group, int tile) {
    struct run run = {0, group_blocks(params, group)};
    if (GROUP_TILES > 1 && tile == 0) {
        run.end = (params->runs[2 * (i64)group + 1] + BLOCK_KEYS - 1) / BLOCK_KEYS;
    } else if (GROUP_TILES > 1) {
        run.begin = params->runs[2 * (i64)group] / BLOCK_KEYS;
    }
    return run;
}

DEVICE bool has_block(struct run run, int block) {
    return block >= run.begin && block < run.end;
}

/* The first turn from `turn` on of a block that a tile has; `blocks` if there is none. */
DEVICE int next_turn(struct run run, int turn, int blocks) {
    while (turn < blocks && !has_block(run, block_in_turn(turn, blocks))) {
        ++turn;
    }
    return turn;
}

/* The query of a row of a group, or -1. */
DEVICE int row_query(const struct indexer_bwd_main_params *params, int group, int row) {
    return params->members[(i64)group * GROUP_QUERIES + row / QUERY_ROWS];
}

/* ---- scores ---------------------------------------------------------------------------------- */

/* The first of this thread's two rows of an item, in the fragments of tile `tile`; the other is 8
 * further. */
DEVICE int fragment_row(int tile) {
    const int thread = (int)(threadIdx.x % WARPGROUP);
    return tile * TILE_ROWS + thread / 32 * 16 + thread % 32 / 4;
}

/* Of this thread's two rows. */
struct rows {
    float weight[2];
    float dweights[2];
};

DEVICE void open_rows(struct rows *rows, const struct indexer_bwd_main_params *params, int group,
                      int tile) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int row = fragment_row(tile) + 8 * r, head = row % QUERY_ROWS;
        const int query = row_query(params, group, row);
        const bool there = query >= 0 && head < HEADS;
        rows->weight[r] =
            there ? params->weights[query * params->weights_token_stride + head] : 0.0f;
        rows->dweights[r] = 0.0f;
    }
}

/* Issues X = Q K^T. */
DEVICE void issue_scores(float *x, u64 queries, u32 stage) {
    const u64 keys = tile_descriptor(keys_at(stage));
    fence_proxy_async();
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < DIM / 16; ++k) {
        const u32 step = (u32)(k % 4 * STEP_BYTES);
        const u64 a = descriptor_advance(queries, (u32)(k / 4 * QUERY_TILE_BYTES) + step);
        wgmma_ss_n64_t00(x, a, descriptor_advance(keys, (u32)(k / 4 * TILE_BYTES) + step), k > 0);
    }
    wgmma_commit();
}

/* X -> dX in place, and the block's part of dweights. */
DEVICE void slopes(float *x, struct rows *rows, u32 stage, int tile) {
    const float2 *const grads = (const float2 *)(arena + GRADS_OFFSET + stage * GRAD_BYTES) +
                                fragment_row(tile) / QUERY_ROWS * (BLOCK_KEYS / 2) +
                                threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < X_VALUES; i += 2) {
        const int r = i / 2 % 2;
        const float2 grad = grads[i / 4 * 4 + (QUERY_ROWS == 8 ? r * (BLOCK_KEYS / 2) : 0)];
        rows->dweights[r] = fmaf(grad.x, fmaxf(x[i], 0.0f), rows->dweights[r]);
        rows->dweights[r] = fmaf(grad.y, fmaxf(x[i + 1], 0.0f), rows->dweights[r]);
        x[i] = x[i] > 0.0f ? grad.x * rows->weight[r] : 0.0f;
        x[i + 1] = x[i + 1] > 0.0f ? grad.y * rows->weight[r] : 0.0f;
    }
}

/* Issues dQ += dX K. */
DEVICE void issue_slopes(float *dq, const u32 *dx, u32 stage) {
    const u64 keys = columns_descriptor(keys_at(stage));
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < BLOCK_KEYS / 16; ++k) {
        const u64 b = descriptor_advance(keys, (u32)(k * ROW_STEP_BYTES));
        // clang-format off
        //@for n in DIM..DIM + 1
        wgmma_rs_n${n}_t01(dq, &dx[4 * k], b, 1);
        //@end
        // clang-format on
    }
    wgmma_commit();
}

/* How far a tile's scores have come, over all items. */
struct progress {
    u32 block;  /* blocks of all items before this one */
    u32 phases; /* of KEYS_FULL, a bit a stage */
    u32 use;    /* blocks that the tile had */
};

/* dX to shared memory, for the sums, and as A's fragments. */
DEVICE void hand_over_slopes(u32 *dx, const float *x, u32 use, u32 tile) {
    pack_fragments(dx, x);
    wait_free(SLOPES_FREE + 2 * tile, use);
    store_fragments(slopes_at(tile, use), dx);
    arrive_warp(barrier_at(SLOPES_FULL + 2 * tile + use % 2), 1);
}

/* All blocks of an item that the tile has. */
DEVICE void score_blocks(float *dq, struct rows *rows, struct progress *progress, struct run run,
                         int blocks, u64 queries, int tile) {
    float x[X_VALUES];
    u32 dx[FRAGMENT_WORDS];
    int turn = next_turn(run, 0, blocks);
    if (turn == blocks) {
        return;
    }
    u32 stage = (progress->block + (u32)turn) % STAGES;
    wait_keys(KEYS_FULL, (u32)tile, stage, &progress->phases);
    issue_scores(x, queries, stage);
    wgmma_wait_0();
    slopes(x, rows, stage, tile);
    hand_over_slopes(dx, x, progress->use++, (u32)tile);
    turn = next_turn(run, turn + 1, blocks);
#pragma unroll 1
    while (turn < blocks) {
        const u32 before = stage;
        stage = (progress->block + (u32)turn) % STAGES;
        wait_keys(KEYS_FULL, (u32)tile, stage, &progress->phases);
        issue_scores(x, queries, stage);
        issue_slopes(dq, dx, before);
        wgmma_wait_1();
        slopes(x, rows, stage, tile);
        wgmma_wait_0();
        arrive_warp(barrier_at(KEYS_FREE + (u32)tile * STAGES + before), 1);
        hand_over_slopes(dx, x, progress->use++, (u32)tile);
        turn = next_turn(run, turn + 1, blocks);
    }
    issue_slopes(dq, dx, stage);
    wgmma_wait_0();
    arrive_warp(barrier_at(KEYS_FREE + (u32)tile * STAGES + stage), 1);
}

/* dQ of a row to global memory: 16 bytes of every 64 are this thread's. */
DEVICE void store_row(char *to, const float *dq, int r) {
#pragma unroll
    for (int i = 0; i < DQ_VALUES / 16; ++i) {
        u32 x[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const float *const pair = &dq[i * 16 + k * 4 + 2 * r];
            x[k] = pack_bf16x2(pair[0], pair[1]);
        }
        transpose_quad(x);
        if (to) {
            store_streaming_16(to + i * 64, x);
        }
    }
}

/* dq and dweights of an item's tile. */
DEVICE void store_rows(const struct indexer_bwd_main_params *params, const float *dq,
                       const struct rows *rows, int group, int tile) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int row = fragment_row(tile) + 8 * r, head = row % QUERY_ROWS;
        const i64 query = row_query(params, group, row);
        const bool there = query >= 0 && head < HEADS;
        const i64 at = query * params->dq_token_stride + head * params->dq_head_stride;
        store_row(there ? (char *)params->dq + 2 * at + threadIdx.x % 4 * 16 : 0, dq, r);
        float dweights = rows->dweights[r];
        dweights += __shfl_xor_sync((u32)ALL_LANES, dweights, 1);
        dweights += __shfl_xor_sync((u32)ALL_LANES, dweights, 2);
        if (there && threadIdx.x % 4 == 0) {
            params->dweights[query * params->dweights_token_stride + head] = dweights;
        }
    }
}

DEVICE void run_scores(const struct indexer_bwd_main_params *params, int tile) {
    registers_increase(SCORES_REGISTERS);
    struct progress progress = {0, 0, 0};
    u32 item = 0;
#pragma unroll 1
    for (int group = first_group(params); group >= params->first_group; group -= (int)gridDim.x) {
        const int blocks = group_blocks(params, group);
        float dq[DQ_VALUES];
        struct rows rows;
        open_rows(&rows, params, group, tile);
#pragma unroll
        for (int i = 0; i < DQ_VALUES; ++i) {
            dq[i] = 0.0f;
        }
        wait_full(QUERIES_FULL, item);
        score_blocks(dq, &rows, &progress, tile_run(params, group, tile), blocks,
                     tile_descriptor(queries_at(item, (u32)tile)), tile);
        arrive_warp(barrier_at(QUERIES_FREE + item % 2), 1);
        store_rows(params, dq, &rows, group, tile);
        progress.block += (u32)blocks;
        ++item;
    }
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* Issues a chunk of dK = dX^T Q, of some tiles. */
DEVICE void issue_chunk(float *sums, const u32 *dx, u64 queries, int tiles, int chunk) {
    const u32 at = (u32)(chunk / 2 * QUERY_TILE_BYTES + chunk % 2 * SUM_COLUMNS * 2);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < tiles * 4; ++k) {
        wgmma_rs_n32_t01(sums, &dx[4 * k],
                         descriptor_advance(queries, at + (u32)(k * ROW_STEP_BYTES)), k > 0);
    }
    wgmma_commit();
}

/* Where a block's dK goes: this thread's four rows of dk, and their grains. */
struct sum_rows {
    char *at[4];
    float grains[4]; /* with DETERMINISTIC */
};

/* Behind a list's end dK is 0: a zero may as well be added to the block's first key. (A branch at
 * each addition would cost more.) */
DEVICE void take_rows(struct sum_rows *rows, const struct indexer_bwd_main_params *params,
                      u32 block) {
    const u32 thread = threadIdx.x % WARPGROUP;
    const int first = (int)(thread / 32 * 16 + thread / 4 % 4);
    const int *const numbers =
        (const int *)(arena + NUMBERS_OFFSET) + block % NUMBER_STAGES * BLOCK_KEYS;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int key = numbers[first + 4 * i], row = key < 0 ? numbers[0] : key;
        rows->at[i] = (char *)params->dk + ((i64)row * DIM + first_sum(threadIdx.x)) * SUM_BYTES;
        rows->grains[i] = DETERMINISTIC ? params->grains[row] : 0.0f;
    }
}

/* Adds what exchange_rows gave to the rows of global memory. */
DEVICE void send_rows(const struct sum_rows *rows, float *values, int chunk, int half) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int row = 2 * half + i;
#pragma unroll
        for (int k = 4 * i; k < 4 * i + 4 && DETERMINISTIC; ++k) {
            values[k] = round_to_grain(values[k], rows->grains[row]);
        }
        send_sums(rows->at[row] + chunk * SUM_COLUMNS * SUM_BYTES, &values[4 * i], false);
    }
}

/* Of a block, all chunks of `tiles` tiles from `tile` on, each sent while the next one is computed;
 * uses: of each tile, how many blocks it had. Half of the last one is `held`, to be sent when the
 * next block's first is in the tensor cores; until then `rows` are the block's before. */
DEVICE void sum_tiles(struct sum_rows *rows, float *held,
                      const struct indexer_bwd_main_params *params, u64 queries, u32 *uses,
                      int tile, int tiles, u32 block) {
    float sums[2][SUM_VALUES], values[SENT_VALUES];
    u32 dx[ROW_TILES * FRAGMENT_WORDS];
#pragma unroll
    for (int i = 0; i < tiles; ++i) {
        const u32 own = (u32)(tile + i), use = uses[own]++;
        wait_full(SLOPES_FULL + 2 * own, use);
        load_fragments_transposed(&dx[i * FRAGMENT_WORDS], slopes_at(own, use));
        arrive_warp(barrier_at(SLOPES_FREE + 2 * own + use % 2), 1);
    }
    queries = descriptor_advance(queries, (u32)(tile * TILE_BYTES));
    issue_chunk(sums[0], dx, queries, tiles, 0);
    if (block > 0) {
        send_rows(rows, held, CHUNKS - 1, 1);
    }
    take_rows(rows, params, block);
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS - 1; ++chunk) {
        issue_chunk(sums[(chunk + 1) % 2], dx, queries, tiles, chunk + 1);
        wgmma_wait_1();
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            exchange_rows(values, sums[chunk % 2], half);
            send_rows(rows, values, chunk, half);
        }
        __syncwarp((u32)ALL_LANES); /* ptxas would put them behind the next wait */
    }
    wgmma_wait_0();
    exchange_rows(values, sums[1], 0);
    send_rows(rows, values, CHUNKS - 1, 0);
    exchange_rows(held, sums[1], 1);
}

DEVICE void run_sums(const struct indexer_bwd_main_params *params) {
    registers_increase(SUMS_REGISTERS);
    float held[SENT_VALUES] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
    struct sum_rows rows = {{0, 0, 0, 0}, {0.0f, 0.0f, 0.0f, 0.0f}};
    u32 uses[ROW_TILES] = {0};
    u32 block = 0, item = 0;
#pragma unroll 1
    for (int group = first_group(params); group >= params->first_group; group -= (int)gridDim.x) {
        const int blocks = group_blocks(params, group);
        const u64 queries = columns_descriptor(queries_at(item, 0));
        const struct run lower = tile_run(params, group, 0);
        const struct run upper = tile_run(params, group, ROW_TILES - 1);
        wait_full(QUERIES_FULL, item);
#pragma unroll 1
        for (int turn = 0; turn < blocks; ++turn) {
            const int own = block_in_turn(turn, blocks);
            if (!has_block(upper, own)) {
                sum_tiles(&rows, held, params, queries, uses, 0, 1, block);
            } else if (!has_block(lower, own)) {
                sum_tiles(&rows, held, params, queries, uses, ROW_TILES - 1, 1, block);
            } else {
                sum_tiles(&rows, held, params, queries, uses, 0, ROW_TILES, block);
            }
            ++block;
        }
        arrive_warp(barrier_at(QUERIES_FREE + item % 2), 1);
        ++item;
    }
    if (block > 0) {
        send_rows(&rows, held, CHUNKS - 1, 1);
    }
}

/* ---- gather ---------------------------------------------------------------------------------- */

/* Q of an item, when the item before the last has left its place: by one thread. A member that is
 * not there has its heads past the last one, where the copy engine finds zeros. */
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

/* The keys of this thread's rows of the block whose list begins at `keys`. */
DEVICE void fetch_keys(int *own, const int *keys) {
    const u32 thread = thread_number() % WARPGROUP;
#pragma unroll
    for (int i = 0; i < THREAD_ROWS; ++i) {
        own[i] = keys[thread / ROW_PIECES + (u32)(i * ROW_STEP)];
    }
}

/* Starts the copies of a block: rows of k, those that are not there becoming zeros; numbers and
 * grads, from where they stand in the lists (`keys`, and `grads` of the first member). */
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
            shared_address(GRADS_OFFSET + block % STAGES * GRAD_BYTES + thread * 16),
            grads + thread / LIST_PIECES * (u32)params->key_stride + thread % LIST_PIECES * 4, 16);
    }
    if (thread < LIST_PIECES) {
        cp_async_16(
            shared_address(NUMBERS_OFFSET + block % NUMBER_STAGES * (BLOCK_KEYS * 4) + thread * 16),
            keys + thread * 4, 16);
    }
}

/* Which phases of KEYS_FREE the gather waits for next, and whether there is one, of a tile: a bit a
 * stage. */
struct stages {
    u32 phases, taken;
};

/* Makes room in a block's stage: whatever tile had the block before. */
DEVICE void free_stage(struct stages *stages, u32 stage) {
#pragma unroll
    for (u32 tile = 0; tile < ROW_TILES; ++tile) {
        if (stages[tile].taken >> stage & 1) {
            wait_keys(KEYS_FREE, tile, stage, &stages[tile].phases);
        }
    }
}

/* Lets the tiles that have a block begin when this thread's copies have landed. */
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
        for (int turn = 0; turn < blocks; ++turn) {
            const int at = block_in_turn(turn, blocks) * BLOCK_KEYS;
            const u32 stage = block % STAGES;
            free_stage(stages, stage);
            copy_block(params, own, keys + at, grads + at, block);
            announce_block(stages, runs, at / BLOCK_KEYS, stage);
            if (turn + 1 < blocks) {
                fetch_keys(own, keys + block_in_turn(turn + 1, blocks) * BLOCK_KEYS);
            }
            ++block;
        }
        ++item;
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct indexer_bwd_main_params params) {
    initialise_barriers();
    const int warpgroup = __shfl_sync((u32)ALL_LANES, (int)(threadIdx.x / WARPGROUP), 0);
    if (warpgroup < SUMS_WARPGROUP) {
        run_scores(&params, warpgroup);
    } else if (warpgroup == SUMS_WARPGROUP) {
        run_sums(&params);
    } else {
        run_gather(&params);
    }
}
