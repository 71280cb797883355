/*
 * Written by smelt; do not edit. To write it again:
 *   smelt emit indexer_clean_fill --arch sm_80
 *
 * spec     indexer_clean_fill
 * arch     sm_80
 * variant  fill
 * kernel   smelt_indexer_clean_fill
 * knobs (by the spec, or by rule)
 * shared memory (offset, bytes)
 *   SHARED_BYTES                     0  of 166912 that a block may have on sm_80
 * launch
 *   256 threads a block, 4 blocks resident per multiprocessor, at most 64 registers a thread
 */

enum {
    THREADS = 256,                  /* of a thread block */
    BLOCKS_PER_MULTIPROCESSOR = 4,  /* resident at once, at least */
    BLOCK_KEYS = 8192,              /* keys of an item */
};

/* Shared memory, in bytes from the arena's start. */
enum {
    SHARED_BYTES = 0,               /* the arena's size */
};

#define KERNEL_NAME smelt_indexer_clean_fill

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

#line 2 "templates/ptx/maximum.cuh"

/* The larger; NaN when one of them is (PTX ISA, "max", .NaN). */
DEVICE float maximum_nan(float x, float y) {
    float z;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
    return z;
}

#line 3 "templates/common/logit.cuh"
/*
 * The indexer's logits and windows, the same in every kernel (include/smelt/indexer_logits.h).
 */

#define LOWEST_LOGIT (-__int_as_float(0x7f800000))

/* A logit as it is written: +0 for -0, -inf for NaN. */
DEVICE float canonical_logit(float logit) {
    return fmaxf(logit, LOWEST_LOGIT) + 0.0f;
}

/* weight * max(0, product) added to a sum; NaN stays. */
DEVICE float add_head(float sum, float weight, float product) {
    return fmaf(weight, maximum_nan(product, 0.0f), sum);
}

/* Whether a window has at least so many of `rows` keys. */
DEVICE bool has_keys(int window_begin, int window_end, int rows, int least) {
    return minimum(maximum(window_end, 0), rows) - maximum(window_begin, 0) >= least;
}

/* A query's window among `keys` keys from number `first` on, relative to that; empty when it does
 * not begin before its end. first + keys <= rows. */
struct key_range {
    int begin, end;
};

DEVICE struct key_range window_among(int window_begin, int window_end, int first, int keys) {
    const struct key_range range = {maximum(maximum(window_begin, 0) - first, 0),
                                    minimum(maximum(window_end, 0) - first, keys)};
    return range;
}

#line 1 "templates/indexer_clean_fill.params.h"
/*
 * Arguments of the indexer_clean_fill kernel. Included by the host code and, by the generator, by
 * the CUDA source: plain C types only. Strides count elements.
 */
struct indexer_clean_fill_params {
    const int *window_begin; /* [tokens] any number; what lies outside [0, rows) does not count */
    const int *window_end;   /* [tokens] */
    float *logits;           /* [tokens, rows]: what lies outside a window is written */
    long long logits_token_stride;
    int tokens, rows; /* both above 0 */
};

#line 4 "templates/indexer_clean_fill.cu"
/*
 * Fills what lies outside the windows of a matrix of logits with -inf. Meaning:
 * include/smelt/indexer_clean.h.
 *
 * Grid: a block for each item, BLOCK_KEYS neighbouring keys of a query, those of the same query
 * side by side; or fewer, each taking items in turn. What is to be filled of an item is what stands
 * before the window, and what stands behind it.
 */

/* Fills row[from .. to - 1], by the whole block: 16 bytes at a time between the first and the last
 * address that is a multiple of 16. */
DEVICE void fill(float *row, int from, int to) {
    const int count = to - from; /* 0 and up */
    float *const first = row + from;
    const int ahead = minimum(count, (int)(0 - ((u64)first / 4)) & 3); /* of the first multiple */
    const int fours = (count - ahead) / 4;
    const float4 lowest = {LOWEST_LOGIT, LOWEST_LOGIT, LOWEST_LOGIT, LOWEST_LOGIT};
    for (int i = (int)threadIdx.x; i < fours; i += THREADS) {
        *(float4 *)(first + ahead + i * 4) = lowest;
    }
    const int rest = count - fours * 4; /* below 7 */
    if ((int)threadIdx.x < rest) {
        const int i = (int)threadIdx.x;
        first[i < ahead ? i : i + fours * 4] = LOWEST_LOGIT;
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct indexer_clean_fill_params params) {
    const i64 parts = (params.rows - 1) / BLOCK_KEYS + 1;
    const i64 items = parts * params.tokens;
#pragma unroll 1
    for (i64 item = blockIdx.x; item < items; item += gridDim.x) {
        const int query = (int)(item / parts);
        const int first = (int)(item % parts) * BLOCK_KEYS;
        const int keys = minimum(params.rows - first, BLOCK_KEYS);
        const struct key_range window =
            window_among(params.window_begin[query], params.window_end[query], first, keys);
        const bool any = window.begin < window.end;
        float *const row = params.logits + query * params.logits_token_stride + first;
        fill(row, 0, any ? window.begin : keys);
        fill(row, any ? window.end : keys, keys);
    }
}
