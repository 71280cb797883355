/*
 * Written by smelt; do not edit. To write it again:
 *   smelt emit indexer_scores_fwd:heads=64,dim=128 --arch sm_90a
 *
 * spec     indexer_scores_fwd:heads=64,dim=128
 * arch     sm_90a
 * variant  sm90
 * kernel   smelt_indexer_scores_fwd_sm90_h64_d128
 * knobs (by the spec, or by rule)
 *   GROUPS                           4  rule     warpgroups that compute
 *   STAGES                           3  rule     blocks of keys in flight, of each
 *   RACECHECK                        0  rule     1: every lane of a warp arrives at barriers
 *   BLOCK_KEYS                      64  rule     slots of a block
 *   BLOCKS_PER_MULTIPROCESSOR        1  rule     resident at once, at least
 * shared memory (offset, bytes)
 *   KEYS_OFFSET                      0   196608  rings of blocks of keys
 *   QUERY_OFFSET                196608    32768  heads of two queries
 *   WEIGHTS_OFFSET              229376      512  weights of their heads, fp32
 *   WORDS_OFFSET                229888      192  what each block is
 *   BARRIERS_OFFSET             230080      224  mbarriers
 *   SHARED_BYTES                230304  of 232448 that a block may have on sm_90a
 * launch
 *   640 threads a block, 1 block resident per multiprocessor, at most 96 registers a thread
 *   grid: 1 block a query, but no more than are resident at once
 *   persistent: in a grid-stride loop a block does the work of several
 */

enum {
    HEADS = 64,                     /* indexer heads */
    DIM = 128,                      /* width of a head and of a key, elements */
    BLOCK_HEADS = 64,               /* heads, in eights */
    GROUPS = 4,                     /* warpgroups that compute */
    STAGES = 3,                     /* blocks of keys in flight, of each */
    RACECHECK = 0,                  /* 1: every lane of a warp arrives at barriers */
    BLOCK_KEYS = 64,                /* slots of a block */
    ROW_TILES = 2,                  /* tiles of 64 columns */
    MATH_REGISTERS = 104,           /* of a thread that computes */
    GATHER_REGISTERS = 56,          /* of a thread that gathers */
    THREADS = 640,                  /* of a thread block */
    BLOCKS_PER_MULTIPROCESSOR = 1,  /* resident at once, at least */
};

/* Shared memory, in bytes from the arena's start. */
enum {
    KEYS_OFFSET = 0,                /* rings of blocks of keys */
    QUERY_OFFSET = 196608,          /* heads of two queries */
    WEIGHTS_OFFSET = 229376,        /* weights of their heads, fp32 */
    WORDS_OFFSET = 229888,          /* what each block is */
    BARRIERS_OFFSET = 230080,       /* mbarriers */
    SHARED_BYTES = 230304,          /* the arena's size */
};

#define KERNEL_NAME smelt_indexer_scores_fwd_sm90_h64_d128

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

#line 2 "templates/ptx/maximum.cuh"

/* The larger; NaN when one of them is (PTX ISA, "max", .NaN). */
DEVICE float maximum_nan(float x, float y) {
    float z;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
    return z;
}

#line 3 "templates/common/logit.cuh"
/*
 * The indexer's logits and windows, the same in every kernel (include/smelt/indexer_logits.h).
 */

#define LOWEST_LOGIT (-__int_as_float(0x7f800000))

/* A logit as it is written: +0 for -0, -inf for NaN. */
DEVICE float canonical_logit(float logit) {
    return fmaxf(logit, LOWEST_LOGIT) + 0.0f;
}

/* weight * max(0, product) added to a sum; NaN stays. */
DEVICE float add_head(float sum, float weight, float product) {
    return fmaf(weight, maximum_nan(product, 0.0f), sum);
}

/* Whether a window has at least so many of `rows` keys. */
DEVICE bool has_keys(int window_begin, int window_end, int rows, int least) {
    return minimum(maximum(window_end, 0), rows) - maximum(window_begin, 0) >= least;
}

/* A query's window among `keys` keys from number `first` on, relative to that; empty when it does
 * not begin before its end. first + keys <= rows. */
struct key_range {
    int begin, end;
};

DEVICE struct key_range window_among(int window_begin, int window_end, int first, int keys) {
    const struct key_range range = {maximum(maximum(window_begin, 0) - first, 0),
                                    minimum(maximum(window_end, 0) - first, keys)};
    return range;
}

#line 2 "templates/common/quad_sum.cuh"

/* The sums over a quad (four neighbouring threads of a warp): of x in its even lanes, of y in its
 * odd ones; in a fixed order. */
DEVICE float quad_sum_pair(float x, float y) {
    const bool odd = threadIdx.x & 1;
    float sum = odd ? y : x;
    sum += __shfl_xor_sync(0xffffffffu, odd ? x : y, 1);
    return sum + __shfl_xor_sync(0xffffffffu, sum, 2);
}

#line 2 "templates/indexer_scores_fwd.params.h"
/*
 * Arguments of the indexer_scores_fwd kernels, every variant. Included by the host code (behind
 * common/work.params.h) and, by the generator, by the CUDA source: plain C types only. Strides
 * count elements. See include/smelt/indexer_scores.h for what the tensors hold.
 */
struct indexer_scores_fwd_params {
    struct work_params work; /* one batch, no query list */
    const void *q;           /* [tokens, HEADS, DIM] bf16 */
    const void *k;           /* [rows, DIM] bf16 */
    const float *weights;    /* [tokens, HEADS] */
    float *logits;           /* [tokens, width] */
    long long q_token_stride, q_head_stride;
    long long weights_token_stride;
    long long logits_token_stride;
    unsigned k_row_bytes; /* from one key to the next */
};

#line 5 "templates/indexer_scores_fwd.heads.cuh"
/*
 * From products to logits, the same in every variant of indexer_scores_fwd. Products are of slots
 * by heads, and lie as mma.sync and wgmma leave them: a thread's rows are g and g + 8 of 16 slots,
 * its columns two of every eight heads, 2 * c and the next; g = lane / 4, c = lane % 4. So a thread
 * adds up its heads by itself, in ascending order, and then a quad's four threads meet.
 */

enum { EIGHTS = BLOCK_HEADS / 8 };

/* A thread's first head of each eight. */
DEVICE int thread_head(void) {
    return (int)(threadIdx.x % 4 * 2);
}

/* Adds the products with eight heads from number `first` on: `sums` and `d` of row g, then of row
 * g + 8. Columns past the last head are nobody's. */
DEVICE void add_eight(float *sums, const float *d, const float *weights, int first) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        if (HEADS % 8 == 0 || first + thread_head() + i < HEADS) {
            sums[0] = add_head(sums[0], weights[i], d[i]);
            sums[1] = add_head(sums[1], weights[i], d[2 + i]);
        }
    }
}

/* Which of its 16 slots' logits a lane writes; the upper half of each quad writes none. */
enum { NO_SLOT = 1 << 30 };

DEVICE int written_slot(void) {
    const int lane = (int)(threadIdx.x % 32);
    return lane % 4 < 2 ? lane / 4 + lane % 2 * 8 : NO_SLOT;
}

/* Writes a lane's logit to its slot of a query's row, -inf where it is masked. `sums`: this
 * thread's two. By the whole warp. */
DEVICE void write_logit(float *row, int slot, int width, const float *sums, bool valid) {
    const float logit = canonical_logit(quad_sum_pair(sums[0], sums[1]));
    if (slot < width) {
        row[slot] = valid ? logit : LOWEST_LOGIT;
    }
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

#line 2 "templates/ptx/proxy.cuh"

/* Orders this thread's plain accesses to shared memory, and those it knows of, before what the
 * async proxy (wgmma, bulk and tensor copies) does next on its behalf, and the other way round
 * (PTX ISA, "membar / fence", fence.proxy.async). */
DEVICE void fence_proxy_async(void) {
    asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
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

#line 2 "templates/ptx/warp.cuh"

/* The bitwise or of all 32 lanes' values, the same in every lane and known to the compiler as such
 * (PTX ISA, "redux.sync"): also to say that a value all lanes share is uniform. */
DEVICE u32 warp_reduce_or(u32 value) {
    u32 all;
    asm volatile("redux.sync.or.b32 %0, %1, 0xffffffff;" : "=r"(all) : "r"(value));
    return all;
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

#line 17 "templates/indexer_scores_fwd.sm90.cu"
/*
 * The lightning indexer's logits at the selected slots, with wgmma. Mathematics and shapes:
 * include/smelt/indexer_scores.h.
 *
 * Grid: one block a multiprocessor, each taking every gridDim.x-th query. A query's slots are taken
 * in blocks of BLOCK_KEYS, which go round GROUPS pairs of a warp and a warpgroup, from one query to
 * the next beginning with the next pair, so that short queries are everybody's:
 *
 *   math    GROUPS warpgroups: of each part of 64 slots X[64, BLOCK_HEADS] = K[64, DIM]
 * Q[BLOCK_HEADS, DIM]^T, then max(0, X) added up by weights, along a thread's own columns gather
 * one more warpgroup, a warp for each of math: looks at its blocks' slots, copies their keys as far
 * ahead as its ring has room, and its share of each query's heads and weights. It writes the -inf
 * of blocks without a valid slot by itself; but the first block of a query is handed on in any
 * case, so that each warpgroup of math meets each query
 *
 * What binds is the gather: a key's 256 bytes out of L2, then through shared memory. The pairs are
 * in step by the queries alone, at most one apart: while one waits for its products, or adds up,
 * others' are under way. (Two products under way in a warpgroup ptxas serialises.)
 *
 * Shared memory (offsets and sizes: the plan above):
 *   KEYS    [GROUPS][STAGES] blocks: for each part ROW_TILES tiles of 64 rows of 128 bytes,
 * 128-byte swizzled QUERY   [QUERIES][ROW_TILES] tiles of BLOCK_HEADS rows, likewise. Past the last
 * head stands the last one's row: nothing comes of it WEIGHTS [QUERIES][BLOCK_HEADS] fp32, likewise
 *   WORDS   [GROUPS][STAGES]: struct block_word
 *
 * Barriers (parity counts uses; g: a pair):
 *   barrier         count        who arrives                                who waits
 *   FULL[g][stage]  32+1         gather: every lane when its copies have    its warpgroup of math
 *                                landed, and one for the word
 *   EMPTY[g][stage] 4            math: every warp when its products are     its gather warp
 *                                done
 *   QUERY_FULL[q]   GROUPS*32    gather: every lane when its copies have    math
 *                   + GROUPS     landed; every warp for its weights
 *   QUERY_EMPTY[q]  GROUPS*4     math: every warp, when it comes to the     gather
 *                                next query
 * (Counts are of warps where warps arrive: common/warp_arrival.cuh.)
 *
 * Knobs: GROUPS, BLOCK_KEYS, STAGES: src/codegen/families/indexer_scores_fwd_sm90.c.
 */

enum {
    ALL_LANES = -1,
    MASKED = -1,
    WARPGROUP = 128, /* threads */
    BLOCKS = GROUPS * STAGES,
    STEP_SLOTS = GROUPS * BLOCK_KEYS, /* from a pair's block of a query to its next */
    QUERIES = 2,                      /* in shared memory */
    TILE_PITCH = 128,                 /* bytes of a row, 64 columns */
    PART_KEYS = 64,                   /* wgmma's rows */
    PARTS = BLOCK_KEYS / PART_KEYS,   /* of a block, a product each */
    VOTES = BLOCK_KEYS / 32,
    TILE_BYTES = PART_KEYS * TILE_PITCH,
    PART_BYTES = ROW_TILES * TILE_BYTES,
    BLOCK_BYTES = PARTS * PART_BYTES,
    QUERY_TILE_BYTES = BLOCK_HEADS * TILE_PITCH,
    QUERY_BYTES = ROW_TILES * QUERY_TILE_BYTES,
    EIGHT = 8,                       /* rows of an atom, lanes of a row's 128 bytes */
    ATOM_BYTES = EIGHT * TILE_PITCH, /* of a tile */
    STEP_BYTES = 32,                 /* 16 columns of a row: a k-step */
    VALUES = BLOCK_HEADS / 2,        /* of a thread: X of a block */
    NO_QUERY = -1
};

/* Places in BARRIERS. */
enum {
    FULL = 0,
    EMPTY = FULL + BLOCKS,
    QUERY_FULL = EMPTY + BLOCKS,
    QUERY_EMPTY = QUERY_FULL + QUERIES
};

DEVICE u32 barrier_at(int number) {
    return shared_address((u32)(BARRIERS_OFFSET + number * 8));
}

/* What a block is. */
struct __align__(16) block_word {
    int query;        /* NO_QUERY: there are no more blocks */
    int first;        /* its first slot */
    u32 votes[VOTES]; /* which slots are valid, a bit each */
};

DEVICE struct block_word *block_word(int block) {
    return (struct block_word *)(arena + WORDS_OFFSET) + block;
}

DEVICE float *query_weights(int buffer) {
    return (float *)(arena + WEIGHTS_OFFSET) + buffer * BLOCK_HEADS;
}

DEVICE void initialise(void) {
    if (threadIdx.x == 0) {
        for (int block = 0; block < BLOCKS; ++block) {
            mbarrier_init(barrier_at(FULL + block), 32 + 1);
            mbarrier_init(barrier_at(EMPTY + block), 4 * WARP_ARRIVALS);
        }
        for (int buffer = 0; buffer < QUERIES; ++buffer) {
            mbarrier_init(barrier_at(QUERY_FULL + buffer), GROUPS * (32 + WARP_ARRIVALS));
            mbarrier_init(barrier_at(QUERY_EMPTY + buffer), GROUPS * 4 * WARP_ARRIVALS);
        }
    }
    __syncthreads();
}

/* A lane's value by way of itself: the compiler keeps it, and does not compute it anew for each
 * block. By the whole warp. */
DEVICE u32 keep(u32 value) {
    return __shfl_sync((u32)ALL_LANES, value, (int)(threadIdx.x % 32));
}

/* ---- gather: slots --------------------------------------------------------------------------- */

/* A query's index row. */
struct slot_row {
    const int *row;
    int slots; /* how many there are to look at */
};

/* A block's slots, by lane: slots lane and lane + 32 of it. */
struct slot_block {
    int values[VOTES]; /* rows' numbers; what stands in a masked slot is any number before
                      vote_block, MASKED after */
    u32 votes[VOTES];  /* after vote_block: a bit for each valid slot */
};

DEVICE struct slot_row open_row(const struct work_params *params, int query) {
    const struct slot_row opened = {index_row(params, query), index_slots(params, query, query)};
    return opened;
}

/* A pair's first slot of the block's query number `turn`. */
DEVICE int first_slot(int group, int turn) {
    return (group + turn) % GROUPS * BLOCK_KEYS;
}

/* Starts loading the block that begins at slot `first`. */
DEVICE void load_block(struct slot_block *block, const struct slot_row *row, int first) {
#pragma unroll
    for (int i = 0; i < VOTES; ++i) {
        const int slot = first + i * 32 + (int)(threadIdx.x % 32);
        block->values[i] = slot < row->slots ? row->row[slot] : MASKED;
    }
}

/* Finds out which slots are valid, of `rows` rows; whether any is. */
DEVICE bool vote_block(struct slot_block *block, int rows) {
    u32 any = 0;
#pragma unroll
    for (int i = 0; i < VOTES; ++i) {
        const bool valid = block->values[i] >= 0 && block->values[i] < rows;
        block->values[i] = valid ? block->values[i] : MASKED;
        block->votes[i] = __ballot_sync((u32)ALL_LANES, valid);
        any |= block->votes[i];
    }
    return any != 0;
}

/* A block without a valid slot. */
DEVICE void fill_block(const struct indexer_scores_fwd_params *params, int query, int first) {
#pragma unroll
    for (int i = 0; i < VOTES; ++i) {
        const int slot = first + i * 32 + (int)(threadIdx.x % 32);
        if (slot < params->work.width) {
            params->logits[query * params->logits_token_stride + slot] = LOWEST_LOGIT;
        }
    }
}

/* ---- gather: copies -------------------------------------------------------------------------- */

/* Starts the copies of a block's keys to `to`: eight lanes 128 bytes of a row, those of four rows
 * that are eight apart at once; zeros for a masked slot, and nothing is read for it. `columns`: the
 * lane's of the first key. */
DEVICE void copy_keys(const struct slot_block *block, u32 to, const char *columns, u32 row_bytes) {
    const u32 lane = threadIdx.x % 32, place = to + lane / 8 * ATOM_BYTES + lane % 8 * 16;
#pragma unroll
    for (int i = 0; i < VOTES * EIGHT; ++i) {
        /* Row i % 8 of its eight, in the lower or the upper half of the block. */
        const int number = __shfl_sync((u32)ALL_LANES, block->values[i / EIGHT], i % EIGHT, EIGHT);
        const char *const source = columns + (u64)(u32)number * row_bytes;
        const u32 row = (place ^ (u32)(i % EIGHT * 16)) +
                        (u32)(i / EIGHT / 2 * PART_BYTES + i / EIGHT % 2 * (TILE_BYTES / 2) +
                              i % EIGHT * TILE_PITCH);
#pragma unroll
        for (int tile = 0; tile < ROW_TILES; ++tile) {
            cp_async_16(row + (u32)(tile * TILE_BYTES), source + tile * TILE_PITCH,
                        number == MASKED ? 0 : 16);
        }
    }
}

/* Starts the copy of the warp's share of a query's heads into its buffer, and stores its share of
 * the weights. */
DEVICE void load_query(const struct indexer_scores_fwd_params *params, int query, int group,
                       struct ring_place *place) {
    enum { CHUNKS = DIM / 8, LOADERS = GROUPS * 32 };
    const int loader = group * 32 + (int)(threadIdx.x % 32), full = QUERY_FULL + place->index;
    const u32 to = shared_address((u32)(QUERY_OFFSET + place->index * QUERY_BYTES));
    mbarrier_wait(barrier_at(QUERY_EMPTY + place->index), place->parity ^ 1);
    for (int head = loader; head < BLOCK_HEADS; head += LOADERS) {
        query_weights(place->index)[head] =
            params->weights[query * params->weights_token_stride + minimum(head, HEADS - 1)];
    }
#pragma unroll 1
    for (int i = loader; i < BLOCK_HEADS * CHUNKS; i += LOADERS) {
        const int head = i / CHUNKS, chunk = i % CHUNKS;
        const char *const row =
            (const char *)params->q +
            2 * (query * params->q_token_stride + minimum(head, HEADS - 1) * params->q_head_stride);
        cp_async_16(to + (u32)(chunk / 8 * QUERY_TILE_BYTES + head * TILE_PITCH +
                               ((chunk ^ head) & 7) * 16),
                    row + chunk * 16, 16);
    }
    cp_async_arrive_noinc(barrier_at(full));
    arrive_warp(barrier_at(full), 1);
    ring_advance(place, QUERIES);
}

/* Hands a block to the warpgroup of math, and copies its keys. `columns`: as copy_keys has them. */
DEVICE void push_block(const struct indexer_scores_fwd_params *params,
                       const struct slot_block *block, bool any, const char *columns, int query,
                       int first, int group, struct ring_place *place) {
    const int number = group * STAGES + place->index;
    mbarrier_wait(barrier_at(EMPTY + number), place->parity ^ 1);
    if (threadIdx.x % 32 == 0) {
        struct block_word *const word = block_word(number);
        word->query = query;
        word->first = first;
#pragma unroll
        for (int i = 0; i < VOTES; ++i) {
            word->votes[i] = block->votes[i];
        }
        mbarrier_arrive(barrier_at(FULL + number));
    }
    if (any) {
        copy_keys(block, shared_address((u32)(KEYS_OFFSET + number * BLOCK_BYTES)), columns,
                  params->k_row_bytes);
    }
    cp_async_arrive_noinc(barrier_at(FULL + number));
    ring_advance(place, STAGES);
}

/* A warp of the gather's warpgroup. The next block's slots are loaded while one is copied. */
DEVICE void run_gather(const struct indexer_scores_fwd_params *params, int group) {
    const struct work_params *const work = &params->work;
    const u64 first_key = (u64)params->k + threadIdx.x % 8 * 16;
    const char *const columns =
        (const char *)((u64)keep((u32)(first_key >> 32)) << 32 | keep((u32)first_key));
    struct ring_place place = {0, 0}, query_place = {0, 0};
    struct slot_row row = open_row(work, (int)blockIdx.x);
    struct slot_block ahead;
    int turn = 0;
    load_block(&ahead, &row, first_slot(group, turn));
#pragma unroll 1
    for (u32 query = blockIdx.x; query < (u32)work->tokens; query += gridDim.x, ++turn) {
        const int begin = first_slot(group, turn);
        load_query(params, (int)query, group, &query_place);
#pragma unroll 1
        for (int first = begin; first == begin || first < work->width; first += STEP_SLOTS) {
            struct slot_block block = ahead;
            const bool any = vote_block(&block, work->rows);
            if (first + STEP_SLOTS < work->width) {
                load_block(&ahead, &row, first + STEP_SLOTS);
            } else if (query + gridDim.x < (u32)work->tokens) {
                row = open_row(work, (int)(query + gridDim.x));
                load_block(&ahead, &row, first_slot(group, turn + 1));
            }
            if (any || first == begin) {
                push_block(params, &block, any, columns, (int)query, first, group, &place);
            } else {
                fill_block(params, (int)query, first);
            }
        }
    }
    push_block(params, &ahead, false, columns, NO_QUERY, 0, group, &place);
    cp_async_wait_all();
}

/* ---- math ------------------------------------------------------------------------------------ */

/* The product's shape: as many columns as heads. */
// clang-format off
#line 300 "templates/indexer_scores_fwd.sm90.cu"
#define multiply wgmma_ss_n64_t00
#line 302 "templates/indexer_scores_fwd.sm90.cu"
// clang-format on

/* A query's last block's, as a warpgroup of math has it. */
struct math {
    int query;               /* or NO_QUERY: there was none */
    struct ring_place heads; /* of the next query */
    u64 descriptor;          /* of this one's heads */
    float weights[EIGHTS][2];
    float *logits; /* its row */
};

DEVICE u64 tiles_descriptor(u32 offset) {
    return shared_descriptor(shared_address(offset), 16, ATOM_BYTES, 128);
}

/* Gives back the query before, if there was one, waits for a block's and takes its weights. */
DEVICE void begin_query(const struct indexer_scores_fwd_params *params, struct math *math,
                        int query) {
    const int buffer = (int)warp_reduce_or((u32)math->heads.index); /* one for the warp */
    if (math->query != NO_QUERY) {
        arrive_warp(barrier_at(QUERY_EMPTY + (buffer ^ 1)), 1);
    }
    mbarrier_wait(barrier_at(QUERY_FULL + buffer), math->heads.parity);
    math->query = query;
    math->descriptor = tiles_descriptor((u32)(QUERY_OFFSET + buffer * QUERY_BYTES));
    math->logits = params->logits + query * params->logits_token_stride;
#pragma unroll
    for (int i = 0; i < EIGHTS; ++i) {
        const float *const pair = query_weights(buffer) + i * 8 + thread_head();
        math->weights[i][0] = pair[0];
        math->weights[i][1] = pair[1];
    }
    ring_advance(&math->heads, QUERIES);
}

/* Issues X = K Q^T of a part of a block. */
DEVICE void issue_part(float *x, int number, int part, u64 b) {
    const u64 a = tiles_descriptor((u32)(KEYS_OFFSET + number * BLOCK_BYTES + part * PART_BYTES));
#pragma unroll
    for (int step = 0; step < ROW_TILES * 4; ++step) {
        const int tile = step / 4, columns = step % 4 * STEP_BYTES;
        multiply(x, descriptor_advance(a, (u32)(tile * TILE_BYTES + columns)),
                 descriptor_advance(b, (u32)(tile * QUERY_TILE_BYTES + columns)), step > 0);
    }
    wgmma_commit();
}

DEVICE void add_part(float *sums, const float *x, const struct math *math) {
#pragma unroll
    for (int i = 0; i < EIGHTS; ++i) {
        add_eight(sums, &x[i * 4], math->weights[i], i * 8);
    }
}

/* X of a block, in parts, and its heads added up: one part's while the next one's are multiplied.
 */
DEVICE void multiply_block(float (*sums)[2], const struct math *math, int number) {
    float x[PARTS][VALUES];
    fence_proxy_async();
    wgmma_fence();
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
        issue_part(x[part], number, part, math->descriptor);
    }
    if (PARTS > 1) {
        wgmma_wait_1();
        add_part(sums[0], x[0], math);
    }
    wgmma_wait_0();
    arrive_warp(barrier_at(EMPTY + number), 1);
    add_part(sums[PARTS - 1], x[PARTS - 1], math);
}

/* The logits of a block. `offset`: in a part, the slot that the lane writes. */
DEVICE void compute_block(const struct indexer_scores_fwd_params *params, const struct math *math,
                          int number, int offset) {
    const bool lower = threadIdx.x % WARPGROUP < WARPGROUP / 2; /* half of each part's slots */
    const struct block_word *const word = block_word(number);
    const int first = word->first;
    float sums[PARTS][2];
    u32 votes[PARTS], any = 0; /* votes: of the warp's half */
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
        const u32 low = word->votes[2 * part], high = word->votes[2 * part + 1];
        sums[part][0] = sums[part][1] = 0.0f;
        votes[part] = lower ? low : high;
        any |= low | high;
    }
    if (any != 0) {
        multiply_block(sums, math, number);
    } else {
        arrive_warp(barrier_at(EMPTY + number), 1);
    }
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
        write_logit(math->logits, first + part * PART_KEYS + offset, params->work.width, sums[part],
                    votes[part] >> offset % 32 & 1);
    }
}

/* A warpgroup of math. */
DEVICE void run_math(const struct indexer_scores_fwd_params *params, int group) {
    const int warp = (int)(threadIdx.x % WARPGROUP / 32);
    const int offset = (int)keep((u32)(warp * 16 + written_slot()));
    struct ring_place place = {0, 0};
    struct math math = {NO_QUERY, {0, 0}, 0, {{0.0f, 0.0f}}, params->logits};
    for (;;) {
        const int number = group * STAGES + place.index;
        mbarrier_wait(barrier_at(FULL + number), place.parity);
        const int query = block_word(number)->query;
        if (query == NO_QUERY) {
            return;
        }
        if (query != math.query) {
            begin_query(params, &math, query);
        }
        compute_block(params, &math, number, offset);
        ring_advance(&place, STAGES);
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct indexer_scores_fwd_params params) {
    initialise();
    const int warp = (int)warp_reduce_or(threadIdx.x / 32), warpgroup = warp / 4;
    if (warpgroup < GROUPS) {
        registers_increase(MATH_REGISTERS);
        run_math(&params, warpgroup);
    } else {
        registers_decrease(GATHER_REGISTERS);
        if (warp % 4 < GROUPS) {
            run_gather(&params, warp % 4);
        }
    }
}
