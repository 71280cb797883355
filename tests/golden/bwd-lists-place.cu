/*
 * Written by smelt; do not edit. To write it again:
 *   smelt emit sparse_attn_bwd_lists:pass=place --arch sm_80
 *
 * spec     sparse_attn_bwd_lists:pass=place
 * arch     sm_80
 * variant  place
 * kernel   smelt_sparse_attn_bwd_lists_place
 * knobs (by the spec, or by rule)
 * shared memory (offset, bytes)
 *   FIRSTS_OFFSET                    0       64  where each warp found a list's second part
 *   SHARED_BYTES                    64  of 166912 that a block may have on sm_80
 * launch
 *   512 threads a block, 2 blocks resident per multiprocessor, at most 64 registers a thread
 */

enum {
    THREADS = 512,                  /* of a thread block */
    BLOCKS_PER_MULTIPROCESSOR = 2,  /* resident at once, at least */
};

/* Shared memory, in bytes from the arena's start. */
enum {
    FIRSTS_OFFSET = 0,              /* where each warp found a list's second part */
    SHARED_BYTES = 64,              /* the arena's size */
};

#define KERNEL_NAME smelt_sparse_attn_bwd_lists_place

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

#line 2 "templates/common/lanes.cuh"

/* Reductions over `lanes` neighbouring threads of a warp, a power of two: the same result in each
 * of them. The whole warp takes part. */

DEVICE int lanes_sum(int value, int lanes) {
    for (int step = lanes / 2; step > 0; step /= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, step);
    }
    return value;
}

DEVICE int lanes_maximum(int value, int lanes) {
    for (int step = lanes / 2; step > 0; step /= 2) {
        value = maximum(value, __shfl_xor_sync(0xffffffffu, value, step));
    }
    return value;
}

/* (The largest of the negated values would do, but for ptxas of CUDA 13.0: of -a in the smallest of
 * three it drops the sign.) */
DEVICE int lanes_minimum(int value, int lanes) {
    for (int step = lanes / 2; step > 0; step /= 2) {
        value = minimum(value, __shfl_xor_sync(0xffffffffu, value, step));
    }
    return value;
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

/* 16 bytes of shared memory at once, 16-byte aligned (PTX ISA, "ld", "st", .shared). */
DEVICE void load_shared_16(u32 *values, u32 address) {
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(values[0]), "=r"(values[1]), "=r"(values[2]), "=r"(values[3])
                 : "r"(address)
                 : "memory");
}

DEVICE void store_shared_16(u32 address, const u32 *values) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};"
                 :
                 : "r"(address), "r"(values[0]), "r"(values[1]), "r"(values[2]), "r"(values[3])
                 : "memory");
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

#line 6 "templates/sparse_attn_bwd_lists.place.cu"
/*
 * Deterministic backward pass, lists by keys, third pass: writes the numbers of each key's partial
 * rows. What is written: sparse_attn_bwd_lists.params.h, entries.
 *
 * A block takes a part of a chunk at a time and goes through its groups in order, so that a key's
 * entries come in the groups' order; any grid is right. Each thread asks the key's cursor for its
 * entry's place.
 *
 * In a list of several queries (sparse_attn_bwd_lists.group.cu) no key stands twice up to the first
 * that is not greater than the one before it. The entries from there on, which are in order, follow
 * a barrier later: each by its distance from the first of its key, and the last of them moves the
 * cursor on.
 *
 * Shared memory: FIRSTS [WARPS] int: where each warp found the second part.
 *
 * Barriers of a group: FIRSTS are there; the first part is placed; the second has read its cursors;
 * they have moved on.
 */

enum { WARPS = THREADS / 32, VECTOR = 4 /* keys of 16 bytes */, NO_PLACE = 0x7fffffff };

/* A group's list, and the vector of it that is this thread's first. */
struct list {
    const int *keys;
    int count;
    int first_entry; /* number of its first entry */
    int4 vector;
};

DEVICE struct list open_list(const struct sparse_attn_bwd_segments_params *params, int group) {
    const i64 number = (i64)params->first_group + group;
    const int4 nothing = {-1, -1, -1, -1};
    struct list list = {params->keys + number * params->key_stride, params->counts[number],
                        group % params->chunk * params->key_stride, nothing};
    if ((int)threadIdx.x * VECTOR < params->key_stride) {
        list.vector = *(const int4 *)(list.keys + threadIdx.x * VECTOR);
    }
    return list;
}

/* Where the second part begins, or the list's end; the same in all threads. Barriers. */
DEVICE int find_second_part(const struct list *list) {
    int *const firsts = (int *)(arena + FIRSTS_OFFSET);
    int first = NO_PLACE;
    for (int i = (int)threadIdx.x + 1; i < list->count && first == NO_PLACE; i += THREADS) {
        first = list->keys[i] <= list->keys[i - 1] ? i : first;
    }
    if (!__syncthreads_or(first != NO_PLACE)) {
        return list->count;
    }
    first = lanes_minimum(first, 32);
    if (threadIdx.x % 32 == 0) {
        firsts[threadIdx.x / 32] = first;
    }
    __syncthreads();
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
        first = minimum(first, firsts[w]);
    }
    return first;
}

/* VECTOR entries of a list from number `begin` on, as far as they lie before `end`. */
DEVICE void place_vector(const struct sparse_attn_bwd_segments_params *params, u32 *cursors,
                         const struct list *list, int4 vector, int begin, int end) {
    const int keys[VECTOR] = {vector.x, vector.y, vector.z, vector.w};
    u32 places[VECTOR];
#pragma unroll
    for (int i = 0; i < VECTOR; ++i) {
        places[i] = begin + i < end ? atomic_add_global(cursors + keys[i], 1) : 0;
    }
#pragma unroll
    for (int i = 0; i < VECTOR; ++i) {
        if (begin + i < end) {
            params->entries[places[i]] = list->first_entry + begin + i;
        }
    }
}

/* The entries before `end`. */
DEVICE void place_first_part(const struct sparse_attn_bwd_segments_params *params, u32 *cursors,
                             const struct list *list, int end) {
    const int begin = (int)threadIdx.x * VECTOR;
    place_vector(params, cursors, list, list->vector, begin, end);
    for (int i = begin + THREADS * VECTOR; i < end; i += THREADS * VECTOR) {
        place_vector(params, cursors, list, *(const int4 *)(list->keys + i), i, end);
    }
}

/* The first entry from `begin` on of the key that entry `end` has, in a part that ascends. */
DEVICE int find_first(const struct list *list, int begin, int end) {
    const int key = list->keys[end];
    while (begin < end) {
        const int middle = begin + (end - begin) / 2;
        if (list->keys[middle] < key) {
            begin = middle + 1;
        } else {
            end = middle;
        }
    }
    return begin;
}

/* The entries from `begin` on. */
DEVICE void place_second_part(const struct sparse_attn_bwd_segments_params *params, u32 *cursors,
                              const struct list *list, int begin) {
    for (int i = begin + (int)threadIdx.x; i < list->count; i += THREADS) {
        const u32 cursor = load_l2_32(cursors + list->keys[i]);
        params->entries[cursor + (u32)(i - find_first(list, begin, i))] = list->first_entry + i;
    }
    __syncthreads();
    for (int i = begin + (int)threadIdx.x; i < list->count; i += THREADS) {
        const int key = list->keys[i];
        if (i + 1 == list->count || list->keys[i + 1] != key) {
            reduce_add_global(cursors + key, (u32)(i + 1 - find_first(list, begin, i)));
        }
    }
    __syncthreads();
}

DEVICE void place_part(const struct sparse_attn_bwd_segments_params *params, int chunk, int part) {
    u32 *const cursors =
        (u32 *)params->cursors + part * params->columns + chunk * params->key_count;
    const int first = chunk * params->chunk + part * params->part;
    const int chunk_end = minimum((chunk + 1) * params->chunk, params->groups);
    const int end = minimum(first + params->part, chunk_end);
    if (first >= end) {
        return;
    }
    struct list list = open_list(params, first);
    for (int group = first; group < end; ++group) {
        const struct list next = open_list(params, minimum(group + 1, end - 1));
        const int second = params->united ? find_second_part(&list) : list.count;
        place_first_part(params, cursors, &list, second);
        __syncthreads();
        if (second < list.count) {
            place_second_part(params, cursors, &list, second);
        }
        list = next;
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct sparse_attn_bwd_segments_params params) {
    const int parts = params.chunks * params.parts;
    for (int part = (int)blockIdx.x; part < parts; part += (int)gridDim.x) {
        place_part(&params, part / params.parts, part % params.parts);
    }
}
