//@use common/base.cuh
//@use ptx/cp_async.cuh
//@use ptx/grid.cuh
//@use sparse_attn_bwd_sum.params.h
/*
 * Deterministic backward pass, behind the main kernel: adds each key's partial rows to its row of
 * dkv's sums, in a fixed order. What is read and written: sparse_attn_bwd_sum.params.h.
 *
 * A team of threads, COLUMNS columns each, takes a key at a time and sums its partial rows in their
 * order. Each thread copies its own columns of them into shared memory, STAGES - 1 times ROWS rows
 * ahead of what it adds, and reads none but its own: so many rows are under way at once, and no
 * thread waits for another. Any grid is right; neighbouring keys are of different blocks, since
 * those that every query selects stand side by side. A key with more than MOST_ALONE entries is
 * left for the whole block: its entries are cut into runs of RUN, each is summed by a team, and the
 * runs are added in order. So what is summed how depends on the number of entries alone.
 *
 * With `overlaps` the kernel ends after the one before it in the stream, so that what follows waits
 * for both.
 *
 * Shared memory: RING [STAGES][ROWS][THREADS] 16 bytes: copied columns. In its place, when a block
 * has summed TEAMS runs, RUNS [TEAMS][DQK] float: their sums.
 *
 * Barriers: all keys of few entries are done; and of each TEAMS runs: their rows are added, their
 * sums are there, they were read.
 */

enum { TEAM = DQK / 8, COLUMNS = 8 /* 16 bytes */, ROWS = 4 };

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

/* The next ROWS partial rows before entry `end`: how many there are. */
DEVICE int find_rows(const struct sparse_attn_bwd_sum_params *params, struct place *place, int end,
                     u32 *rows) {
    const int blocks = params->head_blocks;
    const int *const entries = params->entries + place->entry;
    const int left = end - place->entry;
    if (blocks == 1 && left >= ROWS) {
#pragma unroll
        for (int i = 0; i < ROWS; ++i) {
            rows[i] = (u32)entries[i];
        }
        place->entry += ROWS;
        return ROWS;
    }
    int count = 0;
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        rows[i] = 0;
        if (place->entry < end) {
            rows[i] = (u32)params->entries[place->entry] * (u32)blocks + (u32)place->block;
            ++count;
            const bool last = ++place->block == blocks;
            place->entry += last;
            place->block = last ? 0 : place->block;
        }
    }
    return count;
}

/* Where this thread's columns of partial row 0 begin, and its part of the ring. */
struct columns {
    const char *from;
    u32 ring; /* offset */
};

DEVICE struct columns find_columns(const struct sparse_attn_bwd_sum_params *params) {
    struct columns columns = {(const char *)params->partials + 2 * own_column(),
                              RING_OFFSET + threadIdx.x * 16};
    return columns;
}

/* Of a row of a stage. */
DEVICE u32 ring_offset(const struct columns *columns, u32 stage, int row) {
    return columns->ring + (stage * ROWS + (u32)row) * (THREADS * 16);
}

/* Starts the copies of this thread's columns; zeros where there is no row. */
DEVICE void copy_rows(const struct columns *columns, const u32 *rows, int count, u32 stage) {
    const u32 to = shared_address(ring_offset(columns, stage, 0));
#pragma unroll
    for (int i = 0; i < ROWS && count > 0; ++i) {
        cp_async_16(to + (u32)i * (THREADS * 16), columns->from + (u64)rows[i] * (DQK * 2),
                    i < count ? 16 : 0);
    }
    cp_async_commit();
}

/* A pair of bf16, the lower half first. */
DEVICE void add_pair(float *sums, u32 pair) {
    sums[0] += __int_as_float((int)(pair << 16));
    sums[1] += __int_as_float((int)(pair & 0xffff0000u));
}

DEVICE void add_rows(float *sums, const struct columns *columns, u32 stage) {
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        const uint4 values = *(const uint4 *)(arena + ring_offset(columns, stage, i));
        add_pair(&sums[0], values.x);
        add_pair(&sums[2], values.y);
        add_pair(&sums[4], values.z);
        add_pair(&sums[6], values.w);
    }
}

/* Adds the partial rows of the entries [begin, end), this thread's columns. The rows' numbers are
 * read a step before the rows. */
DEVICE void sum_entries(const struct sparse_attn_bwd_sum_params *params, float *sums, int begin,
                        int end) {
    const struct columns columns = find_columns(params);
    struct place place = {begin, 0};
    u32 rows[ROWS];
    int count = find_rows(params, &place, end, rows);
#pragma unroll
    for (u32 stage = 0; stage < STAGES - 1; ++stage) {
        copy_rows(&columns, rows, count, stage);
        count = find_rows(params, &place, end, rows);
    }
    const u32 steps = (u32)((end - begin) * params->head_blocks + ROWS - 1) / ROWS;
    for (u32 step = 0; step < steps; ++step) {
        cp_async_wait_2(); /* STAGES - 2 */
        copy_rows(&columns, rows, count, (step + STAGES - 1) % STAGES);
        count = find_rows(params, &place, end, rows);
        add_rows(sums, &columns, step % STAGES);
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
    float *const runs = (float *)(arena + RING_OFFSET);
    const int first = params->starts[key], end = params->starts[key + 1];
    float sums[COLUMNS] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
    if (!is_long(end - first)) {
        return;
    }
    for (int begin = first; begin < end; begin += TEAMS * RUN) {
        const int own = minimum(begin + own_team() * RUN, end);
        float run[COLUMNS] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
        sum_entries(params, run, own, minimum(own + RUN, end));
        __syncthreads();
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
