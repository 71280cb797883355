//@use common/base.cuh
//@use common/lanes.cuh
//@use ptx/atomic.cuh
//@use ptx/memory.cuh
//@use sparse_attn_bwd_lists.params.h
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
