//@use common/base.cuh
//@use ptx/math.cuh
//@use ptx/memory.cuh
//@use ptx/reduce.cuh
/*
 * Writes 64 x 32 accumulators to rows in global memory: adds them to fp32 sums, or stores them as
 * bf16 partial rows. Columns are in the order of common/key_columns.cuh.
 *
 * The SM's throughput for reductions is the bottleneck. It is highest when an instruction covers
 * 128 bytes of each of 4 rows. Of each row a quad holds two runs of 64 contiguous bytes; lanes 16
 * apart exchange one of them for the other lane's row (4 shuffles per 2 instructions).
 */

enum {
    SUM_COLUMNS = 32,             /* of an accumulator */
    SUM_VALUES = SUM_COLUMNS / 2, /* of a thread */
    SENT_VALUES = 8               /* of a thread: half of the accumulator's rows */
};

/* Exchanges rows 8 * half to 8 * half + 7 of the warp's 16: `values` receives 4 values of row lane
 * / 4 % 4 of these and 4 of the row 4 further down. */
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

/* A thread's first value in a row: lanes from 16 on have the second half of the columns. */
DEVICE u32 first_sum(u32 thread) {
    return thread % 32 / 16 * 16 + thread % 4 * 4;
}

/* Adds or stores four values. */
DEVICE void send_sums(char *to, const float *four, bool partial) {
    if (partial) {
        const u32 words[2] = {pack_bf16x2(four[0], four[1]), pack_bf16x2(four[2], four[3])};
        store_streaming_8(to, words);
    } else {
        reduce_add_f32x4((float *)to, four);
    }
}
