/*
 * Written by smelt; do not edit. To write it again:
 *   smelt emit sparse_scores_fwd:heads=64,dqk=576,dv=512 --arch sm_90a
 *
 * spec     sparse_scores_fwd:heads=64,dqk=576,dv=512
 * arch     sm_90a
 * variant  sm90
 * kernel   smelt_sparse_scores_fwd_sm90_h64_qk576_v512
 * knobs (by the spec, or by rule)
 *   RING_TILES                      13  rule     of 64 columns of a key block, in flight
 *   QUERY_BUFFERS                    2  rule     queries whose Q is in shared memory at once
 *   RACECHECK                        0  rule     1: every lane of a warp arrives at barriers
 * shared memory (offset, bytes)
 *   KEYS_OFFSET                      0   212992  tiles of key blocks
 *   QUERY_OFFSET                212992        0  Q
 *   OFFSETS_OFFSET              212992      512  of the heads: what their p is divided by, as a power of two
 *   SUMS_OFFSET                 213504     4096  sums over each warp's heads, of two blocks
 *   REQUESTS_OFFSET             217600     1080  key blocks that are to be copied
 *   WORDS_OFFSET                218688       56  what each block is
 *   BARRIERS_OFFSET             218744      376  mbarriers
 *   RANGE_OFFSET                219120        8  which items the launch takes
 *   SHARED_BYTES                219128  of 232448 that a block may have on sm_90a
 * launch
 *   384 threads a block, 1 block resident per multiprocessor, at most 168 registers a thread
 *   grid: 1 block a query, but no more than are resident at once
 *   persistent: in a grid-stride loop a block does the work of several
 */

enum {
    HEADS = 64,                     /* query heads */
    DQK = 576,                      /* width of a query and of a KV row, elements */
    DV = 512,                       /* width of a value, elements */
    HEAD_BLOCKS = 1,                /* items of a query */
    TURNS_AHEAD = 32,               /* entries of a query list that a warp holds */
    DEPENDENT_LAUNCH = 1,           /* 1: a kernel may begin before the one ahead of it has ended */
    RING_TILES = 13,                /* of 64 columns of a key block, in flight */
    QUERY_BUFFERS = 2,              /* queries whose Q is in shared memory at once */
    RACECHECK = 0,                  /* 1: every lane of a warp arrives at barriers */
    STAGES = 1,                     /* whole key blocks in the ring */
    QUERY_IN_RING = 1,              /* 1: heads are the rows; Q goes by way of the ring into registers */
    MATH_GROUPS = 1,                /* warpgroups of math */
    BLOCK_KEYS = 128,               /* slots of a key block */
    BLOCK_HEADS = 64,               /* heads, rounded up to eights */
    REQUESTS = 2,                   /* key blocks that the scan is ahead */
    COPY_WARPS = 4,                 /* of the gather's */
    MATH_REGISTERS = 240,           /* of a thread, products and sums */
    GATHER_REGISTERS = 128,         /* of a thread, gather */
    BLOCKS_PER_MULTIPROCESSOR = 1,  /* resident at once */
    THREADS = 384,                  /* of a thread block */
};

/* Shared memory, in bytes from the arena's start. */
enum {
    KEYS_OFFSET = 0,                /* tiles of key blocks */
    QUERY_OFFSET = 212992,          /* Q */
    OFFSETS_OFFSET = 212992,        /* of the heads: what their p is divided by, as a power of two */
    SUMS_OFFSET = 213504,           /* sums over each warp's heads, of two blocks */
    REQUESTS_OFFSET = 217600,       /* key blocks that are to be copied */
    WORDS_OFFSET = 218688,          /* what each block is */
    BARRIERS_OFFSET = 218744,       /* mbarriers */
    RANGE_OFFSET = 219120,          /* which items the launch takes */
    SHARED_BYTES = 219128,          /* the arena's size */
};

#define KERNEL_NAME smelt_sparse_scores_fwd_sm90_h64_qk576_v512

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

#line 4 "templates/ptx/wgmma_rs.cuh"

/* As wgmma_ss_n128, a in registers: row and depth of the warp's 16 x 16 as in mma_m16n8k16_bf16
 * (PTX ISA, "wgmma.mma_async"). */
// clang-format off
DEVICE void wgmma_rs_n128_t00(float *d, const u32 *a, u64 b, int accumulate) {
    asm volatile("{.reg .pred p;\n\t"
                 "setp.ne.s32 p, %69, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
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
#line 13 "templates/ptx/wgmma_rs.cuh"
                 "%28, %29, %30, %31, "
#line 13 "templates/ptx/wgmma_rs.cuh"
                 "%32, %33, %34, %35, "
#line 13 "templates/ptx/wgmma_rs.cuh"
                 "%36, %37, %38, %39, "
#line 13 "templates/ptx/wgmma_rs.cuh"
                 "%40, %41, %42, %43, "
#line 13 "templates/ptx/wgmma_rs.cuh"
                 "%44, %45, %46, %47, "
#line 13 "templates/ptx/wgmma_rs.cuh"
                 "%48, %49, %50, %51, "
#line 13 "templates/ptx/wgmma_rs.cuh"
                 "%52, %53, %54, %55, "
#line 13 "templates/ptx/wgmma_rs.cuh"
                 "%56, %57, %58, %59, "
#line 15 "templates/ptx/wgmma_rs.cuh"
                 "%60, %61, %62, %63}, "
                 "{%64, %65, %66, %67}, "
                 "%68, p, 1, 1, 0;}"
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
#line 20 "templates/ptx/wgmma_rs.cuh"
                 "+f"(d[28]), "+f"(d[29]),
                 "+f"(d[30]), "+f"(d[31]),
#line 20 "templates/ptx/wgmma_rs.cuh"
                 "+f"(d[32]), "+f"(d[33]),
                 "+f"(d[34]), "+f"(d[35]),
#line 20 "templates/ptx/wgmma_rs.cuh"
                 "+f"(d[36]), "+f"(d[37]),
                 "+f"(d[38]), "+f"(d[39]),
#line 20 "templates/ptx/wgmma_rs.cuh"
                 "+f"(d[40]), "+f"(d[41]),
                 "+f"(d[42]), "+f"(d[43]),
#line 20 "templates/ptx/wgmma_rs.cuh"
                 "+f"(d[44]), "+f"(d[45]),
                 "+f"(d[46]), "+f"(d[47]),
#line 20 "templates/ptx/wgmma_rs.cuh"
                 "+f"(d[48]), "+f"(d[49]),
                 "+f"(d[50]), "+f"(d[51]),
#line 20 "templates/ptx/wgmma_rs.cuh"
                 "+f"(d[52]), "+f"(d[53]),
                 "+f"(d[54]), "+f"(d[55]),
#line 20 "templates/ptx/wgmma_rs.cuh"
                 "+f"(d[56]), "+f"(d[57]),
                 "+f"(d[58]), "+f"(d[59]),
#line 23 "templates/ptx/wgmma_rs.cuh"
                 "+f"(d[60]), "+f"(d[61]),
                 "+f"(d[62]), "+f"(d[63])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}
// clang-format on

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

#line 2 "templates/ptx/proxy.cuh"

/* Orders this thread's plain accesses to shared memory, and those it knows of, before what the
 * async proxy (wgmma, bulk and tensor copies) does next on its behalf, and the other way round
 * (PTX ISA, "membar / fence", fence.proxy.async). */
DEVICE void fence_proxy_async(void) {
    asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
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

#line 1 "templates/sparse_scores_fwd.params.h"
/*
 * Arguments of the sparse_scores_fwd kernels, every variant. Included by the host code (behind
 * common/work.params.h) and, by the generator, by the CUDA source: plain C types only. Strides
 * count elements. See include/smelt/sparse_scores.h for what each tensor holds.
 */
struct sparse_scores_fwd_params {
    struct work_params work;
    const void *q;     /* [batches, tokens, HEADS, DQK] bf16 */
    const void *kv;    /* [batches, rows, DQK] bf16 */
    const float *lse;  /* [batches, tokens, HEADS] */
    const float *sink; /* [HEADS], or null */
    float *target;     /* [batches, tokens, width] */
    long long q_batch_stride, q_token_stride, q_head_stride;
    long long kv_batch_stride;
    long long lse_batch_stride, lse_token_stride, lse_head_stride;
    long long target_batch_stride, target_token_stride;
    unsigned kv_row_bytes; /* from one KV row to the next */
    float scale;           /* softmax scale, natural units */
};

#line 5 "templates/sparse_scores_fwd.heads.cuh"
/*
 * A query's heads, as every variant needs them, and its row of the result
 * (include/smelt/sparse_scores.h). In powers of two p = exp2(score * scale_log2 + offset): the
 * offset is what head's denominator comes to.
 */

/* -log2 of what the head's p is divided by; -inf past the last head, whose p is 0. */
DEVICE float head_offset(const struct sparse_scores_fwd_params *params, int batch, int token,
                         int head) {
    if (head >= HEADS) {
        return MINUS_INFINITY;
    }
    const float lse =
        LOG2_E * params->lse[batch * params->lse_batch_stride + token * params->lse_token_stride +
                             head * params->lse_head_stride];
    if (!params->sink) {
        return -lse;
    }
    const float sink = LOG2_E * params->sink[head], highest = fmaxf(sink, lse);
    return highest == -MINUS_INFINITY
               ? MINUS_INFINITY
               : -highest - log2_approximate(exp2_approximate(sink - highest) +
                                             exp2_approximate(lse - highest));
}

/* Where a query's row of the target begins. */
DEVICE float *target_row(const struct sparse_scores_fwd_params *params, int batch, int token) {
    return params->target + batch * params->target_batch_stride +
           token * params->target_token_stride;
}

#line 14 "templates/sparse_scores_fwd.gather.cuh"
/*
 * The gather's warps of sparse_scores_fwd's wgmma kernels, and what they share with their
 * MATH_GROUPS math warpgroups, which take a query's key blocks in turn. A warp scans the slots,
 * sets the target of those blocks to 0 that have no valid one, and asks for the others; COPY_WARPS
 * copy the rows, as far ahead as the ring has room. Q is either loaded by a warp of its own into
 * QUERY, with its heads' offsets, or (QUERY_IN_RING, for one math warpgroup that keeps it in
 * registers) goes through the ring ahead of the query's first block; then the scan has it brought
 * to L2 and stores the offsets, and the fourth kind of warp is a relay: it tells math what has
 * landed, and makes it known to the products in math's place.
 *
 * A key block is BLOCK_KEYS slots in their places: the row of a masked one is zeros and its result
 * is not looked at. A query has at least as many key blocks as there are math warpgroups, so that
 * each of those has one of every query; what is missing are blocks without a valid slot.
 *
 * What binds, but with many heads, is the ring: gathered bytes per second are the bytes under way
 * over the time that a byte takes from L2 to its use. So it takes all the shared memory that Q
 * leaves, in tiles of 64 columns, each with barriers of its own: a block's products begin with its
 * first tile, and each tile makes room when its product is done. Nothing is kept from one block to
 * the next.
 *
 * Shared memory (offsets and sizes: the plan above). A tile is rows of 64 columns, 128-byte
 * swizzled:
 *   KEYS     [RING_TILES] tiles of BLOCK_KEYS rows, a ring: a block's tiles follow each other
 *   QUERY    [QUERY_BUFFERS][TILES] tiles of BLOCK_HEADS rows; or none: those in the ring are
 *            TILE_QUERIES to a tile there
 *   OFFSETS  [QUERY_BUFFERS][BLOCK_HEADS] fp32
 *   WORDS    [RING_BLOCKS]: struct block_word
 *   REQUESTS [REQUESTS]: struct request
 *   RANGE: common/work.cuh
 *
 * Barriers (parity counts uses; t: the ring's tile; m: the math warpgroup, of whose FULL barriers
 * each sees its own tiles alone; b: Q's buffer):
 *   barrier       count           who arrives                               who waits
 *   READY[r]      1               gather: the scan, request r is there      copies
 *   TAKEN[r]      COPY_WARPS      gather: copies, its slots are read        scan
 *   FULL[t][m]    COPY_ARRIVALS   copies: every thread when its copies      math warpgroup m
 *                                 have landed, one for the word
 *   EMPTY[t]      4               math: warps, the tile's product is done,  copies
 *                                 or Q is in registers
 *   QUERY_FULL[b] 33              gather: the lanes that load Q when it     math
 *                                 has landed, the warp for the offsets
 *   QUERY_FREE[b] QUERY_ARRIVALS  math: 4 for each of the query's blocks,   gather: Q's warp; the
 *                                 its products are done; the scan: all      scan, before its own
 *                                 that are missing, when it knows how
 *                                 many blocks there are
 * With Q in the ring instead:
 *   LANDED[t]     COPY_ARRIVALS   copies, as FULL above                     relay
 *   FULL[t][0]    1               relay: the products know of it            math
 *   QUERY_FULL[b] 1               gather: the scan, for the offsets         math
 *   QUERY_FREE[b] 4               math: warps, they have the offsets        scan
 * (Counts are of warps where warps arrive: common/warp_arrival.cuh.)
 */

enum {
    WARPGROUP = 128, /* threads */
    GATHER_WARPGROUP = MATH_GROUPS,
    COPY_ROWS = COPY_WARPS * 4,    /* of a tile, copied at once: eight threads a row */
    ROWS = BLOCK_KEYS / COPY_ROWS, /* of a thread, in each tile */
    LANE_SLOTS = BLOCK_KEYS / 32,  /* of a lane, in each step of the scan */
    ALL_LANES = -1,
    MASKED = -1,
    RELAY = QUERY_IN_RING, /* a warp has no Q to load */

    TILES = DQK / 64, /* of a key block, and of Q */
    TILE_PITCH = 128, /* bytes of a row, 64 columns */
    KEY_TILE_BYTES = BLOCK_KEYS * TILE_PITCH,
    QUERY_TILE_BYTES = BLOCK_HEADS * TILE_PITCH,
    QUERY_BYTES = TILES * QUERY_TILE_BYTES,
    /* Where Q is in the ring: its tiles in one of the ring, and how many of those they take. */
    TILE_QUERIES = BLOCK_KEYS > BLOCK_HEADS ? BLOCK_KEYS / BLOCK_HEADS : 1,
    QUERY_PLACES = (TILES + TILE_QUERIES - 1) / TILE_QUERIES,
    ATOM_BYTES = 8 * TILE_PITCH,                   /* eight rows of a tile */
    STEP_BYTES = 32,                               /* 16 columns of a row: a k-step */
    RING_BLOCKS = (RING_TILES + TILES - 1) / TILES /* that are in the ring, in part */
};

/* Places in BARRIERS. */
enum {
    FULL = 0, /* by tile and math warpgroup */
    EMPTY = FULL + MATH_GROUPS * RING_TILES,
    LANDED = EMPTY + RING_TILES,
    READY = LANDED + (RELAY ? RING_TILES : 0),
    TAKEN = READY + REQUESTS,
    QUERY_FULL = TAKEN + REQUESTS,
    QUERY_FREE = QUERY_FULL + QUERY_BUFFERS
};

/* So many that the scan has at least one left to make: rows have 2^20 slots at most. (With
 * RACECHECK, where warps arrive lane by lane, 2^19.) It is the most that a barrier counts. */
enum { QUERY_ARRIVALS = (1 << 20) - 1 };

/* For a tile: every copying thread's, and one for the word. */
enum { COPY_ARRIVALS = COPY_WARPS * 32 + 1 };

DEVICE u32 barrier_at(int number) {
    return shared_address((u32)(BARRIERS_OFFSET + number * 8));
}

DEVICE void initialise(void) {
    if (threadIdx.x == 0) {
        for (int tile = 0; tile < RING_TILES; ++tile) {
            for (int group = 0; group < MATH_GROUPS; ++group) {
                mbarrier_init(barrier_at(FULL + MATH_GROUPS * tile + group),
                              RELAY ? WARP_ARRIVALS : COPY_ARRIVALS);
            }
            if (RELAY) {
                mbarrier_init(barrier_at(LANDED + tile), COPY_ARRIVALS);
            }
            mbarrier_init(barrier_at(EMPTY + tile), 4 * WARP_ARRIVALS);
        }
        for (int request = 0; request < REQUESTS; ++request) {
            mbarrier_init(barrier_at(READY + request), WARP_ARRIVALS);
            mbarrier_init(barrier_at(TAKEN + request), COPY_WARPS * WARP_ARRIVALS);
        }
        for (int buffer = 0; buffer < QUERY_BUFFERS; ++buffer) {
            mbarrier_init(barrier_at(QUERY_FULL + buffer),
                          QUERY_IN_RING ? WARP_ARRIVALS : 32 + WARP_ARRIVALS);
            mbarrier_init(barrier_at(QUERY_FREE + buffer),
                          QUERY_IN_RING ? 4 * WARP_ARRIVALS : QUERY_ARRIVALS);
        }
    }
    __syncthreads();
}

/* A key block as math needs it: BLOCK_KEYS slots of a query from `slot` on, the valid ones' bits,
 * and whether it is the first of the query that its warpgroup has. */
struct block_word {
    int query; /* -1: there are no more blocks */
    int slot;
    u32 valid[LANE_SLOTS];
    int opens;
};

DEVICE struct block_word *block_word(int index) {
    return (struct block_word *)(arena + WORDS_OFFSET) + index;
}

/* What the scan asks the copies for. */
struct request {
    int rows[BLOCK_KEYS]; /* KV rows by slot; of masked ones a number below 0 */
    struct block_word word;
};

DEVICE struct request *request_at(int index) {
    return (struct request *)(arena + REQUESTS_OFFSET) + index;
}

/* ---- gather: queries ------------------------------------------------------------------------- */

/* Where the row of a query's head begins in Q. Past the last head it is that of the last, so that
 * what is read is there; what is computed of it counts nothing. */
DEVICE const char *query_row(const struct sparse_scores_fwd_params *params, int batch, int token,
                             int head) {
    return (const char *)params->q +
           2 * (batch * params->q_batch_stride + token * params->q_token_stride +
                minimum(head, HEADS - 1) * params->q_head_stride);
}

/* Brings a query's Q into the L2 cache, ahead of load_query. */
DEVICE void prefetch_query(const struct sparse_scores_fwd_params *params, int batch, int token) {
    for (int head = (int)(threadIdx.x % 32); head < HEADS; head += 32) {
        prefetch_l2(query_row(params, batch, token, head), DQK * 2);
    }
}

/* Stores the offsets of a query's heads. */
DEVICE void store_offsets(const struct sparse_scores_fwd_params *params, int batch, int token,
                          int buffer) {
    float *const offsets = (float *)(arena + OFFSETS_OFFSET) + buffer * BLOCK_HEADS;
    for (int head = (int)(threadIdx.x % 32); head < BLOCK_HEADS; head += 32) {
        offsets[head] = head_offset(params, batch, token, head);
    }
}

/* ---- gather: the scan -------------------------------------------------------------------------*/

/* A query's slots, a key block's at a time; loaded one step ahead. */
struct scan {
    const int *row;
    int values[LANE_SLOTS]; /* KV rows, or anything else for masked slots */
    int slots;              /* that may be valid */
};

/* Loads the slots from `slot` on. */
DEVICE void load_slots(struct scan *scan, int slot) {
    const int mine = slot + (int)(threadIdx.x % 32);
#pragma unroll
    for (int i = 0; i < LANE_SLOTS; ++i) {
        scan->values[i] = mine + 32 * i < scan->slots ? scan->row[mine + 32 * i] : MASKED;
    }
}

/* Begins the slots of an item, if it is one. */
DEVICE void open_scan(struct scan *scan, const struct work_params *params,
                      const struct work *work) {
    if (work->query >= 0) {
        scan->row = work_row(params, work);
        scan->slots = work_slots(params, work);
        load_slots(scan, 0);
    }
}

/* How the requests go on. */
struct asking {
    struct ring_place turn;
    int blocks; /* of the query, so far */
};

/* Asks for a block of these rows, null for one without a valid slot. When the lanes have met all
 * wrote them, and none still looks at a phase that the request ends. */
DEVICE void ask(struct asking *asking, const int *rows, int query, int slot) {
    const int lane = (int)(threadIdx.x % 32);
    struct request *const request = request_at(asking->turn.index);
    mbarrier_wait(barrier_at(TAKEN + asking->turn.index), asking->turn.parity ^ 1);
#pragma unroll
    for (int i = 0; i < LANE_SLOTS; ++i) {
        const int row = rows ? rows[i] : MASKED;
        const u32 valid = __ballot_sync((u32)ALL_LANES, row >= 0);
        request->rows[lane + 32 * i] = row;
        if (lane == 0) {
            request->word.valid[i] = valid;
        }
    }
    if (lane == 0) {
        request->word.query = query;
        request->word.slot = slot;
        request->word.opens = asking->blocks < MATH_GROUPS;
    }
    arrive_warp(barrier_at(READY + asking->turn.index), 1);
    ring_advance(&asking->turn, REQUESTS);
    ++asking->blocks;
}

/* Sets the target of a block's slots to 0. */
DEVICE void clear_block(const struct sparse_scores_fwd_params *params, int query, int slot) {
    const int batch = query_batch(&params->work, query), lane = (int)(threadIdx.x % 32);
    float *const target = target_row(params, batch, query - batch * params->work.tokens);
#pragma unroll
    for (int i = 0; i < LANE_SLOTS; ++i) {
        if (slot + lane + 32 * i < params->work.width) {
            target[slot + lane + 32 * i] = 0.0f;
        }
    }
}

/* Asks for the query's blocks that have valid slots, and clears the others. */
DEVICE void ask_blocks(const struct sparse_scores_fwd_params *params, struct scan *scan,
                       struct asking *asking, int query) {
    for (int slot = 0; slot < params->work.width; slot += BLOCK_KEYS) {
        int rows[LANE_SLOTS];
        bool any = false;
#pragma unroll
        for (int i = 0; i < LANE_SLOTS; ++i) {
            rows[i] = scan->values[i] < params->work.rows ? scan->values[i] : MASKED;
            any = any || rows[i] >= 0;
        }
        load_slots(scan, slot + BLOCK_KEYS);
        if (__any_sync((u32)ALL_LANES, any)) {
            ask(asking, rows, query, slot);
        } else {
            clear_block(params, query, slot);
        }
    }
}

/* Makes the arrivals that a query of so many blocks lacks, when those for the one before it in its
 * buffer are complete. */
DEVICE void end_query(struct ring_place *buffer, int blocks) {
    const u32 barrier = barrier_at(QUERY_FREE + buffer->index);
    if (threadIdx.x % 32 == 0) { /* alone: none else looks at a phase that this may end */
        mbarrier_wait(barrier, buffer->parity ^ 1);
        mbarrier_arrive_count(barrier, QUERY_ARRIVALS - blocks * 4 * WARP_ARRIVALS);
    }
    ring_advance(buffer, QUERY_BUFFERS);
}

/* Where Q is in the ring: has it brought to L2, and stores the offsets of its heads. */
DEVICE void begin_query(const struct sparse_scores_fwd_params *params, const struct work *work,
                        struct ring_place *buffer) {
    const int batch = work_batch(&params->work, work), token = work_token(&params->work, work);
    prefetch_query(params, batch, token);
    mbarrier_wait(barrier_at(QUERY_FREE + buffer->index), buffer->parity ^ 1);
    store_offsets(params, batch, token, buffer->index);
    arrive_warp(barrier_at(QUERY_FULL + buffer->index), 1);
    ring_advance(buffer, QUERY_BUFFERS);
}

/* The warp that scans. */
DEVICE void run_scan(const struct sparse_scores_fwd_params *params) {
    struct asking asking = {{0, 0}, 0};
    struct ring_place buffer = {0, 0};
    struct scan scan;
    struct work work = first_work(&params->work);
    open_scan(&scan, &params->work, &work);
    while (work.query >= 0) {
        const struct work now = work;
        asking.blocks = 0;
        if (QUERY_IN_RING) {
            begin_query(params, &now, &buffer);
        }
        ask_blocks(params, &scan, &asking, now.query);
        work = next_work(&params->work, &now);
        open_scan(&scan, &params->work, &work);
        while (asking.blocks < MATH_GROUPS) {
            ask(&asking, 0, now.query, params->work.width);
        }
        if (!QUERY_IN_RING) {
            end_query(&buffer, asking.blocks);
        }
    }
    ask(&asking, 0, -1, 0);
}

/* ---- gather: the copies ---------------------------------------------------------------------- */

/* A copying thread's rows of a key block, at 16 bytes of their first columns. */
struct block_rows {
    struct block_word word; /* the block's */
    u32 present;            /* a bit a row; the others are zeros */
    const char *from[ROWS];
};

/* Takes the next request, when it is there. */
DEVICE void take_request(const struct sparse_scores_fwd_params *params, struct ring_place *turn,
                         struct block_rows *block) {
    mbarrier_wait(barrier_at(READY + turn->index), turn->parity);
    const struct request *const request = request_at(turn->index);
    block->word = request->word;
    block->present = 0;
    const int batch = query_batch(&params->work, maximum(block->word.query, 0));
    const char *const source =
        (const char *)params->kv + 2 * (batch * params->kv_batch_stride) + threadIdx.x % 8 * 16;
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        const int row = request->rows[threadIdx.x % WARPGROUP / 8 + i * COPY_ROWS];
        block->present |= row >= 0 ? 1u << i : 0;
        block->from[i] = source + (u64)(u32)maximum(row, 0) * params->kv_row_bytes;
    }
    arrive_warp(barrier_at(TAKEN + turn->index), 1);
    ring_advance(turn, REQUESTS);
}

/* Copies a tile of a block into the ring's tile number `place`: eight threads a row. */
DEVICE void copy_tile(const struct block_rows *block, int place, int tile) {
    const u32 thread = threadIdx.x % WARPGROUP;
    const u32 to = shared_address((u32)(KEYS_OFFSET + place * KEY_TILE_BYTES) +
                                  thread / 8 * TILE_PITCH + ((thread % 8) ^ (thread / 8 % 8)) * 16);
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        cp_async_16(to + (u32)(i * COPY_ROWS * TILE_PITCH), block->from[i] + tile * TILE_PITCH,
                    block->present >> i & 1 ? 16 : 0);
    }
}

/* Copies as many of a query's tiles of Q as go into the ring's tile number `place`, from tile
 * `first` on, below each other. */
DEVICE void copy_query(const struct sparse_scores_fwd_params *params, int query, int place,
                       int first) {
    const u32 thread = threadIdx.x % WARPGROUP, chunk = thread % 8;
    const int batch = query_batch(&params->work, query);
    const u32 to = shared_address((u32)(KEYS_OFFSET + place * KEY_TILE_BYTES) +
                                  thread / 8 * TILE_PITCH + (chunk ^ (thread / 8 % 8)) * 16);
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        const int row = (int)thread / 8 + i * COPY_ROWS, tile = first + row / BLOCK_HEADS;
        const char *const from =
            query_row(params, batch, query - batch * params->work.tokens, row % BLOCK_HEADS);
        cp_async_16(to + (u32)(i * COPY_ROWS * TILE_PITCH),
                    from + minimum(tile, TILES - 1) * TILE_PITCH + chunk * 16, 16);
    }
}

/* Where the copies are: which of the ring's tiles and words comes next, for whom. */
struct filling {
    struct ring_place place;
    int index, group;
};

/* Of a tile of a math warpgroup's. */
DEVICE u32 full_barrier(int place, int group) {
    return barrier_at(FULL + MATH_GROUPS * place + group);
}

/* Arrives for a tile; for a block's first one with its word, whose place is free as the tile's is.
 */
DEVICE void give_tile(const struct filling *filling, const struct block_word *word) {
    const u32 full = RELAY ? barrier_at(LANDED + filling->place.index)
                           : full_barrier(filling->place.index, filling->group);
    cp_async_arrive_noinc(full);
    if (threadIdx.x % WARPGROUP == 0) {
        if (word) {
            *block_word(filling->index) = *word;
        }
        mbarrier_arrive(full);
    }
}

DEVICE void next_block(struct filling *filling) {
    filling->group = (filling->group + 1) % MATH_GROUPS;
    filling->index = filling->index + 1 < RING_BLOCKS ? filling->index + 1 : 0;
}

/* Tells each math warpgroup that there are no more blocks, by the first tile of one. */
DEVICE void give_end(struct filling *filling, const struct block_word *word) {
#pragma unroll
    for (int group = 0; group < MATH_GROUPS; ++group) {
        mbarrier_wait(barrier_at(EMPTY + filling->place.index), filling->place.parity ^ 1);
        give_tile(filling, word);
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile) {
            ring_advance(&filling->place, RING_TILES);
        }
        next_block(filling);
    }
}

/* Copies a query's Q, ahead of its first block, whose word comes with it. */
DEVICE void copy_queries(const struct sparse_scores_fwd_params *params, struct filling *filling,
                         const struct block_word *word) {
#pragma unroll 1
    for (int tile = 0; tile < TILES; tile += TILE_QUERIES) {
        mbarrier_wait(barrier_at(EMPTY + filling->place.index), filling->place.parity ^ 1);
        copy_query(params, word->query, filling->place.index, tile);
        give_tile(filling, tile == 0 ? word : 0);
        ring_advance(&filling->place, RING_TILES);
    }
}

/* The warps that copy: each block's tiles as they come free. */
DEVICE void run_copies(const struct sparse_scores_fwd_params *params) {
    struct ring_place turn = {0, 0};
    struct filling filling = {{0, 0}, 0, 0};
    struct block_rows block, next;
    take_request(params, &turn, &block);
    while (block.word.query >= 0) {
        const bool opens = QUERY_IN_RING && block.word.opens;
        if (opens) {
            copy_queries(params, &filling, &block.word);
        }
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile) {
            if (tile == TILES - 1) { /* while room is waited for, as a rule */
                take_request(params, &turn, &next);
            }
            mbarrier_wait(barrier_at(EMPTY + filling.place.index), filling.place.parity ^ 1);
            copy_tile(&block, filling.place.index, tile);
            give_tile(&filling, tile == 0 && !opens ? &block.word : 0);
            ring_advance(&filling.place, RING_TILES);
        }
        block = next;
        next_block(&filling);
    }
    give_end(&filling, &block.word);
    cp_async_wait_all();
}

/* ---- gather: the relay ----------------------------------------------------------------------- */

/* The warp that tells math what has landed, and fences in its place. */
DEVICE void run_relay(void) {
    struct ring_place place = {0, 0};
    int index = 0, places = 0; /* places: of the block and its query's Q */
    for (;;) {
        mbarrier_wait(barrier_at(LANDED + place.index), place.parity);
        bool end = false;
        if (places == 0) {
            const struct block_word *const word = block_word(index);
            end = word->query < 0;
            places = TILES + (word->opens ? QUERY_PLACES : 0);
            index = index + 1 < RING_BLOCKS ? index + 1 : 0;
        }
        fence_proxy_async();
        arrive_warp(full_barrier(place.index, 0), 1);
        if (end) {
            break;
        }
        --places;
        ring_advance(&place, RING_TILES);
    }
}

/* ---- gather: Q ------------------------------------------------------------------------------- */

/* Starts the copy of a query's Q: four rows at once. */
DEVICE void load_query(const struct sparse_scores_fwd_params *params, int batch, int token,
                       int buffer) {
    const int chunk = (int)(threadIdx.x % 8);
    const u32 to = shared_address((u32)(QUERY_OFFSET + buffer * QUERY_BYTES));
#pragma unroll 1
    for (int head = (int)(threadIdx.x % 32 / 8); head < BLOCK_HEADS; head += 4) {
        const char *const from = query_row(params, batch, token, head) + chunk * 16;
        const u32 row = to + (u32)(head * TILE_PITCH + ((chunk ^ head) & 7) * 16);
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile) {
            cp_async_16(row + (u32)(tile * QUERY_TILE_BYTES), from + tile * TILE_PITCH, 16);
        }
    }
}

/* The warp that loads each query's Q and its heads' offsets. */
DEVICE void run_queries(const struct sparse_scores_fwd_params *params) {
    struct ring_place buffer = {0, 0};
    for (struct work work = first_work(&params->work); work.query >= 0;
         work = next_work(&params->work, &work)) {
        const int batch = work_batch(&params->work, &work),
                  token = work_token(&params->work, &work);
        prefetch_query(params, batch, token);
        mbarrier_wait(barrier_at(QUERY_FREE + buffer.index), buffer.parity ^ 1);
        load_query(params, batch, token, buffer.index);
        cp_async_arrive_noinc(barrier_at(QUERY_FULL + buffer.index));
        store_offsets(params, batch, token, buffer.index);
        arrive_warp(barrier_at(QUERY_FULL + buffer.index), 1);
        ring_advance(&buffer, QUERY_BUFFERS);
    }
    cp_async_wait_all();
}

/* The gather's warpgroup. */
DEVICE void run_gather(const struct sparse_scores_fwd_params *params) {
    registers_decrease(GATHER_REGISTERS);
    const int warp = (int)warp_reduce_or(threadIdx.x / 32) - GATHER_WARPGROUP * 4;
    if (warp < COPY_WARPS) {
        run_copies(params);
    } else if (warp == COPY_WARPS) {
        run_scan(params);
    } else if (warp == COPY_WARPS + 1) {
        if (RELAY) {
            run_relay();
        } else {
            run_queries(params);
        }
    }
}

/* ---- math ------------------------------------------------------------------------------------ */

/* Waits until a tile of the warpgroup's is there. `parities`: of its FULL barriers, by tile. */
DEVICE void await_tile(int place, int group, u32 *parities) {
    mbarrier_wait(barrier_at(FULL + MATH_GROUPS * place + group), (int)(*parities >> place & 1));
    *parities ^= 1u << place;
}

#line 11 "templates/sparse_scores_fwd.sm90_heads.cu"
/*
 * Attention's probabilities at the selected slots, summed over the heads, with wgmma, for at most
 * 64 heads: heads are the matrices' rows, 128 keys their columns, and Q stays in registers. So each
 * row of Q is read for twice as many columns as with heads as columns, and nothing of Q is in
 * shared memory but on its way through the ring, which has the room. Mathematics and shapes:
 * include/smelt/sparse_scores.h.
 *
 * Grid: one block a multiprocessor, each taking every gridDim.x-th query (common/work.cuh). Three
 * warpgroups:
 *
 *   math     S[64, BLOCK_KEYS] = Q K^T of each key block, then the sum over the heads of
 *            exp2(S * scale + offset), over a warp's 16 by shuffles, over the warps by way of SUMS,
 *            to the target
 *   gather   two of them, four warps for the copies: sparse_scores_fwd.gather.cuh, whose head has
 *            the barriers and the shared-memory map, but for
 *
 *   SUMS [2][4][BLOCK_KEYS] fp32: of the math warpgroup's warps, in turn for every second block
 *
 * Named barrier: 1, the math warpgroup's.
 *
 * Knobs: ring_tiles; legal values and the rule that picks them:
 * src/codegen/families/sparse_scores_fwd_sm90.c.
 */

enum {
    MATH_BARRIER = 1, /* a named one */
    STEPS = DQK / 16,
    QUERY_FRAGMENTS = STEPS * 4, /* registers */
    SCORES = BLOCK_KEYS / 2,     /* of a thread: two heads, of every eight keys two */
    THREAD_KEYS = SCORES / 2,
    LEFT_KEYS = THREAD_KEYS / 8 /* of a thread, when the warp's heads are summed up */
};

/* A query in the registers of a math warpgroup, as its products' first operand. */
struct query {
    u32 fragments[QUERY_FRAGMENTS];
    float offsets[2]; /* of the thread's two heads */
};

/* Takes a query, whose Q begins in the ring at `place`, where the first tile is there, and gives
 * its tiles back. Where the query's first block begins. */
DEVICE int take_query(struct query *query, int place, int buffer, u32 *parities) {
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x % WARPGROUP / 32;
    const u32 row = shared_address((u32)KEYS_OFFSET) + (warp * 16 + lane % 16) * TILE_PITCH +
                    ((lane / 16) ^ (lane % 8)) * 16;
    const float *const offsets =
        (const float *)(arena + OFFSETS_OFFSET) + buffer * BLOCK_HEADS + warp * 16 + lane / 4;
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
        const int part = tile % TILE_QUERIES; /* of the ring's tile */
        if (tile > 0 && part == 0) {
            await_tile(place, 0, parities);
        }
        const u32 from = row + (u32)(place * KEY_TILE_BYTES + part * QUERY_TILE_BYTES);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            ldmatrix_x4(&query->fragments[(tile * 4 + k) * 4], from ^ (u32)(k * STEP_BYTES));
        }
        if (part == TILE_QUERIES - 1 || tile == TILES - 1) {
            arrive_warp(barrier_at(EMPTY + place), 1);
            place = place + 1 < RING_TILES ? place + 1 : 0;
        }
    }
    query->offsets[0] = offsets[0];
    query->offsets[1] = offsets[8];
    arrive_warp(barrier_at(QUERY_FREE + buffer), 1);
    return place;
}

/* S of a key block whose first tile, at `first`, is there; gives its tiles back. */
DEVICE void compute_scores(float *s, const u32 *query, int first, u32 *parities) {
    const u64 ring = shared_descriptor(shared_address((u32)KEYS_OFFSET), 16, ATOM_BYTES, 128);
    int place = first, last = first;
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
        if (tile > 0) {
            await_tile(place, 0, parities);
        }
        const u64 keys = descriptor_advance(ring, (u32)(place * KEY_TILE_BYTES));
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            wgmma_rs_n128_t00(s, &query[(tile * 4 + k) * 4],
                              descriptor_advance(keys, (u32)(k * STEP_BYTES)), tile + k > 0);
        }
        wgmma_commit();
        if (tile > 0) {
            wgmma_wait_1();
            arrive_warp(barrier_at(EMPTY + last), 1);
        }
        last = place;
        place = place + 1 < RING_TILES ? place + 1 : 0;
    }
    wgmma_wait_0();
    arrive_warp(barrier_at(EMPTY + last), 1);
}

/* Adds two lanes' sums of 2 * half keys: each is left with half of the keys. */
DEVICE void exchange_half(float *p, int half, int mask) {
    const bool upper = threadIdx.x & (u32)mask;
#pragma unroll
    for (int i = 0; i < half; ++i) {
        const float given = upper ? p[i] : p[i + half], kept = upper ? p[i + half] : p[i];
        p[i] = kept + __shfl_xor_sync((u32)ALL_LANES, given, mask);
    }
}

/* Scores -> the sums of p over the warp's heads, of keys 16 * (lane / 4) + 2 * (lane % 4), the next
 * one, and those 8 further on. */
DEVICE void sum_warp(float *p, const float *s, const float *offsets, float scale_log2) {
#pragma unroll
    for (int i = 0; i < THREAD_KEYS; ++i) {
        const float *const scores = &s[i / 2 * 4 + i % 2];
        p[i] = exp2_approximate(fmaf(scores[0], scale_log2, offsets[0])) +
               exp2_approximate(fmaf(scores[2], scale_log2, offsets[1]));
    }
    exchange_half(p, THREAD_KEYS / 2, 16);
    exchange_half(p, THREAD_KEYS / 4, 8);
    exchange_half(p, THREAD_KEYS / 8, 4);
}

/* The warps' sums of a block together, to the target: a slot a thread. `turn`: 0 or 1, of SUMS. */
DEVICE void store_sums(const struct sparse_scores_fwd_params *params, const float *p,
                       const struct block_word *word, int turn) {
    const int thread = (int)threadIdx.x, warp = thread / 32, lane = thread % 32;
    float *const sums = (float *)(arena + SUMS_OFFSET) + turn * 4 * BLOCK_KEYS;
#pragma unroll
    for (int i = 0; i < LEFT_KEYS; ++i) {
        sums[warp * BLOCK_KEYS + lane / 4 * 16 + lane % 4 * 2 + i / 2 * 8 + i % 2] = p[i];
    }
    barrier_sync(MATH_BARRIER, WARPGROUP);
    const u32 valid = warp < 2    ? warp == 0 ? word->valid[0] : word->valid[1]
                         : warp == 2 ? word->valid[2]
                                  : word->valid[3];
    const float *const mine = sums + thread;
    const float sum = (mine[0] + mine[BLOCK_KEYS]) + (mine[2 * BLOCK_KEYS] + mine[3 * BLOCK_KEYS]);
    const int slot = word->slot + thread, batch = query_batch(&params->work, word->query);
    if (slot < params->work.width) {
        target_row(params, batch, word->query - batch * params->work.tokens)[slot] =
            valid >> lane & 1 ? sum : 0.0f;
    }
}

/* The math warpgroup. */
DEVICE void run_math(const struct sparse_scores_fwd_params *params) {
    registers_increase(MATH_REGISTERS);
    const float scale_log2 = params->scale * LOG2_E;
    struct ring_place buffer = {0, 0};
    int first = 0, index = 0, turn = 0;
    u32 parities = 0;
    struct query query;
    for (;;) {
        float s[SCORES], p[THREAD_KEYS];
        await_tile(first, 0, &parities);
        const struct block_word word = *block_word(index);
        if ((int)warp_reduce_or((u32)word.query) < 0) {
            break;
        }
        if (warp_reduce_or((u32)word.opens)) {
            mbarrier_wait(barrier_at(QUERY_FULL + buffer.index), buffer.parity);
            first = take_query(&query, first, buffer.index, &parities);
            ring_advance(&buffer, QUERY_BUFFERS);
            await_tile(first, 0, &parities);
        }
        compute_scores(s, query.fragments, first, &parities);
        sum_warp(p, s, query.offsets, scale_log2);
        store_sums(params, p, &word, turn);
        turn ^= 1;
        first = (first + TILES) % RING_TILES;
        index = (index + 1) % RING_BLOCKS;
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct sparse_scores_fwd_params params) {
    begin_grid(&params.work);
    initialise();
    const int warpgroup = (int)warp_reduce_or(threadIdx.x / WARPGROUP);
    if (warpgroup < GATHER_WARPGROUP) {
        run_math(&params);
    } else {
        run_gather(&params);
    }
    end_grid(&params.work);
}
