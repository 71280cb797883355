//@use common/base.cuh
//@use ptx/grid.cuh
//@use ptx/stream.cuh
//@use sparse_attn_bwd_sum.params.h
/*
 * Deterministic backward pass, behind the main kernel: adds each key's partial rows to its row of
 * dkv's sums, in a fixed order. What is read and written: sparse_attn_bwd_sum.params.h.
 *
 * A team of threads, COLUMNS columns each, takes a key at a time and sums its partial rows in their
 * order, ROWS of them under way. Any grid is right; neighbouring keys are of different blocks,
 * since those that every query selects stand side by side. A key with more than MOST_ALONE entries
 * is left for the whole block: its entries are cut into runs of RUN, each is summed by a team, and
 * the runs are added in order. So what is summed how depends on the number of entries alone.
 *
 * With `overlaps` the kernel ends after the one before it in the stream, so that what follows waits
 * for both.
 *
 * Shared memory: RUNS [TEAMS][DQK] float: sums of runs.
 *
 * Barriers: all keys of few entries are done; and of each TEAMS runs: their sums are there; they
 * were read.
 */

enum { TEAM = DQK / 8, COLUMNS = 8 /* 16 bytes */, ROWS = 8 };

DEVICE int own_team(void) {
    return (int)threadIdx.x / TEAM;
}

DEVICE int own_column(void) {
    return (int)threadIdx.x % TEAM * COLUMNS;
}

/* A partial row among a key's: of an entry, and of a block of heads. */
struct place {
    int entry;
    int block;
};

/* Which partial row it is. */
DEVICE i64 find_row(const struct sparse_attn_bwd_sum_params *params, const struct place *place) {
    const int entry = params->entries[place->entry];
    if (params->head_blocks == 1) {
        return entry;
    }
    const i64 group = entry / params->key_stride;
    return entry + (group * (params->head_blocks - 1) + place->block) * params->key_stride;
}

/* A pair of bf16, the lower half first. */
DEVICE void add_pair(float *sums, u32 pair) {
    sums[0] += __int_as_float((int)(pair << 16));
    sums[1] += __int_as_float((int)(pair & 0xffff0000u));
}

/* Adds the partial rows of the entries [begin, end), this thread's columns. */
DEVICE void sum_entries(const struct sparse_attn_bwd_sum_params *params, float *sums, int begin,
                        int end) {
    struct place place = {begin, 0};
    while (place.entry < end) {
        i64 rows[ROWS];
        u32 values[ROWS][COLUMNS / 2];
#pragma unroll
        for (int i = 0; i < ROWS; ++i) {
            rows[i] = place.entry < end ? find_row(params, &place) : -1;
            const bool last = ++place.block == params->head_blocks;
            place.entry += last;
            place.block = last ? 0 : place.block;
        }
#pragma unroll
        for (int i = 0; i < ROWS; ++i) {
            values[i][0] = values[i][1] = values[i][2] = values[i][3] = 0;
            if (rows[i] >= 0) {
                load_streaming_16(values[i], (const char *)params->partials +
                                                 2 * (rows[i] * DQK + own_column()));
            }
        }
#pragma unroll
        for (int i = 0; i < ROWS * COLUMNS / 2; ++i) {
            add_pair(&sums[i % (COLUMNS / 2) * 2], values[i / (COLUMNS / 2)][i % (COLUMNS / 2)]);
        }
    }
}

DEVICE void add_to_row(const struct sparse_attn_bwd_sum_params *params, i64 key,
                       const float *sums) {
#pragma unroll
    for (int half = 0; half < COLUMNS; half += 4) {
        float4 *const to = (float4 *)(params->sums + key * DQK + own_column() + half);
        float4 value = *to;
        value.x += sums[half];
        value.y += sums[half + 1];
        value.z += sums[half + 2];
        value.w += sums[half + 3];
        *to = value;
    }
}

/* Whether a key of so many entries is one for the whole block. */
DEVICE bool is_long(int entries) {
    return entries > MOST_ALONE;
}

/* The team's key; whether it is one for the whole block. */
DEVICE bool sum_key(const struct sparse_attn_bwd_sum_params *params, i64 key) {
    const int begin = params->starts[key], end = params->starts[key + 1];
    float sums[COLUMNS] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
    if (is_long(end - begin)) {
        return true;
    }
    if (begin < end) {
        sum_entries(params, sums, begin, end);
        add_to_row(params, key, sums);
    }
    return false;
}

/* A key by the whole block; nothing of one with few entries. */
DEVICE void sum_long_key(const struct sparse_attn_bwd_sum_params *params, i64 key) {
    float *const runs = (float *)(arena + RUNS_OFFSET);
    const int first = params->starts[key], end = params->starts[key + 1];
    float sums[COLUMNS] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
    if (!is_long(end - first)) {
        return;
    }
    for (int begin = first; begin < end; begin += TEAMS * RUN) {
        const int own = minimum(begin + own_team() * RUN, end);
        float run[COLUMNS] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
        sum_entries(params, run, own, minimum(own + RUN, end));
#pragma unroll
        for (int i = 0; i < COLUMNS; ++i) {
            runs[own_team() * DQK + own_column() + i] = run[i];
        }
        __syncthreads();
        for (int i = 0; i < TEAMS * COLUMNS && own_team() == 0; ++i) {
            sums[i % COLUMNS] += runs[i / COLUMNS * DQK + own_column() + i % COLUMNS];
        }
        __syncthreads();
    }
    if (own_team() == 0) {
        add_to_row(params, key, sums);
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct sparse_attn_bwd_sum_params params) {
    bool left = false;
    for (i64 key = blockIdx.x + own_team() * (i64)gridDim.x; key < params.key_count;
         key += TEAMS * (i64)gridDim.x) {
        left |= sum_key(&params, key);
    }
    if (__syncthreads_or(left)) {
        for (i64 key = blockIdx.x; key < params.key_count; key += gridDim.x) {
            sum_long_key(&params, key);
        }
    }
    if (DEPENDENT_LAUNCH && params.overlaps && blockIdx.x == gridDim.x - 1 && threadIdx.x == 0) {
        grid_wait();
    }
}
