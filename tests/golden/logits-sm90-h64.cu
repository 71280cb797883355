/*
 * Written by smelt; do not edit. To write it again:
 *   smelt emit indexer_logits_fwd:heads=64,dim=128,dtype=fp8 --arch sm_90a
 *
 * spec     indexer_logits_fwd:heads=64,dim=128,dtype=fp8
 * arch     sm_90a
 * variant  sm90
 * kernel   smelt_indexer_logits_fwd_sm90_h64_d128_fp8
 * knobs (by the spec, or by rule)
 *   GROUPS                           3  rule     warpgroups that compute
 *   PART_COLUMNS                   128  rule     columns of a product
 *   RACECHECK                        0  rule     1: every lane of a warp arrives at barriers
 *   BLOCKS_PER_MULTIPROCESSOR        1  rule     resident at once, at least
 * shared memory (offset, bytes)
 *   QUERIES_OFFSET                   0    98304  buffers: a block's queries
 *   KEYS_OFFSET                  98304    98304  stages: slabs of keys
 *   LOWEST_OFFSET               196608     8192  -inf, to fill with
 *   WEIGHTS_OFFSET              204800     3072  buffers: a block's weights
 *   WINDOWS_OFFSET              207872       96  buffers: a block's windows
 *   RUNS_OFFSET                 207968       72  buffers: which slabs of the block
 *   COSTS_OFFSET                208048     2592  of groups of batches, while the run is found
 *   STAGING_OFFSET              210640        0  warpgroups: a part's logits on their way to whole lines
 *   BARRIERS_OFFSET             210640      240  mbarriers
 *   SHARED_BYTES                210880  of 232448 that a block may have on sm_90a
 * launch
 *   512 threads a block, 1 block resident per multiprocessor, at most 128 registers a thread
 *   grid: 1 block a tile, but no more than are resident at once
 *   persistent: a block does the work of several, one contiguous run
 */

enum {
    HEADS = 64,                     /* indexer heads */
    DIM = 128,                      /* width of a head and of a key, elements */
    FP8 = 1,                        /* 1: e4m3 and scales of the keys; 0: bf16 */
    GROUPS = 3,                     /* warpgroups that compute */
    PART_COLUMNS = 128,             /* columns of a product */
    RACECHECK = 0,                  /* 1: every lane of a warp arrives at barriers */
    STAGES = 12,                    /* slabs of keys in flight */
    QUERY_BUFFERS = 3,              /* blocks whose queries are in flight */
    PADDED_HEADS = 64,              /* columns of a query */
    BLOCK_QUERIES = 4,              /* queries of a block */
    BLOCK_KEYS = 64,                /* keys of a slab */
    BLOCK_START = 5,                /* what a block costs before its first slab, in slabs */
    MOST_WEIGHTS = 64,              /* weights that a thread keeps */
    SCALES_AHEAD = 1,               /* 1: keys' scales are loaded a slab ahead; with 17 to 32 heads that was slower */
    STAGES_LOGITS = 0,              /* 1: logits go to memory by whole lines, through shared memory */
    STAGED_ROW = 72,                /* fp32 of a query's logits there */
    COARSE = 256,                   /* groups of batches whose costs are kept */
    TOGETHER = 4,                   /* batches whose windows are loaded at once */
    ROW_BYTES = 128,                /* of a key, and of a head of a query */
    SWIZZLE = 128,                  /* bytes of a row in shared memory */
    FILL_BYTES = 8192,              /* of -inf, one bulk store */
    MATH_REGISTERS = 152,           /* of a thread that computes */
    OTHER_REGISTERS = 56,           /* of a thread that loads or fills */
    TENSOR_MAPS = 1,                /* 1: q and k come by the copy engine */
    MAP_QUERIES = 4,                /* queries of a box */
    MAP_HEADS = 2,                  /* heads of a box, or of a pair */
    MAP_PAIRS = 32,                 /* pairs of heads of a box; 0: boxes know of no pairs */
    MAP_KEYS = 64,                  /* keys of a box */
    THREADS = 512,                  /* of a thread block */
    BLOCKS_PER_MULTIPROCESSOR = 1,  /* resident at once, at least */
};

/* Shared memory, in bytes from the arena's start. */
enum {
    QUERIES_OFFSET = 0,             /* buffers: a block's queries */
    KEYS_OFFSET = 98304,            /* stages: slabs of keys */
    LOWEST_OFFSET = 196608,         /* -inf, to fill with */
    WEIGHTS_OFFSET = 204800,        /* buffers: a block's weights */
    WINDOWS_OFFSET = 207872,        /* buffers: a block's windows */
    RUNS_OFFSET = 207968,           /* buffers: which slabs of the block */
    COSTS_OFFSET = 208048,          /* of groups of batches, while the run is found */
    STAGING_OFFSET = 210640,        /* warpgroups: a part's logits on their way to whole lines */
    BARRIERS_OFFSET = 210640,       /* mbarriers */
    SHARED_BYTES = 210880,          /* the arena's size */
};

#define KERNEL_NAME smelt_indexer_logits_fwd_sm90_h64_d128_fp8

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

#line 4 "templates/ptx/wgmma_fp8_ss.cuh"

/* d = a * b, or d += a * b when `accumulate`: 64 x 128, depth 32, e4m3 in, fp32 accumulation, by
 * one warpgroup; a and b: common/descriptor.cuh, K-major; d as in ptx/wgmma_ss.cuh (PTX ISA,
 * "wgmma.mma_async"). */
// clang-format off
DEVICE void wgmma_fp8_ss_n128(float *d, u64 a, u64 b, int accumulate) {
    asm volatile("{.reg .pred p;\n\t"
                 "setp.ne.s32 p, %66, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {"
#line 14 "templates/ptx/wgmma_fp8_ss.cuh"
                 "%0, %1, %2, %3, "
#line 14 "templates/ptx/wgmma_fp8_ss.cuh"
                 "%4, %5, %6, %7, "
#line 14 "templates/ptx/wgmma_fp8_ss.cuh"
                 "%8, %9, %10, %11, "
#line 14 "templates/ptx/wgmma_fp8_ss.cuh"
                 "%12, %13, %14, %15, "
#line 14 "templates/ptx/wgmma_fp8_ss.cuh"
                 "%16, %17, %18, %19, "
#line 14 "templates/ptx/wgmma_fp8_ss.cuh"
                 "%20, %21, %22, %23, "
#line 14 "templates/ptx/wgmma_fp8_ss.cuh"
                 "%24, %25, %26, %27, "
#line 14 "templates/ptx/wgmma_fp8_ss.cuh"
                 "%28, %29, %30, %31, "
#line 14 "templates/ptx/wgmma_fp8_ss.cuh"
                 "%32, %33, %34, %35, "
#line 14 "templates/ptx/wgmma_fp8_ss.cuh"
                 "%36, %37, %38, %39, "
#line 14 "templates/ptx/wgmma_fp8_ss.cuh"
                 "%40, %41, %42, %43, "
#line 14 "templates/ptx/wgmma_fp8_ss.cuh"
                 "%44, %45, %46, %47, "
#line 14 "templates/ptx/wgmma_fp8_ss.cuh"
                 "%48, %49, %50, %51, "
#line 14 "templates/ptx/wgmma_fp8_ss.cuh"
                 "%52, %53, %54, %55, "
#line 14 "templates/ptx/wgmma_fp8_ss.cuh"
                 "%56, %57, %58, %59, "
#line 16 "templates/ptx/wgmma_fp8_ss.cuh"
                 "%60, %61, %62, %63}, "
                 "%64, %65, p, 1, 1;}"
                 :
#line 20 "templates/ptx/wgmma_fp8_ss.cuh"
                 "+f"(d[0]), "+f"(d[1]),
                 "+f"(d[2]), "+f"(d[3]),
#line 20 "templates/ptx/wgmma_fp8_ss.cuh"
                 "+f"(d[4]), "+f"(d[5]),
                 "+f"(d[6]), "+f"(d[7]),
#line 20 "templates/ptx/wgmma_fp8_ss.cuh"
                 "+f"(d[8]), "+f"(d[9]),
                 "+f"(d[10]), "+f"(d[11]),
#line 20 "templates/ptx/wgmma_fp8_ss.cuh"
                 "+f"(d[12]), "+f"(d[13]),
                 "+f"(d[14]), "+f"(d[15]),
#line 20 "templates/ptx/wgmma_fp8_ss.cuh"
                 "+f"(d[16]), "+f"(d[17]),
                 "+f"(d[18]), "+f"(d[19]),
#line 20 "templates/ptx/wgmma_fp8_ss.cuh"
                 "+f"(d[20]), "+f"(d[21]),
                 "+f"(d[22]), "+f"(d[23]),
#line 20 "templates/ptx/wgmma_fp8_ss.cuh"
                 "+f"(d[24]), "+f"(d[25]),
                 "+f"(d[26]), "+f"(d[27]),
#line 20 "templates/ptx/wgmma_fp8_ss.cuh"
                 "+f"(d[28]), "+f"(d[29]),
                 "+f"(d[30]), "+f"(d[31]),
#line 20 "templates/ptx/wgmma_fp8_ss.cuh"
                 "+f"(d[32]), "+f"(d[33]),
                 "+f"(d[34]), "+f"(d[35]),
#line 20 "templates/ptx/wgmma_fp8_ss.cuh"
                 "+f"(d[36]), "+f"(d[37]),
                 "+f"(d[38]), "+f"(d[39]),
#line 20 "templates/ptx/wgmma_fp8_ss.cuh"
                 "+f"(d[40]), "+f"(d[41]),
                 "+f"(d[42]), "+f"(d[43]),
#line 20 "templates/ptx/wgmma_fp8_ss.cuh"
                 "+f"(d[44]), "+f"(d[45]),
                 "+f"(d[46]), "+f"(d[47]),
#line 20 "templates/ptx/wgmma_fp8_ss.cuh"
                 "+f"(d[48]), "+f"(d[49]),
                 "+f"(d[50]), "+f"(d[51]),
#line 20 "templates/ptx/wgmma_fp8_ss.cuh"
                 "+f"(d[52]), "+f"(d[53]),
                 "+f"(d[54]), "+f"(d[55]),
#line 20 "templates/ptx/wgmma_fp8_ss.cuh"
                 "+f"(d[56]), "+f"(d[57]),
                 "+f"(d[58]), "+f"(d[59]),
#line 23 "templates/ptx/wgmma_fp8_ss.cuh"
                 "+f"(d[60]), "+f"(d[61]),
                 "+f"(d[62]), "+f"(d[63])
                 : "l"(a), "l"(b), "r"(accumulate));
}
// clang-format on

#line 4 "templates/ptx/wgmma_ss.cuh"

/*
 * d = a * b, or d += a * b when `accumulate`: 64 x 128, depth 16, bf16 in, fp32 accumulation, by
 * one warpgroup (PTX ISA, "wgmma.mma_async"). a and b: common/descriptor.cuh; ta, tb: the operand
 * is transposed. d[i] of lane 4 * g + t, warp w, is at row 16 * w + g, in every second pair 8 more,
 * and at column 8 * (i / 4) + 2 * t + i % 2.
 */
// clang-format off
DEVICE void wgmma_ss_n128_t00(float *d, u64 a, u64 b, int accumulate) {
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
                 "%64, %65, p, 1, 1, 0, 0;}"
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

#line 1 "templates/common/tensor_map.h"
/*
 * The description of a tensor in global memory and of the box that one tensor copy moves, written
 * by the driver (cuTensorMapEncodeTiled) and passed to a kernel by value, as a whole parameter or
 * inside its params struct. Included by the host code and, by the generator, by the CUDA source.
 */
#ifndef SMELT_TEMPLATES_TENSOR_MAP_H
#define SMELT_TEMPLATES_TENSOR_MAP_H

/* The attribute stands at the member: NVRTC takes no notice of one behind the struct. */
struct tensor_map {
    unsigned long long opaque[16] __attribute__((aligned(64)));
};

/* A misaligned map faults on the GPU; this does not compile. */
struct tensor_map_alignment {
    char first;
    struct tensor_map map;
};
typedef char tensor_map_is_aligned[sizeof(struct tensor_map_alignment) == 192 ? 1 : -1];

#endif

#line 2 "templates/indexer_logits_fwd.params.h"
/*
 * Arguments of the indexer_logits_fwd kernels, every variant. Included by the host code (behind
 * common/tensor_map.h) and, by the generator, by the CUDA source: plain C types only. Strides count
 * elements. See include/smelt/indexer_logits.h for what the tensors hold.
 */
struct indexer_logits_fwd_params {
    /* For the copy engine, of variants with TENSOR_MAPS alone: q as [tokens, HEADS, DIM], boxes of
     * MAP_QUERIES queries, MAP_HEADS heads and DIM columns (64 at most with bf16), or with
     * MAP_PAIRS above 0 as [HEADS / 2, tokens, 2, DIM], boxes of so many pairs; k as [rows,
     * DIM], boxes of MAP_KEYS keys and as many columns. The swizzle is as wide as a box: 64 or 128
     * bytes. What lies outside the tensors comes as zeros. */
    struct tensor_map q_map, k_map;
    const void *q;           /* [tokens, HEADS, DIM] bf16 or e4m3 */
    const void *k;           /* [rows, DIM] likewise */
    const float *weights;    /* [tokens, HEADS] */
    const float *k_scale;    /* [rows]; NULL with bf16 */
    const int *window_begin; /* [tokens] any number; what lies outside [0, rows) does not count */
    const int *window_end;   /* [tokens] */
    float *logits;           /* [tokens, rows] */
    long long q_token_stride, q_head_stride;
    long long k_row_stride;
    long long weights_token_stride;
    long long logits_token_stride;
    int tokens, rows; /* both above 0 */
    int least;   /* keys that a window must have to be looked at: a shorter one counts as empty */
    int fills;   /* 1: -inf is written outside of windows; 0: what stands there does not matter */
    int early;   /* 1: the kernel before may still read what is written here: it is waited for; then
                    nothing is filled in */
    int chained; /* 1: what is launched early behind it may begin: it waits */
};

#line 2 "templates/ptx/bulk.cuh"
/*
 * Copies of whole runs of bytes by the async proxy, issued by one thread (PTX ISA, "Data Movement
 * and Conversion Instructions: Bulk copy"). Addresses and `bytes` are multiples of 16. What reads
 * shared memory needs fence_proxy_async after plain stores to it. Copies to shared memory count
 * their bytes down on a barrier; those to global memory gather in bulk groups.
 */

/* Global to shared memory; the barrier expects `bytes` (PTX ISA, "cp.async.bulk"). */
DEVICE void bulk_load(u32 to, const void *from, u32 bytes, u32 barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];"
                 :
                 : "r"(to), "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}

/* Shared to global memory. */
DEVICE void bulk_store(void *to, u32 from, u32 bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                 :
                 : "l"(to), "r"(from), "r"(bytes)
                 : "memory");
}

/* Adds fp32 values in shared memory to those in global memory (PTX ISA, "cp.reduce.async.bulk"). */
DEVICE void bulk_reduce_add_f32(void *to, u32 from, u32 bytes) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;"
                 :
                 : "l"(to), "r"(from), "r"(bytes)
                 : "memory");
}

/* Closes this thread's group of stores and reductions (PTX ISA, "cp.async.bulk.commit_group"). */
DEVICE void bulk_commit(void) {
    asm volatile("cp.async.bulk.commit_group;" : : : "memory");
}

/* Waits until at most so many of this thread's groups are under way (PTX ISA,
 * "cp.async.bulk.wait_group"); _read: until the others have read their sources, which may then be
 * written again. */
#line 43 "templates/ptx/bulk.cuh"
DEVICE void bulk_wait_0(void) {
    asm volatile("cp.async.bulk.wait_group 0;" : : : "memory");
}

DEVICE void bulk_wait_read_0(void) {
    asm volatile("cp.async.bulk.wait_group.read 0;" : : : "memory");
}

#line 43 "templates/ptx/bulk.cuh"
DEVICE void bulk_wait_1(void) {
    asm volatile("cp.async.bulk.wait_group 1;" : : : "memory");
}

DEVICE void bulk_wait_read_1(void) {
    asm volatile("cp.async.bulk.wait_group.read 1;" : : : "memory");
}

#line 43 "templates/ptx/bulk.cuh"
DEVICE void bulk_wait_2(void) {
    asm volatile("cp.async.bulk.wait_group 2;" : : : "memory");
}

DEVICE void bulk_wait_read_2(void) {
    asm volatile("cp.async.bulk.wait_group.read 2;" : : : "memory");
}

#line 43 "templates/ptx/bulk.cuh"
DEVICE void bulk_wait_3(void) {
    asm volatile("cp.async.bulk.wait_group 3;" : : : "memory");
}

DEVICE void bulk_wait_read_3(void) {
    asm volatile("cp.async.bulk.wait_group.read 3;" : : : "memory");
}

#line 2 "templates/ptx/policy.cuh"

/* How the L2 cache treats what a copy reads: gone first (PTX ISA, "createpolicy"). */
DEVICE u64 policy_evict_first(void) {
    u64 policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

#line 2 "templates/ptx/redux.cuh"

/* The sum, the smallest and the largest of all 32 lanes' values, the same in every lane (PTX ISA,
 * "redux.sync"). */
DEVICE u32 warp_reduce_add(u32 value) {
    u32 all;
    asm volatile("redux.sync.add.u32 %0, %1, 0xffffffff;" : "=r"(all) : "r"(value));
    return all;
}

DEVICE u32 warp_reduce_min(u32 value) {
    u32 all;
    asm volatile("redux.sync.min.u32 %0, %1, 0xffffffff;" : "=r"(all) : "r"(value));
    return all;
}

DEVICE u32 warp_reduce_max(u32 value) {
    u32 all;
    asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(all) : "r"(value));
    return all;
}

#line 3 "templates/ptx/tensor.cuh"
/*
 * Copies of a box of a tensor by the async proxy, issued by one thread (PTX ISA, "Data Movement and
 * Conversion Instructions: Tensor copy"). The map is a parameter of the kernel (in constant memory,
 * its address taken there). x counts elements of the innermost dimension, y, z and w the outer
 * ones; what lies outside of the tensor is zero. Shared
 * addresses are multiples of 128, for a swizzle of 128 bytes of 1024, of 64 of 512, of 32 of 256.
 */

/* Fetches a map ahead of its first use (PTX ISA, "prefetch", .tensormap). */
DEVICE void tensor_prefetch(const struct tensor_map *map) {
    asm volatile("prefetch.tensormap [%0];" : : "l"(map) : "memory");
}

/* A box to shared memory; the barrier expects its bytes, those outside of the tensor included (PTX
 * ISA, "cp.async.bulk.tensor"). */
DEVICE void tensor_load_2d(u32 to, const struct tensor_map *map, u32 barrier, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4}], [%2];"
                 :
                 : "r"(to), "l"(map), "r"(barrier), "r"(x), "r"(y)
                 : "memory");
}

/* The same with a policy of ptx/policy.cuh for the L2 cache. */
DEVICE void tensor_load_2d_hint(u32 to, const struct tensor_map *map, u32 barrier, int x, int y,
                                u64 policy) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5;"
                 :
                 : "r"(to), "l"(map), "r"(barrier), "r"(x), "r"(y), "l"(policy)
                 : "memory");
}

/* For tensors of three dimensions. */
DEVICE void tensor_load_3d_hint(u32 to, const struct tensor_map *map, u32 barrier, int x, int y,
                                int z, u64 policy) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {%3, %4, %5}], [%2], %6;"
                 :
                 : "r"(to), "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "l"(policy)
                 : "memory");
}

/* For tensors of four dimensions. */
DEVICE void tensor_load_4d_hint(u32 to, const struct tensor_map *map, u32 barrier, int x, int y,
                                int z, int w, u64 policy) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {%3, %4, %5, %6}], [%2], %7;"
                 :
                 : "r"(to), "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w), "l"(policy)
                 : "memory");
}

#line 2 "templates/ptx/thread.cuh"

/* This thread's number in its block, read anew at each call: what follows from it stays in no
 * register in between (PTX ISA, "Special Registers: %tid"). */
DEVICE u32 thread_number(void) {
    u32 number;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(number));
    return number;
}

#line 2 "templates/ptx/proxy.cuh"

/* Orders this thread's plain accesses to shared memory, and those it knows of, before what the
 * async proxy (wgmma, bulk and tensor copies) does next on its behalf, and the other way round
 * (PTX ISA, "membar / fence", fence.proxy.async). */
DEVICE void fence_proxy_async(void) {
    asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
}

#line 9 "templates/indexer_logits_fwd.sm90_tiles.cuh"
/*
 * Of indexer_logits_fwd.sm90.cu: what a slab, a block and its parts are in numbers, and what stands
 * where in shared memory.
 */

enum {
    ALL_LANES = -1,
    WARPGROUP = 128, /* threads */
    KEY_WARP = 0,    /* of the warpgroup after the math's */
    QUERY_WARP = 1,
    FILLER_WARP = 2,
    SLAB = BLOCK_KEYS, /* rows of a product */
    ATOM_ROWS = 8,
    SET_QUERIES = 4,
    BATCH_QUERIES = 32, /* whose windows a warp looks at together, a lane each */
    SETS = BLOCK_QUERIES / SET_QUERIES,
    SET_EIGHTS = PADDED_HEADS / 2, /* eights of columns */
    EIGHTS = SETS * SET_EIGHTS,
    COLUMNS = 8 * EIGHTS,
    PARTS = COLUMNS / PART_COLUMNS,
    PART_EIGHTS = EIGHTS / PARTS,
    ELEMENT_BYTES = FP8 ? 1 : 2,
    HALVES = ROW_BYTES / SWIZZLE,
    STEP_BYTES = 32, /* of a row in one product */
    STEPS = ROW_BYTES / STEP_BYTES,
    HALF_STEPS = SWIZZLE / STEP_BYTES,
    QUERY_HALF_BYTES = COLUMNS * SWIZZLE,
    QUERY_BYTES = HALVES * QUERY_HALF_BYTES,
    KEY_HALF_BYTES = SLAB * SWIZZLE,
    KEY_BYTES = HALVES * KEY_HALF_BYTES,
    PART_SETS = PART_EIGHTS / SET_EIGHTS + 1,               /* that end in a part, at most */
    VALUES = PART_COLUMNS / 2,                              /* of D, a thread's */
    WEIGHTS_PARTS = EIGHTS * 2 <= MOST_WEIGHTS ? PARTS : 1, /* whose weights a thread holds */
    HELD_WEIGHTS = WEIGHTS_PARTS * PART_EIGHTS * 2,
    STAGED_SETS = PART_EIGHTS / SET_EIGHTS /* that end in a part, with STAGES_LOGITS */
};

/* Places in BARRIERS. */
enum {
    FULL = 0,
    EMPTY = FULL + STAGES,
    QUERY_FULL = EMPTY + STAGES,
    QUERY_EMPTY = QUERY_FULL + QUERY_BUFFERS
};

DEVICE u32 barrier_at(int number) {
    return shared_address((u32)(BARRIERS_OFFSET + number * 8));
}

/* What a thread block does of a block of queries. */
struct run {
    int query, key; /* the first ones */
    int slabs;      /* 0: nothing more, no block at all */
    int inner;      /* keys inner <= k < outer are in the windows of all its queries */
    int outer;
    int unused;
};

DEVICE struct run *run_at(int buffer) {
    return (struct run *)(arena + RUNS_OFFSET) + buffer;
}

DEVICE float *weights_at(int buffer) {
    return (float *)(arena + WEIGHTS_OFFSET) + buffer * (BLOCK_QUERIES * PADDED_HEADS);
}

DEVICE struct key_range *windows_at(int buffer) {
    return (struct key_range *)(arena + WINDOWS_OFFSET) + buffer * BLOCK_QUERIES;
}

DEVICE i64 *costs(void) {
    return (i64 *)(arena + COSTS_OFFSET);
}

DEVICE void initialise(const struct indexer_logits_fwd_params *params) {
    if (threadIdx.x == 0) {
        tensor_prefetch(&params->q_map);
        tensor_prefetch(&params->k_map);
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(barrier_at(FULL + stage), 1);
            mbarrier_init(barrier_at(EMPTY + stage), 4 * WARP_ARRIVALS);
        }
        for (int buffer = 0; buffer < QUERY_BUFFERS; ++buffer) {
            mbarrier_init(barrier_at(QUERY_FULL + buffer), WARP_ARRIVALS);
            mbarrier_init(barrier_at(QUERY_EMPTY + buffer), 4 * GROUPS * WARP_ARRIVALS);
        }
        mbarrier_fence_init();
    }
    for (int i = (int)threadIdx.x; i < FILL_BYTES / 4; i += THREADS) {
        ((float *)(arena + LOWEST_OFFSET))[i] = LOWEST_LOGIT;
    }
    fence_proxy_async();
}

#line 6 "templates/indexer_logits_fwd.sm90_runs.cuh"
/*
 * Of indexer_logits_fwd.sm90.cu: windows, the slabs that blocks of queries have by them, what those
 * cost, and which of them are this thread block's.
 */

DEVICE int batch_count(const struct indexer_logits_fwd_params *params) {
    return (params->tokens - 1) / BATCH_QUERIES + 1;
}

/* The query of this lane in a batch; tokens or more: none. */
DEVICE int lane_query(int batch) {
    return (int)((u32)batch * BATCH_QUERIES + threadIdx.x % 32);
}

/* A query's window, { rows, 0 } when it is empty or does not count, or there is no such query. */
DEVICE struct key_range query_window(const struct indexer_logits_fwd_params *params, int query) {
    struct key_range window = {params->rows, 0};
    if (query >= 0 && query < params->tokens) {
        const int begin = __ldg(params->window_begin + query);
        const int end = __ldg(params->window_end + query);
        const struct key_range among = window_among(begin, end, 0, params->rows);
        if (among.begin < among.end && has_keys(begin, end, params->rows, params->least)) {
            window = among;
        }
    }
    return window;
}

/* The slabs of a block: numbers begin <= slab < end; of the lanes' windows of its queries. */
DEVICE struct key_range block_slabs(const struct key_range *window) {
    struct key_range keys = *window;
#pragma unroll
    for (int i = 1; i < BLOCK_QUERIES; i *= 2) {
        keys.begin = minimum(keys.begin, __shfl_xor_sync((u32)ALL_LANES, keys.begin, i));
        keys.end = maximum(keys.end, __shfl_xor_sync((u32)ALL_LANES, keys.end, i));
    }
    const struct key_range slabs = {keys.begin / SLAB,
                                    keys.end > 0 ? (keys.end - 1) / SLAB + 1 : 0};
    const struct key_range none = {0, 0};
    return slabs.begin < slabs.end ? slabs : none;
}

/* Of a block, in slabs; that of its first lane, 0 of the others. */
DEVICE int block_cost(const struct key_range *slabs) {
    const int count = slabs->end - slabs->begin;
    return threadIdx.x % BLOCK_QUERIES == 0 && count > 0 ? count + BLOCK_START : 0;
}

/* Batches of a group: one as long as there are no more than groups, so that a run's beginning is
 * found without looking at batches ahead of it; else as many as COARSE groups need, a multiple of
 * those whose windows are loaded at once. */
DEVICE int group_batches(const struct indexer_logits_fwd_params *params) {
    const int batches = batch_count(params);
    return batches <= COARSE ? 1 : (batches - 1) / (COARSE * TOGETHER) * TOGETHER + TOGETHER;
}

/* The costs of TOGETHER batches. By whole warps. */
DEVICE void batch_costs(const struct indexer_logits_fwd_params *params, int first,
                        u32 costs_of[TOGETHER]) {
    struct key_range windows[TOGETHER];
#pragma unroll
    for (int i = 0; i < TOGETHER; ++i) {
        windows[i] = query_window(params, lane_query(minimum(first, batch_count(params)) + i));
    }
#pragma unroll
    for (int i = 0; i < TOGETHER; ++i) {
        const struct key_range slabs = block_slabs(&windows[i]);
        costs_of[i] = warp_reduce_add((u32)block_cost(&slabs));
    }
}

/* Writes the costs of groups of batches, those without any too. By the whole thread block, which
 * then meets. */
DEVICE void count_costs(const struct indexer_logits_fwd_params *params) {
    const int batches = group_batches(params), each = batches == 1 ? TOGETHER : 1; /* groups */
#pragma unroll 1
    for (int group = (int)threadIdx.x / 32 * each; group < COARSE; group += THREADS / 32 * each) {
        const i64 first = (i64)group * batches;
        u32 found[TOGETHER] = {0};
        i64 cost = 0;
        if (first < batch_count(params)) {
#pragma unroll 1
            for (int i = 0; i < batches; i += TOGETHER) {
                batch_costs(params, (int)first + i, found);
#pragma unroll
                for (int k = 0; k < TOGETHER; ++k) {
                    cost += found[k];
                }
            }
        }
        if (threadIdx.x % 32 == 0) {
#pragma unroll
            for (int k = 0; k < TOGETHER; ++k) {
                if (k < each) {
                    costs()[group + k] = each > 1 ? (i64)found[k] : cost;
                }
            }
        }
    }
}

/* Where a thread block's run begins and ends, counted in slabs from the beginning of a batch. */
struct place {
    i64 begin, end;
    int batch;
};

/* Places in COSTS behind the groups': what a producer's warp keeps there, the sums of 32 parts of
 * the groups, then where its run begins. */
enum {
    QUERY_FOUND = COARSE,
    KEY_FOUND = QUERY_FOUND + 34,
};

/* This thread block's. By a warp, once all costs stand there; `own`: its place. */
DEVICE struct place find_run(const struct indexer_logits_fwd_params *params, int own) {
    enum { EACH = COARSE / 32 };
    const int lane = (int)threadIdx.x % 32;
    i64 *const sums = costs() + own, *const found = sums + 32;
    i64 mine = 0, before = 0, total = 0;
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        mine += costs()[lane * EACH + i];
    }
    sums[lane] = mine;
    __syncwarp((u32)ALL_LANES);
#pragma unroll 16
    for (int i = 0; i < 32; ++i) {
        before += i < lane ? sums[i] : 0;
        total += sums[i];
    }
    const i64 begin = total * blockIdx.x / gridDim.x;
    if (begin >= before && begin < before + mine) {
        int group = lane * EACH;
        while (begin >= before + costs()[group]) {
            before += costs()[group++];
        }
        found[0] = begin - before;
        found[1] = group;
    }
    __syncwarp((u32)ALL_LANES);
    struct place place = {0, 0, 0};
    if (total > 0) {
        place.begin = found[0];
        place.end = place.begin + total * (blockIdx.x + 1) / gridDim.x - begin;
        place.batch = (int)found[1] * group_batches(params);
    }
    return place;
}

/* What a lane knows of its block, in a batch. */
struct lane_block {
    struct key_range window; /* of the lane's query */
    struct run run;
};

/* The runs of a batch's blocks, each with its first lane; others have no slabs. Moves the place on
 * to the next batch. */
DEVICE void look_at_batch(struct lane_block *block, const struct indexer_logits_fwd_params *params,
                          struct place *place) {
    const int lane = (int)threadIdx.x % 32, query = lane_query(place->batch);
    block->window = query_window(params, query);
    const bool present = query < params->tokens;
    block->run.inner = present ? block->window.begin : 0;
    block->run.outer = present ? block->window.end : params->rows;
#pragma unroll
    for (int i = 1; i < BLOCK_QUERIES; i *= 2) {
        block->run.inner =
            maximum(block->run.inner, __shfl_xor_sync((u32)ALL_LANES, block->run.inner, i));
        block->run.outer =
            minimum(block->run.outer, __shfl_xor_sync((u32)ALL_LANES, block->run.outer, i));
    }
    const struct key_range slabs = block_slabs(&block->window);
    const int cost = block_cost(&slabs);
    int sum = cost;
#pragma unroll
    for (int i = 1; i < 32; i *= 2) {
        const int below = __shfl_up_sync((u32)ALL_LANES, sum, i);
        sum += lane >= i ? below : 0;
    }
    const i64 first = (i64)(sum - cost) + BLOCK_START; /* where the block's first slab stands */
    const i64 begin = place->begin > first ? place->begin - first : 0;
    const i64 count = slabs.end - slabs.begin, limit = place->end - first;
    const i64 end = limit < count ? limit : count;
    block->run.query = query;
    block->run.key = (slabs.begin + (int)begin) * SLAB;
    block->run.slabs = cost > 0 && end > begin ? (int)(end - begin) : 0;
    const int total = __shfl_sync((u32)ALL_LANES, sum, 31);
    place->begin -= total;
    place->end -= total;
    ++place->batch;
}

#line 14 "templates/indexer_logits_fwd.sm90_copies.cuh"
/*
 * Of indexer_logits_fwd.sm90.cu: the warps beside the math. Two bring queries and keys, one fills
 * in what no slab covers.
 */

/* ---- queries and keys ------------------------------------------------------------------------ */

/* Starts the copy of a block's queries; by one thread. Boxes of few rows take the copy engine about
 * as long as large ones, and a number of heads that is odd has no larger ones: behind the last head
 * of a pair would be another query's. */
DEVICE void load_queries(const struct indexer_logits_fwd_params *params, int query, int buffer,
                         u32 full) {
    const u64 policy = policy_evict_first(); /* one thread block's, or a few in a row */
    u32 to = shared_address((u32)(QUERIES_OFFSET + buffer * QUERY_BYTES));
#pragma unroll 1
    for (int i = 0; i < HALVES * SETS; ++i) {
        const int column = i / SETS * SWIZZLE / ELEMENT_BYTES,
                  first = query + i % SETS * SET_QUERIES;
        if (MAP_PAIRS > 0) {
            tensor_load_4d_hint(to, &params->q_map, full, column, 0, first, 0, policy);
        } else {
            for (int eight = 0; eight < SET_EIGHTS; ++eight) {
                tensor_load_3d_hint(to + (u32)(eight * ATOM_ROWS * SWIZZLE), &params->q_map, full,
                                    column, eight * 2, first, policy);
            }
        }
        to += SET_EIGHTS * ATOM_ROWS * SWIZZLE;
    }
}

/* Writes what the math needs to know of a run, and starts the copy of its queries. `lane_block`:
 * this lane's; `leader`: the block's first lane. */
DEVICE void begin_run(const struct indexer_logits_fwd_params *params, const struct run *run,
                      const struct key_range *window, int leader, int buffer) {
    const int lane = (int)thread_number() % 32; /* what follows from it is computed anew */
    const u32 full = barrier_at(QUERY_FULL + buffer);
    if (lane == 0) {
        *run_at(buffer) = *run;
        mbarrier_expect(full, QUERY_BYTES);
        load_queries(params, run->query, buffer, full);
    }
#pragma unroll 8
    for (int i = lane; i < BLOCK_QUERIES * PADDED_HEADS; i += 32) {
        const int query = run->query + i / PADDED_HEADS, head = i % PADDED_HEADS;
        weights_at(buffer)[i] =
            head < HEADS && query < params->tokens
                ? __ldg(params->weights + query * params->weights_token_stride + head)
                : 0.0f;
    }
    if (lane >= leader && lane < leader + BLOCK_QUERIES) {
        windows_at(buffer)[lane - leader] = *window;
    }
    arrive_warp(full, 1);
}

/* Brings the slabs of a run, each when its stage is free. By one thread. */
DEVICE void load_slabs(const struct indexer_logits_fwd_params *params, const struct run *run,
                       struct ring_place *stage) {
#pragma unroll 1
    for (int slab = 0; slab < run->slabs; ++slab) {
        const u32 full = barrier_at(FULL + stage->index);
        mbarrier_wait(barrier_at(EMPTY + stage->index), stage->parity ^ 1);
        mbarrier_arrive_expect(full, KEY_BYTES);
        for (int half = 0; half < HALVES; ++half) {
            tensor_load_2d(shared_address((u32)(KEYS_OFFSET + stage->index * KEY_BYTES +
                                                half * KEY_HALF_BYTES)),
                           &params->k_map, full, half * SWIZZLE / ELEMENT_BYTES,
                           run->key + slab * SLAB);
        }
        ring_advance(stage, STAGES);
    }
}

/* One of the two warps that bring things: blocks' queries with what belongs to them, or slabs of
 * keys. Each finds the runs by itself and goes ahead as far as its own buffers allow: a block's
 * beginning holds up no keys. */
DEVICE void run_producer(const struct indexer_logits_fwd_params *params, bool queries) {
    struct ring_place stage = {0, 0}, buffer = {0, 0}; /* the first is lane 0's alone */
    struct place place = find_run(params, queries ? QUERY_FOUND : KEY_FOUND);
    while (place.end > 0 && place.batch < batch_count(params)) {
        struct lane_block block;
        look_at_batch(&block, params, &place);
        u32 blocks = __ballot_sync((u32)ALL_LANES, block.run.slabs > 0);
        for (; blocks; blocks &= blocks - 1) {
            const int leader = __ffs((int)blocks) - 1;
            const struct run run = {__shfl_sync((u32)ALL_LANES, block.run.query, leader),
                                    __shfl_sync((u32)ALL_LANES, block.run.key, leader),
                                    __shfl_sync((u32)ALL_LANES, block.run.slabs, leader),
                                    __shfl_sync((u32)ALL_LANES, block.run.inner, leader),
                                    __shfl_sync((u32)ALL_LANES, block.run.outer, leader),
                                    0};
            if (queries) {
                mbarrier_wait(barrier_at(QUERY_EMPTY + buffer.index), buffer.parity ^ 1);
                begin_run(params, &run, &block.window, leader, buffer.index);
                ring_advance(&buffer, QUERY_BUFFERS);
            } else if (threadIdx.x % 32 == 0) {
                load_slabs(params, &run, &stage);
            }
            __syncwarp((u32)ALL_LANES);
        }
    }
    if (queries) {
        mbarrier_wait(barrier_at(QUERY_EMPTY + buffer.index), buffer.parity ^ 1);
        if (threadIdx.x % 32 == 0) {
            const struct run nothing = {0, 0, 0, 0, 0, 0};
            *run_at(buffer.index) = nothing;
        }
        arrive_warp(barrier_at(QUERY_FULL + buffer.index), 1);
    }
}

/* ---- filler ---------------------------------------------------------------------------------- */

/* Whether the filler waits for each of its stores before the next: where the products take longer,
 * a slab of FULL_COLUMNS columns as long as a store, as measured. Faster it would hold up the
 * math's loads and stores, and end no sooner than the math. By a whole warp. */
DEVICE bool fills_slowly(const struct indexer_logits_fwd_params *params) {
    enum { EACH = COARSE / 32, FULL_COLUMNS = 256, SIXTEENTH = 4 /* bits: for a sum in 32 */ };
    const int lane = (int)threadIdx.x % 32;
    i64 mine = 0;
    for (int i = 0; i < EACH; ++i) {
        mine += costs()[lane * EACH + i];
    }
    const i64 slabs = (i64)warp_reduce_add((u32)(mine >> SIXTEENTH)) << SIXTEENTH;
    const i64 others = (i64)params->tokens * params->rows - slabs * (SLAB * BLOCK_QUERIES);
    return others / (FILL_BYTES / 4) * FULL_COLUMNS <= slabs * COLUMNS;
}

/* -inf into a run of logits; by one thread. */
DEVICE void fill(float *from, float *to, bool slowly) {
    for (; from < to && (u64)from % 16 != 0; ++from) {
        *from = LOWEST_LOGIT;
    }
    for (; from < to && (u64)to % 16 != 0; --to) {
        to[-1] = LOWEST_LOGIT;
    }
    while (from < to) {
        const i64 left = to - from;
        const u32 bytes = (left < FILL_BYTES / 4 ? (u32)left : FILL_BYTES / 4) * 4;
        bulk_store(from, shared_address(LOWEST_OFFSET), bytes);
        bulk_commit();
        if (slowly) {
            bulk_wait_0();
        } else {
            bulk_wait_read_2();
        }
        from += bytes / 4;
    }
}

/* -inf into what the slabs leave out, row by row, of one batch in each gridDim.x of them: there and
 * back, so that all fillers have as much of windows that grow with the queries. */
DEVICE void run_filler(const struct indexer_logits_fwd_params *params) {
    const bool slowly = fills_slowly(params);
    int step = 2 * (int)(gridDim.x - blockIdx.x) - 1; /* this and the next are 2 * gridDim.x */
    for (int batch = (int)blockIdx.x; batch < batch_count(params);) {
        const int query = lane_query(batch);
        const struct key_range window = query_window(params, query);
        const struct key_range slabs = block_slabs(&window);
        float *const row = params->logits + query * params->logits_token_stride;
        for (int i = 0; i < BATCH_QUERIES; ++i) {
            if ((int)threadIdx.x % 32 == i && query >= 0 && query < params->tokens) {
                fill(row, row + (i64)slabs.begin * SLAB, slowly);
                fill(row + (i64)slabs.end * SLAB, row + params->rows, slowly);
            }
            __syncwarp((u32)ALL_LANES);
        }
        batch += step;
        step = 2 * (int)gridDim.x - step;
    }
    bulk_wait_read_0();
}

#line 16 "templates/indexer_logits_fwd.sm90.cu"
/*
 * The lightning indexer's logits with wgmma: every query's rows against every key in its window,
 * heads added up, everything else -inf. Mathematics and shapes: include/smelt/indexer_logits.h.
 *
 * Keys are the products' rows, and a block's queries with all their heads the columns:
 *
 *   D[64 keys, PART_COLUMNS] = K[64, DIM] Q[PART_COLUMNS of 4 * SETS queries x PADDED_HEADS, DIM]^T
 *
 * in PARTS. Four queries are a set, whose columns come by eights: queries 0 to 3, heads 2 i and
 * 2 i + 1 of each. A thread's columns of D are 8 j + 2 c and the next, c = lane % 4: all of them
 * are query c's. So it adds up the heads of a query by itself, in ascending order, CHAINS of them
 * apart, and exchanges nothing; Q comes in that order by boxes of 4 queries and 2 heads,
 * or, where there are pairs of heads, of 4 queries and all pairs. Columns of heads from HEADS up to
 * PADDED_HEADS are zeros that are not added.
 *
 * Work. 64 keys are a slab; a block's slabs are those from the first to the last that one of its
 * windows meets. All blocks' slabs in a row, each block dearer by BLOCK_START slabs, are cut into
 * as many equal runs as the grid has thread blocks, one a multiprocessor. Every thread block finds
 * its own run from the windows when it begins (find_run): there is no plan in memory.
 *
 * Windows and runs: indexer_logits_fwd.sm90_runs.cuh; queries, keys and filler: _copies.cuh; sizes
 * and places: _tiles.cuh; here the math.
 *
 *   queries    a warp: a block's weights and windows; the copy engine brings its queries,
 *              QUERY_BUFFERS blocks in turn
 *   keys       a warp: the copy engine brings slabs of keys, STAGES ahead, across blocks
 *   filler     a warp: -inf into what no slab covers, by bulk stores
 *   math       GROUPS warpgroups, which take slabs in turn: the arithmetic of one runs beside the
 *              products of the others
 *
 * What binds is the register file: products of e4m3 read and write their accumulators so often that
 * an addition or a multiplication beside them costs about as many cycles as it reads registers
 * (indexer_logits_fwd.lost.md).
 *
 * Shared memory (offsets and sizes: the plan above). Rows are SWIZZLE bytes, ROW_BYTES of them in
 * HALVES; 8 of them are a swizzle's atom:
 *   QUERIES [QUERY_BUFFERS][HALVES][COLUMNS] rows
 *   KEYS    [STAGES][HALVES][64] rows
 *   LOWEST  FILL_BYTES of -inf, what the filler stores
 *   WEIGHTS [QUERY_BUFFERS][BLOCK_QUERIES][PADDED_HEADS] fp32
 *   WINDOWS [QUERY_BUFFERS][BLOCK_QUERIES] struct key_range
 *   RUNS    [QUERY_BUFFERS] struct run: the block's slabs that are this thread block's
 *   COSTS   [COARSE + 2 * 34] i64: of blocks, COARSE groups of them; find_run
 *   STAGING [GROUPS][STAGED_SETS * 4][STAGED_ROW] fp32, with STAGES_LOGITS: a part's logits
 *
 * Named barriers, with STAGES_LOGITS: 1 + group, of that warpgroup's threads.
 *
 * Barriers (parity counts uses; stages and buffers are used in turn):
 *   barrier        count       who arrives                                  who waits
 *   FULL[s]        1           keys, with the bytes of the boxes            math, one group
 *   EMPTY[s]       4           math: warps of that group, product complete  keys
 *   QUERY_FULL[b]  1           queries, with the bytes; weights, windows    math
 *                              and run are there
 *   QUERY_EMPTY[b] 4 * GROUPS  math: warps, done with the block             queries
 * (Counts are of warps where warps arrive: common/warp_arrival.cuh.)
 *
 * Knobs: GROUPS, and the most columns of a product; legal values and the rule that picks them:
 * src/codegen/families/indexer_logits_fwd_sm90.c.
 */

/* Heads of a query that are added up apart: even and odd ones, or 1: all together. Which is faster
 * was measured (templates/indexer_logits_fwd.lost.md). */
enum { CHAINS = FP8 || SETS >= 4 ? 2 : 1 };

/* What a thread is at, of the slab: its query of each set is number `column` of the four. */
struct cursor {
    int buffer;   /* the block's */
    int column;   /* lane % 4 */
    int key;      /* this thread's first; the second is 8 further on */
    bool inner;   /* all keys of the slab are in the windows of all queries of the block, which are
                     all there */
    bool aligned; /* rows of logits begin at multiples of 16 bytes */
    float *row;   /* of the first set's query, at the first key */
    int queries;  /* that are there, from the first set's on */
    float scale[2], next_scale[2];
};

/* Issues D of a slab and a part of the columns. */
DEVICE void issue_product(float *d, u64 keys, u64 queries) {
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < STEPS; ++k) {
        const int half = k / HALF_STEPS, step = k % HALF_STEPS * STEP_BYTES;
        const u64 a = descriptor_advance(keys, (u32)(half * KEY_HALF_BYTES + step));
        const u64 b = descriptor_advance(queries, (u32)(half * QUERY_HALF_BYTES + step));
        // clang-format off
#line 103 "templates/indexer_logits_fwd.sm90.cu"
        if (FP8) {
            wgmma_fp8_ss_n128(d, a, b, k > 0);
        } else {
            wgmma_ss_n128_t00(d, a, b, k > 0);
        }
#line 109 "templates/indexer_logits_fwd.sm90.cu"
        // clang-format on
    }
    wgmma_commit();
}

/* The weights of the parts from `part` on that a thread holds: of its query in each set. */
DEVICE void load_weights(float *held, const struct cursor *at, int part) {
#pragma unroll
    for (int i = 0; i < HELD_WEIGHTS / 2; ++i) {
        const int eight = part * PART_EIGHTS + i;
        const int query = eight / SET_EIGHTS * SET_QUERIES + at->column;
        const float2 two = *(const float2 *)(weights_at(at->buffer) + query * PADDED_HEADS +
                                             eight % SET_EIGHTS * 2);
        held[2 * i] = two.x;
        held[2 * i + 1] = two.y;
    }
}

/*
 * A head added to a sum. e4m3's products are so fast that the maximum, which runs at half the rate,
 * would weigh: x + |x| is twice max(0, x), exactly, since no x is above 128 * 448^2; the sums are
 * twice what they should be, then, until they are written.
 */
DEVICE float add_product(float sum, float weight, float x) {
    return FP8 ? fmaf(weight, x + fabsf(x), sum) : add_head(sum, weight, x);
}

/* Loads what this thread's two keys from `key` on are multiplied by. SCALES_AHEAD: a slab ahead,
 * since behind the stores of logits a load takes longer than a product. */
DEVICE void load_scales(const struct indexer_logits_fwd_params *params, struct cursor *at,
                        u32 key) {
    if (FP8) {
        const u32 last = (u32)params->rows - 1;
        at->next_scale[0] = __ldg(params->k_scale + (key < last ? key : last));
        at->next_scale[1] = __ldg(params->k_scale + (key + 8 < last ? key + 8 : last));
    }
}

/* Those of the slab at hand, 0.5 in them. */
DEVICE void take_scales(struct cursor *at) {
    at->scale[0] = FP8 ? 0.5f * at->next_scale[0] : 1.0f;
    at->scale[1] = FP8 ? 0.5f * at->next_scale[1] : 1.0f;
}

/* A set's logits of this thread's query and two keys, of its sums: those of both keys, of each
 * chain. */
DEVICE void finish_set(float *logits, const struct cursor *at, const float *sums) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const float sum = CHAINS > 1 ? sums[i] + sums[2 + i] : sums[i];
        logits[i] = canonical_logit(FP8 ? sum * at->scale[i] : sum);
    }
}

/* Writes a set's logits where the slab may be at a window's or a tensor's edge. */
DEVICE void write_edge(const struct indexer_logits_fwd_params *params, const struct cursor *at,
                       int set, const float *logits) {
    const int query = set * SET_QUERIES;
    if (query >= at->queries) {
        return;
    }
    const struct key_range window = windows_at(at->buffer)[query + at->column];
    float *const to = at->row + query * params->logits_token_stride;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int key = at->key + 8 * i;
        if (key < params->rows) {
            to[8 * i] = key >= window.begin && key < window.end ? logits[i] : LOWEST_LOGIT;
        }
    }
}

/* Writes those of a warpgroup by whole lines, through shared memory: a warp's stores reach two
 * queries' keys of the slab each, where out of the products' registers they would reach four
 * queries' lines in pieces of 32 bytes, which the L2 cache may write to memory before the line is
 * whole. By the whole warpgroup; rows of logits begin at multiples of 16 bytes. */
DEVICE void write_lines(const struct indexer_logits_fwd_params *params, const struct cursor *at,
                        int first_set, float logits[PART_SETS][2]) {
    const int thread = (int)threadIdx.x % WARPGROUP, warp = thread / 32, lane = thread % 32;
    const int group = (int)threadIdx.x / WARPGROUP, line = warp * 16 + lane / 4;
    float *const staged =
        (float *)(arena + STAGING_OFFSET) + group * (STAGED_SETS * SET_QUERIES * STAGED_ROW);
    float *const own = staged + at->column * STAGED_ROW + line;
    barrier_sync(1 + group, WARPGROUP); /* all have read the part before */
#pragma unroll
    for (int i = 0; i < STAGED_SETS; ++i) {
        own[i * SET_QUERIES * STAGED_ROW] = logits[i][0];
        own[i * SET_QUERIES * STAGED_ROW + 8] = logits[i][1];
    }
    barrier_sync(1 + group, WARPGROUP);
    const int first = warp * STAGED_SETS + lane / 16, key = lane % 16 * 4;
    const float *const from = staged + first * STAGED_ROW + key;
#pragma unroll
    for (int i = 0; i < STAGED_SETS; i += 2) {
        const int query = first_set * SET_QUERIES + first + i - at->column;
        float *const to = at->row + query * params->logits_token_stride + key - line;
        *(float4 *)to = *(const float4 *)(from + i * STAGED_ROW);
    }
}

/* Writes the logits of the sets that a part completes. One test for all of them: their arithmetic
 * is then one run of instructions. */
DEVICE void write_sets(const struct indexer_logits_fwd_params *params, const struct cursor *at,
                       struct key_range sets, float logits[PART_SETS][2]) {
    if (STAGES_LOGITS && at->inner && at->aligned) {
        write_lines(params, at, sets.begin, logits);
    } else if (at->inner) {
#pragma unroll
        for (int i = 0; i < sets.end - sets.begin; ++i) {
            const int query = (sets.begin + i) * SET_QUERIES;
            float *const to = at->row + query * params->logits_token_stride;
            to[0] = logits[i][0];
            to[8] = logits[i][1];
        }
    } else {
#pragma unroll
        for (int i = 0; i < sets.end - sets.begin; ++i) {
            write_edge(params, at, sets.begin + i, logits[i]);
        }
    }
}

/* Adds the heads of a part of the columns to the sums of their sets, and writes those of the sets
 * that end there. `weights`: of the part's first column on. */
DEVICE void add_part(const struct indexer_logits_fwd_params *params, const struct cursor *at,
                     float *sums, const float *d, const float *weights, int part) {
    const struct key_range ending = {part * PART_EIGHTS / SET_EIGHTS,
                                     (part + 1) * PART_EIGHTS / SET_EIGHTS};
    float logits[PART_SETS][2];
#pragma unroll
    for (int i = 0; i < PART_EIGHTS; ++i) {
        const int eight = part * PART_EIGHTS + i;
        if (eight % SET_EIGHTS == 0) {
            for (int k = 0; k < 2 * CHAINS; ++k) {
                sums[k] = 0.0f;
            }
        }
#pragma unroll
        for (int odd = 0; odd < 2; ++odd) {
            if (eight % SET_EIGHTS * 2 + odd < HEADS) { /* the others' zeros may meet infinities */
                const float weight = weights[2 * i + odd];
                float *const sum = sums + odd % CHAINS * 2;
                sum[0] = add_product(sum[0], weight, d[4 * i + odd]);
                sum[1] = add_product(sum[1], weight, d[4 * i + 2 + odd]);
            }
        }
        if (eight % SET_EIGHTS == SET_EIGHTS - 1) {
            finish_set(logits[eight / SET_EIGHTS - ending.begin], at, sums);
        }
    }
    write_sets(params, at, ending, logits);
}

/* A stage of the warpgroup's own: every GROUPS-th is, for good, since STAGES is a multiple of
 * GROUPS. Shared with another, its barrier could be waited for two phases ahead, which passes. Its
 * barrier's address and its keys' descriptor go from one to the next: made anew they would cost a
 * dozen instructions a slab. A warpgroup that has one stage alone makes them anew all the same:
 * with bf16, whose keys leave room for no more, that was 1 to 6 % faster. */
struct own_stage {
    struct ring_place place;
    u32 full; /* its barrier FULL */
    u64 keys; /* the descriptor */
};

enum { GOES_ON = STAGES > GROUPS }; /* else `full` and `keys` are not looked at */

DEVICE u32 own_full(const struct own_stage *stage) {
    return GOES_ON ? stage->full : barrier_at(FULL + stage->place.index);
}

DEVICE void next_own(struct own_stage *stage) {
    stage->place.index += GROUPS;
    stage->full += GROUPS * 8;
    stage->keys = descriptor_advance(stage->keys, GROUPS * KEY_BYTES);
    if (stage->place.index >= STAGES) {
        stage->place.index -= STAGES;
        stage->place.parity ^= 1;
        stage->full -= STAGES * 8;
        stage->keys -= descriptor_advance(0, STAGES * KEY_BYTES);
    }
}

/* One slab: products, sums, logits. Its keys have landed. `all_keys` and `queries`: descriptors, of
 * the first stage's keys and of the block's queries. Moves on to the warpgroup's next stage and
 * tells whether its keys have landed, too. */
DEVICE bool score_slab(const struct indexer_logits_fwd_params *params, struct cursor *at,
                       float *weights, struct own_stage *stage, u64 all_keys, u64 queries) {
    float sums[2 * CHAINS];
    bool landed = false;
    const int index = stage->place.index;
    const u32 own_empty = stage->full + (EMPTY - FULL) * 8;
    const u64 keys = GOES_ON ? stage->keys : descriptor_advance(all_keys, (u32)(index * KEY_BYTES));
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
        float d[VALUES];
        issue_product(d, keys, descriptor_advance(queries, (u32)(part * PART_COLUMNS * SWIZZLE)));
        if (WEIGHTS_PARTS < PARTS) {
            load_weights(weights, at, part);
        }
        if (part == 0) {
            if (!SCALES_AHEAD) {
                load_scales(params, at, (u32)at->key);
            }
            take_scales(at);
            if (SCALES_AHEAD) {
                load_scales(params, at, (u32)at->key + GROUPS * SLAB);
            }
            next_own(stage);
            landed = mbarrier_test(own_full(stage), stage->place.parity);
        }
        wgmma_wait_0();
        if (part == PARTS - 1) {
            arrive_warp(GOES_ON ? own_empty : barrier_at(EMPTY + index), 1);
        }
        add_part(params, at, sums, d,
                 weights + (WEIGHTS_PARTS < PARTS ? 0 : part * PART_EIGHTS * 2), part);
    }
    return landed;
}

/* `group`: 0 to GROUPS - 1. Slabs are numbered through all runs; this warpgroup has those whose
 * number leaves `group` when divided by GROUPS. */
DEVICE void run_math(const struct indexer_logits_fwd_params *params, int group) {
    const u64 all_keys =
        shared_descriptor(shared_address(KEYS_OFFSET), 16, ATOM_ROWS * SWIZZLE, SWIZZLE);
    const u64 all_queries =
        shared_descriptor(shared_address(QUERIES_OFFSET), 16, ATOM_ROWS * SWIZZLE, SWIZZLE);
    const int lane = (int)threadIdx.x % 32;
    const int line = (int)threadIdx.x % WARPGROUP / 32 * 16 + lane / 4;
    struct own_stage stage = {{group, 0},
                              barrier_at(FULL + group),
                              descriptor_advance(all_keys, (u32)(group * KEY_BYTES))};
    struct ring_place buffer = {0, 0};
    struct cursor at;
    float weights[HELD_WEIGHTS];
    int slab = group; /* the next own one, of the run */
    bool landed = false;
    at.column = lane % 4;
    at.aligned = (((u64)params->logits | (u64)params->logits_token_stride * 4) & 15) == 0;
    for (;;) {
        at.buffer = buffer.index;
        mbarrier_wait(barrier_at(QUERY_FULL + buffer.index), buffer.parity);
        const struct run run = *run_at(buffer.index);
        if (run.slabs == 0) {
            return;
        }
        if (WEIGHTS_PARTS == PARTS) {
            load_weights(weights, &at, 0);
        }
        const u64 queries = descriptor_advance(all_queries, (u32)(buffer.index * QUERY_BYTES));
        const bool whole = params->tokens - run.query >= BLOCK_QUERIES;
        at.queries = params->tokens - run.query - at.column;
        at.key = run.key + slab * SLAB + line;
        at.row = params->logits + (run.query + at.column) * params->logits_token_stride + at.key;
        if (SCALES_AHEAD) {
            load_scales(params, &at, (u32)at.key);
        }
#pragma unroll 1
        for (; slab < run.slabs; slab += GROUPS) {
            const int first = run.key + slab * SLAB;
            at.inner = whole && first >= run.inner && run.outer - first >= SLAB;
            if (!landed) {
                mbarrier_wait(own_full(&stage), stage.place.parity);
            }
            landed = score_slab(params, &at, weights, &stage, all_keys, queries);
            at.key += GROUPS * SLAB;
            at.row += GROUPS * SLAB;
        }
        slab -= run.slabs;
        arrive_warp(barrier_at(QUERY_EMPTY + buffer.index), 1);
        ring_advance(&buffer, QUERY_BUFFERS);
    }
}

KERNEL void __launch_bounds__(THREADS, 1)
    KERNEL_NAME(const __grid_constant__ struct indexer_logits_fwd_params params) {
    initialise(&params);
    if (params.chained) {
        grid_launch_dependents();
    }
    count_costs(&params);
    __syncthreads();
    const int group = __shfl_sync((u32)ALL_LANES, (int)threadIdx.x / WARPGROUP, 0);
    if (group < GROUPS) {
        registers_increase(MATH_REGISTERS);
        if (params.early) {
            grid_wait();
        }
        run_math(&params, group);
    } else {
        registers_decrease(OTHER_REGISTERS);
        const int warp = (int)threadIdx.x % WARPGROUP / 32;
        if (warp == KEY_WARP || warp == QUERY_WARP) {
            run_producer(&params, warp == QUERY_WARP);
        } else if (warp == FILLER_WARP && params.fills) {
            run_filler(&params);
        }
    }
}
