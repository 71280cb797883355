/*
 * Written by smelt; do not edit. To write it again:
 *   smelt emit indexer_logits_fwd:heads=64,dim=128,dtype=fp8 --arch sm_90a
 *
 * spec     indexer_logits_fwd:heads=64,dim=128,dtype=fp8
 * arch     sm_90a
 * variant  sm90
 * kernel   smelt_indexer_logits_fwd_sm90_h64_d128_fp8
 * knobs (by the spec, or by rule)
 *   GROUPS                           4  rule     warpgroups that compute
 *   GROUP_KEYS                      96  rule     keys of a warpgroup, of a tile
 *   RACECHECK                        0  rule     1: every lane of a warp arrives at barriers
 *   BLOCKS_PER_MULTIPROCESSOR        1  rule     resident at once, at least
 * shared memory (offset, bytes)
 *   KEYS_OFFSET                      0    98304  buffers: a tile's keys
 *   QUERIES_OFFSET               98304   122880  stages: two heads of a block's queries
 *   LOWEST_OFFSET               221184     8192  -inf, to fill with
 *   WORDS_OFFSET                229376      240  which block begins with a stage
 *   BARRIERS_OFFSET             229616      272  mbarriers
 *   SHARED_BYTES                229888  of 232448 that a block may have on sm_90a
 * launch
 *   640 threads a block, 1 block resident per multiprocessor, at most 96 registers a thread
 *   1 block a tile
 *   persistent: one such block after another in a resident one
 */

enum {
    HEADS = 64,                     /* indexer heads */
    DIM = 128,                      /* width of a head and of a key, elements */
    FP8 = 1,                        /* 1: e4m3 and scales of the keys; 0: bf16 */
    GROUPS = 4,                     /* warpgroups that compute */
    GROUP_KEYS = 96,                /* keys of a warpgroup, of a tile */
    RACECHECK = 0,                  /* 1: every lane of a warp arrives at barriers */
    STAGES = 15,                    /* two heads of a block's queries each, in flight */
    KEY_BUFFERS = 2,                /* tiles whose keys are in flight */
    BLOCK_QUERIES = 32,             /* queries of a block */
    BLOCK_KEYS = 384,               /* keys of a tile */
    CHUNK_BLOCKS = 1,               /* blocks that share a tile's keys, at most */
    ITEMS_EACH = 4,                 /* items of a thread block that chunks leave, at least */
    ROW_BYTES = 128,                /* of a key, and of a head of a query */
    SWIZZLE = 128,                  /* bytes of a row in shared memory */
    FILL_BYTES = 8192,              /* of -inf, one bulk store */
    MATH_REGISTERS = 104,           /* of a thread that computes */
    OTHER_REGISTERS = 64,           /* of a thread that loads or fills */
    TENSOR_MAPS = 1,                /* 1: q and k come by the copy engine */
    MAP_QUERIES = 8,                /* queries of a box */
    MAP_HEADS = 2,                  /* heads of a box */
    MAP_KEYS = 96,                  /* keys of a box */
    THREADS = 640,                  /* of a thread block */
    BLOCKS_PER_MULTIPROCESSOR = 1,  /* resident at once, at least */
};

/* Shared memory, in bytes from the arena's start. */
enum {
    KEYS_OFFSET = 0,                /* buffers: a tile's keys */
    QUERIES_OFFSET = 98304,         /* stages: two heads of a block's queries */
    LOWEST_OFFSET = 221184,         /* -inf, to fill with */
    WORDS_OFFSET = 229376,          /* which block begins with a stage */
    BARRIERS_OFFSET = 229616,       /* mbarriers */
    SHARED_BYTES = 229888,          /* the arena's size */
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

/* The end of a barrier: its bytes may be used for other things (PTX ISA, "mbarrier.inval"). */
DEVICE void mbarrier_invalidate(u32 barrier) {
    asm volatile("mbarrier.inval.shared::cta.b64 [%0];" : : "r"(barrier) : "memory");
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

/* Shared memory of this block to that of any block of the cluster: `to` and `barrier` are
 * cluster addresses of the same block. */
DEVICE void bulk_copy_cluster(u32 to, u32 from, u32 bytes, u32 barrier) {
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];"
                 :
                 : "r"(to), "r"(from), "r"(bytes), "r"(barrier)
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

/* The same for bf16 values, each sum rounded to the nearest. */
DEVICE void bulk_reduce_add_bf16(void *to, u32 from, u32 bytes) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.bf16 "
                 "[%0], [%1], %2;"
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
#line 62 "templates/ptx/bulk.cuh"
DEVICE void bulk_wait_0(void) {
    asm volatile("cp.async.bulk.wait_group 0;" : : : "memory");
}

DEVICE void bulk_wait_read_0(void) {
    asm volatile("cp.async.bulk.wait_group.read 0;" : : : "memory");
}

#line 62 "templates/ptx/bulk.cuh"
DEVICE void bulk_wait_1(void) {
    asm volatile("cp.async.bulk.wait_group 1;" : : : "memory");
}

DEVICE void bulk_wait_read_1(void) {
    asm volatile("cp.async.bulk.wait_group.read 1;" : : : "memory");
}

#line 62 "templates/ptx/bulk.cuh"
DEVICE void bulk_wait_2(void) {
    asm volatile("cp.async.bulk.wait_group 2;" : : : "memory");
}

DEVICE void bulk_wait_read_2(void) {
    asm volatile("cp.async.bulk.wait_group.read 2;" : : : "memory");
}

#line 62 "templates/ptx/bulk.cuh"
DEVICE void bulk_wait_3(void) {
    asm volatile("cp.async.bulk.wait_group 3;" : : : "memory");
}

DEVICE void bulk_wait_read_3(void) {
    asm volatile("cp.async.bulk.wait_group.read 3;" : : : "memory");
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

#line 2 "templates/ptx/proxy.cuh"

/* Orders this thread's plain accesses to shared memory, and those it knows of, before what the
 * async proxy (wgmma, bulk and tensor copies) does next on its behalf, and the other way round
 * (PTX ISA, "membar / fence", fence.proxy.async). */
DEVICE void fence_proxy_async(void) {
    asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
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

#line 3 "templates/ptx/tensor.cuh"
/*
 * Copies of a box of a tensor by the async proxy, issued by one thread (PTX ISA, "Data Movement and
 * Conversion Instructions: Tensor copy"). The map is a parameter of the kernel (in constant memory,
 * its address taken there). x counts elements of the innermost dimension, y, z and w the outer
 * ones; what lies outside of the tensor is zero when loaded and dropped when stored. Shared
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

/* The same for tensors of three dimensions. */
DEVICE void tensor_load_3d(u32 to, const struct tensor_map *map, u32 barrier, int x, int y, int z) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5}], [%2];"
                 :
                 : "r"(to), "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z)
                 : "memory");
}

/* With a policy of ptx/policy.cuh for the L2 cache. */
DEVICE void tensor_load_2d_hint(u32 to, const struct tensor_map *map, u32 barrier, int x, int y,
                                u64 policy) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5;"
                 :
                 : "r"(to), "l"(map), "r"(barrier), "r"(x), "r"(y), "l"(policy)
                 : "memory");
}

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

/* A box from shared memory, in the bulk group that bulk_commit closes. */
DEVICE void tensor_store_2d(const struct tensor_map *map, u32 from, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];"
                 :
                 : "l"(map), "r"(from), "r"(x), "r"(y)
                 : "memory");
}

DEVICE void tensor_store_3d(const struct tensor_map *map, u32 from, int x, int y, int z) {
    asm volatile(
        "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];"
        :
        : "l"(map), "r"(from), "r"(x), "r"(y), "r"(z)
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

#line 4 "templates/ptx/wgmma_fp8_ss.cuh"

/* d = a * b, or d += a * b when `accumulate`: 64 x 96, depth 32, e4m3 in, fp32 accumulation, by
 * one warpgroup; a and b: common/descriptor.cuh, K-major; d as in ptx/wgmma_ss.cuh (PTX ISA,
 * "wgmma.mma_async"). */
// clang-format off
DEVICE void wgmma_fp8_ss_n96(float *d, u64 a, u64 b, int accumulate) {
    asm volatile("{.reg .pred p;\n\t"
                 "setp.ne.s32 p, %50, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n96k32.f32.e4m3.e4m3 {"
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
#line 16 "templates/ptx/wgmma_fp8_ss.cuh"
                 "%44, %45, %46, %47}, "
                 "%48, %49, p, 1, 1;}"
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
#line 23 "templates/ptx/wgmma_fp8_ss.cuh"
                 "+f"(d[44]), "+f"(d[45]),
                 "+f"(d[46]), "+f"(d[47])
                 : "l"(a), "l"(b), "r"(accumulate));
}
// clang-format on

#line 4 "templates/ptx/wgmma_ss.cuh"

/*
 * d = a * b, or d += a * b when `accumulate`: 64 x 96, depth 16, bf16 in, fp32 accumulation, by
 * one warpgroup (PTX ISA, "wgmma.mma_async"). a and b: common/descriptor.cuh; ta, tb: the operand
 * is transposed. d[i] of lane 4 * g + t, warp w, is at row 16 * w + g, in every second pair 8 more,
 * and at column 8 * (i / 4) + 2 * t + i % 2.
 */
// clang-format off
DEVICE void wgmma_ss_n96_t00(float *d, u64 a, u64 b, int accumulate) {
    asm volatile("{.reg .pred p;\n\t"
                 "setp.ne.s32 p, %50, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 {"
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
#line 19 "templates/ptx/wgmma_ss.cuh"
                 "%44, %45, %46, %47}, "
                 "%48, %49, p, 1, 1, 0, 0;}"
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
#line 26 "templates/ptx/wgmma_ss.cuh"
                 "+f"(d[44]), "+f"(d[45]),
                 "+f"(d[46]), "+f"(d[47])
                 : "l"(a), "l"(b), "r"(accumulate));
}
// clang-format on

#line 2 "templates/indexer_logits_fwd.params.h"
/*
 * Arguments of the indexer_logits_fwd kernels, every variant. Included by the host code (behind
 * common/tensor_map.h) and, by the generator, by the CUDA source: plain C types only. Strides count
 * elements. See include/smelt/indexer_logits.h for what the tensors hold.
 */
struct indexer_logits_fwd_params {
    /* For the copy engine, of variants with TENSOR_MAPS alone: q as [HEADS, tokens, DIM], boxes of
     * MAP_HEADS heads, MAP_QUERIES queries and DIM columns (64 at most with bf16); k as [rows,
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
    int least; /* keys that a window must have to be looked at: a shorter one counts as empty */
    int fills; /* 1: -inf is written outside of windows; 0: what stands there does not matter */
    int early; /* 1: the kernel before may still read what is written here; it is waited for */
};

#line 18 "templates/indexer_logits_fwd.sm90.cu"
/*
 * The lightning indexer's logits with wgmma: every query's rows against every key in its window,
 * heads added up, everything else -inf. Mathematics and shapes: include/smelt/indexer_logits.h.
 *
 * Queries are the products' rows and keys their columns:
 *
 *   D[64, GROUP_KEYS] = Q[32 queries x 2 heads, DIM] K[GROUP_KEYS, DIM]^T
 *
 * Rows come as eight queries with an even head, the same eight with the next head, and so on, so
 * that a thread's two rows of D are one query's: it adds up all heads of its query by itself, in
 * ascending order, over HEADS / 2 products (logit += weight * max(0, D)), with two weights at a
 * time and nothing exchanged. What that arithmetic costs beside running products is what binds with
 * e4m3: a weight that serves a whole row is what made it cheaper than keys as rows
 * (indexer_logits_fwd.lost.md).
 *
 * Items. 32 queries are a block, GROUPS * GROUP_KEYS keys a tile, and a block's tiles are those
 * from the first to the last that one of its windows meets. An item is a tile and a chunk of
 * blocks, as many as make the tile's keys worth loading; blocks of the chunk that do not meet it
 * are left out. Grid: one thread block a multiprocessor; items are numbered along the chunks'
 * tiles, chunk after chunk, and block b of the grid takes numbers b, b + gridDim.x, and so on:
 * neighbours are at work on the same queries, which come from memory once. Everyone counts by
 * himself, from the windows: no plan, no counter in memory.
 *
 *   producer   a warp: finds the items; the copy engine brings a tile's keys, two buffers in turn,
 *              and the queries, two heads at a time, STAGES ahead, across items
 *   filler     a warp: -inf into what no tile covers, by bulk stores
 *   math       GROUPS warpgroups, each with GROUP_KEYS of the tile's keys; all use the same
 * queries. One's arithmetic runs beside another's products
 *
 * Shared memory (offsets and sizes: the plan above). Rows are SWIZZLE bytes, ROW_BYTES of them in
 * HALVES; 8 of them are a swizzle's atom:
 *   KEYS    [KEY_BUFFERS][GROUPS][HALVES][GROUP_KEYS] rows
 *   QUERIES [STAGES][HALVES][4][2 heads][8 queries] rows
 *   LOWEST  FILL_BYTES of -inf, what the filler stores
 *   WORDS   [STAGES] struct block_word: which block and tile begin with this stage
 *
 * Barriers (parity counts uses; stages and buffers are used in turn):
 *   barrier        count       who arrives                            who waits
 *   FULL[s]        1           producer, with the bytes of the boxes  math
 *   EMPTY[s]       4 * GROUPS  math: warps, product complete          producer
 *   KEYS_FULL[b]   1           producer, with the bytes of the boxes  math, at an item's first
 * block KEYS_EMPTY[b]  4 * GROUPS  math: warps, last product complete     producer (Counts are of
 * warps where warps arrive: common/warp_arrival.cuh.)
 *
 * Knobs: GROUPS, GROUP_KEYS, STAGES; legal values and the rule that picks them:
 * src/codegen/families/indexer_logits_fwd_sm90.c.
 */

enum {
    ALL_LANES = -1,
    WARPGROUP = 128,   /* threads */
    PRODUCER_WARP = 0, /* of the warpgroup after the math's */
    FILLER_WARP = 1,
    ROWS = 64, /* of a product: BLOCK_QUERIES queries and two heads */
    ATOM_ROWS = 8,
    OCTETS = BLOCK_QUERIES / ATOM_ROWS,
    BATCH = 32, /* blocks whose windows the producer looks at together: a lane each */
    PAIRS = (HEADS + 1) / 2,
    ELEMENT_BYTES = FP8 ? 1 : 2,
    HALVES = ROW_BYTES / SWIZZLE,
    STEP_BYTES = 32, /* of a row in one product */
    STEPS = ROW_BYTES / STEP_BYTES,
    HALF_STEPS = SWIZZLE / STEP_BYTES,
    QUERY_HALF_BYTES = ROWS * SWIZZLE,
    QUERY_BYTES = HALVES * QUERY_HALF_BYTES,
    KEY_HALF_BYTES = GROUP_KEYS * SWIZZLE,
    KEY_BYTES = HALVES * KEY_HALF_BYTES,
    TILE_BYTES = GROUPS * KEY_BYTES,
    VALUES = GROUP_KEYS / 2, /* of D, a thread's */
    SUMS = GROUP_KEYS / 4    /* keys of a thread */
};

/* Places in BARRIERS. */
enum {
    FULL = 0,
    EMPTY = FULL + STAGES,
    KEYS_FULL = EMPTY + STAGES,
    KEYS_EMPTY = KEYS_FULL + KEY_BUFFERS
};

DEVICE u32 barrier_at(int number) {
    return shared_address((u32)(BARRIERS_OFFSET + number * 8));
}

/* What begins with a stage: a block's first two heads, against the keys of a tile. */
struct block_word {
    int query, key; /* the first ones; query -1: nothing more */
    int flags;
    int unused;
};
enum { NEW_KEYS = 1, LAST_BLOCK = 2 }; /* of an item */

DEVICE struct block_word *block_word(int stage) {
    return (struct block_word *)(arena + WORDS_OFFSET) + stage;
}

DEVICE void initialise(void) {
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(barrier_at(FULL + stage), 1);
            mbarrier_init(barrier_at(EMPTY + stage), 4 * GROUPS * WARP_ARRIVALS);
        }
        for (int buffer = 0; buffer < KEY_BUFFERS; ++buffer) {
            mbarrier_init(barrier_at(KEYS_FULL + buffer), 1);
            mbarrier_init(barrier_at(KEYS_EMPTY + buffer), 4 * GROUPS * WARP_ARRIVALS);
        }
        mbarrier_fence_init();
    }
    for (int i = (int)threadIdx.x; i < FILL_BYTES / 4; i += THREADS) {
        ((float *)(arena + LOWEST_OFFSET))[i] = LOWEST_LOGIT;
    }
    fence_proxy_async();
    __syncthreads();
}

/* ---- windows --------------------------------------------------------------------------------- */

#define NO_KEY 0x7fffffff /* where an empty range begins; it ends at 0 */

DEVICE struct key_range empty_range(void) {
    const struct key_range range = {NO_KEY, 0};
    return range;
}

DEVICE struct key_range query_window(const struct indexer_logits_fwd_params *params, int query) {
    if (query < params->tokens) {
        const int begin = params->window_begin[query], end = params->window_end[query];
        const struct key_range window = window_among(begin, end, 0, params->rows);
        if (window.begin < window.end && has_keys(begin, end, params->rows, params->least)) {
            return window;
        }
    }
    return empty_range();
}

DEVICE int block_count(const struct indexer_logits_fwd_params *params) {
    return (params->tokens - 1) / BLOCK_QUERIES + 1;
}

/* From the first to the last key in the windows of a block. By whole warps, a lane a query. */
DEVICE struct key_range block_range(const struct indexer_logits_fwd_params *params, int block) {
    const int query = block * BLOCK_QUERIES + (int)threadIdx.x % 32;
    struct key_range range =
        block < block_count(params) ? query_window(params, query) : empty_range();
    range.begin = (int)warp_reduce_min((u32)range.begin);
    range.end = (int)warp_reduce_max((u32)range.end);
    return range;
}

/* Tiles that a range meets: numbers first <= tile < last. */
DEVICE int first_tile(const struct key_range *range) {
    return range->end > 0 ? range->begin / BLOCK_KEYS : 0;
}

DEVICE int last_tile(const struct key_range *range) {
    return range->end > 0 ? (range->end - 1) / BLOCK_KEYS + 1 : 0;
}

/* ---- producer -------------------------------------------------------------------------------- */

/* The blocks that the producer looks at together, a lane each: their chunks' tiles, counted by each
 * chunk's first lane (the others have none). */
struct batch {
    int first;              /* block, lane 0's */
    struct key_range range; /* of this lane's block */
    int tile;               /* the chunk's first */
    int tiles, before;      /* of the chunk; of the chunks before it in the batch */
    int total;              /* of the batch */
};

/* How many blocks a chunk has: as many as are worth a tile's keys, but fewer when there would be
 * too few items. */
DEVICE int chunk_blocks(const struct indexer_logits_fwd_params *params) {
    const i64 tiles = (params->rows - 1) / BLOCK_KEYS + 1;
    int blocks = CHUNK_BLOCKS;
    while (blocks > 1 && block_count(params) * tiles < (i64)ITEMS_EACH * blocks * gridDim.x) {
        blocks /= 2;
    }
    return blocks;
}

DEVICE void look_at_batch(struct batch *batch, const struct indexer_logits_fwd_params *params,
                          int first, int chunk) {
    const int lane = (int)threadIdx.x % 32;
    batch->first = first;
    batch->range = empty_range();
#pragma unroll 4
    for (int i = 0; i < BATCH; ++i) {
        const struct key_range range = block_range(params, first + i);
        if (lane == i) {
            batch->range = range;
        }
    }
    struct key_range all = batch->range;
    for (int i = 1; i < chunk; i *= 2) {
        all.begin = minimum(all.begin, __shfl_xor_sync((u32)ALL_LANES, all.begin, i));
        all.end = maximum(all.end, __shfl_xor_sync((u32)ALL_LANES, all.end, i));
    }
    batch->tile = first_tile(&all);
    batch->tiles = lane % chunk == 0 ? last_tile(&all) - batch->tile : 0;
    int sum = batch->tiles;
    for (int i = 1; i < 32; i *= 2) {
        const int below = __shfl_up_sync((u32)ALL_LANES, sum, i);
        sum += lane >= i ? below : 0;
    }
    batch->before = sum - batch->tiles;
    batch->total = __shfl_sync((u32)ALL_LANES, sum, 31);
}

/* Brings a tile's keys into a buffer, when it is free. */
DEVICE void load_keys(const struct indexer_logits_fwd_params *params,
                      const struct ring_place *buffer, int key) {
    const u32 full = barrier_at(KEYS_FULL + buffer->index);
    mbarrier_wait(barrier_at(KEYS_EMPTY + buffer->index), buffer->parity ^ 1);
    mbarrier_arrive_expect(full, TILE_BYTES);
    u32 to = shared_address((u32)(KEYS_OFFSET + buffer->index * TILE_BYTES));
    for (int group = 0; group < GROUPS; ++group) {
        for (int half = 0; half < HALVES; ++half) {
            tensor_load_2d(to, &params->k_map, full, half * SWIZZLE / ELEMENT_BYTES,
                           key + group * GROUP_KEYS);
            to += KEY_HALF_BYTES;
        }
    }
}

/* Brings the queries of a block, two heads a stage, when each stage is free. */
DEVICE void load_block(const struct indexer_logits_fwd_params *params, struct ring_place *stage,
                       const struct block_word *word) {
#pragma unroll 1
    for (int pair = 0; pair < PAIRS; ++pair) {
        const u32 full = barrier_at(FULL + stage->index);
        mbarrier_wait(barrier_at(EMPTY + stage->index), stage->parity ^ 1);
        if (pair == 0) {
            *block_word(stage->index) = *word;
        }
        mbarrier_arrive_expect(full, QUERY_BYTES);
        u32 to = shared_address((u32)(QUERIES_OFFSET + stage->index * QUERY_BYTES));
        for (int half = 0; half < HALVES; ++half) {
            for (int octet = 0; octet < OCTETS; ++octet) {
                tensor_load_3d(to, &params->q_map, full, half * SWIZZLE / ELEMENT_BYTES,
                               word->query + octet * ATOM_ROWS, 2 * pair);
                to += 2 * ATOM_ROWS * SWIZZLE;
            }
        }
        ring_advance(stage, STAGES);
    }
}

/* Brings an item: a tile's keys, and of the batch's blocks `active`, a bit each. By one thread. */
DEVICE void load_item(const struct indexer_logits_fwd_params *params, struct ring_place *stage,
                      const struct ring_place *buffer, int first_block, u32 active, int key) {
    struct block_word word = {0, key, NEW_KEYS, 0};
    load_keys(params, buffer, key);
    while (active) {
        word.query = (first_block + __ffs((int)active) - 1) * BLOCK_QUERIES;
        active &= active - 1;
        word.flags |= active ? 0 : LAST_BLOCK;
        load_block(params, stage, &word);
        word.flags = 0;
    }
}

DEVICE void run_producer(const struct indexer_logits_fwd_params *params) {
    const int lane = (int)threadIdx.x % 32, chunk = chunk_blocks(params);
    const int blocks = block_count(params);
    struct ring_place stage = {0, 0}, buffer = {0, 0}; /* the first is lane 0's alone */
    int wanted = (int)blockIdx.x; /* number of the next item, counted from the batch's first */
    for (int first = 0; first < blocks; first += BATCH) {
        struct batch batch;
        look_at_batch(&batch, params, first, chunk);
        for (; wanted < batch.total; wanted += (int)gridDim.x) {
            const int tile = wanted - batch.before; /* of this lane's chunk */
            const bool mine = tile >= 0 && tile < batch.tiles;
            const int leader = __ffs((int)__ballot_sync((u32)ALL_LANES, mine)) - 1;
            const int key = __shfl_sync((u32)ALL_LANES, batch.tile + tile, leader) * BLOCK_KEYS;
            const u32 active = __ballot_sync(
                (u32)ALL_LANES, lane / chunk == leader / chunk && batch.range.end > key &&
                                    batch.range.begin - key < BLOCK_KEYS);
            if (active) { /* else between the windows of the chunk's blocks */
                if (lane == 0) {
                    load_item(params, &stage, &buffer, first, active, key);
                }
                ring_advance(&buffer, KEY_BUFFERS);
            }
            __syncwarp((u32)ALL_LANES);
        }
        wanted -= batch.total;
    }
    if (lane == 0) {
        const struct block_word nothing = {-1, 0, 0, 0};
        mbarrier_wait(barrier_at(EMPTY + stage.index), stage.parity ^ 1);
        *block_word(stage.index) = nothing;
        mbarrier_arrive(barrier_at(FULL + stage.index));
    }
}

/* ---- filler ---------------------------------------------------------------------------------- */

/* -inf into a run of logits; by one thread. */
DEVICE void fill_run(float *from, float *to) {
    for (; from < to && (u64)from % 16 != 0; ++from) {
        *from = LOWEST_LOGIT;
    }
    for (; from < to && (u64)to % 16 != 0; --to) {
        to[-1] = LOWEST_LOGIT;
    }
    while (from < to) {
        const i64 left = (i64)(to - from) * 4;
        const u32 bytes = left < FILL_BYTES ? (u32)left : FILL_BYTES;
        bulk_store(from, shared_address(LOWEST_OFFSET), bytes);
        bulk_commit();
        bulk_wait_read_2();
        from += bytes / 4;
    }
}

/* -inf into what the tiles of every gridDim.x-th block leave out. */
DEVICE void run_filler(const struct indexer_logits_fwd_params *params) {
    const int blocks = block_count(params);
    for (int block = (int)blockIdx.x; block < blocks; block += (int)gridDim.x) {
        const struct key_range range = block_range(params, block);
        const i64 first = (i64)first_tile(&range) * BLOCK_KEYS;
        const i64 last = (i64)last_tile(&range) * BLOCK_KEYS;
        const int queries = minimum(params->tokens - block * BLOCK_QUERIES, BLOCK_QUERIES);
        if (threadIdx.x % 32 == 0) {
            for (int i = 0; i < queries; ++i) {
                float *const row =
                    params->logits + (block * (i64)BLOCK_QUERIES + i) * params->logits_token_stride;
                fill_run(row, row + first);
                fill_run(row + last, row + params->rows);
            }
        }
        __syncwarp((u32)ALL_LANES);
    }
    bulk_wait_read_0();
}

/* ---- math ------------------------------------------------------------------------------------ */

/* What a thread is at: its query and the first of its keys in the tile. */
struct cursor {
    int query, key;
    struct key_range window;
    const float *weights; /* of the query */
    float next[2];        /* those of the next two heads */
};

/* Issues D of two heads of a block. */
DEVICE void issue_product(float *d, u64 queries, u64 keys) {
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < STEPS; ++k) {
        const int half = k / HALF_STEPS, step = k % HALF_STEPS * STEP_BYTES;
        const u64 a = descriptor_advance(queries, (u32)(half * QUERY_HALF_BYTES + step));
        const u64 b = descriptor_advance(keys, (u32)(half * KEY_HALF_BYTES + step));
#line 374 "templates/indexer_logits_fwd.sm90.cu"
        if (FP8) {
            wgmma_fp8_ss_n96(d, a, b, k > 0);
        } else {
            wgmma_ss_n96_t00(d, a, b, k > 0);
        }
#line 380 "templates/indexer_logits_fwd.sm90.cu"
    }
    wgmma_commit();
}

/*
 * A head added to the sums, D's columns in order. e4m3's products are so much faster than bf16's
 * that the maximum would bind, which runs at half the rate: x + |x| is twice max(0, x), exactly,
 * for no x is above 128 * 448^2. So are all sums then, until they are written.
 */
DEVICE void add_row(float *sums, float weight, const float *d) {
#pragma unroll
    for (int j = 0; j < SUMS; ++j) {
        const float x = d[j / 2 * 4 + j % 2];
        sums[j] = FP8 ? fmaf(weight, x + fabsf(x), sums[j]) : add_head(sums[j], weight, x);
    }
}

/* The number, among those of a tile's part, of this thread's key j. */
DEVICE int key_offset(int j) {
    return j / 2 * 8 + j % 2;
}

DEVICE float scaled(const struct indexer_logits_fwd_params *params, float sum, int key) {
    return canonical_logit(FP8 ? sum * (0.5f * __ldg(params->k_scale + key)) : sum);
}

/* Writes the sums where all keys are in the window, two neighbours at once. */
DEVICE void write_inner(const struct indexer_logits_fwd_params *params, const struct cursor *at,
                        float *to, const float *sums) {
    float logits[SUMS];
#pragma unroll
    for (int j = 0; j < SUMS; ++j) {
        logits[j] = scaled(params, sums[j], at->key + key_offset(j));
    }
#pragma unroll
    for (int j = 0; j < SUMS; j += 2) {
        const float2 two = {logits[j], logits[j + 1]};
        *(float2 *)(to + key_offset(j)) = two;
    }
}

/* The same where some are not, or a row begins at an odd place. */
DEVICE void write_outer(const struct indexer_logits_fwd_params *params, const struct cursor *at,
                        float *to, const float *sums) {
#pragma unroll
    for (int j = 0; j < SUMS; ++j) {
        const int offset = key_offset(j), left = params->rows - at->key;
        if (offset < left) {
            const int key = at->key + offset;
            const bool inside = key >= at->window.begin && key < at->window.end;
            to[offset] = inside ? scaled(params, sums[j], key) : LOWEST_LOGIT;
        }
    }
}

DEVICE void write_logits(const struct indexer_logits_fwd_params *params, const struct cursor *at,
                         const float *sums) {
    if (at->query >= params->tokens) {
        return;
    }
    float *const to = params->logits + at->query * params->logits_token_stride + at->key;
    if ((u64)to % 8 == 0 && at->window.begin <= at->key && at->window.end - at->key >= GROUP_KEYS) {
        write_inner(params, at, to, sums);
    } else {
        write_outer(params, at, to, sums);
    }
}

DEVICE void load_weights(struct cursor *at, int pair) {
    at->next[0] = __ldg(at->weights + 2 * pair);
    at->next[1] = 2 * pair + 1 < HEADS ? __ldg(at->weights + 2 * pair + 1) : 0.0f;
}

/* The block that begins with a stage, which has landed, and this thread's place in it. */
DEVICE struct block_word begin_block(struct cursor *at,
                                     const struct indexer_logits_fwd_params *params, int stage,
                                     int group) {
    const struct block_word word = *block_word(stage);
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x % WARPGROUP / 32;
    if (word.query >= 0) {
        at->query = word.query + warp * ATOM_ROWS + lane / 4;
        at->key = word.key + group * GROUP_KEYS + lane % 4 * 2;
        at->window = query_window(params, at->query);
        at->weights =
            params->weights + minimum(at->query, params->tokens - 1) * params->weights_token_stride;
        load_weights(at, 0);
    }
    return word;
}

/* The sums of a block; its first stage has landed. */
DEVICE void add_heads(float *sums, struct cursor *at, struct ring_place *stage, u64 queries,
                      u64 keys) {
#pragma unroll
    for (int j = 0; j < SUMS; ++j) {
        sums[j] = 0.0f;
    }
#pragma unroll 1
    for (int pair = 0; pair < PAIRS; ++pair) {
        float d[VALUES];
        const int index = stage->index;
        if (pair > 0) {
            mbarrier_wait(barrier_at(FULL + index), stage->parity);
        }
        issue_product(d, descriptor_advance(queries, (u32)(index * QUERY_BYTES)), keys);
        const float even = at->next[0], odd = at->next[1];
        if (pair + 1 < PAIRS) {
            load_weights(at, pair + 1);
        }
        ring_advance(stage, STAGES);
        wgmma_wait_0();
        arrive_warp(barrier_at(EMPTY + index), 1);
        add_row(sums, even, d);
        if (HEADS % 2 == 0 || pair + 1 < PAIRS) {
            add_row(sums, odd, d + 2);
        }
    }
}

DEVICE void run_math(const struct indexer_logits_fwd_params *params, int group) {
    const u64 queries =
        shared_descriptor(shared_address(QUERIES_OFFSET), 16, ATOM_ROWS * SWIZZLE, SWIZZLE);
    const u64 keys = shared_descriptor(shared_address((u32)(KEYS_OFFSET + group * KEY_BYTES)), 16,
                                       ATOM_ROWS * SWIZZLE, SWIZZLE);
    struct ring_place stage = {0, 0}, buffer = {0, 0};
    struct cursor at;
    float sums[SUMS];
    for (;;) {
        mbarrier_wait(barrier_at(FULL + stage.index), stage.parity);
        const struct block_word word = begin_block(&at, params, stage.index, group);
        if (word.query < 0) {
            return;
        }
        if (word.flags & NEW_KEYS) {
            mbarrier_wait(barrier_at(KEYS_FULL + buffer.index), buffer.parity);
        }
        add_heads(sums, &at, &stage, queries,
                  descriptor_advance(keys, (u32)(buffer.index * TILE_BYTES)));
        if (word.flags & LAST_BLOCK) {
            arrive_warp(barrier_at(KEYS_EMPTY + buffer.index), 1);
            ring_advance(&buffer, KEY_BUFFERS);
        }
        write_logits(params, &at, sums);
    }
}

KERNEL void __launch_bounds__(THREADS, 1)
    KERNEL_NAME(const __grid_constant__ struct indexer_logits_fwd_params params) {
    initialise();
    if (params.early) {
        grid_wait();
    }
    const int group = __shfl_sync((u32)ALL_LANES, (int)threadIdx.x / WARPGROUP, 0);
    if (group < GROUPS) {
        registers_increase(MATH_REGISTERS);
        run_math(&params, group);
    } else {
        registers_decrease(OTHER_REGISTERS);
        const int warp = (int)threadIdx.x % WARPGROUP / 32;
        if (warp == PRODUCER_WARP) {
            run_producer(&params);
        } else if (warp == FILLER_WARP && params.fills) {
            run_filler(&params);
        }
    }
}
