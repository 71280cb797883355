/* See sparse_attn_dkv.h. */
#include "ops/sparse_attn_dkv.h"

#include "codegen/families/sparse_attn_bwd.h"
#include "ops/call.h"
#include "ops/divide.h"
#include "ops/split_sizes.h"
#include "runtime/log.h"

enum {
    SUM_COLUMNS = 8,  /* that a thread of a team of the sums adds */
    RUN_COLUMNS = 32, /* columns of a run of a partial row (templates/common/row_sums.cuh) */
    SUM_WAVES = 16    /* of sums that overlap another kernel: how many of their blocks are resident
                           is not known */
};

/* ---- workspace ------------------------------------------------------------------------------- */

static int64_t up_to(int64_t value, int64_t step) {
    return smelt__divide_up(value, step) * step;
}

/* Groups of a chunk where two chunks' partial rows are kept, at most half of `most`: whole waves of
 * the multiprocessors that the sums leave to the main kernel. 0: less than a wave fits or exists, or
 * the table is too large. */
static int64_t half_chunk(const struct smelt__dkv_shape *shape,
                          const struct smelt__dkv_layout *layout, int64_t most) {
    const int64_t wave = (SMELT__SPLIT_WAVE - shape->sum_multiprocessors) / shape->group_items;
    if (shape->sum_multiprocessors == 0 || wave == 0 || most / 2 < wave || layout->groups <= wave)
        return 0;
    const int64_t wanted =
        up_to(smelt__divide_up(layout->groups, SMELT__SPLIT_FEWEST_CHUNKS), wave);
    const int64_t chunk = wanted <= most / 2 ? wanted : most / 2 / wave * wave;
    return chunk * layout->key_stride < SMELT__SPLIT_FEWEST_ROWS * layout->key_count ? 0 : chunk;
}

/* Groups whose partial rows stay below the limit, at least one. */
static int64_t whole_chunk(const struct smelt__dkv_shape *shape,
                           const struct smelt__dkv_layout *layout, int64_t most) {
    const int64_t wave = smelt__divide_up(SMELT__SPLIT_WAVE, shape->group_items);
    if (most >= layout->groups)
        return layout->groups;
    if (most > wave)
        most -= most % wave;
    return most > 0 ? most : 1;
}

/* The number of chunks whose lists are transposed at once, 1 or more: enough to fill a GPU, few enough
 * that the kernel's output stays in the L2 cache. */
static int64_t round_chunks(const struct smelt__dkv_layout *layout) {
    const int64_t by_entries = SMELT__SPLIT_ROUND_ENTRIES / (layout->chunk * layout->key_stride);
    const int64_t by_starts =
        SMELT__SPLIT_ROUND_STARTS / (layout->key_count ? layout->key_count : 1);
    const int64_t chunks = by_entries < by_starts ? by_entries : by_starts;
    return chunks > 1 ? chunks : 1;
}

/* Starts of a chunk's lists by keys. */
static int64_t starts_of(const struct smelt__dkv_layout *layout) {
    return layout->key_count + 1;
}

/* Splits the groups into chunks, within the limit of the partial rows. */
static void split_groups(const struct smelt__dkv_shape *shape, size_t limit,
                         struct smelt__dkv_layout *layout) {
    const size_t group =
        (size_t)layout->key_stride * (size_t)shape->columns * 2 * (size_t)shape->key_rows;
    /* Kernels number a chunk's partial rows by an int, and the runs of their columns by a u32. */
    const int64_t runs = smelt__divide_up(shape->columns, RUN_COLUMNS);
    const int64_t rows = UINT32_MAX / (runs > 2 ? runs : 2);
    const int64_t numbered = rows / layout->key_stride / shape->key_rows;
    int64_t most = (int64_t)((limit ? limit : (size_t)SMELT__SPLIT_PARTIALS) / group);
    if (most > numbered)
        most = numbered;
    layout->chunk = half_chunk(shape, layout, most);
    layout->kept = layout->chunk > 0 ? 2 : 1;
    if (layout->chunk == 0)
        layout->chunk = whole_chunk(shape, layout, most);
    layout->kept_bytes = (size_t)layout->chunk * group;
    layout->round = layout->chunk * round_chunks(layout);
}

/* The arrays of the deterministic mode. */
static void place_partials(size_t *end, struct smelt__dkv_layout *layout) {
    const int64_t groups = layout->round < layout->groups ? layout->round : layout->groups;
    const int64_t starts = smelt__divide_up(groups, layout->chunk) * starts_of(layout);
    for (int i = 0; i < 2; i++) {
        const int none = i > 0 && (layout->kept == 1 || groups == layout->groups);
        layout->starts[i] = smelt__workspace_place(end, none ? 0 : starts, sizeof(int));
        layout->entry_list[i] =
            smelt__workspace_place(end, none ? 0 : groups * layout->key_stride, sizeof(int));
    }
    layout->partials = smelt__workspace_place(end, layout->kept, layout->kept_bytes);
}

void smelt__dkv_place(const struct smelt__dkv_shape *shape, size_t limit, size_t *end,
                      struct smelt__dkv_layout *layout) {
    layout->sums = smelt__workspace_place(end, layout->key_count * shape->columns, sizeof(float));
    layout->chunk = layout->groups;
    if (!shape->deterministic || layout->groups == 0)
        return;
    split_groups(shape, limit, layout);
    if (layout->key_count > 0)
        place_partials(end, layout);
}

/* ---- launching ------------------------------------------------------------------------------- */

static void *at(const struct smelt__dkv_call *call, size_t offset) {
    return (char *)call->workspace + offset;
}

/* A chunk, and its parts of the workspace. */
struct cursor {
    int64_t first;       /* group */
    int64_t in_round;    /* groups of its round before it */
    int64_t starts;      /* index of its first start in its round's lists by keys */
    int partials, lists; /* which of the two buffers, used alternately if two chunks are kept */
};

static struct cursor next_chunk(const struct smelt__dkv_layout *layout, struct cursor cursor) {
    const int alternate = layout->kept > 1;
    cursor.first += layout->chunk;
    cursor.in_round += layout->chunk;
    cursor.starts += starts_of(layout);
    cursor.partials ^= alternate;
    if (cursor.in_round == layout->round) {
        cursor.in_round = cursor.starts = 0;
        cursor.lists ^= alternate;
    }
    return cursor;
}

/* The lists of a round's groups transposed: each key's partial rows, chunk by chunk. */
static smelt_status launch_transpose(const struct smelt__dkv_call *call,
                                     const struct cursor *cursor) {
    const struct smelt__dkv_layout *layout = call->layout;
    const int64_t left = layout->groups - cursor->first;
    const int64_t groups = left < layout->round ? left : layout->round;
    const int64_t chunks = smelt__divide_up(groups, layout->chunk);
    const int64_t ranges =
        chunks * smelt__divide_up(layout->key_count, SMELT__ATTENTION_LISTS_RANGE);
    const struct attention_lists_transpose_params params = {
        .counts = at(call, layout->counts),
        .firsts = at(call, layout->firsts),
        .keys = at(call, layout->keys),
        .starts = at(call, layout->starts[cursor->lists]),
        .entries = at(call, layout->entry_list[cursor->lists]),
        .first_group = (int)cursor->first,
        .groups = (int)groups,
        .chunk = (int)layout->chunk,
        .key_stride = layout->key_stride,
        .key_count = (int)layout->key_count,
        .chunks = (int)chunks,
    };
    const struct smelt__launch launch = {
        .blocks = {smelt__blocks_for(call->transpose, ranges, call->transpose->most_blocks)},
        .params = &params};
    return smelt__kernel_launch(call->context, call->transpose, &launch, call->stream);
}

/* The partial rows of a chunk. */
static void *partials_of(const struct smelt__dkv_call *call, const struct cursor *cursor) {
    const struct smelt__dkv_layout *layout = call->layout;
    return at(call, layout->partials + (cursor->partials ? layout->kept_bytes : 0));
}

/* Adds a chunk's partial rows to the sums. `overlaps`: concurrently with the main kernel launched
 * last, which processes the next chunk. */
static smelt_status launch_sum(const struct smelt__dkv_call *call, const struct cursor *cursor,
                               int overlaps) {
    const struct smelt__dkv_layout *layout = call->layout;
    const int64_t teams = call->sum->threads / (call->shape.columns / SUM_COLUMNS);
    const struct sparse_attn_bwd_sum_params params = {
        .partials = partials_of(call, cursor),
        .starts = (const int *)at(call, layout->starts[cursor->lists]) + cursor->starts,
        .entries = at(call, layout->entry_list[cursor->lists]),
        .sums = at(call, layout->sums),
        .key_count = (int)layout->key_count,
        .key_stride = layout->key_stride,
        .key_rows = call->shape.key_rows,
        .pdl_wait_at_end = overlaps,
    };
    const struct smelt__launch launch = {
        .blocks = {smelt__blocks_for(call->sum, smelt__divide_up(layout->key_count, teams),
                                     call->sum->most_blocks * (overlaps ? SUM_WAVES : 1))},
        .pdl = overlaps,
        .params = &params,
    };
    return smelt__kernel_launch(call->context, call->sum, &launch, call->stream);
}

/* Launches the main kernel on a chunk, and a sum of partial rows: of this chunk or, if two chunks'
 * partial rows are kept, of the chunk `before`, concurrently. */
static smelt_status launch_chunk(const struct smelt__dkv_call *call, const struct cursor *cursor,
                                 const struct cursor *before) {
    const struct smelt__dkv_layout *layout = call->layout;
    const int64_t left = layout->groups - cursor->first;
    const int overlaps = layout->kept > 1 && cursor->first > 0;
    const struct smelt__dkv_chunk chunk = {
        .first = cursor->first,
        .groups = left < layout->chunk ? left : layout->chunk,
        .partials = partials_of(call, cursor),
        .free_multiprocessors = overlaps ? call->shape.sum_multiprocessors : 0,
    };
    if (cursor->in_round == 0)
        SMELT__TRY(launch_transpose(call, cursor));
    SMELT__TRY(call->launch_groups(call->user, &chunk));
    return overlaps || layout->kept == 1 ? launch_sum(call, overlaps ? before : cursor, overlaps)
                                         : SMELT_OK;
}

smelt_status smelt__dkv_launch(const struct smelt__dkv_call *call) {
    const struct smelt__dkv_layout *layout = call->layout;
    const struct smelt__dkv_chunk all = {.groups = layout->groups};
    struct cursor cursor = {0}, before = cursor;
    if (!call->shape.deterministic || layout->key_count == 0)
        return call->launch_groups(call->user, &all);
    while (cursor.first < layout->groups) {
        SMELT__TRY(launch_chunk(call, &cursor, &before));
        before = cursor;
        cursor = next_chunk(layout, cursor);
    }
    return layout->kept > 1 ? launch_sum(call, &before, 0) : SMELT_OK;
}
