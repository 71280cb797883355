//@use common/base.cuh
//@use common/descriptor.cuh
//@use common/gather_slots.cuh
//@use common/ring.cuh
//@use common/work.cuh
//@use ptx/cp_async.cuh
//@use ptx/cp_async_mbarrier.cuh
//@use ptx/math.cuh
//@use ptx/mbarrier.cuh
//@use ptx/memory.cuh
//@use ptx/named_barrier.cuh
//@use ptx/prefetch.cuh
//@use ptx/proxy.cuh
//@use ptx/registers.cuh
//@use ptx/stmatrix.cuh
//@use ptx/warp.cuh
//@use ptx/wgmma.cuh
//@use ptx/wgmma_ss.cuh n = BLOCK_HEADS, ta = 0, tb = 0
//@use ptx/wgmma_ss.cuh n = BLOCK_HEADS, ta = 1, tb = 0
//@use sparse_attn_fwd.params.h
/*
 * Sparse attention forward with wgmma for at most 32 heads: keys are the matrices' rows, heads
 * their columns, so that no product is padded to 64 heads. Mathematics and shapes:
 * include/smelt/sparse_attn.h.
 *
 * Grid: one block a multiprocessor, each taking every gridDim.x-th query (common/work.cuh). Three
 * warpgroups:
 *
 *   math     two of them, which take a query's key blocks in turn, each with a maximum, a sum and
 *            an O of its own:
 *              S^T[BLOCK_KEYS, BLOCK_HEADS] = K Q^T, softmax down its columns
 *              O^T[DV, BLOCK_HEADS] += V^T P^T, in registers, DV / 64 slabs of 64 columns
 *            At a query's end each hands half of its slabs to the other and writes the rest.
 *   gather   scans the slots and copies the rows they name, STAGES key blocks ahead, across queries
 *
 * A query has at least two key blocks, the second perhaps empty, so that both warpgroups take part.
 * A maximum is rounded up to an integer (in powers of two) and moves only when the true one is more
 * than RESCALE_THRESHOLD above, for all of a warpgroup's heads at once.
 *
 * Shared memory (offsets and sizes: the plan above). A tile is rows of 64 columns, 128-byte
 * swizzled:
 *   KEYS       [STAGES] of DQK / 64 tiles of BLOCK_KEYS rows; at a query's end what the warpgroups
 *              hand over and the output (HANDED_*). With 48 rows, 16 more of
 *              zeros follow, since S^T has 64
 *   QUERY      [DQK / 64] tiles of BLOCK_HEADS rows
 *   P          [2] tiles of BLOCK_HEADS heads by 64 keys; with rope columns they stand in their own
 *              block's rope tile instead, from row LOW_KEYS on, when S^T is complete
 *   MAXIMA     [2][4][BLOCK_HEADS] fp32: what the warps of a warpgroup tell each other
 *   WORDS      [STAGES]: what a key block is (count, LAST_BLOCK, ONE_MORE)
 *   RING, COUNTS: common/gather_slots.cuh; RANGE: common/work.cuh
 *
 * Barriers (parity counts uses; stage s = key block % STAGES; a FULL barrier of each math
 * warpgroup, which sees its own blocks alone and could not tell the others' phases apart):
 *   barrier      count  who arrives                                     who waits
 *   FULL[s][m]    129   gather: every thread when its copies have       math warpgroup m
 *                       landed, one for the word
 *   EMPTY_LOW[s]    8   math: warps, twice each, when rows below        gather
 *                       LOW_KEYS are used
 *   EMPTY_HIGH[s]   8   the same for all rows; after a warpgroup's last gather
 *                       block once by each warp of both
 *   QUERY_FULL    256   math: every thread when its copies landed       math
 * Named barriers: 1, 3 a math warpgroup, 2 the gather's, 4 both math warpgroups at a query's end.
 *
 * Knobs: BLOCK_KEYS, STAGES, the registers of each role; legal values and the rule that picks them:
 * src/codegen/sparse_attn_fwd_sm90.c.
 */

enum {
    WARPGROUP = 128, /* threads */
    GATHER_WARPGROUP = 2,
    MATH_THREADS = 2 * WARPGROUP,
    BOTH_BARRIER = 4, /* named; those of the warpgroups are 1 + 2 * number */

    TILE_PITCH = 128, /* bytes of a row, 64 columns */
    TILES = DQK / 64,
    VALUE_TILES = DV / 64,
    HALF_TILES = VALUE_TILES / 2, /* slabs that a warpgroup writes */
    KEY_TILE_BYTES = BLOCK_KEYS * TILE_PITCH,
    QUERY_TILE_BYTES = BLOCK_HEADS * TILE_PITCH,
    PAD_WORDS = (64 - BLOCK_KEYS) * TILE_PITCH / 4, /* of zeros behind a stage */
    ATOM_BYTES = 8 * TILE_PITCH,                    /* eight rows of a tile */
    STEP_BYTES = 32,                                /* 16 columns of a row: a k-step of K Q^T */
    KEY_STEP_BYTES = 2 * ATOM_BYTES,                /* 16 keys of a tile: a k-step of V^T P^T */
    STEPS = DQK / 16,
    KEY_STEPS = BLOCK_KEYS / 16,
    LOW_STEPS = LOW_KEYS / 16,
    HAS_ROPE = DQK > DV,
    LAST_HEAD = HEADS - 1,

    GROUPS = BLOCK_HEADS / 8, /* a thread's heads: two of every eight */
    THREAD_HEADS = 2 * GROUPS,
    SLAB_VALUES = BLOCK_HEADS / 2, /* of a thread: S^T, or a slab of O^T */
    OUTPUT_VALUES = VALUE_TILES * SLAB_VALUES,

    /* What a warpgroup's last stage holds when the two exchange: bytes from its start. */
    HANDED_SLABS = 0, /* [HALF_TILES][GROUPS][128] of four values */
    HANDED_SUMS = HALF_TILES * GROUPS * WARPGROUP * 16, /* [4][BLOCK_HEADS] */
    HANDED_HIGHEST = HANDED_SUMS + 16 * BLOCK_HEADS,    /* [4][BLOCK_HEADS] */
    HANDED_MAXIMA = HANDED_HIGHEST + 16 * BLOCK_HEADS,  /* [BLOCK_HEADS] */
    HANDED_OUTPUT = (HANDED_MAXIMA + 4 * BLOCK_HEADS + 15) / 16 * 16,
    OUTPUT_PITCH = DV + 16 /* bytes: half of a row's columns; rows lie in different banks */
};

/* The products' shapes: as many columns as heads. */
// clang-format off
//@for n in BLOCK_HEADS..BLOCK_HEADS + 1
#define multiply_scores wgmma_ss_n${n}_t00
#define multiply_output wgmma_ss_n${n}_t10
//@end
// clang-format on

/* Places in BARRIERS. */
enum {
    FULL = 0,
    EMPTY_LOW = FULL + 2 * STAGES, /* FULL: by stage and math warpgroup */
    EMPTY_HIGH = EMPTY_LOW + STAGES,
    QUERY_FULL = EMPTY_HIGH + STAGES
};

#define LOG2_E 1.4426950408889634f
#define LN_2 0.6931471805599453f
#define MINUS_INFINITY (-__int_as_float(0x7f800000))

/* In powers of two: P stays below 2^8, and most blocks rescale nothing. */
#define RESCALE_THRESHOLD 8.0f

DEVICE u32 barrier_at(int place) {
    return shared_address((u32)(BARRIERS_OFFSET + place * 8));
}

/* The word of a key block: how many keys it has; whether it is its warpgroup's last of the query,
 * and then whether the other's last follows or is already behind. */
enum { LAST_BLOCK = 256, ONE_MORE = 512, COUNT_MASK = 255 };

DEVICE int *block_word(int stage) {
    return (int *)(arena + WORDS_OFFSET) + stage;
}

/* One head's value in a warpgroup's last stage. */
DEVICE float *handed(int stage, int offset) {
    return (float *)(arena + KEYS_OFFSET + stage * STAGE_BYTES + offset);
}

/* Barriers, and the zeros behind each stage. */
DEVICE void initialise(void) {
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(barrier_at(FULL + 2 * stage), WARPGROUP + 1);
            mbarrier_init(barrier_at(FULL + 2 * stage + 1), WARPGROUP + 1);
            mbarrier_init(barrier_at(EMPTY_LOW + stage), 8);
            mbarrier_init(barrier_at(EMPTY_HIGH + stage), 8);
        }
        mbarrier_init(barrier_at(QUERY_FULL), MATH_THREADS);
    }
    if (PAD_WORDS > 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            for (int i = (int)threadIdx.x; i < PAD_WORDS; i += THREADS) {
                handed(stage, TILES * KEY_TILE_BYTES)[i] = 0.0f;
            }
        }
        fence_proxy_async();
    }
    __syncthreads();
}

/* Where Q's row of a query's head is; a head past the last is the last again, and never stored. */
DEVICE const char *query_row(const struct sparse_attn_fwd_params *params, const struct work *work,
                             int head) {
    const int batch = work_batch(params, work), token = work_token(params, work);
    return (const char *)params->q +
           2 * (batch * params->q_batch_stride + token * params->q_token_stride +
                minimum(head, LAST_HEAD) * params->q_head_stride);
}

/* ---- gather ------------------------------------------------------------------------------------
 */

/*
 * Copies a key block into its stage, when the stage is free (its lower rows are before the others).
 * Eight threads copy a row of a tile, 16 rows at once; rows past the word's count become zeros.
 * `source`: this thread's 16 bytes of KV row 0; `group`: the math warpgroup that takes the block;
 * `taken`: its first entry in the ring.
 */
DEVICE void fill_stage(const struct sparse_attn_fwd_params *params, const char *source,
                       const struct ring_place *stage, int group, int taken, int word) {
    const int *const ring = (const int *)(arena + RING_OFFSET);
    const u32 thread = threadIdx.x % WARPGROUP;
    const u32 tile =
        shared_address((u32)(KEYS_OFFSET + stage->index * STAGE_BYTES) + thread / 8 * TILE_PITCH +
                       ((thread % 8) ^ (thread / 8 % 8)) * 16);
    const int first = (int)(thread / 8), count = word & COUNT_MASK;
    mbarrier_wait(barrier_at(EMPTY_LOW + stage->index), stage->parity ^ 1);
    if (thread == 0) {
        *block_word(stage->index) = word;
        mbarrier_arrive(barrier_at(FULL + 2 * stage->index + group));
    }
#pragma unroll
    for (int i = 0; i < KEY_STEPS; ++i) {
        if (i == LOW_STEPS) {
            mbarrier_wait(barrier_at(EMPTY_HIGH + stage->index), stage->parity ^ 1);
        }
        const bool present = first + i * 16 < count;
        const u32 row = present ? (u32)ring[(taken + first + i * 16) & RING_MASK] : 0;
        const char *const from = source + (u64)row * params->kv_row_bytes;
#pragma unroll
        for (int k = 0; k < TILES; ++k) {
            cp_async_16(tile + (u32)(k * KEY_TILE_BYTES + i * 16 * TILE_PITCH),
                        from + k * TILE_PITCH, present ? 16 : 0);
        }
    }
    cp_async_arrive_noinc(barrier_at(FULL + 2 * stage->index + group));
}

/* Brings a query's Q into the L2 cache, ahead of load_query. */
DEVICE void prefetch_query(const struct sparse_attn_fwd_params *params, const struct work *work) {
    const int head = (int)(threadIdx.x % WARPGROUP);
    if (work->query >= 0 && head < HEADS) {
        prefetch_l2(query_row(params, work, head), DQK * 2);
    }
}

/* Key blocks still to be filled of a row that ended: two at least in all. */
DEVICE int blocks_left(int left, int filled) {
    return maximum((left + BLOCK_KEYS - 1) / BLOCK_KEYS, 2 - filled);
}

/* The gather's warpgroup. A block is filled when it is known whether two more follow. */
DEVICE void run_gather(const struct sparse_attn_fwd_params *params) {
    registers_decrease(GATHER_REGISTERS);
    struct ring_place stage = {0, 0};
    struct slot_scan scan;
    struct work work = first_work(params);
    scan_open(&scan, params, &work);
    while (work.query >= 0) {
        const char *const source = (const char *)params->kv +
                                   2 * (work_batch(params, &work) * params->kv_batch_stride) +
                                   threadIdx.x % 8 * 16;
        int entries = 0, taken = 0, filled = 0;
        bool ended = false;
        while (!ended) {
            entries = scan_more(&scan, params->rows, entries);
            ended = scan_ended(&scan, entries);
            if (ended) {
                work = next_work(params, &work);
                scan_open(&scan, params, &work);
                prefetch_query(params, &work);
            }
            while (ended ? blocks_left(entries - taken, filled) > 0
                         : entries - taken > 2 * BLOCK_KEYS) {
                const int count = minimum(entries - taken, BLOCK_KEYS);
                const int after = ended ? blocks_left(entries - taken, filled) - 1 : 2;
                const int word = count | (after < 2 ? LAST_BLOCK : 0) | (after == 1 ? ONE_MORE : 0);
                fill_stage(params, source, &stage, filled % 2, taken, word);
                ring_advance(&stage, STAGES);
                taken += count;
                filled += 1;
            }
        }
    }
    cp_async_wait_all();
}

/* ---- math: scores and probabilities
 * --------------------------------------------------------------
 */

/* This thread's place. */
struct place {
    int group;      /* math warpgroup, 0 or 1 */
    int warp, lane; /* in the warpgroup */
    int first_head; /* its heads: first_head + 8 * (k / 2) + k % 2, k < THREAD_HEADS */
};

DEVICE int thread_head(const struct place *place, int k) {
    return place->first_head + 8 * (k / 2) + k % 2;
}

/* A barrier of the warpgroup. */
DEVICE void group_sync(const struct place *place) {
    if (place->group == 0) {
        barrier_sync(1, WARPGROUP);
    } else {
        barrier_sync(3, WARPGROUP);
    }
}

DEVICE bool group_or(const struct place *place, bool condition) {
    return place->group == 0 ? barrier_or(1, WARPGROUP, condition)
                             : barrier_or(3, WARPGROUP, condition);
}

/* Starts the copy of a query's Q, by both warpgroups; nobody reads the one before any more. */
DEVICE void load_query(const struct sparse_attn_fwd_params *params, const struct work *work) {
    enum { CHUNKS = DQK / 8 };
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < BLOCK_HEADS * CHUNKS; i += MATH_THREADS) {
        const int head = i / CHUNKS, chunk = i % CHUNKS;
        cp_async_16(shared_address((u32)(QUERY_OFFSET + chunk / 8 * QUERY_TILE_BYTES +
                                         head * TILE_PITCH + ((chunk ^ head) & 7) * 16)),
                    query_row(params, work, head) + chunk * 16, 16);
    }
    cp_async_arrive_noinc(barrier_at(QUERY_FULL));
}

/* Issues S^T = K Q^T for the block in a stage. */
DEVICE void issue_scores(float *s, int stage) {
    const u32 keys = warp_reduce_or(shared_address((u32)(KEYS_OFFSET + stage * STAGE_BYTES)));
    const u64 a = shared_descriptor(keys, 16, ATOM_BYTES, 128);
    const u64 b = shared_descriptor(shared_address(QUERY_OFFSET), 16, ATOM_BYTES, 128);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < STEPS; ++k) {
        const u32 column = (u32)(k % 4 * STEP_BYTES);
        multiply_scores(s, descriptor_advance(a, (u32)(k / 4 * KEY_TILE_BYTES) + column),
                        descriptor_advance(b, (u32)(k / 4 * QUERY_TILE_BYTES) + column), k > 0);
    }
    wgmma_commit();
}

/* Scores of keys past `count` become -inf. */
DEVICE void mask_scores(float *s, const struct place *place, int count) {
    const int key = place->warp * 16 + place->lane / 4;
#pragma unroll
    for (int i = 0; i < SLAB_VALUES; ++i) {
        if (key + i / 2 % 2 * 8 >= count) {
            s[i] = MINUS_INFINITY;
        }
    }
}

/* What the softmax of this thread's heads has come to; in powers of two. */
struct softmax_columns {
    float
        maximum[THREAD_HEADS]; /* P is relative to it: an integer or -inf; one for the warpgroup */
    float highest[THREAD_HEADS]; /* the true maximum of this thread's scores */
    float sum[THREAD_HEADS];     /* of this thread's exponentials */
};

/* The greatest of a column over the warp's 16 keys. */
DEVICE float column_maximum(float value) {
    value = fmaxf(value, __shfl_xor_sync((u32)ALL_LANES, value, 4));
    value = fmaxf(value, __shfl_xor_sync((u32)ALL_LANES, value, 8));
    return fmaxf(value, __shfl_xor_sync((u32)ALL_LANES, value, 16));
}

/* Moves the maxima that have to, O and sums with them. `highest`: of this thread's scores. */
DEVICE void move_maxima(struct softmax_columns *columns, float *o, const float *highest,
                        const struct place *place) {
    float *const maxima = (float *)(arena + MAXIMA_OFFSET) + place->group * 4 * BLOCK_HEADS;
#pragma unroll
    for (int k = 0; k < THREAD_HEADS; ++k) {
        const float value = column_maximum(highest[k]);
        if (place->lane < 4) {
            maxima[place->warp * BLOCK_HEADS + thread_head(place, k)] = value;
        }
    }
    group_sync(place);
#pragma unroll
    for (int k = 0; k < THREAD_HEADS; ++k) {
        const float *const head = maxima + thread_head(place, k);
        const float value = fmaxf(fmaxf(head[0], head[BLOCK_HEADS]),
                                  fmaxf(head[2 * BLOCK_HEADS], head[3 * BLOCK_HEADS]));
        if (value > columns->maximum[k] + RESCALE_THRESHOLD) {
            const float old = columns->maximum[k];
            columns->maximum[k] = ceilf(value);
            const float factor = exp2_approximate(old - columns->maximum[k]);
            columns->sum[k] *= factor;
#pragma unroll
            for (int i = 0; i < VALUE_TILES; ++i) {
                o[i * SLAB_VALUES + k / 2 * 4 + k % 2] *= factor;
                o[i * SLAB_VALUES + k / 2 * 4 + k % 2 + 2] *= factor;
            }
        }
    }
}

/* Scores -> P in place, and the sums. */
DEVICE void softmax_block(float *s, struct softmax_columns *columns, float *o, float scale_log2,
                          const struct place *place) {
    float highest[THREAD_HEADS];
    bool move = false;
#pragma unroll
    for (int k = 0; k < THREAD_HEADS; ++k) {
        highest[k] = fmaxf(s[k / 2 * 4 + k % 2], s[k / 2 * 4 + k % 2 + 2]) * scale_log2;
        columns->highest[k] = fmaxf(columns->highest[k], highest[k]);
        move = move || highest[k] > columns->maximum[k] + RESCALE_THRESHOLD;
    }
    if (group_or(place, move)) {
        move_maxima(columns, o, highest, place);
    }
#pragma unroll
    for (int k = 0; k < THREAD_HEADS; ++k) {
        const float offset = columns->maximum[k] == MINUS_INFINITY ? 0.0f : -columns->maximum[k];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
            float *const score = &s[k / 2 * 4 + k % 2 + 2 * e];
            *score = exp2_approximate(fmaf(*score, scale_log2, offset));
            columns->sum[k] += *score;
        }
    }
}

/* Where P of a block goes: offset in the arena. */
DEVICE u32 p_offset(int stage, const struct place *place) {
    return HAS_ROPE ? (u32)(KEYS_OFFSET + stage * STAGE_BYTES + VALUE_TILES * KEY_TILE_BYTES +
                            LOW_KEYS * TILE_PITCH)
                    : (u32)(P_OFFSET + place->group * QUERY_TILE_BYTES);
}

/*
 * A thread's four values of eight columns (heads), which are rows g and g + 8 of its warp's 16, as
 * bf16 to a matrix of heads by rows: `base` is the address of row 0, `pitch` apart from head to
 * head; `chunk`: the warp's first 16 bytes; `swizzled`: chunks change places as in a tile.
 */
DEVICE void store_transposed(u32 base, const float *values, int pitch, int chunk, bool swizzled) {
    const int lane = (int)(threadIdx.x % 32);
    const int row = lane % 8, place = chunk + lane / 8 % 2;
    const u32 address = base + (u32)(row * pitch + (swizzled ? place ^ row : place) * 16);
#pragma unroll
    for (int j = 0; j + 1 < GROUPS; j += 2) {
        const u32 pairs[4] = {pack_bf16x2(values[4 * j], values[4 * j + 1]),
                              pack_bf16x2(values[4 * j + 2], values[4 * j + 3]),
                              pack_bf16x2(values[4 * j + 4], values[4 * j + 5]),
                              pack_bf16x2(values[4 * j + 6], values[4 * j + 7])};
        stmatrix_x4_trans(address + (u32)((j + lane / 16) * 8 * pitch), pairs);
    }
    if (GROUPS % 2 == 1) {
        const float *const last = &values[4 * (GROUPS - 1)];
        const u32 pairs[2] = {pack_bf16x2(last[0], last[1]), pack_bf16x2(last[2], last[3])};
        stmatrix_x2_trans(address + (u32)((GROUPS - 1) * 8 * pitch), pairs);
    }
}

/* Issues O^T += V^T P^T in two groups, the keys below LOW_KEYS and the others. A warpgroup's own
 * slabs, those it will write, come first in o. */
DEVICE void issue_output(float *o, int stage, const struct place *place) {
    const u32 values = (u32)(KEYS_OFFSET + stage * STAGE_BYTES);
    const u32 own = warp_reduce_or(values + (u32)(place->group * HALF_TILES * KEY_TILE_BYTES));
    const u32 other =
        warp_reduce_or(values + (u32)((1 - place->group) * HALF_TILES * KEY_TILE_BYTES));
    const u64 a = shared_descriptor(shared_address(own), 16, ATOM_BYTES, 128);
    const u64 c = shared_descriptor(shared_address(other), 16, ATOM_BYTES, 128);
    const u64 b = shared_descriptor(shared_address(warp_reduce_or(p_offset(stage, place))), 16,
                                    ATOM_BYTES, 128);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < KEY_STEPS; ++k) {
        if (k == LOW_STEPS) {
            wgmma_commit();
        }
#pragma unroll
        for (int i = 0; i < VALUE_TILES; ++i) {
            const u64 slab = i < HALF_TILES ? a : c;
            multiply_output(&o[i * SLAB_VALUES],
                            descriptor_advance(
                                slab, (u32)(i % HALF_TILES * KEY_TILE_BYTES + k * KEY_STEP_BYTES)),
                            descriptor_advance(b, (u32)(k * STEP_BYTES)), 1);
        }
    }
    wgmma_commit();
}

/* So many arrivals of a warp, when all of its threads have come so far. */
DEVICE void arrive_warp(int place, int count) {
    __syncwarp((u32)ALL_LANES);
    if (threadIdx.x % 32 == 0) {
        mbarrier_arrive_count(barrier_at(place), count);
    }
}

/* One key block. */
DEVICE void compute_block(struct softmax_columns *columns, float *o, int stage, int word,
                          float scale_log2, const struct place *place) {
    float s[SLAB_VALUES];
    fence_proxy_async();
    issue_scores(s, stage);
    wgmma_wait_0();
    if ((word & COUNT_MASK) < 64) {
        mask_scores(s, place, word & COUNT_MASK);
    }
    /* Its barrier stands between the last read of the rope columns and P, too. */
    softmax_block(s, columns, o, scale_log2, place);
    store_transposed(shared_address(p_offset(stage, place)), s, TILE_PITCH, place->warp * 2, true);
    fence_proxy_async();
    group_sync(place);
    issue_output(o, stage, place);
    wgmma_wait_1();
    if (!(word & LAST_BLOCK)) {
        arrive_warp(EMPTY_LOW + stage, 2);
    }
    wgmma_wait_0();
    if (!(word & LAST_BLOCK)) {
        arrive_warp(EMPTY_HIGH + stage, 2);
    }
}

/* ---- math: a query's end
 * -------------------------------------------------------------------------
 */

/* The values of a thread's heads, one sum over its warp each, to [warp][head]. */
DEVICE void hand_over(int stage, const float *o, const struct softmax_columns *columns,
                      const struct place *place) {
    const u32 thread = threadIdx.x % WARPGROUP;
#pragma unroll
    for (int i = 0; i < HALF_TILES * GROUPS; ++i) {
        float *const to = handed(stage, HANDED_SLABS) + (u32)(i * WARPGROUP + (int)thread) * 4;
        const float *const from = &o[OUTPUT_VALUES / 2 + i * 4];
        const float4 values = {from[0], from[1], from[2], from[3]};
        *(float4 *)to = values;
    }
#pragma unroll
    for (int k = 0; k < THREAD_HEADS; ++k) {
        float sum = columns->sum[k];
        sum += __shfl_xor_sync((u32)ALL_LANES, sum, 4);
        sum += __shfl_xor_sync((u32)ALL_LANES, sum, 8);
        sum += __shfl_xor_sync((u32)ALL_LANES, sum, 16);
        const float highest = column_maximum(columns->highest[k]);
        if (place->lane < 4) {
            const int head = thread_head(place, k);
            handed(stage, HANDED_SUMS)[place->warp * BLOCK_HEADS + head] = sum;
            handed(stage, HANDED_HIGHEST)[place->warp * BLOCK_HEADS + head] = highest;
            if (place->warp == 0) {
                handed(stage, HANDED_MAXIMA)[head] = columns->maximum[k];
            }
        }
    }
}

/* The sum, or the greatest, of a head's four values at [warp][head]. */
DEVICE float sum_of_warps(const float *values) {
    return (values[0] + values[BLOCK_HEADS]) + (values[2 * BLOCK_HEADS] + values[3 * BLOCK_HEADS]);
}

DEVICE float greatest_of_warps(const float *values) {
    return fmaxf(fmaxf(values[0], values[BLOCK_HEADS]),
                 fmaxf(values[2 * BLOCK_HEADS], values[3 * BLOCK_HEADS]));
}

/* One head of a query: what the two warpgroups' O are multiplied by, and its statistics. `first`,
 * `second`: the last stages of warpgroups 0 and 1. */
DEVICE void finish_head(const struct sparse_attn_fwd_params *params, const struct work *work,
                        int head, int first, int second, float *factors, bool store) {
    const float maxima[2] = {handed(first, HANDED_MAXIMA)[head],
                             handed(second, HANDED_MAXIMA)[head]};
    const float greatest = fmaxf(maxima[0], maxima[1]);
    const float base = greatest == MINUS_INFINITY ? 0.0f : greatest;
    factors[0] = exp2_approximate(maxima[0] - base);
    factors[1] = exp2_approximate(maxima[1] - base);
    const float sum = factors[0] * sum_of_warps(handed(first, HANDED_SUMS) + head) +
                      factors[1] * sum_of_warps(handed(second, HANDED_SUMS) + head);
    const bool empty = sum == 0.0f; /* else at least 1/2, or NaN, which stays visible in lse */
    float denominator = sum;
    if (HAS_SINK) {
        denominator += exp2_approximate(params->sink[minimum(head, LAST_HEAD)] * LOG2_E - base);
    }
    const float inverse = empty ? 0.0f : 1.0f / denominator;
    factors[0] *= inverse;
    factors[1] *= inverse;
    if (store && head < HEADS) {
        const int batch = work_batch(params, work), token = work_token(params, work);
        const i64 to = batch * params->lse_batch_stride + token * params->lse_token_stride +
                       head * params->lse_head_stride;
        params->lse[to] = empty ? MINUS_INFINITY : (base + log2_approximate(sum)) * LN_2;
        if (params->max_logits) {
            params->max_logits[to] =
                fmaxf(greatest_of_warps(handed(first, HANDED_HIGHEST) + head),
                      greatest_of_warps(handed(second, HANDED_HIGHEST) + head)) *
                LN_2;
        }
    }
}

/* This warpgroup's slabs, and what the other handed over of them: the output. */
DEVICE void merge(const struct sparse_attn_fwd_params *params, const struct work *work, float *o,
                  int mine, int others, const struct place *place) {
    const u32 thread = threadIdx.x % WARPGROUP;
    const int first = place->group == 0 ? mine : others, second = place->group == 0 ? others : mine;
    float own[THREAD_HEADS], other[THREAD_HEADS];
#pragma unroll
    for (int k = 0; k < THREAD_HEADS; ++k) {
        float factors[2];
        finish_head(params, work, thread_head(place, k), first, second, factors,
                    place->group == 0 && place->warp == 0 && place->lane < 4);
        own[k] = place->group == 0 ? factors[0] : factors[1];
        other[k] = place->group == 0 ? factors[1] : factors[0];
    }
#pragma unroll
    for (int i = 0; i < HALF_TILES * GROUPS; ++i) {
        const int k = i % GROUPS * 2;
        const float4 value = *(const float4 *)(handed(others, HANDED_SLABS) +
                                               (u32)(i * WARPGROUP + (int)thread) * 4);
        float *const x = &o[i * 4];
        x[0] = fmaf(x[0], own[k], value.x * other[k]);
        x[1] = fmaf(x[1], own[k + 1], value.y * other[k + 1]);
        x[2] = fmaf(x[2], own[k], value.z * other[k]);
        x[3] = fmaf(x[3], own[k + 1], value.w * other[k + 1]);
    }
}

/* The merged half of the output, by way of the stage, to global memory: 16 bytes a thread, a row a
 * warp. */
DEVICE void store_output(const struct sparse_attn_fwd_params *params, const struct work *work,
                         const float *o, int stage, const struct place *place) {
    const u32 staged = shared_address((u32)(KEYS_OFFSET + stage * STAGE_BYTES + HANDED_OUTPUT));
#pragma unroll
    for (int i = 0; i < HALF_TILES; ++i) {
        store_transposed(staged, &o[i * SLAB_VALUES], OUTPUT_PITCH, i * 8 + place->warp * 2, false);
    }
    group_sync(place);
    const int batch = work_batch(params, work), token = work_token(params, work);
    char *const out = (char *)params->out +
                      2 * (batch * params->out_batch_stride + token * params->out_token_stride) +
                      place->group * DV + place->lane * 16;
#pragma unroll 2
    for (int head = place->warp; head < HEADS; head += 4) {
        u32 words[4];
        load_shared_16(words, staged + (u32)(head * OUTPUT_PITCH + place->lane * 16));
        store_streaming_16(out + 2 * (head * params->out_head_stride), words);
    }
}

DEVICE void begin_query(struct softmax_columns *columns, float *o) {
#pragma unroll
    for (int k = 0; k < THREAD_HEADS; ++k) {
        columns->maximum[k] = MINUS_INFINITY;
        columns->highest[k] = MINUS_INFINITY;
        columns->sum[k] = 0.0f;
    }
#pragma unroll
    for (int i = 0; i < OUTPUT_VALUES; ++i) {
        o[i] = 0.0f;
    }
}

/* One of the two math warpgroups. */
DEVICE void run_math(const struct sparse_attn_fwd_params *params, int group) {
    registers_increase(MATH_REGISTERS);
    const float scale_log2 = params->scale * LOG2_E;
    const struct place place = {group, (int)(threadIdx.x % WARPGROUP / 32), (int)(threadIdx.x % 32),
                                (int)(threadIdx.x % 4 * 2)};
    int stage = group, query_parity = 0;
    u32 full_parities = 0; /* bit s: of this warpgroup's FULL barrier of stage s */
    struct work work = first_work(params);
    if (work.query >= 0) {
        load_query(params, &work);
    }
    while (work.query >= 0) {
        struct softmax_columns columns;
        float o[OUTPUT_VALUES];
        int word;
        begin_query(&columns, o);
        mbarrier_wait(barrier_at(QUERY_FULL), query_parity);
        query_parity ^= 1;
        for (;;) {
            mbarrier_wait(barrier_at(FULL + 2 * stage + group), (int)(full_parities >> stage & 1));
            full_parities ^= 1u << stage;
            word = (int)warp_reduce_or((u32)*block_word(stage));
            compute_block(&columns, o, stage, word, scale_log2, &place);
            if (word & LAST_BLOCK) {
                break;
            }
            stage = (stage + 2) % STAGES;
        }
        /* The other warpgroup's last block is the next one or the one before. */
        const int more = word & ONE_MORE ? 1 : 0;
        const int others = (stage + (more ? 1 : STAGES - 1)) % STAGES;
        group_sync(&place);
        hand_over(stage, o, &columns, &place);
        barrier_sync(BOTH_BARRIER, MATH_THREADS);
        const struct work next = next_work(params, &work);
        if (next.query >= 0) {
            load_query(params, &next);
        }
        merge(params, &work, o, stage, others, &place);
        arrive_warp(EMPTY_LOW + others, 1);
        arrive_warp(EMPTY_HIGH + others, 1);
        store_output(params, &work, o, stage, &place);
        arrive_warp(EMPTY_LOW + stage, 1);
        arrive_warp(EMPTY_HIGH + stage, 1);
        stage =
            (stage + 1 + more + group) % STAGES; /* of the next query's first block, or second */
        work = next;
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct sparse_attn_fwd_params params) {
    begin_grid(&params);
    initialise();
    const int warpgroup = __shfl_sync((u32)ALL_LANES, (int)(threadIdx.x / WARPGROUP), 0);
    if (warpgroup < GATHER_WARPGROUP) {
        run_math(&params, warpgroup);
    } else {
        run_gather(&params);
    }
    end_grid(&params);
}
