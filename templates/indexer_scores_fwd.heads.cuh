//@use common/base.cuh
//@use common/head_weight.cuh
//@use common/logit.cuh
//@use common/quad_sum.cuh
//@use common/queries.cuh
//@use common/stored_logit.cuh
//@use indexer_scores_fwd.params.h
/*
 * From products to logits, shared by the variants of indexer_scores_fwd. Products are slots by
 * heads in the layout of mma.sync and wgmma: a thread's rows are g and g + 8 of 16 slots, its
 * columns 2 * c and the next of every eight heads; g = lane / 4, c = lane % 4. A thread sums its
 * heads in ascending order, then the quad's four threads combine.
 */

enum {
    MASKED = -1,
    ELEMENT_BYTES = FP8 ? 1 : 2,
    EIGHTS = BLOCK_HEADS / 8,
    KEYS = BLOCK_MAX > 1 && !WINDOWS, /* blocks' best rows may be wanted */
    SUM_HEADS = HEADS / HEAD_GROUPS,  /* of a logit */
    SUM_EIGHTS = EIGHTS / HEAD_GROUPS /* the same; columns past SUM_HEADS repeat the last head */
};

/* The head of a column. */
DEVICE int head_of(int column) {
    return HEAD_GROUPS == 1 ? minimum(column, HEADS - 1)
                            : column / (SUM_EIGHTS * 8) * SUM_HEADS +
                                  minimum(column % (SUM_EIGHTS * 8), SUM_HEADS - 1);
}

/* A thread's first column of every eight. */
DEVICE int thread_head(void) {
    return (int)(threadIdx.x % 4 * 2);
}

/* The weight of a column of a query. */
DEVICE float weight_of(const struct indexer_scores_fwd_params *params, int query, int column) {
    const i64 first = query * params->weights_token_stride;
    return WEIGHTS ? head_weight(params->weights, first + head_of(column), params->weights_bf16)
                   : params->scale;
}

/* Adds the products with eight heads from the group's number `first` on. `sums` and `d`: of row g,
 * then of row g + 8. Columns past the last head are ignored. */
DEVICE void add_eight(float *sums, const float *d, const float *weights, int first) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        if (SUM_HEADS % 8 == 0 || first + thread_head() + i < SUM_HEADS) {
            sums[0] = RELU ? add_head(sums[0], weights[i], d[i]) : fmaf(weights[i], d[i], sums[0]);
            sums[1] = RELU ? add_head(sums[1], weights[i], d[2 + i])
                           : fmaf(weights[i], d[2 + i], sums[1]);
        }
    }
}

/* ---- slots ----------------------------------------------------------------------------------- */

/* A query's index row. */
struct slot_row {
    const int *row;
    int slots;             /* to scan: GRANULARITY for each entry */
    struct key_range rows; /* that may be read; none unless begin < end */
};

DEVICE struct slot_row open_row(const struct indexer_scores_fwd_params *params, int query) {
    const struct work_params *const work = &params->work;
    struct slot_row opened = {index_row(work, query), 0, {0, work->rows}};
    if (GRANULARITY == 1) {
        opened.slots = index_slots(work, query, query);
    } else {
        opened.slots = work->width;
        if (work->topk_length) {
            const int length = work->topk_length[query * work->topk_length_token_stride];
            opened.slots = minimum(maximum(length, 0), work->width / GRANULARITY) * GRANULARITY;
        }
    }
    if (WINDOWS) {
        opened.rows.begin = maximum(params->window_begin[query], 0);
        opened.rows.end = minimum(params->window_end[query], work->rows);
    } else if (params->limit) {
        opened.rows.end = minimum(params->limit[query * params->limit_token_stride], work->rows);
    }
    return opened;
}

/* The row that a slot names; anything that names_row rejects if it is none. */
DEVICE int slot_value(const struct slot_row *row, int slot) {
    if (slot >= row->slots) {
        return MASKED;
    }
    const int entry = row->row[slot / GRANULARITY];
    u32 found = (u32)entry;
    if (GRANULARITY > 1) { /* an entry below 0 is large as u32 */
        found = found < (1u << 31) / GRANULARITY ? found * GRANULARITY + (u32)(slot % GRANULARITY)
                                                 : (u32)MASKED;
    }
    return (int)found;
}

DEVICE bool names_row(const struct slot_row *row, int value) {
    return value >= row->rows.begin && value < row->rows.end;
}

/* The slot of 16 whose logit a lane writes; the upper half of each quad writes none. */
enum { NO_SLOT = 1 << 30 };

DEVICE int written_slot(void) {
    const int lane = (int)(threadIdx.x % 32);
    return lane % 4 < 2 ? lane / 4 + lane % 2 * 8 : NO_SLOT;
}

/* A lane's logit. `sums`: this thread's two; `scale`: of the key of the lane's slot, with FP8. By the
 * whole warp. */
DEVICE float finish_logit(const float *sums, float scale) {
    const float sum = quad_sum_pair(sums[0], sums[1]);
    return canonical_logit(FP8 ? sum * scale : sum);
}

/* ---- blocks of slots ------------------------------------------------------------------------- */

enum {
    WARP_SLOTS = 16,
    RUN_SLOTS = BLOCK_MAX < WARP_SLOTS ? BLOCK_MAX : WARP_SLOTS /* of a block, in a warp's 16 */
};

/* The largest logit of the RUN_SLOTS slots of a lane's block, -inf of masked ones. Lanes of the upper
 * half of each quad get others. By the whole warp. */
DEVICE float largest_of_run(float logit, bool valid) {
    logit = valid ? logit : LOWEST_LOGIT;
#pragma unroll
    for (int slots = 1; slots < RUN_SLOTS && slots < 8; slots *= 2) {
        logit = fmaxf(logit, __shfl_xor_sync((u32)ALL_LANES, logit, slots * 4));
    }
    if (RUN_SLOTS == WARP_SLOTS) {
        logit = fmaxf(logit, __shfl_xor_sync((u32)ALL_LANES, logit, 1));
    }
    return logit;
}

/* The first of the RUN_SLOTS slots of a lane's block whose logit is `largest`, if that is not -inf: its
 * number among the warp's 16. By the whole warp. */
DEVICE int first_of_run(float logit, bool valid, float largest) {
    const u32 found = __ballot_sync((u32)ALL_LANES, valid && logit == largest);
    /* Bit 4 * i: slots i and 8 + i. */
    const u32 low = found & 0x11111111u, high = found >> 1 & 0x11111111u;
    const int first = written_slot() % WARP_SLOTS / RUN_SLOTS * RUN_SLOTS;
    if (RUN_SLOTS == WARP_SLOTS) {
        return low != 0 ? (__ffs((int)low) - 1) / 4 : 8 + (__ffs((int)high) - 1) / 4;
    }
    return first + (__ffs((int)((first < 8 ? low : high) >> first % 8 * 4)) - 1) / 4;
}

/* Where a query's logits go; with KEYS its entries, and where its blocks' best rows go, or null. */
struct logit_row {
    stored_logit *logits;
    const int *entries;
    int *keys;
};

DEVICE struct logit_row open_logits(const struct indexer_scores_fwd_params *params, int query) {
    const struct logit_row row = {
        (stored_logit *)params->logits + query * params->logits_token_stride,
        index_row(&params->work, query),
        KEYS && params->keys ? params->keys + query * params->keys_token_stride : 0};
    return row;
}

/* The row that a valid slot names. */
DEVICE int row_of_slot(const struct logit_row *row, int slot) {
    return row->entries[slot / GRANULARITY] * GRANULARITY + slot % GRANULARITY;
}

/* Writes a lane's logit to its slot of a query's row, -inf if it is masked; or, with BLOCK_MAX above 1,
 * the largest logit of each block of slots. Of a block wider than a warp's 16 slots the same lane must
 * write these in ascending order: it finds what it wrote before. By the whole warp. */
DEVICE void write_logit(const struct logit_row *row, i64 group_offset, int slot, int width,
                        const float *sums, bool valid, float scale) {
    const float logit = finish_logit(sums, scale);
    if (BLOCK_MAX == 1) {
        if (slot < width) {
            store_logit(&row->logits[group_offset + slot], valid ? logit : LOWEST_LOGIT);
        }
        return;
    }
    const float largest = largest_of_run(logit, valid);
    const int best = KEYS && row->keys ? first_of_run(logit, valid, largest) : 0;
    if (slot < width && slot % RUN_SLOTS == 0) {
        stored_logit *const to = row->logits + group_offset + slot / BLOCK_MAX;
        const bool is_first = slot % BLOCK_MAX == 0;
        if (KEYS && row->keys && (is_first || largest > load_stored_logit(to))) {
            row->keys[slot / BLOCK_MAX] =
                largest > LOWEST_LOGIT ? row_of_slot(row, slot / WARP_SLOTS * WARP_SLOTS + best)
                                       : MASKED;
        }
        store_logit(to, is_first ? largest : fmaxf(largest, load_stored_logit(to)));
    }
}
