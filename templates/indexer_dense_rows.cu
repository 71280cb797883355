//@use common/base.cuh
//@use common/block_sums.cuh
//@use common/logit.cuh
//@use common/loss_norms.cuh
//@use common/softmax.cuh
//@use ptx/math.cuh
//@use indexer_dense_rows.params.h
/*
 * The indexer's loss of each query of a chunk over its window, and its gradient with respect to the
 * logits, as lists for the indexer's backward pass (indexer_bwd_main.params.h). Meaning:
 * include/smelt/indexer_dense_loss.h. A slot is what has a target and a logit: a key; with GRANULARITY above
 * 1 a pool, which is a key of the indexer's; with BLOCK_MAX above 1 a block of keys.
 *
 * Grid: one CTA per member of a group, or fewer that loop. A group's list has the keys of the hull
 * of its members' windows; a member's gradient is 0 where its window lacks the key. With BLOCK_MAX above 1
 * the list has a section for each member, of the keys with its blocks' largest logits, and a member's
 * gradients are 0 in the others' sections.
 *
 *   0. with pools or blocks: each slot's sum of targets and, of a block, its largest logit. LANES lanes
 *      take a slot. Sums overwrite the scores of the same row: slot `slot` replaces a key that is at most
 *      one of its own, so that no thread overwrites a score that another has yet to read if it waits,
 *      after each step's reads, for all threads. Largest logits follow in the row's second half
 *   1. the sum of the targets, the maximum logit and the sum of exponentials relative to it: each
 *      thread's own, then the block's
 *   2. the loss, and the gradients, which overwrite the logits of the same row: the list's entry i is
 *      the slot `begin` + i, so that no thread overwrites a logit that another has yet to read if it
 *      waits, after each step's reads, for all threads
 *
 * Shared memory: a float per warp for each of the four reductions.
 */

enum {
    LOADS = 4, /* keys of a thread and step */
    STEP = THREADS * LOADS,
    LIST_STEP = 64,                      /* lists are padded to a multiple of it */
    SLOT_KEYS = GRANULARITY * BLOCK_MAX, /* one of them is 1 */
    LANES = SLOT_KEYS < 32 ? SLOT_KEYS : 32,
    SLOT_STEP = THREADS / LANES, /* slots of a step */
    NO_KEY = 0x7fffffff
};

/* A member's row. */
struct row {
    float *scores, *logits; /* by slot, once step 0 is done */
    float *grads;
    struct key_range window; /* of the indexer's keys */
    struct key_range slots;
    struct key_range list; /* slots of its group's list, or of a section */
    int section;           /* the first entry of its own */
    int count;             /* entries of the list */
    float weight;          /* of its loss; 0: it has none */
    float factor;          /* of its gradient */
};

/* A query's window, clipped; [0, 0) if it is empty, as that of a missing query. */
DEVICE struct key_range window_of(const struct indexer_dense_rows_params *params, i64 query) {
    const struct key_range none = {0, 0};
    if (query >= params->tokens) {
        return none;
    }
    const struct key_range window =
        window_among(params->window_begin[query], params->window_end[query], 0, params->rows);
    return window.begin < window.end ? window : none;
}

/* The slots with a key of a window. */
DEVICE struct key_range slots_of(struct key_range window) {
    const struct key_range slots = {window.begin / BLOCK_MAX,
                                    (window.end + (BLOCK_MAX - 1)) / BLOCK_MAX};
    return slots;
}

/* The hull of the windows of a group, whose first query is `query`; [0, 0) if all are empty. */
DEVICE struct key_range find_hull(const struct indexer_dense_rows_params *params, i64 query) {
    struct key_range hull = {params->rows, 0};
    for (int i = 0; i < params->group_queries; ++i) {
        const struct key_range window = window_of(params, query + i);
        if (window.begin < window.end) {
            hull.begin = minimum(hull.begin, window.begin);
            hull.end = maximum(hull.end, window.end);
        }
    }
    hull.begin = minimum(hull.begin, hull.end);
    return hull;
}

DEVICE struct row open_row(const struct indexer_dense_rows_params *params, int number) {
    const i64 query = (i64)params->first + number;
    struct row row;
    float weight = params->query_weight;
    if (params->weight && query < params->tokens) {
        weight *= params->weight[query];
    }
    const int member = number % params->group_queries;
    row.scores = params->scores + (i64)number * params->scores_stride;
    row.logits = params->logits + (i64)number * params->key_stride;
    row.grads = row.logits;
    row.window = window_of(params, query);
    row.slots = slots_of(row.window);
    row.list = slots_of(find_hull(params, query - member));
    row.count = row.list.end - row.list.begin;
    row.section = BLOCK_MAX > 1 ? member * row.count : 0;
    row.count *= BLOCK_MAX > 1 ? params->group_queries : 1;
    row.weight = finite_weight(weight);
    row.factor = row.weight * (params->grad_loss ? *params->grad_loss : 1.0f);
    return row;
}

/* A logit as the loss takes it: -inf for NaN, else at most the largest finite number. */
DEVICE float clamped_logit(float logit) {
    return fminf(fmaxf(logit, MINUS_INFINITY), LARGEST_FLOAT);
}

/* Maximum over the block; contains a barrier. */
DEVICE float block_largest(float value, int offset) {
    float *const warps = (float *)(arena + offset);
    block_begin(warps, warp_maximum(value));
    __syncthreads();
    return block_maximum(warps);
}

/* Step 0: the sums of slots' targets. By the whole block. */
DEVICE void sum_slots(const struct row *row) {
    const int lane = (int)threadIdx.x % LANES;
#pragma unroll 1
    for (int first = row->slots.begin; first < row->slots.end; first += SLOT_STEP) {
        const int slot = first + (int)threadIdx.x / LANES;
        float sum = 0.0f;
        for (int i = lane; i < SLOT_KEYS && slot < row->slots.end; i += LANES) {
            const int key = slot * SLOT_KEYS + i;
            if (BLOCK_MAX == 1 || (key >= row->window.begin && key < row->window.end)) {
                sum += row->scores[key];
            }
        }
#pragma unroll
        for (int step = LANES / 2; step > 0; step /= 2) {
            sum += __shfl_xor_sync((u32)ALL_LANES, sum, step);
        }
        __syncthreads(); /* no score of this step's keys is needed any more */
        if (lane == 0 && slot < row->slots.end) {
            row->scores[slot] = sum;
        }
    }
}

/* A block's largest logit, of the lowest key that has it. */
struct best {
    float logit;
    int key;
};

DEVICE void take_better(struct best *best, float logit, int key) {
    if (logit > best->logit || (logit == best->logit && key < best->key)) {
        best->logit = logit;
        best->key = key;
    }
}

/* Likewise, the largest logits of blocks, and their keys; `keys`: null, or the row's section of the
 * list. */
DEVICE void find_largest(struct row *row, int *keys, int scores_stride) {
    float *const to = row->scores + scores_stride / 2;
    const int lane = (int)threadIdx.x % LANES;
#pragma unroll 1
    for (int first = row->slots.begin; first < row->slots.end; first += SLOT_STEP) {
        const int slot = first + (int)threadIdx.x / LANES;
        struct best best = {MINUS_INFINITY, NO_KEY};
        for (int i = lane; i < SLOT_KEYS && slot < row->slots.end; i += LANES) {
            const int key = slot * SLOT_KEYS + i;
            if (key >= row->window.begin && key < row->window.end) {
                take_better(&best, clamped_logit(row->logits[key]), key);
            }
        }
#pragma unroll
        for (int step = LANES / 2; step > 0; step /= 2) {
            const float logit = __shfl_xor_sync((u32)ALL_LANES, best.logit, step);
            take_better(&best, logit, __shfl_xor_sync((u32)ALL_LANES, best.key, step));
        }
        if (lane == 0 && slot < row->slots.end) {
            to[slot] = best.logit;
            if (keys) {
                keys[slot - row->list.begin] = best.key;
            }
        }
    }
    row->logits = to;
}

/* Adds a logit to a sum of exponentials relative to the largest logit so far. */
DEVICE void add_logit(float *largest, float *sum, float logit) {
    if (logit > *largest) {
        *sum = *sum * exp2_approximate((*largest - logit) * LOG2_E) + 1.0f;
        *largest = logit;
    } else if (logit > MINUS_INFINITY) {
        *sum += exp2_approximate((logit - *largest) * LOG2_E);
    }
}

/* Pass 1. By the whole block. */
DEVICE struct norms sum_row(const struct row *row) {
    float largest = MINUS_INFINITY, sum = 0.0f, targets = 0.0f;
#pragma unroll 4
    for (int slot = row->slots.begin + (int)threadIdx.x; slot < row->slots.end; slot += THREADS) {
        add_logit(&largest, &sum, clamped_logit(row->logits[slot]));
        targets += fmaxf(row->scores[slot], 0.0f);
    }
    targets = block_total(targets, TARGETS_OFFSET);
    float all = block_largest(largest, MAXIMA_OFFSET);
    all = all == MINUS_INFINITY ? 0.0f : all;
    sum = block_total(sum * exp2_approximate((largest - all) * LOG2_E), SUMS_OFFSET);
    return find_norms(all, sum, targets, row->weight);
}

/* A slot's gradient; adds its part of the loss. */
DEVICE float differentiate(float *loss, const struct row *row, const struct norms *norms,
                           float logit, float target) {
    const float score = clamped_logit(logit) - norms->largest;
    const float q = exp2_approximate(score * LOG2_E) * norms->share;
    const float p = fmaxf(target, 0.0f) * norms->unit;
    if (!norms->live) {
        return 0.0f;
    }
    *loss += p > 0.0f ? p * (LN_2 * log2_approximate(p) - (score - norms->log_sum)) : 0.0f;
    return q != p ? row->factor * (q - p) : 0.0f;
}

/* Pass 2: returns this thread's part of the loss. By the whole block. `stores`: the gradients of the
 * list are written, zeros past its end. */
DEVICE float finish_row(const struct row *row, const struct norms *norms, bool stores) {
    const int padded = (row->count + LIST_STEP - 1) / LIST_STEP * LIST_STEP;
    float loss = 0.0f;
#pragma unroll 1
    for (int first = 0; first < padded; first += STEP) {
        float grads[LOADS];
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            const int entry = first + i * THREADS + (int)threadIdx.x;
            const int slot = row->list.begin + entry - row->section;
            grads[i] = 0.0f;
            if (slot >= row->slots.begin && slot < row->slots.end) {
                grads[i] = differentiate(&loss, row, norms, row->logits[slot], row->scores[slot]);
            }
        }
        __syncthreads(); /* no logit of this step is needed any more */
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            const int entry = first + i * THREADS + (int)threadIdx.x;
            if (stores && entry < padded) {
                row->grads[entry] = grads[i];
            }
        }
    }
    return loss;
}

/* What a list names in the place of a key: the key, or the hull's first one, with gradients of 0, if
 * the key is in no member's window, so that no query meets it. `query`: the group's first. */
DEVICE int listed_key(const struct indexer_dense_rows_params *params, const struct row *row,
                      i64 query, int key) {
    bool any = false;
    for (int i = 0; i < params->group_queries; ++i) {
        const struct key_range window = window_of(params, query + i);
        any |= key >= window.begin && key < window.end;
    }
    return any ? key : row->list.begin;
}

/* Writes the keys of a group's list. */
DEVICE void store_keys(const struct indexer_dense_rows_params *params, const struct row *row,
                       i64 query, int *keys) {
    for (int entry = (int)threadIdx.x; entry < row->count; entry += THREADS) {
        keys[entry] = listed_key(params, row, query, row->list.begin + entry);
    }
}

/* Fills a member's section where it has no block with the hull's first key. */
DEVICE void fill_section(const struct indexer_dense_rows_params *params, const struct row *row,
                         i64 query, int *keys) {
    const struct key_range hull = find_hull(params, query);
    for (int slot = row->list.begin + (int)threadIdx.x; slot < row->list.end; slot += THREADS) {
        if (slot < row->slots.begin || slot >= row->slots.end) {
            keys[row->section + slot - row->list.begin] = hull.begin;
        }
    }
}

/* Writes the member's number and its part of the group's list. */
DEVICE void store_list(const struct indexer_dense_rows_params *params, const struct row *row,
                       int number) {
    const int query = params->first + number, group = number / params->group_queries;
    const int member = number % params->group_queries;
    const int padded = (row->count + LIST_STEP - 1) / LIST_STEP * LIST_STEP;
    int *const keys = params->keys + (i64)group * params->key_stride;
    if (threadIdx.x == 0) {
        params->members[number] = query < params->tokens ? query : -1;
    }
    if (BLOCK_MAX > 1) {
        fill_section(params, row, (i64)query - member, keys);
    }
    if (member > 0) {
        return;
    }
    if (threadIdx.x == 0) {
        params->counts[group] = row->count;
        if (params->runs) { /* every key is in both halves' lists */
            params->runs[group * 2] = 0;
            params->runs[group * 2 + 1] = row->count;
        }
    }
    if (BLOCK_MAX == 1) {
        store_keys(params, row, query, keys);
    }
    for (int entry = row->count + (int)threadIdx.x; entry < padded; entry += THREADS) {
        keys[entry] = -1;
    }
}

/* Step 0, by the whole block. */
DEVICE void reduce_slots(const struct indexer_dense_rows_params *params, struct row *row,
                         int number) {
    const int group = number / params->group_queries;
    int *const keys =
        params->members ? params->keys + (i64)group * params->key_stride + row->section : 0;
    sum_slots(row);
    if (BLOCK_MAX > 1) {
        find_largest(row, keys, params->scores_stride);
    }
    __syncthreads();
}

/* One member, by the whole block. */
DEVICE void process_row(const struct indexer_dense_rows_params *params, int number) {
    struct row row = open_row(params, number);
    if (SLOT_KEYS > 1) {
        reduce_slots(params, &row, number);
    }
    const struct norms norms = sum_row(&row);
    float loss = finish_row(&row, &norms, params->members);
    loss = block_total(loss, LOSSES_OFFSET);
    if (threadIdx.x == 0 && params->first + number < params->tokens) {
        params->losses[(params->first + number) * params->losses_stride] =
            norms.live ? row.weight * loss : 0.0f;
    }
    if (params->members) {
        store_list(params, &row, number);
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct indexer_dense_rows_params params) {
#pragma unroll 1
    for (int number = (int)blockIdx.x; number < params.groups * params.group_queries;
         number += (int)gridDim.x) {
        process_row(&params, number);
    }
}
