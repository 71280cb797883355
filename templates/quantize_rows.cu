//@use common/base.cuh
//@use common/e4m3.cuh
//@use common/lanes.cuh
//@use ptx/math.cuh
//@use ptx/math_fp8.cuh
//@use ptx/memory.cuh
//@use quantize_rows.params.h
/*
 * Quantizes rows of bf16 to e4m3 with a scale per group of columns. Meaning: include/smelt/quantize.h.
 *
 * Grid: one CTA per BLOCK_GROUPS groups, or fewer that loop. GROUP_LANES adjacent lanes share a group;
 * a lane takes every GROUP_LANES-th chunk of eight elements. It has GROUPS_AHEAD groups in flight.
 */

enum {
    CHUNK = 8,                            /* elements */
    GROUP_CHUNKS = DIM / GROUPS / CHUNK,  /* of a group */
    BLOCK_STRIDE = THREADS / GROUP_LANES, /* groups of the block at once */
    WORDS = 4 * LANE_CHUNKS               /* of a lane: two elements each */
};

#define LARGEST_E4M3 448.0f

/* The largest absolute value of a lane's elements, as bf16 bits; NaN is ignored. */
DEVICE int largest_size(const u32 *words) {
    enum { BF16_INFINITY = 0x7f80 };
    int largest = 0;
#pragma unroll
    for (int i = 0; i < WORDS; ++i) {
        const int low = (int)(words[i] & 0x7fffu), high = (int)(words[i] >> 16 & 0x7fffu);
        largest = maximum(largest, low > BF16_INFINITY ? 0 : low);
        largest = maximum(largest, high > BF16_INFINITY ? 0 : high);
    }
    return largest;
}

/* The scale of a group with this largest absolute value. */
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

/* The two values of a pair of codes times a scale, to the nearest bf16. */
DEVICE u32 dequantize_pair(u32 pair, float scale) {
    return pack_bf16x2(e4m3_value(pair & 0xffu) * scale, e4m3_value(pair >> 8 & 0xffu) * scale);
}

/* A lane's part of a group. */
struct part {
    u32 words[WORDS];
};

/* A group: its row, and its first column. */
struct group {
    i64 row;
    int number; /* within the row */
};

DEVICE struct group group_of(i64 index) {
    const struct group group = {index / GROUPS, (int)(index % GROUPS)};
    return group;
}

/* Number `i` of a lane's chunks of the group; not below GROUP_CHUNKS: there is none. */
DEVICE int chunk_of(int i) {
    return (int)threadIdx.x % GROUP_LANES + i * GROUP_LANES;
}

/* Where a chunk starts in its row. */
DEVICE int column_of(struct group group, int chunk) {
    return (group.number * GROUP_CHUNKS + chunk) * CHUNK;
}

/* A lane's part of a group; chunks that the group does not have are 0. */
DEVICE void load_part(const struct quantize_rows_params *params, struct group group,
                      struct part *part) {
    const char *const row = (const char *)params->x + 2 * group.row * params->x_row_stride;
#pragma unroll
    for (int i = 0; i < LANE_CHUNKS; ++i) {
        u32 *const words = &part->words[4 * i];
        words[0] = words[1] = words[2] = words[3] = 0;
        if (chunk_of(i) < GROUP_CHUNKS) {
            load_read_only_16(words, row + 2 * column_of(group, chunk_of(i)));
        }
    }
}

/* Writes a chunk: its codes, and what these stand for. */
DEVICE void store_chunk(const struct quantize_rows_params *params, struct group group, int chunk,
                        const u32 *codes, float scale) {
    const int column = column_of(group, chunk);
    if (params->y) {
        const uint2 words = {codes[0], codes[1]};
        *(uint2 *)((char *)params->y + group.row * params->y_row_stride + column) = words;
    }
    if (params->dequantized) {
        const uint4 words = {
            dequantize_pair(codes[0], scale), dequantize_pair(codes[0] >> 16, scale),
            dequantize_pair(codes[1], scale), dequantize_pair(codes[1] >> 16, scale)};
        *(uint4 *)((char *)params->dequantized +
                   2 * (group.row * params->dequantized_row_stride + column)) = words;
    }
}

/* Quantizes a group; by whole warps, of which lanes without a group store nothing. */
DEVICE void quantize(const struct quantize_rows_params *params, struct group group, int stores,
                     const struct part *part) {
    const float scale = scale_of(lanes_maximum(largest_size(part->words), GROUP_LANES));
#pragma unroll
    for (int i = 0; i < LANE_CHUNKS; ++i) {
        u32 codes[2];
        convert(codes, &part->words[4 * i], 1.0f / scale);
        if (stores && chunk_of(i) < GROUP_CHUNKS) {
            store_chunk(params, group, chunk_of(i), codes, scale);
        }
    }
    if (stores && params->scale && chunk_of(0) == 0) {
        params->scale[group.row * params->scale_row_stride + group.number] =
            params->factor ? params->factor[group.row] * scale : scale;
    }
}

/* Quantizes groups `first`, first + BLOCK_STRIDE, ...; by whole warps. */
DEVICE void quantize_groups(const struct quantize_rows_params *params, i64 first, i64 groups) {
    struct part parts[GROUPS_AHEAD];
#pragma unroll
    for (int i = 0; i < GROUPS_AHEAD; ++i) {
        const i64 index =
            first + i * BLOCK_STRIDE; /* past the last group, that one is read again */
        load_part(params, group_of(index < groups ? index : groups - 1), &parts[i]);
    }
#pragma unroll
    for (int i = 0; i < GROUPS_AHEAD; ++i) {
        const i64 index = first + i * BLOCK_STRIDE;
        quantize(params, group_of(index), index < groups, &parts[i]);
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct quantize_rows_params params) {
    const i64 groups = (i64)params.rows * GROUPS;
#pragma unroll 1
    for (i64 first = (i64)blockIdx.x * BLOCK_GROUPS; first < groups;
         first += (i64)gridDim.x * BLOCK_GROUPS) {
        quantize_groups(&params, first + (int)threadIdx.x / GROUP_LANES, groups);
    }
}
