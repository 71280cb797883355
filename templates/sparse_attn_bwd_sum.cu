//@use common/base.cuh
//@use ptx/cp_async.cuh
//@use ptx/grid.cuh
//@use ptx/reduce.cuh
//@use sparse_attn_bwd_sum.params.h
/*
 * Deterministic backward pass, behind the main kernel: adds each key's partial rows to its row of
 * dkv's sums, in a fixed order. What is read and written: sparse_attn_bwd_sum.params.h.
 *
 * A team of threads, COLUMNS columns each, takes a key at a time and sums its partial rows in their
 * order, ROWS a step. Each thread copies its own columns of them into shared memory, STAGES - 1
 * steps ahead of what it adds, and reads none but its own: so many rows are under way at once, and
 * no thread waits for another. Which rows they are is read AHEAD steps before that, and steps go on
 * over the ends of keys, for a key may have few rows. A key's sum is added to its row in global
 * memory by a reduction, which nobody else adds to meanwhile, so that nobody waits for what was
 * there. Any grid is right; neighbouring keys are of different blocks, since those that every query
 * selects stand side by side. A key with more than MOST_ALONE entries is left for the whole block:
 * its entries are cut into runs of RUN, each is summed by a team, and the runs are added in order.
 * So what is summed how depends on the number of entries alone.
 *
 * With `pdl_wait_at_end` the kernel ends after the previous one in the stream, so that later work
 * waits for both.
 *
 * Shared memory: RING [STAGES][ROWS][THREADS] 16 bytes: copied columns. In its place, when a block
 * has summed TEAMS runs, RUNS [TEAMS][DQK] float: their sums.
 *
 * Barriers: all keys of few entries are done; and of each TEAMS runs: their rows are added, their
 * sums are there, they were read.
 */

enum {
    TEAM = DQK / 8,
    COLUMNS = 8, /* of a thread: 16 bytes */
    ROWS = 4,    /* of a step */
    AHEAD = 2    /* steps: divides STAGES */
};

DEVICE int own_team(void) {
    return (int)threadIdx.x / TEAM;
}

DEVICE int own_column(void) {
    return (int)threadIdx.x % TEAM * COLUMNS;
}

/* A partial row among a key's: of an entry, and which of the entry's rows. */
struct place {
    int entry;
    int row;
};

/* The next ROWS partial rows before entry `end`: how many there are. */
DEVICE int find_rows(const struct sparse_attn_bwd_sum_params *params, struct place *place, int end,
                     u32 *rows) {
    const int entry_rows = params->key_rows;
    const int *const entries = params->entries + place->entry;
    const int left = end - place->entry;
    if (entry_rows == 1 && left >= ROWS) {
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
            rows[i] = (u32)params->entries[place->entry] * (u32)entry_rows + (u32)place->row;
            ++count;
            const bool last = ++place->row == entry_rows;
            place->entry += last;
            place->row = last ? 0 : place->row;
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
    const u32 steps = (u32)((end - begin) * params->key_rows + ROWS - 1) / ROWS;
    for (u32 step = 0; step < steps; ++step) {
        cp_async_wait_2(); /* STAGES - 2 */
        copy_rows(&columns, rows, count, (step + STAGES - 1) % STAGES);
        count = find_rows(params, &place, end, rows);
        add_rows(sums, &columns, step % STAGES);
    }
}

/* This thread's columns of a key's sum to its row. */
DEVICE void add_to_row(const struct sparse_attn_bwd_sum_params *params, int key,
                       const float *sums) {
    float *const to = params->sums + (i64)key * DQK + own_column();
#pragma unroll
    for (int i = 0; i < COLUMNS; i += 4) {
        if (VECTOR_REDUCTIONS) {
            reduce_add_f32x4(to + i, &sums[i]);
        } else {
#pragma unroll
            for (int k = i; k < i + 4; ++k) {
                reduce_add_f32(to + k, sums[k]);
            }
        }
    }
}

/* ---- keys of few entries --------------------------------------------------------------------- */

/* What a step's rows are of: a key that has more of them, or its last ones, or nothing. */
enum { MORE_OF_KEY = -1, NO_MORE_KEYS = -2 };

/* The numbers of a step's rows. */
struct step {
    u32 rows[ROWS];
    int count;
    int key; /* whose last rows they are; or of the enum above */
};

/* How far a team's rows are known. Where the next key's entries are is read a key ahead. */
struct front {
    struct place place;
    int end;                  /* of the key's entries */
    int key, next;            /* numbers of the key and of the next one */
    int next_begin, next_end; /* its entries */
    bool left;                /* a key was one for the whole block */
};

/* Whether a key of so many entries is one for the whole block. */
DEVICE bool is_long(int entries) {
    return entries > MOST_ALONE;
}

/* On to the next key, whatever it has. */
DEVICE void move_on(const struct sparse_attn_bwd_sum_params *params, struct front *front) {
    const int stride = TEAMS * (int)gridDim.x;
    front->key = front->next;
    front->place.entry = front->next_begin;
    front->end = front->next_end;
    if (is_long(front->end - front->place.entry)) {
        front->left = true;
        front->end = front->place.entry;
    }
    front->next = front->next < params->key_count - stride ? front->next + stride : NO_MORE_KEYS;
    if (front->next >= 0) {
        front->next_begin = params->starts[front->next];
        front->next_end = params->starts[front->next + 1];
    }
}

DEVICE struct front open_front(const struct sparse_attn_bwd_sum_params *params) {
    const int first = (int)blockIdx.x + own_team() * (int)gridDim.x;
    struct front front = {{0, 0}, 0, NO_MORE_KEYS, NO_MORE_KEYS, 0, 0, false};
    if (first < params->key_count) {
        front.next = first;
        front.next_begin = params->starts[first];
        front.next_end = params->starts[first + 1];
        move_on(params, &front);
    }
    return front;
}

/* The team's next step. */
DEVICE void take_step(const struct sparse_attn_bwd_sum_params *params, struct front *front,
                      struct step *step) {
    while (front->place.entry == front->end && front->key >= 0) {
        move_on(params, front);
    }
    step->count = front->key >= 0 ? find_rows(params, &front->place, front->end, step->rows) : 0;
    step->key = front->key >= 0 && front->place.entry < front->end ? MORE_OF_KEY : front->key;
}

/* All keys of few entries that are the team's, this thread's columns. Rows' numbers are known
 * AHEAD steps before their copies begin, and these STAGES - 1 steps before the rows are added, over
 * the ends of keys. Whether a key was left for the whole block. */
DEVICE bool sum_keys(const struct sparse_attn_bwd_sum_params *params) {
    const struct columns columns = find_columns(params);
    struct front front = open_front(params);
    struct step steps[AHEAD];
    int keys[STAGES];
    float sums[COLUMNS] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) {
        take_step(params, &front, &steps[i]);
    }
#pragma unroll
    for (int stage = 0; stage < STAGES - 1; ++stage) {
        copy_rows(&columns, steps[stage % AHEAD].rows, steps[stage % AHEAD].count, (u32)stage);
        keys[stage] = steps[stage % AHEAD].key;
        take_step(params, &front, &steps[stage % AHEAD]);
    }
    for (;;) {
#pragma unroll
        for (int stage = 0; stage < STAGES; ++stage) {
            const int refilled = (stage + STAGES - 1) % STAGES;
            struct step *const next = &steps[refilled % AHEAD];
            if (keys[stage] == NO_MORE_KEYS) {
                return front.left;
            }
            cp_async_wait_2(); /* STAGES - 2 */
            copy_rows(&columns, next->rows, next->count, (u32)refilled);
            keys[refilled] = next->key;
            take_step(params, &front, next);
            add_rows(sums, &columns, (u32)stage);
            if (keys[stage] >= 0) {
                add_to_row(params, keys[stage], sums);
#pragma unroll
                for (int i = 0; i < COLUMNS; ++i) {
                    sums[i] = 0.0f;
                }
            }
        }
    }
}

/* ---- keys of many entries -------------------------------------------------------------------- */

/* A key by the whole block; nothing of one with few entries. */
DEVICE void sum_long_key(const struct sparse_attn_bwd_sum_params *params, int key) {
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
    if (__syncthreads_or(sum_keys(&params))) {
        for (int key = (int)blockIdx.x; key < params.key_count; key += (int)gridDim.x) {
            sum_long_key(&params, key);
        }
    }
    if (PDL && params.pdl_wait_at_end && blockIdx.x == gridDim.x - 1 && threadIdx.x == 0) {
        grid_wait();
    }
}
