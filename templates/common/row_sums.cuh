//@use common/base.cuh
//@use ptx/math.cuh
//@use ptx/memory.cuh
//@use ptx/reduce.cuh
/*
 * Rows of sums in global memory, out of accumulators of 64 rows and 32 columns: added to, or
 * partial ones, stored as bf16. Their columns are in the order of sparse_attn_bwd.columns.cuh.
 *
 * The additions' way out of the multiprocessor binds, and it is widest when an instruction has 4
 * rows of 128 bytes: of an accumulator's rows each quad has 64 contiguous bytes twice, and lanes 16
 * apart exchange one of the two for the other lane's row (4 shuffles for 2 instructions).
 */

enum {
    SUM_COLUMNS = 32,             /* of an accumulator */
    SUM_VALUES = SUM_COLUMNS / 2, /* of a thread */
    SENT_VALUES = 8               /* of a thread: half of an accumulator's rows */
};

/* The rows 8 * half and on of a warp's 16: `values` gets 4 of the row lane / 4 % 4 of them and 4 of
 * the row 4 further. */
DEVICE void exchange_rows(float *values, const float *sums, int half) {
    const bool upper = threadIdx.x & 16;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float near = sums[i / 2 * 4 + i % 2 + 2 * half];
        const float far = sums[8 + i / 2 * 4 + i % 2 + 2 * half];
        const float other = __shfl_xor_sync(0xffffffffu, upper ? near : far, 16);
        values[i] = upper ? other : near;
        values[4 + i] = upper ? far : other;
    }
}

/* Where a thread's values of a row begin, in values: lanes from 16 on have the second half of an
 * accumulator's columns. */
DEVICE u32 first_sum(u32 thread) {
    return thread % 32 / 16 * 16 + thread % 4 * 4;
}

/* Four values to their place, of a row that is partial or not. */
DEVICE void send_sums(char *to, const float *four, bool partial) {
    if (partial) {
        const u32 words[2] = {pack_bf16x2(four[0], four[1]), pack_bf16x2(four[2], four[3])};
        store_streaming_8(to, words);
    } else {
        reduce_add_f32x4((float *)to, four);
    }
}
