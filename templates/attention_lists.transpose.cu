//@use common/base.cuh
//@use common/lanes.cuh
//@use common/warp_scan.cuh
//@use ptx/atomic.cuh
//@use ptx/shared.cuh
//@use attention_lists.params.h
/*
 * Deterministic backward pass: transposes the groups' lists of keys (CSR) into lists of partial
 * rows by key (CSC). Output: `starts` and `entries` of the params struct.
 *
 * A CTA takes RANGE keys of a chunk at a time; any grid size. Both parts of a list ascend
 * (attention_lists.group.cu), so a list's entries inside the range are one segment of each
 * part, found by bisection, and the number of all entries before these segments is where the
 * range's output begins: CTAs are independent.
 *
 * The chunk's groups are processed PART at a time. A map in shared memory has a bit for each key of
 * the range and group of the part. A list's first part names a key at most once, so bits may be set
 * in any order. A key's number of set bits is its number of entries in the part; the set bits below
 * an entry's group give the entry's rank. The parts are therefore visited twice, to count and to
 * place; if there is only one, its map is still there for the second visit.
 *
 * The kernel is bound by the latency of loads from the lists, so a warp processes LISTS of them
 * together.
 *
 * A list's second part is rare; it holds repeated keys. If one of them has entries in the range,
 * the groups of this part of the chunk are placed one after another: the entries of a first part at
 * their keys' positions, then those of the second by their distance from their key's first one.
 *
 * Shared memory:
 *   MAP       [PART / 32][RANGE] words: bit g % 32 of word g / 32: the part's group g has the key
 *   FIRSTS    [PART / 32][RANGE] u16: the key's set bits in lower words
 *   PLACES    [RANGE] int: entries per key so far; later the key's next output position
 *   STRETCHES [PART] struct segment
 *   SUMS      [WARPS] int: warp sums
 *
 * Barriers of a part: the map is cleared and segments are found; bits are set; FIRSTS are written;
 * all entries are placed; positions are advanced. Of a range, in addition: all entries are counted;
 * warp sums are written; positions are written; the range is done.
 */

enum { WARPS = THREADS / 32, PART_WORDS = PART / 32 };

/* A list's entries inside the range: of its first part, and of its second. */
struct segment {
    int place[2], again[2]; /* begin and end */
};

/* A range of keys and the groups of a chunk. */
struct range {
    int chunk;
    int first_key, keys;
    int first_group, groups; /* first_group counts from that of the launch */
};

/* Some of a chunk's groups. */
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

DEVICE struct segment *segments(void) {
    return (struct segment *)(arena + STRETCHES_OFFSET);
}

DEVICE int range_count(const struct attention_lists_transpose_params *params) {
    return (params->key_count - 1) / RANGE + 1;
}

DEVICE struct range find_range(const struct attention_lists_transpose_params *params, int item) {
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

/* The number of the entry at index `place` of the list of the part's group `group`. */
DEVICE int entry_number(const struct attention_lists_transpose_params *params,
                        const struct part *part, int group, int place) {
    return (part->first + group) * params->key_stride + place;
}

/* The keys of the chunk's entries, by entry number; and the list of one group of the part. */
DEVICE const int *chunk_keys(const struct attention_lists_transpose_params *params,
                             const struct range *range) {
    return params->keys + ((i64)params->first_group + range->first_group) * params->key_stride;
}

DEVICE const int *list_keys(const struct attention_lists_transpose_params *params,
                            const struct range *range, const struct part *part, int group) {
    return chunk_keys(params, range) + entry_number(params, part, group, 0);
}

/* Lower bound: the first of the ascending entries [begin, end) with a key >= `key`, or `end`. */
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

/* Lower bounds of the range's first key and of the first key after the range, both at once and in
 * quarters: a step's time is the latency of its loads. */
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

/* Finds the part's segments, one list per thread. Returns this thread's part of the number of
 * entries before them. */
DEVICE int find_segments(const struct attention_lists_transpose_params *params,
                         const struct range *range, const struct part *part) {
    int before = 0;
    for (int group = (int)threadIdx.x; group < part->groups; group += THREADS) {
        const i64 number = (i64)params->first_group + range->first_group + part->first + group;
        const int *const keys = list_keys(params, range, part, group);
        const int once = params->firsts[number];
        struct segment segment;
        find_ends(segment.place, keys, 0, once, range);
        find_ends(segment.again, keys, once, params->counts[number], range);
        segments()[group] = segment;
        before += segment.place[0] + segment.again[0] - once;
    }
    return before;
}

DEVICE void clear_map(void) {
    for (int i = (int)threadIdx.x; i < PART_WORDS * RANGE; i += THREADS) {
        *map_word(0, i) = 0;
    }
}

/* Lists that a warp processes together, so that their loads overlap. Lists past the part's last one
 * are empty. */
struct lists {
    u32 numbers[LISTS], ends[LISTS]; /* entry numbers: this lane's next one, and the end */
    int longest;                     /* remaining entries of the longest list */
};

DEVICE void open_lists(struct lists *lists, const struct attention_lists_transpose_params *params,
                       const struct part *part, int first) {
    lists->longest = 0;
#pragma unroll
    for (int k = 0; k < LISTS; ++k) {
        lists->numbers[k] = lists->ends[k] = 0;
        if (first + k < part->groups) {
            const struct segment *const segment = &segments()[first + k];
            const u32 number = (u32)entry_number(params, part, first + k, 0);
            lists->numbers[k] = number + (u32)segment->place[0] + threadIdx.x % 32;
            lists->ends[k] = number + (u32)segment->place[1];
            lists->longest = maximum(lists->longest, segment->place[1] - segment->place[0]);
        }
    }
}

/* Loads the key of this lane's next entry of each list, relative to the range; -1 past the end. */
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

/* Advances by 32 entries; false if none are left. */
DEVICE bool step_lists(struct lists *lists) {
#pragma unroll
    for (int k = 0; k < LISTS; ++k) {
        lists->numbers[k] += 32;
    }
    lists->longest -= 32;
    return lists->longest > 0;
}

/* Sets the bits of the part's entries. Returns, the same in all threads, whether a second part has
 * entries in the range. Contains a barrier. */
DEVICE bool mark_part(const struct attention_lists_transpose_params *params,
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
        again |= segments()[group].again[0] < segments()[group].again[1];
    }
    return __syncthreads_or(again);
}

/* Builds the part's map and segments; returns as find_segments. */
DEVICE int open_part(const struct attention_lists_transpose_params *params,
                     const struct range *range, const struct part *part, bool *again) {
    clear_map();
    const int before = find_segments(params, range, part);
    __syncthreads();
    *again = mark_part(params, range, part);
    return before;
}

/* The number of a key's set bits. */
DEVICE int count_bits(int key) {
    int count = 0;
#pragma unroll
    for (int word = 0; word < PART_WORDS; ++word) {
        count += __popc(*map_word(word, key));
    }
    return count;
}

/* Adds the bits to the keys' counts or positions. Thread t handles keys congruent to t modulo
 * THREADS. */
DEVICE void add_bits(const struct range *range) {
    for (int key = (int)threadIdx.x; key < range->keys; key += THREADS) {
        places()[key] += count_bits(key);
    }
}

/* Counts the entries of second parts. */
DEVICE void add_again(const struct attention_lists_transpose_params *params,
                      const struct range *range, const struct part *part) {
    __syncthreads();
    for (int group = (int)threadIdx.x / 32; group < part->groups; group += WARPS) {
        const struct segment segment = segments()[group];
        const int *const keys = list_keys(params, range, part, group);
        for (int i = segment.again[0] + (int)threadIdx.x % 32; i < segment.again[1]; i += 32) {
            const u32 key = (u32)(keys[i] - range->first_key);
            atomic_add_shared(shared_address(PLACES_OFFSET + key * 4), 1);
        }
    }
}

/* Sum over the block; contains two barriers. */
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

/* Exclusive scan of the keys' counts into positions, starting at `place`; returns the end of the
 * last key's entries in lane 31. By one warp, with RUN adjacent keys per lane. */
DEVICE int scan_places(int place) {
    enum { RUN = RANGE / 32 };
    const int lane = (int)threadIdx.x;
    int sum = 0;
    for (int i = 0; i < RUN; ++i) {
        sum += places()[lane * RUN + i];
    }
    int next = place + warp_inclusive_scan(sum, lane) - sum;
    for (int i = 0; i < RUN; ++i) {
        const int count = places()[lane * RUN + i];
        places()[lane * RUN + i] = next;
        next += count;
    }
    return next;
}

/* Computes the output positions of the range's entries and writes `starts`. */
DEVICE void find_places(const struct attention_lists_transpose_params *params,
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

/* Exclusive scan of each key's set bits over the words of the map; contains a barrier. */
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

/* Writes the part's entries if it has only first parts. */
DEVICE void place_part(const struct attention_lists_transpose_params *params,
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

/* The same for a part with entries of second parts, one group after another. */
DEVICE void place_again(const struct attention_lists_transpose_params *params,
                        const struct range *range, const struct part *part) {
    for (int group = 0; group < part->groups; ++group) {
        const struct segment segment = segments()[group];
        const int *const keys = list_keys(params, range, part, group);
        for (int i = segment.place[0] + (int)threadIdx.x; i < segment.place[1]; i += THREADS) {
            const int key = keys[i] - range->first_key;
            params->entries[places()[key]++] = entry_number(params, part, group, i);
        }
        __syncthreads();
        for (int i = segment.again[0] + (int)threadIdx.x; i < segment.again[1]; i += THREADS) {
            const int first = bisect(keys, segment.again[0], i, keys[i]);
            params->entries[places()[keys[i] - range->first_key] + i - first] =
                entry_number(params, part, group, i);
        }
        __syncthreads();
        for (int i = segment.again[0] + (int)threadIdx.x; i < segment.again[1]; i += THREADS) {
            const int key = keys[i];
            if (i + 1 == segment.again[1] || keys[i + 1] != key) {
                places()[key - range->first_key] += i + 1 - bisect(keys, segment.again[0], i, key);
            }
        }
        __syncthreads();
    }
}

DEVICE void transpose_range(const struct attention_lists_transpose_params *params,
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
    KERNEL_NAME(const __grid_constant__ struct attention_lists_transpose_params params) {
    const int items = params.chunks * range_count(&params);
    for (int item = (int)blockIdx.x; item < items; item += (int)gridDim.x) {
        const struct range range = find_range(&params, item);
        transpose_range(&params, &range);
    }
}
