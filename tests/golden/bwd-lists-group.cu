/*
 * Written by smelt; do not edit. To write it again:
 *   smelt emit sparse_attn_bwd_lists:pass=group --arch sm_90a
 *
 * spec     sparse_attn_bwd_lists:pass=group
 * arch     sm_90a
 * variant  group
 * kernel   smelt_sparse_attn_bwd_lists_group
 * knobs (by the spec, or by rule)
 * shared memory (offset, bytes)
 *   MAP_OFFSET                       0    49152  a bit for each row and member
 *   MEMBERS_OFFSET               49152      128  the group's queries
 *   COUNTS_OFFSET                49280       32  keys in each warp's part
 *   AGAIN_OFFSET                 49312        4  keys named again
 *   SHARED_BYTES                 49316  of 232448 that a block may have on sm_90a
 * launch
 *   256 threads a block, 4 blocks resident per multiprocessor, at most 64 registers a thread
 *   grid: 1 block a group, but no more than are resident at once
 *   persistent: in a grid-stride loop a block does the work of several
 */

enum {
    THREADS = 256,                  /* of a thread block */
    BLOCKS_PER_MULTIPROCESSOR = 4,  /* resident at once, at least */
    DEPENDENT_LAUNCH = 1,           /* 1: lets the next kernel begin beside it */
    LOADS = 4,                      /* of 16 bytes that a thread has under way */
    MAP_BYTES = 49152,              /* of the map */
    MOST_WINDOWS = 16,              /* of the map that the rows may need */
    LIST_STEP = 64,                 /* lists are padded to a multiple of it */
};

/* Shared memory, in bytes from the arena's start. */
enum {
    MAP_OFFSET = 0,                 /* a bit for each row and member */
    MEMBERS_OFFSET = 49152,         /* the group's queries */
    COUNTS_OFFSET = 49280,          /* keys in each warp's part */
    AGAIN_OFFSET = 49312,           /* keys named again */
    SHARED_BYTES = 49316,           /* the arena's size */
};

#define KERNEL_NAME smelt_sparse_attn_bwd_lists_group

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

/* (Not the smallest by negated values: of -a in the smallest of three ptxas of CUDA 13.0 drops the
 * sign.) */
DEVICE int lanes_maximum(int value, int lanes) {
    for (int step = lanes / 2; step > 0; step /= 2) {
        value = maximum(value, __shfl_xor_sync(0xffffffffu, value, step));
    }
    return value;
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

#line 4 "templates/common/queries.cuh"
/*
 * Which entries of the query list a kernel takes, and a query's index row. The list and what
 * belongs to it are read past L1: an earlier kernel of the stream may have written them while this
 * one began.
 */

/* A part of the list. */
struct query_range {
    int first; /* entry */
    int queries;
};

DEVICE struct query_range find_query_range(const struct work_params *params) {
    struct query_range range = {0, params->query_capacity};
    if (params->query_range) {
        range.first = (int)load_l2_32(&params->query_range[0]);
        range.queries = (int)load_l2_32(&params->query_range[1]);
    } else if (params->query_count) {
        range.queries = maximum(minimum((int)load_l2_32(params->query_count), range.queries), 0);
    }
    return range;
}

/* A query's batch, without a division in the common case of one. */
DEVICE int query_batch(const struct work_params *params, int query) {
    return params->batches > 1 ? query / params->tokens : 0;
}

/* Where a query's index row begins. */
DEVICE const int *index_row(const struct work_params *params, int query) {
    const int batch = query_batch(params, query), token = query - batch * params->tokens;
    return params->indices + batch * params->indices_batch_stride +
           token * params->indices_token_stride;
}

/* How many of its slots are to be looked at: up to the last valid one where the list tells it, else
 * the width, cut by topk_length. `entry`: of the list, the query's. */
DEVICE int index_slots(const struct work_params *params, int entry, int query) {
    if (params->extents) {
        return (int)load_l2_32(&params->extents[entry]);
    }
    if (!params->topk_length) {
        return params->width;
    }
    const int batch = query_batch(params, query), token = query - batch * params->tokens;
    const int length = params->topk_length[batch * params->topk_length_batch_stride +
                                           token * params->topk_length_token_stride];
    return minimum(maximum(length, 0), params->width);
}

#line 2 "templates/common/zeros.cuh"
/*
 * What kernels behind this one add to begins as zeros: each block fills its share, in any grid.
 */

/* `vectors` of four floats, at a multiple of 16 bytes; by all threads of all blocks. */
DEVICE void fill_zeros(float *begin, i64 vectors) {
    const float4 zeros = {0.0f, 0.0f, 0.0f, 0.0f};
    float4 *const end = (float4 *)begin + vectors;
    for (float4 *at = (float4 *)begin + blockIdx.x * THREADS + threadIdx.x; at < end;
         at += gridDim.x * THREADS) {
        *at = zeros;
    }
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

/* Without a result: nobody waits for it. */
DEVICE void reduce_add_global(u32 *to, u32 value) {
    asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" : : "l"(to), "r"(value) : "memory");
}

#line 2 "templates/ptx/grid.cuh"

/* Lets the next kernel of the stream start, when all blocks have said so or ended; nothing is
 * promised about this one's results (PTX ISA, "griddepcontrol"). Without effect where the launch
 * did not ask for it. */
DEVICE void grid_launch_dependents(void) {
    asm volatile("griddepcontrol.launch_dependents;" : : : "memory");
}

/* Waits until the kernels before this one in the stream are complete and their results visible. */
DEVICE void grid_wait(void) {
    asm volatile("griddepcontrol.wait;" : : : "memory");
}

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
    int *firsts;           /* [groups] keys of the list's first part, which ascend strictly; those
                              behind it ascend. Or null: lists of one query may be in any order */
    int *keys;             /* [groups, key_stride] */
    unsigned char *masks;  /* [groups, key_stride]; not written when group_queries is 1 */
    float *zeros;          /* [zero_vectors, 4] is filled with zeros, too: what the main kernel adds
                              to */
    long long zero_vectors;
    int groups;        /* entry i of the query list is member i % group_queries of group
                          i / group_queries */
    int group_queries; /* 1, 2, 4 or 8 */
    int key_stride;    /* from list to list, a multiple of 4: at least group_queries *
                          min(width, topk), up to a multiple of 64 */
    int copies;        /* of a list that there are to be: the first one and, copy_stride apart, */
    int copy_stride;   /* others behind it; without masks */
    int topk;          /* valid slots of a query, at most */
    int ascending;     /* 1: lists are put into ascending order. Lists of several queries are
                          always, and all are where there is `firsts` */
};

/*
 * Of the pass `turn`, which turns the lists of `groups` groups, from first_group on, around, chunk
 * by chunk: for each key the partial rows that are its own, by their numbers (group of the chunk) *
 * key_stride + place in the group's list, in the groups' order and in each list's. groups *
 * key_stride stays below 2^31.
 */
struct sparse_attn_bwd_segments_params {
    const int *counts; /* as above, from the first group of all on */
    const int *firsts;
    const int *keys;
    int *starts;  /* [chunks, key_count + 1] where a key's begin in `entries`, and where the last
                     one's end */
    int *entries; /* [groups * key_stride]; a chunk's begin at its first group's */
    int first_group, groups;
    int chunk;  /* groups of a chunk; the last may have fewer */
    int chunks; /* that there are */
    int key_stride;
    int key_count; /* batches * rows */
};

#line 5 "templates/sparse_attn_bwd_lists.queries.cuh"
/*
 * Which query each entry is that the backward pass takes, for the kernels that take groups of them.
 */

/* The query of entry number `item` of those taken, or -1; `entry`: where it stands in the query
 * list. last_range: as sparse_attn_bwd_lists.params.h has it. */
DEVICE int find_query(const struct work_params *work, const int *last_range, u32 item, int *entry) {
    struct query_range range = find_query_range(work);
    if (last_range) {
        range.queries = (int)load_l2_32(&last_range[0]) + (int)load_l2_32(&last_range[1]);
    }
    *entry = 0;
    if (range.queries <= 0 || item >= (u32)range.queries) {
        return -1;
    }
    *entry = range.first + (int)item;
    const int query = work->queries ? (int)load_l2_32(&work->queries[*entry]) : *entry;
    return query >= 0 && query < work->batches * work->tokens ? query : -1;
}

#line 2 "templates/ptx/stream.cuh"

/* 16 bytes of global memory that no thread writes while the kernel runs, nor reads again soon: they
 * take no place in L1 (PTX ISA, "ld.global.nc", .L1::no_allocate). The address is a multiple of 16.
 */
DEVICE void load_streaming_16(u32 *values, const void *from) {
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(values[0]), "=r"(values[1]), "=r"(values[2]), "=r"(values[3])
        : "l"(from));
}

#line 4 "templates/sparse_attn_bwd_lists.slots.cuh"
/*
 * Index rows in slot order, by one warp: LOADS times 32 * VECTOR slots under way. A row may start
 * at any multiple of 4 bytes: what lies before its first and behind its last multiple of 16 is read
 * slot by slot.
 */

enum { VECTOR = 4 /* slots of 16 bytes */, MASKED = -1, ALL_LANES = -1 };

/* A row cut at its multiples of 16 bytes: so many slots ahead of the first; then vectors. */
struct row_parts {
    int head, vectors;
};

DEVICE struct row_parts cut_row(const int *row, int slots) {
    const int past = (int)((u64)row / sizeof(int) % VECTOR);
    struct row_parts parts;
    parts.head = minimum((VECTOR - past) % VECTOR, slots);
    parts.vectors = (slots - parts.head) / VECTOR;
    return parts;
}

/* A row's walk so far, the same in all lanes. */
struct walk {
    int *keys;     /* where its valid slots' keys go; null: they are only counted */
    u32 rows;      /* an index is valid below; a negative one is a large one here */
    int first_key; /* of row 0 of the batch */
    int most;      /* valid slots that are taken */
    int count;     /* valid slots so far, taken or not */
    int end;       /* without `keys`, of this lane: 1 + its last slot that is taken */
};

DEVICE void take_slot(struct walk *walk, u32 index, int place, int slot) {
    if (index >= walk->rows || place >= walk->most) {
        return;
    }
    if (walk->keys) {
        walk->keys[place] = walk->first_key + (int)index;
    } else {
        walk->end = slot + 1;
    }
}

/* A vector of each lane, side by side; the lane's own is slot `slot` and those behind it. */
DEVICE void take_vectors(struct walk *walk, const u32 *indices, int slot) {
    const u32 before = (1u << threadIdx.x % 32) - 1u;
    int place = walk->count, valid = 0;
#pragma unroll
    for (int k = 0; k < VECTOR; ++k) {
        const u32 votes = __ballot_sync((u32)ALL_LANES, indices[k] < walk->rows);
        place += __popc(votes & before);
        valid += __popc(votes);
    }
    walk->count += valid;
    if (walk->keys && valid == 32 * VECTOR && place % VECTOR == 0 && walk->count <= walk->most) {
        const int4 keys = {walk->first_key + (int)indices[0], walk->first_key + (int)indices[1],
                           walk->first_key + (int)indices[2], walk->first_key + (int)indices[3]};
        *(int4 *)(walk->keys + place) = keys;
        return;
    }
#pragma unroll
    for (int k = 0; k < VECTOR; ++k) {
        take_slot(walk, indices[k], place, slot + k);
        place += indices[k] < walk->rows;
    }
}

/* At most VECTOR slots, one a lane. */
DEVICE void take_few(struct walk *walk, const int *row, int slot, int slots) {
    const int lane = (int)threadIdx.x % 32;
    const u32 index = lane < slots ? (u32)row[slot + lane] : (u32)MASKED;
    const u32 votes = __ballot_sync((u32)ALL_LANES, index < walk->rows);
    take_slot(walk, index, walk->count + __popc(votes & ((1u << lane) - 1u)), slot + lane);
    walk->count += __popc(votes);
}

/* All of a row, or as far as slots are taken. */
DEVICE void walk_row(struct walk *walk, const int *row, int slots) {
    const int lane = (int)threadIdx.x % 32;
    const struct row_parts parts = cut_row(row, slots);
    take_few(walk, row, 0, parts.head);
    for (int begin = 0; begin < parts.vectors && walk->count < walk->most; begin += 32 * LOADS) {
        u32 indices[LOADS][VECTOR];
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            const int vector = begin + i * 32 + lane;
            indices[i][0] = indices[i][1] = indices[i][2] = indices[i][3] = (u32)MASKED;
            if (vector < parts.vectors) {
                load_streaming_16(indices[i], row + parts.head + vector * VECTOR);
            }
        }
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            take_vectors(walk, indices[i], parts.head + (begin + i * 32 + lane) * VECTOR);
        }
    }
    const int tail = parts.head + parts.vectors * VECTOR;
    take_few(walk, row, tail, slots - tail);
}

#line 2 "templates/sparse_attn_bwd_lists.sort.cuh"
/*
 * Sorting of a list's entries where they are, in global memory, by the whole block: ascending by
 * key, then by mask. For what is rare: keys that a member names several times, and rows of which
 * there are more than maps can hold. Batcher's bitonic network (K. E. Batcher, Sorting networks and
 * their applications, 1968), every comparison ascending, so that it holds for any number of
 * entries: those past the end count as the largest.
 */

/* Puts two entries in order. */
DEVICE void sort_pair(int *keys, unsigned char *masks, u32 low, u32 high) {
    const int key = keys[low], other_key = keys[high];
    const unsigned char mask = masks ? masks[low] : 0, other_mask = masks ? masks[high] : 0;
    if (key < other_key || (key == other_key && mask <= other_mask)) {
        return;
    }
    keys[low] = other_key;
    keys[high] = key;
    if (masks) {
        masks[low] = other_mask;
        masks[high] = mask;
    }
}

/* One step: entries `stride` apart in runs of 2 * stride, or mirrored in them. */
DEVICE void sort_step(int *keys, unsigned char *masks, u32 count, u32 stride, bool mirrored) {
    for (u32 i = threadIdx.x;; i += THREADS) {
        const u32 low = i / stride * (2 * stride) + i % stride;
        const u32 high = mirrored ? low + 2 * (stride - i % stride) - 1 : low + stride;
        if (low >= count) {
            break;
        }
        if (high < count) {
            sort_pair(keys, masks, low, high);
        }
    }
    __syncthreads();
}

/* masks: null where there are none. The entries were written before the block's last barrier; it
 * ends with one, if there was anything to do. */
DEVICE void sort_entries(int *keys, unsigned char *masks, u32 count) {
    for (u32 run = 1; run < count; run *= 2) {
        sort_step(keys, masks, count, run, true);
        for (u32 stride = run / 2; stride > 0; stride /= 2) {
            sort_step(keys, masks, count, stride, false);
        }
    }
}

#line 12 "templates/sparse_attn_bwd_lists.group.cu"
/*
 * Backward pass of sparse attention, ahead of the main kernel: each group's list of keys, out of
 * its queries' index rows; and the zeros that the main kernel adds to. What is written:
 * sparse_attn_bwd_lists.params.h.
 *
 * Any grid is right: what is written depends on the arguments alone. The kernel behind it in the
 * stream may begin beside it.
 *
 * Lists of one query in slot order: a warp a group. It copies the row's valid slots, keeping what
 * 32 lanes read in its place by votes.
 *
 * Ascending lists and those of several queries: a block a group. A map in shared memory has a bit
 * for each member and row, of as many rows at a time as it holds (a window): the members' slots set
 * bits in any order, and reading the map gives the list, ascending, with its masks. Batches and
 * windows follow each other in ascending order. A bit found set belongs to a slot that names a row
 * again. Where there was one, the windows are gone through once more and those slots' keys put
 * behind the others', one entry each, and sorted there. So a list is
 *     keys strictly ascending, then keys ascending, equal ones in the order of their masks,
 * and the second part begins at the first key that is not greater than the one before it. Lists of
 * more than MOST_WINDOWS windows are their second part alone, of a single bit each (of one query:
 * in slot order, unless `firsts` wants them ascending).
 *
 * A query with more valid slots than params.topk: its row is cut behind the last one that counts,
 * found by a warp.
 *
 * Shared memory:
 *   MAP     bits, row by row, group_queries each: a power of two, so that none is cut by a word
 *   MEMBERS [MOST_MEMBERS] struct member
 *   COUNTS  [WARPS] int: keys in the warp's part of the map
 *   AGAIN   [1] int: entries of the second part
 *
 * Barriers of a window: the map is empty; bits are set; COUNTS are there; the map was read.
 */

enum { WARPS = THREADS / 32, MOST_MEMBERS = 8, NO_BATCH = 0x7fffffff };

/* A group's query. */
struct member {
    const int *row;
    int slots; /* that count; 0: no query */
    int batch;
};

/* What happens to the slots of a window. */
enum { MARK, MARK_AND_APPEND, APPEND };

struct window {
    u32 first, rows; /* of the batch */
    int batch;
    int step;
};

/* A group's list while it is made; the same in all threads. */
struct list {
    int *keys;
    unsigned char *masks; /* null: of one query */
    int count;
};

DEVICE struct member *members(void) {
    return (struct member *)(arena + MEMBERS_OFFSET);
}

DEVICE u32 *map_words(void) {
    return (u32 *)(arena + MAP_OFFSET);
}

DEVICE int *again_count(void) {
    return (int *)(arena + AGAIN_OFFSET);
}

/* The query of a group's member, or -1; `entry`: where it stands in the query list. */
DEVICE int find_member(const struct sparse_attn_bwd_lists_params *params, i64 group, int member,
                       int *entry) {
    const u32 item = (u32)group * (u32)params->group_queries + (u32)member; /* below 2^31 + 8 */
    return find_query(&params->work, params->last_range, item, entry);
}

/* From a list's end up to the next multiple of LIST_STEP; by `threads` threads. */
DEVICE void pad_list(const struct list *list, int thread, int threads) {
    const int end = (list->count + LIST_STEP - 1) / LIST_STEP * LIST_STEP;
    for (int i = list->count + thread; i < end; i += threads) {
        list->keys[i] = MASKED;
        if (list->masks) {
            list->masks[i] = 0;
        }
    }
}

/* The list's other copies, once all of it is there; by `threads` threads. */
DEVICE void repeat_list(const struct sparse_attn_bwd_lists_params *params, const struct list *list,
                        int thread, int threads) {
    const int end = (list->count + LIST_STEP - 1) / LIST_STEP * LIST_STEP;
    for (int copy = 1; copy < params->copies; ++copy) {
        for (int i = thread; i < end; i += threads) {
            list->keys[copy * params->copy_stride + i] = list->keys[i];
        }
    }
}

/* ---- lists in slot order --------------------------------------------------------------------- */

DEVICE void copy_list(const struct sparse_attn_bwd_lists_params *params, i64 group) {
    const struct work_params *const work = &params->work;
    const int lane = (int)threadIdx.x % 32;
    struct list list = {params->keys + group * params->key_stride, 0, 0};
    int entry;
    const int query = find_member(params, group, 0, &entry);
    if (query >= 0) {
        struct walk walk = {list.keys, (u32)work->rows, 0, params->topk, 0, 0};
        walk.first_key = query_batch(work, query) * work->rows;
        walk_row(&walk, index_row(work, query), index_slots(work, entry, query));
        list.count = minimum(walk.count, params->topk);
    }
    pad_list(&list, lane, 32);
    __syncwarp((u32)ALL_LANES);
    repeat_list(params, &list, lane, 32);
    if (lane == 0) {
        params->members[group] = query;
        params->counts[group] = list.count;
    }
}

/* ---- lists by maps --------------------------------------------------------------------------- */

/* How many of a row's slots hold the first params->topk valid ones; by a warp. */
DEVICE int cut_slots(const struct sparse_attn_bwd_lists_params *params, const int *row, int slots) {
    struct walk walk = {0, (u32)params->work.rows, 0, params->topk, 0, 0};
    if (slots <= params->topk) {
        return slots;
    }
    walk_row(&walk, row, slots);
    return lanes_maximum(walk.end, 32);
}

/* Finds the group's queries; a warp takes every WARPS-th. */
DEVICE void open_members(const struct sparse_attn_bwd_lists_params *params, i64 group) {
    const struct work_params *const work = &params->work;
    for (int i = (int)threadIdx.x / 32; i < params->group_queries; i += WARPS) {
        struct member member = {work->indices, 0, NO_BATCH};
        int entry;
        const int query = find_member(params, group, i, &entry);
        if (query >= 0) {
            member.row = index_row(work, query);
            member.slots = cut_slots(params, member.row, index_slots(work, entry, query));
            member.batch = query_batch(work, query);
        }
        if (threadIdx.x % 32 == 0) {
            params->members[group * params->group_queries + i] = query;
            members()[i] = member;
        }
    }
    if (threadIdx.x == 0) {
        *again_count() = 0;
    }
    __syncthreads();
}

/* Members' bits of a row: a power of two. */
DEVICE int mask_shift(int group_queries) {
    return __popc((u32)group_queries - 1u);
}

DEVICE void append_again(const struct list *list, int key, int member) {
    const int place = list->count + (int)atomic_add_shared(shared_address(AGAIN_OFFSET), 1);
    list->keys[place] = key;
    if (list->masks) {
        list->masks[place] = (unsigned char)(1 << member);
    }
}

/* A slot's index, of any row of any batch's or none: whether it is another one of the window's. */
DEVICE bool visit_slot(const struct sparse_attn_bwd_lists_params *params,
                       const struct window *window, const struct list *list, u32 index,
                       int member) {
    const u32 row = index - window->first;
    if (row >= window->rows) {
        return false;
    }
    bool again = window->step == APPEND;
    if (!again) {
        const u32 bit = (row << mask_shift(params->group_queries)) + (u32)member;
        const u32 before =
            atomic_or_shared(shared_address(MAP_OFFSET + bit / 32 * 4), 1u << bit % 32);
        again = before >> bit % 32 & 1;
    }
    if (again && window->step != MARK) {
        append_again(list, window->batch * params->work.rows + (int)index, member);
    }
    return again;
}

/* A member's row, by `threads` threads of which this is number `thread`. */
DEVICE bool visit_row(const struct sparse_attn_bwd_lists_params *params,
                      const struct window *window, const struct list *list, int member, int thread,
                      int threads) {
    const int *const row = members()[member].row;
    const int slots = members()[member].slots;
    const struct row_parts parts = cut_row(row, slots);
    const int rest = slots - parts.vectors * VECTOR;
    bool again = false;
    for (int i = thread; i < rest; i += threads) {
        const int slot = i < parts.head ? i : i + parts.vectors * VECTOR;
        again |= visit_slot(params, window, list, (u32)row[slot], member);
    }
    for (int begin = thread; begin < parts.vectors; begin += threads * LOADS) {
        u32 indices[LOADS][VECTOR];
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            const int vector = begin + i * threads;
            indices[i][0] = indices[i][1] = indices[i][2] = indices[i][3] = (u32)MASKED;
            if (vector < parts.vectors) {
                load_streaming_16(indices[i], row + parts.head + vector * VECTOR);
            }
        }
#pragma unroll
        for (int i = 0; i < LOADS * VECTOR; ++i) {
            again |= visit_slot(params, window, list, indices[i / VECTOR][i % VECTOR], member);
        }
    }
    return again;
}

/* All members' slots of a window, each member's by a part of the block. Whether a row was named
 * again is the same in all threads; a barrier. */
DEVICE bool visit_members(const struct sparse_attn_bwd_lists_params *params,
                          const struct window *window, const struct list *list) {
    const int threads = THREADS / params->group_queries;
    const int member = (int)threadIdx.x / threads, thread = (int)threadIdx.x % threads;
    bool again = false;
    if (members()[member].batch == window->batch) {
        again = visit_row(params, window, list, member, thread, threads);
    }
    return __syncthreads_or(again);
}

DEVICE int window_words(const struct sparse_attn_bwd_lists_params *params,
                        const struct window *window) {
    return (int)(((window->rows << mask_shift(params->group_queries)) + 31) / 32);
}

DEVICE void clear_map(int words) {
    for (int i = (int)threadIdx.x; i < words; i += THREADS) {
        map_words()[i] = 0;
    }
    __syncthreads();
}

/* Of a word's rows, the lowest bit of each that a member has. */
DEVICE u32 rows_of(u32 word, int group_queries) {
    for (int step = 1; step < group_queries; step *= 2) {
        word |= word >> step;
    }
    return word & 0xffffffffu / ((1u << group_queries) - 1u);
}

/* The keys of a word of the map, from a place in the list on. */
DEVICE void store_keys(const struct list *list, u32 word, int first_key, int group_queries,
                       int place) {
    const int shift = mask_shift(group_queries);
    for (u32 rest = rows_of(word, group_queries); rest; rest &= rest - 1) {
        const int bit = __ffs((int)rest) - 1;
        list->keys[place] = first_key + (bit >> shift);
        if (list->masks) {
            list->masks[place] = (unsigned char)(word >> bit & ((1u << group_queries) - 1u));
        }
        ++place;
    }
}

/* Sum of the values of the lanes up to this one. */
DEVICE int sum_up_to(int value) {
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const int below = __shfl_up_sync((u32)ALL_LANES, value, step);
        value += lane >= step ? below : 0;
    }
    return value;
}

/* Puts the map's keys behind the list's end: each warp those of a part of the words. */
DEVICE void read_map(const struct sparse_attn_bwd_lists_params *params, const struct window *window,
                     struct list *list) {
    int *const counts = (int *)(arena + COUNTS_OFFSET);
    const int group_queries = params->group_queries, words = window_words(params, window);
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int part = (words + THREADS - 1) / THREADS * 32;
    const int begin = warp * part, end = minimum(begin + part, words);
    int keys = 0;
    for (int i = begin + lane; i < end; i += 32) {
        keys += __popc(rows_of(map_words()[i], group_queries));
    }
    keys = lanes_sum(keys, 32);
    if (lane == 0) {
        counts[warp] = keys;
    }
    __syncthreads();
    int place = list->count;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
        place += w < warp ? counts[w] : 0;
        list->count += counts[w];
    }
    const int batch_key = window->batch * params->work.rows + (int)window->first;
    for (int i = begin; i < end; i += 32) {
        const u32 word = i + lane < end ? map_words()[i + lane] : 0;
        const int own = __popc(rows_of(word, group_queries)), sum = sum_up_to(own);
        store_keys(list, word, batch_key + ((i + lane) * 32 >> mask_shift(group_queries)),
                   group_queries, place + sum - own);
        place += __shfl_sync((u32)ALL_LANES, sum, 31);
    }
    __syncthreads();
}

/* The lowest batch above `batch` that a member is of. */
DEVICE int next_batch(const struct sparse_attn_bwd_lists_params *params, int batch) {
    int next = NO_BATCH;
    for (int i = 0; i < params->group_queries; ++i) {
        const int own = members()[i].batch;
        next = own > batch ? minimum(next, own) : next;
    }
    return next;
}

/* Rows a window has. */
DEVICE u32 window_rows(const struct sparse_attn_bwd_lists_params *params) {
    return (u32)MAP_BYTES * 8 >> mask_shift(params->group_queries);
}

DEVICE bool has_windows(const struct sparse_attn_bwd_lists_params *params) {
    return (u64)params->work.rows <= (u64)window_rows(params) * MOST_WINDOWS;
}

/* The members' slots of every batch and window. Whether a row was named again. */
DEVICE bool go_through(const struct sparse_attn_bwd_lists_params *params, int step,
                       struct list *list) {
    const u32 rows = (u32)params->work.rows;
    const u32 most = step == APPEND ? rows : window_rows(params);
    bool again = false;
    for (int batch = next_batch(params, -1); batch != NO_BATCH; batch = next_batch(params, batch)) {
        for (u32 first = 0; first < rows; first += most) {
            const struct window window = {first, rows - first < most ? rows - first : most, batch,
                                          step};
            if (step != APPEND) {
                clear_map(window_words(params, &window));
            }
            again |= visit_members(params, &window, list);
            if (step == MARK) {
                read_map(params, &window, list);
            }
        }
    }
    return again;
}

/* Puts what is appended in order; it is part of the list then. */
DEVICE void sort_appended(struct list *list) {
    const int again = *again_count();
    sort_entries(list->keys + list->count, list->masks ? list->masks + list->count : 0, (u32)again);
    list->count += again;
}

DEVICE void unite_lists(const struct sparse_attn_bwd_lists_params *params, i64 group) {
    const i64 begin = group * params->key_stride;
    struct list list = {params->keys + begin, params->group_queries > 1 ? params->masks + begin : 0,
                        0};
    open_members(params, group);
    const bool again = !has_windows(params) || go_through(params, MARK, &list);
    const int once = list.count;
    if (again) {
        go_through(params, has_windows(params) ? MARK_AND_APPEND : APPEND, &list);
        sort_appended(&list);
    }
    pad_list(&list, (int)threadIdx.x, THREADS);
    if (params->copies > 1) {
        __syncthreads();
        repeat_list(params, &list, (int)threadIdx.x, THREADS);
    }
    if (threadIdx.x == 0) {
        params->counts[group] = list.count;
        if (params->firsts) {
            params->firsts[group] = once;
        }
    }
    __syncthreads();
}

/* ---- the kernel ------------------------------------------------------------------------------ */

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct sparse_attn_bwd_lists_params params) {
    if (DEPENDENT_LAUNCH && threadIdx.x == 0) {
        grid_launch_dependents();
    }
    fill_zeros(params.zeros, params.zero_vectors);
    if (params.group_queries == 1 && !params.firsts &&
        (!params.ascending || !has_windows(&params))) {
        for (i64 group = blockIdx.x * (i64)WARPS + threadIdx.x / 32; group < params.groups;
             group += gridDim.x * (i64)WARPS) {
            copy_list(&params, group);
        }
    } else {
        for (i64 group = blockIdx.x; group < params.groups; group += gridDim.x) {
            unite_lists(&params, group);
        }
    }
}
