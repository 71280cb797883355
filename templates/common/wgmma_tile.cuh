//@use common/base.cuh
//@use common/descriptor.cuh
//@use ptx/shared.cuh

/* Tiles of 64 columns of bf16 in shared memory, 128-byte swizzled, as wgmma operands. */

enum {
    TILE_COLUMNS = 64,
    TILE_PITCH = 2 * TILE_COLUMNS,   /* bytes of a row */
    TILE_BYTES = 64 * TILE_PITCH,    /* of a tile of 64 rows */
    ATOM_BYTES = 8 * TILE_PITCH,     /* eight rows */
    STEP_BYTES = 32,                 /* 16 columns of a row: a k-step along columns */
    ROW_STEP_BYTES = 2 * ATOM_BYTES, /* 16 rows: a k-step along rows */
};

/* Tiles from an offset on as operand A or B whose depth is the columns. */
DEVICE u64 tile_descriptor(u32 offset) {
    return shared_descriptor(shared_address(offset), 16, ATOM_BYTES, 128);
}

/* Tiles of 64 rows from an offset on as operand B whose depth is the rows. */
DEVICE u64 columns_descriptor(u32 offset) {
    return shared_descriptor(shared_address(offset), TILE_BYTES, ATOM_BYTES, 128);
}
