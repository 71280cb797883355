/*
 * Written by smelt; do not edit. To write it again:
 *   smelt emit sparse_attn_bwd_sum:dqk=576 --arch sm_90a
 *
 * spec     sparse_attn_bwd_sum:dqk=576
 * arch     sm_90a
 * variant  sum
 * kernel   smelt_sparse_attn_bwd_sum_qk576
 * knobs (by the spec, or by rule)
 * shared memory (offset, bytes)
 *   RING_OFFSET                      0    73728  copied columns; sums of runs
 *   SHARED_BYTES                 73728  of 232448 that a block may have on sm_90a
 * launch
 *   288 threads a block, 3 blocks resident per multiprocessor, at most 72 registers a thread
 *   grid: 1 block a key, but no more than are resident at once
 *   persistent: in a grid-stride loop a block does the work of several
 */

enum {
    THREADS = 288,                  /* of a thread block */
    BLOCKS_PER_MULTIPROCESSOR = 3,  /* resident at once, at least */
    DQK = 576,                      /* width of a row, elements */
    TEAMS = 4,                      /* that sum a key each, of a block */
    MOST_ALONE = 512,               /* entries of a key that a team sums by itself */
    RUN = 64,                       /* entries that a team sums, of more */
    DEPENDENT_LAUNCH = 1,           /* 1: may be launched beside the kernel before it */
    VECTOR_REDUCTIONS = 1,          /* 1: four values are added to global memory at once */
    STAGES = 4,                     /* of rows that are copied ahead */
};

/* Shared memory, in bytes from the arena's start. */
enum {
    RING_OFFSET = 0,                /* copied columns; sums of runs */
    SHARED_BYTES = 73728,           /* the arena's size */
};

#define KERNEL_NAME smelt_sparse_attn_bwd_sum_qk576

#line 1 "templates/common/base.cuh"
/* Names every part uses: short integer types, function kinds, the shared-memory arena. */

typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

#ifdef __cplusplus
#define KERNEL extern "C" __global__
#else
#define KERNEL __global__
#endif
#define DEVICE static __device__ __forceinline__

/* The one dynamic shared-memory array. The plan's *_OFFSET constants are byte offsets into it. */
extern __shared__ __align__(1024) unsigned char arena[];

DEVICE int minimum(int a, int b) {
    return a < b ? a : b;
}

DEVICE int maximum(int a, int b) {
    return a > b ? a : b;
}

#line 2 "templates/ptx/shared.cuh"

/* The arena's 32-bit address in the shared state space, which the wrappers below take (PTX ISA,
 * "State Spaces", .shared). */
DEVICE u32 shared_address(u32 offset) {
    return (u32)__cvta_generic_to_shared(arena) + offset;
}

#line 2 "templates/ptx/cp_async.cuh"

/* Copies 16 bytes from global to shared memory without registers, past L1; the last 16 - `bytes`
 * are filled with zeros, and with bytes = 0 the source is not read (PTX ISA, "cp.async"). */
DEVICE void cp_async_16(u32 address, const void *source, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(address), "l"(source), "r"(bytes)
                 : "memory");
}

/* Closes this thread's group of copies (PTX ISA, "cp.async.commit_group"). */
DEVICE void cp_async_commit(void) {
    asm volatile("cp.async.commit_group;" : : : "memory");
}

/* Waits until at most so many of this thread's groups are under way (PTX ISA,
 * "cp.async.wait_group"). */
#line 20 "templates/ptx/cp_async.cuh"
DEVICE void cp_async_wait_0(void) {
    asm volatile("cp.async.wait_group 0;" : : : "memory");
}
#line 20 "templates/ptx/cp_async.cuh"
DEVICE void cp_async_wait_1(void) {
    asm volatile("cp.async.wait_group 1;" : : : "memory");
}
#line 20 "templates/ptx/cp_async.cuh"
DEVICE void cp_async_wait_2(void) {
    asm volatile("cp.async.wait_group 2;" : : : "memory");
}

#line 2 "templates/ptx/grid.cuh"

/* Lets the next kernel of the stream start, when all blocks have said so or ended; nothing is
 * promised about this one's results (PTX ISA, "griddepcontrol"). Without effect where the launch
 * did not ask for it. */
DEVICE void grid_launch_dependents(void) {
    asm volatile("griddepcontrol.launch_dependents;" : : : "memory");
}

/* Waits until the kernels before this one in the stream are complete and their results visible. */
DEVICE void grid_wait(void) {
    asm volatile("griddepcontrol.wait;" : : : "memory");
}

#line 2 "templates/ptx/reduce.cuh"

/* Adds to consecutive fp32 values in global memory, without a result; the address is a multiple of
 * the size (PTX ISA, "red"). Each value is added by itself: the order of several threads' additions
 * is not fixed. */
DEVICE void reduce_add_f32(float *to, float value) {
    asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" : : "l"(to), "f"(value) : "memory");
}

DEVICE void reduce_add_f32x4(float *to, const float *values) {
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(to), "f"(values[0]), "f"(values[1]), "f"(values[2]), "f"(values[3])
                 : "memory");
}

#line 1 "templates/sparse_attn_bwd_sum.params.h"
/*
 * Arguments of the sparse_attn_bwd_sum kernel. Included by the host code and, by the generator, by
 * the CUDA source: plain C types only. See sparse_attn_bwd_lists.params.h for starts and entries.
 */
struct sparse_attn_bwd_sum_params {
    const void *partials; /* bf16 [groups, key_stride, key_rows, DQK]: an entry has the rows from
                             entry * key_rows on, of less than 2^32 */
    const int *starts;    /* [key_count + 1] */
    const int *entries;
    float *sums; /* [key_count, DQK], added to: entry by entry, an entry's rows in order */
    int key_count;
    int key_stride;
    int key_rows; /* partial rows that a group has of each of its keys: one for each block of its
                     heads, or for each pair of them */
    int overlaps; /* 1: launched early, beside the main kernel of the next partial rows; all that is
                     read or added to was complete before that began */
};

#line 6 "templates/sparse_attn_bwd_sum.cu"
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
 * With `overlaps` the kernel ends after the one before it in the stream, so that what follows waits
 * for both.
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
    if (DEPENDENT_LAUNCH && params.overlaps && blockIdx.x == gridDim.x - 1 && threadIdx.x == 0) {
        grid_wait();
    }
}
