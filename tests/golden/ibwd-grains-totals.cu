/*
 * Written by smelt; do not edit. To write it again:
 *   smelt emit indexer_bwd_grains:pass=totals --arch sm_90a
 *
 * spec     indexer_bwd_grains:pass=totals
 * arch     sm_90a
 * variant  totals
 * kernel   smelt_indexer_bwd_grains_totals
 * knobs (by the spec, or by rule)
 * shared memory (offset, bytes)
 *   SHARED_BYTES                     0  of 232448 that a block may have on sm_90a
 * launch
 *   256 threads a block, 4 blocks resident per multiprocessor, at most 64 registers a thread
 */

enum {
    THREADS = 256,                  /* of a thread block */
    BLOCKS_PER_MULTIPROCESSOR = 4,  /* resident at once, at least */
};

/* Shared memory, in bytes from the arena's start. */
enum {
    SHARED_BYTES = 0,               /* the arena's size */
};

#define KERNEL_NAME smelt_indexer_bwd_grains_totals

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

#line 3 "templates/indexer_bwd_grains.totals.cu"
/*
 * Deterministic backward pass of the indexer, behind the main kernel, where several launches of it
 * share the groups: adds the sums of dk of its groups to those of all before. Sums are zeros again
 * for the next launch, which has grains of its own; behind the last one they are the totals.
 *
 * A thread takes four columns of a row at a time; any grid is right.
 */

enum { VECTOR_COLUMNS = 4 };

DEVICE bool is_nothing(float4 sums) {
    return sums.x == 0.0f && sums.y == 0.0f && sums.z == 0.0f && sums.w == 0.0f;
}

/* The sums at `place` of this launch and those at `total` of the ones before. */
DEVICE void add_vector(const struct indexer_bwd_grains_params *params, float4 *place,
                       float4 *total) {
    const float4 nothing = {0.0f, 0.0f, 0.0f, 0.0f};
    const float4 sums = *place;
    if (is_nothing(sums) && !params->first && !params->last) {
        return; /* of most rows, where neighbouring queries select near keys */
    }
    const float4 before = params->first ? nothing : *total;
    const float4 after = {before.x + sums.x, before.y + sums.y, before.z + sums.z,
                          before.w + sums.w};
    if (params->last) {
        *place = after;
    } else {
        *place = nothing;
        *total = after;
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct indexer_bwd_grains_params params) {
    const int vectors = params.dim / VECTOR_COLUMNS; /* of a row; THREADS is a multiple */
    const int thread = (int)(blockIdx.x * THREADS + threadIdx.x),
              threads = (int)gridDim.x * THREADS;
    float4 *place = (float4 *)params.sums + thread, *total = (float4 *)params.totals + thread;
    for (i64 row = thread / vectors; row < params.rows; row += threads / vectors) {
        add_vector(&params, place, total);
        place += threads;
        total += threads;
    }
}
