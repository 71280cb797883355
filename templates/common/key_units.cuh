//@use common/base.cuh
//@use common/quad.cuh
//@use ptx/math.cuh
//@use ptx/reduce.cuh
//@use ptx/thread.cuh
/*
 * Gradients by keys, from the accumulators of mma.m16n8k16 to global memory: units of 32 columns
 * and some keys. Rows are fp32 sums, added to, or bf16 partial rows, stored: `partial`, known to
 * the compiler. Their columns stand in the order of sparse_attn_bwd.columns.cuh, the fragments'
 * own, which makes wide accesses of them. VECTOR_REDUCTIONS: four values are added at once.
 */

enum { UNIT_COLUMNS = 32 };

/* Rows that units go to. */
struct unit_rows {
    char *first;     /* this lane's place in key number 0's row; if partial, in that of the block's
                        first key */
    int row_bytes;   /* from one row to the next */
    const int *keys; /* the block's, -1: none */
    bool partial;
};

/* Whether a lane has four neighbouring values at once. */
DEVICE bool has_vectors(bool partial) {
    return partial || VECTOR_REDUCTIONS;
}

/* The first column that a lane has of 32. It has four neighbours of them, or, where values are
 * added one by one, the first of four that are eight apart. */
DEVICE int unit_place(bool partial) {
    const int lane = (int)thread_number() % 32;
    return has_vectors(partial) ? lane / 16 * 16 + lane % 4 * 4 : lane / 16 * 4 + lane % 4;
}

/* Four of this lane's values to where they belong in the row of key number `slot` of the block. */
DEVICE void put_sums(const struct unit_rows *rows, int slot, const float *sums) {
    const int key = rows->keys[slot];
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
            reduce_add_f32(to + i * 8, sums[i]);
        }
    }
}

/* A lane's two runs of four neighbouring positions in a row of a unit, 16 apart; for additions one
 * by one, what of its quad's runs is its own and four apart. */
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
 * A unit's sums, of `tiles` m16 tiles of the block's keys from number `slot` on. Lanes 16 apart,
 * whose rows are 4 apart, exchange half of what they have, so that one access takes 128 bytes
 * (added one by one: 32) of four rows and not half as much of eight, which is slower by a third.
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
