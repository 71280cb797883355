#include "bwd_lists_reference.h"

#include "kernel_alone.h"

enum { LIST_STEP = 64 };

/* A member's valid slot. */
struct named {
    int key, member;
    int again; /* it named the key before */
};

static int by_key(const void *a, const void *b) {
    const struct named *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return (x->member > y->member) - (x->member < y->member);
}

/* The query of an item of the list, or -1; and its entry. */
static int find_query(const struct sparse_attn_bwd_lists_params *params, long long item,
                      long long *entry) {
    const struct work_params *work = &params->work;
    long long first = 0, queries = work->query_capacity;
    if (work->query_range) {
        first = work->query_range[0];
        queries = work->query_range[1];
    } else if (work->query_count && *work->query_count < queries) {
        queries = *work->query_count;
    }
    *entry = first + item;
    if (params->last_range)
        queries = (long long)params->last_range[0] + params->last_range[1];
    if (item >= queries)
        return -1;
    const long long query = work->queries ? work->queries[*entry] : *entry;
    return query >= 0 && query < (long long)work->batches * work->tokens ? (int)query : -1;
}

/* The keys of a query's list, in slot order. */
static int read_row(const struct sparse_attn_bwd_lists_params *params, int query, long long entry,
                    int member, struct named *named) {
    const struct work_params *work = &params->work;
    const int batch = query / work->tokens, token = query % work->tokens;
    const int *row =
        work->indices + batch * work->indices_batch_stride + token * work->indices_token_stride;
    int slots = work->width, count = 0;
    if (work->extents) {
        slots = work->extents[entry];
    } else if (work->topk_length) {
        const int length = work->topk_length[batch * work->topk_length_batch_stride +
                                             token * work->topk_length_token_stride];
        slots = length < slots ? length : slots;
    }
    for (int i = 0; i < slots && count < params->topk; i++)
        if (row[i] >= 0 && row[i] < work->rows)
            named[count++] = (struct named){batch * work->rows + row[i], member, 0};
    return count;
}

/* Appends entries to the list. */
static void append(const struct sparse_attn_bwd_lists_params *params, int group, int key,
                   int mask) {
    const long long place = (long long)group * params->key_stride + params->counts[group]++;
    params->keys[place] = key;
    if (params->group_queries > 1)
        params->masks[place] = (unsigned char)mask;
}

/* Splits sorted entries into keys that appear once, whose number it returns, and repeated ones. */
static int unite(const struct sparse_attn_bwd_lists_params *params, int group, struct named *named,
                 int count) {
    for (int i = 1; i < count; i++)
        named[i].again = named[i].key == named[i - 1].key && named[i].member == named[i - 1].member;
    for (int i = 0; i < count;) {
        const int key = named[i].key;
        int mask = 0;
        for (; i < count && named[i].key == key; i++)
            mask |= 1 << named[i].member;
        append(params, group, key, mask);
    }
    const int once = params->counts[group];
    for (int i = 0; i < count; i++)
        if (named[i].again)
            append(params, group, named[i].key, 1 << named[i].member);
    return once;
}

void reference_lists(const struct sparse_attn_bwd_lists_params *params, long long most_rows) {
    struct named *named = take((size_t)params->key_stride * sizeof *named);
    const int members = params->group_queries;
    const int maps = params->work.rows <= most_rows;
    for (int group = 0; group < params->groups; group++) {
        int count = 0;
        for (int i = 0; i < members; i++) {
            long long entry;
            const int query = find_query(params, (long long)group * members + i, &entry);
            params->members[(long long)group * members + i] = query;
            if (query >= 0)
                count += read_row(params, query, entry, i, named + count);
        }
        const int ordered = members > 1 || params->firsts || (params->ascending && maps);
        int once = 0;
        params->counts[group] = 0;
        if (ordered)
            qsort(named, (size_t)count, sizeof *named, by_key);
        if (ordered && maps) {
            once = unite(params, group, named, count);
        } else {
            for (int i = 0; i < count; i++)
                append(params, group, named[i].key, 1 << named[i].member);
        }
        if (params->firsts)
            params->firsts[group] = once;
        for (int i = params->counts[group]; i % LIST_STEP; i++) {
            const long long place = (long long)group * params->key_stride + i;
            params->keys[place] = -1;
            if (members > 1)
                params->masks[place] = 0;
        }
    }
}

/* ---- lists by keys --------------------------------------------------------------------------- */

/* Transposes a chunk's lists. */
static void transpose_chunk(const struct sparse_attn_bwd_segments_params *params, int chunk,
                            int *next) {
    const int first = chunk * params->chunk, last = first + params->chunk;
    int *const starts = params->starts + (long long)chunk * (params->key_count + 1);
    memset(next, 0, (size_t)params->key_count * sizeof *next);
    for (int pass = 0; pass < 2; pass++) {
        for (int group = first; group < last && group < params->groups; group++) {
            const long long list = (long long)params->first_group + group;
            for (int i = 0; i < params->counts[list]; i++) {
                const int key = params->keys[list * params->key_stride + i];
                if (pass == 0)
                    next[key]++;
                else
                    params->entries[next[key]++] = (group - first) * params->key_stride + i;
            }
        }
        starts[0] = first * params->key_stride;
        for (int key = 0; key < params->key_count && pass == 0; key++) {
            starts[key + 1] = starts[key] + next[key];
            next[key] = starts[key];
        }
    }
}

void reference_segments(const struct sparse_attn_bwd_segments_params *params) {
    int *next = take((size_t)params->key_count * sizeof *next);
    for (int chunk = 0; chunk < params->chunks; chunk++)
        transpose_chunk(params, chunk, next);
}

/* ---- sums ------------------------------------------------------------------------------------ */

static float widen(unsigned short bf16) {
    const unsigned bits = (unsigned)bf16 << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* One column of the entries [begin, end), in their order. */
static float sum_entries(const struct sparse_attn_bwd_sum_params *params, int dqk, int column,
                         int begin, int end) {
    const unsigned short *partials = params->partials;
    float sum = 0.0f;
    for (int i = begin; i < end; i++) {
        for (int k = 0; k < params->key_rows; k++) {
            const long long row = (long long)params->entries[i] * params->key_rows + k;
            sum += widen(partials[row * dqk + column]);
        }
    }
    return sum;
}

void reference_sums(const struct sparse_attn_bwd_sum_params *params, struct sums_reference plan) {
    for (int key = 0; key < params->key_count; key++) {
        const int begin = params->starts[key], end = params->starts[key + 1];
        for (int column = 0; column < plan.dqk && begin < end; column++) {
            float sum = 0.0f;
            if (end - begin <= plan.most_alone)
                sum = sum_entries(params, plan.dqk, column, begin, end);
            else
                for (int run = begin; run < end; run += plan.run)
                    sum += sum_entries(params, plan.dqk, column, run,
                                       run + plan.run < end ? run + plan.run : end);
            params->sums[(long long)key * plan.dqk + column] += sum;
        }
    }
}
