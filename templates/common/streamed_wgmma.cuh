//@use common/base.cuh
//@use common/ring.cuh
//@use common/tensor_map.h
//@use common/tile.cuh
//@use common/warp_arrival.cuh
//@use common/wgmma_tile.cuh
//@use ptx/ldmatrix.cuh
//@use ptx/mbarrier.cuh
//@use ptx/shared.cuh
//@use ptx/tensor.cuh
//@use ptx/wgmma.cuh
//@use ptx/wgmma_rs_tile.cuh n = SLABS * 64, tb = 0
/*
 * D = A B^T with wgmma; rows of A and B have DQK bf16 columns. Each of CONSUMERS warpgroups keeps 64
 * rows of A in registers during an item and multiplies them by tiles of COLUMNS rows of B. So shared
 * memory holds only a ring of stages, and each warpgroup reads a stage once. The warpgroups are not
 * synchronised with each other: while one evaluates its D, the other multiplies.
 *
 * A stage holds a part, 64 columns, of the item's rows of A or of a tile of B. One warp, the producer,
 * fills the stages by tensor copies: for each item the PARTS parts of A, then those of each tile. It
 * runs ahead into the next items. Rows and columns that do not exist are zeros.
 *
 * Shared memory: STREAM [STAGES] rows of 128 bytes, 128-byte swizzled: RESIDENT_ROWS of A or COLUMNS
 * of B.
 *
 * Barriers (parity counts uses; stages are used cyclically):
 *   barrier   count          arrives                                     waits
 *   FULL[s]   1              producer, with the box's bytes              consumers
 *   EMPTY[s]  4 * CONSUMERS  consumers: warps that have read the stage   producer
 * (Counts are of warps: common/warp_arrival.cuh.)
 */

enum {
    PARTS = (DQK + TILE_COLUMNS - 1) / TILE_COLUMNS,
    COLUMNS = SLABS * 64,           /* rows of a tile of B, columns of D */
    RESIDENT_ROWS = CONSUMERS * 64, /* rows of A */
    RESIDENT_BYTES = RESIDENT_ROWS * TILE_PITCH,
    COLUMN_BYTES = COLUMNS * TILE_PITCH, /* of a tile's part */
    RESIDENT_WORDS = PARTS * 16          /* of a thread */
};

/* mbarriers, as indices into BARRIERS. */
enum { FULL = 0, EMPTY = FULL + STAGES };

DEVICE u32 stage_at(int stage) {
    return (u32)(STREAM_OFFSET + stage * STAGE_BYTES);
}

DEVICE void initialise_barriers(void) {
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(barrier_at(FULL + stage), WARP_ARRIVALS);
            mbarrier_init(barrier_at(EMPTY + stage), 4 * CONSUMERS * WARP_ARRIVALS);
        }
        mbarrier_fence_init();
    }
    __syncthreads();
}

/* ---- the producer, a whole warp ---------------------------------------------------------------- */

DEVICE void await_stage(const struct ring_place *stage) {
    mbarrier_wait(barrier_at(EMPTY + stage->index), stage->parity ^ 1);
}

DEVICE void pass_stage(struct ring_place *stage) {
    arrive_warp(barrier_at(FULL + stage->index), 1);
    ring_advance(stage, STAGES);
}

/* Copies a part of a box into a free stage and passes the stage to the consumers. `map`: of [rows, key
 * heads, heads of a group, DQK]; `bytes`: of the part. */
DEVICE void copy_part(const struct tensor_map *map, int part, int bytes, int head, int key_head,
                      int row, struct ring_place *stage) {
    if (threadIdx.x % 32 == 0) {
        const u32 full = barrier_at(FULL + stage->index);
        mbarrier_expect(full, (u32)bytes);
        tensor_load_4d(shared_address(stage_at(stage->index)), map, full, part * TILE_COLUMNS, head,
                       key_head, row);
    }
    pass_stage(stage);
}

/* Copies all parts of a box. */
DEVICE void copy_parts(const struct tensor_map *map, int bytes, int head, int key_head, int row,
                       struct ring_place *stage) {
    for (int part = 0; part < PARTS; ++part) {
        await_stage(stage);
        copy_part(map, part, bytes, head, key_head, row, stage);
    }
}

/* ---- the consumers ----------------------------------------------------------------------------- */

DEVICE void await_copies(const struct ring_place *stage) {
    mbarrier_wait(barrier_at(FULL + stage->index), stage->parity);
}

DEVICE void release_stage(int stage) {
    arrive_warp(barrier_at(EMPTY + stage), 1);
}

/* Reads the warpgroup's rows of A from the next stages. */
DEVICE void read_resident(u32 *rows, struct ring_place *stage) {
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
        await_copies(stage);
        const u32 row = shared_address(stage_at(stage->index)) +
                        tile_chunk((int)threadIdx.x / 32 * 16 + lane % 16, lane / 16, TILE_PITCH);
#pragma unroll
        for (int step = 0; step < 4; ++step) {
            ldmatrix_x4(&rows[part * 16 + step * 4], tile_advance(row, step * STEP_BYTES));
        }
        release_stage(stage->index);
        ring_advance(stage, STAGES);
    }
}

/* d = the product with a tile in the next stages, of which all but the last are released. Returns the
 * last one. */
DEVICE int multiply_tile(float *d, const u32 *rows, struct ring_place *stage) {
    int last = 0;
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
        await_copies(stage);
        wgmma_fence();
        // clang-format off
        wgmma_rs_tile_n${SLABS * 64}_t00(d, &rows[part * 16],
                                         tile_descriptor(stage_at(stage->index)), part > 0);
        // clang-format on
        wgmma_commit();
        if (part > 0) {
            wgmma_wait(1);
            release_stage(last);
        }
        last = stage->index;
        ring_advance(stage, STAGES);
    }
    wgmma_wait(0);
    return last;
}
