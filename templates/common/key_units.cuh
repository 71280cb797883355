//@use common/base.cuh
//@use common/quad.cuh
//@use ptx/math.cuh
//@use ptx/reduce.cuh
//@use ptx/thread.cuh
/*
 * Writes gradients by key from mma.m16n8k16 accumulators to global memory, in units of some keys by
 * 32 columns. Rows are either fp32 sums that are added to, or bf16 partial rows that are stored
 * (`partial`, a compile-time constant). Their columns are in the fragments' order
 * (common/key_columns.cuh), which makes the accesses wide. VECTOR_REDUCTIONS: four values per
 * reduction.
 */

enum { UNIT_COLUMNS = 32 };

/* The rows that units are written to. */
struct unit_rows {
    char *first;     /* this lane's address in key 0's row; with `partial`, in the row of the
                        block's first key */
    int row_bytes;   /* stride of rows */
    const int *keys; /* the block's; -1: none */
    int columns;     /* of the unit, from this lane's first one on */
    bool partial;
};

/* Whether a lane holds four adjacent values. */
DEVICE bool has_vectors(bool partial) {
    return partial || VECTOR_REDUCTIONS;
}

/* This lane's first column of 32. The lane has four adjacent columns, or, without vector
 * reductions, four columns 8 apart. */
DEVICE int unit_place(bool partial) {
    const int lane = (int)thread_number() % 32;
    return has_vectors(partial) ? lane / 16 * 16 + lane % 4 * 4 : lane / 16 * 4 + lane % 4;
}

/* Of a unit in rows of `width` columns, a multiple of 16: its columns from this lane's first one on. */
DEVICE int unit_columns(int width, int column, bool partial) {
    return width % UNIT_COLUMNS == 0 ? UNIT_COLUMNS : width - column - unit_place(partial);
}

/* Writes four of this lane's values to the row of the block's key `slot`. */
DEVICE void put_sums(const struct unit_rows *rows, int slot, const float *sums) {
    const int key = rows->columns > 0 ? rows->keys[slot] : -1;
    if (rows->partial) {
        const uint2 values = {pack_bf16x2(sums[0], sums[1]), pack_bf16x2(sums[2], sums[3])};
        if (key >= 0) {
            *(uint2 *)(rows->first + slot * rows->row_bytes) = values;
        }
        return;
    }
    float *const to = (float *)(rows->first + (i64)key * rows->row_bytes);
    if (key >= 0 && VECTOR_REDUCTIONS) {
        reduce_add_f32x4(to, sums);
    } else if (key >= 0) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (i * 8 < rows->columns) {
                reduce_add_f32(to + i * 8, sums[i]);
            }
        }
    }
}

/* A lane's two runs of four adjacent positions in a unit's row, 16 apart. Without vector
 * reductions, transposed within the quad: the lane's own values of the quad's runs. */
DEVICE void find_runs(float *runs, const float *row, bool partial) {
    u32 bits[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        runs[i] = row[i / 2 * 4 + i % 2];
        bits[i] = __float_as_uint(runs[i]);
    }
    if (has_vectors(partial)) {
        return;
    }
    transpose_quad(&bits[0]);
    transpose_quad(&bits[4]);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        runs[i] = __uint_as_float(bits[i]);
    }
}

/*
 * Writes a unit: `tiles` m16 tiles of keys from the block's key `slot` on. Lanes 16 apart, whose
 * rows are 4 apart, exchange half of their values, so that one access covers 128 bytes (32 without
 * vector reductions) of four rows instead of half as much of eight, which is a third slower.
 */
DEVICE void put_unit(const struct unit_rows *rows, int slot, int tiles, const float *sums) {
    const int lane = (int)thread_number() % 32;
    const bool upper = lane >= 16, vectors = has_vectors(rows->partial);
#pragma unroll
    for (int half = 0; half < tiles * 2; ++half) {
        float runs[8], first[4], second[4];
        find_runs(runs, &sums[half / 2 * 16 + half % 2 * 2], rows->partial);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float low = runs[vectors ? i : i * 2];
            const float high = runs[vectors ? i + 4 : i * 2 + 1];
            const float other = __shfl_xor_sync(0xffffffffu, upper ? low : high, 16);
            first[i] = upper ? other : low;
            second[i] = upper ? high : other;
        }
        const int at = slot + half * 8 + lane / 4 % 4;
        put_sums(rows, at, first);
        put_sums(rows, at + 4, second);
    }
}
