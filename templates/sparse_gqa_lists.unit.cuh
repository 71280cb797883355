//@use common/base.cuh
//@use common/queries.cuh
//@use ptx/atomic.cuh
//@use ptx/memory.cuh
//@use ptx/shared.cuh
//@use common/work.params.h
//@use sparse_gqa.params.h
//@use sparse_gqa_lists.params.h
/*
 * What the passes of sparse_gqa_lists share: an entry's slots, and counters of lists in shared
 * memory. A CTA of passes count and fill has one chunk and LISTS_AT_ONCE lists of one group. A list's
 * number in its group is batch * blocks + block; the counter of list `base + i` has index i.
 */

enum { WARPS = THREADS / 32 };

/* An entry's row of slots. */
struct chooser {
    const int *row;
    int slots; /* that count */
    int limit; /* keys that the query may read */
    int query;
    int batch;
};

/* Without slots for an entry that names no query. */
DEVICE struct chooser find_chooser(const struct sparse_gqa_lists_params *params, int entry,
                                   int group) {
    const struct work_params *const work = &params->work;
    struct chooser chooser = {work->indices, 0, 0, entry, 0};
    if (work->queries) {
        chooser.query = (int)load_l2_32(&work->queries[entry]);
    }
    if (chooser.query < 0 || chooser.query >= work->batches * work->tokens) {
        chooser.query = -1;
        return chooser;
    }
    chooser.batch = query_batch(work, chooser.query);
    const int token = chooser.query - chooser.batch * work->tokens;
    chooser.row = index_row(work, chooser.query) + group * params->lists.indices_group_stride;
    chooser.slots = work->width;
    if (work->topk_length) {
        const int length = work->topk_length[chooser.batch * work->topk_length_batch_stride +
                                             token * work->topk_length_token_stride +
                                             group * params->lists.topk_length_group_stride];
        chooser.slots = minimum(maximum(length, 0), work->width);
    }
    chooser.limit = work->rows;
    if (params->lists.limit) {
        const int limit = params->lists.limit[chooser.batch * params->lists.limit_batch_stride +
                                              token * params->lists.limit_token_stride];
        chooser.limit = minimum(maximum(limit, 0), work->rows);
    }
    return chooser;
}

//@if UNITES
/* Whether an entry has no pairs, because its tile's lists are united. */
DEVICE bool is_united(const struct sparse_gqa_lists_params *params, int entry, int group) {
    const int tile = params->tiles ? (entry - params->first) / params->tile_entries : 0;
    return params->tiles && params->tiles[tile * params->groups + group] > 0;
}

//@end
/* How many keys of the slot's block the query may read, at most a block's; 0: it is masked. The
 * block, or 0, is written to *block. */
DEVICE int slot_keys(const struct sparse_gqa_lists_params *params, const struct chooser *chooser,
                     int slot, int *block) {
    *block = slot < chooser->slots ? chooser->row[slot] : -1;
    if (*block < 0 || *block >= params->blocks) {
        *block = 0;
        return 0;
    }
    return maximum(minimum(chooser->limit - *block * params->granularity, params->granularity), 0);
}

/* A group's list as a list of all groups. */
DEVICE int list_number(const struct sparse_gqa_lists_params *params, int group, int list) {
    const int batch = params->work.batches > 1 ? list / params->blocks : 0;
    return list + (batch * (params->groups - 1) + group) * params->blocks;
}

/* A CTA's part of the work. */
struct part {
    int chunk, group;
    int base;  /* the first list */
    int lists; /* of the group */
};

DEVICE struct part find_part(const struct sparse_gqa_lists_params *params) {
    const int lists = params->work.batches * params->blocks, number = (int)blockIdx.x;
    const int bases = (lists + LISTS_AT_ONCE - 1) / LISTS_AT_ONCE, row = number / bases;
    const struct part part = {row / params->groups, row % params->groups,
                              number % bases * LISTS_AT_ONCE, lists};
    return part;
}

/* A chunk's entries. */
struct chunk {
    int begin, end;
};

DEVICE struct chunk find_chunk(const struct sparse_gqa_lists_params *params, int chunk) {
    const int listed = find_query_range(&params->work).queries - params->first;
    const int entries = minimum(listed, params->entries), begin = chunk * params->chunk_entries;
    const struct chunk range = {params->first + begin,
                                params->first + minimum(begin + params->chunk_entries, entries)};
    return range;
}

/* The counters of a warp, or of all (warp 0). */
DEVICE int *counters(int warp) {
    return (int *)(arena + COUNTERS_OFFSET) + warp * LISTS_AT_ONCE;
}

DEVICE u32 counter_address(int warp, int list) {
    return shared_address((u32)(COUNTERS_OFFSET + (warp * LISTS_AT_ONCE + list) * 4));
}

DEVICE void zero_counters(int rows) {
    for (int i = (int)threadIdx.x; i < rows * LISTS_AT_ONCE; i += THREADS) {
        counters(0)[i] = 0;
    }
}

/* Counts the slots of an entry in a warp's counters; `base`: the first of the lists. By a warp. */
DEVICE void count_slots(const struct sparse_gqa_lists_params *params, int entry, int group,
                        int base, int row) {
    //@if UNITES
    if (is_united(params, entry, group)) {
        return;
    }
    //@end
    const struct chooser chooser = find_chooser(params, entry, group);
    for (int slot = (int)threadIdx.x % 32; slot < chooser.slots; slot += 32) {
        int block;
        const int keys = slot_keys(params, &chooser, slot, &block);
        const int list = chooser.batch * params->blocks + block - base;
        if (keys > 0 && list >= 0 && list < LISTS_AT_ONCE) {
            atomic_add_shared(counter_address(row, list), 1);
        }
    }
}
