/*
 * Written by smelt; do not edit. To write it again:
 *   smelt emit sparse_attn_bwd:heads=64,dqk=576,dv=512 --arch sm_90a
 *
 * spec     sparse_attn_bwd:heads=64,dqk=576,dv=512
 * arch     sm_90a
 * variant  sm90
 * kernel   smelt_sparse_attn_bwd_sm90_h64_qk576_v512
 * knobs (by the spec, or by rule)
 *   GROUP_QUERIES                    1  rule     queries of an item
 *   BLOCK_KEYS                      64  rule     KV rows of a key block
 *   RACECHECK                        0  rule     1: every lane of a warp arrives at barriers
 *   PAIR                             0  rule     1: two items side by side add up their dKV
 *   BLOCKS_PER_MULTIPROCESSOR        1  rule     resident at once, at least
 * shared memory (offset, bytes)
 *   QUERY_OFFSET                     0    73728  Q
 *   GRAD_OUT_OFFSET              73728    65536  dO
 *   KEYS_OFFSET                 139264    73728  a key block
 *   PROBABILITIES_OFFSET        212992     8192  P, bf16
 *   SLOPES_OFFSET               221184     8192  dS, bf16
 *   NUMBERS_OFFSET              229376     1024  keys of the announced blocks
 *   ADDRESSES_OFFSET            230400     1024  where the rows of the last two lie
 *   MASKS_OFFSET                231424      256  which members have the keys, bits
 *   WORDS_OFFSET                231680       64  what each announced block is
 *   CURSORS_OFFSET              231744       32  which block is announced next
 *   SLICES_OFFSET               231776       48  slices that are taken
 *   PATIENCE_OFFSET             231824        4  polls of a wait to keep in step
 *   STEP_OFFSET                 231828        4  how thread blocks keep in step
 *   BARRIERS_OFFSET             231832      248  mbarriers
 *   SHARED_BYTES                232080  of 232448 that a block may have on sm_90a
 * launch
 *   384 threads a block, 1 block resident per multiprocessor, at most 168 registers a thread
 *   grid: 1 block a group, but no more than are resident at once
 *   persistent: in a grid-stride loop a block does the work of several
 */

enum {
    HEADS = 64,                     /* query heads */
    DQK = 576,                      /* width of a query and of a KV row, elements */
    DV = 512,                       /* width of a value, elements */
    DETERMINISTIC = 0,              /* 1: partial rows of dkv are stored, not added */
    GROUP_QUERIES = 1,              /* queries of an item */
    BLOCK_KEYS = 64,                /* KV rows of a key block */
    RACECHECK = 0,                  /* 1: every lane of a warp arrives at barriers */
    STAGES = 1,                     /* key blocks in shared memory, filled tile by tile */
    QUERY_ROWS = 64,                /* rows of a query: heads, padded */
    HEAD_BLOCKS = 1,                /* items of a group */
    BLOCK_HEADS = 64,               /* rows of an item */
    PAIR = 0,                       /* 1: two items side by side add up their dKV */
    TENSOR_MAPS = 1,                /* 1: Q and dO are read through their maps */
    SUMS_BESIDE = 0,                /* multiprocessors left to the sums of partial rows */
    SLICE_BLOCKS = 1,               /* thread blocks that take a slice of items */
    SCORES_REGISTERS = 184,         /* of a thread, S, dP and some of dQ */
    GATHER_REGISTERS = 224,         /* of a thread, the gather and most of dQ */
    SUMS_REGISTERS = 96,            /* of a thread, dKV */
    LANDING_OFFSET = 212992,        /* what the pair's other thread block sends: where P is */
    LANDINGS = 2,                   /* chunks that land there at once */
    THREADS = 384,                  /* of a thread block */
    BLOCKS_PER_MULTIPROCESSOR = 1,  /* resident at once, at least */
};

/* Shared memory, in bytes from the arena's start. */
enum {
    QUERY_OFFSET = 0,               /* Q */
    GRAD_OUT_OFFSET = 73728,        /* dO */
    KEYS_OFFSET = 139264,           /* a key block */
    PROBABILITIES_OFFSET = 212992,  /* P, bf16 */
    SLOPES_OFFSET = 221184,         /* dS, bf16 */
    NUMBERS_OFFSET = 229376,        /* keys of the announced blocks */
    ADDRESSES_OFFSET = 230400,      /* where the rows of the last two lie */
    MASKS_OFFSET = 231424,          /* which members have the keys, bits */
    WORDS_OFFSET = 231680,          /* what each announced block is */
    CURSORS_OFFSET = 231744,        /* which block is announced next */
    SLICES_OFFSET = 231776,         /* slices that are taken */
    PATIENCE_OFFSET = 231824,       /* polls of a wait to keep in step */
    STEP_OFFSET = 231828,           /* how thread blocks keep in step */
    BARRIERS_OFFSET = 231832,       /* mbarriers */
    SHARED_BYTES = 232080,          /* the arena's size */
};

#define KERNEL_NAME smelt_sparse_attn_bwd_sm90_h64_qk576_v512

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

#line 2 "templates/ptx/hint.cuh"

/*
 * A number in global memory by which thread blocks hint to each other how far they have come.
 * Nothing may depend on it but time: neither orders other accesses, and the wait ends by itself
 * (PTX ISA, "red", "ld", .relaxed).
 */
DEVICE void hint_add(u32 *hint, u32 value) {
    asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" : : "l"(hint), "r"(value) : "memory");
}

/* Reads it until it has come to `value`, `polls` times at most; how many were left over. One
 * sequence of instructions, which costs its caller few registers. */
DEVICE int hint_wait(const u32 *hint, u32 value, int polls) {
    asm volatile("{.reg .pred go_on;\n\t"
                 ".reg .u32 have;\n"
                 "again:\n\t"
                 "add.s32 %0, %0, -1;\n\t"
                 "setp.lt.s32 go_on, %0, 0;\n\t"
                 "@go_on bra over;\n\t"
                 "ld.relaxed.gpu.global.u32 have, [%1];\n\t"
                 "setp.lo.u32 go_on, have, %2;\n\t"
                 "@go_on bra again;\n"
                 "over:}"
                 : "+r"(polls)
                 : "l"(hint), "r"(value)
                 : "memory");
    return polls;
}

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

#line 2 "templates/sparse_attn_bwd.params.h"
/*
 * Arguments of the sparse_attn_bwd kernels, every variant. Included by the host code (behind
 * common/tensor_map.h) and, by the generator, by the CUDA source: plain C types only. Strides count
 * elements. See include/smelt/sparse_attn.h for what the tensors hold.
 *
 * A group is GROUP_QUERIES queries that share a list of keys; a key is a KV row of some batch, by
 * the number batch * rows + row. What belongs to groups was made by the kernels ahead of this one
 * (sparse_attn_bwd_lists, sparse_attn_bwd_rows), in the caller's workspace.
 */
enum { STEP_NONE, STEP_LOOSE, STEP_CLOSE };

struct sparse_attn_bwd_params {
    /* q and grad_out as [batches, tokens, HEADS, columns], for the copy engine: variants with
     * TENSOR_MAPS alone. Boxes: 64 columns, BLOCK_HEADS / GROUP_QUERIES heads, of one query. */
    struct tensor_map q_map, grad_out_map;
    const void *q;              /* [batches, tokens, HEADS, DQK] bf16 */
    const void *kv;             /* [batches, rows, DQK] bf16 */
    const void *grad_out;       /* [batches, tokens, HEADS, DV] bf16 */
    const int *members;         /* [groups, GROUP_QUERIES] batch * tokens + token, or -1: none */
    const int *counts;          /* [groups] keys in the group's list */
    const int *keys;            /* [groups, key_stride] the lists; -1 behind a list's end, up to
                                   the next multiple of 64. A list may lie in what will be an item's rows of
                                   dq: it is read, by the thread blocks that have the item, before
                                   these are written, and by nobody else */
    const unsigned char *masks; /* [groups, key_stride] bit i: the key is of member i's list, 0
                                   where keys has -1; not read when GROUP_QUERIES is 1 */
    const float *statistics;    /* [groups, GROUP_QUERIES, QUERY_ROWS, 2] of a row (a head, heads
                                   past the last included): what its scores in powers of two are
                                   lessened by, +inf or finite, +inf where there is no such row;
                                   and delta */
    void *dq;                   /* [batches, tokens, HEADS, DQK] bf16; every member's is written */
    float *dkv;                 /* [batches * rows, DQK] sums, columns in the order of
                                   sparse_attn_bwd.columns.cuh; not with DETERMINISTIC */
    void *partials;             /* with DETERMINISTIC: bf16 [groups, key_stride, rows, DQK], the
                                   same order of columns, a row for each of the group's items, or
                                   for each pair of them; written up to each list's end, from the
                                   launch's first group on */
    void *slices;       /* bf16 [.., 64, DQK]: parts of dq's rows of items that several thread
                           blocks take (sparse_attn_bwd.slices.cuh) */
    unsigned *progress; /* how far the thread blocks have come together, by which they keep
                           in step: 0 before the launch; not read with STEP_NONE */
    long long q_batch_stride, q_token_stride, q_head_stride;
    long long kv_batch_stride;
    long long grad_out_batch_stride, grad_out_token_stride, grad_out_head_stride;
    long long dq_batch_stride, dq_token_stride, dq_head_stride;
    unsigned kv_row_bytes; /* from one KV row to the next */
    int even_batches;      /* 1: key k's row is kv + k * kv_row_bytes, batches or not */
    int tokens, rows;      /* of a batch */
    int first_group;       /* the launch takes this one */
    int groups;      /* and so many: HEAD_BLOCKS items each, item i of group i / HEAD_BLOCKS. Thread
                        blocks take items from the last on: with causal lists, and behind a
                        partition, the longest lists are the last, and short ones end the launch */
    int sliced;      /* the first so many items of the launch are cut into slices: fewer than thread
                        blocks, 0 with DETERMINISTIC; of pairs whole pairs */
    int takers;      /* thread blocks, of pairs pairs, that slices are for: the first ones */
    int key_stride;  /* from list to list: of lists that do not lie in dq a multiple of 64 */
    int side_stride; /* with sm90: from the list of a group's item to its next item's, the same
                        once more; 0: all of them have one */
    int step;        /* how thread blocks keep in step, of the enum above: STEP_CLOSE where lists do
                        not tell otherwise. With sm90, unless STEP_NONE, every second item of a
                        thread block is gone through from its list's end */
    float scale;     /* softmax scale, natural units */
};

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

#line 2 "templates/ptx/cluster.cuh"
/*
 * Blocks of a cluster, which see each other's shared memory (PTX ISA, "State Spaces",
 * .shared::cluster). A block must not end while others still reach into it.
 */

/* Comes to the cluster's barrier and releases what this thread wrote; every thread of the cluster
 * comes and later waits (PTX ISA, "barrier.cluster"). */
DEVICE void cluster_arrive(void) {
    asm volatile("barrier.cluster.arrive.release.aligned;" : : : "memory");
}

DEVICE void cluster_wait(void) {
    asm volatile("barrier.cluster.wait.acquire.aligned;" : : : "memory");
}

/* This block's number in its cluster (PTX ISA, "Special Registers", %cluster_ctarank). */
DEVICE u32 cluster_rank(void) {
    u32 rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

/* The address, in block `rank` of the cluster, of what stands at `address` in this one (PTX ISA,
 * "mapa"). */
DEVICE u32 cluster_address(u32 address, u32 rank) {
    u32 mapped;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
    return mapped;
}

/* A plain load and a plain store in another block (PTX ISA, "ld", "st", .shared::cluster). */
DEVICE u32 cluster_load_32(u32 cluster_address) {
    u32 value;
    asm volatile("ld.shared::cluster.u32 %0, [%1];"
                 : "=r"(value)
                 : "r"(cluster_address)
                 : "memory");
    return value;
}

DEVICE void cluster_store_32(u32 cluster_address, u32 value) {
    asm volatile("st.shared::cluster.u32 [%0], %1;"
                 :
                 : "r"(cluster_address), "r"(value)
                 : "memory");
}

/* Stores that count their bytes down on a barrier of the same block as `to`; both are cluster
 * addresses. The block that waits sees the values (PTX ISA, "st.async"). */
DEVICE void cluster_store_async_4(u32 to, u32 value, u32 barrier) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];"
                 :
                 : "r"(to), "r"(value), "r"(barrier)
                 : "memory");
}

/* 16 bytes, 16-byte aligned. */
DEVICE void cluster_store_async_16(u32 to, const u32 *values, u32 barrier) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.u32 "
                 "[%0], {%1, %2, %3, %4}, [%5];"
                 :
                 : "r"(to), "r"(values[0]), "r"(values[1]), "r"(values[2]), "r"(values[3]),
                   "r"(barrier)
                 : "memory");
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

#line 2 "templates/ptx/policy.cuh"

/* How the L2 cache treats what a copy reads: gone first (PTX ISA, "createpolicy"). */
DEVICE u64 policy_evict_first(void) {
    u64 policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
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

#line 2 "templates/sparse_attn_bwd.slices.cuh"
/*
 * Slices: items that are left when every thread block has had as many whole ones as each other are
 * shared between thread blocks, each of which takes a part of their keys. Item i is as long as
 * `takers`, whatever its list: of all lengths together each taker has its share, which so begins
 * and ends anywhere in an item, and is of two items at most where items are fewer than takers.
 *
 * What a taker has of an item's dq stands, as bf16, at slice number taker + item of `slices`, 64
 * rows of DQK. The kernel behind adds them up in the takers' order. (With pairs items and takers
 * are those of a cluster, two of each; slices are numbered accordingly.)
 */

/* How many of an item's key blocks are ahead of a taker's. */
DEVICE int blocks_before(int blocks, int item, int items, int taker, int takers) {
    const int position = minimum(maximum(taker * items - item * takers, 0), takers);
    return (int)((u32)blocks * (u32)position / (u32)takers);
}

#line 15 "templates/sparse_attn_bwd.sm90_blocks.cuh"
/*
 * Items and their key blocks, of sparse_attn_bwd.sm90.cu: where its tiles and barriers are, which
 * block comes next, and the copies that bring it. The gather's warpgroup goes through the lists and
 * announces each block to the others, with all that they need to know of it.
 */

enum {
    WARPGROUP = 128, /* threads */
    ALL_LANES = -1,

    TILE_COLUMNS = 64,
    TILE_PITCH = 2 * TILE_COLUMNS, /* bytes of a row */
    TILE_BYTES = 64 * TILE_PITCH,
    ATOM_BYTES = 8 * TILE_PITCH, /* eight rows of a tile */
    TILES = DQK / TILE_COLUMNS,
    VALUE_TILES = DV / TILE_COLUMNS,
    MEMBER_ROWS = BLOCK_HEADS / GROUP_QUERIES, /* rows of an item that a query has */
    SIDES = PAIR ? 2 : 1,                      /* thread blocks that take items side by side */
    KEY_ROWS = HEAD_BLOCKS / SIDES,            /* partial rows that a group has of each key */

    /* Q and dO come, and are given back, in parts of some tiles of each: of one where that costs
     * nothing elsewhere (sparse_attn_bwd.lost.md). */
    PART_TILES = GROUP_QUERIES == 1 && !PAIR ? 1 : 3,
    PARTS = (TILES + PART_TILES - 1) / PART_TILES,

    BLOCKS_AHEAD = 4,   /* announced blocks whose numbers are kept */
    ROWS_OF_THREAD = 4, /* of a tile, 16 bytes each: 128 threads copy it */

    /* Named barriers. */
    SCORES_BARRIER = 1,
    GATHER_BARRIER = 2
};

/* ---- in step --------------------------------------------------------------------------------- */

/*
 * Thread blocks that go through ascending lists side by side meet in the same rows of kv and dkv,
 * which then come from memory once for all of them. So every few key blocks a thread block counts
 * itself in and waits until all have come as far: one that is ahead, that is. It is a hint and no
 * more: the wait is short (a poll takes about a microsecond), each time it was in vain the next one
 * is shorter, and who has ended keeps nobody.
 *
 * Where the wait stands says how close they keep together: ahead of announcing a block it costs
 * least, right ahead of the copies that bring it thread blocks begin these at the same moment,
 * which is worth more where a wave's rows hardly fit into the L2 cache (sparse_attn_bwd.lost.md).
 * They fit after all where neighbouring groups have most of their keys in common: then it is loose.
 *
 * And they go through the list of their first item upwards, of the next one downwards, and so on:
 * the rows where one sweep over the table ends are in the L2 cache when the next begins there.
 */
enum {
    LOOSE_STEP = 2,
    CLOSE_STEP = 4,
    FIRST_PATIENCE = 256,
    ENDED = 1 << 24,
    PROBES = 4 /* keys of a group that are looked for in the one before it */
};

/* Polls of a wait, and of the params' enum how they keep in step; in shared memory, since registers
 * are short. */
DEVICE int *patience(void) {
    return (int *)(arena + PATIENCE_OFFSET);
}

DEVICE int *own_step(void) {
    return (int *)(arena + STEP_OFFSET);
}

/* Whether a list, ascending but for keys that it names again, has a key. */
DEVICE bool has_key(const int *keys, int count, int key) {
    int first = 0;
    while (count > 0) {
        const int half = count / 2;
        const bool less = keys[first + half] < key;
        first += less ? half + 1 : 0;
        count = less ? count - half - 1 : half;
    }
    return keys[first] == key; /* behind the list: another one's key, or -1 */
}

/* How the launch's thread blocks keep in step: the same in all of them. By a warp. */
DEVICE int find_step(const struct sparse_attn_bwd_params *params) {
    const int lane = (int)(threadIdx.x % 32);
    if (params->step != STEP_CLOSE || params->groups < 2) {
        return params->step;
    }
    const int group =
        params->first_group + 1 + (int)((i64)(params->groups - 2) * (lane / PROBES) * PROBES / 31);
    const int *const own = params->keys + (i64)group * params->key_stride;
    const int count = params->counts[group], before = params->counts[group - 1];
    const int key = own[(i64)count * (2 * (lane % PROBES) + 1) / (2 * PROBES)];
    const bool shared =
        count > 0 && before > 0 && has_key(own - params->key_stride, before - 1, key);
    return __popc(__ballot_sync((u32)ALL_LANES, shared)) > 16 ? STEP_LOOSE : STEP_CLOSE;
}

/* By one thread of the gather, ahead of block number `block`. */
DEVICE void keep_in_step(const struct sparse_attn_bwd_params *params, u32 block, u32 step) {
    if (block % step == 0) {
        const int polls = *patience();
        hint_add(params->progress, 1);
        if (hint_wait(params->progress, block / step * gridDim.x, polls) < 0) {
            *patience() = polls / 2;
        }
    }
}

/* ---- barriers and tiles ---------------------------------------------------------------------- */

/* 1: what a pair's other thread block sends lands in P's tile. */
enum { LANDS_IN_P = PAIR && LANDING_OFFSET == PROBABILITIES_OFFSET };

/* Places in BARRIERS. */
enum {
    KEYS_FULL = 0,
    KEYS_FREE = KEYS_FULL + TILES,
    ANNOUNCED = KEYS_FREE + 1,
    SLOPES_FULL = ANNOUNCED + 1,
    SLOPES_FREE = SLOPES_FULL + 1,
    QUERY_FULL = SLOPES_FREE + 1,
    QUERY_FREE = QUERY_FULL + PARTS,
    /* Of pairs alone; the first two where LANDS_IN_P. */
    PROBABILITIES_FULL = QUERY_FREE + PARTS,
    PROBABILITIES_FREE = PROBABILITIES_FULL + 1,
    LANDED = PROBABILITIES_FREE + 1,
    LANDING_FREE = LANDED + LANDINGS
};

DEVICE u32 barrier_at(int number) {
    return shared_address((u32)(BARRIERS_OFFSET + number * 8));
}

/* The two thread blocks of a pair wait for each other: by all threads of both. */
DEVICE void meet_pair(void) {
    __syncwarp((u32)ALL_LANES);
    cluster_arrive();
    cluster_wait();
}

DEVICE void initialise_barriers(void) {
    if (threadIdx.x == 0) {
        for (int tile = 0; tile < TILES; ++tile) {
            mbarrier_init(barrier_at(KEYS_FULL + tile), WARPGROUP);
        }
        mbarrier_init(barrier_at(KEYS_FREE), 4 * WARP_ARRIVALS);
        mbarrier_init(barrier_at(ANNOUNCED), 4 * WARP_ARRIVALS);
        mbarrier_init(barrier_at(SLOPES_FULL), 4 * WARP_ARRIVALS);
        mbarrier_init(barrier_at(SLOPES_FREE), 8 * WARP_ARRIVALS);
        for (int part = 0; part < PARTS; ++part) {
            mbarrier_init(barrier_at(QUERY_FULL + part), 1);
            mbarrier_init(barrier_at(QUERY_FREE + part), 4 * WARP_ARRIVALS);
        }
        if (PAIR) {
            mbarrier_init(barrier_at(PROBABILITIES_FULL), 4 * WARP_ARRIVALS);
            mbarrier_init(barrier_at(PROBABILITIES_FREE), 4 * WARP_ARRIVALS);
            for (int landing = 0; landing < LANDINGS; ++landing) {
                mbarrier_init(barrier_at(LANDED + landing), 1);
                mbarrier_init(barrier_at(LANDING_FREE + landing), 4 * WARP_ARRIVALS);
            }
        }
        mbarrier_fence_init();
        *patience() = FIRST_PATIENCE;
    }
    if (PAIR) {
        meet_pair();
    } else {
        __syncthreads();
    }
}

/* Tiles from an offset on as A or B, columns the depth; or as B, rows the depth. */
DEVICE u64 tile_descriptor(int offset) {
    return shared_descriptor(shared_address((u32)offset), 16, ATOM_BYTES, 128);
}

DEVICE u64 columns_descriptor(int offset) {
    return shared_descriptor(shared_address((u32)offset), TILE_BYTES, ATOM_BYTES, 128);
}

/* ---- items ----------------------------------------------------------------------------------- */

/* Items are numbers from 0 on: that they are divided without a sign spares registers. */
DEVICE int item_group(int item) {
    return (int)((u32)item / HEAD_BLOCKS);
}

DEVICE int first_head(int item) {
    return (int)((u32)item % HEAD_BLOCKS * BLOCK_HEADS);
}

/* The thread block's next whole item with keys: `item`, or gridDim.x before it, and so on; or -1.
 */
DEVICE int next_item(const struct sparse_attn_bwd_params *params, int item) {
    const int begin = params->first_group * HEAD_BLOCKS + (DETERMINISTIC ? 0 : params->sliced);
    while (item >= begin && params->counts[item_group(item)] == 0) {
        item -= (int)gridDim.x;
    }
    return item >= begin ? item : -1;
}

/* ---- announced blocks ------------------------------------------------------------------------ */

/* flags: how many keys; where the block stands in its item, and in the thread block's items, of
 * which every second is odd. */
enum {
    COUNT_MASK = 255,
    FIRST_BLOCK = 256,
    LAST_BLOCK = 512,
    MORE_BLOCKS = 1024,
    ODD_ITEM = 2048,
    BLOCK_UNIT = 4096 /* times the block's number % BLOCKS_AHEAD */
};

struct block_word {
    int item, flags;
    int place; /* with DETERMINISTIC, of its first partial row in the launch's; the next is
                  KEY_ROWS further */
    int unused;
};

/* What is kept of a block, by its number; of the last BLOCKS_AHEAD announced. */
DEVICE struct block_word *block_word(u32 block) {
    return (struct block_word *)(arena + WORDS_OFFSET) + block % BLOCKS_AHEAD;
}

DEVICE int *block_numbers(u32 block) {
    return (int *)(arena + NUMBERS_OFFSET) + block % BLOCKS_AHEAD * BLOCK_KEYS;
}

DEVICE unsigned char *block_masks(u32 block) {
    return arena + MASKS_OFFSET + block % BLOCKS_AHEAD * BLOCK_KEYS;
}

/* Of the last two announced alone: the copies are all that reads them. */
DEVICE u64 *block_addresses(u32 block) {
    return (u64 *)(arena + ADDRESSES_OFFSET) + block % 2 * BLOCK_KEYS;
}

/* A block of the lists that the thread block goes through. */
struct cursor {
    int item;  /* -1: none */
    int first; /* keys before it in the list */
    int count; /* of the item, or up to the end of the slice */
    int marks; /* ODD_ITEM, FIRST_BLOCK, DOWNWARDS, and SLICE_UNIT times the slices opened */
};

enum {
    DOWNWARDS = 4096, /* the item's last block comes first */
    SLICE_UNIT = 8192
};

/* Where block number `block` is, from when the one before it is announced until it is: the gather's
 * own. In shared memory, since registers are short. */
DEVICE struct cursor *cursor_at(u32 block) {
    return (struct cursor *)(arena + CURSORS_OFFSET) + block % 2;
}

/* The thread block's slices, behind its whole items: two at most, then one of item -1. */
DEVICE struct cursor *own_slices(void) {
    return (struct cursor *)(arena + SLICES_OFFSET);
}

/* By one thread. */
DEVICE void find_slices(const struct sparse_attn_bwd_params *params) {
    const int taker = (int)blockIdx.x / SIDES, takers = params->takers;
    const int items = params->sliced / SIDES;
    const struct cursor none = {-1, 0, 0, 0};
    struct cursor *const slices = own_slices();
    int found = 0;
    slices[0] = slices[1] = slices[2] = none;
    if (DETERMINISTIC || items == 0 || taker >= takers) {
        return;
    }
    for (int i = taker * items / takers; i * takers < (taker + 1) * items; ++i) {
        const int item = i * SIDES + (int)blockIdx.x % SIDES;
        const int count = params->counts[item_group(item)];
        const int blocks = (count + BLOCK_KEYS - 1) / BLOCK_KEYS;
        const int begin = blocks_before(blocks, i, items, taker, takers);
        const int end = blocks_before(blocks, i, items, taker + 1, takers);
        if (begin < end) {
            slices[found].item = item;
            slices[found].first = begin * BLOCK_KEYS;
            slices[found].count = minimum(count, end * BLOCK_KEYS);
            ++found;
        }
    }
}

/* Whether a whole item's list is gone through from its end: every second turn of the grid. */
DEVICE bool goes_down(const struct sparse_attn_bwd_params *params, int item) {
    const int end = (params->first_group + params->groups) * HEAD_BLOCKS;
    return params->step != STEP_NONE && (u32)(end - 1 - item) / gridDim.x % 2;
}

/* Goes on to the block that comes first of an item, or of a slice where `item` is -1. */
DEVICE void open_item(struct cursor *cursor, const struct sparse_attn_bwd_params *params,
                      int item) {
    cursor->item = item;
    cursor->first = 0;
    cursor->marks &= ~DOWNWARDS;
    if (item >= 0) {
        cursor->count = params->counts[item_group(item)];
        if (goes_down(params, item)) {
            cursor->first = (cursor->count - 1) / BLOCK_KEYS * BLOCK_KEYS;
            cursor->marks |= DOWNWARDS;
        }
    } else if (!DETERMINISTIC) {
        const int marks = cursor->marks;
        *cursor = own_slices()[marks / SLICE_UNIT];
        cursor->marks = marks + SLICE_UNIT;
    }
    cursor->marks |= FIRST_BLOCK;
}

/* What a thread has of the block to be announced next; the first 64 of the gather have a key each.
 * It is on its way since the block before was announced. */
struct entry {
    int key, mask;
};

DEVICE void fetch_entry(struct entry *entry, const struct sparse_attn_bwd_params *params,
                        u32 block) {
    const u32 thread = thread_number() % WARPGROUP;
    const struct cursor *const cursor = cursor_at(block);
    if (thread < BLOCK_KEYS && cursor->item >= 0) {
        const int side = (int)((u32)cursor->item % HEAD_BLOCKS);
        const i64 at = (i64)item_group(cursor->item) * params->key_stride +
                       side * params->side_stride + cursor->first + (int)thread;
        entry->key = params->keys[at];
        entry->mask = GROUP_QUERIES > 1 ? params->masks[at] : 0;
    }
}

/* Where a key's row begins in global memory, as a number; 0 for none. */
DEVICE u64 key_address(const struct sparse_attn_bwd_params *params, int key) {
    if (key < 0) {
        return 0;
    }
    const u64 kv = (u64)params->kv;
    if (params->even_batches) {
        return kv + (u64)key * params->kv_row_bytes;
    }
    return kv + (u64)(2 * (key / params->rows * params->kv_batch_stride)) +
           (u64)(key % params->rows) * params->kv_row_bytes;
}

/* By one thread: what there is to know of a block as such, and which one comes after it. */
DEVICE void write_word(const struct sparse_attn_bwd_params *params, u32 block) {
    struct cursor cursor = *cursor_at(block);
    struct block_word word = {cursor.item, 0, 0, 0};
    word.flags = minimum(cursor.count - cursor.first, BLOCK_KEYS) |
                 (cursor.marks & (ODD_ITEM | FIRST_BLOCK));
    word.flags |= (int)(block % BLOCKS_AHEAD) * BLOCK_UNIT;
    if (DETERMINISTIC) {
        const u32 item = (u32)(cursor.item - params->first_group * HEAD_BLOCKS);
        word.place = ((int)(item / HEAD_BLOCKS) * params->key_stride + cursor.first) * KEY_ROWS +
                     (int)(item % HEAD_BLOCKS / SIDES);
    }
    cursor.first += cursor.marks & DOWNWARDS ? -BLOCK_KEYS : BLOCK_KEYS;
    cursor.marks &= ~FIRST_BLOCK;
    if (cursor.first < 0 || cursor.first >= cursor.count) {
        word.flags |= LAST_BLOCK;
        cursor.marks ^= ODD_ITEM;
        open_item(&cursor, params, next_item(params, cursor.item - (int)gridDim.x));
    }
    word.flags |= cursor.item >= 0 ? MORE_BLOCKS : 0;
    *block_word(block) = word;
    *cursor_at(block + 1) = cursor;
}

/* Each of the gather's threads writes its part of what the others need of a block. */
DEVICE void write_block(const struct entry *entry, const struct sparse_attn_bwd_params *params,
                        u32 block) {
    const u32 thread = thread_number() % WARPGROUP;
    if (thread < BLOCK_KEYS) {
        block_numbers(block)[thread] = entry->key;
        block_addresses(block)[thread] = key_address(params, entry->key);
        if (GROUP_QUERIES > 1) {
            block_masks(block)[thread] = (unsigned char)entry->mask;
        }
    }
    if (thread == 0) {
        write_word(params, block);
        if (*own_step() == STEP_LOOSE) {
            keep_in_step(params, block, LOOSE_STEP);
        }
    }
}

/*
 * The first block, by the gather, or that there is none, item -1: which one it is, by its first
 * warp, and what there is to know of it. All of the thread block meets behind each of the two, not
 * the gather alone behind the first: compute-sanitizer's racecheck takes a __syncthreads for no
 * order where the writer's warps passed a named barrier of their own since the one before it
 * (ARCHITECTURE.md, "Tests"). Of several queries functions that are called: inlined, they cost the
 * roles behind them a register that they do not have.
 */
#line 415 "templates/sparse_attn_bwd.sm90_blocks.cuh"
#define DEVICE_ONCE DEVICE
#line 417 "templates/sparse_attn_bwd.sm90_blocks.cuh"
DEVICE_ONCE void find_first_block(const struct sparse_attn_bwd_params *params) {
    if (thread_number() % WARPGROUP < 32) {
        const int step = find_step(params);
        if (thread_number() % WARPGROUP == 0) {
            const int end = (params->first_group + params->groups) * HEAD_BLOCKS;
            find_slices(params);
            cursor_at(0)->marks = 0;
            open_item(cursor_at(0), params, next_item(params, end - 1 - (int)blockIdx.x));
            block_word(0)->item = cursor_at(0)->item;
            *own_step() = step;
        }
    }
}

DEVICE_ONCE void announce_first_block(const struct sparse_attn_bwd_params *params) {
    struct entry entry;
    if (cursor_at(0)->item >= 0) {
        fetch_entry(&entry, params, 0);
        write_block(&entry, params, 0);
    }
}

/* A later one. */
DEVICE void announce_block(struct entry *entry, const struct sparse_attn_bwd_params *params,
                           u32 block) {
    write_block(entry, params, block);
    barrier_sync(GATHER_BARRIER, WARPGROUP);
    arrive_warp(barrier_at(ANNOUNCED), 1);
    fetch_entry(entry, params, block + 1);
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* Addresses of this thread's rows of a block: eight threads copy a row of a tile. */
DEVICE void take_addresses(u64 *from, u32 block) {
    const u32 thread = thread_number() % WARPGROUP;
#pragma unroll
    for (int i = 0; i < ROWS_OF_THREAD; ++i) {
        from[i] = block_addresses(block)[thread / 8 + (u32)(16 * i)];
    }
}

/* Starts the copy of a tile of K; rows that are not there become zeros. */
DEVICE void copy_tile(const u64 *from, int tile) {
    const u32 thread = thread_number() % WARPGROUP;
    const u32 to = shared_address((u32)(KEYS_OFFSET + tile * TILE_BYTES) + thread / 8 * TILE_PITCH +
                                  ((thread % 8) ^ (thread / 8 % 8)) * 16);
#pragma unroll
    for (int i = 0; i < ROWS_OF_THREAD; ++i) {
        cp_async_16(to + (u32)(i * 16 * TILE_PITCH),
                    (const void *)(from[i] + (u64)(tile * TILE_PITCH) + thread % 8 * 16),
                    from[i] ? 16 : 0);
    }
    cp_async_arrive_noinc(barrier_at(KEYS_FULL + tile));
}

/* All tiles of the thread block's first key block, by the gather alone. */
DEVICE void copy_first_block(void) {
    u64 from[ROWS_OF_THREAD];
    take_addresses(from, 0);
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
        copy_tile(from, tile);
    }
}

/* Starts the copies of a member's rows of some tiles of Q and dO. A member that is not there has
 * its heads past the last one, where the copy engine finds zeros. */
DEVICE void load_member(const struct sparse_attn_bwd_params *params, int item, int member,
                        int part) {
    const int query = params->members[(i64)item_group(item) * GROUP_QUERIES + member];
    const int head = query < 0 ? HEADS : first_head(item);
    const int batch = query < 0 ? 0 : query / params->tokens;
    const int token = query < 0 ? 0 : query % params->tokens;
    const u32 barrier = barrier_at(QUERY_FULL + part);
    const u64 policy = policy_evict_first();
    for (int tile = part * PART_TILES; tile < minimum((part + 1) * PART_TILES, TILES); ++tile) {
        const u32 at = (u32)(tile * TILE_BYTES + member * MEMBER_ROWS * TILE_PITCH);
        tensor_load_4d_hint(shared_address(QUERY_OFFSET + at), &params->q_map, barrier,
                            tile * TILE_COLUMNS, head, token, batch, policy);
        if (tile < VALUE_TILES) {
            tensor_load_4d_hint(shared_address(GRAD_OUT_OFFSET + at), &params->grad_out_map,
                                barrier, tile * TILE_COLUMNS, head, token, batch, policy);
        }
    }
}

/* Q and dO of the item that begins with a block, part by part as the sums leave them: by one thread
 * of the gather. */
DEVICE void load_queries(const struct sparse_attn_bwd_params *params, u32 block) {
    if (thread_number() % WARPGROUP == 0) {
        const struct block_word word = *block_word(block);
#pragma unroll 1
        for (int part = 0; part < PARTS; ++part) {
            const int tiles = minimum(PART_TILES, TILES - part * PART_TILES) +
                              minimum(PART_TILES, VALUE_TILES - part * PART_TILES);
            mbarrier_wait(barrier_at(QUERY_FREE + part), word.flags & ODD_ITEM ? 0 : 1);
            mbarrier_arrive_expect(barrier_at(QUERY_FULL + part), (u32)(tiles * TILE_BYTES));
#pragma unroll 1
            for (int member = 0; member < GROUP_QUERIES; ++member) {
                load_member(params, word.item, member, part);
            }
        }
    }
    __syncwarp((u32)ALL_LANES);
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

#line 9 "templates/sparse_attn_bwd.sm90_exchange.cuh"
/*
 * Pairs, of sparse_attn_bwd.sm90.cu: the two thread blocks of a cluster go through the same keys
 * with rows of their own, and add up what both have for dKV before it leaves for global memory,
 * which halves the additions there. Each is given half of the columns of every tile, the first half
 * or the second, as its rank says: of the other half it sends its sums, as bf16, to the other's
 * shared memory. Where there is no other room they land in P's tile: once P is in the sums'
 * registers nobody needs it there until the next block's is stored, which waits for the last
 * landing.
 *
 * There are LANDINGS places, taken in turn. A warpgroup's fragment of a chunk is sent and taken by
 * the same threads on both sides, 16 bytes each at a time, side by side.
 */

/* Of the kernel: told here and not by the launch alone, the compiler knows that there is a cluster,
 * and puts no __syncthreads beside each of its barriers for a launch without. */
#line 27 "templates/sparse_attn_bwd.sm90_exchange.cuh"
#define CLUSTERED
#line 29 "templates/sparse_attn_bwd.sm90_exchange.cuh"

enum {
    LANDING_PART = WARPGROUP * 16, /* bytes: 8 values of each thread */
    LANDING_PARTS = 2,             /* of a chunk of 32 columns */
    LANDING_BYTES = LANDING_PART * LANDING_PARTS
};

/* The cluster's other thread block. */
DEVICE u32 other_rank(void) {
    return cluster_rank() ^ 1u;
}

/* A tile's landing is number tile % LANDINGS. Its phase's parity, in a block of these flags. */
DEVICE int landing_parity(int tile, int flags) {
    const int landing = tile % LANDINGS, uses = (TILES - landing + LANDINGS - 1) / LANDINGS;
    const int odd = uses % 2 == 1 && (flags & BLOCK_UNIT) ? 1 : 0;
    return (tile / LANDINGS + odd) % 2;
}

/* Where this thread's 16 bytes of a part of a landing stand. */
DEVICE u32 landing_place(int tile, int part) {
    const int landing = tile % LANDINGS;
    return shared_address((u32)(LANDING_OFFSET + landing * LANDING_BYTES + part * LANDING_PART)) +
           thread_number() % WARPGROUP * 16;
}

/*
 * Tells the other block that a tile's landing is free; by every warp of the sums. `read`: some bits
 * of what each load from there gave. The arrival's address is made to depend on them (a block's
 * flags are no negative number, which the compiler does not know): else it leaves before the loads
 * have read, which wait behind the additions to global memory, and the next sums land too early.
 */
DEVICE void free_landing(int tile, u32 read, int flags) {
    const u32 barrier = barrier_at(LANDING_FREE + tile % LANDINGS) + (read & (u32)flags >> 31);
    __syncwarp((u32)ALL_LANES);
    if (RACECHECK || threadIdx.x % 32 == 0) {
        mbarrier_give_back_remote(cluster_address(barrier, other_rank()));
    }
}

/* Sends a chunk's sums, 16 values of each thread, to the other block. */
DEVICE void send_chunk(const float *sums, int tile, int flags) {
    const int landing = tile % LANDINGS;
    const u32 landed = cluster_address(barrier_at(LANDED + landing), other_rank());
    mbarrier_wait_given_back(barrier_at(LANDING_FREE + landing),
                             landing_parity(tile, flags) ^ (LANDS_IN_P ? 0 : 1));
#pragma unroll
    for (int part = 0; part < LANDING_PARTS; ++part) {
        u32 words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            words[i] = pack_bf16x2(sums[8 * part + 2 * i], sums[8 * part + 2 * i + 1]);
        }
        const u32 to = cluster_address(landing_place(tile, part), other_rank());
        cluster_store_async_16(to, words, landed);
    }
}

/* Adds what the other block sent to a chunk's sums; some bits of it, for free_landing. */
DEVICE u32 take_chunk(float *sums, int tile, int flags) {
    const u32 landed = barrier_at(LANDED + tile % LANDINGS);
    u32 read = 0;
    if (thread_number() % WARPGROUP == 0) {
        mbarrier_arrive_expect(landed, LANDING_BYTES);
    }
    mbarrier_wait(landed, landing_parity(tile, flags));
#pragma unroll
    for (int part = 0; part < LANDING_PARTS; ++part) {
        u32 pairs[4]; /* of bf16 */
        load_shared_16(pairs, landing_place(tile, part));
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            sums[8 * part + 2 * i] += __int_as_float((int)(pairs[i] << 16));
            sums[8 * part + 2 * i + 1] += __int_as_float((int)(pairs[i] & 0xffff0000u));
        }
        read |= pairs[0];
    }
    return read;
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

#line 7 "templates/sparse_attn_bwd.sm90_rows.cuh"
/*
 * Rows of dq, of sparse_attn_bwd.sm90.cu: how its columns are divided between two warpgroups, where
 * an item's rows are, and stores from fragments.
 */

enum {
    WIDE_COLUMNS = 128,             /* of one wgmma of dQ */
    WIDE_VALUES = WIDE_COLUMNS / 2, /* of a thread */

    /* The scores have the first 128 columns, the gather three times 128, the last. Of a tile in
     * between 56 columns are the scores', 8 the gather's. */
    LAST_GROUPS = 3,
    LAST_COLUMN = DQK - LAST_GROUPS * WIDE_COLUMNS, /* the gather's first of the 128s */
    LAST_TILE = LAST_COLUMN / TILE_COLUMNS,
    DIVIDES_TILE = LAST_COLUMN > WIDE_COLUMNS,
    DIVIDED_TILE = 2,
    REST_COLUMNS = 56,
    REST_VALUES = REST_COLUMNS / 2,

    /* 1: every row of an item with keys is there, heads are not padded. */
    FULL_ITEMS = GROUP_QUERIES == 1 && HEADS % BLOCK_HEADS == 0
};

/* The first of this thread's two rows of an item, in its warpgroup's fragments; the other is 8
 * further. */
DEVICE int fragment_row(void) {
    const u32 thread = threadIdx.x % WARPGROUP;
    return (int)(thread / 32 * 16 + thread % 32 / 4);
}

/* The head of an item's row. */
DEVICE int row_head(int item, int row) {
    return first_head(item) + row % MEMBER_ROWS;
}

/* A row of an item in dq, or null when there is none. */
DEVICE char *dq_row(const struct sparse_attn_bwd_params *params, int item, int row) {
    const i64 group = item_group(item);
    const int query = params->members[group * GROUP_QUERIES + row / MEMBER_ROWS];
    const int head = row_head(item, row);
    if (query < 0 || head >= HEADS) {
        return 0;
    }
    return (char *)params->dq +
           2 * (query / params->tokens * params->dq_batch_stride +
                query % params->tokens * params->dq_token_stride + head * params->dq_head_stride);
}

/* The first of this thread's two rows of a slice. */
DEVICE char *slice_row(const struct sparse_attn_bwd_params *params, int item, int row) {
    const int taker = (int)blockIdx.x / SIDES;
    const int slice = (taker + item / SIDES) * SIDES + item % SIDES;
    return (char *)params->slices + ((i64)slice * BLOCK_HEADS + row) * (DQK * 2);
}

/* This thread's two, where the first of its 16 bytes of every 64 are; or null. */
DEVICE void fragment_rows_of_dq(char **rows, const struct sparse_attn_bwd_params *params,
                                int item) {
    const int row = fragment_row();
    const bool sliced = !DETERMINISTIC && item < params->sliced;
    rows[0] = sliced ? slice_row(params, item, row) : dq_row(params, item, row);
    if (sliced) {
        rows[1] = rows[0] + 8 * DQK * 2;
    } else if (MEMBER_ROWS == 8) {
        rows[1] = dq_row(params, item, row + 8);
    } else {
        const bool there = FULL_ITEMS || (rows[0] && row_head(item, row) + 8 < HEADS);
        rows[1] = there ? rows[0] + 16 * params->dq_head_stride : 0;
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        rows[r] = FULL_ITEMS || rows[r] ? rows[r] + threadIdx.x % 4 * 16 : 0;
    }
}

/* 32 columns of dQ, 16 values of a thread, as bf16: 16 bytes a thread and row. */
DEVICE void store_columns_32(char *const *rows, int column, const float *values) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        u32 x[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            x[k] = pack_bf16x2(values[k * 4 + 2 * r], values[k * 4 + 2 * r + 1]);
        }
        transpose_quad(x);
        if (FULL_ITEMS || rows[r]) {
            store_streaming_16(rows[r] + column * 2, x);
        }
    }
}

/* 8 columns, 4 values. */
DEVICE void store_columns_8(char *const *rows, int column, const float *values) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        if (FULL_ITEMS || rows[r]) {
            *(u32 *)(rows[r] - threadIdx.x % 4 * 12 + column * 2) =
                pack_bf16x2(values[2 * r], values[2 * r + 1]);
        }
    }
}

/* dq of the thread block's items without keys is zero; a warp takes an item. */
DEVICE void zero_empty_items(const struct sparse_attn_bwd_params *params) {
    const u32 zeros[4] = {0, 0, 0, 0};
    const int end = (params->first_group + params->groups) * HEAD_BLOCKS;
    const int step = (int)gridDim.x * (THREADS / 32), lane = (int)(threadIdx.x % 32);
    int item = params->first_group * HEAD_BLOCKS + (int)(blockIdx.x + threadIdx.x / 32 * gridDim.x);
    for (; item < end; item += step) {
        if (params->counts[item_group(item)] > 0) {
            continue;
        }
        for (int row = 0; row < BLOCK_HEADS; ++row) {
            char *const to = dq_row(params, item, row);
            for (int piece = lane; to && piece < DQK / 8; piece += 32) {
                store_streaming_16(to + piece * 16, zeros);
            }
        }
    }
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

#line 6 "templates/common/fragment_tile.cuh"
/*
 * A tile of 64 x 64 bf16 in shared memory, 128-byte swizzled, that one warpgroup writes out of its
 * accumulators and another reads turned around, as A of a product.
 */

enum {
    FRAGMENT_WORDS = 16,       /* of a thread, two bf16 a word: 32 values of an accumulator */
    FRAGMENT_TILE_PITCH = 128, /* bytes of a row */
    FRAGMENT_STEP_BYTES = 32   /* 16 columns of a row */
};

/* An accumulator's values as bf16: A of a product, too. */
DEVICE void pack_fragments(u32 *words, const float *values) {
#pragma unroll
    for (int i = 0; i < FRAGMENT_WORDS; ++i) {
        words[i] = pack_bf16x2(values[2 * i], values[2 * i + 1]);
    }
}

/* They into a tile. */
DEVICE void store_fragments(int offset, const u32 *words) {
    const u32 warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
    const u32 to = shared_address((u32)offset + (warp * 16 + lane % 16) * FRAGMENT_TILE_PITCH +
                                  ((lane / 16) ^ (lane % 8)) * 16);
#pragma unroll
    for (int i = 0; i < FRAGMENT_WORDS / 4; ++i) {
        stmatrix_x4(to ^ (u32)(i * FRAGMENT_STEP_BYTES), &words[4 * i]);
    }
}

/* A tile, turned around, as A fragments: rows are the depth. */
DEVICE void load_fragments_transposed(u32 *fragments, int offset) {
    const u32 thread = thread_number() % 128, warp = thread / 32, lane = thread % 32;
    const u32 from = shared_address((u32)offset + (lane % 8 + lane / 16 * 8) * FRAGMENT_TILE_PITCH +
                                    ((2 * warp + lane / 8 % 2) ^ (lane % 8)) * 16);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        ldmatrix_x4_trans(&fragments[4 * k], from + (u32)(k * 16 * FRAGMENT_TILE_PITCH));
    }
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

#line 4 "templates/ptx/wgmma_rs_tile.cuh"

/* The four wgmma_rs_n56_t01 of 64 of depth, as in ptx/wgmma_ss_tile.cuh; four words of a for
 * each (PTX ISA, "wgmma.mma_async"). */
// clang-format off
DEVICE void wgmma_rs_tile_n56_t01(float *d, const u32 *a, u64 b, int accumulate) {
    asm volatile("{.reg .pred p;\n\t"
                 ".reg .b64 b;\n\t"
                 "setp.ne.s32 p, %45, 0;\n\t"
#line 13 "templates/ptx/wgmma_rs_tile.cuh"
                 "add.s64 b, %44, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n56k16.f32.bf16.bf16 {"
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%0, %1, %2, %3, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%4, %5, %6, %7, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%8, %9, %10, %11, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%12, %13, %14, %15, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%16, %17, %18, %19, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%20, %21, %22, %23, "
#line 18 "templates/ptx/wgmma_rs_tile.cuh"
                 "%24, %25, %26, %27}, "
                 "{%28, %29, "
                 "%30, %31}, "
                 "b, p, 1, 1, 1;\n\t"
                 "setp.eq.s32 p, 0, 0;\n\t"
#line 13 "templates/ptx/wgmma_rs_tile.cuh"
                 "add.s64 b, %44, 128;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n56k16.f32.bf16.bf16 {"
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%0, %1, %2, %3, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%4, %5, %6, %7, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%8, %9, %10, %11, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%12, %13, %14, %15, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%16, %17, %18, %19, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%20, %21, %22, %23, "
#line 18 "templates/ptx/wgmma_rs_tile.cuh"
                 "%24, %25, %26, %27}, "
                 "{%32, %33, "
                 "%34, %35}, "
                 "b, p, 1, 1, 1;\n\t"
                 "setp.eq.s32 p, 0, 0;\n\t"
#line 13 "templates/ptx/wgmma_rs_tile.cuh"
                 "add.s64 b, %44, 256;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n56k16.f32.bf16.bf16 {"
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%0, %1, %2, %3, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%4, %5, %6, %7, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%8, %9, %10, %11, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%12, %13, %14, %15, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%16, %17, %18, %19, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%20, %21, %22, %23, "
#line 18 "templates/ptx/wgmma_rs_tile.cuh"
                 "%24, %25, %26, %27}, "
                 "{%36, %37, "
                 "%38, %39}, "
                 "b, p, 1, 1, 1;\n\t"
                 "setp.eq.s32 p, 0, 0;\n\t"
#line 13 "templates/ptx/wgmma_rs_tile.cuh"
                 "add.s64 b, %44, 384;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n56k16.f32.bf16.bf16 {"
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%0, %1, %2, %3, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%4, %5, %6, %7, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%8, %9, %10, %11, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%12, %13, %14, %15, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%16, %17, %18, %19, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%20, %21, %22, %23, "
#line 18 "templates/ptx/wgmma_rs_tile.cuh"
                 "%24, %25, %26, %27}, "
                 "{%40, %41, "
                 "%42, %43}, "
                 "b, p, 1, 1, 1;\n\t"
                 "setp.eq.s32 p, 0, 0;\n\t"
#line 24 "templates/ptx/wgmma_rs_tile.cuh"
                 "}"
                 :
#line 27 "templates/ptx/wgmma_rs_tile.cuh"
                 "+f"(d[0]), "+f"(d[1]),
                 "+f"(d[2]), "+f"(d[3]),
#line 27 "templates/ptx/wgmma_rs_tile.cuh"
                 "+f"(d[4]), "+f"(d[5]),
                 "+f"(d[6]), "+f"(d[7]),
#line 27 "templates/ptx/wgmma_rs_tile.cuh"
                 "+f"(d[8]), "+f"(d[9]),
                 "+f"(d[10]), "+f"(d[11]),
#line 27 "templates/ptx/wgmma_rs_tile.cuh"
                 "+f"(d[12]), "+f"(d[13]),
                 "+f"(d[14]), "+f"(d[15]),
#line 27 "templates/ptx/wgmma_rs_tile.cuh"
                 "+f"(d[16]), "+f"(d[17]),
                 "+f"(d[18]), "+f"(d[19]),
#line 27 "templates/ptx/wgmma_rs_tile.cuh"
                 "+f"(d[20]), "+f"(d[21]),
                 "+f"(d[22]), "+f"(d[23]),
#line 30 "templates/ptx/wgmma_rs_tile.cuh"
                 "+f"(d[24]), "+f"(d[25]),
                 "+f"(d[26]), "+f"(d[27])
                 :
#line 34 "templates/ptx/wgmma_rs_tile.cuh"
                 "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]),
#line 34 "templates/ptx/wgmma_rs_tile.cuh"
                 "r"(a[4]), "r"(a[5]), "r"(a[6]), "r"(a[7]),
#line 34 "templates/ptx/wgmma_rs_tile.cuh"
                 "r"(a[8]), "r"(a[9]), "r"(a[10]), "r"(a[11]),
#line 34 "templates/ptx/wgmma_rs_tile.cuh"
                 "r"(a[12]), "r"(a[13]), "r"(a[14]), "r"(a[15]),
#line 36 "templates/ptx/wgmma_rs_tile.cuh"
                 "l"(b), "r"(accumulate));
}
// clang-format on

#line 4 "templates/ptx/wgmma_rs_tile.cuh"

/* The four wgmma_rs_n128_t01 of 64 of depth, as in ptx/wgmma_ss_tile.cuh; four words of a for
 * each (PTX ISA, "wgmma.mma_async"). */
// clang-format off
DEVICE void wgmma_rs_tile_n128_t01(float *d, const u32 *a, u64 b, int accumulate) {
    asm volatile("{.reg .pred p;\n\t"
                 ".reg .b64 b;\n\t"
                 "setp.ne.s32 p, %81, 0;\n\t"
#line 13 "templates/ptx/wgmma_rs_tile.cuh"
                 "add.s64 b, %80, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%0, %1, %2, %3, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%4, %5, %6, %7, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%8, %9, %10, %11, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%12, %13, %14, %15, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%16, %17, %18, %19, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%20, %21, %22, %23, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%24, %25, %26, %27, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%28, %29, %30, %31, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%32, %33, %34, %35, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%36, %37, %38, %39, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%40, %41, %42, %43, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%44, %45, %46, %47, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%48, %49, %50, %51, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%52, %53, %54, %55, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%56, %57, %58, %59, "
#line 18 "templates/ptx/wgmma_rs_tile.cuh"
                 "%60, %61, %62, %63}, "
                 "{%64, %65, "
                 "%66, %67}, "
                 "b, p, 1, 1, 1;\n\t"
                 "setp.eq.s32 p, 0, 0;\n\t"
#line 13 "templates/ptx/wgmma_rs_tile.cuh"
                 "add.s64 b, %80, 128;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%0, %1, %2, %3, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%4, %5, %6, %7, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%8, %9, %10, %11, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%12, %13, %14, %15, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%16, %17, %18, %19, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%20, %21, %22, %23, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%24, %25, %26, %27, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%28, %29, %30, %31, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%32, %33, %34, %35, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%36, %37, %38, %39, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%40, %41, %42, %43, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%44, %45, %46, %47, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%48, %49, %50, %51, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%52, %53, %54, %55, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%56, %57, %58, %59, "
#line 18 "templates/ptx/wgmma_rs_tile.cuh"
                 "%60, %61, %62, %63}, "
                 "{%68, %69, "
                 "%70, %71}, "
                 "b, p, 1, 1, 1;\n\t"
                 "setp.eq.s32 p, 0, 0;\n\t"
#line 13 "templates/ptx/wgmma_rs_tile.cuh"
                 "add.s64 b, %80, 256;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%0, %1, %2, %3, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%4, %5, %6, %7, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%8, %9, %10, %11, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%12, %13, %14, %15, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%16, %17, %18, %19, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%20, %21, %22, %23, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%24, %25, %26, %27, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%28, %29, %30, %31, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%32, %33, %34, %35, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%36, %37, %38, %39, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%40, %41, %42, %43, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%44, %45, %46, %47, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%48, %49, %50, %51, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%52, %53, %54, %55, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%56, %57, %58, %59, "
#line 18 "templates/ptx/wgmma_rs_tile.cuh"
                 "%60, %61, %62, %63}, "
                 "{%72, %73, "
                 "%74, %75}, "
                 "b, p, 1, 1, 1;\n\t"
                 "setp.eq.s32 p, 0, 0;\n\t"
#line 13 "templates/ptx/wgmma_rs_tile.cuh"
                 "add.s64 b, %80, 384;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%0, %1, %2, %3, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%4, %5, %6, %7, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%8, %9, %10, %11, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%12, %13, %14, %15, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%16, %17, %18, %19, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%20, %21, %22, %23, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%24, %25, %26, %27, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%28, %29, %30, %31, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%32, %33, %34, %35, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%36, %37, %38, %39, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%40, %41, %42, %43, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%44, %45, %46, %47, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%48, %49, %50, %51, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%52, %53, %54, %55, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%56, %57, %58, %59, "
#line 18 "templates/ptx/wgmma_rs_tile.cuh"
                 "%60, %61, %62, %63}, "
                 "{%76, %77, "
                 "%78, %79}, "
                 "b, p, 1, 1, 1;\n\t"
                 "setp.eq.s32 p, 0, 0;\n\t"
#line 24 "templates/ptx/wgmma_rs_tile.cuh"
                 "}"
                 :
#line 27 "templates/ptx/wgmma_rs_tile.cuh"
                 "+f"(d[0]), "+f"(d[1]),
                 "+f"(d[2]), "+f"(d[3]),
#line 27 "templates/ptx/wgmma_rs_tile.cuh"
                 "+f"(d[4]), "+f"(d[5]),
                 "+f"(d[6]), "+f"(d[7]),
#line 27 "templates/ptx/wgmma_rs_tile.cuh"
                 "+f"(d[8]), "+f"(d[9]),
                 "+f"(d[10]), "+f"(d[11]),
#line 27 "templates/ptx/wgmma_rs_tile.cuh"
                 "+f"(d[12]), "+f"(d[13]),
                 "+f"(d[14]), "+f"(d[15]),
#line 27 "templates/ptx/wgmma_rs_tile.cuh"
                 "+f"(d[16]), "+f"(d[17]),
                 "+f"(d[18]), "+f"(d[19]),
#line 27 "templates/ptx/wgmma_rs_tile.cuh"
                 "+f"(d[20]), "+f"(d[21]),
                 "+f"(d[22]), "+f"(d[23]),
#line 27 "templates/ptx/wgmma_rs_tile.cuh"
                 "+f"(d[24]), "+f"(d[25]),
                 "+f"(d[26]), "+f"(d[27]),
#line 27 "templates/ptx/wgmma_rs_tile.cuh"
                 "+f"(d[28]), "+f"(d[29]),
                 "+f"(d[30]), "+f"(d[31]),
#line 27 "templates/ptx/wgmma_rs_tile.cuh"
                 "+f"(d[32]), "+f"(d[33]),
                 "+f"(d[34]), "+f"(d[35]),
#line 27 "templates/ptx/wgmma_rs_tile.cuh"
                 "+f"(d[36]), "+f"(d[37]),
                 "+f"(d[38]), "+f"(d[39]),
#line 27 "templates/ptx/wgmma_rs_tile.cuh"
                 "+f"(d[40]), "+f"(d[41]),
                 "+f"(d[42]), "+f"(d[43]),
#line 27 "templates/ptx/wgmma_rs_tile.cuh"
                 "+f"(d[44]), "+f"(d[45]),
                 "+f"(d[46]), "+f"(d[47]),
#line 27 "templates/ptx/wgmma_rs_tile.cuh"
                 "+f"(d[48]), "+f"(d[49]),
                 "+f"(d[50]), "+f"(d[51]),
#line 27 "templates/ptx/wgmma_rs_tile.cuh"
                 "+f"(d[52]), "+f"(d[53]),
                 "+f"(d[54]), "+f"(d[55]),
#line 27 "templates/ptx/wgmma_rs_tile.cuh"
                 "+f"(d[56]), "+f"(d[57]),
                 "+f"(d[58]), "+f"(d[59]),
#line 30 "templates/ptx/wgmma_rs_tile.cuh"
                 "+f"(d[60]), "+f"(d[61]),
                 "+f"(d[62]), "+f"(d[63])
                 :
#line 34 "templates/ptx/wgmma_rs_tile.cuh"
                 "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]),
#line 34 "templates/ptx/wgmma_rs_tile.cuh"
                 "r"(a[4]), "r"(a[5]), "r"(a[6]), "r"(a[7]),
#line 34 "templates/ptx/wgmma_rs_tile.cuh"
                 "r"(a[8]), "r"(a[9]), "r"(a[10]), "r"(a[11]),
#line 34 "templates/ptx/wgmma_rs_tile.cuh"
                 "r"(a[12]), "r"(a[13]), "r"(a[14]), "r"(a[15]),
#line 36 "templates/ptx/wgmma_rs_tile.cuh"
                 "l"(b), "r"(accumulate));
}
// clang-format on

#line 4 "templates/ptx/wgmma_ss_tile.cuh"

/*
 * The four wgmma_ss_n64_t00 of 64 of depth, one behind the other: the first one sets d
 * or, when `accumulate`, adds to it, the others add (PTX ISA, "wgmma.mma_async"). a and b are
 * swizzled by 128 bytes: 16 of depth are 32 bytes of a line or, transposed, 16 lines, which is 2 or
 * 128 in a descriptor. One statement, since the compiler's time goes by statements times their
 * values.
 */
// clang-format off
DEVICE void wgmma_ss_tile_n64_t00(float *d, u64 a, u64 b, int accumulate) {
    asm volatile("{.reg .pred p;\n\t"
                 ".reg .b64 a, b;\n\t"
                 "setp.ne.s32 p, %34, 0;\n\t"
#line 18 "templates/ptx/wgmma_ss_tile.cuh"
                 "add.s64 a, %32, 0;\n\t"
                 "add.s64 b, %33, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%0, %1, %2, %3, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%4, %5, %6, %7, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%8, %9, %10, %11, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%12, %13, %14, %15, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%16, %17, %18, %19, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%20, %21, %22, %23, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%24, %25, %26, %27, "
#line 24 "templates/ptx/wgmma_ss_tile.cuh"
                 "%28, %29, %30, %31}, "
                 "a, b, p, 1, 1, 0, 0;\n\t"
                 "setp.eq.s32 p, 0, 0;\n\t"
#line 18 "templates/ptx/wgmma_ss_tile.cuh"
                 "add.s64 a, %32, 2;\n\t"
                 "add.s64 b, %33, 2;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%0, %1, %2, %3, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%4, %5, %6, %7, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%8, %9, %10, %11, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%12, %13, %14, %15, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%16, %17, %18, %19, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%20, %21, %22, %23, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%24, %25, %26, %27, "
#line 24 "templates/ptx/wgmma_ss_tile.cuh"
                 "%28, %29, %30, %31}, "
                 "a, b, p, 1, 1, 0, 0;\n\t"
                 "setp.eq.s32 p, 0, 0;\n\t"
#line 18 "templates/ptx/wgmma_ss_tile.cuh"
                 "add.s64 a, %32, 4;\n\t"
                 "add.s64 b, %33, 4;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%0, %1, %2, %3, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%4, %5, %6, %7, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%8, %9, %10, %11, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%12, %13, %14, %15, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%16, %17, %18, %19, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%20, %21, %22, %23, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%24, %25, %26, %27, "
#line 24 "templates/ptx/wgmma_ss_tile.cuh"
                 "%28, %29, %30, %31}, "
                 "a, b, p, 1, 1, 0, 0;\n\t"
                 "setp.eq.s32 p, 0, 0;\n\t"
#line 18 "templates/ptx/wgmma_ss_tile.cuh"
                 "add.s64 a, %32, 6;\n\t"
                 "add.s64 b, %33, 6;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%0, %1, %2, %3, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%4, %5, %6, %7, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%8, %9, %10, %11, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%12, %13, %14, %15, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%16, %17, %18, %19, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%20, %21, %22, %23, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%24, %25, %26, %27, "
#line 24 "templates/ptx/wgmma_ss_tile.cuh"
                 "%28, %29, %30, %31}, "
                 "a, b, p, 1, 1, 0, 0;\n\t"
                 "setp.eq.s32 p, 0, 0;\n\t"
#line 28 "templates/ptx/wgmma_ss_tile.cuh"
                 "}"
                 :
#line 31 "templates/ptx/wgmma_ss_tile.cuh"
                 "+f"(d[0]), "+f"(d[1]),
                 "+f"(d[2]), "+f"(d[3]),
#line 31 "templates/ptx/wgmma_ss_tile.cuh"
                 "+f"(d[4]), "+f"(d[5]),
                 "+f"(d[6]), "+f"(d[7]),
#line 31 "templates/ptx/wgmma_ss_tile.cuh"
                 "+f"(d[8]), "+f"(d[9]),
                 "+f"(d[10]), "+f"(d[11]),
#line 31 "templates/ptx/wgmma_ss_tile.cuh"
                 "+f"(d[12]), "+f"(d[13]),
                 "+f"(d[14]), "+f"(d[15]),
#line 31 "templates/ptx/wgmma_ss_tile.cuh"
                 "+f"(d[16]), "+f"(d[17]),
                 "+f"(d[18]), "+f"(d[19]),
#line 31 "templates/ptx/wgmma_ss_tile.cuh"
                 "+f"(d[20]), "+f"(d[21]),
                 "+f"(d[22]), "+f"(d[23]),
#line 31 "templates/ptx/wgmma_ss_tile.cuh"
                 "+f"(d[24]), "+f"(d[25]),
                 "+f"(d[26]), "+f"(d[27]),
#line 34 "templates/ptx/wgmma_ss_tile.cuh"
                 "+f"(d[28]), "+f"(d[29]),
                 "+f"(d[30]), "+f"(d[31])
                 : "l"(a), "l"(b), "r"(accumulate));
}
// clang-format on

#line 18 "templates/sparse_attn_bwd.sm90_scores.cuh"
/* The scores' warpgroup of sparse_attn_bwd.sm90.cu: S and dP, from them P and dS, which it hands to
 * the others, and the first columns of dQ. */

enum { PRODUCT_VALUES = 2 * FRAGMENT_WORDS }; /* S or dP of a thread */

/* Which tile is i-th in S and dP: in the order in which the gather brings them. */
DEVICE int tile_in_turn(int i) {
    return !DIVIDES_TILE || i < DIVIDED_TILE ? i
           : i == TILES - 1                  ? DIVIDED_TILE
           : i == TILES - 3                  ? TILES - 1
           : i == TILES - 2                  ? TILES - 2
                                             : i + 1;
}

/* Issues S = Q K^T and dP = dO K^T, in two groups, the first of which has all of S. */
DEVICE void issue_products(float *s, float *dp, int flags, u32 block) {
    const u64 query = tile_descriptor(QUERY_OFFSET), keys = tile_descriptor(KEYS_OFFSET);
    const u64 grad_out = tile_descriptor(GRAD_OUT_OFFSET);
#pragma unroll
    for (int i = 0; i < TILES; ++i) {
        const int tile = tile_in_turn(i);
        if (tile % PART_TILES == 0 && (flags & FIRST_BLOCK)) {
            mbarrier_wait(barrier_at(QUERY_FULL + tile / PART_TILES), flags & ODD_ITEM ? 1 : 0);
        }
        mbarrier_wait(barrier_at(KEYS_FULL + tile), block & 1);
        fence_proxy_async();
        wgmma_fence();
        const u32 at = (u32)(tile * TILE_BYTES);
        wgmma_ss_tile_n64_t00(s, descriptor_advance(query, at), descriptor_advance(keys, at),
                              i > 0);
        if (i == TILES - 1) {
            wgmma_commit();
        }
        if (tile < VALUE_TILES) {
            wgmma_ss_tile_n64_t00(dp, descriptor_advance(grad_out, at),
                                  descriptor_advance(keys, at), i > 0);
        }
    }
    wgmma_commit();
}

/* Of this thread's two rows. */
struct row_statistics {
    float minus_base[2], delta[2];
};

DEVICE void load_statistics(struct row_statistics *rows,
                            const struct sparse_attn_bwd_params *params, int item) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const float *const from =
            params->statistics + 2 * ((i64)item * BLOCK_HEADS + fragment_row() + 8 * r);
        rows->minus_base[r] = -from[0];
        rows->delta[r] = from[1];
    }
}

/* Bit i: S's value i of this thread is of a key that its row's query has. */
DEVICE u32 present_values(u32 block) {
    const int row = fragment_row(), upper = row / MEMBER_ROWS, lower = (row + 8) / MEMBER_ROWS;
    const unsigned short *const pairs =
        (const unsigned short *)block_masks(block) + thread_number() % 4;
    u32 present = 0;
#pragma unroll
    for (int i = 0; i < PRODUCT_VALUES / 4; ++i) {
        const u32 pair = pairs[i * 4]; /* of two keys' masks, the first in the lower byte */
        const u32 of_upper = pair >> upper & 0x101, of_lower = pair >> lower & 0x101;
        present |= ((of_upper | of_upper >> 7) & 3) << (4 * i);
        present |= ((of_lower | of_lower >> 7) & 3) << (4 * i + 2);
    }
    return present;
}

/* S -> P in place. */
DEVICE void probabilities(float *s, const struct row_statistics *rows, float scale_log2,
                          u32 present) {
#pragma unroll
    for (int i = 0; i < PRODUCT_VALUES; ++i) {
        const float x = fmaf(s[i], scale_log2, rows->minus_base[i / 2 % 2]);
        s[i] = exp2_approximate(minimum_nan(x, 0.0f));
        if (GROUP_QUERIES > 1) {
            s[i] = present >> i & 1 ? s[i] : 0.0f;
        }
    }
}

/* dP -> dS in place. */
DEVICE void slopes(float *dp, const float *p, const struct row_statistics *rows, float scale,
                   u32 present) {
#pragma unroll
    for (int i = 0; i < PRODUCT_VALUES; ++i) {
        dp[i] = p[i] * scale * (dp[i] - rows->delta[i / 2 % 2]);
        if (GROUP_QUERIES > 1) {
            dp[i] = present >> i & 1 ? dp[i] : 0.0f;
        }
    }
}

/* P or dS of keys behind the list's end becomes 0. (With groups their masks do that.) */
DEVICE void drop_absent(float *values, int count) {
    const int column = (int)(threadIdx.x % 4 * 2);
#pragma unroll
    for (int i = 0; i < PRODUCT_VALUES; ++i) {
        if (i / 4 * 8 + column + i % 2 >= count) {
            values[i] = 0.0f;
        }
    }
}

/* Issues dQ += dS K, or dQ = dS K of an item's first block, for the scores' columns. */
DEVICE void issue_first_columns(float *dq, float *rest, const u32 *ds, bool first) {
    const u64 keys = columns_descriptor(KEYS_OFFSET);
    wgmma_fence();
    if (DIVIDES_TILE) { /* first: else ptxas spills in deterministic pairs */
        wgmma_rs_tile_n56_t01(rest, ds, descriptor_advance(keys, DIVIDED_TILE * TILE_BYTES),
                              !first);
    }
    wgmma_rs_tile_n128_t01(dq, ds, keys, !first);
    wgmma_commit();
}

/* The scores' columns of an item's dq to global memory. */
DEVICE void store_first_columns(const struct sparse_attn_bwd_params *params, const float *dq,
                                const float *rest, int item) {
    char *rows[2];
    fragment_rows_of_dq(rows, params, item);
#pragma unroll
    for (int i = 0; i < WIDE_VALUES / 16; ++i) {
        store_columns_32(rows, i * 32, &dq[i * 16]);
    }
    if (DIVIDES_TILE) {
        store_columns_32(rows, WIDE_COLUMNS, rest);
#pragma unroll
        for (int i = 4; i < REST_VALUES / 4; ++i) {
            store_columns_8(rows, WIDE_COLUMNS + i * 8, &rest[i * 4]);
        }
    }
}

/* P into its tile; LANDS_IN_P: when nothing can land there any more. */
DEVICE void give_probabilities(const u32 *p, u32 block) {
    if (LANDS_IN_P) {
        mbarrier_wait(barrier_at(PROBABILITIES_FREE), (block & 1) ^ 1);
    }
    store_fragments(PROBABILITIES_OFFSET, p);
    if (LANDS_IN_P) {
        arrive_warp(barrier_at(PROBABILITIES_FULL), 1);
    }
}

DEVICE void run_scores(const struct sparse_attn_bwd_params *params) {
    registers_increase(SCORES_REGISTERS);
    const float scale_log2 = params->scale * LOG2_E;
    float dq[WIDE_VALUES], rest[REST_VALUES];
    struct row_statistics rows = {{0.0f, 0.0f}, {0.0f, 0.0f}};
    int flags;
    u32 block = 0;
    do {
        float s[PRODUCT_VALUES], dp[PRODUCT_VALUES];
        u32 packed[FRAGMENT_WORDS];
        flags = block_word(block)->flags;
        if (flags & FIRST_BLOCK) {
            load_statistics(&rows, params, block_word(block)->item);
        }
        issue_products(s, dp, flags, block);
        u32 present = GROUP_QUERIES > 1 ? present_values(block) : 0;
        wgmma_wait_1();
        probabilities(s, &rows, scale_log2, present);
        if (GROUP_QUERIES == 1 && (flags & COUNT_MASK) < BLOCK_KEYS) {
            drop_absent(s, flags & COUNT_MASK);
        }
        mbarrier_wait(barrier_at(SLOPES_FREE), (block & 1) ^ 1);
        if (!LANDS_IN_P) {
            pack_fragments(packed, s);
            give_probabilities(packed, block);
        }
        if (GROUP_QUERIES > 1) {
            /* The value it has: else the compiler keeps what it was split into, and registers are
             * short. */
            present = __shfl_xor_sync((u32)ALL_LANES, present, 0);
        }
        wgmma_wait_0();
        slopes(dp, s, &rows, params->scale, present);
        if (GROUP_QUERIES == 1 && (flags & COUNT_MASK) < BLOCK_KEYS) {
            drop_absent(dp, flags & COUNT_MASK);
        }
        pack_fragments(packed, dp);
        store_fragments(SLOPES_OFFSET, packed);
        arrive_warp(barrier_at(SLOPES_FULL), 1);
        u32 others[FRAGMENT_WORDS];
        pack_fragments(others, s);
        issue_first_columns(dq, rest, packed, flags & FIRST_BLOCK);
        if (LANDS_IN_P) {
            give_probabilities(others, block);
        }
        if (flags & MORE_BLOCKS) {
            /* Before KEYS_FREE: the gather may not be two phases ahead. */
            mbarrier_wait(barrier_at(ANNOUNCED), block & 1);
        }
        wgmma_wait_0();
        if (RACECHECK) {
            /* They are full since the products. The tool forgets that these threads waited for it
             * where an item's slice follows (ARCHITECTURE.md, "Tests"). */
            mbarrier_wait(barrier_at(KEYS_FULL), block & 1);
            mbarrier_wait(barrier_at(KEYS_FULL + 1), block & 1);
        }
        arrive_warp(barrier_at(KEYS_FREE), 1);
        barrier_sync(SCORES_BARRIER, WARPGROUP);
        if (flags & MORE_BLOCKS) {
            u64 from[ROWS_OF_THREAD];
            take_addresses(from, block + 1);
            copy_tile(from, 0);
            copy_tile(from, 1);
        }
        if (flags & LAST_BLOCK) {
            store_first_columns(params, dq, rest, block_word(block)->item);
        }
        ++block;
    } while (flags & MORE_BLOCKS);
}

#line 4 "templates/ptx/wgmma_ss_tile.cuh"

/*
 * The four wgmma_ss_n8_t01 of 64 of depth, one behind the other: the first one sets d
 * or, when `accumulate`, adds to it, the others add (PTX ISA, "wgmma.mma_async"). a and b are
 * swizzled by 128 bytes: 16 of depth are 32 bytes of a line or, transposed, 16 lines, which is 2 or
 * 128 in a descriptor. One statement, since the compiler's time goes by statements times their
 * values.
 */
// clang-format off
DEVICE void wgmma_ss_tile_n8_t01(float *d, u64 a, u64 b, int accumulate) {
    asm volatile("{.reg .pred p;\n\t"
                 ".reg .b64 a, b;\n\t"
                 "setp.ne.s32 p, %6, 0;\n\t"
#line 18 "templates/ptx/wgmma_ss_tile.cuh"
                 "add.s64 a, %4, 0;\n\t"
                 "add.s64 b, %5, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {"
#line 24 "templates/ptx/wgmma_ss_tile.cuh"
                 "%0, %1, %2, %3}, "
                 "a, b, p, 1, 1, 0, 1;\n\t"
                 "setp.eq.s32 p, 0, 0;\n\t"
#line 18 "templates/ptx/wgmma_ss_tile.cuh"
                 "add.s64 a, %4, 2;\n\t"
                 "add.s64 b, %5, 128;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {"
#line 24 "templates/ptx/wgmma_ss_tile.cuh"
                 "%0, %1, %2, %3}, "
                 "a, b, p, 1, 1, 0, 1;\n\t"
                 "setp.eq.s32 p, 0, 0;\n\t"
#line 18 "templates/ptx/wgmma_ss_tile.cuh"
                 "add.s64 a, %4, 4;\n\t"
                 "add.s64 b, %5, 256;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {"
#line 24 "templates/ptx/wgmma_ss_tile.cuh"
                 "%0, %1, %2, %3}, "
                 "a, b, p, 1, 1, 0, 1;\n\t"
                 "setp.eq.s32 p, 0, 0;\n\t"
#line 18 "templates/ptx/wgmma_ss_tile.cuh"
                 "add.s64 a, %4, 6;\n\t"
                 "add.s64 b, %5, 384;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {"
#line 24 "templates/ptx/wgmma_ss_tile.cuh"
                 "%0, %1, %2, %3}, "
                 "a, b, p, 1, 1, 0, 1;\n\t"
                 "setp.eq.s32 p, 0, 0;\n\t"
#line 28 "templates/ptx/wgmma_ss_tile.cuh"
                 "}"
                 :
#line 34 "templates/ptx/wgmma_ss_tile.cuh"
                 "+f"(d[0]), "+f"(d[1]),
                 "+f"(d[2]), "+f"(d[3])
                 : "l"(a), "l"(b), "r"(accumulate));
}
// clang-format on

#line 4 "templates/ptx/wgmma_ss_tile.cuh"

/*
 * The four wgmma_ss_n128_t01 of 64 of depth, one behind the other: the first one sets d
 * or, when `accumulate`, adds to it, the others add (PTX ISA, "wgmma.mma_async"). a and b are
 * swizzled by 128 bytes: 16 of depth are 32 bytes of a line or, transposed, 16 lines, which is 2 or
 * 128 in a descriptor. One statement, since the compiler's time goes by statements times their
 * values.
 */
// clang-format off
DEVICE void wgmma_ss_tile_n128_t01(float *d, u64 a, u64 b, int accumulate) {
    asm volatile("{.reg .pred p;\n\t"
                 ".reg .b64 a, b;\n\t"
                 "setp.ne.s32 p, %66, 0;\n\t"
#line 18 "templates/ptx/wgmma_ss_tile.cuh"
                 "add.s64 a, %64, 0;\n\t"
                 "add.s64 b, %65, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%0, %1, %2, %3, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%4, %5, %6, %7, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%8, %9, %10, %11, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%12, %13, %14, %15, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%16, %17, %18, %19, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%20, %21, %22, %23, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%24, %25, %26, %27, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%28, %29, %30, %31, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%32, %33, %34, %35, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%36, %37, %38, %39, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%40, %41, %42, %43, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%44, %45, %46, %47, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%48, %49, %50, %51, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%52, %53, %54, %55, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%56, %57, %58, %59, "
#line 24 "templates/ptx/wgmma_ss_tile.cuh"
                 "%60, %61, %62, %63}, "
                 "a, b, p, 1, 1, 0, 1;\n\t"
                 "setp.eq.s32 p, 0, 0;\n\t"
#line 18 "templates/ptx/wgmma_ss_tile.cuh"
                 "add.s64 a, %64, 2;\n\t"
                 "add.s64 b, %65, 128;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%0, %1, %2, %3, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%4, %5, %6, %7, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%8, %9, %10, %11, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%12, %13, %14, %15, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%16, %17, %18, %19, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%20, %21, %22, %23, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%24, %25, %26, %27, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%28, %29, %30, %31, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%32, %33, %34, %35, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%36, %37, %38, %39, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%40, %41, %42, %43, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%44, %45, %46, %47, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%48, %49, %50, %51, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%52, %53, %54, %55, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%56, %57, %58, %59, "
#line 24 "templates/ptx/wgmma_ss_tile.cuh"
                 "%60, %61, %62, %63}, "
                 "a, b, p, 1, 1, 0, 1;\n\t"
                 "setp.eq.s32 p, 0, 0;\n\t"
#line 18 "templates/ptx/wgmma_ss_tile.cuh"
                 "add.s64 a, %64, 4;\n\t"
                 "add.s64 b, %65, 256;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%0, %1, %2, %3, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%4, %5, %6, %7, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%8, %9, %10, %11, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%12, %13, %14, %15, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%16, %17, %18, %19, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%20, %21, %22, %23, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%24, %25, %26, %27, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%28, %29, %30, %31, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%32, %33, %34, %35, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%36, %37, %38, %39, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%40, %41, %42, %43, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%44, %45, %46, %47, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%48, %49, %50, %51, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%52, %53, %54, %55, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%56, %57, %58, %59, "
#line 24 "templates/ptx/wgmma_ss_tile.cuh"
                 "%60, %61, %62, %63}, "
                 "a, b, p, 1, 1, 0, 1;\n\t"
                 "setp.eq.s32 p, 0, 0;\n\t"
#line 18 "templates/ptx/wgmma_ss_tile.cuh"
                 "add.s64 a, %64, 6;\n\t"
                 "add.s64 b, %65, 384;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%0, %1, %2, %3, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%4, %5, %6, %7, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%8, %9, %10, %11, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%12, %13, %14, %15, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%16, %17, %18, %19, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%20, %21, %22, %23, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%24, %25, %26, %27, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%28, %29, %30, %31, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%32, %33, %34, %35, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%36, %37, %38, %39, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%40, %41, %42, %43, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%44, %45, %46, %47, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%48, %49, %50, %51, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%52, %53, %54, %55, "
#line 22 "templates/ptx/wgmma_ss_tile.cuh"
                 "%56, %57, %58, %59, "
#line 24 "templates/ptx/wgmma_ss_tile.cuh"
                 "%60, %61, %62, %63}, "
                 "a, b, p, 1, 1, 0, 1;\n\t"
                 "setp.eq.s32 p, 0, 0;\n\t"
#line 28 "templates/ptx/wgmma_ss_tile.cuh"
                 "}"
                 :
#line 31 "templates/ptx/wgmma_ss_tile.cuh"
                 "+f"(d[0]), "+f"(d[1]),
                 "+f"(d[2]), "+f"(d[3]),
#line 31 "templates/ptx/wgmma_ss_tile.cuh"
                 "+f"(d[4]), "+f"(d[5]),
                 "+f"(d[6]), "+f"(d[7]),
#line 31 "templates/ptx/wgmma_ss_tile.cuh"
                 "+f"(d[8]), "+f"(d[9]),
                 "+f"(d[10]), "+f"(d[11]),
#line 31 "templates/ptx/wgmma_ss_tile.cuh"
                 "+f"(d[12]), "+f"(d[13]),
                 "+f"(d[14]), "+f"(d[15]),
#line 31 "templates/ptx/wgmma_ss_tile.cuh"
                 "+f"(d[16]), "+f"(d[17]),
                 "+f"(d[18]), "+f"(d[19]),
#line 31 "templates/ptx/wgmma_ss_tile.cuh"
                 "+f"(d[20]), "+f"(d[21]),
                 "+f"(d[22]), "+f"(d[23]),
#line 31 "templates/ptx/wgmma_ss_tile.cuh"
                 "+f"(d[24]), "+f"(d[25]),
                 "+f"(d[26]), "+f"(d[27]),
#line 31 "templates/ptx/wgmma_ss_tile.cuh"
                 "+f"(d[28]), "+f"(d[29]),
                 "+f"(d[30]), "+f"(d[31]),
#line 31 "templates/ptx/wgmma_ss_tile.cuh"
                 "+f"(d[32]), "+f"(d[33]),
                 "+f"(d[34]), "+f"(d[35]),
#line 31 "templates/ptx/wgmma_ss_tile.cuh"
                 "+f"(d[36]), "+f"(d[37]),
                 "+f"(d[38]), "+f"(d[39]),
#line 31 "templates/ptx/wgmma_ss_tile.cuh"
                 "+f"(d[40]), "+f"(d[41]),
                 "+f"(d[42]), "+f"(d[43]),
#line 31 "templates/ptx/wgmma_ss_tile.cuh"
                 "+f"(d[44]), "+f"(d[45]),
                 "+f"(d[46]), "+f"(d[47]),
#line 31 "templates/ptx/wgmma_ss_tile.cuh"
                 "+f"(d[48]), "+f"(d[49]),
                 "+f"(d[50]), "+f"(d[51]),
#line 31 "templates/ptx/wgmma_ss_tile.cuh"
                 "+f"(d[52]), "+f"(d[53]),
                 "+f"(d[54]), "+f"(d[55]),
#line 31 "templates/ptx/wgmma_ss_tile.cuh"
                 "+f"(d[56]), "+f"(d[57]),
                 "+f"(d[58]), "+f"(d[59]),
#line 34 "templates/ptx/wgmma_ss_tile.cuh"
                 "+f"(d[60]), "+f"(d[61]),
                 "+f"(d[62]), "+f"(d[63])
                 : "l"(a), "l"(b), "r"(accumulate));
}
// clang-format on

#line 15 "templates/sparse_attn_bwd.sm90_gather.cuh"
/* The gather's warpgroup of sparse_attn_bwd.sm90.cu: it announces key blocks and copies them
 * (sparse_attn_bwd.sm90_blocks.cuh), and computes the last columns of dQ. */

/* Issues dQ += dS K for the gather's columns, in groups of two tiles. */
DEVICE void issue_last_columns(float *dq, float *rest, bool first) {
    const u64 ds = tile_descriptor(SLOPES_OFFSET);
    const u64 keys = columns_descriptor(KEYS_OFFSET + LAST_TILE * TILE_BYTES);
    const u64 eight =
        columns_descriptor(KEYS_OFFSET + DIVIDED_TILE * TILE_BYTES + REST_COLUMNS * 2);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < LAST_GROUPS; ++i) {
        wgmma_ss_tile_n128_t01(&dq[i * WIDE_VALUES], ds,
                               descriptor_advance(keys, (u32)(i * 2 * TILE_BYTES)), !first);
        if (DIVIDES_TILE && i == LAST_GROUPS - 1) {
            wgmma_ss_tile_n8_t01(rest, ds, eight, !first);
        }
        wgmma_commit();
    }
}

/* The gather's columns of an item's dq to global memory. */
DEVICE void store_last_columns(const struct sparse_attn_bwd_params *params, const float *dq,
                               const float *rest, int item) {
    char *rows[2];
    fragment_rows_of_dq(rows, params, item);
    if (DIVIDES_TILE) {
        store_columns_8(rows, LAST_COLUMN - 8, rest);
    }
#pragma unroll
    for (int i = 0; i < LAST_GROUPS * WIDE_VALUES / 16; ++i) {
        store_columns_32(rows, LAST_COLUMN + i * 32, &dq[i * 16]);
    }
}

/* Copies two of the next block's tiles into what their columns have left. */
DEVICE void refill_tiles(int first, int second, u32 block) {
    u64 from[ROWS_OF_THREAD];
    take_addresses(from, block);
    copy_tile(from, first);
    copy_tile(from, second);
}

/* Waits for the groups of columns one after the other, and copies the next block's tiles behind
 * them, if there is one. */
DEVICE void follow_columns(u32 block, bool more) {
    wgmma_wait_2();
    barrier_sync(GATHER_BARRIER, WARPGROUP);
    if (more) {
        refill_tiles(LAST_TILE, LAST_TILE + 1, block + 1);
    }
    wgmma_wait_1();
    barrier_sync(GATHER_BARRIER, WARPGROUP);
    if (more) {
        refill_tiles(LAST_TILE + 2, LAST_TILE + 3, block + 1);
    }
    wgmma_wait_0();
    arrive_warp(barrier_at(SLOPES_FREE), 1);
    mbarrier_wait(barrier_at(KEYS_FREE), block & 1);
    barrier_sync(GATHER_BARRIER, WARPGROUP);
    if (more) {
        u64 from[ROWS_OF_THREAD];
        take_addresses(from, block + 1);
        copy_tile(from, LAST_TILE + 5);
        copy_tile(from, LAST_TILE + 4);
        if (DIVIDES_TILE) {
            copy_tile(from, DIVIDED_TILE);
        }
    }
}

DEVICE void run_gather(const struct sparse_attn_bwd_params *params) {
    registers_increase(GATHER_REGISTERS);
    float dq[LAST_GROUPS * WIDE_VALUES], rest[4];
    struct entry entry;
    u32 block = 0;
    int flags;
    fetch_entry(&entry, params, 1);
    copy_first_block();
    load_queries(params, 0);
    do {
        flags = block_word(block)->flags;
        if (flags & MORE_BLOCKS) {
            announce_block(&entry, params, block + 1);
        }
        mbarrier_wait(barrier_at(SLOPES_FULL), block & 1);
#pragma unroll
        for (int tile = DIVIDES_TILE ? DIVIDED_TILE : LAST_TILE; tile < TILES; ++tile) {
            mbarrier_wait(barrier_at(KEYS_FULL + tile), block & 1);
        }
        fence_proxy_async();
        issue_last_columns(dq, rest, flags & FIRST_BLOCK);
        if (thread_number() % WARPGROUP == 0 && *own_step() == STEP_CLOSE) {
            keep_in_step(params, block + 1, CLOSE_STEP);
        }
        follow_columns(block, flags & MORE_BLOCKS);
        flags = block_word(block)->flags; /* anew: registers are short */
        if (flags & LAST_BLOCK) {
            if (flags & MORE_BLOCKS) {
                load_queries(params, block + 1);
            }
            store_last_columns(params, dq, rest, block_word(block)->item);
        }
        ++block;
    } while (flags & MORE_BLOCKS);
    if (params->step && thread_number() % WARPGROUP == 0) {
        hint_add(params->progress, ENDED);
    }
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

#line 5 "templates/common/row_sums.cuh"
/*
 * Rows of sums in global memory, out of accumulators of 64 rows and 32 columns: added to, or
 * partial ones, stored as bf16. Their columns are in the order of sparse_attn_bwd.columns.cuh.
 *
 * The additions' way out of the multiprocessor binds, and it is widest when an instruction has 4
 * rows of 128 bytes: of an accumulator's rows each quad has 64 contiguous bytes twice, and lanes 16
 * apart exchange one of the two for the other lane's row (4 shuffles for 2 instructions).
 */

enum {
    SUM_COLUMNS = 32,             /* of an accumulator */
    SUM_VALUES = SUM_COLUMNS / 2, /* of a thread */
    SENT_VALUES = 8               /* of a thread: half of an accumulator's rows */
};

/* The rows 8 * half and on of a warp's 16: `values` gets 4 of the row lane / 4 % 4 of them and 4 of
 * the row 4 further. */
DEVICE void exchange_rows(float *values, const float *sums, int half) {
    const bool upper = threadIdx.x & 16;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float near = sums[i / 2 * 4 + i % 2 + 2 * half];
        const float far = sums[8 + i / 2 * 4 + i % 2 + 2 * half];
        const float other = __shfl_xor_sync(0xffffffffu, upper ? near : far, 16);
        values[i] = upper ? other : near;
        values[4 + i] = upper ? far : other;
    }
}

/* Where a thread's values of a row begin, in values: lanes from 16 on have the second half of an
 * accumulator's columns. */
DEVICE u32 first_sum(u32 thread) {
    return thread % 32 / 16 * 16 + thread % 4 * 4;
}

/* Four values to their place, of a row that is partial or not. */
DEVICE void send_sums(char *to, const float *four, bool partial) {
    if (partial) {
        const u32 words[2] = {pack_bf16x2(four[0], four[1]), pack_bf16x2(four[2], four[3])};
        store_streaming_8(to, words);
    } else {
        reduce_add_f32x4((float *)to, four);
    }
}

#line 4 "templates/ptx/wgmma_rs_tile.cuh"

/* The four wgmma_rs_n32_t01 of 64 of depth, as in ptx/wgmma_ss_tile.cuh; four words of a for
 * each (PTX ISA, "wgmma.mma_async"). */
// clang-format off
DEVICE void wgmma_rs_tile_n32_t01(float *d, const u32 *a, u64 b, int accumulate) {
    asm volatile("{.reg .pred p;\n\t"
                 ".reg .b64 b;\n\t"
                 "setp.ne.s32 p, %33, 0;\n\t"
#line 13 "templates/ptx/wgmma_rs_tile.cuh"
                 "add.s64 b, %32, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%0, %1, %2, %3, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%4, %5, %6, %7, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%8, %9, %10, %11, "
#line 18 "templates/ptx/wgmma_rs_tile.cuh"
                 "%12, %13, %14, %15}, "
                 "{%16, %17, "
                 "%18, %19}, "
                 "b, p, 1, 1, 1;\n\t"
                 "setp.eq.s32 p, 0, 0;\n\t"
#line 13 "templates/ptx/wgmma_rs_tile.cuh"
                 "add.s64 b, %32, 128;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%0, %1, %2, %3, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%4, %5, %6, %7, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%8, %9, %10, %11, "
#line 18 "templates/ptx/wgmma_rs_tile.cuh"
                 "%12, %13, %14, %15}, "
                 "{%20, %21, "
                 "%22, %23}, "
                 "b, p, 1, 1, 1;\n\t"
                 "setp.eq.s32 p, 0, 0;\n\t"
#line 13 "templates/ptx/wgmma_rs_tile.cuh"
                 "add.s64 b, %32, 256;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%0, %1, %2, %3, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%4, %5, %6, %7, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%8, %9, %10, %11, "
#line 18 "templates/ptx/wgmma_rs_tile.cuh"
                 "%12, %13, %14, %15}, "
                 "{%24, %25, "
                 "%26, %27}, "
                 "b, p, 1, 1, 1;\n\t"
                 "setp.eq.s32 p, 0, 0;\n\t"
#line 13 "templates/ptx/wgmma_rs_tile.cuh"
                 "add.s64 b, %32, 384;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%0, %1, %2, %3, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%4, %5, %6, %7, "
#line 16 "templates/ptx/wgmma_rs_tile.cuh"
                 "%8, %9, %10, %11, "
#line 18 "templates/ptx/wgmma_rs_tile.cuh"
                 "%12, %13, %14, %15}, "
                 "{%28, %29, "
                 "%30, %31}, "
                 "b, p, 1, 1, 1;\n\t"
                 "setp.eq.s32 p, 0, 0;\n\t"
#line 24 "templates/ptx/wgmma_rs_tile.cuh"
                 "}"
                 :
#line 27 "templates/ptx/wgmma_rs_tile.cuh"
                 "+f"(d[0]), "+f"(d[1]),
                 "+f"(d[2]), "+f"(d[3]),
#line 27 "templates/ptx/wgmma_rs_tile.cuh"
                 "+f"(d[4]), "+f"(d[5]),
                 "+f"(d[6]), "+f"(d[7]),
#line 27 "templates/ptx/wgmma_rs_tile.cuh"
                 "+f"(d[8]), "+f"(d[9]),
                 "+f"(d[10]), "+f"(d[11]),
#line 30 "templates/ptx/wgmma_rs_tile.cuh"
                 "+f"(d[12]), "+f"(d[13]),
                 "+f"(d[14]), "+f"(d[15])
                 :
#line 34 "templates/ptx/wgmma_rs_tile.cuh"
                 "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]),
#line 34 "templates/ptx/wgmma_rs_tile.cuh"
                 "r"(a[4]), "r"(a[5]), "r"(a[6]), "r"(a[7]),
#line 34 "templates/ptx/wgmma_rs_tile.cuh"
                 "r"(a[8]), "r"(a[9]), "r"(a[10]), "r"(a[11]),
#line 34 "templates/ptx/wgmma_rs_tile.cuh"
                 "r"(a[12]), "r"(a[13]), "r"(a[14]), "r"(a[15]),
#line 36 "templates/ptx/wgmma_rs_tile.cuh"
                 "l"(b), "r"(accumulate));
}
// clang-format on

#line 14 "templates/sparse_attn_bwd.sm90_sums.cuh"
/* The sums' warpgroup of sparse_attn_bwd.sm90.cu: dKV of each key block, chunk by chunk, added to
 * the rows in global memory or stored; of pairs one half of its columns, the other one's sums added
 * (sparse_attn_bwd.sm90_exchange.cuh). */

enum {
    SUM_BYTES = DETERMINISTIC ? 2 : 4, /* of a value of dKV in global memory */
    CHUNKS = DQK / SUM_COLUMNS,        /* of dKV */
    PART_CHUNKS = PART_TILES * TILE_COLUMNS / SUM_COLUMNS,
    HELD_CHUNK = PAIR ? CHUNKS - 2 : CHUNKS - 1 /* a block's last, behind where its rows begin */
};

/* Issues a chunk of dKV = dS^T Q + P^T dO: of a tile's columns the half that begins `half` chunks
 * behind the first. */
DEVICE void issue_chunk(float *sums, const u32 *p, const u32 *ds, int tile, u32 half) {
    const u64 query = columns_descriptor(QUERY_OFFSET);
    const u64 grad_out = columns_descriptor(GRAD_OUT_OFFSET);
    const u32 at = (u32)(tile * TILE_BYTES) + half * (SUM_COLUMNS * 2);
    wgmma_fence();
    wgmma_rs_tile_n32_t01(sums, ds, descriptor_advance(query, at), 0);
    if (tile < VALUE_TILES) {
        wgmma_rs_tile_n32_t01(sums, p, descriptor_advance(grad_out, at), 1);
    }
    wgmma_commit();
}

/* Where this thread's values of a chunk of a row stand; chunks are counted over all rows. */
DEVICE char *chunk_at(const struct sparse_attn_bwd_params *params, u32 chunk) {
    /* Of pairs the thread's number anew: else too much is kept that follows from it. */
    const u32 first = first_sum(PAIR ? thread_number() : threadIdx.x);
    char *const to = DETERMINISTIC ? (char *)params->partials : (char *)params->dkv;
    return to + first * SUM_BYTES + (u64)chunk * (SUM_COLUMNS * SUM_BYTES);
}

/* Adds what exchange_rows gave to the rows of global memory, or stores it. rows: where this
 * thread's four of all chunks begin, in chunks. */
DEVICE void send_rows(const struct sparse_attn_bwd_params *params, const float *values,
                      const u32 *rows, int chunk, int half) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        send_sums(chunk_at(params, rows[2 * half + i]) + chunk * SUM_COLUMNS * SUM_BYTES,
                  &values[4 * i], DETERMINISTIC);
    }
}

/* A block's number, but for a multiple of BLOCKS_AHEAD, by its flags: registers are short. */
DEVICE u32 number_of(int flags) {
    return (u32)flags / BLOCK_UNIT;
}

/*
 * Where the block's dKV goes: this thread's rows of the launch's partial ones, or of dkv, from
 * their chunk `first_chunk` on. Behind a list's end, P and dS and so dKV are 0: partial rows there
 * are nobody's, and a zero may as well be added to the block's first key. (A branch at each
 * addition would cost more.)
 */
DEVICE void take_rows(u32 *rows, u32 block, u32 first_chunk) {
    const u32 thread = thread_number() % WARPGROUP;
    const int first = (int)(thread / 32 * 16 + thread / 4 % 4);
    const int *const numbers = block_numbers(block);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int key = numbers[first + 4 * i];
        const int row = DETERMINISTIC ? block_word(block)->place + (first + 4 * i) * KEY_ROWS
                        : key < 0     ? numbers[0]
                                      : key;
        rows[i] = (u32)row * CHUNKS + first_chunk;
    }
}

/*
 * All chunks of a block, each sent while the next one is computed. Half of the last one is `held`,
 * to be sent when the next block's first is in the tensor cores; until then `rows` are the block's
 * before.
 */
DEVICE void sum_block(const struct sparse_attn_bwd_params *params, const u32 *p, const u32 *ds,
                      float *held, u32 *rows, int flags) {
    float sums[2][SUM_VALUES], values[SENT_VALUES];
    issue_chunk(sums[0], p, ds, 0, 0);
    send_rows(params, held, rows, HELD_CHUNK, 1);
    take_rows(rows, number_of(flags), 0);
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS - 1; ++chunk) {
        issue_chunk(sums[(chunk + 1) % 2], p, ds, (chunk + 1) / 2, (u32)(chunk + 1) % 2);
        wgmma_wait_1();
        if ((flags & LAST_BLOCK) && (chunk + 1) % PART_CHUNKS == 0) {
            arrive_warp(barrier_at(QUERY_FREE + chunk / PART_CHUNKS), 1);
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            exchange_rows(values, sums[chunk % 2], half);
            send_rows(params, values, rows, chunk, half);
        }
        __syncwarp((u32)ALL_LANES); /* ptxas would put them behind the next wait */
    }
    wgmma_wait_0();
    if (flags & LAST_BLOCK) {
        arrive_warp(barrier_at(QUERY_FREE + PARTS - 1), 1);
    }
    exchange_rows(values, sums[1], 0);
    send_rows(params, values, rows, HELD_CHUNK, 0);
    exchange_rows(held, sums[1], 1);
}

/* The steps of a pair's block, a chunk each: one for the other thread block of tile t, then the own
 * one of tile t + 1 - FIRST_SENT, to which what comes from there is added; in between it lands. */
enum { PAIR_STEPS = CHUNKS, FIRST_SENT = LANDINGS / 2 + 1 /* chunks, before one is taken */ };

DEVICE bool is_own_step(int step) {
    const int in_turn = step - FIRST_SENT, pairs = TILES - FIRST_SENT;
    return in_turn >= 2 * pairs || (in_turn >= 0 && in_turn % 2 == 0);
}

DEVICE int tile_of_step(int step) {
    const int in_turn = step - FIRST_SENT, pairs = TILES - FIRST_SENT;
    return in_turn < 0            ? step
           : in_turn >= 2 * pairs ? in_turn - pairs
           : in_turn % 2 == 0     ? in_turn / 2
                                  : FIRST_SENT + in_turn / 2;
}

DEVICE void issue_step(float *sums, const u32 *p, const u32 *ds, int step) {
    issue_chunk(sums, p, ds, tile_of_step(step), is_own_step(step) ? cluster_rank() : other_rank());
}

/* A chunk that this thread block adds for both of a pair, complete but for what the other one has:
 * to global memory, but half of a block's last one, which is `held`. */
DEVICE void add_pair_chunk(const struct sparse_attn_bwd_params *params, float *sums, float *held,
                           const u32 *rows, int tile, int flags) {
    float values[SENT_VALUES];
    if ((flags & LAST_BLOCK) && ((tile + 1) % PART_TILES == 0 || tile + 1 == TILES)) {
        arrive_warp(barrier_at(QUERY_FREE + tile / PART_TILES), 1);
    }
    const u32 read = take_chunk(sums, tile, flags);
    if (!LANDS_IN_P || tile + LANDINGS < TILES) {
        free_landing(tile, read, flags);
    } else if (tile + 1 == TILES) {
        arrive_warp(barrier_at(PROBABILITIES_FREE), 1);
    }
    exchange_rows(values, sums, 0);
    send_rows(params, values, rows, 2 * tile, 0);
    if (tile + 1 < TILES) {
        exchange_rows(values, sums, 1);
        send_rows(params, values, rows, 2 * tile, 1);
        __syncwarp((u32)ALL_LANES);
    } else {
        exchange_rows(held, sums, 1);
    }
}

/* The same of a pair: of each tile the half that the other thread block adds is
 * computed and sent there, and the own one, to which what comes from there is added before it goes
 * to global memory. */
DEVICE void sum_pair_block(const struct sparse_attn_bwd_params *params, const u32 *p, const u32 *ds,
                           float *held, u32 *rows, int flags) {
    float sums[2][SUM_VALUES];
    issue_step(sums[0], p, ds, 0);
    send_rows(params, held, rows, HELD_CHUNK, 1);
    __syncwarp((u32)ALL_LANES);
    take_rows(rows, number_of(flags), cluster_rank());
#pragma unroll
    for (int step = 0; step < PAIR_STEPS; ++step) {
        if (step + 1 < PAIR_STEPS) {
            issue_step(sums[(step + 1) % 2], p, ds, step + 1);
            wgmma_wait_1();
        } else {
            wgmma_wait_0();
        }
        if (is_own_step(step)) {
            add_pair_chunk(params, sums[step % 2], held, rows, tile_of_step(step), flags);
        } else {
            send_chunk(sums[step % 2], tile_of_step(step), flags);
        }
    }
}

/* P and dS of a block into this warpgroup's registers. */
DEVICE void take_operands(u32 *p, u32 *ds, u32 block) {
    mbarrier_wait(barrier_at(SLOPES_FULL), block & 1);
    if (LANDS_IN_P) {
        load_fragments_transposed(ds, SLOPES_OFFSET);
        arrive_warp(barrier_at(SLOPES_FREE), 1);
        mbarrier_wait(barrier_at(PROBABILITIES_FULL), block & 1);
        load_fragments_transposed(p, PROBABILITIES_OFFSET);
    } else {
        load_fragments_transposed(p, PROBABILITIES_OFFSET);
        load_fragments_transposed(ds, SLOPES_OFFSET);
        arrive_warp(barrier_at(SLOPES_FREE), 1);
    }
}

DEVICE void run_sums(const struct sparse_attn_bwd_params *params) {
    registers_decrease(SUMS_REGISTERS);
    float held[SENT_VALUES] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
    u32 rows[4], block = 0;
    int flags;
    /* Where zeros are sent at first; of pairs into this block's own columns. */
    take_rows(rows, block, PAIR && DETERMINISTIC ? cluster_rank() : 0);
    do {
        u32 p[FRAGMENT_WORDS], ds[FRAGMENT_WORDS];
        take_operands(p, ds, block);
        flags = block_word(block)->flags;
        for (int part = 0; part < PARTS && (flags & FIRST_BLOCK); ++part) {
            mbarrier_wait(barrier_at(QUERY_FULL + part), flags & ODD_ITEM ? 1 : 0);
        }
        if (PAIR) {
            if (LANDS_IN_P) {
                const u32 read = p[0] | p[4] | p[8] | p[12]; /* a word of each load */
                free_landing(0, read, flags);
                free_landing(1, read, flags);
            }
            sum_pair_block(params, p, ds, held, rows, flags);
        } else {
            sum_block(params, p, ds, held, rows, flags);
        }
        block = number_of(flags) + 1;
    } while (flags & MORE_BLOCKS);
    send_rows(params, held, rows, HELD_CHUNK, 1);
}

#line 11 "templates/sparse_attn_bwd.sm90.cu"
/*
 * Sparse attention backward with wgmma: dq, and the sums (or partial rows) of dkv. Mathematics and
 * shapes: include/smelt/sparse_attn.h; what groups, lists and statistics are:
 * sparse_attn_bwd.params.h.
 *
 * An item is a group and BLOCK_HEADS (64) of its rows, a row being a head of one of the group's
 * queries: 64 heads of one query or, with few heads, QUERY_ROWS rows of each of GROUP_QUERIES
 * queries, one after the other. Its list of keys is taken in blocks of 64, upwards or downwards
 * ("In step", sparse_attn_bwd.sm90_blocks.cuh). Of each block:
 *
 *   S = Q K^T, dP = dO K^T    [rows, keys]
 *   P = 2^(scale log2(e) S - base), dS = scale P (dP - delta)
 *   dQ  += dS K               [rows, DQK], in registers for all of the item
 *   dKV  = dS^T Q + P^T dO    [keys, DQK], added to the rows in global memory, or stored
 *
 * Grid: one block a multiprocessor, each taking every gridDim.x-th item, from the last ones on; the
 * first ones, too few for all, may be cut into slices (sparse_attn_bwd.slices.cuh), which are items
 * with a part of their keys, whose dq goes to `slices`.
 * Items without keys take no part: their dq is zeroed at the very beginning. Three warpgroups:
 *
 *   scores   S and dP, tile by tile behind the gather, P, dS; dQ's first columns, A = dS from its
 *            registers; copies the next block's K tiles 0 and 1 when those are done
 *   gather   the other columns of dQ; copies the next block's other K tiles as its groups of
 *            columns are done; announces key blocks; Q and dO by tensor copies
 *   sums     dKV in chunks of 32 columns: P^T and dS^T as A from registers, dK and dV in one
 *            accumulator, two accumulators in turn; added to global memory from registers
 *
 * There is one stage of K: its tiles are filled one by one as they fall free. dQ of 64 rows fills
 * more than half of the register file, so that no fourth warpgroup fits (ptxas puts no accumulator
 * below R24 of each), and the columns of dQ are divided to make the most of what each role has
 * left. With DQK = 576: 0 to 183 scores, 184 to 575 gather; with 512: 0 to 127, 128 to 511.
 *
 * Pairs: the two thread blocks of a cluster take the halves of a query's heads side by side, and
 * their dKV is added to global memory once for both, or is one partial row: each adds one half of
 * every tile's columns, and sends its sums of the other half to the other one
 * (sparse_attn_bwd.sm90_exchange.cuh). With DQK = 576 there is no room but P's tile for them to
 * land in (LANDS_IN_P): P of the next block is stored when the last of them was taken, behind dS
 * and the issue of dQ.
 *
 * What binds: the additions' way out of the multiprocessor (common/row_sums.cuh).
 *
 * With DETERMINISTIC the sums of the launch's before may run on the multiprocessors that the grid
 * leaves free: they are let begin at once.
 *
 * Rows that do not exist (heads past the last, queries of groups that are not full) have zeros for
 * Q and dO, and a base of +inf: P and dS are 0. Keys behind a list's end are zeros in K, and their
 * dS are zeroed; nothing is added for them. With groups P and dS are 0 where the key is not of the
 * row's query.
 *
 * Shared memory (offsets and sizes: the plan above). A tile is 64 rows of 64 columns, 128-byte
 * swizzled:
 *   QUERY          TILES tiles, rows by columns
 *   GRAD_OUT       VALUE_TILES tiles
 *   KEYS           TILES tiles, keys by columns
 *   PROBABILITIES  P, one tile, rows by keys; of pairs what the other thread block sends
 *   SLOPES         dS, the same
 *   NUMBERS        [BLOCKS_AHEAD][64] the keys' numbers, -1: none
 *   ADDRESSES      [2][64] where their rows lie, 0: none
 *   MASKS          [BLOCKS_AHEAD][64] bytes: which members have the key; with groups
 *   WORDS          [BLOCKS_AHEAD] struct block_word
 *   CURSORS        [2] struct cursor
 *   SLICES         [3] struct cursor
 *   PATIENCE, STEP int: see keep_in_step
 *
 * Barriers (a block's parity: its number, counted over all items of the thread block; an item's the
 * same):
 *   barrier       count  who arrives                              who waits
 *   ANNOUNCED         4  gather: the next block's numbers and     scores
 *                        word are written
 *   KEYS_FULL[t]    128  scores (t = 0, 1) or gather: every       scores, gather
 *                        thread when its copies have landed;
 *                        of the first block gather alone
 *   KEYS_FREE         4  scores: its part of dQ complete          gather, before the last tiles
 *   SLOPES_FULL       4  scores: P and dS written                 gather, sums
 *   SLOPES_FREE       8  sums: fragments loaded; gather: its      scores, before the next P
 *                        part of dQ complete
 *   QUERY_FULL[g]     1  gather: one thread, and the bytes of     scores, sums
 *                        part g of Q and dO
 *   QUERY_FREE[g]     4  sums: the last block's products with     gather, before the next item's
 *                        those tiles complete
 * and of pairs:
 *   PROBABILITIES_FULL  4  scores: P written                      sums
 *   PROBABILITIES_FREE  4  sums: fragments loaded, and what       scores, before the next P
 *                          landed taken
 *   LANDED[i]           1  sums: one thread, and the bytes of a   sums
 *                          landing
 *   LANDING_FREE[i]     4  the other block's sums: what landed    sums, before they send
 *                          there was taken, or P loaded
 * (Counts are of warps where warps arrive: common/warp_arrival.cuh.)
 * Only who reads through the async proxy what others wrote by plain stores or cp.async has the
 * fence, after the wait. Named barriers: 1 the scores' warpgroup, 2 the gather's. All meet
 * when the first block is found, and when it is announced.
 *
 * Knobs: GROUP_QUERIES; legal values and the rule that picks it:
 * src/codegen/families/sparse_attn_bwd_sm90.c.
 */

enum { SCORES_WARPGROUP = 0, GATHER_WARPGROUP = 1 };

KERNEL void CLUSTERED __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct sparse_attn_bwd_params params) {
    if (DETERMINISTIC && threadIdx.x == 0) {
        grid_launch_dependents();
    }
    initialise_barriers();
    zero_empty_items(&params);
    const int warpgroup = __shfl_sync((u32)ALL_LANES, (int)(threadIdx.x / WARPGROUP), 0);
    if (warpgroup == GATHER_WARPGROUP) {
        find_first_block(&params);
    }
    __syncthreads();
    if (warpgroup == GATHER_WARPGROUP) {
        announce_first_block(&params);
    }
    /* Here, and not by a barrier in each role: it is to be one instruction for all (synccheck). */
    __syncthreads();
    if (block_word(0)->item < 0) {
        if (params.step && threadIdx.x == 0) {
            hint_add(params.progress, ENDED);
        }
    } else if (warpgroup == SCORES_WARPGROUP) {
        run_scores(&params);
    } else if (warpgroup == GATHER_WARPGROUP) {
        run_gather(&params);
    } else {
        run_sums(&params);
    }
    if (PAIR) {
        meet_pair(); /* neither ends while the other may reach into it */
    }
}
