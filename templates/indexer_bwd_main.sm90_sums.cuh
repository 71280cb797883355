//@use common/fragment_tile.cuh
//@use common/grain.cuh
//@use common/row_sums.cuh
//@use common/warp_arrival.cuh
//@use common/wgmma_tile.cuh
//@use ptx/registers.cuh
//@use ptx/wgmma.cuh
//@use ptx/wgmma_rs.cuh n = 32, tb = 1
//@use indexer_bwd_main.params.h
//@use indexer_bwd_main.sm90_shared.cuh
/* The sums warpgroup of indexer_bwd_main.sm90.cu: dK = dX^T Q of a block, of all its tiles
 * together, added to the rows of dk in global memory. */

enum {
    CHUNKS = DIM / SUM_COLUMNS, /* of dK */
    SUM_BYTES = 4               /* of a value in global memory */
};

/* Issues a chunk of dK = dX^T Q over `tiles` tiles. */
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

/* The destination of a block's dK: this thread's four rows of dk, and their grains. */
struct sum_rows {
    char *at[4];
    float grains[4]; /* with DETERMINISTIC */
};

/* Past a list's end dK is 0, and zeros are added to the block's first key: a branch at each
 * addition would cost more. */
DEVICE void take_rows(struct sum_rows *rows, const struct indexer_bwd_main_params *params,
                      u32 block) {
    const u32 thread = threadIdx.x % WARPGROUP;
    const int first = (int)(thread / 32 * 16 + thread / 4 % 4);
    const int *const numbers = block_numbers(block);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int key = numbers[first + 4 * i], row = key < 0 ? numbers[0] : key;
        rows->at[i] = (char *)params->dk + ((i64)row * DIM + first_sum(threadIdx.x)) * SUM_BYTES;
        rows->grains[i] = DETERMINISTIC ? params->grains[row] : 0.0f;
    }
}

/* Adds the values from exchange_rows to the rows in global memory. */
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

/* All chunks of a block's dK over `tiles` tiles from `tile` on; each chunk is sent while the next
 * one is computed. Half of the last chunk is kept in `held` and sent while the next block's first
 * chunk is computed; until then `rows` are the previous block's. `uses` counts each tile's blocks.
 */
DEVICE void sum_tiles(struct sum_rows *rows, float *held,
                      const struct indexer_bwd_main_params *params, u64 queries, u32 *uses,
                      int tile, int tiles, u32 block) {
    float sums[2][SUM_VALUES], values[SENT_VALUES];
    u32 dx[ROW_TILES * FRAGMENT_WORDS];
#pragma unroll
    for (int i = 0; i < tiles; ++i) {
        const u32 own = (u32)(tile + i), use = uses[own]++;
        wait_full(DX_FULL + 2 * own, use);
        load_fragments_transposed(&dx[i * FRAGMENT_WORDS], dx_at(own, use));
        arrive_warp(barrier_at(DX_FREE + 2 * own + use % 2), 1);
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
        wgmma_wait(1);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            exchange_rows(values, sums[chunk % 2], half);
            send_rows(rows, values, chunk, half);
        }
        __syncwarp((u32)ALL_LANES); /* else ptxas moves the reductions past the next wait */
    }
    wgmma_wait(0);
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
        for (int iteration = 0; iteration < blocks; ++iteration) {
            const int own = block_of_iteration(iteration, blocks);
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
