//@use common/base.cuh
//@use common/lanes.cuh
//@use ptx/atomic.cuh
//@use ptx/shared.cuh
//@use sparse_attn_bwd_lists.params.h
/*
 * Deterministic backward pass: the groups' lists turned around into lists by keys. What is written:
 * sparse_attn_bwd_lists.params.h, starts and entries.
 *
 * A block takes RANGE keys of a chunk at a time; any grid is right. Both parts of a list ascend
 * (sparse_attn_bwd_lists.group.cu), so that what lies in the range is a stretch of each, found by
 * bisection; and what all of the chunk's lists have before it says where the range's entries begin:
 * no block waits for another.
 *
 * The chunk's groups are taken PART at a time. A map in shared memory has a bit for each key of the
 * range and group of the part: a list names a key once in its first part, so that entries set their
 * bits in any order. How many bits a key has is how many entries the part gives it, and how many of
 * them are below an entry's group says which of these the entry is: those of its word, behind those
 * of the words before it. So that a chunk's parts are gone through twice, to count and to place,
 * unless there is but one, whose map is still there.
 *
 * What it waits for are loads, each a list's: so a warp goes through LISTS of them side by side.
 *
 * Second parts are rare, and keys stand in them several times. A part that has any in the range is
 * placed group by group: each entry of a first part where its key's place is, then those of the
 * second by their distances from the first of their key.
 *
 * Shared memory:
 *   MAP       [PART / 32][RANGE] words: bit g % 32 of word g / 32: group g of the part has the key
 *   FIRSTS    [PART / 32][RANGE] u16: bits that the key has in the words before
 *   PLACES    [RANGE] int: entries of each key so far; then where its next one goes
 *   STRETCHES [PART] struct stretch
 *   SUMS      [WARPS] int: of warps
 *
 * Barriers of a part: the map is empty, stretches are there; bits are set; FIRSTS are there; all is
 * placed; places have moved on. Of a range besides: all were counted; sums of warps are there;
 * places are; the range is done.
 */

enum { WARPS = THREADS / 32, PART_WORDS = PART / 32 };

/* What of a group's list lies in the range: of its first part, and of its second. */
struct stretch {
    int place[2], again[2]; /* from, and up to */
};

/* The block's range of keys, and groups of the chunk. */
struct range {
    int chunk; /* number */
    int first_key, keys;
    int first_group, groups; /* of the round; of the chunk */
};

/* Some of the chunk's groups. */
struct part {
    int first, groups;
};

DEVICE u32 *map_word(int word, int key) {
    return (u32 *)(arena + MAP_OFFSET) + word * RANGE + key;
}

DEVICE int *places(void) {
    return (int *)(arena + PLACES_OFFSET);
}

DEVICE unsigned short *word_first(int word, int key) {
    return (unsigned short *)(arena + FIRSTS_OFFSET) + word * RANGE + key;
}

DEVICE struct stretch *stretches(void) {
    return (struct stretch *)(arena + STRETCHES_OFFSET);
}

DEVICE int range_count(const struct sparse_attn_bwd_segments_params *params) {
    return (params->key_count - 1) / RANGE + 1;
}

DEVICE struct range find_range(const struct sparse_attn_bwd_segments_params *params, int item) {
    const int ranges = range_count(params);
    struct range range;
    range.chunk = item / ranges;
    range.first_key = item % ranges * RANGE;
    range.keys = minimum(params->key_count - range.first_key, RANGE);
    range.first_group = range.chunk * params->chunk;
    range.groups = minimum(params->groups - range.first_group, params->chunk);
    return range;
}

DEVICE struct part find_part(const struct range *range, int first) {
    const struct part part = {first, minimum(range->groups - first, PART)};
    return part;
}

/* The entry's number: of place `place` in group `group` of the part's list. */
DEVICE int entry_number(const struct sparse_attn_bwd_segments_params *params,
                        const struct part *part, int group, int place) {
    return (part->first + group) * params->key_stride + place;
}

/* The lists of the chunk, by the numbers of entries; and one: group `group` of the part's. */
DEVICE const int *chunk_keys(const struct sparse_attn_bwd_segments_params *params,
                             const struct range *range) {
    return params->keys + ((i64)params->first_group + range->first_group) * params->key_stride;
}

DEVICE const int *list_keys(const struct sparse_attn_bwd_segments_params *params,
                            const struct range *range, const struct part *part, int group) {
    return chunk_keys(params, range) + entry_number(params, part, group, 0);
}

/* The first of the entries [begin, end), which ascend, whose key is not below `key`; or `end`. */
DEVICE int bisect(const int *keys, int begin, int end, int key) {
    while (begin < end) {
        const int middle = begin + (end - begin) / 2;
        if (keys[middle] < key) {
            begin = middle + 1;
        } else {
            end = middle;
        }
    }
    return begin;
}

/* The same of the range's first key, and of the first behind it: both are sought at once, in
 * quarters, for a step takes as long as its loads are under way. */
DEVICE void find_ends(int *found, const int *keys, int begin, int end, const struct range *range) {
    int upper[2] = {end, end};
    found[0] = found[1] = begin;
    while (found[0] < upper[0] || found[1] < upper[1]) {
        int seen[2][3];
#pragma unroll
        for (int i = 0; i < 6; ++i) {
            const int count = upper[i / 3] - found[i / 3];
            seen[i / 3][i % 3] = 0;
            if (count > 0) {
                seen[i / 3][i % 3] = keys[found[i / 3] + (i % 3 + 1) * count / 4];
            }
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int key = range->first_key + i * range->keys;
            const int first = found[i], count = upper[i] - first;
            if (count > 0) {
                const int below = (seen[i][0] < key) + (seen[i][1] < key) + (seen[i][2] < key);
                found[i] = below > 0 ? first + below * count / 4 + 1 : first;
                upper[i] = below < 3 ? first + (below + 1) * count / 4 : upper[i];
            }
        }
    }
}

/* Finds the part's stretches, a thread a list. What lies before them, this thread's share. */
DEVICE int find_stretches(const struct sparse_attn_bwd_segments_params *params,
                          const struct range *range, const struct part *part) {
    int before = 0;
    for (int group = (int)threadIdx.x; group < part->groups; group += THREADS) {
        const i64 number = (i64)params->first_group + range->first_group + part->first + group;
        const int *const keys = list_keys(params, range, part, group);
        const int once = params->firsts[number];
        struct stretch stretch;
        find_ends(stretch.place, keys, 0, once, range);
        find_ends(stretch.again, keys, once, params->counts[number], range);
        stretches()[group] = stretch;
        before += stretch.place[0] + stretch.again[0] - once;
    }
    return before;
}

DEVICE void clear_map(void) {
    for (int i = (int)threadIdx.x; i < PART_WORDS * RANGE; i += THREADS) {
        *map_word(0, i) = 0;
    }
}

/* Some lists that a warp goes through side by side, so that as many loads are under way; those past
 * the part's last are empty. */
struct lists {
    u32 numbers[LISTS], ends[LISTS]; /* of entries: this lane's next one, and up to */
    int longest;                     /* entries that are left of one */
};

DEVICE void open_lists(struct lists *lists, const struct sparse_attn_bwd_segments_params *params,
                       const struct part *part, int first) {
    lists->longest = 0;
#pragma unroll
    for (int k = 0; k < LISTS; ++k) {
        lists->numbers[k] = lists->ends[k] = 0;
        if (first + k < part->groups) {
            const struct stretch *const stretch = &stretches()[first + k];
            const u32 number = (u32)entry_number(params, part, first + k, 0);
            lists->numbers[k] = number + (u32)stretch->place[0] + threadIdx.x % 32;
            lists->ends[k] = number + (u32)stretch->place[1];
            lists->longest = maximum(lists->longest, stretch->place[1] - stretch->place[0]);
        }
    }
}

/* This lane's next entry of each: its key, from the range's first on, or -1. */
DEVICE void load_keys(int *keys, const struct lists *lists, const int *chunk_keys,
                      const struct range *range) {
#pragma unroll
    for (int k = 0; k < LISTS; ++k) {
        keys[k] = -1;
        if (lists->numbers[k] < lists->ends[k]) {
            keys[k] = chunk_keys[lists->numbers[k]] - range->first_key;
        }
    }
}

/* Goes on to the next entries; whether there are any. */
DEVICE bool step_lists(struct lists *lists) {
#pragma unroll
    for (int k = 0; k < LISTS; ++k) {
        lists->numbers[k] += 32;
    }
    lists->longest -= 32;
    return lists->longest > 0;
}

/* Sets the bits of the part's entries. Whether a second part has any in the range is the same in
 * all threads; a barrier. */
DEVICE bool mark_part(const struct sparse_attn_bwd_segments_params *params,
                      const struct range *range, const struct part *part) {
    const int *const keys_of_chunk = chunk_keys(params, range);
    bool again = false;
    for (int first = (int)threadIdx.x / 32 * LISTS; first < part->groups; first += WARPS * LISTS) {
        struct lists lists;
        open_lists(&lists, params, part, first);
        do {
            int keys[LISTS];
            load_keys(keys, &lists, keys_of_chunk, range);
#pragma unroll
            for (int k = 0; k < LISTS; ++k) {
                if (keys[k] >= 0) {
                    const u32 word = (u32)((first + k) / 32 * RANGE + keys[k]);
                    atomic_or_shared(shared_address(MAP_OFFSET + word * 4), 1u << (first + k) % 32);
                }
            }
        } while (step_lists(&lists));
    }
    for (int group = (int)threadIdx.x; group < part->groups; group += THREADS) {
        again |= stretches()[group].again[0] < stretches()[group].again[1];
    }
    return __syncthreads_or(again);
}

/* The part's map, and its stretches. What lies before them, this thread's share. */
DEVICE int open_part(const struct sparse_attn_bwd_segments_params *params,
                     const struct range *range, const struct part *part, bool *again) {
    clear_map();
    const int before = find_stretches(params, range, part);
    __syncthreads();
    *again = mark_part(params, range, part);
    return before;
}

/* Entries that the map gives a key. */
DEVICE int count_bits(int key) {
    int count = 0;
#pragma unroll
    for (int word = 0; word < PART_WORDS; ++word) {
        count += __popc(*map_word(word, key));
    }
    return count;
}

/* A thread has every THREADS-th key here and where it moves places on. */
DEVICE void add_bits(const struct range *range) {
    for (int key = (int)threadIdx.x; key < range->keys; key += THREADS) {
        places()[key] += count_bits(key);
    }
}

/* Counts the entries of second parts. */
DEVICE void add_again(const struct sparse_attn_bwd_segments_params *params,
                      const struct range *range, const struct part *part) {
    __syncthreads();
    for (int group = (int)threadIdx.x / 32; group < part->groups; group += WARPS) {
        const struct stretch stretch = stretches()[group];
        const int *const keys = list_keys(params, range, part, group);
        for (int i = stretch.again[0] + (int)threadIdx.x % 32; i < stretch.again[1]; i += 32) {
            const u32 key = (u32)(keys[i] - range->first_key);
            atomic_add_shared(shared_address(PLACES_OFFSET + key * 4), 1);
        }
    }
}

/* Sum of a value of each thread, the same in all; two barriers. */
DEVICE int block_sum(int value) {
    int *const sums = (int *)(arena + SUMS_OFFSET);
    const int sum = lanes_sum(value, 32);
    int all = 0;
    if (threadIdx.x % 32 == 0) {
        sums[threadIdx.x / 32] = sum;
    }
    __syncthreads();
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
        all += sums[w];
    }
    __syncthreads();
    return all;
}

/* From how many entries keys have to where they go, from `place` on: by one warp, a run of keys a
 * lane. The result: where the last one ends. */
DEVICE int scan_places(int place) {
    enum { RUN = RANGE / 32 };
    const int lane = (int)threadIdx.x;
    int sum = 0;
    for (int i = 0; i < RUN; ++i) {
        sum += places()[lane * RUN + i];
    }
    int up_to = sum;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const int below = __shfl_up_sync((u32)ALL_LANES, up_to, step);
        up_to += lane >= step ? below : 0;
    }
    int next = place + up_to - sum;
    for (int i = 0; i < RUN; ++i) {
        const int count = places()[lane * RUN + i];
        places()[lane * RUN + i] = next;
        next += count;
    }
    return next;
}

/* Places of the range's entries, and its starts. */
DEVICE void find_places(const struct sparse_attn_bwd_segments_params *params,
                        const struct range *range, int before) {
    int *const starts =
        params->starts + (i64)range->chunk * (params->key_count + 1) + range->first_key;
    const int begin = range->first_group * params->key_stride + block_sum(before);
    int end = 0;
    if (threadIdx.x < 32) {
        end = scan_places(begin);
    }
    if (threadIdx.x == 31 && range->first_key + range->keys == params->key_count) {
        starts[range->keys] = end;
    }
    __syncthreads();
    for (int key = (int)threadIdx.x; key < range->keys; key += THREADS) {
        starts[key] = places()[key];
    }
    __syncthreads();
}

/* Which of a key's entries in the part are of each word of the map: the first one's number; a
 * barrier. */
DEVICE void number_words(const struct range *range) {
    for (int key = (int)threadIdx.x; key < range->keys; key += THREADS) {
        int count = 0;
#pragma unroll
        for (int word = 0; word < PART_WORDS; ++word) {
            *word_first(word, key) = (unsigned short)count;
            count += __popc(*map_word(word, key));
        }
    }
    __syncthreads();
}

/* Writes the part's entries, of first parts alone. */
DEVICE void place_part(const struct sparse_attn_bwd_segments_params *params,
                       const struct range *range, const struct part *part) {
    const int *const keys_of_chunk = chunk_keys(params, range);
    number_words(range);
    for (int first = (int)threadIdx.x / 32 * LISTS; first < part->groups; first += WARPS * LISTS) {
        struct lists lists;
        open_lists(&lists, params, part, first);
        do {
            int keys[LISTS];
            load_keys(keys, &lists, keys_of_chunk, range);
#pragma unroll
            for (int k = 0; k < LISTS; ++k) {
                if (keys[k] >= 0) {
                    const int word = (first + k) / 32;
                    const u32 below = *map_word(word, keys[k]) & ((1u << (first + k) % 32) - 1u);
                    params
                        ->entries[places()[keys[k]] + *word_first(word, keys[k]) + __popc(below)] =
                        lists.numbers[k];
                }
            }
        } while (step_lists(&lists));
    }
    __syncthreads();
    add_bits(range);
}

/* The same of a part with entries of second parts in the range, group by group. */
DEVICE void place_again(const struct sparse_attn_bwd_segments_params *params,
                        const struct range *range, const struct part *part) {
    for (int group = 0; group < part->groups; ++group) {
        const struct stretch stretch = stretches()[group];
        const int *const keys = list_keys(params, range, part, group);
        for (int i = stretch.place[0] + (int)threadIdx.x; i < stretch.place[1]; i += THREADS) {
            const int key = keys[i] - range->first_key;
            params->entries[places()[key]++] = entry_number(params, part, group, i);
        }
        __syncthreads();
        for (int i = stretch.again[0] + (int)threadIdx.x; i < stretch.again[1]; i += THREADS) {
            const int first = bisect(keys, stretch.again[0], i, keys[i]);
            params->entries[places()[keys[i] - range->first_key] + i - first] =
                entry_number(params, part, group, i);
        }
        __syncthreads();
        for (int i = stretch.again[0] + (int)threadIdx.x; i < stretch.again[1]; i += THREADS) {
            const int key = keys[i];
            if (i + 1 == stretch.again[1] || keys[i + 1] != key) {
                places()[key - range->first_key] += i + 1 - bisect(keys, stretch.again[0], i, key);
            }
        }
        __syncthreads();
    }
}

DEVICE void turn_range(const struct sparse_attn_bwd_segments_params *params,
                       const struct range *range) {
    bool again = false;
    int before = 0;
    for (int key = (int)threadIdx.x; key < RANGE; key += THREADS) {
        places()[key] = 0;
    }
    for (int first = 0; first < range->groups; first += PART) {
        const struct part part = find_part(range, first);
        before += open_part(params, range, &part, &again);
        add_bits(range);
        if (again) {
            add_again(params, range, &part);
        }
        __syncthreads();
    }
    find_places(params, range, before);
    for (int first = 0; first < range->groups; first += PART) {
        const struct part part = find_part(range, first);
        if (range->groups > PART) {
            open_part(params, range, &part, &again);
        }
        if (again) {
            place_again(params, range, &part);
        } else {
            place_part(params, range, &part);
        }
        __syncthreads();
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct sparse_attn_bwd_segments_params params) {
    const int items = params.chunks * range_count(&params);
    for (int item = (int)blockIdx.x; item < items; item += (int)gridDim.x) {
        const struct range range = find_range(&params, item);
        turn_range(&params, &range);
    }
}
