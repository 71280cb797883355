//@use common/base.cuh
//@use common/lanes.cuh
//@use common/queries.cuh
//@use ptx/atomic.cuh
//@use ptx/shared.cuh
//@use sparse_attn_bwd_lists.params.h
//@use sparse_attn_bwd_lists.slots.cuh
//@use sparse_attn_bwd_lists.sort.cuh
/*
 * Backward pass of sparse attention, ahead of the main kernel: each group's list of keys, out of
 * its queries' index rows. What is written: sparse_attn_bwd_lists.params.h.
 *
 * Any grid is right: what is written depends on the arguments alone.
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
 * in slot order).
 *
 * Where values come along, each key of a member has one entry, and the values of its slots are
 * added in their order. A second look at the slots finds in the map, and in what the list had
 * before each of its words, where they go. The list's keys, then each member's values, are put
 * together in shared memory, as many entries at a time as it holds, since scattered stores to
 * global memory would take most of the time. Windows are smaller then, and there may be any number
 * of them. With `runs` lists have three parts: what a window has of each is read in turn, or, where
 * there are several windows, all of them are gone through for each part.
 *
 * A query with more valid slots than params.topk: its row is cut behind the last one that counts,
 * found by a warp.
 *
 * Shared memory:
 *   MAP     bits, row by row, group_queries each: a power of two, so that none is cut by a word.
 *           With values, behind a window's words: of each word, and with parts of each part, u32
 *           where its first key stands in the list; then entries of the list, u32 or fp32
 *   MEMBERS [MOST_MEMBERS] struct member
 *   COUNTS  [WARPS] int: keys in the warp's part of the map
 *   AGAIN   [1] int: entries of the second part
 *
 * Barriers of a window: the map is empty; bits are set; COUNTS are there; the map was read; entries
 * are there; they are stored.
 */

enum {
    WARPS = THREADS / 32,
    MOST_MEMBERS = 8,
    NO_BATCH = 0x7fffffff,
    LEAST_ENTRIES = 2048 /* that the map leaves room for */
};

/* A group's query. */
struct member {
    const int *row;
    const float *values; /* of its slots; null: none come along */
    int slots;           /* that count; 0: no query */
    int batch;
};

/* What happens to the slots of a window. */
enum { MARK, MARK_AND_APPEND, APPEND };

struct window {
    u32 first, rows; /* of the batch */
    int batch;
    int step;
    int words; /* of the map */
};

/* Which keys of a window: all, or those of the first half of the members alone, of both halves, of
 * the second half alone. */
enum { PART_ALL, PART_FIRST, PART_BOTH, PART_SECOND };

/* A group's list while it is made; the same in all threads. */
struct list {
    int *keys;
    unsigned char *masks; /* null: of one query, or none are wanted */
    float *values;        /* null: none come along */
    int count;
    int *runs;                 /* null: one part */
    int first_part, last_part; /* that are read of a window */
};

DEVICE struct member *members(void) {
    return (struct member *)(arena + MEMBERS_OFFSET);
}

DEVICE u32 *map_words(void) {
    return (u32 *)(arena + MAP_OFFSET);
}

/* With values, of each word of a window: where its first key of a part stands in the list. */
DEVICE u32 *map_places(const struct window *window, int part) {
    return map_words() + window->words * maximum(part, 1);
}

DEVICE int *again_count(void) {
    return (int *)(arena + AGAIN_OFFSET);
}

/* The query of a group's member, or -1; `entry`: where it stands in the query list. */
DEVICE int find_query(const struct sparse_attn_bwd_lists_params *params, i64 group, int member,
                      int *entry) {
    const struct work_params *const work = &params->work;
    const u32 item = (u32)group * (u32)params->group_queries + (u32)member; /* below 2^31 + 8 */
    struct query_range range = find_query_range(work);
    if (params->last_range) {
        range.queries =
            (int)load_l2_32(&params->last_range[0]) + (int)load_l2_32(&params->last_range[1]);
    }
    *entry = 0;
    if (range.queries <= 0 || item >= (u32)range.queries) {
        return -1;
    }
    *entry = range.first + (int)item;
    const int query = work->queries ? (int)load_l2_32(&work->queries[*entry]) : *entry;
    return query >= 0 && query < work->batches * work->tokens ? query : -1;
}

/* Zeros for the values of a list's entries [begin, end); by `threads` threads. */
DEVICE void clear_values(const struct sparse_attn_bwd_lists_params *params, const struct list *list,
                         int begin, int end, int thread, int threads) {
    for (int member = 0; list->values && member < params->group_queries; ++member) {
        float *const values = list->values + (i64)member * params->key_stride;
        for (int i = begin + thread; i < end; i += threads) {
            values[i] = 0.0f;
        }
    }
}

/* Where a group's list is; it is empty. */
DEVICE struct list open_list(const struct sparse_attn_bwd_lists_params *params, i64 group) {
    const i64 begin = group * params->key_stride;
    struct list list = {params->keys + begin, 0, 0, 0, 0, PART_ALL, PART_ALL};
    if (params->group_queries > 1 && !params->slot_values) {
        list.masks = params->masks + begin;
    }
    if (params->slot_values) {
        list.values = params->list_values + begin * params->group_queries;
    }
    if (params->runs) {
        list.runs = params->runs + group * 2;
    }
    return list;
}

/* The values of a query's slots, of a call that has any. */
DEVICE const float *value_row(const struct sparse_attn_bwd_lists_params *params, int query) {
    return params->slot_values + query * params->slot_values_token_stride;
}

/* From a list's end up to the next multiple of LIST_STEP; by `threads` threads. */
DEVICE void pad_list(const struct sparse_attn_bwd_lists_params *params, const struct list *list,
                     int thread, int threads) {
    const int end = (list->count + LIST_STEP - 1) / LIST_STEP * LIST_STEP;
    for (int i = list->count + thread; i < end; i += threads) {
        list->keys[i] = MASKED;
        if (list->masks) {
            list->masks[i] = 0;
        }
    }
    clear_values(params, list, list->count, end, thread, threads);
}

/* ---- lists in slot order ----------------------------------------------------------------------
 */

DEVICE void copy_list(const struct sparse_attn_bwd_lists_params *params, i64 group) {
    const struct work_params *const work = &params->work;
    const int lane = (int)threadIdx.x % 32;
    struct list list = open_list(params, group);
    int entry;
    const int query = find_query(params, group, 0, &entry);
    if (query >= 0) {
        struct walk walk = {list.keys, (u32)work->rows, 0, params->topk, 0, 0, 0, list.values};
        walk.first_key = query_batch(work, query) * work->rows;
        walk.values = list.values ? value_row(params, query) : 0;
        walk_row(&walk, index_row(work, query), index_slots(work, entry, query));
        list.count = minimum(walk.count, params->topk);
    }
    pad_list(params, &list, lane, 32);
    if (lane == 0) {
        params->members[group] = query;
        params->counts[group] = list.count;
    }
}

/* ---- lists by maps ---------------------------------------------------------------------------
 */

/* How many of a row's slots hold the first params->topk valid ones; by a warp. */
DEVICE int cut_slots(const struct sparse_attn_bwd_lists_params *params, const int *row, int slots) {
    struct walk walk = {0, (u32)params->work.rows, 0, params->topk, 0, 0, 0, 0};
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
        struct member member = {work->indices, 0, 0, NO_BATCH};
        int entry;
        const int query = find_query(params, group, i, &entry);
        if (query >= 0) {
            member.row = index_row(work, query);
            member.slots = cut_slots(params, member.row, index_slots(work, entry, query));
            member.batch = query_batch(work, query);
            member.values = params->slot_values ? value_row(params, query) : 0;
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

/* Those of a part. */
DEVICE u32 part_rows(u32 word, int group_queries, int part) {
    const u32 half = 0xffffffffu / ((1u << group_queries) - 1u) *
                     ((1u << group_queries / 2) - 1u); /* the first members' bits */
    if (part == PART_ALL) {
        return rows_of(word, group_queries);
    }
    const u32 first = rows_of(word & half, group_queries);
    const u32 second = rows_of(word & ~half, group_queries);
    return part == PART_FIRST  ? first & ~second
           : part == PART_BOTH ? first & second
                               : second & ~first;
}

/* The keys of a part's rows of a word of the map, from a place in the list on. */
DEVICE void store_keys(const struct list *list, u32 word, u32 rows, int first_key,
                       int group_queries, int place) {
    const int shift = mask_shift(group_queries);
    for (u32 rest = rows; rest; rest &= rest - 1) {
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

/* Puts the map's keys of a part behind the list's end: each warp those of some of the words. With
 * values finds where they go, and no more. */
DEVICE void read_map(const struct sparse_attn_bwd_lists_params *params, const struct window *window,
                     struct list *list, int part) {
    int *const counts = (int *)(arena + COUNTS_OFFSET);
    const int group_queries = params->group_queries, words = window->words;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int share = (words + THREADS - 1) / THREADS * 32;
    const int begin = warp * share, end = minimum(begin + share, words);
    int keys = 0;
    for (int i = begin + lane; i < end; i += 32) {
        keys += __popc(part_rows(map_words()[i], group_queries, part));
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
        const u32 rows = part_rows(word, group_queries, part);
        const int own = __popc(rows), sum = sum_up_to(own);
        if (!list->values) {
            store_keys(list, word, rows, batch_key + ((i + lane) * 32 >> mask_shift(group_queries)),
                       group_queries, place + sum - own);
        } else if (i + lane < end) {
            map_places(window, part)[i + lane] = (u32)(place + sum - own);
        }
        place += __shfl_sync((u32)ALL_LANES, sum, 31);
    }
    __syncthreads();
}

/* ---- values that come along ------------------------------------------------------------------ */

/* Entries of a group's list that are put together in shared memory. */
struct entries {
    u32 *at;
    int first, count; /* of the list's */
};

/* As many entries of a window's list as there is room for, from entry `first` on. */
DEVICE struct entries open_entries(const struct window *window, const struct list *list,
                                   int first) {
    const int used = window->words * (list->runs ? 1 + PART_SECOND : 2);
    struct entries entries = {map_words() + used, first, 0};
    entries.count = minimum(MAP_BYTES / 4 - used, list->count - first);
    return entries;
}

/* Where an entry of the list is; null: among others. */
DEVICE u32 *find_entry(const struct entries *entries, int place) {
    const u32 number = (u32)(place - entries->first);
    return number < (u32)entries->count ? entries->at + number : 0;
}

/* Entries to global memory, and zeros in their place; barriers before and behind. */
DEVICE void store_entries(const struct entries *entries, void *list) {
    __syncthreads();
    for (int i = (int)threadIdx.x; i < entries->count; i += THREADS) {
        ((u32 *)list)[entries->first + i] = entries->at[i];
        entries->at[i] = 0;
    }
    __syncthreads();
}

/* The keys of those entries. */
DEVICE void place_keys(const struct sparse_attn_bwd_lists_params *params,
                       const struct window *window, const struct list *list,
                       const struct entries *entries) {
    const int group_queries = params->group_queries, shift = mask_shift(group_queries);
    const int first_key = window->batch * params->work.rows + (int)window->first;
    for (int i = (int)threadIdx.x; i < window->words; i += THREADS) {
        const u32 word = map_words()[i];
        for (int part = list->first_part; part <= list->last_part; ++part) {
            int place = (int)map_places(window, part)[i];
            for (u32 rest = part_rows(word, group_queries, part); rest; rest &= rest - 1) {
                u32 *const entry = find_entry(entries, place++);
                if (entry) {
                    *entry = (u32)(first_key + ((i * 32 + __ffs((int)rest) - 1) >> shift));
                }
            }
        }
    }
}

/* The part of a row that members have, by their bits. */
DEVICE int part_of(u32 bits, int group_queries) {
    const bool first = bits & ((1u << group_queries / 2) - 1u), second = bits >> group_queries / 2;
    return !second ? PART_FIRST : first ? PART_BOTH : PART_SECOND;
}

/* Where the value of a row in the map goes; null: among other entries, or its part is not read. */
DEVICE float *value_entry(const struct sparse_attn_bwd_lists_params *params,
                          const struct window *window, const struct list *list,
                          const struct entries *entries, u32 row) {
    const int group_queries = params->group_queries;
    const u32 bit = row << mask_shift(group_queries), word = map_words()[bit / 32];
    int part = PART_ALL;
    if (list->runs) {
        part = part_of(word >> bit % 32 & ((1u << group_queries) - 1u), group_queries);
        if (part < list->first_part || part > list->last_part) {
            return 0;
        }
    }
    const u32 before = part_rows(word, group_queries, part) & ((1u << bit % 32) - 1u);
    const int place = (int)map_places(window, part)[bit / 32] + __popc(before);
    return (float *)find_entry(entries, place);
}

/* Of a member that names no row of the window twice. */
DEVICE void place_values(const struct sparse_attn_bwd_lists_params *params,
                         const struct window *window, const struct list *list,
                         const struct entries *entries, int member) {
    const struct member own = members()[member];
    for (int begin = (int)threadIdx.x; begin < own.slots; begin += THREADS * LOADS) {
        u32 rows[LOADS];
        float values[LOADS];
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            const int slot = begin + i * THREADS;
            rows[i] = slot < own.slots ? (u32)own.row[slot] - window->first : (u32)MASKED;
        }
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            values[i] = rows[i] < window->rows ? own.values[begin + i * THREADS] : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            float *const entry =
                rows[i] < window->rows ? value_entry(params, window, list, entries, rows[i]) : 0;
            if (entry) {
                *entry = values[i];
            }
        }
    }
}

/* How many lanes below this one have the same value. */
DEVICE int equal_below(u32 value) {
    const int lane = (int)threadIdx.x % 32;
    int equal = 0;
#pragma unroll 1
    for (int step = 1; step < 32; ++step) {
        const u32 other = __shfl_up_sync((u32)ALL_LANES, value, (u32)step);
        equal += lane >= step && other == value;
    }
    return equal;
}

/* Of any member, by a warp: what belongs together is added in slot order. */
DEVICE void add_values(const struct sparse_attn_bwd_lists_params *params,
                       const struct window *window, const struct list *list,
                       const struct entries *entries, int member) {
    const struct member own = members()[member];
    for (int begin = 0; begin < own.slots; begin += 32) {
        const int slot = begin + (int)threadIdx.x % 32;
        const u32 row = slot < own.slots ? (u32)own.row[slot] - window->first : (u32)MASKED;
        float *const entry =
            row < window->rows ? value_entry(params, window, list, entries, row) : 0;
        const int turn = equal_below(row), turns = lanes_maximum(entry ? turn + 1 : 0, 32);
        for (int i = 0; i < turns; ++i) {
            if (entry && i == turn) {
                *entry += own.values[slot];
            }
            __syncwarp((u32)ALL_LANES);
        }
    }
}

/* The window's keys, which stand in the list from entry `begin` on, and their values, while the map
 * is there. `again`: a member names a row twice. */
DEVICE void store_window(const struct sparse_attn_bwd_lists_params *params,
                         const struct window *window, const struct list *list, int begin,
                         bool again) {
    while (begin < list->count) {
        const struct entries entries = open_entries(window, list, begin);
        place_keys(params, window, list, &entries);
        store_entries(&entries, list->keys);
        for (int member = 0; member < params->group_queries; ++member) {
            if (members()[member].batch != window->batch) {
                /* None of its values. */
            } else if (!again) {
                place_values(params, window, list, &entries, member);
            } else if (threadIdx.x < 32) {
                add_values(params, window, list, &entries, member);
            }
            store_entries(&entries, list->values + (i64)member * params->key_stride);
        }
        begin += entries.count;
    }
}

/* ---- windows --------------------------------------------------------------------------------- */

/* The lowest batch above `batch` that a member is of. */
DEVICE int next_batch(const struct sparse_attn_bwd_lists_params *params, int batch) {
    int next = NO_BATCH;
    for (int i = 0; i < params->group_queries; ++i) {
        const int own = members()[i].batch;
        next = own > batch ? minimum(next, own) : next;
    }
    return next;
}

/* Notes where the second and the third part of a group's list begin, as the parts are read. */
DEVICE void note_part(const struct list *list, int part) {
    if (part >= PART_BOTH && threadIdx.x == 0) {
        list->runs[part - PART_BOTH] = list->count;
    }
}

/* Rows a window has. */
DEVICE u32 window_rows(const struct sparse_attn_bwd_lists_params *params) {
    const u32 share = params->runs ? 1 + PART_SECOND : params->slot_values ? 2 : 1;
    const u32 words = (u32)MAP_BYTES / 4 - (params->slot_values ? (u32)LEAST_ENTRIES : 0);
    return words / share * 32 >> mask_shift(params->group_queries);
}

DEVICE bool has_windows(const struct sparse_attn_bwd_lists_params *params) {
    return params->slot_values || (u64)params->work.rows <= (u64)window_rows(params) * MOST_WINDOWS;
}

/* The members' slots of every batch and window. Whether a row was named again. */
DEVICE bool go_through(const struct sparse_attn_bwd_lists_params *params, int step,
                       struct list *list) {
    const u32 rows = (u32)params->work.rows;
    const u32 most = step == APPEND ? rows : window_rows(params);
    bool again = false;
    for (int batch = next_batch(params, -1); batch != NO_BATCH; batch = next_batch(params, batch)) {
        for (u32 first = 0; first < rows; first += most) {
            struct window window = {first, rows - first < most ? rows - first : most, batch, step,
                                    0};
            if (step != APPEND) {
                window.words =
                    (int)(((window.rows << mask_shift(params->group_queries)) + 31) / 32);
                clear_map(window.words);
            }
            const bool named_again = visit_members(params, &window, list);
            const int begin = list->count;
            again |= named_again;
            for (int part = list->first_part; step == MARK && part <= list->last_part; ++part) {
                if (first == 0) {
                    note_part(list, part);
                }
                read_map(params, &window, list, part);
            }
            if (list->values) {
                store_window(params, &window, list, begin, named_again);
            }
        }
    }
    return again;
}

/* The three parts of a list: of one window all at once, of several one after another. */
DEVICE void go_through_parts(const struct sparse_attn_bwd_lists_params *params, struct list *list) {
    const int step = (u32)params->work.rows <= window_rows(params) ? PART_SECOND : 1;
    if (threadIdx.x == 0) {
        list->runs[0] = list->runs[1] = 0;
    }
    __syncthreads();
    for (int part = PART_FIRST; part <= PART_SECOND; part += step) {
        list->first_part = part;
        list->last_part = part + step - 1;
        go_through(params, MARK, list);
    }
}

/* Puts what is appended in order; it is part of the list then. */
DEVICE void sort_appended(struct list *list) {
    const int again = *again_count();
    sort_entries(list->keys + list->count, list->masks ? list->masks + list->count : 0, (u32)again);
    list->count += again;
}

DEVICE void unite_lists(const struct sparse_attn_bwd_lists_params *params, i64 group) {
    struct list list = open_list(params, group);
    open_members(params, group);
    if (!has_windows(params)) {
        go_through(params, APPEND, &list);
        sort_appended(&list);
    } else if (list.runs) {
        go_through_parts(params, &list);
    } else if (go_through(params, MARK, &list) && !list.values) {
        go_through(params, MARK_AND_APPEND, &list);
        sort_appended(&list);
    }
    pad_list(params, &list, (int)threadIdx.x, THREADS);
    if (threadIdx.x == 0) {
        params->counts[group] = list.count;
    }
    __syncthreads();
}

/* ---- the kernel ------------------------------------------------------------------------------
 */

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct sparse_attn_bwd_lists_params params) {
    if (params.group_queries == 1 && (!params.ascending || !has_windows(&params))) {
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
