//@use common/base.cuh
//@use common/tile.cuh
//@use ptx/cp_async.cuh
//@use ptx/ldmatrix.cuh
//@use ptx/mma.cuh
/*
 * D = A B^T with mma.sync, both operands rows of DQK bf16 columns. A, RESIDENT_ROWS rows, stays in
 * shared memory for an item; tiles of STREAM_ROWS rows of B pass through a ring of STAGES stages, in
 * parts of 64 columns. WARPS warps: warp w has rows w / SLABS * ROW_TILES * 16 on of A, and slab
 * w % SLABS, 64 rows, of B.
 *
 * Shared memory, rows of 128 bytes, swizzled (common/tile.cuh):
 *   RESIDENT [PARTS][RESIDENT_ROWS][64] bf16
 *   STREAM   [STAGES][STREAM_ROWS][64] bf16
 *
 * Part number j of the stream, counted over all tiles, uses stage j % STAGES. At its top: wait for
 * this thread's copies of part j (STAGES - 2 later ones may be in flight), then a barrier: part j
 * has landed, and no thread still reads stage (j - 1) % STAGES, which is then refilled.
 */

enum {
    PART_COLUMNS = 64,
    PART_PITCH = PART_COLUMNS * 2, /* bytes of a row */
    PART_CHUNKS = PART_COLUMNS / CHUNK_COLUMNS,
    PARTS = (DQK + PART_COLUMNS - 1) / PART_COLUMNS,
    LAST_STEPS = (DQK - (PARTS - 1) * PART_COLUMNS) / 16, /* k-steps of the last part */
    RESIDENT_BYTES = RESIDENT_ROWS * PART_PITCH,          /* of a part */
    SLAB_ROWS = 64,
    SLAB_PAIRS = SLAB_ROWS / 16, /* pairs of n8 tiles */
    SLAB_TILES = SLAB_ROWS / 8,
    STREAM_ROWS = SLABS * SLAB_ROWS,
    STAGE_BYTES = STREAM_ROWS * PART_PITCH,
    PRODUCTS = ROW_TILES * SLAB_TILES * 4, /* elements of D of a lane */
    COPY_ROWS = THREADS / PART_CHUNKS      /* copied at once */
};

/* Starts the copy of this thread's chunk of row `row` of a part of a tile. `source`: the whole row in
 * global memory; null: zeros. `any`: what a copy of zeros names, unread. */
DEVICE void copy_row(u32 tile, int row, const char *source, const char *any, int part) {
    const int chunk = (int)threadIdx.x % PART_CHUNKS;
    if (part == PARTS - 1 && chunk >= LAST_STEPS * 2) {
        return;
    }
    cp_async_16(tile + tile_chunk(row, chunk, PART_PITCH),
                source ? source + part * PART_PITCH + chunk * CHUNK_BYTES : any,
                source ? CHUNK_BYTES : 0);
}

DEVICE u32 resident_part(int part) {
    return shared_address(RESIDENT_OFFSET + (u32)(part * RESIDENT_BYTES));
}

DEVICE u32 stream_stage(int stage) {
    return shared_address(STREAM_OFFSET + (u32)(stage * STAGE_BYTES));
}

/* This warp's first row of A, and its slab of B. */
DEVICE int warp_row(void) {
    return (int)threadIdx.x / 32 / SLABS * (ROW_TILES * 16);
}

DEVICE int warp_slab(void) {
    return (int)threadIdx.x / 32 % SLABS;
}

/* Waits for all threads' copies of the oldest part in flight, then for all threads. */
DEVICE void wait_for_part(void) {
    cp_async_wait(STAGES - 2);
    __syncthreads();
}

/* Loads the operands of k-step `step` of a part: `a`, `b` are the lane's ldmatrix addresses at step
 * 0. */
DEVICE void load_operands(u32 *left, u32 *right, u32 a, u32 b, int step) {
#pragma unroll
    for (int m = 0; m < ROW_TILES; ++m) {
        ldmatrix_x4(&left[m * 4], tile_advance(a, step * 32) + (u32)(m * 16 * PART_PITCH));
    }
#pragma unroll
    for (int n = 0; n < SLAB_PAIRS; ++n) {
        ldmatrix_x4(&right[n * 4], tile_advance(b, step * 32) + (u32)(n * 16 * PART_PITCH));
    }
}

/* d += `steps` k-steps of a part; the next step's operands are loaded before a step is multiplied.
 * d[m][n]: m16 tile m of the warp's rows, n8 tile n of its slab. */
DEVICE void multiply_steps(float (*d)[SLAB_TILES][4], u32 a, u32 b, int steps) {
    enum { LEFT = ROW_TILES * 4, RIGHT = SLAB_PAIRS * 4 };
    u32 left[2 * LEFT], right[2 * RIGHT];
    load_operands(left, right, a, b, 0);
#pragma unroll
    for (int step = 0; step < PART_COLUMNS / 16; ++step) {
        const int now = step % 2, next = (step + 1) % 2;
        if (step < steps) {
            if (step + 1 < steps) {
                load_operands(&left[next * LEFT], &right[next * RIGHT], a, b, step + 1);
            }
#pragma unroll
            for (int n = 0; n < SLAB_TILES; ++n) {
#pragma unroll
                for (int m = 0; m < ROW_TILES; ++m) {
                    mma_m16n8k16_bf16(d[m][n], &left[now * LEFT + m * 4],
                                      &right[now * RIGHT + n * 2]);
                }
            }
        }
    }
}

/* d += the product of a part, which is in a stage. */
DEVICE void multiply_part(float (*d)[SLAB_TILES][4], int part, int stage) {
    const int lane = (int)threadIdx.x % 32;
    const u32 a = resident_part(part) + tile_chunk(warp_row() + lane % 16, lane / 16, PART_PITCH);
    const u32 b =
        stream_stage(stage) +
        tile_chunk(warp_slab() * SLAB_ROWS + lane % 8 + lane / 16 * 8, lane / 8 % 2, PART_PITCH);
    if (LAST_STEPS < PART_COLUMNS / 16 && part == PARTS - 1) {
        multiply_steps(d, a, b, LAST_STEPS);
    } else {
        multiply_steps(d, a, b, PART_COLUMNS / 16);
    }
}

DEVICE void clear_products(float (*d)[SLAB_TILES][4]) {
#pragma unroll
    for (int i = 0; i < PRODUCTS; ++i) {
        d[i / (SLAB_TILES * 4)][i / 4 % SLAB_TILES][i % 4] = 0.0f;
    }
}
