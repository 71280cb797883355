/*
 * Written by smelt; do not edit. To write it again:
 *   smelt emit indexer_bwd_grains:pass=reach --arch sm_90a
 *
 * spec     indexer_bwd_grains:pass=reach
 * arch     sm_90a
 * variant  reach
 * kernel   smelt_indexer_bwd_grains_reach
 * knobs (by the spec, or by rule)
 * shared memory (offset, bytes)
 *   TOPS_OFFSET                      0       32  the largest of each warp
 *   SHARED_BYTES                    32  of 232448 that a block may have on sm_90a
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

#define KERNEL_NAME smelt_indexer_bwd_grains_reach

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

#line 2 "templates/indexer_bwd_grains.finite.cuh"

/* A size that counts, or 0: of an infinity and NaN. */
DEVICE float finite(float size) {
    return size <= 3.4028235e38f ? size : 0.0f;
}

/* A sum of such, which may have gone beyond the largest number. */
DEVICE float clamped(float sum) {
    return fminf(sum, 3.4028235e38f);
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

#line 6 "templates/indexer_bwd_grains.reach.cu"
/*
 * Deterministic backward pass of the indexer, first pass: what each member of a group adds to a row
 * of dk at most for a gradient of 1, the largest column of sum over h of |weights[h]| |q[h, :]|;
 * and of what is added at once the largest. What is not finite is left out: it gives rows that are
 * not finite either, whatever their grain.
 *
 * A warp takes a group at a time, a lane four columns; any grid is right.
 *
 * TOPS_OFFSET: [WARPS] float. One barrier, at the end.
 */

enum { WARPS = THREADS / 32, LANE_COLUMNS = 4 };

/* A query's reach; by a warp. */
DEVICE float find_reach(const struct indexer_bwd_grains_params *params, int query) {
    const int column = (int)threadIdx.x % 32 * LANE_COLUMNS;
    const bool present = column < params->dim;
    const char *const rows =
        (const char *)params->q + 2 * (query * params->q_token_stride + (present ? column : 0));
    const float *const weights = params->weights + query * params->weights_token_stride;
    float sums[LANE_COLUMNS] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 4
    for (int head = 0; head < params->heads; ++head) {
        const uint2 row = *(const uint2 *)(rows + 2 * (head * params->q_head_stride));
        const float w = fabsf(weights[head]);
        sums[0] += finite(w * __uint_as_float(row.x << 16 & 0x7fffffffu));
        sums[1] += finite(w * __uint_as_float(row.x & 0x7fff0000u));
        sums[2] += finite(w * __uint_as_float(row.y << 16 & 0x7fffffffu));
        sums[3] += finite(w * __uint_as_float(row.y & 0x7fff0000u));
    }
    const float largest = fmaxf(fmaxf(sums[0], sums[1]), fmaxf(sums[2], sums[3]));
    return clamped(warp_maximum(present ? largest : 0.0f));
}

/* The largest of a member's gradients; by a warp. */
DEVICE float find_largest(const float *grads, int count) {
    float largest = 0.0f;
#pragma unroll 4
    for (int i = (int)threadIdx.x % 32; i < count; i += 32) {
        largest = fmaxf(largest, finite(fabsf(grads[i])));
    }
    return warp_maximum(largest);
}

/* What a group adds to a row at once, at most; by a warp. */
DEVICE float visit_group(const struct indexer_bwd_grains_params *params, i64 group) {
    float sum = 0.0f;
    for (int member = 0; member < params->group_queries; ++member) {
        const i64 entry = group * params->group_queries + member;
        const int query = params->members[entry];
        const float reach = query >= 0 ? find_reach(params, query) : 0.0f;
        if (threadIdx.x % 32 == 0) {
            params->reach[entry] = reach;
        }
        if (query >= 0) {
            sum += reach *
                   find_largest(params->grads + entry * params->key_stride, params->counts[group]);
        }
    }
    return clamped(sum);
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct indexer_bwd_grains_params params) {
    float *const warps = (float *)(arena + TOPS_OFFSET);
    float largest = 0.0f;
    for (i64 group = blockIdx.x * (i64)WARPS + threadIdx.x / 32; group < params.groups;
         group += gridDim.x * (i64)WARPS) {
        largest = fmaxf(largest, visit_group(&params, group));
    }
    block_begin(warps, largest);
    __syncthreads();
    largest = block_maximum(warps);
    if (threadIdx.x == 0) {
        params.tops[blockIdx.x] = largest;
    }
}
