/*
 * Written by smelt; do not edit. To write it again:
 *   smelt emit sparse_attn_bwd_lists:pass=count --arch sm_90a
 *
 * spec     sparse_attn_bwd_lists:pass=count
 * arch     sm_90a
 * variant  count
 * kernel   smelt_sparse_attn_bwd_lists_count
 * knobs (by the spec, or by rule)
 * shared memory (offset, bytes)
 *   SHARED_BYTES                     0  of 232448 that a block may have on sm_90a
 * launch
 *   256 threads a block, 8 blocks resident per multiprocessor, at most 32 registers a thread
 */

enum {
    THREADS = 256,                  /* of a thread block */
    BLOCKS_PER_MULTIPROCESSOR = 8,  /* resident at once, at least */
};

/* Shared memory, in bytes from the arena's start. */
enum {
    SHARED_BYTES = 0,               /* the arena's size */
};

#define KERNEL_NAME smelt_sparse_attn_bwd_lists_count

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

#line 2 "templates/ptx/atomic.cuh"

/* One thread after another changes a word; the result is what was there before. Nothing else is
 * ordered by it (PTX ISA, "atom", "red", .relaxed). Shared memory is named by 32-bit addresses
 * (ptx/shared.cuh). */
DEVICE u32 atomic_or_shared(u32 address, u32 bits) {
    u32 before;
    asm volatile("atom.relaxed.cta.shared.or.b32 %0, [%1], %2;"
                 : "=r"(before)
                 : "r"(address), "r"(bits)
                 : "memory");
    return before;
}

DEVICE u32 atomic_add_shared(u32 address, u32 value) {
    u32 before;
    asm volatile("atom.relaxed.cta.shared.add.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "r"(address), "r"(value)
                 : "memory");
    return before;
}

DEVICE u32 atomic_add_global(u32 *to, u32 value) {
    u32 before;
    asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(to), "r"(value)
                 : "memory");
    return before;
}

/* Without a result: nobody waits for it. */
DEVICE void reduce_add_global(u32 *to, u32 value) {
    asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" : : "l"(to), "r"(value) : "memory");
}

#line 1 "templates/common/work.params.h"
/*
 * Which queries a kernel computes and where their index rows are: the part of the arguments that
 * all kernels driven by queries have in common, what common/work.cuh reads. Included by the host
 * code and, by the generator, by the CUDA source: plain C types only. Strides count elements.
 */
struct work_params {
    const int *indices;     /* [batches, tokens, width] */
    const int *topk_length; /* [batches, tokens] or null */
    const int *queries;     /* query list: batch * tokens + token, or null for all queries */
    const int *query_count; /* its length in device memory, or null for query_capacity */
    const int *query_range; /* the first entry to take and how many, in device memory, instead of
                               query_count; or null */
    const int *extents;     /* with entry i of `queries`: slots up to its last valid one; or null */
    long long indices_batch_stride, indices_token_stride;
    long long topk_length_batch_stride, topk_length_token_stride;
    int batches, tokens, rows, width;
    int query_capacity; /* entries of `queries`, or batches * tokens */
    int overlaps;       /* 1: launched early, behind a kernel of the same call: all it reads was
                           there when it began, and it must not end before that one */
};

#line 2 "templates/sparse_attn_bwd_lists.params.h"
/*
 * Arguments of the sparse_attn_bwd_lists kernels. Included by the host code (behind
 * common/work.params.h) and, by the generator, by the CUDA source: plain C types only. See
 * sparse_attn_bwd.params.h for what groups and keys are.
 */

/* Of the pass `group`: each group's list of keys. */
struct sparse_attn_bwd_lists_params {
    struct work_params work;
    const int *last_range; /* with buckets: the work range of the last of them, with which the list
                              ends; work.query_range is then null. Or null */
    int *members;          /* [groups, group_queries] */
    int *counts;           /* [groups] */
    int *keys;             /* [groups, key_stride] */
    unsigned char *masks;  /* [groups, key_stride]; not written when group_queries is 1 */
    float *zeros;          /* [zero_vectors, 4] is filled with zeros, too: what the main kernel adds
                              to */
    long long zero_vectors;
    int groups;        /* entry i of the query list is member i % group_queries of group
                          i / group_queries */
    int group_queries; /* 1, 2, 4 or 8 */
    int key_stride;    /* a multiple of 64, at least group_queries * min(width, topk) */
    int topk;          /* valid slots of a query, at most */
    int ascending;     /* 1: lists are put into ascending order. Lists of several queries are
                          always */
};

/*
 * Of the passes `count`, `scan` and `place`, which turn the lists of `groups` groups, from
 * first_group on, around, chunk by chunk: for each key the partial rows that are its own, by their
 * numbers (group of the chunk) * key_stride + place in the group's list, in the groups' order. A
 * column is a key of a chunk, number chunk * key_count + key. groups * key_stride and parts *
 * columns stay below 2^31. Equal keys of one list: in its order where `united` says that their rows
 * may differ, else in any.
 */
struct sparse_attn_bwd_segments_params {
    const int *counts; /* as above, from the first group of all on */
    const int *keys;
    int *cursors; /* [parts, columns] of a part's groups: how many partial rows a key has, zeros
                     ahead of `count`; then where they go */
    int *starts;  /* [columns + 1] where a column's begin in `entries` */
    int *entries; /* [groups * key_stride] */
    int *sums;    /* [scan_blocks] scratch of the scan: partial rows of each block's columns */
    int first_group, groups;
    int chunk;  /* groups of a chunk; the last may have fewer */
    int chunks; /* columns / key_count */
    int part;   /* groups of a part */
    int parts;  /* of a chunk */
    int key_stride;
    int key_count; /* batches * rows */
    int columns;
    int united;    /* 1: the lists are of several queries each */
    int scan_step; /* of the pass `scan`, which is launched twice: 0 sums up, 1 places */
    int scan_rows; /* threads of the scan that share a column's parts: a power of two, at most
                      THREADS / 32 */
    int scan_keys; /* of a block of the scan: a multiple of its THREADS / scan_rows */
    int scan_blocks;
};

#line 4 "templates/sparse_attn_bwd_lists.count.cu"
/*
 * Deterministic backward pass, lists by keys, first pass: how many partial rows each part's groups
 * have of each key. What is written: sparse_attn_bwd_lists.params.h, cursors.
 *
 * Any grid is right. A block takes a group at a time, a thread VECTOR keys of its list: lists are
 * padded with -1 to a multiple of that.
 */

enum { VECTOR = 4 /* keys of 16 bytes */ };

DEVICE void count_key(u32 *cursors, int key) {
    if (key >= 0) {
        reduce_add_global(cursors + key, 1);
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct sparse_attn_bwd_segments_params params) {
    for (int group = (int)blockIdx.x; group < params.groups; group += (int)gridDim.x) {
        const i64 list = (i64)params.first_group + group;
        const int4 *const keys = (const int4 *)(params.keys + list * params.key_stride);
        const int vectors = (params.counts[list] + VECTOR - 1) / VECTOR;
        const int chunk = group / params.chunk, part = group % params.chunk / params.part;
        u32 *const cursors =
            (u32 *)params.cursors + part * params.columns + chunk * params.key_count;
        for (int i = (int)threadIdx.x; i < vectors; i += THREADS) {
            const int4 vector = keys[i];
            count_key(cursors, vector.x);
            count_key(cursors, vector.y);
            count_key(cursors, vector.z);
            count_key(cursors, vector.w);
        }
    }
}
