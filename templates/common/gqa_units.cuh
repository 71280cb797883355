//@use common/base.cuh
//@use common/quad.cuh
//@use common/queries.cuh
//@use ptx/math.cuh
//@use ptx/memory.cuh
//@use common/work.params.h
/*
 * Units of the partial results of sparse_gqa's block-stationary kernels (sparse_gqa_items.params.h),
 * by the kernels that add them: a warp has a unit (8 heads of a KV head) of one query at a time, in
 * the order of the accumulators: lane 4 * g + t has head g, and of each 32 of its COLUMNS 8 * k + 2 * t
 * and the next, k = 0..3.
 */

enum {
    WARPS = THREADS / 32,
    UNIT_HEADS = 8,
    VECTORS = COLUMNS / 32, /* of a lane, 8 columns each */
    QUAD_BYTES = 4 * 16,    /* of a row of the result, stored by four lanes at once */
    UNIT_VECTORS = VECTORS * 32
};

/* A unit: an entry's, of a KV head. */
struct unit {
    const int *places; /* of the entry's slots */
    i64 number;        /* of pair 0's unit: pair p's is p * LIST_HEADS * UNITS further */
    int query;         /* -1: the entry names none */
    int head;          /* the lane's; at least HEADS: padding */
};

/* `first`: the entry of item 0. */
DEVICE struct unit find_unit(const struct work_params *work, const int *places, int first,
                             i64 item) {
    enum { OF_ENTRY = KV_HEADS * UNITS, GROUPS = KV_HEADS / LIST_HEADS };
    const int entry = (int)(item / OF_ENTRY), kv_head = (int)(item % OF_ENTRY) / UNITS;
    const int eighth = (int)(item % UNITS);
    const int row = eighth * UNIT_HEADS + (int)threadIdx.x % 32 / 4;
    struct unit unit = {places, (i64)(kv_head % LIST_HEADS) * UNITS + eighth, first + entry,
                        kv_head * GROUP_HEADS + row};
    unit.places += ((i64)entry * GROUPS + kv_head / LIST_HEADS) * work->width;
    if (row >= GROUP_HEADS) {
        unit.head = HEADS;
    }
    if (work->queries) {
        unit.query = (int)load_l2_32(&work->queries[unit.query]);
    }
    if (unit.query >= work->batches * work->tokens) {
        unit.query = -1;
    }
    return unit;
}

DEVICE i64 partial_number(const struct unit *unit, int pair) {
    return unit->number + (i64)pair * (LIST_HEADS * UNITS);
}

DEVICE float bf16_low(u32 pair) {
    return __int_as_float((int)(pair << 16));
}

DEVICE float bf16_high(u32 pair) {
    return __int_as_float((int)(pair & 0xffff0000u));
}

/* Stores the lane's row of a unit, 16 bytes of each quad's 64 at a time. By whole warps. */
DEVICE void store_unit_row(char *row, const float *sums, bool present) {
    row += threadIdx.x % 4 * 16;
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
        u32 x[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            x[k] = pack_bf16x2(sums[i * 8 + k * 2], sums[i * 8 + k * 2 + 1]);
        }
        transpose_quad(x);
        if (present) {
            store_streaming_16(row + i * QUAD_BYTES, x);
        }
    }
}
