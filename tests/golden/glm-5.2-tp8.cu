/*
 * Written by smelt; do not edit. To write it again:
 *   smelt emit sparse_attn_fwd:heads=8,dqk=576,dv=512,topk=2048 --arch sm_90a
 *
 * spec     sparse_attn_fwd:heads=8,dqk=576,dv=512,topk=2048
 * arch     sm_90a
 * variant  sm90
 * kernel   smelt_sparse_attn_fwd_sm90_h8_qk576_v512_k2048
 * knobs (by the spec, or by rule)
 *   BLOCK_KEYS                      64  rule     KV rows of a key block
 *   STAGES                           2  rule     whole key blocks in the ring
 *   PART_TILES                       4  rule     tiles of a key block that are filled and freed together
 *   GATHER_REGISTERS                88  rule     of a thread, gather
 *   COMPACT                          1  rule     1: masked slots are dropped before the gather
 *   BLOCKS_PER_MULTIPROCESSOR        1  rule     resident at once
 *   RACECHECK                        0  rule     1: every lane of a warp arrives at barriers
 * shared memory (offset, bytes)
 *   KEYS_OFFSET                      0   204800  tiles of key blocks; a query's last block then its output
 *   QUERY_OFFSET                204800    18432  Q
 *   P_OFFSET                    223232     2048  probabilities
 *   STATISTICS_OFFSET           225280        0  maxima and sums that warps tell each other, where there is no rope tile for them, fp32
 *   RING_OFFSET                 225280     2048  KV row numbers of the key blocks to come
 *   BARRIERS_OFFSET             227328      216  mbarriers
 *   REQUESTS_OFFSET             227552       32  key blocks that are to be copied
 *   WORDS_OFFSET                227584       24  what each block is
 *   RANGE_OFFSET                227608        8  which items the launch takes
 *   SHARED_BYTES                227616  of 232448 that a block may have on sm_90a
 * launch
 *   384 threads a block, 1 block resident per multiprocessor, at most 168 registers a thread
 *   grid: 1 block a query, but no more than are resident at once
 *   persistent: in a grid-stride loop a block does the work of several
 */

enum {
    HEADS = 8,                      /* query heads */
    DQK = 576,                      /* width of a query and of a KV row, elements */
    DV = 512,                       /* width of a value, elements */
    TOPK = 2048,                    /* valid slots of a query, at most */
    HAS_SINK = 0,                   /* 1: a logit per head in the denominator */
    DEPENDENT_LAUNCH = 1,           /* 1: a kernel may begin before the one ahead of it has ended */
    BLOCK_KEYS = 64,                /* KV rows of a key block */
    STAGES = 2,                     /* whole key blocks in the ring */
    PART_TILES = 4,                 /* tiles of a key block that are filled and freed together */
    GATHER_REGISTERS = 88,          /* of a thread, gather */
    COMPACT = 1,                    /* 1: masked slots are dropped before the gather */
    BLOCKS_PER_MULTIPROCESSOR = 1,  /* resident at once */
    RACECHECK = 0,                  /* 1: every lane of a warp arrives at barriers */
    THREADS = 384,                  /* of a thread block */
    MATH_REGISTERS = 208,           /* of a thread, products and softmax */
    BLOCK_HEADS = 8,                /* heads, rounded up to eights */
    HEAD_BLOCKS = 1,                /* items of a query */
    RING_TILES = 25,                /* 64 keys by 64 columns, in flight */
    TURNS_AHEAD = 32,               /* entries of a query list that a warp holds */
    RING_ENTRIES = 256,             /* row numbers the ring holds */
};

/* Shared memory, in bytes from the arena's start. */
enum {
    KEYS_OFFSET = 0,                /* tiles of key blocks; a query's last block then its output */
    QUERY_OFFSET = 204800,          /* Q */
    P_OFFSET = 223232,              /* probabilities */
    STATISTICS_OFFSET = 225280,     /* maxima and sums that warps tell each other, where there is no rope tile for them, fp32 */
    RING_OFFSET = 225280,           /* KV row numbers of the key blocks to come */
    BARRIERS_OFFSET = 227328,       /* mbarriers */
    REQUESTS_OFFSET = 227552,       /* key blocks that are to be copied */
    WORDS_OFFSET = 227584,          /* what each block is */
    RANGE_OFFSET = 227608,          /* which items the launch takes */
    SHARED_BYTES = 227616,          /* the arena's size */
};

#define KERNEL_NAME smelt_sparse_attn_fwd_sm90_h8_qk576_v512_k2048

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

#line 2 "templates/ptx/shared.cuh"

/* The arena's 32-bit address in the shared state space, which the wrappers below take (PTX ISA,
 * "State Spaces", .shared). */
DEVICE u32 shared_address(u32 offset) {
    return (u32)__cvta_generic_to_shared(arena) + offset;
}

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

#line 3 "templates/common/warp_slots.cuh"
/*
 * The slots of a query's index row, compacted into a ring of KV row numbers: the valid ones, in
 * slot order, at most TOPK of them, by one warp. A step's 64 slots are loaded one step ahead, a
 * query's first ones while the query before is still gathered.
 *
 * The rings: at RING_OFFSET, one of RING_ENTRIES ints after another, a power of two.
 */

enum {
    RING_MASK = RING_ENTRIES - 1,
    ALL_LANES = -1,
    MASKED = -1,
    SCAN_SLOTS = 64 /* of a step: two a lane */
};

struct warp_scan {
    const int *row; /* the query's indices */
    int slots;      /* how many there are to scan */
    int scanned;    /* looked at so far */
    int values[2];  /* of slots scanned + lane and scanned + 32 + lane, loaded ahead */
};

DEVICE int *slot_ring(int number) {
    return (int *)(arena + RING_OFFSET) + number * RING_ENTRIES;
}

DEVICE void warp_scan_load_ahead(struct warp_scan *scan) {
    const int slot = scan->scanned + (int)(threadIdx.x % 32);
    scan->values[0] = slot < scan->slots ? scan->row[slot] : MASKED;
    scan->values[1] = slot + 32 < scan->slots ? scan->row[slot + 32] : MASKED;
}

/* Begins the row of an item; of no item, an empty one. */
DEVICE void warp_scan_open(struct warp_scan *scan, const struct work_params *params,
                           const struct work *work) {
    scan->scanned = 0;
    scan->slots = 0;
    scan->row = params->indices;
    if (work->query >= 0) {
        scan->row = work_row(params, work);
        scan->slots = work_slots(params, work);
    }
    warp_scan_load_ahead(scan);
}

/* Scans 64 more slots and returns how many entries there are now, of `entries` before, which begin
 * at `start` in the ring. `rows`: KV rows, an index from 0 on and below this is valid. The lanes
 * meet when they have written. */
DEVICE int warp_scan_more(struct warp_scan *scan, int *ring, int start, int rows, int entries) {
    const u32 lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int value = scan->values[i];
        const bool valid = value >= 0 && value < rows;
        const u32 votes = __ballot_sync((u32)ALL_LANES, valid);
        /* Of a valid slot: it counts itself. */
        const int rank = entries + __popc(votes << (31 - lane)) - 1;
        if (valid && rank < TOPK) {
            ring[(start + rank) & RING_MASK] = value;
        }
        entries += __popc(votes);
    }
    scan->scanned += SCAN_SLOTS;
    warp_scan_load_ahead(scan);
    __syncwarp((u32)ALL_LANES);
    return minimum(entries, TOPK);
}

/* Whether the row has no more entries. */
DEVICE bool warp_scan_ended(const struct warp_scan *scan, int entries) {
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

#line 2 "templates/ptx/prefetch.cuh"

/* Brings `bytes` of global memory into the L2 cache, without waiting; the address and the number
 * are multiples of 16 (PTX ISA, "cp.async.bulk.prefetch"). */
DEVICE void prefetch_l2(const void *from, u32 bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" : : "l"(from), "r"(bytes) : "memory");
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

#line 12 "templates/sparse_attn_fwd.key_ring.cuh"
/*
 * Key blocks of two queries at a time, gathered into a ring of tiles for the two math warpgroups of
 * sparse_attn_fwd.sm90_few.cu; its head has the shared-memory map and the barriers. One warp of the
 * gather's warpgroup scans the slots of both queries and asks for a block of the one, then for one
 * of the other; COPY_WARPS copy the rows, and wait for slots that are on their way only when
 * the scan, two blocks ahead, is late.
 *
 * Block n has the ring's tiles TILES * n to TILES * n + TILES - 1, modulo RING_TILES. So its tile t
 * takes the place of tile t - RING_TILES + TILES * d of block n - d, d being the number that makes
 * that a tile: RING_BLOCKS or RING_BLOCKS - 1, known when the kernel is compiled.
 */

enum {
    WARPGROUP = 128,  /* threads */
    COPY_WARPS = 2,   /* of the gather's, the first ones; one more scans */
    COPY_ROWS = 8,    /* of a key block, copied at once */
    REQUESTS = 2,     /* key blocks that the scan is ahead of the copies */
    TILE_PITCH = 128, /* bytes of a row, 64 columns */
    KEY_TILE_BYTES = BLOCK_KEYS * TILE_PITCH,
    LAST_HEAD = HEADS - 1
};

/* The tiles of a key block, in the ring's order: its rope columns, then its values. They come and
 * are given back in parts, but for the rope columns, which come with the first. */
enum {
    TILES = DQK / 64,
    VALUE_TILES = DV / 64,
    ROPE_TILES = TILES - VALUE_TILES,
    PARTS = VALUE_TILES / PART_TILES,
    ROPE_PART = PARTS,
    RING_BLOCKS = (RING_TILES + TILES - 1) / TILES /* of key blocks that are in the ring, in part */
};

/* Places in BARRIERS. */
enum {
    FULL = 0,                               /* by block, part and math warpgroup */
    EMPTY = FULL + RING_BLOCKS * PARTS * 2, /* by block and part, that of the rope columns too */
    QUERY_FULL = EMPTY + RING_BLOCKS * (PARTS + 1), /* by math warpgroup */
    READY = QUERY_FULL + 2,
    TAKEN = READY + REQUESTS
};

DEVICE u32 barrier_at(int number) {
    return shared_address((u32)(BARRIERS_OFFSET + number * 8));
}

/* The ring's tile that a block's tile is, `first` being its first one. */
DEVICE int ring_tile(int first, int tile) {
    return first + tile < RING_TILES ? first + tile : first + tile - RING_TILES;
}

/* What a key block is: how many keys; whether they are their query's last, whether the math
 * warpgroup's next block follows at once, since the other has no query any more. */
enum { LAST_BLOCK = 256, ALONE = 512, COUNT_MASK = 255 };

struct block_word {
    int word;
    int next; /* of a last block: the warpgroup's next query, or -1 */
};

DEVICE struct block_word *block_word(int index) {
    return (struct block_word *)(arena + WORDS_OFFSET) + index;
}

/* The item that follows one, if that is one. */
DEVICE struct work work_after(const struct sparse_attn_fwd_params *params,
                              const struct work *work) {
    return work->query < 0 ? *work : next_work(&params->work, work);
}

/* Where the row of a query's head begins in Q. Past the last head it is that of the last, so that
 * what is read is there; what is computed of it is not stored. */
DEVICE const char *query_row(const struct sparse_attn_fwd_params *params, int query, int head) {
    const int batch = query_batch(&params->work, query),
              token = query - batch * params->work.tokens;
    return (const char *)params->q +
           2 * (batch * params->q_batch_stride + token * params->q_token_stride +
                minimum(head, LAST_HEAD) * params->q_head_stride);
}

/* What the scan asks the copies for: a key block. */
struct request {
    int word;  /* the block's, and SECOND or NO_MORE */
    int next;  /* the block's */
    int batch; /* of the KV rows */
    int first; /* of its entries in the flow's ring */
};

enum { SECOND = 1024 /* math warpgroup */, NO_MORE = 2048 };

DEVICE struct request *request_at(int index) {
    return (struct request *)(arena + REQUESTS_OFFSET) + index;
}

/* A math warpgroup's queries, as the scan goes through them. */
struct flow {
    int query;          /* whose key blocks are asked for, or -1: there are no more */
    int start;          /* of its entries in the ring */
    int entries, taken; /* valid slots found so far; those in key blocks */
    bool ended;         /* there are no more; then the scan is of the next query */
    int next;
    struct warp_scan scan;
};

DEVICE void begin_flow(struct flow *flow, int start, int query) {
    flow->query = query;
    flow->start = start;
    flow->entries = 0;
    flow->taken = 0;
    flow->ended = false;
    flow->next = -1;
}

/* Brings a query's Q into the L2 cache, ahead of load_query. */
DEVICE void prefetch_query(const struct sparse_attn_fwd_params *params, int query) {
    const int head = (int)(threadIdx.x % 32);
    if (query >= 0 && head < HEADS) {
        prefetch_l2(query_row(params, query, head), DQK * 2);
    }
}

/* Scans until a flow's next key block is known, and whether it is the query's last; at the row's
 * end begins that of the next query. `latest`: the last item begun. */
DEVICE void look_ahead(const struct sparse_attn_fwd_params *params, struct flow *flow, int group,
                       struct work *latest) {
    while (!flow->ended && flow->entries - flow->taken <= BLOCK_KEYS) {
        flow->entries = warp_scan_more(&flow->scan, slot_ring(group), flow->start,
                                       params->work.rows, flow->entries);
        flow->ended = warp_scan_ended(&flow->scan, flow->entries);
        if (flow->ended) {
            *latest = work_after(params, latest);
            warp_scan_open(&flow->scan, &params->work, latest);
            prefetch_query(params, latest->query);
            flow->next = latest->query;
        }
    }
}

/* Asks for a key block, when the warp's lanes have met: all wrote its entries, and none still looks
 * at a phase that the request ends. */
DEVICE void ask(struct ring_place *turn, const struct request *request) {
    mbarrier_wait(barrier_at(TAKEN + turn->index), turn->parity ^ 1);
    if (threadIdx.x % 32 == 0) {
        *request_at(turn->index) = *request;
    }
    arrive_warp(barrier_at(READY + turn->index), 1);
    ring_advance(turn, REQUESTS);
}

/* Asks for a flow's next key block. */
DEVICE void ask_block(const struct sparse_attn_fwd_params *params, struct flow *flow,
                      const struct flow *other, int group, struct ring_place *turn,
                      struct work *latest) {
    look_ahead(params, flow, group, latest);
    const int left = flow->entries - flow->taken, count = minimum(left, BLOCK_KEYS);
    const bool last = flow->ended && left <= BLOCK_KEYS;
    const struct request request = {count | (last ? LAST_BLOCK : 0) |
                                        (other->query < 0 ? ALONE : 0) | (group == 1 ? SECOND : 0),
                                    flow->next, query_batch(&params->work, flow->query),
                                    flow->start + flow->taken};
    ask(turn, &request);
    flow->taken += count;
    if (last) {
        begin_flow(flow, flow->start + flow->entries, flow->next);
    }
}

/* The warp that scans: a block of the one flow, then one of the other. Each has its own copy of the
 * code: a slot on its way stays in its register. */
DEVICE void run_scan(const struct sparse_attn_fwd_params *params) {
    struct ring_place turn = {0, 0};
    struct flow flows[2];
    struct work latest = first_work(&params->work);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        begin_flow(&flows[i], 0, latest.query);
        warp_scan_open(&flows[i].scan, &params->work, &latest);
        if (i == 0) {
            latest = work_after(params, &latest);
        }
    }
    while (flows[0].query >= 0 || flows[1].query >= 0) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            if (flows[i].query >= 0) {
                ask_block(params, &flows[i], &flows[1 - i], i, &turn, &latest);
            }
        }
    }
    const struct request end = {NO_MORE, -1, 0, 0};
    ask(&turn, &end);
}

/* The part that a tile is given back with, and the one that it comes with. */
DEVICE int part_of(int tile) {
    return tile < ROPE_TILES ? ROPE_PART : (tile - ROPE_TILES) / PART_TILES;
}

DEVICE int full_part_of(int tile) {
    return maximum(tile - ROPE_TILES, 0) / PART_TILES;
}

/* What a tile of a block takes the place of: a part of the block `back` before. */
struct former {
    int back, part;
};

DEVICE struct former former_of(int tile) {
    const int back = (RING_TILES - tile + TILES - 1) / TILES;
    const struct former former = {back, part_of(tile - RING_TILES + back * TILES)};
    return former;
}

/* Whether a tile is free when the one before it is. */
DEVICE bool comes_free_with_last(int tile) {
    const struct former one = former_of(tile), last = former_of(tile - 1);
    return tile > 0 && one.back == last.back && one.part == last.part;
}

DEVICE void await_free(const struct ring_place *block, int tile) {
    const struct former former = former_of(tile);
    struct ring_place at = *block;
    if (former.back < RING_BLOCKS) {
        ring_advance(&at, RING_BLOCKS);
    }
    mbarrier_wait(barrier_at(EMPTY + at.index * (PARTS + 1) + former.part), at.parity ^ 1);
}

/* The rows of a key block that a copying thread takes part in: row and every COPY_ROWS-th after it;
 * those from `count` on become zeros. */
struct block_rows {
    int word, next; /* the block's */
    int row, count;
    const char *from[BLOCK_KEYS / COPY_ROWS]; /* 16 bytes of the first columns */
};

/* Takes the next request, when it is there. */
DEVICE void take_request(const struct sparse_attn_fwd_params *params, struct ring_place *turn,
                         struct block_rows *rows) {
    mbarrier_wait(barrier_at(READY + turn->index), turn->parity);
    const struct request request = *request_at(turn->index);
    const int *const ring = slot_ring(request.word & SECOND ? 1 : 0);
    const char *const source = (const char *)params->kv +
                               2 * (request.batch * params->kv_batch_stride) + threadIdx.x % 8 * 16;
    rows->word = request.word;
    rows->next = request.next;
    rows->row = (int)(threadIdx.x % WARPGROUP / 8);
    rows->count = request.word & COUNT_MASK;
#pragma unroll
    for (int i = 0; i < BLOCK_KEYS / COPY_ROWS; ++i) {
        const int key = rows->row + i * COPY_ROWS;
        const int number = key < rows->count ? ring[(request.first + key) & RING_MASK] : 0;
        rows->from[i] = source + (u64)(u32)number * params->kv_row_bytes;
    }
    arrive_warp(barrier_at(TAKEN + turn->index), 1);
    ring_advance(turn, REQUESTS);
}

/* Copies a tile of a block whose tiles begin at `first`: eight threads a row. */
DEVICE void copy_tile(const struct block_rows *rows, int first, int tile) {
    const u32 thread = threadIdx.x % WARPGROUP;
    const u32 to = shared_address((u32)(KEYS_OFFSET + ring_tile(first, tile) * KEY_TILE_BYTES) +
                                  thread / 8 * TILE_PITCH + ((thread % 8) ^ (thread / 8 % 8)) * 16);
    const int column = tile < ROPE_TILES ? VALUE_TILES + tile : tile - ROPE_TILES;
#pragma unroll
    for (int i = 0; i < BLOCK_KEYS / COPY_ROWS; ++i) {
        const bool present = rows->row + i * COPY_ROWS < rows->count;
        cp_async_16(to + (u32)(i * COPY_ROWS * TILE_PITCH), rows->from[i] + column * TILE_PITCH,
                    present ? 16 : 0);
    }
}

/* The warps that copy: each block's tiles as they come free. */
DEVICE void run_copies(const struct sparse_attn_fwd_params *params) {
    struct ring_place turn = {0, 0}, block = {0, 0};
    int first = 0;
    struct block_rows rows;
    take_request(params, &turn, &rows);
    while (!(rows.word & NO_MORE)) {
        const int full = FULL + block.index * PARTS * 2 + (rows.word & SECOND ? 1 : 0);
        struct block_rows next;
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile) {
            if (tile == TILES - PART_TILES) { /* while room is waited for, as a rule */
                take_request(params, &turn, &next);
            }
            if (!comes_free_with_last(tile)) {
                await_free(&block, tile);
            }
            if (tile == 0 && threadIdx.x % WARPGROUP == 0) {
                const struct block_word word = {rows.word, rows.next};
                *block_word(block.index) = word;
                mbarrier_arrive(barrier_at(full));
            }
            copy_tile(&rows, first, tile);
            if (tile + 1 == TILES || full_part_of(tile + 1) != full_part_of(tile)) {
                cp_async_arrive_noinc(barrier_at(full + full_part_of(tile) * 2));
            }
        }
        rows = next;
        ring_advance(&block, RING_BLOCKS);
        first = ring_tile(first, TILES);
    }
    cp_async_wait_all();
}

/* The gather's warpgroup. */
DEVICE void run_gather(const struct sparse_attn_fwd_params *params) {
    registers_decrease(GATHER_REGISTERS);
    const int warp = __shfl_sync((u32)ALL_LANES, (int)(threadIdx.x % WARPGROUP / 32), 0);
    if (warp < COPY_WARPS) {
        run_copies(params);
    } else if (warp == COPY_WARPS) {
        run_scan(params);
    }
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

#line 4 "templates/ptx/wgmma_ss.cuh"

/*
 * d = a * b, or d += a * b when `accumulate`: 64 x 8, depth 16, bf16 in, fp32 accumulation, by
 * one warpgroup (PTX ISA, "wgmma.mma_async"). a and b: common/descriptor.cuh; ta, tb: the operand
 * is transposed. d[i] of lane 4 * g + t, warp w, is at row 16 * w + g, in every second pair 8 more,
 * and at column 8 * (i / 4) + 2 * t + i % 2.
 */
// clang-format off
DEVICE void wgmma_ss_n8_t00(float *d, u64 a, u64 b, int accumulate) {
    asm volatile("{.reg .pred p;\n\t"
                 "setp.ne.s32 p, %6, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {"
#line 19 "templates/ptx/wgmma_ss.cuh"
                 "%0, %1, %2, %3}, "
                 "%4, %5, p, 1, 1, 0, 0;}"
                 :
#line 26 "templates/ptx/wgmma_ss.cuh"
                 "+f"(d[0]), "+f"(d[1]),
                 "+f"(d[2]), "+f"(d[3])
                 : "l"(a), "l"(b), "r"(accumulate));
}
// clang-format on

#line 4 "templates/ptx/wgmma_ss.cuh"

/*
 * d = a * b, or d += a * b when `accumulate`: 64 x 8, depth 16, bf16 in, fp32 accumulation, by
 * one warpgroup (PTX ISA, "wgmma.mma_async"). a and b: common/descriptor.cuh; ta, tb: the operand
 * is transposed. d[i] of lane 4 * g + t, warp w, is at row 16 * w + g, in every second pair 8 more,
 * and at column 8 * (i / 4) + 2 * t + i % 2.
 */
// clang-format off
DEVICE void wgmma_ss_n8_t10(float *d, u64 a, u64 b, int accumulate) {
    asm volatile("{.reg .pred p;\n\t"
                 "setp.ne.s32 p, %6, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {"
#line 19 "templates/ptx/wgmma_ss.cuh"
                 "%0, %1, %2, %3}, "
                 "%4, %5, p, 1, 1, 1, 0;}"
                 :
#line 26 "templates/ptx/wgmma_ss.cuh"
                 "+f"(d[0]), "+f"(d[1]),
                 "+f"(d[2]), "+f"(d[3])
                 : "l"(a), "l"(b), "r"(accumulate));
}
// clang-format on

#line 21 "templates/sparse_attn_fwd.sm90_few.cu"
/*
 * Sparse attention forward with wgmma for at most 32 heads: keys are the matrices' rows, heads
 * their columns, so that no product is padded to 64 heads; and two queries are under way, so that
 * one hides the other's end and its softmax. Mathematics and shapes: include/smelt/sparse_attn.h.
 *
 * Grid: one block a multiprocessor, each taking every gridDim.x-th query (common/work.cuh). Three
 * warpgroups:
 *
 *   math     two of them, each with a query of its own, from its first key block to its output:
 *              S^T[BLOCK_KEYS, BLOCK_HEADS] = K Q^T, softmax down its columns
 *              O^T[DV, BLOCK_HEADS] += V^T P^T, in registers, DV / 64 slabs of 64 columns
 *   gather   sparse_attn_fwd.key_ring.cuh: a warp scans the slots of both queries and asks for key
 * blocks, one of the one, then one of the other; two warps copy the rows, as far ahead as the ring
 * has room. A warpgroup whose query ends gets the next of the block's queries
 *
 * What binds is the ring: gathered bytes per second are the bytes under way over the time that a
 * byte takes from L2 to its last use. So a key block comes, is used and is given back in parts of
 * PART_TILES tiles of 64 columns: K Q^T begins with the first part while the others are under way,
 * and each part of V^T P^T that is done makes room for a part of a later block; and the ring has
 * tiles, not whole blocks, so that all of the shared memory is used.
 *
 * A query has at least one key block, perhaps empty. Its blocks do not depend on the other query:
 * the same keys, summed in the same order. What P is relative to, a head's maximum, is the true one
 * when it is taken, so that the largest P is 1 and loses nothing when it is rounded to bf16; it
 * moves only when the true one is more than RESCALE_THRESHOLD (in powers of two) above.
 *
 * Shared memory (offsets and sizes: the plan above). A tile is rows of 64 columns, 128-byte
 * swizzled:
 *   KEYS       [RING_TILES] tiles of BLOCK_KEYS rows, a ring: a block's tiles
 *              follow each other, its rope columns first. A query's last block
 *              then holds the statistics, if it has rope columns, and the output
 *              on its way to global memory
 *   QUERY      [2][DQK / 64] tiles of BLOCK_HEADS rows
 *   P          [2] tiles of BLOCK_HEADS heads by BLOCK_KEYS keys
 *   STATISTICS [2][STATISTICS][BLOCK_HEADS] fp32: what the warps of a warpgroup
 *              tell each other; with rope columns they stand in their block's
 *              first tile, when S^T is complete
 *   WORDS      [RING_BLOCKS]: struct block_word
 *   REQUESTS   [REQUESTS]: struct request
 *   RING       [2]: common/warp_slots.cuh; RANGE: common/work.cuh
 *
 * Barriers (parity counts uses; b: block number % RING_BLOCKS; m: the math warpgroup. A
 * FULL barrier for each of the two, which sees its own blocks alone and could not tell the others'
 * phases apart):
 *   barrier           count  who arrives                                who waits
 *   READY[r]              1  gather: the scan, request r is there       copies
 *   TAKEN[r]              2  gather: copies, its rows' numbers are read scan
 *   FULL[b][part][m]     64  copies: every thread when they have        math warpgroup m
 *                            landed; the first part: and one for the
 *                            word, 65
 *   EMPTY[b][part]        4  math: the block's warps; of the rope       copies, as the head of
 *                            columns one of their own sparse_attn_fwd.key_ring.cuh says
 *   QUERY_FULL[m]       128  math: every thread when its copies have    math warpgroup m
 *                            landed
 * (Counts are of warps where warps arrive: common/warp_arrival.cuh.)
 * Named barriers: 1 and 2, a math warpgroup each.
 *
 * Knobs: STAGES, PART_TILES, the registers of each role; legal values and the rule that picks them:
 * src/codegen/families/sparse_attn_fwd_sm90_few.c.
 */

enum {
    GATHER_WARPGROUP = 2,
    QUERY_TILE_BYTES = BLOCK_HEADS * TILE_PITCH,
    QUERY_BYTES = TILES * QUERY_TILE_BYTES,
    ATOM_BYTES = 8 * TILE_PITCH,     /* eight rows of a tile */
    STEP_BYTES = 32,                 /* 16 columns of a row: a k-step of K Q^T */
    KEY_STEP_BYTES = 2 * ATOM_BYTES, /* 16 keys of a tile: a k-step of V^T P^T */
    KEY_STEPS = BLOCK_KEYS / 16,     /* of V^T P^T */
    HAS_ROPE = DQK > DV,

    GROUPS = BLOCK_HEADS / 8, /* a thread's heads: two of every eight */
    THREAD_HEADS = 2 * GROUPS,
    SLAB_VALUES = BLOCK_HEADS / 2, /* of a thread: S^T, or a slab of O^T */
    OUTPUT_VALUES = VALUE_TILES * SLAB_VALUES,
    OUTPUT_CHUNKS = DV / 8, /* of 16 bytes: a head's output */
    ROW_STEP = WARPGROUP / OUTPUT_CHUNKS
};

/* The products' shapes: as many columns as heads. */
// clang-format off
#line 103 "templates/sparse_attn_fwd.sm90_few.cu"
#define multiply_scores wgmma_ss_n8_t00
#define multiply_output wgmma_ss_n8_t10
#line 106 "templates/sparse_attn_fwd.sm90_few.cu"
// clang-format on

DEVICE void initialise(void) {
    if (threadIdx.x == 0) {
        for (int i = 0; i < RING_BLOCKS * PARTS * 2; ++i) {
            const bool has_word = i / 2 % PARTS == 0;
            mbarrier_init(barrier_at(FULL + i), COPY_WARPS * 32 + (has_word ? 1 : 0));
        }
        for (int i = 0; i < RING_BLOCKS * (PARTS + 1); ++i) {
            mbarrier_init(barrier_at(EMPTY + i), 4 * WARP_ARRIVALS);
        }
        for (int request = 0; request < REQUESTS; ++request) {
            mbarrier_init(barrier_at(READY + request), WARP_ARRIVALS);
            mbarrier_init(barrier_at(TAKEN + request), COPY_WARPS * WARP_ARRIVALS);
        }
        mbarrier_init(barrier_at(QUERY_FULL), WARPGROUP);
        mbarrier_init(barrier_at(QUERY_FULL + 1), WARPGROUP);
    }
    __syncthreads();
}

/* ---- math: scores and probabilities ---------------------------------------------------------- */

/* Which of the math threads this is. */
struct math_thread {
    int group;      /* math warpgroup, 0 or 1 */
    int warp, lane; /* in the warpgroup */
    int first_head; /* its heads: first_head + 8 * (k / 2) + k % 2, k < THREAD_HEADS */
};

DEVICE int thread_head(const struct math_thread *me, int k) {
    return me->first_head + 8 * (k / 2) + k % 2;
}

/* A barrier of the warpgroup. */
DEVICE void group_sync(const struct math_thread *me) {
    if (me->group == 0) {
        barrier_sync(1, WARPGROUP);
    } else {
        barrier_sync(2, WARPGROUP);
    }
}

DEVICE bool group_or(const struct math_thread *me, bool condition) {
    return me->group == 0 ? barrier_or(1, WARPGROUP, condition)
                          : barrier_or(2, WARPGROUP, condition);
}

/* Starts the copy of a query's Q, by its warpgroup, which reads the one before no more. */
DEVICE void load_query(const struct sparse_attn_fwd_params *params, int query,
                       const struct math_thread *me) {
    enum { CHUNKS = DQK / 8 };
    const u32 to = shared_address((u32)(QUERY_OFFSET + me->group * QUERY_BYTES));
#pragma unroll 1
    for (int i = (int)(threadIdx.x % WARPGROUP); i < BLOCK_HEADS * CHUNKS; i += WARPGROUP) {
        const int head = i / CHUNKS, chunk = i % CHUNKS;
        cp_async_16(to + (u32)(chunk / 8 * QUERY_TILE_BYTES + head * TILE_PITCH +
                               ((chunk ^ head) & 7) * 16),
                    query_row(params, query, head) + chunk * 16, 16);
    }
    cp_async_arrive_noinc(barrier_at(QUERY_FULL + me->group));
}

/* The descriptor of the ring's tiles, and of one of a block's. */
DEVICE u64 ring_descriptor(void) {
    return shared_descriptor(shared_address((u32)KEYS_OFFSET), 16, ATOM_BYTES, 128);
}

DEVICE u64 tile_descriptor(int first, int tile) {
    return descriptor_advance(ring_descriptor(), (u32)(ring_tile(first, tile) * KEY_TILE_BYTES));
}

/* Issues what tiles [from, to) of a block add to S^T = K Q^T; `query`: Q's address. */
DEVICE void issue_scores(float *s, int first, int from, int to, u32 query) {
    const u64 b = shared_descriptor(query, 16, ATOM_BYTES, 128);
    wgmma_fence();
#pragma unroll
    for (int tile = from; tile < to; ++tile) {
        const int column = tile < ROPE_TILES ? VALUE_TILES + tile : tile - ROPE_TILES;
        const u64 a = tile_descriptor(first, tile);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            multiply_scores(
                s, descriptor_advance(a, (u32)(k * STEP_BYTES)),
                descriptor_advance(b, (u32)(column * QUERY_TILE_BYTES + k * STEP_BYTES)),
                tile + k > 0);
        }
    }
    wgmma_commit();
}

/* Scores of keys past `count` become -inf. */
DEVICE void mask_scores(float *s, const struct math_thread *me, int count) {
    const int key = me->warp * 16 + me->lane / 4;
#pragma unroll
    for (int i = 0; i < SLAB_VALUES; ++i) {
        if (key + i / 2 % 2 * 8 >= count) {
            s[i] = MINUS_INFINITY;
        }
    }
}

/* What the softmax of this thread's heads has come to; in powers of two. */
struct softmax_columns {
    float maximum[THREAD_HEADS]; /* P is relative to it; or -inf; one for all threads */
    float highest[THREAD_HEADS]; /* the true maximum of this thread's scores */
    float sum[THREAD_HEADS];     /* of this thread's exponentials */
};

/* The greatest of a column over the warp's 16 keys. */
DEVICE float column_maximum(float value) {
    value = fmaxf(value, __shfl_xor_sync((u32)ALL_LANES, value, 4));
    value = fmaxf(value, __shfl_xor_sync((u32)ALL_LANES, value, 8));
    return fmaxf(value, __shfl_xor_sync((u32)ALL_LANES, value, 16));
}

/* What a warpgroup's warps tell each other of each head: a row of BLOCK_HEADS values each; `first`:
 * the tiles of the block under way. */
enum {
    SUMS = 0,    /* by warp */
    HIGHEST = 4, /* by warp; maxima of scores, of a block or a query */
    MAXIMUM = 8,
    FACTOR = 9,
    STATISTICS = 10
};

DEVICE float *statistics(int first, const struct math_thread *me) {
    return HAS_ROPE ? (float *)(arena + KEYS_OFFSET + first * KEY_TILE_BYTES)
                    : (float *)(arena + STATISTICS_OFFSET) + me->group * STATISTICS * BLOCK_HEADS;
}

/* The sum, or the greatest, of a head's four values at [warp][head]. */
DEVICE float sum_of_warps(const float *values) {
    return (values[0] + values[BLOCK_HEADS]) + (values[2 * BLOCK_HEADS] + values[3 * BLOCK_HEADS]);
}

DEVICE float greatest_of_warps(const float *values) {
    return fmaxf(fmaxf(values[0], values[BLOCK_HEADS]),
                 fmaxf(values[2 * BLOCK_HEADS], values[3 * BLOCK_HEADS]));
}

/* Moves the maxima that have to, O and sums with them. `highest`: of this thread's scores;
 * `opening`: there is no O yet. */
DEVICE void move_maxima(struct softmax_columns *columns, float *o, const float *highest, int first,
                        bool opening, const struct math_thread *me) {
    float *const maxima = statistics(first, me) + HIGHEST * BLOCK_HEADS;
#pragma unroll
    for (int k = 0; k < THREAD_HEADS; ++k) {
        const float value = column_maximum(highest[k]);
        if (me->lane < 4) {
            maxima[me->warp * BLOCK_HEADS + thread_head(me, k)] = value;
        }
    }
    group_sync(me);
#pragma unroll
    for (int k = 0; k < THREAD_HEADS; ++k) {
        const float value = greatest_of_warps(maxima + thread_head(me, k));
        if (value > columns->maximum[k] + RESCALE_THRESHOLD) {
            const float old = columns->maximum[k];
            columns->maximum[k] = value;
            const float factor = exp2_approximate(old - columns->maximum[k]);
            columns->sum[k] *= factor;
            if (!opening) {
#pragma unroll
                for (int i = 0; i < VALUE_TILES; ++i) {
                    o[i * SLAB_VALUES + k / 2 * 4 + k % 2] *= factor;
                    o[i * SLAB_VALUES + k / 2 * 4 + k % 2 + 2] *= factor;
                }
            }
        }
    }
}

/* Scores -> P in place, and the sums. */
DEVICE void softmax_block(float *s, struct softmax_columns *columns, float *o, float scale_log2,
                          int first, bool opening, const struct math_thread *me) {
    float highest[THREAD_HEADS];
    bool move = false;
#pragma unroll
    for (int k = 0; k < THREAD_HEADS; ++k) {
        highest[k] = fmaxf(s[k / 2 * 4 + k % 2], s[k / 2 * 4 + k % 2 + 2]) * scale_log2;
        columns->highest[k] = fmaxf(columns->highest[k], highest[k]);
        move = move || highest[k] > columns->maximum[k] + RESCALE_THRESHOLD;
    }
    if (group_or(me, move)) {
        move_maxima(columns, o, highest, first, opening, me);
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

/* Where P of a warpgroup goes: offset in the arena. */
DEVICE u32 p_offset(const struct math_thread *me) {
    return (u32)(P_OFFSET + me->group * QUERY_TILE_BYTES);
}

/*
 * A thread's four values of eight columns (heads), which are rows g and g + 8 of its warp's 16, as
 * bf16 to a tile of heads by rows at `base`.
 */
DEVICE void store_transposed(u32 base, const float *values, const struct math_thread *me) {
    const int row = me->lane % 8, chunk = me->warp * 2 + me->lane / 8 % 2;
    const u32 address = base + (u32)(row * TILE_PITCH + (chunk ^ row) * 16);
#pragma unroll
    for (int j = 0; j + 1 < GROUPS; j += 2) {
        const u32 pairs[4] = {pack_bf16x2(values[4 * j], values[4 * j + 1]),
                              pack_bf16x2(values[4 * j + 2], values[4 * j + 3]),
                              pack_bf16x2(values[4 * j + 4], values[4 * j + 5]),
                              pack_bf16x2(values[4 * j + 6], values[4 * j + 7])};
        stmatrix_x4_trans(address + (u32)((j + me->lane / 16) * 8 * TILE_PITCH), pairs);
    }
    if (GROUPS % 2 == 1) {
        const float *const last = &values[4 * (GROUPS - 1)];
        const u32 pairs[2] = {pack_bf16x2(last[0], last[1]), pack_bf16x2(last[2], last[3])};
        stmatrix_x2_trans(address + (u32)((GROUPS - 1) * 8 * TILE_PITCH), pairs);
    }
}

/* Issues slabs [from, to) of O^T += V^T P^T, or O^T = V^T P^T; `p`: P's address. */
DEVICE void issue_output(float *o, int first, int from, int to, u32 p, bool add) {
    const u64 b = shared_descriptor(p, 16, ATOM_BYTES, 128);
    wgmma_fence();
#pragma unroll
    for (int i = from; i < to; ++i) {
        const u64 a = tile_descriptor(first, ROPE_TILES + i);
#pragma unroll
        for (int k = 0; k < KEY_STEPS; ++k) {
            multiply_output(&o[i * SLAB_VALUES], descriptor_advance(a, (u32)(k * KEY_STEP_BYTES)),
                            descriptor_advance(b, (u32)(k * STEP_BYTES)), k > 0 || add);
        }
    }
    wgmma_commit();
}

/* Where a key block is in the ring: its number % RING_BLOCKS, and its first tile. */
struct block_at {
    int index, first;
};

/* Of the warpgroup's next key block. */
DEVICE struct block_at block_after(const struct block_at *at, int word) {
    const int blocks = word & ALONE ? 1 : 2;
    const struct block_at next = {(at->index + blocks) % RING_BLOCKS,
                                  (at->first + blocks * TILES) % RING_TILES};
    return next;
}

/* Waits until a part of a block is there. */
DEVICE void await_part(const struct block_at *at, int part, u32 parities,
                       const struct math_thread *me) {
    mbarrier_wait(barrier_at(FULL + (at->index * PARTS + part) * 2 + me->group),
                  (int)(parities >> at->index & 1));
    fence_proxy_async();
}

/* A warp's arrival at a part's barrier. */
DEVICE void give_back(const struct block_at *at, int part) {
    arrive_warp(barrier_at(EMPTY + at->index * (PARTS + 1) + part), 1);
}

/* Scores that have been issued -> P. */
DEVICE void compute_probabilities(float *s, struct softmax_columns *columns, float *o, int first,
                                  int count, float scale_log2, bool opening,
                                  const struct math_thread *me) {
    wgmma_wait_0();
    if (count < BLOCK_KEYS) {
        mask_scores(s, me, count);
    }
    /* Its barrier stands between the last read of the rope columns and the statistics, of P and the
     * next, and of Q and the next. */
    softmax_block(s, columns, o, scale_log2, first, opening, me);
    store_transposed(shared_address(p_offset(me)), s, me);
    fence_proxy_async();
}

/*
 * A query's key blocks, from `at` on, which becomes the last one; returns its word, keeps its tiles
 * and leaves its output under way. `parities`: of the FULL barriers, by block, that come next.
 */
DEVICE struct block_word compute_blocks(const struct sparse_attn_fwd_params *params,
                                        struct softmax_columns *columns, float *o,
                                        struct block_at *at, u32 *parities,
                                        const struct math_thread *me) {
    const float scale_log2 = params->scale * LOG2_E;
    float s[SLAB_VALUES];
    for (bool opening = true;; opening = false) {
        /* One for the warp, as the products' descriptors have to be. */
        const int first = (int)warp_reduce_or((u32)at->first);
        const u32 query =
            warp_reduce_or(shared_address((u32)(QUERY_OFFSET + me->group * QUERY_BYTES)));
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
            const int end = ROPE_TILES + (part + 1) * PART_TILES;
            await_part(at, part, *parities, me);
            issue_scores(s, first, part == 0 ? 0 : end - PART_TILES, end, query);
        }
        *parities ^= 1u << at->index;
        struct block_word block;
        block.word = (int)warp_reduce_or((u32)block_word(at->index)->word);
        block.next = block_word(at->index)->next;
        const bool last = block.word & LAST_BLOCK;
        compute_probabilities(s, columns, o, at->first, block.word & COUNT_MASK, scale_log2,
                              opening, me);
        group_sync(me);
        const int tiles = (int)warp_reduce_or((u32)at->first);
        const u32 p = warp_reduce_or(shared_address(p_offset(me)));
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
            issue_output(o, tiles, part * PART_TILES, (part + 1) * PART_TILES, p, !opening);
            if (part > 0) {
                wgmma_wait_1();
                if (!last || part > PARTS / 2) {
                    give_back(at, part - 1);
                }
            } else if (HAS_ROPE && !last) {
                give_back(at, ROPE_PART);
            }
        }
        if (last) {
            return block;
        }
        wgmma_wait_0();
        give_back(at, PARTS - 1);
        *at = block_after(at, block.word);
    }
}

/* ---- math: a query's end --------------------------------------------------------------------- */

/* The values of a thread's heads, a sum and a maximum over its warp each, to the statistics. */
DEVICE void share_statistics(const struct softmax_columns *columns, bool all, int first,
                             const struct math_thread *me) {
    float *const values = statistics(first, me);
#pragma unroll
    for (int k = 0; k < THREAD_HEADS; ++k) {
        const int head = thread_head(me, k);
        float sum = columns->sum[k];
        sum += __shfl_xor_sync((u32)ALL_LANES, sum, 4);
        sum += __shfl_xor_sync((u32)ALL_LANES, sum, 8);
        sum += __shfl_xor_sync((u32)ALL_LANES, sum, 16);
        if (me->lane < 4) {
            values[(SUMS + me->warp) * BLOCK_HEADS + head] = sum;
            if (me->warp == 0) {
                values[MAXIMUM * BLOCK_HEADS + head] = columns->maximum[k];
            }
        }
    }
    if (all) {
#pragma unroll
        for (int k = 0; k < THREAD_HEADS; ++k) {
            const float highest = column_maximum(columns->highest[k]);
            if (me->lane < 4) {
                values[(HIGHEST + me->warp) * BLOCK_HEADS + thread_head(me, k)] = highest;
            }
        }
    }
    group_sync(me);
}

/* One head of a query, by one thread: its lse and maximum, and what its O is multiplied by. */
DEVICE void finish_head(const struct sparse_attn_fwd_params *params, int query, int head, int first,
                        const struct math_thread *me) {
    float *const values = statistics(first, me) + head;
    const float maximum = values[MAXIMUM * BLOCK_HEADS];
    const float base = maximum == MINUS_INFINITY ? 0.0f : maximum;
    const float sum = sum_of_warps(values + SUMS * BLOCK_HEADS);
    const bool empty = sum == 0.0f; /* else about 1 at least, or NaN, which stays visible in lse */
    float denominator = sum;
    if (HAS_SINK) {
        denominator += exp2_approximate(params->sink[minimum(head, LAST_HEAD)] * LOG2_E - base);
    }
    values[FACTOR * BLOCK_HEADS] = empty ? 0.0f : 1.0f / denominator;
    if (head < HEADS) {
        const int batch = query_batch(&params->work, query),
                  token = query - batch * params->work.tokens;
        params->lse[batch * params->lse_batch_stride + token * params->lse_token_stride +
                    head * params->lse_head_stride] =
            empty ? MINUS_INFINITY : (base + log2_approximate(sum)) * LN_2;
        if (params->max_logits) {
            params->max_logits[batch * params->max_logits_batch_stride +
                               token * params->max_logits_token_stride +
                               head * params->max_logits_head_stride] =
                greatest_of_warps(values + HIGHEST * BLOCK_HEADS) * LN_2;
        }
    }
}

/* Where 64 columns of a query's output stand on the way to global memory: two of them in each tile
 * of the last block's first half, heads by columns. */
DEVICE u32 staged_output(int first, int slab) {
    return shared_address((u32)(KEYS_OFFSET +
                                ring_tile(first, ROPE_TILES + slab / 2) * KEY_TILE_BYTES +
                                slab % 2 * QUERY_TILE_BYTES));
}

/* O over the denominators there, as bf16. */
DEVICE void finish_output(float *o, int first, const struct math_thread *me) {
    const float *const values = statistics(first, me) + FACTOR * BLOCK_HEADS;
    float factors[THREAD_HEADS];
#pragma unroll
    for (int k = 0; k < THREAD_HEADS; ++k) {
        factors[k] = values[thread_head(me, k)];
    }
#pragma unroll
    for (int i = 0; i < VALUE_TILES; ++i) {
        float *const slab = &o[i * SLAB_VALUES];
#pragma unroll
        for (int j = 0; j < SLAB_VALUES; ++j) {
            slab[j] *= factors[j / 4 * 2 + j % 2];
        }
        store_transposed(staged_output(first, i), slab, me);
    }
    group_sync(me);
}

/* From there to global memory, 16 bytes a thread. */
DEVICE void store_output(const struct sparse_attn_fwd_params *params, int query, int first) {
    const int batch = query_batch(&params->work, query),
              token = query - batch * params->work.tokens;
    char *const out = (char *)params->out +
                      2 * (batch * params->out_batch_stride + token * params->out_token_stride);
    const int thread = (int)(threadIdx.x % WARPGROUP), chunk = thread % OUTPUT_CHUNKS;
    const u32 staged = staged_output(first, chunk / 8);
#pragma unroll
    for (int i = 0; i < HEADS; i += ROW_STEP) {
        const int head = i + thread / OUTPUT_CHUNKS;
        if (HEADS % ROW_STEP == 0 || head < HEADS) {
            u32 words[4];
            load_shared_16(words, staged + (u32)(head * TILE_PITCH + ((chunk ^ head) & 7) * 16));
            store_streaming_16(out + 2 * (head * params->out_head_stride) + chunk * 16, words);
        }
    }
}

DEVICE void begin_query(struct softmax_columns *columns) {
#pragma unroll
    for (int k = 0; k < THREAD_HEADS; ++k) {
        columns->maximum[k] = MINUS_INFINITY;
        columns->highest[k] = MINUS_INFINITY;
        columns->sum[k] = 0.0f;
    }
}

/* A query whose last products are under way: the next one's Q, the statistics, and then the output,
 * by way of the last block's tiles. */
DEVICE void finish_query(const struct sparse_attn_fwd_params *params, int query, int next,
                         const struct softmax_columns *columns, float *o, const struct block_at *at,
                         const struct math_thread *me) {
    const int thread = (int)(threadIdx.x % WARPGROUP);
    if (next >= 0) {
        load_query(params, next, me);
    }
    share_statistics(columns, params->max_logits, at->first, me);
    if (thread < BLOCK_HEADS) {
        finish_head(params, query, thread, at->first, me);
    }
    wgmma_wait_0();
    give_back(at, PARTS - 1);
    group_sync(me);
    finish_output(o, at->first, me);
    store_output(params, query, at->first);
#pragma unroll
    for (int part = 0; part < PARTS / 2; ++part) {
        give_back(at, part);
    }
    if (HAS_ROPE) {
        give_back(at, ROPE_PART);
    }
}

/* One of the two math warpgroups. */
DEVICE void run_math(const struct sparse_attn_fwd_params *params, int group) {
    registers_increase(MATH_REGISTERS);
    const struct math_thread me = {group, (int)(threadIdx.x % WARPGROUP / 32),
                                   (int)(threadIdx.x % 32), (int)(threadIdx.x % 4 * 2)};
    struct block_at at = {group, group * TILES};
    u32 parities = 0;
    int query_parity = 0;
    struct work first = first_work(&params->work);
    if (group == 1) {
        first = work_after(params, &first);
    }
    int query = first.query;
    if (query >= 0) {
        load_query(params, query, &me);
    }
    while (query >= 0) {
        struct softmax_columns columns;
        float o[OUTPUT_VALUES];
        mbarrier_wait(barrier_at(QUERY_FULL + group), query_parity);
        query_parity ^= 1;
        begin_query(&columns);
        const struct block_word last = compute_blocks(params, &columns, o, &at, &parities, &me);
        finish_query(params, query, last.next, &columns, o, &at, &me);
        at = block_after(&at, last.word);
        query = last.next;
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct sparse_attn_fwd_params params) {
    begin_grid(&params.work);
    initialise();
    const int warpgroup = (int)warp_reduce_or(threadIdx.x / WARPGROUP);
    if (warpgroup < GATHER_WARPGROUP) {
        run_math(&params, warpgroup);
    } else {
        run_gather(&params);
    }
    end_grid(&params.work);
}
