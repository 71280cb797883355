/*
 * Written by smelt; do not edit. To write it again:
 *   smelt emit sparse_attn_fwd:heads=64,dqk=576,dv=512,topk=2048 --arch sm_90a
 *
 * spec     sparse_attn_fwd:heads=64,dqk=576,dv=512,topk=2048
 * arch     sm_90a
 * variant  sm90
 * kernel   smelt_sparse_attn_fwd_sm90_h64_qk576_v512_k2048
 * knobs (by the spec, or by rule)
 *   STAGES                           3  rule     key blocks in flight
 *   BLOCK_KEYS                      64  rule     KV rows of a key block
 *   TURN_STEPS                      10  rule     k-steps of QK in flight when PV may begin
 *   OUTPUT_REGISTERS               160  rule     of a thread, PV
 *   GATHER_REGISTERS                24  rule     of a thread, gather
 *   COMPACT                          1  rule     1: masked slots are dropped before the gather
 *   BLOCKS_PER_MULTIPROCESSOR        1  rule     resident at once
 *   RACECHECK                        0  rule     1: every lane of a warp arrives at barriers
 * shared memory (offset, bytes)
 *   LATENT_OFFSET                    0   196608  key blocks, the columns that are key and value
 *   ROPE_OFFSET                 196608     8192  a key block, the columns that are key alone
 *   PROBABILITIES_OFFSET        204800     8192  probabilities, bf16
 *   QUERY_OFFSET                212992    18432  the k-steps of Q that are not in registers
 *   RING_OFFSET                 231424      512  KV row numbers of the key blocks to come
 *   DENOMINATORS_OFFSET         231936      256  of each head, fp32
 *   BARRIERS_OFFSET             232192      112  mbarriers
 *   EXPONENTS_OFFSET            232304       64  what the output's rows are multiplied by, powers of two
 *   WORDS_OFFSET                232368       12  what each stage holds
 *   COUNTS_OFFSET               232380        8  valid slots that each warp found
 *   RANGE_OFFSET                232392        8  which items the launch takes
 *   SHARED_BYTES                232400  of 232448 that a block may have on sm_90a
 * launch
 *   512 threads a block, 1 block resident per multiprocessor, at most 128 registers a thread
 *   grid: 1 block a query, but no more than are resident at once
 *   persistent: in a grid-stride loop a block does the work of several
 */

enum {
    HEADS = 64,                     /* query heads */
    DQK = 576,                      /* width of a query and of a KV row, elements */
    DV = 512,                       /* width of a value, elements */
    TOPK = 2048,                    /* valid slots of a query, at most */
    HAS_SINK = 0,                   /* 1: a logit per head in the denominator */
    DEPENDENT_LAUNCH = 1,           /* 1: a kernel may begin before the one ahead of it has ended */
    STAGES = 3,                     /* key blocks in flight */
    BLOCK_KEYS = 64,                /* KV rows of a key block */
    TURN_STEPS = 10,                /* k-steps of QK in flight when PV may begin */
    OUTPUT_REGISTERS = 160,         /* of a thread, PV */
    GATHER_REGISTERS = 24,          /* of a thread, gather */
    COMPACT = 1,                    /* 1: masked slots are dropped before the gather */
    BLOCKS_PER_MULTIPROCESSOR = 1,  /* resident at once */
    RACECHECK = 0,                  /* 1: every lane of a warp arrives at barriers */
    THREADS = 512,                  /* of a thread block */
    SCORES_REGISTERS = 168,         /* of a thread, QK and softmax */
    REGISTER_STEPS = 27,            /* k-steps of Q held in registers */
    HEAD_BLOCKS = 1,                /* items of a query */
    P_BUFFERS = 1,                  /* of probabilities */
    TURNS_AHEAD = 1,                /* entries of a query list that a warp holds: registers are short */
    RING_ENTRIES = 128,             /* row numbers the ring holds */
};

/* Shared memory, in bytes from the arena's start. */
enum {
    LATENT_OFFSET = 0,              /* key blocks, the columns that are key and value */
    ROPE_OFFSET = 196608,           /* a key block, the columns that are key alone */
    PROBABILITIES_OFFSET = 204800,  /* probabilities, bf16 */
    QUERY_OFFSET = 212992,          /* the k-steps of Q that are not in registers */
    RING_OFFSET = 231424,           /* KV row numbers of the key blocks to come */
    DENOMINATORS_OFFSET = 231936,   /* of each head, fp32 */
    BARRIERS_OFFSET = 232192,       /* mbarriers */
    EXPONENTS_OFFSET = 232304,      /* what the output's rows are multiplied by, powers of two */
    WORDS_OFFSET = 232368,          /* what each stage holds */
    COUNTS_OFFSET = 232380,         /* valid slots that each warp found */
    RANGE_OFFSET = 232392,          /* which items the launch takes */
    SHARED_BYTES = 232400,          /* the arena's size */
};

#define KERNEL_NAME smelt_sparse_attn_fwd_sm90_h64_qk576_v512_k2048

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

#line 2 "templates/ptx/memory.cuh"

/* 16 bytes to global memory that nobody reads soon: gone first from the caches (PTX ISA, "st",
 * .cs). The address is a multiple of 16. */
DEVICE void store_streaming_16(void *to, const u32 *values) {
    asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(to), "r"(values[0]), "r"(values[1]), "r"(values[2]), "r"(values[3])
                 : "memory");
}

/* The same of 8 bytes, at a multiple of 8. */
DEVICE void store_streaming_8(void *to, const u32 *values) {
    asm volatile("st.global.cs.v2.u32 [%0], {%1, %2};"
                 :
                 : "l"(to), "r"(values[0]), "r"(values[1])
                 : "memory");
}

/* 16 bytes of global memory that no thread writes while the kernel runs (PTX ISA, "ld.global.nc").
 */
DEVICE void load_read_only_16(u32 *values, const void *from) {
    asm("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(values[0]), "=r"(values[1]), "=r"(values[2]), "=r"(values[3])
        : "l"(from));
}

/* 4 bytes of global memory past L1, which may be stale (PTX ISA, "ld", .cg). */
DEVICE u32 load_l2_32(const void *from) {
    u32 value;
    asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}

/* 16 bytes of shared memory at once, 16-byte aligned (PTX ISA, "ld", .shared). */
DEVICE void load_shared_16(u32 *values, u32 address) {
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(values[0]), "=r"(values[1]), "=r"(values[2]), "=r"(values[3])
                 : "r"(address)
                 : "memory");
}

#line 1 "templates/common/work.params.h"
/*
 * Which queries a kernel computes and where their index rows are: the part of the arguments that
 * all kernels driven by queries have in common, what common/work.cuh reads. Included by the host
 * code and, by the generator, by the CUDA source: plain C types only. Strides count elements.
 */
struct work_params {
    const int *indices;     /* [batches, tokens, width] */
    const int *topk_length; /* [batches, tokens] or null */
    const int *queries;     /* query list: batch * tokens + token, or null for all queries */
    const int *query_count; /* its length in device memory, or null for query_capacity */
    const int *query_range; /* the first entry to take and how many, in device memory, instead of
                               query_count; or null */
    const int *extents;     /* with entry i of `queries`: slots up to its last valid one; or null */
    long long indices_batch_stride, indices_token_stride;
    long long topk_length_batch_stride, topk_length_token_stride;
    int batches, tokens, rows, width;
    int query_capacity; /* entries of `queries`, or batches * tokens */
    int overlaps;       /* 1: launched early, behind a kernel of the same call: all it reads was
                           there when it began, and it must not end before that one */
};

#line 4 "templates/common/queries.cuh"
/*
 * Which entries of the query list a kernel takes, and a query's index row. The list and what
 * belongs to it are read past L1: an earlier kernel of the stream may have written them while this
 * one began.
 */

/* A part of the list. */
struct query_range {
    int first; /* entry */
    int queries;
};

DEVICE struct query_range find_query_range(const struct work_params *params) {
    struct query_range range = {0, params->query_capacity};
    if (params->query_range) {
        range.first = (int)load_l2_32(&params->query_range[0]);
        range.queries = (int)load_l2_32(&params->query_range[1]);
    } else if (params->query_count) {
        range.queries = maximum(minimum((int)load_l2_32(params->query_count), range.queries), 0);
    }
    return range;
}

/* A query's batch, without a division in the common case of one. */
DEVICE int query_batch(const struct work_params *params, int query) {
    return params->batches > 1 ? query / params->tokens : 0;
}

/* Where a query's index row begins. */
DEVICE const int *index_row(const struct work_params *params, int query) {
    const int batch = query_batch(params, query), token = query - batch * params->tokens;
    return params->indices + batch * params->indices_batch_stride +
           token * params->indices_token_stride;
}

/* How many of its slots are to be looked at: up to the last valid one where the list tells it, else
 * the width, cut by topk_length. `entry`: of the list, the query's. */
DEVICE int index_slots(const struct work_params *params, int entry, int query) {
    if (params->extents) {
        return (int)load_l2_32(&params->extents[entry]);
    }
    if (!params->topk_length) {
        return params->width;
    }
    const int batch = query_batch(params, query), token = query - batch * params->tokens;
    const int length = params->topk_length[batch * params->topk_length_batch_stride +
                                           token * params->topk_length_token_stride];
    return minimum(maximum(length, 0), params->width);
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

#line 2 "templates/ptx/warp.cuh"

/* The bitwise or of all 32 lanes' values, the same in every lane and known to the compiler as such
 * (PTX ISA, "redux.sync"): also to say that a value all lanes share is uniform. */
DEVICE u32 warp_reduce_or(u32 value) {
    u32 all;
    asm volatile("redux.sync.or.b32 %0, %1, 0xffffffff;" : "=r"(all) : "r"(value));
    return all;
}

#line 7 "templates/common/work.cuh"
/*
 * The items of a grid: a query and one of its HEAD_BLOCKS blocks of heads. A block takes item
 * blockIdx.x and every gridDim.x-th after it; each of its warpgroups follows them by itself. With a
 * query list, an entry outside of the queries is no item.
 *
 * RANGE_OFFSET: struct work_range, which part of the list is taken, written before the block's
 * first barrier. The list is read past L1 (common/queries.cuh).
 */

struct work_range {
    int first; /* entry of the list */
    int items;
};

struct work {
    int item;
    int query;      /* batch * tokens + token, or -1: no work is left */
    int head_block; /* of the query */
    int turn;       /* the block's items before it */
    int listed;     /* by lane: what the list has for TURNS_AHEAD turns, this one among them */
};

DEVICE struct work_range *work_range(void) {
    return (struct work_range *)(arena + RANGE_OFFSET);
}

/* By all threads, before the block's first barrier: waits for what the kernels before this one
 * write, unless it was begun when that was there, and lets the next one begin. */
DEVICE void begin_grid(const struct work_params *params) {
    if (DEPENDENT_LAUNCH && !params->overlaps) {
        grid_wait();
    }
    if (threadIdx.x != 0) {
        return;
    }
    if (DEPENDENT_LAUNCH) {
        grid_launch_dependents();
    }
    const struct query_range range = find_query_range(params);
    work_range()->first = range.first;
    work_range()->items = range.queries * HEAD_BLOCKS;
}

/* By all threads, at the kernel's end: it ends after the kernel that it overlaps, so that what
 * follows both in the stream waits for both. */
DEVICE void end_grid(const struct work_params *params) {
    if (DEPENDENT_LAUNCH && params->overlaps && blockIdx.x == gridDim.x - 1 && threadIdx.x == 0) {
        grid_wait();
    }
}

/* Which entry of the list an item is. */
DEVICE int work_entry(u32 item) {
    return work_range()->first + (int)(item / HEAD_BLOCKS);
}

/* By lane, what the list has for TURNS_AHEAD turns from `item` on: a warp waits for the list that
 * seldom. (Where registers are too short for it, TURNS_AHEAD is 1 and nothing is kept.) */
DEVICE int list_turns(const struct work_params *params, u32 item) {
    const u32 lane = threadIdx.x % 32, lane_item = item + lane * gridDim.x;
    return lane_item < (u32)work_range()->items
               ? (int)load_l2_32(&params->queries[work_entry(lane_item)])
               : -1;
}

/* The first item from number `turn` of the block's on, if any; by whole warps. Numbers are
 * unsigned: the step past the last may pass 2^31. */
DEVICE struct work find_work(const struct work_params *params, int turn, int listed) {
    const u32 items = (u32)work_range()->items;
    u32 item = blockIdx.x + (u32)turn * gridDim.x;
    struct work work = {0, -1, 0, 0, -1};
    for (; item < items; item += gridDim.x, ++turn) {
        int query = (int)(item / HEAD_BLOCKS);
        if (params->queries && TURNS_AHEAD == 1) {
            query = (int)load_l2_32(&params->queries[work_entry(item)]);
        } else if (params->queries) {
            const bool mine = (int)(threadIdx.x % 32) == turn % TURNS_AHEAD;
            listed = turn % TURNS_AHEAD == 0 ? list_turns(params, item) : listed;
            query = (int)warp_reduce_or(mine ? (u32)listed : 0);
        }
        if (query >= 0 && query < params->batches * params->tokens) {
            work.item = (int)item;
            work.query = query;
            work.head_block = (int)(item % HEAD_BLOCKS);
            work.turn = turn;
            work.listed = listed;
            break;
        }
    }
    return work;
}

DEVICE struct work first_work(const struct work_params *params) {
    return find_work(params, 0, -1);
}

DEVICE struct work next_work(const struct work_params *params, const struct work *work) {
    return find_work(params, work->turn + 1, work->listed);
}

/* The batch of an item's query, and its token. */
DEVICE int work_batch(const struct work_params *params, const struct work *work) {
    return query_batch(params, work->query);
}

DEVICE int work_token(const struct work_params *params, const struct work *work) {
    return work->query - work_batch(params, work) * params->tokens;
}

/* Where an item's index row begins. */
DEVICE const int *work_row(const struct work_params *params, const struct work *work) {
    return index_row(params, work->query);
}

/* How many of its slots are to be looked at. */
DEVICE int work_slots(const struct work_params *params, const struct work *work) {
    return index_slots(params, work_entry((u32)work->item), work->query);
}

#line 2 "templates/sparse_attn_fwd.params.h"
/*
 * Arguments of the sparse_attn_fwd kernels, every variant. Included by the host code (behind
 * common/work.params.h) and, by the generator, by the CUDA source: plain C types only. Strides
 * count elements. See include/smelt/sparse_attn.h for what each tensor holds.
 */
struct sparse_attn_fwd_params {
    struct work_params work;
    const void *q;     /* [batches, tokens, HEADS, DQK] bf16 */
    const void *kv;    /* [batches, rows, DQK] bf16 */
    const float *sink; /* [HEADS], read when HAS_SINK */
    void *out;         /* [batches, tokens, HEADS, DV] bf16 */
    float *lse;        /* [batches, tokens, HEADS] */
    float *max_logits; /* [batches, tokens, HEADS], or null */
    long long q_batch_stride, q_token_stride, q_head_stride;
    long long kv_batch_stride;
    long long out_batch_stride, out_token_stride, out_head_stride;
    long long lse_batch_stride, lse_token_stride, lse_head_stride;
    long long max_logits_batch_stride, max_logits_token_stride, max_logits_head_stride;
    unsigned kv_row_bytes; /* from one KV row to the next */
    float scale;           /* softmax scale, natural units */
};

#line 2 "templates/ptx/mbarrier.cuh"
/*
 * Barriers in shared memory (PTX ISA, "Parallel Synchronization and Communication Instructions:
 * mbarrier"). A barrier is 8 bytes, 8-byte aligned. A phase ends when as many arrivals as the count
 * have come and every expected byte has landed; phases alternate between parity 0, the first,
 * and 1. Waiting for the parity before the current one passes at once, so that a fresh barrier lets
 * a wait for parity 1 through.
 */

/* A new barrier of so many arrivals a phase; seen by others after a barrier of the block, and by
 * copies and the cluster after mbarrier_fence_init (PTX ISA, "mbarrier.init"). */
DEVICE void mbarrier_init(u32 barrier, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(barrier), "r"(count) : "memory");
}

/* Makes this thread's mbarrier_init known to the async proxy and the cluster (PTX ISA,
 * "fence.mbarrier_init"). */
DEVICE void mbarrier_fence_init(void) {
    asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
}

/* One arrival, which releases what this thread wrote (PTX ISA, "mbarrier.arrive"). */
DEVICE void mbarrier_arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];"
                 :
                 : "r"(barrier)
                 : "memory");
}

/* `count` arrivals at once. */
DEVICE void mbarrier_arrive_count(u32 barrier, int count) {
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0], %1;"
                 :
                 : "r"(barrier), "r"(count)
                 : "memory");
}

/* The current phase waits for so many more bytes of copies; then one arrival (PTX ISA,
 * "mbarrier.arrive", .expect_tx). */
DEVICE void mbarrier_arrive_expect(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;"
                 :
                 : "r"(barrier), "r"(bytes)
                 : "memory");
}

/* The same without the arrival (PTX ISA, "mbarrier.expect_tx"). */
DEVICE void mbarrier_expect(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;"
                 :
                 : "r"(barrier), "r"(bytes)
                 : "memory");
}

/* One arrival at the barrier of any block of the cluster, by its cluster_address (PTX ISA,
 * "mbarrier.arrive", .shared::cluster). Who waits for it uses mbarrier_wait_cluster. */
DEVICE void mbarrier_arrive_remote(u32 cluster_barrier) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];"
                 :
                 : "r"(cluster_barrier)
                 : "memory");
}

/* The same by a thread that gives back what it has read and not written, so that it need not wait
 * until its writes are seen elsewhere: what it did comes before the arrival for its own block
 * alone, and an arrival that nothing holds back leaves while loads before it still wait: the
 * address is to depend on what they gave. Who waits for it uses mbarrier_wait_given_back, and may
 * write there, no more. */
DEVICE void mbarrier_give_back_remote(u32 cluster_barrier) {
    asm volatile("mbarrier.arrive.release.cta.shared::cluster.b64 _, [%0];"
                 :
                 : "r"(cluster_barrier)
                 : "memory");
}

/* Whether the phase of that parity is over; acquires what its arrivals released (PTX ISA,
 * "mbarrier.test_wait"). */
DEVICE bool mbarrier_test(u32 barrier, int parity) {
    u32 over;
    asm volatile("{.reg .pred p;\n\t"
                 "mbarrier.test_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2;\n\t"
                 "selp.u32 %0, 1, 0, p;}"
                 : "=r"(over)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    return over != 0;
}

/* Waits until the phase of that parity is over (PTX ISA, "mbarrier.try_wait", which sleeps for a
 * while of the hardware's choosing). */
DEVICE void mbarrier_wait(u32 barrier, int parity) {
    u32 over;
    do {
        asm volatile("{.reg .pred p;\n\t"
                     "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2;\n\t"
                     "selp.u32 %0, 1, 0, p;}"
                     : "=r"(over)
                     : "r"(barrier), "r"(parity)
                     : "memory");
    } while (!over);
}

/* The same, where arrivals come from other blocks of the cluster. */
DEVICE void mbarrier_wait_cluster(u32 barrier, int parity) {
    u32 over;
    do {
        asm volatile("{.reg .pred p;\n\t"
                     "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n\t"
                     "selp.u32 %0, 1, 0, p;}"
                     : "=r"(over)
                     : "r"(barrier), "r"(parity)
                     : "memory");
    } while (!over);
}

/* The same for mbarrier_give_back_remote: acquires nothing. */
DEVICE void mbarrier_wait_given_back(u32 barrier, int parity) {
    u32 over;
    do {
        asm volatile("{.reg .pred p;\n\t"
                     "mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 p, [%1], %2;\n\t"
                     "selp.u32 %0, 1, 0, p;}"
                     : "=r"(over)
                     : "r"(barrier), "r"(parity)
                     : "memory");
    } while (!over);
}

#line 3 "templates/common/warp_arrival.cuh"

/*
 * A warp's arrival at a barrier, when all of its threads have come so far: that of one lane, which
 * the warp's meeting puts after what the others did. RACECHECK: every lane arrives, and barriers
 * count WARP_ARRIVALS for each warp, since compute-sanitizer's racecheck credits an arrival to no
 * other lane than its own.
 */
enum { WARP_ARRIVALS = RACECHECK ? 32 : 1 };

DEVICE void arrive_warp(u32 barrier, int count) {
    __syncwarp(0xffffffffu);
    if (RACECHECK || threadIdx.x % 32 == 0) {
        mbarrier_arrive_count(barrier, count);
    }
}

#line 4 "templates/sparse_attn_fwd.sm90_shared.cuh"
/*
 * What the roles of sparse_attn_fwd.sm90.cu share, whose head has the shared-memory map and says
 * who arrives at each barrier: the sizes of a tile and of an item, the barriers' places, the word
 * of a key block.
 */

enum {
    WARPGROUP = 128, /* threads */
    SCORES_WARPGROUP = 0,
    OUTPUT_WARPGROUP = 1, /* and the next */
    GATHER_WARPGROUP = 3,
    SCORES_BARRIER = 1, /* a named one */

    BLOCK_HEADS = 64, /* of an item: a product's rows */
    TILE_ROWS = 64,   /* heads or keys */
    TILE_COLUMNS = 64,
    TILE_PITCH = 2 * TILE_COLUMNS, /* bytes of a row */
    TILE_BYTES = TILE_ROWS * TILE_PITCH,
    ATOM_BYTES = 8 * TILE_PITCH,     /* eight rows of a tile */
    STEP_BYTES = 32,                 /* 16 columns of a row: a k-step of Q K^T */
    KEY_STEP_BYTES = 2 * ATOM_BYTES, /* 16 keys of a tile: a k-step of P V */
    LATENT_TILES = DV / TILE_COLUMNS,
    STAGE_BYTES = LATENT_TILES * TILE_BYTES,
    STEPS = DQK / 16,
    LATENT_STEPS = DV / 16,
    LATENT_SLICES = LATENT_STEPS - REGISTER_STEPS, /* k-steps of Q in shared memory, without rope */
    SLICE_BYTES = BLOCK_HEADS * STEP_BYTES,        /* of one of them */
    ROPE_STEPS = STEPS - LATENT_STEPS,
    LAST_HEAD = HEADS - 1,
    OUTPUT_COLUMNS = DV / 2, /* of a warpgroup */
    OUTPUT_TILES = LATENT_TILES / 2,

    SCORE_VALUES = 32,                    /* S of a thread */
    OUTPUT_VALUES = OUTPUT_COLUMNS / 2,   /* O of a thread */
    OUTPUT_HALF = OUTPUT_VALUES / 2,      /* of one wgmma */
    QUERY_FRAGMENTS = REGISTER_STEPS * 4, /* registers */
    QUAD_BYTES = 4 * 16                   /* of a row of O, stored at once by four threads */
};

/* Places in BARRIERS. */
enum {
    FULL = 0,
    EMPTY_LOW = FULL + STAGES,
    EMPTY_HIGH = EMPTY_LOW + STAGES,
    P_FULL = EMPTY_HIGH + STAGES,
    TURN = P_FULL + P_BUFFERS,
    P_FREE = TURN + P_BUFFERS,
    ROPE_FULL = P_FREE + P_BUFFERS,
    ROPE_FREE = ROPE_FULL + 1
};

DEVICE u32 barrier_at(int number) {
    return shared_address((u32)(BARRIERS_OFFSET + number * 8));
}

/* The word of a key block: how many keys it has, and where it stands in its query. */
enum { FIRST_BLOCK = 256, LAST_BLOCK = 512, COUNT_MASK = 255 };

DEVICE int *block_word(int stage) {
    return (int *)(arena + WORDS_OFFSET) + stage;
}

DEVICE void initialise_barriers(void) {
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(barrier_at(FULL + stage), WARPGROUP + 1);
            mbarrier_init(barrier_at(EMPTY_LOW + stage), 8 * WARP_ARRIVALS);
            mbarrier_init(barrier_at(EMPTY_HIGH + stage), 8 * WARP_ARRIVALS);
        }
        for (int buffer = 0; buffer < P_BUFFERS; ++buffer) {
            mbarrier_init(barrier_at(P_FULL + buffer), 4 * WARP_ARRIVALS);
            mbarrier_init(barrier_at(TURN + buffer), 4 * WARP_ARRIVALS);
            mbarrier_init(barrier_at(P_FREE + buffer), 8 * WARP_ARRIVALS);
        }
        mbarrier_init(barrier_at(ROPE_FULL), WARPGROUP);
        mbarrier_init(barrier_at(ROPE_FREE), 4 * WARP_ARRIVALS);
    }
    __syncthreads();
}

#line 2 "templates/common/ring.cuh"

/* A place in a ring of stages or buffers, and the parity of the barrier phase that its current use
 * ends: the first use ends phase 0. */
struct ring_place {
    int index;
    int parity;
};

DEVICE void ring_advance(struct ring_place *place, int size) {
    if (++place->index == size) {
        place->index = 0;
        place->parity ^= 1;
    }
}

#line 2 "templates/ptx/named_barrier.cuh"
/*
 * The block's 16 hardware barriers (PTX ISA, "bar, barrier"); 0 is __syncthreads'. `threads`, a
 * multiple of 32, counts those that come, waiting or not. Whole warps come together. A constant
 * `id` reserves that barrier alone, a variable one all 16.
 */

/* Comes and waits for the others. */
DEVICE void barrier_sync(int id, int threads) {
    asm volatile("barrier.cta.sync.aligned %0, %1;" : : "r"(id), "r"(threads) : "memory");
}

/* Comes and goes on; others wait with barrier_sync. */
DEVICE void barrier_arrive(int id, int threads) {
    asm volatile("barrier.cta.arrive.aligned %0, %1;" : : "r"(id), "r"(threads) : "memory");
}

/* Comes, waits, and tells whether any thread's condition holds. */
DEVICE bool barrier_or(int id, int threads, bool condition) {
    u32 any;
    asm volatile("{.reg .pred p, q;\n\t"
                 "setp.ne.u32 p, %1, 0;\n\t"
                 "barrier.cta.red.or.aligned.pred q, %2, %3, p;\n\t"
                 "selp.u32 %0, 1, 0, q;}"
                 : "=r"(any)
                 : "r"((u32)condition), "r"(id), "r"(threads)
                 : "memory");
    return any != 0;
}

#line 4 "templates/common/warpgroup_slots.cuh"
/*
 * The slots of a query's index row, compacted by one warpgroup into a ring of KV row numbers: the
 * valid ones, in slot order, at most TOPK of them. Two warps look at 64 slots at a time; a step's
 * slots are loaded one step ahead, a query's first ones while the query before is still gathered.
 *
 * The ring: RING_OFFSET, RING_ENTRIES ints, 128: what one step leaves over (at most 64) and the
 * next one's. The two warps' counts of valid slots: COUNTS_OFFSET.
 */

enum {
    RING_MASK = RING_ENTRIES - 1,
    ALL_LANES = -1,
    MASKED = -1,
    SCAN_SLOTS = 64, /* of a step */
    SCAN_BARRIER = 2 /* named; of the warpgroup */
};

struct warpgroup_scan {
    const int *row; /* the query's indices */
    int slots;      /* how many there are to scan */
    int scanned;    /* looked at so far */
    int value;      /* slot scanned + thread of the warpgroup, loaded ahead */
};

DEVICE void warpgroup_scan_load_ahead(struct warpgroup_scan *scan) {
    const int thread = (int)(threadIdx.x % 128), slot = scan->scanned + thread;
    scan->value = thread < SCAN_SLOTS && slot < scan->slots ? scan->row[slot] : MASKED;
}

/* Begins the row of an item; of no item, an empty one. */
DEVICE void warpgroup_scan_open(struct warpgroup_scan *scan, const struct work_params *params,
                                const struct work *work) {
    scan->scanned = 0;
    scan->slots = 0;
    scan->row = params->indices;
    if (work->query >= 0) {
        scan->row = work_row(params, work);
        scan->slots = work_slots(params, work);
    }
    warpgroup_scan_load_ahead(scan);
}

/* Scans 64 more slots and returns how many entries there are now, of `entries` before. `rows`: KV
 * rows, an index from 0 on and below this is valid. Two barriers: no thread writes the ring while
 * another still reads what came before, and all see what is new. */
DEVICE int warpgroup_scan_more(struct warpgroup_scan *scan, int rows, int entries) {
    int *const ring = (int *)(arena + RING_OFFSET);
    int *const counts = (int *)(arena + COUNTS_OFFSET);
    const u32 thread = threadIdx.x % 128, lane = thread % 32;
    const bool valid = scan->value >= 0 && scan->value < rows;
    const u32 votes = __ballot_sync((u32)ALL_LANES, valid);
    if (thread == 0) {
        counts[0] = __popc(votes);
    } else if (thread == 32) {
        counts[1] = __popc(votes);
    }
    barrier_sync(SCAN_BARRIER, 128);
    const int first = counts[0], total = first + counts[1];
    /* Of a valid slot: it counts itself. */
    const int rank = entries + (thread < 32 ? 0 : first) + __popc(votes << (31 - lane)) - 1;
    if (valid && rank < TOPK) {
        ring[rank & RING_MASK] = scan->value;
    }
    scan->scanned += SCAN_SLOTS;
    warpgroup_scan_load_ahead(scan);
    barrier_sync(SCAN_BARRIER, 128);
    return minimum(entries + total, TOPK);
}

/* Whether the row has no more entries. */
DEVICE bool warpgroup_scan_ended(const struct warpgroup_scan *scan, int entries) {
    return scan->scanned >= scan->slots || entries >= TOPK;
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

#line 2 "templates/ptx/cp_async_mbarrier.cuh"

/* One of the barrier's expected arrivals, made when all earlier cp.async copies of this thread have
 * landed (PTX ISA, "cp.async.mbarrier.arrive", .noinc). It orders the copies alone: plain stores of
 * this thread need an arrival of their own. */
DEVICE void cp_async_arrive_noinc(u32 barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];"
                 :
                 : "r"(barrier)
                 : "memory");
}

/* Waits for all of this thread's copies, committed or not (PTX ISA, "cp.async.wait_all"). */
DEVICE void cp_async_wait_all(void) {
    asm volatile("cp.async.wait_all;" : : : "memory");
}

#line 2 "templates/ptx/registers.cuh"
/*
 * Registers a thread may use from here on, moved between the warpgroups of a block (PTX ISA,
 * "setmaxnreg"): 24 to 256, a multiple of 8, the same for all of a warpgroup, which runs it
 * together. Increasing waits until the pool has them. Macros, because the number is part of the
 * instruction.
 */
#define registers_increase(count)                                                                  \
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"((int)(count)) : "memory")
#define registers_decrease(count)                                                                  \
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"((int)(count)) : "memory")

#line 2 "templates/ptx/thread.cuh"

/* This thread's number in its block, read anew at each call: what follows from it stays in no
 * register in between (PTX ISA, "Special Registers: %tid"). */
DEVICE u32 thread_number(void) {
    u32 number;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(number));
    return number;
}

#line 11 "templates/sparse_attn_fwd.sm90_gather.cuh"
/* The gather's warpgroup of sparse_attn_fwd.sm90.cu: it scans the slots of its items and copies Q
 * and the rows of KV that they name into the ring of stages. */

/* Where a row of an item's Q begins. Rows past the last head repeat it, so that what is read is
 * there; what is computed of them is not stored. */
DEVICE const char *query_row(const struct sparse_attn_fwd_params *params, const struct work *work,
                             int row) {
    const int batch = work_batch(&params->work, work), token = work_token(&params->work, work);
    const int head = minimum(work->head_block * BLOCK_HEADS + row, LAST_HEAD);
    return (const char *)params->q +
           2 * (batch * params->q_batch_stride + token * params->q_token_stride +
                head * params->q_head_stride);
}

/* A thread's first 16 bytes in a tile. Eight threads copy a row, 16 rows at once. Registers are so
 * short here that what follows from a thread's number is computed anew for each block. */
DEVICE u32 thread_chunk(u32 thread) {
    return shared_address(thread / 8 * TILE_PITCH + ((thread % 8) ^ (thread / 8 % 8)) * 16);
}

/* Waits until a stage's lower half is free, and says what will be in it. */
DEVICE void claim_stage(const struct ring_place *stage, int word) {
    mbarrier_wait(barrier_at(EMPTY_LOW + stage->index), stage->parity ^ 1);
    if (threadIdx.x % WARPGROUP == 0) {
        *block_word(stage->index) = word;
        mbarrier_arrive(barrier_at(FULL + stage->index));
    }
}

/* Starts the copy of a row's latent columns: `from` with this thread's offset in the row; zeros
 * when it is not present. */
DEVICE void copy_row(u32 to, const char *from, bool present) {
#pragma unroll
    for (int k = 0; k < LATENT_TILES; ++k) {
        cp_async_16(to + (u32)(k * TILE_BYTES), from + k * TILE_PITCH, present ? 16 : 0);
    }
}

/*
 * Copies a key block into its stage, when the stage is free (its lower half is before the upper
 * one), and the rope columns into theirs. Rows past the word's count become zeros. `source`: this
 * thread's 16 bytes of KV row 0; `taken`: the block's first entry in the ring.
 */
DEVICE void fill_keys(const struct sparse_attn_fwd_params *params, const char *source,
                      const struct ring_place *stage, int *rope_parity, int taken, int word) {
    const int *const ring = (const int *)(arena + RING_OFFSET);
    const u32 thread = thread_number() % WARPGROUP, chunk = thread_chunk(thread);
    const u32 latent = chunk + (u32)(LATENT_OFFSET + stage->index * STAGE_BYTES);
    const int first = (int)(thread / 8), count = word & COUNT_MASK;
    claim_stage(stage, word);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (i == 2) {
            mbarrier_wait(barrier_at(EMPTY_HIGH + stage->index), stage->parity ^ 1);
        }
        const bool present = first + i * 16 < count;
        const u32 row = present ? (u32)ring[(taken + first + i * 16) & RING_MASK] : 0;
        copy_row(latent + (u32)(i * 16 * TILE_PITCH), source + (u64)row * params->kv_row_bytes,
                 present);
    }
    cp_async_arrive_noinc(barrier_at(FULL + stage->index));
    if (ROPE_STEPS == 0) {
        return;
    }
    mbarrier_wait(barrier_at(ROPE_FREE), *rope_parity ^ 1);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const bool present = first + i * 16 < count;
        const u32 row = present ? (u32)ring[(taken + first + i * 16) & RING_MASK] : 0;
        cp_async_16(chunk + (u32)(ROPE_OFFSET + i * 16 * TILE_PITCH),
                    source + (u64)row * params->kv_row_bytes + DV * 2, present ? 16 : 0);
    }
    cp_async_arrive_noinc(barrier_at(ROPE_FULL));
    *rope_parity ^= 1;
}

/* The same for an item's Q: its heads are the rows. */
DEVICE void fill_query(const struct sparse_attn_fwd_params *params, const struct work *work,
                       struct ring_place *stage) {
    const u32 thread = thread_number() % WARPGROUP, chunk = thread_chunk(thread);
    const u32 latent = chunk + (u32)(LATENT_OFFSET + stage->index * STAGE_BYTES);
    const int first = (int)(thread / 8);
    claim_stage(stage, 0);
    mbarrier_wait(barrier_at(EMPTY_HIGH + stage->index), stage->parity ^ 1);
#pragma unroll 1
    for (int i = 0; i < 4; ++i) {
        copy_row(latent + (u32)(i * 16 * TILE_PITCH),
                 query_row(params, work, first + i * 16) + thread % 8 * 16, true);
    }
    cp_async_arrive_noinc(barrier_at(FULL + stage->index));
    ring_advance(stage, STAGES);
}

/* Q's rope columns into theirs. */
DEVICE void fill_query_rope(const struct sparse_attn_fwd_params *params, const struct work *work,
                            int *rope_parity) {
    const u32 thread = thread_number() % WARPGROUP, chunk = thread_chunk(thread);
    const int first = (int)(thread / 8);
    mbarrier_wait(barrier_at(ROPE_FREE), *rope_parity ^ 1);
#pragma unroll 1
    for (int i = 0; i < 4; ++i) {
        cp_async_16(chunk + (u32)(ROPE_OFFSET + i * 16 * TILE_PITCH),
                    query_row(params, work, first + i * 16) + DV * 2 + thread % 8 * 16, 16);
    }
    cp_async_arrive_noinc(barrier_at(ROPE_FULL));
    *rope_parity ^= 1;
}

/* The gather's warpgroup. A block is filled when it is known whether it is the query's last; what
 * the first one needs is scanned while the rope tile, or else Q's stage, is not free yet. A query
 * without valid slots has one block of no keys. */
DEVICE void run_gather(const struct sparse_attn_fwd_params *params) {
    registers_decrease(GATHER_REGISTERS);
    struct ring_place stage = {0, 0};
    int rope_parity = 0;
    struct warpgroup_scan scan;
    struct work work = first_work(&params->work);
    warpgroup_scan_open(&scan, &params->work, &work);
    while (work.query >= 0) {
        const char *const source =
            (const char *)params->kv +
            2 * (work_batch(&params->work, &work) * params->kv_batch_stride) +
            thread_number() % 8 * 16;
        int entries = 0, taken = 0, position = FIRST_BLOCK;
        bool ended = false;
        if (ROPE_STEPS > 0) {
            fill_query(params, &work, &stage);
        }
        while (!ended) {
            do {
                entries = warpgroup_scan_more(&scan, params->work.rows, entries);
                ended = warpgroup_scan_ended(&scan, entries);
            } while (!ended && entries - taken <= BLOCK_KEYS);
            if (!(position & FIRST_BLOCK)) {
                /* Q is on its way. */
            } else if (ROPE_STEPS > 0) {
                fill_query_rope(params, &work, &rope_parity);
            } else {
                fill_query(params, &work, &stage);
            }
            if (ended) {
                work = next_work(&params->work, &work);
                warpgroup_scan_open(&scan, &params->work, &work);
            }
            while (entries - taken > BLOCK_KEYS || (ended && !(position & LAST_BLOCK))) {
                const int count = minimum(entries - taken, BLOCK_KEYS);
                position |= ended && entries - taken <= BLOCK_KEYS ? LAST_BLOCK : 0;
                fill_keys(params, source, &stage, &rope_parity, taken, count | position);
                ring_advance(&stage, STAGES);
                taken += count;
                position &= ~FIRST_BLOCK;
            }
        }
    }
    cp_async_wait_all();
}

#line 2 "templates/common/descriptor.cuh"
/*
 * Matrices in shared memory as wgmma takes them (PTX ISA, "Asynchronous Warpgroup Level Matrix
 * Shared Memory Layout" and "Matrix Descriptor Format"). Rows are A's rows or B's columns. Both
 * kinds are made of atoms of 8 rows x swizzle bytes (K-major, depth contiguous) or 8 depths x
 * swizzle bytes of rows (transposed), each a run of 8 * swizzle bytes whose 16-byte chunks are
 * exchanged by the swizzle; without a swizzle the atom is 8 x 16 bytes.
 *
 *   K-major:    stride = bytes from 8 rows to the next 8; leading is ignored, but without a swizzle
 *               it is the bytes from 16 bytes of depth to the next 16
 *   transposed: stride = bytes from 8 depths to the next 8; leading = bytes from one atom's rows
 *               (swizzle / 2 of them) to the next atom's; without a swizzle the two are exchanged
 *
 * Atoms are aligned to their size. A step of k inside a swizzled K-major atom adds its bytes to the
 * address: the hardware swizzles the sum.
 */

/* swizzle: 0, 32, 64 or 128 bytes. Offsets in bytes, multiples of 16. */
DEVICE u64 shared_descriptor(u32 address, u32 leading, u32 stride, int swizzle) {
    const u64 mode = swizzle == 128 ? 1u : swizzle == 64 ? 2u : swizzle == 32 ? 3u : 0u;
    return (u64)((address & 0x3ffffu) >> 4) | (u64)(leading >> 4) << 16 | (u64)(stride >> 4) << 32 |
           mode << 62;
}

/* The descriptor of the same matrix `bytes` further on. */
DEVICE u64 descriptor_advance(u64 descriptor, u32 bytes) {
    return descriptor + (bytes >> 4);
}

#line 2 "templates/common/softmax.cuh"
/*
 * Numbers of a streaming softmax (Milakov and Gimelshein, arXiv 1805.02867) in powers of two, whose
 * exponentials are one instruction. P is relative to a maximum, which begins as the true one of the
 * first scores, so that the largest P is 1 and loses nothing when it is rounded.
 */

#define LOG2_E 1.4426950408889634f
#define LN_2 0.6931471805599453f
#define MINUS_INFINITY (-__int_as_float(0x7f800000))

/* The maximum may lag behind the true one by so many powers of two before sums and outputs are
 * rescaled: P then stays below 2^8, and most blocks rescale nothing. */
#define RESCALE_THRESHOLD 8.0f

#line 2 "templates/ptx/ldmatrix.cuh"

/*
 * Four 8 x 8 matrices of 16-bit values; lane i gives the address of row i % 8 of matrix i / 8, and
 * receives row lane / 4, columns 2 * (lane % 4) and the next of each (PTX ISA, "Warp-level matrix
 * load instruction: ldmatrix"). `address` is a 32-bit shared-memory address, 16-byte aligned.
 */
DEVICE void ldmatrix_x4(u32 *r, u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

/* The same, each matrix transposed on the way. */
DEVICE void ldmatrix_x4_trans(u32 *r, u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

#line 2 "templates/ptx/math.cuh"

/* 2^x; 0 for -inf, +inf for +inf (PTX ISA, "ex2.approx.ftz.f32": within 2 ulp). */
DEVICE float exp2_approximate(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* log2(x); -inf for 0 (PTX ISA, "lg2.approx.f32": absolute error 2^-22 near 1). */
DEVICE float log2_approximate(float x) {
    float y;
    asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* The smaller; NaN when one of them is (PTX ISA, "min", .NaN). */
DEVICE float minimum_nan(float x, float y) {
    float z;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
    return z;
}

/* Two floats rounded to the nearest bf16, `low` in the lower half (PTX ISA, "cvt"). */
DEVICE u32 pack_bf16x2(float low, float high) {
    u32 packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

#line 2 "templates/ptx/proxy.cuh"

/* Orders this thread's plain accesses to shared memory, and those it knows of, before what the
 * async proxy (wgmma, bulk and tensor copies) does next on its behalf, and the other way round
 * (PTX ISA, "membar / fence", fence.proxy.async). */
DEVICE void fence_proxy_async(void) {
    asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
}

#line 2 "templates/ptx/stmatrix.cuh"

/*
 * Stores four 8 x 8 matrices of 16-bit values; lane i gives the address of row i % 8 of matrix
 * i / 8, and holds row lane / 4, columns 2 * (lane % 4) and the next of each (PTX ISA, "Warp-level
 * matrix store instruction: stmatrix"). `address` is a 32-bit shared-memory address, 16-byte
 * aligned.
 */
DEVICE void stmatrix_x4(u32 address, const u32 *r) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 :
                 : "r"(address), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}

/* The same, each matrix transposed on the way. */
DEVICE void stmatrix_x4_trans(u32 address, const u32 *r) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                 :
                 : "r"(address), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}

/* Two matrices, each transposed on the way: the addresses of lanes 0 to 15 count. */
DEVICE void stmatrix_x2_trans(u32 address, const u32 *r) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};"
                 :
                 : "r"(address), "r"(r[0]), "r"(r[1])
                 : "memory");
}

#line 2 "templates/ptx/wgmma.cuh"
/*
 * Matrix products by a warpgroup (four warps, all of them together), which run asynchronously; the
 * products themselves: ptx/wgmma_ss.cuh and the like (PTX ISA, "Asynchronous Warpgroup Level Matrix
 * Multiply-Accumulate Instructions").
 */

/* Before the first product, and whenever registers that products use were touched by other
 * instructions (accumulators of the same shape in successive products apart) (PTX ISA,
 * "wgmma.fence"). It does not order shared memory: fence_proxy_async does. */
DEVICE void wgmma_fence(void) {
    asm volatile("wgmma.fence.sync.aligned;" : : : "memory");
}

/* Closes the warpgroup's group of products (PTX ISA, "wgmma.commit_group"). */
DEVICE void wgmma_commit(void) {
    asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
}

/* Waits until at most so many of the groups are under way: until then accumulators and A's
 * registers are not touched and operands in shared memory not written (PTX ISA,
 * "wgmma.wait_group"). */
#line 24 "templates/ptx/wgmma.cuh"
DEVICE void wgmma_wait_0(void) {
    asm volatile("wgmma.wait_group.sync.aligned 0;" : : : "memory");
}

#line 24 "templates/ptx/wgmma.cuh"
DEVICE void wgmma_wait_1(void) {
    asm volatile("wgmma.wait_group.sync.aligned 1;" : : : "memory");
}

#line 24 "templates/ptx/wgmma.cuh"
DEVICE void wgmma_wait_2(void) {
    asm volatile("wgmma.wait_group.sync.aligned 2;" : : : "memory");
}

#line 24 "templates/ptx/wgmma.cuh"
DEVICE void wgmma_wait_3(void) {
    asm volatile("wgmma.wait_group.sync.aligned 3;" : : : "memory");
}

#line 4 "templates/ptx/wgmma_rs.cuh"

/* As wgmma_ss_n64, a in registers: row and depth of the warp's 16 x 16 as in mma_m16n8k16_bf16
 * (PTX ISA, "wgmma.mma_async"). */
// clang-format off
DEVICE void wgmma_rs_n64_t00(float *d, const u32 *a, u64 b, int accumulate) {
    asm volatile("{.reg .pred p;\n\t"
                 "setp.ne.s32 p, %37, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
#line 13 "templates/ptx/wgmma_rs.cuh"
                 "%0, %1, %2, %3, "
#line 13 "templates/ptx/wgmma_rs.cuh"
                 "%4, %5, %6, %7, "
#line 13 "templates/ptx/wgmma_rs.cuh"
                 "%8, %9, %10, %11, "
#line 13 "templates/ptx/wgmma_rs.cuh"
                 "%12, %13, %14, %15, "
#line 13 "templates/ptx/wgmma_rs.cuh"
                 "%16, %17, %18, %19, "
#line 13 "templates/ptx/wgmma_rs.cuh"
                 "%20, %21, %22, %23, "
#line 13 "templates/ptx/wgmma_rs.cuh"
                 "%24, %25, %26, %27, "
#line 15 "templates/ptx/wgmma_rs.cuh"
                 "%28, %29, %30, %31}, "
                 "{%32, %33, %34, %35}, "
                 "%36, p, 1, 1, 0;}"
                 :
#line 20 "templates/ptx/wgmma_rs.cuh"
                 "+f"(d[0]), "+f"(d[1]),
                 "+f"(d[2]), "+f"(d[3]),
#line 20 "templates/ptx/wgmma_rs.cuh"
                 "+f"(d[4]), "+f"(d[5]),
                 "+f"(d[6]), "+f"(d[7]),
#line 20 "templates/ptx/wgmma_rs.cuh"
                 "+f"(d[8]), "+f"(d[9]),
                 "+f"(d[10]), "+f"(d[11]),
#line 20 "templates/ptx/wgmma_rs.cuh"
                 "+f"(d[12]), "+f"(d[13]),
                 "+f"(d[14]), "+f"(d[15]),
#line 20 "templates/ptx/wgmma_rs.cuh"
                 "+f"(d[16]), "+f"(d[17]),
                 "+f"(d[18]), "+f"(d[19]),
#line 20 "templates/ptx/wgmma_rs.cuh"
                 "+f"(d[20]), "+f"(d[21]),
                 "+f"(d[22]), "+f"(d[23]),
#line 20 "templates/ptx/wgmma_rs.cuh"
                 "+f"(d[24]), "+f"(d[25]),
                 "+f"(d[26]), "+f"(d[27]),
#line 23 "templates/ptx/wgmma_rs.cuh"
                 "+f"(d[28]), "+f"(d[29]),
                 "+f"(d[30]), "+f"(d[31])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}
// clang-format on

#line 4 "templates/ptx/wgmma_ss.cuh"

/*
 * d = a * b, or d += a * b when `accumulate`: 64 x 64, depth 16, bf16 in, fp32 accumulation, by
 * one warpgroup (PTX ISA, "wgmma.mma_async"). a and b: common/descriptor.cuh; ta, tb: the operand
 * is transposed. d[i] of lane 4 * g + t, warp w, is at row 16 * w + g, in every second pair 8 more,
 * and at column 8 * (i / 4) + 2 * t + i % 2.
 */
// clang-format off
DEVICE void wgmma_ss_n64_t00(float *d, u64 a, u64 b, int accumulate) {
    asm volatile("{.reg .pred p;\n\t"
                 "setp.ne.s32 p, %34, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
#line 17 "templates/ptx/wgmma_ss.cuh"
                 "%0, %1, %2, %3, "
#line 17 "templates/ptx/wgmma_ss.cuh"
                 "%4, %5, %6, %7, "
#line 17 "templates/ptx/wgmma_ss.cuh"
                 "%8, %9, %10, %11, "
#line 17 "templates/ptx/wgmma_ss.cuh"
                 "%12, %13, %14, %15, "
#line 17 "templates/ptx/wgmma_ss.cuh"
                 "%16, %17, %18, %19, "
#line 17 "templates/ptx/wgmma_ss.cuh"
                 "%20, %21, %22, %23, "
#line 17 "templates/ptx/wgmma_ss.cuh"
                 "%24, %25, %26, %27, "
#line 19 "templates/ptx/wgmma_ss.cuh"
                 "%28, %29, %30, %31}, "
                 "%32, %33, p, 1, 1, 0, 0;}"
                 :
#line 23 "templates/ptx/wgmma_ss.cuh"
                 "+f"(d[0]), "+f"(d[1]),
                 "+f"(d[2]), "+f"(d[3]),
#line 23 "templates/ptx/wgmma_ss.cuh"
                 "+f"(d[4]), "+f"(d[5]),
                 "+f"(d[6]), "+f"(d[7]),
#line 23 "templates/ptx/wgmma_ss.cuh"
                 "+f"(d[8]), "+f"(d[9]),
                 "+f"(d[10]), "+f"(d[11]),
#line 23 "templates/ptx/wgmma_ss.cuh"
                 "+f"(d[12]), "+f"(d[13]),
                 "+f"(d[14]), "+f"(d[15]),
#line 23 "templates/ptx/wgmma_ss.cuh"
                 "+f"(d[16]), "+f"(d[17]),
                 "+f"(d[18]), "+f"(d[19]),
#line 23 "templates/ptx/wgmma_ss.cuh"
                 "+f"(d[20]), "+f"(d[21]),
                 "+f"(d[22]), "+f"(d[23]),
#line 23 "templates/ptx/wgmma_ss.cuh"
                 "+f"(d[24]), "+f"(d[25]),
                 "+f"(d[26]), "+f"(d[27]),
#line 26 "templates/ptx/wgmma_ss.cuh"
                 "+f"(d[28]), "+f"(d[29]),
                 "+f"(d[30]), "+f"(d[31])
                 : "l"(a), "l"(b), "r"(accumulate));
}
// clang-format on

#line 19 "templates/sparse_attn_fwd.sm90_scores.cuh"
/* The scores' warpgroup of sparse_attn_fwd.sm90.cu: it takes Q, computes S = Q K^T and its softmax,
 * and hands P, what O is multiplied by and the denominators to the output's warpgroups. */

/* The longest step of a maximum: its factor is the least that a byte of exponent expresses; what a
 * still smaller one would leave of the old sum makes no difference to the new one. */
#define LONGEST_STEP 126.0f
/* Added to a number from 0 to 2^22 and taken away again, it leaves the nearest integer: two
 * additions, where ceilf is an instruction that the block's critical path would wait for. */
#define ROUND_TO_INTEGER 12582912.0f

/* This thread's row of Q: its 16 bytes in a tile, for ldmatrix, and in a slice, for stmatrix. */
DEVICE u32 query_in_tile(void) {
    const u32 thread = thread_number(), lane = thread % 32, row = thread / 32 * 16 + lane % 16;
    return row * TILE_PITCH + ((lane / 16) ^ (lane % 8)) * 16;
}

DEVICE u32 query_in_slice(void) {
    const u32 thread = thread_number(), lane = thread % 32, row = thread / 32 * 16 + lane % 16;
    return row * STEP_BYTES + ((lane / 16) ^ (row / 4 % 2)) * 16;
}

/*
 * Takes the latent columns of Q out of their stage: the first REGISTER_STEPS k-steps into
 * registers, as A fragments, the others into QUERY, which the warpgroup has read for the last time.
 * All loads of those come before their stores, which would else each wait for its own.
 */
DEVICE void take_query(u32 *query, int stage) {
    const u32 tiles = shared_address((u32)(LATENT_OFFSET + stage * STAGE_BYTES) + query_in_tile());
    const u32 slices = shared_address(QUERY_OFFSET + query_in_slice());
    u32 moved[LATENT_SLICES * 4];
#pragma unroll
    for (int k = 0; k < LATENT_SLICES; ++k) {
        const int step = REGISTER_STEPS + k;
        ldmatrix_x4(&moved[k * 4],
                    (tiles + (u32)(step / 4 * TILE_BYTES)) ^ (u32)(step % 4 * STEP_BYTES));
    }
#pragma unroll
    for (int k = 0; k < LATENT_SLICES; ++k) {
        stmatrix_x4(slices + (u32)(k * SLICE_BYTES), &moved[k * 4]);
    }
#pragma unroll
    for (int k = 0; k < REGISTER_STEPS; ++k) {
        ldmatrix_x4(&query[k * 4], (tiles + (u32)(k / 4 * TILE_BYTES)) ^ (u32)(k % 4 * STEP_BYTES));
    }
}

/* The rope columns of Q, into QUERY. */
DEVICE void take_query_rope(void) {
    const u32 tile = shared_address(ROPE_OFFSET + query_in_tile());
    const u32 slices =
        shared_address(QUERY_OFFSET + LATENT_SLICES * SLICE_BYTES + query_in_slice());
    u32 moved[4 * 4];
#pragma unroll
    for (int k = 0; k < ROPE_STEPS; ++k) {
        ldmatrix_x4(&moved[k * 4], tile ^ (u32)(k * STEP_BYTES));
    }
#pragma unroll
    for (int k = 0; k < ROPE_STEPS; ++k) {
        stmatrix_x4(slices + (u32)(k * SLICE_BYTES), &moved[k * 4]);
    }
}

/* Begins a query: waits for its Q, takes it and gives its stage back. */
DEVICE void begin_query(u32 *query, struct ring_place *stage, int *rope_parity) {
    mbarrier_wait(barrier_at(FULL + stage->index), stage->parity);
    take_query(query, stage->index);
    arrive_warp(barrier_at(EMPTY_LOW + stage->index), 2);
    arrive_warp(barrier_at(EMPTY_HIGH + stage->index), 2);
    if (ROPE_STEPS > 0) {
        mbarrier_wait(barrier_at(ROPE_FULL), *rope_parity);
        *rope_parity ^= 1;
        take_query_rope();
        arrive_warp(barrier_at(ROPE_FREE), 1);
    }
    fence_proxy_async();
    barrier_sync(SCORES_BARRIER, WARPGROUP);
    ring_advance(stage, STAGES);
}

/* The descriptor of k-step `step` in the latent tiles that begin at `keys`. */
DEVICE u64 latent_step(u64 keys, int step) {
    return descriptor_advance(keys, (u32)(step / 4 * TILE_BYTES + step % 4 * STEP_BYTES));
}

/* Issues S = Q K^T for the block in a stage, in two groups; the second has TURN_STEPS k-steps. */
DEVICE void issue_scores(float *s, const u32 *query, int stage, int *rope_parity) {
    const u64 keys = shared_descriptor(shared_address((u32)(LATENT_OFFSET + stage * STAGE_BYTES)),
                                       16, ATOM_BYTES, 128);
    const u64 slices =
        shared_descriptor(shared_address(QUERY_OFFSET), 16, 8 * STEP_BYTES, STEP_BYTES);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < REGISTER_STEPS - TURN_STEPS; ++k) {
        wgmma_rs_n64_t00(s, &query[k * 4], latent_step(keys, k), k > 0);
    }
#pragma unroll
    for (int k = REGISTER_STEPS; k < LATENT_STEPS; ++k) {
        wgmma_ss_n64_t00(s, descriptor_advance(slices, (u32)((k - REGISTER_STEPS) * SLICE_BYTES)),
                         latent_step(keys, k), 1);
    }
    if (ROPE_STEPS > 0) {
        mbarrier_wait(barrier_at(ROPE_FULL), *rope_parity);
        *rope_parity ^= 1;
        fence_proxy_async();
        const u64 rope = shared_descriptor(shared_address(ROPE_OFFSET), 16, ATOM_BYTES, 128);
#pragma unroll
        for (int k = 0; k < ROPE_STEPS; ++k) {
            wgmma_ss_n64_t00(s,
                             descriptor_advance(
                                 slices, (u32)((k + LATENT_STEPS - REGISTER_STEPS) * SLICE_BYTES)),
                             descriptor_advance(rope, (u32)(k * STEP_BYTES)), 1);
        }
    }
    wgmma_commit();
#pragma unroll
    for (int k = REGISTER_STEPS - TURN_STEPS; k < REGISTER_STEPS; ++k) {
        wgmma_rs_n64_t00(s, &query[k * 4], latent_step(keys, k), 1);
    }
    wgmma_commit();
}

/* What the softmax of this thread's two heads has come to; in powers of two. */
struct softmax_rows {
    float maximum[2]; /* P is relative to it; or -inf */
    float highest[2]; /* the true maximum */
    float sum[2];     /* of this thread's exponentials */
};

/* Scores of keys past `count` become -inf. */
DEVICE void mask_scores(float *s, int count) {
    const int column = (int)(threadIdx.x % 4 * 2);
#pragma unroll
    for (int i = 0; i < SCORE_VALUES; ++i) {
        if (i / 4 * 8 + column + i % 2 >= count) {
            s[i] = MINUS_INFINITY;
        }
    }
}

/* The greatest of each of the thread's two heads' scores. */
DEVICE void row_maxima(const float *s, float *highest) {
    highest[0] = fmaxf(s[0], s[1]);
    highest[1] = fmaxf(s[2], s[3]);
#pragma unroll
    for (int i = 1; i < SCORE_VALUES / 4; ++i) {
        highest[0] = fmaxf(highest[0], fmaxf(s[4 * i], s[4 * i + 1]));
        highest[1] = fmaxf(highest[1], fmaxf(s[4 * i + 2], s[4 * i + 3]));
    }
#pragma unroll
    for (int mask = 1; mask <= 2; mask *= 2) {
        const float other[2] = {__shfl_xor_sync((u32)ALL_LANES, highest[0], mask),
                                __shfl_xor_sync((u32)ALL_LANES, highest[1], mask)};
        highest[0] = fmaxf(highest[0], other[0]);
        highest[1] = fmaxf(highest[1], other[1]);
    }
}

/* Scores -> P in place, sums, and what O's rows are multiplied by. (A row's first exponential is
 * what meets the factor: the sum by itself would hold the warp until that one is there.) */
DEVICE void softmax_block(float *s, struct softmax_rows *rows, float *factors, float scale_log2) {
    float highest[2], offset[2];
    row_maxima(s, highest);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        highest[r] *= scale_log2;
        rows->highest[r] = fmaxf(rows->highest[r], highest[r]);
        factors[r] = 1.0f;
        if (highest[r] > rows->maximum[r] + RESCALE_THRESHOLD) {
            const float rise = fminf(highest[r] - rows->maximum[r], LONGEST_STEP);
            const float step = rise + ROUND_TO_INTEGER - ROUND_TO_INTEGER;
            rows->maximum[r] = rise < LONGEST_STEP ? rows->maximum[r] + step : highest[r];
            factors[r] = exp2_approximate(-step);
        }
        offset[r] = rows->maximum[r] == MINUS_INFINITY ? 0.0f : -rows->maximum[r];
    }
#pragma unroll
    for (int i = 0; i < SCORE_VALUES; ++i) {
        s[i] = exp2_approximate(fmaf(s[i], scale_log2, offset[i / 2 % 2]));
        float *const sum = &rows->sum[i / 2 % 2];
        *sum = i < 4 && i % 2 == 0 ? fmaf(*sum, factors[i / 2], s[i]) : *sum + s[i];
    }
}

/* P as bf16, two to a word. */
DEVICE void pack_probabilities(u32 *p, const float *s) {
#pragma unroll
    for (int i = 0; i < SCORE_VALUES / 2; ++i) {
        p[i] = pack_bf16x2(s[2 * i], s[2 * i + 1]);
    }
}

/* `parity`, known no sooner than all of P: a wait would else begin, and hold the warp, before the
 * exponentials are computed. (No value of P has its sign bit set.) */
DEVICE int parity_after(int parity, const u32 *p) {
    u32 all = 0;
#pragma unroll
    for (int i = 0; i < SCORE_VALUES / 2; ++i) {
        all |= p[i];
    }
    return parity | (int)(all >> 31);
}

/* P and the exponents of the factors into a buffer. */
DEVICE void store_probabilities(const u32 *p, const float *factors, int buffer) {
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const u32 base =
        shared_address((u32)(PROBABILITIES_OFFSET + buffer * TILE_BYTES) +
                       (warp * 16 + lane % 16) * TILE_PITCH + ((lane / 16) ^ (lane % 8)) * 16);
#pragma unroll
    for (int i = 0; i < SCORE_VALUES / 8; ++i) {
        stmatrix_x4(base ^ (u32)(i * STEP_BYTES), &p[4 * i]);
    }
    if (lane % 4 == 0) {
        unsigned char *const exponents =
            arena + EXPONENTS_OFFSET + buffer * BLOCK_HEADS + warp * 16 + lane / 4;
        exponents[0] = (unsigned char)(__float_as_int(factors[0]) >> 23);
        exponents[8] = (unsigned char)(__float_as_int(factors[1]) >> 23);
    }
}

/* After a query's last block: sums over the quad's threads, and the denominators for the output. */
DEVICE void store_denominators(const struct sparse_attn_fwd_params *params,
                               struct softmax_rows *rows, const struct work *work, int buffer) {
    const u32 thread = thread_number(), warp = thread / 32, lane = thread % 32;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int row = (int)(warp * 16 + lane / 4) + 8 * r;
        rows->sum[r] += __shfl_xor_sync((u32)ALL_LANES, rows->sum[r], 1);
        rows->sum[r] += __shfl_xor_sync((u32)ALL_LANES, rows->sum[r], 2);
        float denominator = rows->sum[r];
        if (HAS_SINK) {
            const int head = minimum(work->head_block * BLOCK_HEADS + row, LAST_HEAD);
            denominator += exp2_approximate(params->sink[head] * LOG2_E - rows->maximum[r]);
        }
        if (lane % 4 == 0) {
            ((float *)(arena + DENOMINATORS_OFFSET))[buffer * BLOCK_HEADS + row] =
                rows->sum[r] == 0.0f ? 0.0f : denominator;
        }
    }
}

/* Then lse and max_logits. A sum is 0 without valid slots, else about 1 at least, or NaN, which
 * stays visible. */
DEVICE void store_statistics(const struct sparse_attn_fwd_params *params,
                             const struct softmax_rows *rows, const struct work *work) {
    const u32 thread = thread_number(), warp = thread / 32, lane = thread % 32;
    const int batch = work_batch(&params->work, work), token = work_token(&params->work, work);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int head = work->head_block * BLOCK_HEADS + (int)(warp * 16 + lane / 4) + 8 * r;
        if (lane % 4 == 0 && head < HEADS) {
            params->lse[batch * params->lse_batch_stride + token * params->lse_token_stride +
                        head * params->lse_head_stride] =
                rows->sum[r] == 0.0f ? MINUS_INFINITY
                                     : (rows->maximum[r] + log2_approximate(rows->sum[r])) * LN_2;
            if (params->max_logits) {
                params->max_logits[batch * params->max_logits_batch_stride +
                                   token * params->max_logits_token_stride +
                                   head * params->max_logits_head_stride] = rows->highest[r] * LN_2;
            }
        }
    }
}

/* The scores' warpgroup. A query's statistics are written when the next one's Q is taken, for which
 * the gather waits. */
DEVICE void run_scores(const struct sparse_attn_fwd_params *params) {
    registers_increase(SCORES_REGISTERS);
    const float scale_log2 = params->scale * LOG2_E;
    struct ring_place stage = {0, 0}, buffer = {0, 0};
    int rope_parity = 0, last_buffer = 0;
    struct work work = first_work(&params->work);
    u32 query[QUERY_FRAGMENTS];
    if (work.query >= 0) {
        begin_query(query, &stage, &rope_parity);
    }
    while (work.query >= 0) {
        struct softmax_rows rows = {
            {MINUS_INFINITY, MINUS_INFINITY}, {MINUS_INFINITY, MINUS_INFINITY}, {0.0f, 0.0f}};
        int word;
        do {
            float s[SCORE_VALUES], factors[2];
            u32 p[SCORE_VALUES / 2];
            mbarrier_wait(barrier_at(FULL + stage.index), stage.parity);
            word = *block_word(stage.index);
            fence_proxy_async();
            issue_scores(s, query, stage.index, &rope_parity);
            wgmma_wait_1();
            if (!(word & FIRST_BLOCK)) {
                arrive_warp(barrier_at(TURN + last_buffer), 1);
            }
            wgmma_wait_0();
            if (ROPE_STEPS > 0) {
                arrive_warp(barrier_at(ROPE_FREE), 1);
            }
            if (word & LAST_BLOCK) {
                barrier_sync(SCORES_BARRIER, WARPGROUP); /* QUERY has been read */
            }
            if ((word & COUNT_MASK) < BLOCK_KEYS) {
                mask_scores(s, word & COUNT_MASK);
            }
            softmax_block(s, &rows, factors, scale_log2);
            pack_probabilities(p, s);
            mbarrier_wait(barrier_at(P_FREE + buffer.index), parity_after(buffer.parity ^ 1, p));
            store_probabilities(p, factors, buffer.index);
            if (word & LAST_BLOCK) {
                store_denominators(params, &rows, &work, buffer.index);
            }
            /* The proxy fence is the output's: here it would wait for Q to come. */
            arrive_warp(barrier_at(P_FULL + buffer.index), 1);
            if (word & LAST_BLOCK) {
                arrive_warp(barrier_at(TURN + buffer.index), 1);
            }
            last_buffer = buffer.index;
            ring_advance(&stage, STAGES);
            ring_advance(&buffer, P_BUFFERS);
        } while (!(word & LAST_BLOCK));
        const struct work next = next_work(&params->work, &work);
        if (next.query >= 0) {
            begin_query(query, &stage, &rope_parity);
        }
        store_statistics(params, &rows, &work);
        work = next;
    }
}

#line 2 "templates/common/quad.cuh"

/* Turns a 4 x 4 matrix of words over its diagonal: each of a quad's threads (four neighbours in a
 * warp) holds a row before and a column after. */
DEVICE void transpose_quad(u32 *x) {
    const bool odd = threadIdx.x & 1, upper = threadIdx.x & 2;
    const u32 a = __shfl_xor_sync(0xffffffffu, odd ? x[0] : x[1], 1);
    const u32 b = __shfl_xor_sync(0xffffffffu, odd ? x[2] : x[3], 1);
    x[0] = odd ? a : x[0];
    x[1] = odd ? x[1] : a;
    x[2] = odd ? b : x[2];
    x[3] = odd ? x[3] : b;
    const u32 c = __shfl_xor_sync(0xffffffffu, upper ? x[0] : x[2], 2);
    const u32 d = __shfl_xor_sync(0xffffffffu, upper ? x[1] : x[3], 2);
    x[0] = upper ? c : x[0];
    x[1] = upper ? d : x[1];
    x[2] = upper ? x[2] : c;
    x[3] = upper ? x[3] : d;
}

#line 4 "templates/ptx/wgmma_ss.cuh"

/*
 * d = a * b, or d += a * b when `accumulate`: 64 x 128, depth 16, bf16 in, fp32 accumulation, by
 * one warpgroup (PTX ISA, "wgmma.mma_async"). a and b: common/descriptor.cuh; ta, tb: the operand
 * is transposed. d[i] of lane 4 * g + t, warp w, is at row 16 * w + g, in every second pair 8 more,
 * and at column 8 * (i / 4) + 2 * t + i % 2.
 */
// clang-format off
DEVICE void wgmma_ss_n128_t01(float *d, u64 a, u64 b, int accumulate) {
    asm volatile("{.reg .pred p;\n\t"
                 "setp.ne.s32 p, %66, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
#line 17 "templates/ptx/wgmma_ss.cuh"
                 "%0, %1, %2, %3, "
#line 17 "templates/ptx/wgmma_ss.cuh"
                 "%4, %5, %6, %7, "
#line 17 "templates/ptx/wgmma_ss.cuh"
                 "%8, %9, %10, %11, "
#line 17 "templates/ptx/wgmma_ss.cuh"
                 "%12, %13, %14, %15, "
#line 17 "templates/ptx/wgmma_ss.cuh"
                 "%16, %17, %18, %19, "
#line 17 "templates/ptx/wgmma_ss.cuh"
                 "%20, %21, %22, %23, "
#line 17 "templates/ptx/wgmma_ss.cuh"
                 "%24, %25, %26, %27, "
#line 17 "templates/ptx/wgmma_ss.cuh"
                 "%28, %29, %30, %31, "
#line 17 "templates/ptx/wgmma_ss.cuh"
                 "%32, %33, %34, %35, "
#line 17 "templates/ptx/wgmma_ss.cuh"
                 "%36, %37, %38, %39, "
#line 17 "templates/ptx/wgmma_ss.cuh"
                 "%40, %41, %42, %43, "
#line 17 "templates/ptx/wgmma_ss.cuh"
                 "%44, %45, %46, %47, "
#line 17 "templates/ptx/wgmma_ss.cuh"
                 "%48, %49, %50, %51, "
#line 17 "templates/ptx/wgmma_ss.cuh"
                 "%52, %53, %54, %55, "
#line 17 "templates/ptx/wgmma_ss.cuh"
                 "%56, %57, %58, %59, "
#line 19 "templates/ptx/wgmma_ss.cuh"
                 "%60, %61, %62, %63}, "
                 "%64, %65, p, 1, 1, 0, 1;}"
                 :
#line 23 "templates/ptx/wgmma_ss.cuh"
                 "+f"(d[0]), "+f"(d[1]),
                 "+f"(d[2]), "+f"(d[3]),
#line 23 "templates/ptx/wgmma_ss.cuh"
                 "+f"(d[4]), "+f"(d[5]),
                 "+f"(d[6]), "+f"(d[7]),
#line 23 "templates/ptx/wgmma_ss.cuh"
                 "+f"(d[8]), "+f"(d[9]),
                 "+f"(d[10]), "+f"(d[11]),
#line 23 "templates/ptx/wgmma_ss.cuh"
                 "+f"(d[12]), "+f"(d[13]),
                 "+f"(d[14]), "+f"(d[15]),
#line 23 "templates/ptx/wgmma_ss.cuh"
                 "+f"(d[16]), "+f"(d[17]),
                 "+f"(d[18]), "+f"(d[19]),
#line 23 "templates/ptx/wgmma_ss.cuh"
                 "+f"(d[20]), "+f"(d[21]),
                 "+f"(d[22]), "+f"(d[23]),
#line 23 "templates/ptx/wgmma_ss.cuh"
                 "+f"(d[24]), "+f"(d[25]),
                 "+f"(d[26]), "+f"(d[27]),
#line 23 "templates/ptx/wgmma_ss.cuh"
                 "+f"(d[28]), "+f"(d[29]),
                 "+f"(d[30]), "+f"(d[31]),
#line 23 "templates/ptx/wgmma_ss.cuh"
                 "+f"(d[32]), "+f"(d[33]),
                 "+f"(d[34]), "+f"(d[35]),
#line 23 "templates/ptx/wgmma_ss.cuh"
                 "+f"(d[36]), "+f"(d[37]),
                 "+f"(d[38]), "+f"(d[39]),
#line 23 "templates/ptx/wgmma_ss.cuh"
                 "+f"(d[40]), "+f"(d[41]),
                 "+f"(d[42]), "+f"(d[43]),
#line 23 "templates/ptx/wgmma_ss.cuh"
                 "+f"(d[44]), "+f"(d[45]),
                 "+f"(d[46]), "+f"(d[47]),
#line 23 "templates/ptx/wgmma_ss.cuh"
                 "+f"(d[48]), "+f"(d[49]),
                 "+f"(d[50]), "+f"(d[51]),
#line 23 "templates/ptx/wgmma_ss.cuh"
                 "+f"(d[52]), "+f"(d[53]),
                 "+f"(d[54]), "+f"(d[55]),
#line 23 "templates/ptx/wgmma_ss.cuh"
                 "+f"(d[56]), "+f"(d[57]),
                 "+f"(d[58]), "+f"(d[59]),
#line 26 "templates/ptx/wgmma_ss.cuh"
                 "+f"(d[60]), "+f"(d[61]),
                 "+f"(d[62]), "+f"(d[63])
                 : "l"(a), "l"(b), "r"(accumulate));
}
// clang-format on

#line 15 "templates/sparse_attn_fwd.sm90_output.cuh"
/* The output's two warpgroups of sparse_attn_fwd.sm90.cu: each has half of O's columns in
 * registers, adds P V to them and writes them over the denominators. */

/* O's rows times the powers of two that the softmax asks for, unless all of the warp's are 1. */
DEVICE void rescale_output(float *o, int buffer) {
    enum { ONE = 127 }; /* the exponent of 1 */
    const int warp = (int)(threadIdx.x % WARPGROUP / 32), lane = (int)(threadIdx.x % 32);
    const unsigned char *const exponents =
        arena + EXPONENTS_OFFSET + buffer * BLOCK_HEADS + warp * 16 + lane / 4;
    const int upper = exponents[0], lower = exponents[8];
    if (__any_sync((u32)ALL_LANES, (upper & lower) != ONE)) {
        const float factors[2] = {__int_as_float(upper << 23), __int_as_float(lower << 23)};
#pragma unroll
        for (int i = 0; i < OUTPUT_VALUES; ++i) {
            o[i] *= factors[i / 2 % 2];
        }
    }
}

/* Issues o += P V, or o = P V for a query's first block, in two groups of 32 keys. `column`: the
 * warpgroup's first. */
DEVICE void issue_output(float *o, int stage, int buffer, int half, bool first) {
    const u64 p = shared_descriptor(
        shared_address((u32)(PROBABILITIES_OFFSET + buffer * TILE_BYTES)), 16, ATOM_BYTES, 128);
    const u64 v = shared_descriptor(shared_address((u32)(LATENT_OFFSET + stage * STAGE_BYTES +
                                                         half * OUTPUT_TILES * TILE_BYTES)),
                                    TILE_BYTES, ATOM_BYTES, 128);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        const u64 a = descriptor_advance(p, (u32)(k * STEP_BYTES));
        const u64 b = descriptor_advance(v, (u32)(k * KEY_STEP_BYTES));
        wgmma_ss_n128_t01(o, a, b, k > 0 || !first);
        wgmma_ss_n128_t01(&o[OUTPUT_HALF], a, descriptor_advance(b, OUTPUT_TILES / 2 * TILE_BYTES),
                          k > 0 || !first);
        if (k % 2 == 1) {
            wgmma_commit();
        }
    }
}

/* O over its denominators to global memory, 16 bytes a thread at a time; zeros over 0. */
DEVICE void store_output(const struct sparse_attn_fwd_params *params, const float *o,
                         const float *denominators, const struct work *work, int half) {
    const int warp = (int)(threadIdx.x % WARPGROUP / 32), lane = (int)(threadIdx.x % 32);
    const int batch = work_batch(&params->work, work), token = work_token(&params->work, work);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int head = work->head_block * BLOCK_HEADS + warp * 16 + lane / 4 + 8 * r;
        const float inverse = denominators[r] == 0.0f ? 0.0f : 1.0f / denominators[r];
        char *const out = (char *)params->out +
                          2 * (batch * params->out_batch_stride + token * params->out_token_stride +
                               head * params->out_head_stride) +
                          half * OUTPUT_COLUMNS * 2 + lane % 4 * 16;
#pragma unroll
        for (int i = 0; i < OUTPUT_VALUES / 16; ++i) {
            u32 x[4];
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                const float *const pair = &o[i * 16 + k * 4 + 2 * r];
                x[k] = pack_bf16x2(pair[0] * inverse, pair[1] * inverse);
            }
            transpose_quad(x);
            if (head < HEADS) {
                store_streaming_16(out + i * QUAD_BYTES, x);
            }
        }
    }
}

/* One of the two output warpgroups: columns half * DV / 2 and on. */
DEVICE void run_output(const struct sparse_attn_fwd_params *params, int half) {
    registers_increase(OUTPUT_REGISTERS);
    const int row = (int)(threadIdx.x % WARPGROUP / 32 * 16 + threadIdx.x % 32 / 4);
    struct ring_place stage = {0, 0}, buffer = {0, 0};
    float o[OUTPUT_VALUES];
    for (struct work work = first_work(&params->work); work.query >= 0;
         work = next_work(&params->work, &work)) {
        float denominators[2];
        int word;
        ring_advance(&stage, STAGES); /* Q's */
        do {
            mbarrier_wait(barrier_at(P_FULL + buffer.index), buffer.parity);
            word = *block_word(stage.index);
            if (!(word & FIRST_BLOCK)) {
                rescale_output(o, buffer.index);
            }
            fence_proxy_async();
            mbarrier_wait(barrier_at(TURN + buffer.index), buffer.parity);
            issue_output(o, stage.index, buffer.index, half, word & FIRST_BLOCK);
            wgmma_wait_1();
            arrive_warp(barrier_at(EMPTY_LOW + stage.index), 1);
            wgmma_wait_0();
            if (word & LAST_BLOCK) {
                const float *const values =
                    (const float *)(arena + DENOMINATORS_OFFSET) + buffer.index * BLOCK_HEADS + row;
                denominators[0] = values[0];
                denominators[1] = values[8];
            }
            arrive_warp(barrier_at(P_FREE + buffer.index), 1);
            arrive_warp(barrier_at(EMPTY_HIGH + stage.index), 1);
            ring_advance(&stage, STAGES);
            ring_advance(&buffer, P_BUFFERS);
        } while (!(word & LAST_BLOCK));
        store_output(params, o, denominators, &work, half);
    }
}

#line 8 "templates/sparse_attn_fwd.sm90.cu"
/*
 * Sparse attention forward with wgmma, 64 heads at a time: heads are the matrices' rows.
 * Mathematics and shapes: include/smelt/sparse_attn.h.
 *
 * Grid: one block a multiprocessor, each taking every gridDim.x-th item (a query and 64 of its
 * heads; common/work.cuh), so that the halves of a query's 128 heads run side by side. Four
 * warpgroups, each with its role; none waits for another but through the barriers below:
 *
 *   scores   S[64, 64] = Q K^T and its softmax; most of Q stays in registers, the rest in QUERY
 *   output   two of them, DV / 2 columns each: O[64, DV / 2] += P V, in registers
 *   gather   scans the slots and copies the rows they name, STAGES key blocks ahead, across queries
 *
 * Q travels through the ring of stages like a key block, its heads as the rows; the scores'
 * warpgroup takes it out at once. The next query's slots, Q and first rows are on their way while
 * the last blocks are computed, and its first scores are while O is written.
 *
 * What P is relative to, a row's maximum, begins as the true one of the first key block, so that
 * the largest P there is 1 and loses nothing when it is rounded to bf16. It moves only when the
 * true one is more than RESCALE_THRESHOLD above, and then by an integer (all of this in powers of
 * two): what O's rows are multiplied by is a power of two and fits into a byte.
 *
 * Shared memory (offsets and sizes: the plan above). A tile is 64 rows of 64 columns, 128-byte
 * swizzled:
 *   LATENT         [STAGES][LATENT_TILES] tiles: the columns that are key and value
 *   ROPE           one tile: the columns that are key alone
 *   PROBABILITIES  [P_BUFFERS] tiles: P, BLOCK_HEADS by BLOCK_KEYS
 *   QUERY          [STEPS - REGISTER_STEPS][BLOCK_HEADS][16]: Q's last k-steps, 32-byte swizzled
 *   EXPONENTS      [P_BUFFERS][BLOCK_HEADS] bytes: what O's rows are multiplied by before P V
 *   DENOMINATORS   [P_BUFFERS][BLOCK_HEADS] fp32: a query's, with its last block; 0: no valid slot
 *   WORDS          [STAGES]: what a key block is (count, FIRST_BLOCK, LAST_BLOCK)
 *   RING, COUNTS   common/warpgroup_slots.cuh
 *   RANGE          common/work.cuh
 *
 * Barriers (parity counts uses; stages and buffers are used in turn, a stage s by
 * key blocks and Q, a buffer b by key blocks alone):
 *   barrier      count  who arrives                                   who waits
 *   FULL[s]       129   gather: every thread when its copies have     scores
 *                       landed, one for the word
 *   ROPE_FULL     128   gather: every thread when its copies landed   scores, before those k-steps
 *   ROPE_FREE       4   scores: warps, Q K^T complete, or Q taken     gather
 *   P_FULL[b]       4   scores: warps, P and its exponents written    output
 *   TURN[b]         4   scores: warps, next Q K^T almost issued (or   output, before P V, so that
 *                       at once after a query's last block)           Q K^T need not share
 *   P_FREE[b]       8   output: warps, P V complete                   scores, before the next P
 *   EMPTY_LOW[s]    8   output: warps, rows 0 to 31 used; of Q's      gather
 *                       stage the scores' warps twice each, Q taken
 *   EMPTY_HIGH[s]   8   the same, all rows                            gather
 * (Counts are of warps where warps arrive: common/warp_arrival.cuh.)
 * Only who reads through the async proxy what others wrote by plain stores or cp.async has the
 * fence: wgmma's warpgroups, after the wait. A writer's would wait for all its loads and stores.
 * Named barriers: 1 the scores' warpgroup, 2 the gather's.
 *
 * Knobs: STAGES, TURN_STEPS, OUTPUT_REGISTERS and GATHER_REGISTERS (and with them the scores' and
 * REGISTER_STEPS); legal values and the rule that picks them:
 * src/codegen/families/sparse_attn_fwd_sm90.c.
 */

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct sparse_attn_fwd_params params) {
    begin_grid(&params.work);
    initialise_barriers();
    const int warpgroup = __shfl_sync((u32)ALL_LANES, (int)(threadIdx.x / WARPGROUP), 0);
    if (warpgroup == SCORES_WARPGROUP) {
        run_scores(&params);
    } else if (warpgroup < GATHER_WARPGROUP) {
        run_output(&params, warpgroup - OUTPUT_WARPGROUP);
    } else {
        run_gather(&params);
    }
    end_grid(&params.work);
}
