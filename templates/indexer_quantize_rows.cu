//@use common/base.cuh
//@use common/e4m3.cuh
//@use common/lanes.cuh
//@use ptx/math_fp8.cuh
//@use ptx/memory.cuh
//@use indexer_quantize_rows.params.h
/*
 * Quantizes rows of bf16 to e4m3 with a scale per row. Meaning: include/smelt/indexer_quantize.h.
 *
 * Grid: one CTA per BLOCK_ROWS rows, or fewer that loop. ROW_LANES adjacent lanes share a row, with
 * eight elements each; a lane has ROWS_AHEAD rows in flight.
 */

enum {
    ROW_LANES = DIM / 8,
    LANE_ROWS = THREADS / ROW_LANES /* rows of the block at once */
};

#define LARGEST_E4M3 448.0f

/* The largest absolute value of a lane's eight elements, as bf16 bits; NaN is ignored. */
DEVICE int largest_size(const u32 *words) {
    enum { BF16_INFINITY = 0x7f80 };
    int largest = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int low = (int)(words[i] & 0x7fffu), high = (int)(words[i] >> 16 & 0x7fffu);
        largest = maximum(largest, low > BF16_INFINITY ? 0 : low);
        largest = maximum(largest, high > BF16_INFINITY ? 0 : high);
    }
    return largest;
}

/* The scale of a row with this largest absolute value. */
DEVICE float scale_of(int largest) {
    const u32 least = 0x00800000u, infinity = 0x7f800000u; /* 2^-126; positive floats order as
                                                              their bits */
    u32 bits = (u32)__float_as_int(__int_as_float(largest << 16) / LARGEST_E4M3);
    if (POWER_OF_TWO) {
        bits = (bits + 0x7fffffu) & infinity;
    }
    return __int_as_float((int)(bits < least ? least : bits));
}

/* Two floats as e4m3, `low` in the lower byte. */
DEVICE u32 pack_pair(float low, float high) {
    return CONVERTS ? pack_e4m3x2(low, high) : e4m3_of(low) | e4m3_of(high) << 8;
}

/* Scales eight elements and converts them to e4m3. */
DEVICE void convert(u32 *to, const u32 *words, float factor) {
    u32 pairs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        pairs[i] = pack_pair(__int_as_float((int)(words[i] << 16)) * factor,
                             __int_as_float((int)(words[i] & 0xffff0000u)) * factor);
    }
    to[0] = pairs[0] | pairs[1] << 16;
    to[1] = pairs[2] | pairs[3] << 16;
}

/* A lane's part of a row. */
struct row {
    u32 words[4];
};

/* Quantizes rows `first`, first + LANE_ROWS, ...; by whole warps. */
DEVICE void quantize(const struct indexer_quantize_rows_params *params, i64 first) {
    const int lane = (int)threadIdx.x % ROW_LANES;
    struct row rows[ROWS_AHEAD];
#pragma unroll
    for (int i = 0; i < ROWS_AHEAD; ++i) {
        const i64 row = first + i * LANE_ROWS; /* past the last row that one is read again */
        load_read_only_16(rows[i].words, (const char *)params->x +
                                             2 * ((row < params->rows ? row : params->rows - 1) *
                                                  params->x_row_stride) +
                                             lane * 16);
    }
#pragma unroll
    for (int i = 0; i < ROWS_AHEAD; ++i) {
        const i64 row = first + i * LANE_ROWS;
        const float scale = scale_of(lanes_maximum(largest_size(rows[i].words), ROW_LANES));
        u32 codes[2];
        convert(codes, rows[i].words, 1.0f / scale);
        if (row < params->rows) {
            const uint2 pair = {codes[0], codes[1]};
            *(uint2 *)((char *)params->y + row * params->y_row_stride + lane * 8) = pair;
            if (lane == 0) {
                params->scale[row] = params->factor ? params->factor[row] * scale : scale;
            }
        }
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct indexer_quantize_rows_params params) {
#pragma unroll 1
    for (i64 first = (i64)blockIdx.x * BLOCK_ROWS; first < params.rows;
         first += (i64)gridDim.x * BLOCK_ROWS) {
        quantize(&params, first + (int)threadIdx.x / ROW_LANES);
    }
}
