//@use common/base.cuh
//@use ptx/cp_async.cuh
//@use ptx/grid.cuh
//@use ptx/reduce.cuh
//@use sparse_attn_bwd_sum.params.h
/*
 * Deterministic backward pass, after the main kernel: adds each key's partial rows to its row of
 * dkv's sums, in a fixed order. Input and output: the params struct.
 *
 * A team of threads, COLUMNS columns each, takes a key at a time and adds its partial rows in
 * order, ROWS per step. Each thread copies its own columns into shared memory, STAGES - 1 steps
 * ahead of the additions, and reads only its own: many rows are in flight and no thread waits for
 * another. The rows' numbers are loaded AHEAD steps before the copies. Steps continue across keys,
 * since a key may have few rows. A key's sum is added to its row in global memory by a reduction,
 * so that no thread waits for the old value; no other thread adds to this row meanwhile. Any grid
 * size; adjacent keys go to different CTAs, since keys that every query selects are adjacent.
 *
 * A key with more than MOST_ALONE entries is left to the whole CTA: its entries are cut into runs
 * of RUN, a team adds each run, and the runs are added in order. Only the number of entries thus
 * determines the order of additions.
 *
 * With pdl_wait_at_end the kernel ends after the previous kernel of the stream, so that the next
 * one waits for both.
 *
 * Shared memory: RING [STAGES][ROWS][THREADS] 16 bytes: copied columns. Later, for each TEAMS runs,
 * in its place RUNS [TEAMS][DQK] float: their sums.
 *
 * Barriers: all keys of few entries are done; and for each TEAMS runs: their rows are added, their
 * sums are written, their sums are read.
 */

enum {
    TEAM = DQK / 8,
    COLUMNS = 8, /* of a thread: 16 bytes */
    ROWS = 4,    /* of a step */
    AHEAD = 2    /* steps; divides STAGES */
};

DEVICE int own_team(void) {
    return (int)threadIdx.x / TEAM;
}

DEVICE int own_column(void) {
    return (int)threadIdx.x % TEAM * COLUMNS;
}

/* Whether the thread is in a team: others are left over in the last warp. */
DEVICE bool is_in_team(void) {
    return THREADS == TEAMS * TEAM || own_team() < TEAMS;
}

/* The position of a partial row in a key's list: an entry, and a row of it. */
struct place {
    int entry;
    int row;
};

/* Finds the next ROWS partial rows before entry `end`; returns how many there are. */
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

/* This thread's columns of partial row 0, and of the ring. */
struct columns {
    const char *from;
    u32 ring; /* offset */
};

DEVICE struct columns find_columns(const struct sparse_attn_bwd_sum_params *params) {
    struct columns columns = {(const char *)params->partials + 2 * own_column(),
                              RING_OFFSET + threadIdx.x * 16};
    return columns;
}

/* The offset of a row in a stage. */
DEVICE u32 ring_offset(const struct columns *columns, u32 stage, int row) {
    return columns->ring + (stage * ROWS + (u32)row) * (THREADS * 16);
}

/* Starts the copies of this thread's columns; missing rows become zeros. */
DEVICE void copy_rows(const struct columns *columns, const u32 *rows, int count, u32 stage) {
    const u32 to = shared_address(ring_offset(columns, stage, 0));
#pragma unroll
    for (int i = 0; i < ROWS && count > 0; ++i) {
        cp_async_16(to + (u32)i * (THREADS * 16), columns->from + (u64)rows[i] * (DQK * 2),
                    i < count ? 16 : 0);
    }
    cp_async_commit();
}

/* Adds a pair of bf16, the lower half first. */
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

/* Adds the partial rows of entries [begin, end), this thread's columns. The rows' numbers are
 * loaded one step before the rows. */
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
        cp_async_wait(STAGES - 2);
        copy_rows(&columns, rows, count, (step + STAGES - 1) % STAGES);
        count = find_rows(params, &place, end, rows);
        add_rows(sums, &columns, step % STAGES);
    }
}

/* Adds this thread's columns of a key's sum to its row. */
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

/* Instead of a key: the step's rows are not its last ones, or there are no keys left. */
enum { MORE_OF_KEY = -1, NO_MORE_KEYS = -2 };

/* A step's rows. */
struct step {
    u32 rows[ROWS];
    int count;
    int key; /* the key that the step completes, or one of the above */
};

/* A team's read position in the lists. The next key's entries are located one key ahead. */
struct cursor {
    struct place place;
    int end;                  /* of the current key's entries */
    int key, next;            /* current and next key */
    int next_begin, next_end; /* its entries */
    bool left;                /* a long key was skipped */
};

/* Long keys are left to the whole CTA. */
DEVICE bool is_long(int entries) {
    return entries > MOST_ALONE;
}

/* Advances to the next key; a long one has no entries here. */
DEVICE void move_on(const struct sparse_attn_bwd_sum_params *params, struct cursor *cursor) {
    const int stride = TEAMS * (int)gridDim.x;
    cursor->key = cursor->next;
    cursor->place.entry = cursor->next_begin;
    cursor->end = cursor->next_end;
    if (is_long(cursor->end - cursor->place.entry)) {
        cursor->left = true;
        cursor->end = cursor->place.entry;
    }
    cursor->next = cursor->next < params->key_count - stride ? cursor->next + stride : NO_MORE_KEYS;
    if (cursor->next >= 0) {
        cursor->next_begin = params->starts[cursor->next];
        cursor->next_end = params->starts[cursor->next + 1];
    }
}

DEVICE struct cursor open_cursor(const struct sparse_attn_bwd_sum_params *params) {
    const int first = (int)blockIdx.x + own_team() * (int)gridDim.x;
    struct cursor cursor = {{0, 0}, 0, NO_MORE_KEYS, NO_MORE_KEYS, 0, 0, false};
    if (first < params->key_count && is_in_team()) {
        cursor.next = first;
        cursor.next_begin = params->starts[first];
        cursor.next_end = params->starts[first + 1];
        move_on(params, &cursor);
    }
    return cursor;
}

/* Takes the team's next step. */
DEVICE void take_step(const struct sparse_attn_bwd_sum_params *params, struct cursor *cursor,
                      struct step *step) {
    while (cursor->place.entry == cursor->end && cursor->key >= 0) {
        move_on(params, cursor);
    }
    step->count = cursor->key >= 0 ? find_rows(params, &cursor->place, cursor->end, step->rows) : 0;
    step->key = cursor->key >= 0 && cursor->place.entry < cursor->end ? MORE_OF_KEY : cursor->key;
}

/* Adds all short keys of the team, this thread's columns. Rows' numbers are loaded AHEAD steps
 * before their copies, which start STAGES - 1 steps before the additions, across keys. Returns
 * whether a long key was skipped. */
DEVICE bool sum_keys(const struct sparse_attn_bwd_sum_params *params) {
    const struct columns columns = find_columns(params);
    struct cursor cursor = open_cursor(params);
    struct step steps[AHEAD];
    int keys[STAGES];
    float sums[COLUMNS] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) {
        take_step(params, &cursor, &steps[i]);
    }
#pragma unroll
    for (int stage = 0; stage < STAGES - 1; ++stage) {
        copy_rows(&columns, steps[stage % AHEAD].rows, steps[stage % AHEAD].count, (u32)stage);
        keys[stage] = steps[stage % AHEAD].key;
        take_step(params, &cursor, &steps[stage % AHEAD]);
    }
    for (;;) {
#pragma unroll
        for (int stage = 0; stage < STAGES; ++stage) {
            const int refilled = (stage + STAGES - 1) % STAGES;
            struct step *const next = &steps[refilled % AHEAD];
            if (keys[stage] == NO_MORE_KEYS) {
                return cursor.left;
            }
            cp_async_wait(STAGES - 2);
            copy_rows(&columns, next->rows, next->count, (u32)refilled);
            keys[refilled] = next->key;
            take_step(params, &cursor, next);
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

/* Adds a long key by the whole CTA; does nothing for a short one. */
DEVICE void sum_long_key(const struct sparse_attn_bwd_sum_params *params, int key) {
    float *const runs = (float *)(arena + RING_OFFSET);
    const int first = params->starts[key], end = params->starts[key + 1];
    float sums[COLUMNS] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
    if (!is_long(end - first)) {
        return;
    }
    for (int begin = first; begin < end; begin += TEAMS * RUN) {
        const int own = is_in_team() ? minimum(begin + own_team() * RUN, end) : end;
        float run[COLUMNS] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
        sum_entries(params, run, own, minimum(own + RUN, end));
        __syncthreads();
#pragma unroll
        for (int i = 0; i < COLUMNS && is_in_team(); ++i) {
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
