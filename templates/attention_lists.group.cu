//@use common/base.cuh
//@use common/lanes.cuh
//@use common/queries.cuh
//@use common/warp_scan.cuh
//@use common/zeros.cuh
//@use ptx/atomic.cuh
//@use ptx/grid.cuh
//@use ptx/shared.cuh
//@use attention_lists.params.h
//@use attention_lists.queries.cuh
//@use attention_lists.slots.cuh
//@use attention_lists.sort.cuh
/*
 * Builds each group's key list from its queries' index rows, before the backward pass of sparse_attn and
 * the forward pass of sparse_gqa with united lists; and zero-fills the sums that the backward pass's main
 * kernel adds to. Outputs: attention_lists.params.h.
 *
 * Any grid gives the same result. The next kernel of the stream may start while this one runs
 * (PDL).
 *
 * Lists of one query in slot order: one warp per group. It copies the row's valid slots and keeps
 * their order with ballots.
 *
 * Ascending lists and lists of several queries: one CTA per group. A bitmap in shared memory has
 * one bit per member and row, for as many rows as fit at a time (a window): the members' slots set
 * bits in any order, and reading the bitmap gives the list, ascending, with its masks. Batches and
 * windows are processed in ascending order. If a slot finds its bit set, its member selected the
 * row before. If there is any such slot, the windows are processed once more, and the repeated
 * slots' keys are appended, one entry each, and sorted. So a list is
 *     keys strictly ascending, then keys ascending, equal ones in the order of their masks,
 * and the second part begins at the first key that is not greater than the one before it. Lists
 * that need more than MOST_WINDOWS windows have a second part only, one bit per mask (with one
 * query: in slot order, unless `firsts` requires ascending lists).
 *
 * If a query has more than params.topk valid slots, a warp finds the last one that counts, and the
 * row is cut there.
 *
 * Shared memory:
 *   MAP     bits, row by row, group_queries each: a power of two, so that no row crosses a word
 *   MEMBERS [MOST_MEMBERS] struct member
 *   COUNTS  [WARPS] int: keys in each warp's part of the map
 *   AGAIN   [1] int: entries of the second part
 *
 * Barriers of a window: the map is cleared; bits are set; COUNTS are written; the map was read.
 */

enum { WARPS = THREADS / 32, MOST_MEMBERS = 8, NO_BATCH = 0x7fffffff };

/* A group's query. */
struct member {
    const int *row;
    int slots; /* to read; 0: no query */
    int batch;
};

/* How a window's slots are processed. */
enum { MARK, MARK_AND_APPEND, APPEND };

struct window {
    u32 first, rows; /* of the batch */
    int batch;
    int step;
};

/* A group's list under construction; the same in all threads. */
struct list {
    int *keys;
    unsigned char *masks; /* null with one query */
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

/* The query of a group's member, or -1; `entry`: its index in the query list. */
DEVICE int find_member(const struct attention_lists_params *params, i64 group, int member,
                       int *entry) {
    const u32 item = (u32)group * (u32)params->group_queries + (u32)member; /* below 2^31 + 8 */
    return find_query(&params->work, params->last_range, item, entry);
}

/* Pads a list to the next multiple of LIST_STEP, with `threads` threads. */
DEVICE void pad_list(const struct list *list, int thread, int threads) {
    const int end = (list->count + LIST_STEP - 1) / LIST_STEP * LIST_STEP;
    for (int i = list->count + thread; i < end; i += threads) {
        list->keys[i] = MASKED;
        if (list->masks) {
            list->masks[i] = 0;
        }
    }
}

/* Writes the list's other copies, once the list is complete, with `threads` threads. */
DEVICE void repeat_list(const struct attention_lists_params *params, const struct list *list,
                        int thread, int threads) {
    const int end = (list->count + LIST_STEP - 1) / LIST_STEP * LIST_STEP;
    for (int copy = 1; copy < params->copies; ++copy) {
        for (int i = thread; i < end; i += threads) {
            list->keys[copy * params->copy_stride + i] = list->keys[i];
        }
    }
}

/* ---- lists in slot order --------------------------------------------------------------------- */

DEVICE void copy_list(const struct attention_lists_params *params, i64 group) {
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

/* The number of leading slots that hold the first params->topk valid ones. One warp calls it. */
DEVICE int cut_slots(const struct attention_lists_params *params, const int *row, int slots) {
    struct walk walk = {0, (u32)params->work.rows, 0, params->topk, 0, 0};
    if (slots <= params->topk) {
        return slots;
    }
    walk_row(&walk, row, slots);
    return lanes_maximum(walk.end, 32);
}

/* Finds the group's queries; each warp takes every WARPS-th. */
DEVICE void open_members(const struct attention_lists_params *params, i64 group) {
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

/* log2 of group_queries. */
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

/* Processes a slot with any index, valid or not. Returns whether its member selected the row
 * before. */
DEVICE bool visit_slot(const struct attention_lists_params *params, const struct window *window,
                       const struct list *list, u32 index, int member) {
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

/* Processes a member's index row with `threads` threads, of which this one is number `thread`. */
DEVICE bool visit_row(const struct attention_lists_params *params, const struct window *window,
                      const struct list *list, int member, int thread, int threads) {
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

/* Processes all members' slots of a window, each member with a part of the CTA. Returns, in all
 * threads, whether a row was selected again. A barrier. */
DEVICE bool visit_members(const struct attention_lists_params *params, const struct window *window,
                          const struct list *list) {
    const int threads = THREADS / params->group_queries;
    const int member = (int)threadIdx.x / threads, thread = (int)threadIdx.x % threads;
    bool again = false;
    if (members()[member].batch == window->batch) {
        again = visit_row(params, window, list, member, thread, threads);
    }
    return __syncthreads_or(again);
}

DEVICE int window_words(const struct attention_lists_params *params, const struct window *window) {
    return (int)(((window->rows << mask_shift(params->group_queries)) + 31) / 32);
}

DEVICE void clear_map(int words) {
    for (int i = (int)threadIdx.x; i < words; i += THREADS) {
        map_words()[i] = 0;
    }
    __syncthreads();
}

/* A mask with the lowest bit of each row of a word that a member has. */
DEVICE u32 rows_of(u32 word, int group_queries) {
    for (int step = 1; step < group_queries; step *= 2) {
        word |= word >> step;
    }
    return word & 0xffffffffu / ((1u << group_queries) - 1u);
}

/* Stores the keys of a word of the map, from index `place` of the list on. */
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

/* Appends the map's keys to the list; each warp reads a part of the words. */
DEVICE void read_map(const struct attention_lists_params *params, const struct window *window,
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
        const int own = __popc(rows_of(word, group_queries)), sum = warp_inclusive_scan(own, lane);
        store_keys(list, word, batch_key + ((i + lane) * 32 >> mask_shift(group_queries)),
                   group_queries, place + sum - own);
        place += __shfl_sync((u32)ALL_LANES, sum, 31);
    }
    __syncthreads();
}

/* The lowest batch above `batch` that a member belongs to. */
DEVICE int next_batch(const struct attention_lists_params *params, int batch) {
    int next = NO_BATCH;
    for (int i = 0; i < params->group_queries; ++i) {
        const int own = members()[i].batch;
        next = own > batch ? minimum(next, own) : next;
    }
    return next;
}

/* Rows per window. */
DEVICE u32 window_rows(const struct attention_lists_params *params) {
    return (u32)MAP_BYTES * 8 >> mask_shift(params->group_queries);
}

DEVICE bool has_windows(const struct attention_lists_params *params) {
    return (u64)params->work.rows <= (u64)window_rows(params) * MOST_WINDOWS;
}

/* Processes the slots in every batch and window. Returns whether a row was selected again. */
DEVICE bool go_through(const struct attention_lists_params *params, int step, struct list *list) {
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

/* Sorts the appended entries and makes them part of the list. */
DEVICE void sort_appended(struct list *list) {
    const int again = *again_count();
    sort_entries(list->keys + list->count, list->masks ? list->masks + list->count : 0, (u32)again);
    list->count += again;
}

DEVICE void unite_lists(const struct attention_lists_params *params, i64 group) {
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
    KERNEL_NAME(const __grid_constant__ struct attention_lists_params params) {
    if (PDL && threadIdx.x == 0) {
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
