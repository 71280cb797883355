//@use common/base.cuh
//@use common/lanes.cuh
//@use common/warp_scan.cuh
//@use common/zeros.cuh
//@use indexer_bwd_lists.params.h
//@use ptx/atomic.cuh
//@use ptx/shared.cuh
/*
 * First kernel of the indexer's backward pass: each group's list of keys, from its members' index
 * rows, with the slots' gradients. Output: indexer_bwd_lists.params.h.
 *
 * A CTA takes a group at a time, and a share of the zero fill; any grid size gives the same output.
 * The table of keys is processed in windows of as many rows as the bit map holds:
 *
 *   mark   the map has a bit for each member and row; each slot sets its bit
 *   count  an exclusive scan over the map's words gives each word's first list position in each
 *          section; the members' bits are reduced to those of the two halves
 *   store  keys, then each member's gradients, are assembled in shared memory, ENTRIES at a time,
 *          because scattered stores to global memory would dominate: keys by a pass over the map,
 *          gradients by a second pass over the member's slots
 *
 * A bit that is already set means that a member names a key twice. Then one warp adds the gradients
 * in the order of the slots. Lists with sections that take several windows are counted first, since
 * the second section starts after all of the first.
 *
 * Shared memory:
 *   MAP     [columns][words] u32: the members' bits, row by row; after count those of the first
 *           half of the members (of all, without sections) and of the second. Then [PARTS][words]:
 *           each word's first list position in each section
 *   ENTRIES [ENTRIES] u32 or fp32, of the window's list
 *   COUNTS  [WARPS] struct counts
 *
 * Barriers of a window: the map is cleared; bits are set; COUNTS are written; the map is counted;
 * then for each array and ENTRIES entries: they are written, they are stored.
 */

enum {
    WARPS = THREADS / 32,
    MASKED = -1,
    HALF_BITS = 16 /* of a packed count */
};

/* Sections of a list: keys of the first half of the members only, of both, of the second only. */
enum { FIRST_HALF, BOTH_HALVES, SECOND_HALF, PARTS };

/* Passes over the windows of a list. */
enum { COUNT_AHEAD, STORE };

/* The rows that the map currently covers. */
struct window {
    u32 first, rows;
    int words;
};

/* Keys per section. */
struct counts {
    u32 alone; /* FIRST_HALF; << HALF_BITS: SECOND_HALF. Never overflows: it counts one warp's
                  words */
    u32 both;
};

/* A group's list under construction, the same in all threads. The window's list has its sections
 * one after another; `ends` refers to the whole list. */
struct list {
    int group;
    bool runs;
    int ends[PARTS];      /* the next key of a section in the whole list */
    int parts[PARTS + 1]; /* the begin of a section in the window's list, and its end */
};

DEVICE u32 *map_words(void) {
    return (u32 *)(arena + MAP_OFFSET);
}

DEVICE struct counts *warp_counts(void) {
    return (struct counts *)(arena + COUNTS_OFFSET);
}

DEVICE u32 *entries(void) {
    return (u32 *)(arena + ENTRIES_OFFSET);
}

/* The map's columns of bits; the two halves need two of them. */
DEVICE int bit_columns(const struct indexer_bwd_lists_params *params) {
    return maximum(params->group_queries, 2);
}

/* Each word's first position in a section of the window's list. */
DEVICE u32 *map_places(const struct indexer_bwd_lists_params *params, const struct window *window,
                       int part) {
    return map_words() + (bit_columns(params) + part) * window->words;
}

/* ---- slots ----------------------------------------------------------------------------------- */

/* A member's slots; the first `count` are scanned. The window's rows below `rows` may be read. */
struct slots {
    const int *indices;
    const float *grad;
    int count;
    u32 rows;
};

DEVICE struct slots member_slots(const struct indexer_bwd_lists_params *params,
                                 const struct window *window, int group, int member) {
    const i64 query = (i64)group * params->group_queries + member;
    struct slots slots = {params->indices, params->grad, 0, window->rows};
    if (query < params->tokens) {
        slots.indices += query * params->indices_token_stride;
        slots.grad += query * params->grad_token_stride;
        slots.count = params->width;
        if (params->topk_length) {
            const int given = params->topk_length[query * params->topk_length_token_stride];
            slots.count = minimum(maximum(given, 0), params->width / GRANULARITY) * GRANULARITY;
        }
        if (params->limit) {
            const int limit = params->limit[query * params->limit_token_stride];
            slots.rows =
                (u32)minimum(maximum(maximum(limit, 0) - (int)window->first, 0), (int)window->rows);
        }
    }
    return slots;
}

/* A slot's row relative to the window; slots->rows or more if it is masked or outside. */
DEVICE u32 window_row(const struct window *window, const struct slots *slots, int slot) {
    if (GRANULARITY == 1) {
        return slot < slots->count ? (u32)slots->indices[slot] - window->first : (u32)MASKED;
    }
    const u32 entry = slot < slots->count ? (u32)slots->indices[slot / GRANULARITY] : (u32)MASKED;
    return entry < (1u << 31) / GRANULARITY /* rows are below 2^31 */
               ? entry * GRANULARITY + (u32)(slot % GRANULARITY) - window->first
               : (u32)MASKED;
}

/* Sets a bit; returns whether it was set before. */
DEVICE bool set_bit(u32 column, u32 row) {
    const u32 bit = 1u << row % 32;
    return atomic_or_shared(shared_address(MAP_OFFSET + (column + row / 32) * 4), bit) & bit;
}

/* Marks all members' slots of a window. Returns, the same in all threads, whether a member names a
 * row twice. */
DEVICE bool mark(const struct indexer_bwd_lists_params *params, const struct window *window,
                 int group) {
    bool repeated = false;
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < bit_columns(params) * window->words; i += THREADS) {
        map_words()[i] = 0;
    }
    __syncthreads();
#pragma unroll 1
    for (int member = 0; member < params->group_queries; ++member) {
        const struct slots slots = member_slots(params, window, group, member);
        const u32 column = (u32)(member * window->words);
#pragma unroll 1
        for (int begin = (int)threadIdx.x; begin < slots.count; begin += THREADS * LOADS) {
            u32 rows[LOADS];
#pragma unroll
            for (int i = 0; i < LOADS; ++i) {
                rows[i] = window_row(window, &slots, begin + i * THREADS);
            }
#pragma unroll
            for (int i = 0; i < LOADS; ++i) {
                repeated |= rows[i] < slots.rows && set_bit(column, rows[i]);
            }
        }
    }
    return __syncthreads_or(repeated);
}

/* ---- the scan of the map --------------------------------------------------------------------- */

/* The rows of a map word that each half of the members has. */
struct halves {
    u32 first, second;
};

/* Reduces the members' bits of a word to halves; without sections the first half is all members. */
DEVICE struct halves read_members(const struct indexer_bwd_lists_params *params,
                                  const struct window *window, int word) {
    struct halves halves = {0, 0};
    for (int member = 0; member < params->group_queries; ++member) {
        const u32 bits = map_words()[member * window->words + word];
        if (params->runs && member >= params->group_queries / 2) {
            halves.second |= bits;
        } else {
            halves.first |= bits;
        }
    }
    return halves;
}

DEVICE u32 part_rows(struct halves halves, int part) {
    return part == FIRST_HALF    ? halves.first & ~halves.second
           : part == BOTH_HALVES ? halves.first & halves.second
                                 : halves.second & ~halves.first;
}

DEVICE struct counts count_rows(struct halves halves) {
    const struct counts counts = {(u32)__popc(part_rows(halves, FIRST_HALF)) |
                                      (u32)__popc(part_rows(halves, SECOND_HALF)) << HALF_BITS,
                                  (u32)__popc(part_rows(halves, BOTH_HALVES))};
    return counts;
}

DEVICE void add_counts(int *keys, struct counts counts) {
    keys[FIRST_HALF] += (int)(counts.alone & (1u << HALF_BITS) - 1u);
    keys[BOTH_HALVES] += (int)counts.both;
    keys[SECOND_HALF] += (int)(counts.alone >> HALF_BITS);
}

/* The first word of a warp's share of the window. */
DEVICE int share_begin(const struct window *window, int warp) {
    const int share = (window->words + THREADS - 1) / THREADS * 32;
    return minimum(warp * share, window->words);
}

/* Counts each warp's words into COUNTS. */
DEVICE void count_share(const struct indexer_bwd_lists_params *params,
                        const struct window *window) {
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int end = share_begin(window, warp + 1);
    struct counts sum = {0, 0};
#pragma unroll 1
    for (int i = share_begin(window, warp) + lane; i < end; i += 32) {
        const struct counts counts = count_rows(read_members(params, window, i));
        sum.alone += counts.alone;
        sum.both += counts.both;
    }
    sum.alone = (u32)lanes_sum((int)sum.alone, 32);
    sum.both = (u32)lanes_sum((int)sum.both, 32);
    if (lane == 0) {
        warp_counts()[warp] = sum;
    }
    __syncthreads();
}

/* Writes the list positions of the warp's words, which start at `keys` in each section, and the
 * halves' bits. */
DEVICE void place_share(const struct indexer_bwd_lists_params *params, const struct window *window,
                        int *keys) {
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int end = share_begin(window, warp + 1);
#pragma unroll 1
    for (int begin = share_begin(window, warp); begin < end; begin += 32) {
        const int word = begin + lane;
        struct halves halves = {0, 0};
        if (word < end) {
            halves = read_members(params, window, word);
        }
        const struct counts own = count_rows(halves);
        const struct counts sums = {(u32)warp_inclusive_scan((int)own.alone, lane),
                                    (u32)warp_inclusive_scan((int)own.both, lane)};
        int places[PARTS] = {keys[FIRST_HALF], keys[BOTH_HALVES], keys[SECOND_HALF]};
        const struct counts below = {sums.alone - own.alone, sums.both - own.both};
        const struct counts all = {__shfl_sync((u32)ALL_LANES, sums.alone, 31),
                                   __shfl_sync((u32)ALL_LANES, sums.both, 31)};
        add_counts(places, below);
        add_counts(keys, all);
        if (word < end) {
            map_words()[word] = halves.first;
            map_words()[window->words + word] = halves.second;
#pragma unroll
            for (int part = 0; part < PARTS; ++part) {
                map_places(params, window, part)[word] = (u32)places[part];
            }
        }
    }
}

/* The sections of the window's list and each word's positions in it. */
DEVICE void count(const struct indexer_bwd_lists_params *params, const struct window *window,
                  struct list *list) {
    const struct counts *const counts = warp_counts();
    int before[PARTS] = {0, 0, 0}, all[PARTS] = {0, 0, 0};
    count_share(params, window);
#pragma unroll
    for (int warp = 0; warp < WARPS; ++warp) {
        if (warp < (int)threadIdx.x / 32) {
            add_counts(before, counts[warp]);
        }
        add_counts(all, counts[warp]);
    }
    list->parts[0] = 0;
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
        list->parts[part + 1] = list->parts[part] + all[part];
        before[part] += list->parts[part];
    }
    place_share(params, window, before);
    __syncthreads();
}

/* ---- entries --------------------------------------------------------------------------------- */

/* Stores entries [begin, begin + ENTRIES) of the window's list to global memory and clears them.
 * Barriers at begin and end. */
DEVICE void store_entries(const struct list *list, u32 *to, int begin) {
    __syncthreads();
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
        const int first = maximum(list->parts[part], begin);
        const int end = minimum(list->parts[part + 1], begin + ENTRIES);
        u32 *const own = to + (list->ends[part] - list->parts[part]);
#pragma unroll 1
        for (int i = first + (int)threadIdx.x; i < end; i += THREADS) {
            own[i] = entries()[i - begin];
            entries()[i - begin] = 0;
        }
    }
    __syncthreads();
}

/* The entry at a position of the window's list, or null if it is not among those from `begin` on.
 */
DEVICE u32 *find_entry(int place, int begin) {
    const u32 number = (u32)(place - begin);
    return number < (u32)ENTRIES ? entries() + number : 0;
}

DEVICE void place_keys(const struct indexer_bwd_lists_params *params, const struct window *window,
                       int begin) {
#pragma unroll 1
    for (int word = (int)threadIdx.x; word < window->words; word += THREADS) {
        const struct halves halves = {map_words()[word], map_words()[window->words + word]};
        const u32 key = window->first + (u32)word * 32;
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
            int place = (int)map_places(params, window, part)[word];
#pragma unroll 1
            for (u32 rest = part_rows(halves, part); rest; rest &= rest - 1) {
                u32 *const entry = find_entry(place++, begin);
                if (entry) {
                    *entry = key + (u32)__ffs((int)rest) - 1;
                }
            }
        }
    }
}

/* The entry for the gradient of a row of the window, or null if it is not among those from `begin`
 * on. */
DEVICE float *grad_entry(const struct indexer_bwd_lists_params *params, const struct window *window,
                         u32 row, int begin) {
    const u32 word = row / 32, bit = 1u << row % 32;
    const struct halves halves = {map_words()[word], map_words()[window->words + (int)word]};
    const int part = !(halves.second & bit)  ? FIRST_HALF
                     : !(halves.first & bit) ? SECOND_HALF
                                             : BOTH_HALVES;
    const int place =
        (int)map_places(params, window, part)[word] + __popc(part_rows(halves, part) & (bit - 1));
    return (float *)find_entry(place, begin);
}

/* For slots that name no row twice. */
DEVICE void place_grads(const struct indexer_bwd_lists_params *params, const struct window *window,
                        const struct slots *slots, int begin) {
#pragma unroll 1
    for (int slot = (int)threadIdx.x; slot < slots->count; slot += THREADS * LOADS) {
        u32 rows[LOADS];
        float grads[LOADS];
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            rows[i] = window_row(window, slots, slot + i * THREADS);
        }
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            grads[i] = rows[i] < slots->rows ? slots->grad[slot + i * THREADS] : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            float *const entry =
                rows[i] < slots->rows ? grad_entry(params, window, rows[i], begin) : 0;
            if (entry) {
                *entry = grads[i];
            }
        }
    }
}

/* For any slots: one warp adds them one after another. */
DEVICE void add_grads(const struct indexer_bwd_lists_params *params, const struct window *window,
                      const struct slots *slots, int begin) {
    const int lane = (int)threadIdx.x;
    for (int first = 0; lane < 32 && first < slots->count; first += 32) {
        const u32 row = window_row(window, slots, first + lane);
        float *const entry = row < slots->rows ? grad_entry(params, window, row, begin) : 0;
#pragma unroll 1
        for (int active = 0; active < 32; ++active) {
            if (entry && lane == active) {
                *entry += slots->grad[first + lane];
            }
            __syncwarp((u32)ALL_LANES);
        }
    }
}

/* ---- lists ----------------------------------------------------------------------------------- */

DEVICE float *member_grads(const struct indexer_bwd_lists_params *params, int group, int member) {
    return params->grads + ((i64)group * params->group_queries + member) * params->key_stride;
}

/* Stores the window's keys and gradients after those of earlier windows. */
DEVICE void store_window(const struct indexer_bwd_lists_params *params, const struct window *window,
                         struct list *list, bool repeated) {
#pragma unroll 1
    for (int begin = 0; begin < list->parts[PARTS]; begin += ENTRIES) {
        place_keys(params, window, begin);
        store_entries(list, (u32 *)params->keys + (i64)list->group * params->key_stride, begin);
#pragma unroll 1
        for (int member = 0; member < params->group_queries; ++member) {
            const struct slots slots = member_slots(params, window, list->group, member);
            if (repeated) {
                add_grads(params, window, &slots, begin);
            } else {
                place_grads(params, window, &slots, begin);
            }
            store_entries(list, (u32 *)member_grads(params, list->group, member), begin);
        }
    }
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
        list->ends[part] += list->parts[part + 1] - list->parts[part];
    }
}

/* The window from row `first` on. */
DEVICE struct window open_window(const struct indexer_bwd_lists_params *params, u32 first) {
    const u32 most = (u32)(MAP_BYTES / 4 / (bit_columns(params) + PARTS) * 32);
    struct window window = {first, (u32)params->rows - first, 0};
    window.rows = window.rows < most ? window.rows : most;
    window.words = (int)((window.rows + 31) / 32);
    return window;
}

/* Writes a group's members, list length and sections, and pads the list to a multiple of LIST_STEP.
 */
DEVICE void close_list(const struct indexer_bwd_lists_params *params, const struct list *list) {
    const int keys = list->runs ? list->ends[SECOND_HALF] : list->ends[FIRST_HALF];
    const int end = (keys + LIST_STEP - 1) / LIST_STEP * LIST_STEP;
    const int thread = (int)threadIdx.x;
#pragma unroll 1
    for (int i = keys + thread; i < end; i += THREADS) {
        params->keys[(i64)list->group * params->key_stride + i] = MASKED;
        for (int member = 0; member < params->group_queries; ++member) {
            member_grads(params, list->group, member)[i] = 0.0f;
        }
    }
    if (thread < params->group_queries) {
        const i64 entry = (i64)list->group * params->group_queries + thread;
        params->members[entry] = entry < params->tokens ? (int)entry : -1;
    }
    if (thread == 0) {
        params->counts[list->group] = keys;
    }
    if (thread == 0 && list->runs) {
        params->runs[2 * (i64)list->group] = list->ends[FIRST_HALF];
        params->runs[2 * (i64)list->group + 1] = list->ends[BOTH_HALVES];
    }
}

/* Moves the later sections' begins past a counted window's keys. */
DEVICE void skip_parts(struct list *list) {
    list->ends[BOTH_HALVES] += list->parts[BOTH_HALVES];
    list->ends[SECOND_HALF] += list->parts[SECOND_HALF];
}

DEVICE void make_list(const struct indexer_bwd_lists_params *params, int group) {
    struct list list = {group, params->runs != 0, {0, 0, 0}, {0, 0, 0, 0}};
    const bool alone = open_window(params, 0).rows == (u32)params->rows;
#pragma unroll 1
    for (int pass = list.runs && !alone ? COUNT_AHEAD : STORE; pass <= STORE; ++pass) {
#pragma unroll 1
        for (u32 first = 0; first < (u32)params->rows;) {
            const struct window window = open_window(params, first);
            const bool repeated = mark(params, &window, group);
            count(params, &window, &list);
            if (alone || pass == COUNT_AHEAD) {
                skip_parts(&list);
            }
            if (pass == STORE) {
                store_window(params, &window, &list, repeated);
            }
            first += window.rows;
        }
    }
    close_list(params, &list);
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct indexer_bwd_lists_params params) {
    fill_zeros(params.zeros, params.zero_vectors);
    for (int group = (int)blockIdx.x; group < params.groups; group += (int)gridDim.x) {
        make_list(&params, group);
    }
}
