/*
 * Written by smelt; do not edit. To write it again:
 *   smelt emit indexer_bwd_grains:pass=grains --arch sm_80
 *
 * spec     indexer_bwd_grains:pass=grains
 * arch     sm_80
 * variant  grains
 * kernel   smelt_indexer_bwd_grains_grains
 * knobs (by the spec, or by rule)
 * shared memory (offset, bytes)
 *   TOPS_OFFSET                      0       32  the largest of each warp
 *   SHARED_BYTES                    32  of 166912 that a block may have on sm_80
 * launch
 *   256 threads a block, 4 blocks resident per multiprocessor, at most 64 registers a thread
 */

enum {
    THREADS = 256,                  /* of a thread block */
    BLOCKS_PER_MULTIPROCESSOR = 4,  /* resident at once, at least */
};

/* Shared memory, in bytes from the arena's start. */
enum {
    TOPS_OFFSET = 0,                /* the largest of each warp */
    SHARED_BYTES = 32,              /* the arena's size */
};

#define KERNEL_NAME smelt_indexer_bwd_grains_grains

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

#line 1 "templates/indexer_bwd_grains.params.h"
/*
 * Arguments of the indexer_bwd_grains kernels, which find the grains of dk's rows
 * (common/grain.cuh). Included by the host code and, by the generator, by the CUDA source: plain C
 * types only. Strides count elements. See indexer_bwd_main.params.h for groups and lists: these are
 * the ones of one launch of the main kernel.
 */
struct indexer_bwd_grains_params {
    const void *q;        /* [tokens, heads, dim] bf16 */
    const float *weights; /* [tokens, heads] */
    const int *members;   /* [groups, group_queries] */
    const int *counts;    /* [groups] */
    const int *keys;      /* [groups, key_stride] no key twice in a list */
    const float *grads;   /* [groups, group_queries, key_stride] */
    float *reach;     /* [groups, group_queries] what a member adds to a row of dk at most, in any
                         column, for a gradient of 1 */
    float *tops;      /* [top_count] of what is added to a row at once the largest, of some groups
                         each: a block of the pass `reach` writes one */
    unsigned *bounds; /* [rows, 2] sums of what is added, in units: coarse ones, fine ones; zeros
                         ahead of the pass `bounds` */
    float *grains;    /* [rows] */
    float *sums;      /* [rows, dim] of dk, of this launch's groups; columns in any order */
    float *totals;    /* [rows, dim] of the groups before; columns likewise */
    long long q_token_stride, q_head_stride;
    long long weights_token_stride;
    int heads, dim; /* dim: 64 or 128 */
    int rows;
    int groups, group_queries, key_stride;
    int top_count;   /* the blocks of the pass `reach` */
    int first, last; /* which of the launches that share the groups this one is */
    /* The largest of all is 2^(bits - 1) to 2^bits coarse units; groups * 2^bits stay below 2^31.
     * At least 2, so that the inverse of every unit is a normal number. */
    int bits;
};

#line 2 "templates/common/warp_sums.cuh"

/* The sum and the maximum of a float of each lane, the same bits in all of them. By whole warps. */

DEVICE float warp_sum(float value) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, step);
    }
    return value;
}

DEVICE float warp_maximum(float value) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, step));
    }
    return value;
}

#line 3 "templates/common/block_sums.cuh"

/*
 * The sum and the maximum of a float of each thread, the same bits in all of them, in an order that
 * THREADS alone fixes. `warps`: a float of each warp, in shared memory. block_begin by all threads;
 * a barrier; block_sum or block_maximum by whole warps.
 */

/* `own`: the same in all lanes of a warp. */
DEVICE void block_begin(float *warps, float own) {
    if (threadIdx.x % 32 == 0) {
        warps[threadIdx.x / 32] = own;
    }
}

DEVICE float block_sum(const float *warps) {
    const int lane = (int)threadIdx.x % 32;
    return warp_sum(lane < THREADS / 32 ? warps[lane] : 0.0f);
}

DEVICE float block_maximum(const float *warps) {
    const int lane = (int)threadIdx.x % 32;
    return warp_maximum(warps[lane < THREADS / 32 ? lane : 0]);
}

#line 4 "templates/indexer_bwd_grains.unit.cuh"
/*
 * The units that bounds are counted in, powers of two: coarse ones, of which the largest of all
 * addends has params.bits, and fine ones. As fp32's exponent fields; where one would end below 0,
 * addends are too small for it to matter.
 *
 * TOPS_OFFSET: [WARPS] float.
 */

enum { EXPONENT_ONE = 127, EXPONENT_MOST = 254, MANTISSA_BITS = 23 };

/* Kinds of units. A coarse one is 2^FINER fine ones: what comes to more than 2^bits of these is at
 * least 2^(bits - FINER) coarse ones, 64 of as many groups as there are by rule. */
enum { COARSE, FINE, UNITS };
enum { FINER = 12 };

/* The exponent field of 1 / unit of a kind, out of the coarse one's. */
DEVICE int scale_exponent(int scale, int kind) {
    return kind == COARSE ? scale : minimum(scale + FINER, EXPONENT_MOST);
}

DEVICE float scale_of(int scale, int kind) {
    return __uint_as_float((u32)scale_exponent(scale, kind) << MANTISSA_BITS);
}

/* The exponent field of 1 / coarse unit, the same in all threads; a barrier. */
DEVICE int find_scale(const struct indexer_bwd_grains_params *params) {
    float *const warps = (float *)(arena + TOPS_OFFSET);
    float largest = 0.0f;
    for (int i = (int)threadIdx.x; i < params->top_count; i += THREADS) {
        largest = fmaxf(largest, params->tops[i]);
    }
    block_begin(warps, warp_maximum(largest));
    __syncthreads();
    const int exponent = (int)(__float_as_uint(block_maximum(warps)) >> MANTISSA_BITS);
    /* largest < 2^(exponent - EXPONENT_ONE + 1) */
    return minimum(2 * EXPONENT_ONE - 1 + params->bits - exponent, EXPONENT_MOST);
}

#line 4 "templates/indexer_bwd_grains.grains.cu"
/*
 * Deterministic backward pass of the indexer, third pass: each key's grain out of the bounds of
 * what is added to its row. A quarter more makes room for what rounding to u adds, half a u an
 * addend, of which there are fewer than 2^21.
 *
 * A thread takes a key at a time; any grid is right.
 */

enum { LEAST_EXPONENT = 24 /* 2^23 times the least normal number */ };

/* 2^23 times the least u such that the bound is below 2^24 u; unit: as an exponent field. */
DEVICE float find_grain(u32 bound, int unit) {
    const int digits = 32 - __clz(bound + bound / 4 + 1);
    const int exponent = minimum(maximum(unit + digits - 1, LEAST_EXPONENT), EXPONENT_MOST);
    return bound > 0 ? __uint_as_float((u32)exponent << MANTISSA_BITS) : 0.0f;
}

/* Out of a row's units: fine ones count as coarse ones, rounded up, where there are any of these.
 */
DEVICE float key_grain(const uint2 *bounds, int scale) {
    const int coarse = scale_exponent(scale, COARSE), fine = scale_exponent(scale, FINE);
    const uint2 units = *bounds; /* COARSE, FINE */
    return units.x > 0
               ? find_grain(units.x + (units.y >> (fine - coarse)) + 1, 2 * EXPONENT_ONE - coarse)
               : find_grain(units.y, 2 * EXPONENT_ONE - fine);
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct indexer_bwd_grains_params params) {
    const int scale = find_scale(&params);
    for (i64 key = blockIdx.x * (i64)THREADS + threadIdx.x; key < params.rows;
         key += gridDim.x * (i64)THREADS) {
        params.grains[key] = key_grain((const uint2 *)params.bounds + key, scale);
    }
}
