/*
 * Written by smelt; do not edit. To write it again:
 *   smelt emit indexer_quantize_rows:dim=128 --arch sm_90a
 *
 * spec     indexer_quantize_rows:dim=128
 * arch     sm_90a
 * variant  rows
 * kernel   smelt_indexer_quantize_rows_d128_plain
 * knobs (by the spec, or by rule)
 * shared memory (offset, bytes)
 *   SHARED_BYTES                     0  of 232448 that a block may have on sm_90a
 * launch
 *   256 threads a block, 4 blocks resident per multiprocessor, at most 64 registers a thread
 */

enum {
    THREADS = 256,                  /* of a thread block */
    BLOCKS_PER_MULTIPROCESSOR = 4,  /* resident at once, at least */
    DIM = 128,                      /* width of a row, elements */
    POWER_OF_TWO = 0,               /* 1: scales are powers of two */
    CONVERTS = 1,                   /* 1: there is an instruction that rounds to e4m3 */
    ROWS_AHEAD = 4,                 /* rows of a lane under way */
    BLOCK_ROWS = 64,                /* rows of an item */
};

/* Shared memory, in bytes from the arena's start. */
enum {
    SHARED_BYTES = 0,               /* the arena's size */
};

#define KERNEL_NAME smelt_indexer_quantize_rows_d128_plain

#line 1 "templates/common/base.cuh"
/* Names every part uses: short integer types, function kinds, the shared-memory arena. */

typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

#ifdef __cplusplus
#define KERNEL extern "C" __global__
#else
#define KERNEL __global__
#endif
#define DEVICE static __device__ __forceinline__

/* The one dynamic shared-memory array. The plan's *_OFFSET constants are byte offsets into it. */
extern __shared__ __align__(1024) unsigned char arena[];

DEVICE int minimum(int a, int b) {
    return a < b ? a : b;
}

DEVICE int maximum(int a, int b) {
    return a > b ? a : b;
}

#line 2 "templates/common/e4m3.cuh"

/*
 * A float as e4m3, to the nearest, ties to even, beyond 448 to 448, NaN to 0x7f: what
 * cvt.rn.satfinite.e4m3x2.f32 does from compute capability 8.9 on, by integers.
 *
 * e4m3's exponent is biased by 7, fp32's by 127, and 20 of the fraction's 23 bits go; below 2^-6
 * codes count in steps of 2^-9, which is what the addition of 2^14 rounds to.
 */
DEVICE u32 e4m3_of(float x) {
    enum { E4M3_NAN = 0x7f, E4M3_LARGEST = 0x7e, REBIAS = (127 - 7) << 3 };
    const u32 bits = (u32)__float_as_int(x), size = bits & 0x7fffffffu;
    u32 code;
    if (size < 0x3c800000u) { /* 2^-6 */
        const float sum = __int_as_float((int)size) + 16384.0f;
        code = (u32)__float_as_int(sum) & 0xfu;
    } else {
        code = ((size + 0x7ffffu + (size >> 20 & 1u)) >> 20) - REBIAS;
    }
    if (size >= 0x43e00000u) { /* 448 */
        code = size > 0x7f800000u ? E4M3_NAN : E4M3_LARGEST;
    }
    return size > 0x7f800000u ? code : code | (bits >> 24 & 0x80u);
}

#line 2 "templates/common/lanes.cuh"

/* Reductions over `lanes` neighbouring threads of a warp, a power of two: the same result in each
 * of them. The whole warp takes part. */

DEVICE int lanes_sum(int value, int lanes) {
    for (int step = lanes / 2; step > 0; step /= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, step);
    }
    return value;
}

/* (Not the smallest by negated values: of -a in the smallest of three ptxas of CUDA 13.0 drops the
 * sign.) */
DEVICE int lanes_maximum(int value, int lanes) {
    for (int step = lanes / 2; step > 0; step /= 2) {
        value = maximum(value, __shfl_xor_sync(0xffffffffu, value, step));
    }
    return value;
}

#line 2 "templates/ptx/math_fp8.cuh"

/* Two floats rounded to the nearest e4m3, beyond its range to the largest (448), `low` in the lower
 * byte of the lower half (PTX ISA, "cvt", .satfinite.e4m3x2). */
DEVICE u32 pack_e4m3x2(float low, float high) {
    u32 packed;
    asm("{.reg .b16 pair;\n\t"
        "cvt.rn.satfinite.e4m3x2.f32 pair, %1, %2;\n\t"
        "cvt.u32.u16 %0, pair;}"
        : "=r"(packed)
        : "f"(high), "f"(low));
    return packed;
}

#line 2 "templates/ptx/shared.cuh"

/* The arena's 32-bit address in the shared state space, which the wrappers below take (PTX ISA,
 * "State Spaces", .shared). */
DEVICE u32 shared_address(u32 offset) {
    return (u32)__cvta_generic_to_shared(arena) + offset;
}

#line 2 "templates/ptx/memory.cuh"

/* 16 bytes to global memory that nobody reads soon: gone first from the caches (PTX ISA, "st",
 * .cs). The address is a multiple of 16. */
DEVICE void store_streaming_16(void *to, const u32 *values) {
    asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(to), "r"(values[0]), "r"(values[1]), "r"(values[2]), "r"(values[3])
                 : "memory");
}

/* The same of 8 bytes, at a multiple of 8. */
DEVICE void store_streaming_8(void *to, const u32 *values) {
    asm volatile("st.global.cs.v2.u32 [%0], {%1, %2};"
                 :
                 : "l"(to), "r"(values[0]), "r"(values[1])
                 : "memory");
}

/* 16 bytes of global memory that no thread writes while the kernel runs (PTX ISA, "ld.global.nc").
 */
DEVICE void load_read_only_16(u32 *values, const void *from) {
    asm("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(values[0]), "=r"(values[1]), "=r"(values[2]), "=r"(values[3])
        : "l"(from));
}

/* 4 bytes of global memory past L1, which may be stale (PTX ISA, "ld", .cg). */
DEVICE u32 load_l2_32(const void *from) {
    u32 value;
    asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}

/* 16 bytes of shared memory at once, 16-byte aligned (PTX ISA, "ld", .shared). */
DEVICE void load_shared_16(u32 *values, u32 address) {
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(values[0]), "=r"(values[1]), "=r"(values[2]), "=r"(values[3])
                 : "r"(address)
                 : "memory");
}

#line 1 "templates/indexer_quantize_rows.params.h"
/*
 * Arguments of the indexer_quantize_rows kernel. Included by the host code and, by the generator,
 * by the CUDA source: plain C types only. Strides count elements.
 */
struct indexer_quantize_rows_params {
    const void *x;       /* [rows, DIM] bf16 */
    void *y;             /* [rows, DIM] e4m3 */
    float *scale;        /* [rows] */
    const float *factor; /* [rows] that the scales are multiplied by, or NULL */
    long long x_row_stride, y_row_stride;
    int rows; /* above 0 */
};

#line 7 "templates/indexer_quantize_rows.cu"
/*
 * Rows of bf16 as e4m3 and a scale each. Meaning: include/smelt/indexer_quantize.h.
 *
 * Grid: a block for each BLOCK_ROWS rows, or fewer, each taking some in turn. ROW_LANES
 * neighbouring lanes have a row, eight elements each; ROWS_AHEAD rows of a lane are under way at
 * once.
 */

enum {
    ROW_LANES = DIM / 8,
    LANE_ROWS = THREADS / ROW_LANES /* rows that the block has at once */
};

#define LARGEST_E4M3 448.0f

/* The size of the largest of a lane's eight elements, as bf16 bits; NaN does not count. */
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

/* The scale of a row whose largest size is that. */
DEVICE float scale_of(int largest) {
    const u32 least = 0x00800000u, infinity = 0x7f800000u; /* 2^-126; sizes order as their bits */
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

/* Eight elements times a factor, as e4m3. */
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

/* Rows `first`, first + LANE_ROWS, ... of which this lane has a part; by whole warps. */
DEVICE void quantize(const struct indexer_quantize_rows_params *params, i64 first) {
    const int lane = (int)threadIdx.x % ROW_LANES;
    struct row rows[ROWS_AHEAD];
#pragma unroll
    for (int i = 0; i < ROWS_AHEAD; ++i) {
        const i64 row = first + i * LANE_ROWS; /* behind the last, that one again */
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
