/*
 * Written by smelt; do not edit. To write it again:
 *   smelt emit indexer_bwd_main:heads=64,dim=128 --arch sm_90a
 *
 * spec     indexer_bwd_main:heads=64,dim=128
 * arch     sm_90a
 * variant  sm90
 * kernel   smelt_indexer_bwd_sm90_h64_d128
 * knobs (by the spec, or by rule)
 *   GROUP_QUERIES                    2  rule     queries of an item
 *   RACECHECK                        0  rule     1: every lane of a warp arrives at barriers
 *   BLOCKS_PER_MULTIPROCESSOR        1  rule     resident at once, at least
 * shared memory (offset, bytes)
 *   QUERIES_OFFSET                   0    65536  Q of two items
 *   KEYS_OFFSET                  65536    98304  key blocks
 *   SLOPES_OFFSET               163840    32768  dX of two blocks, bf16
 *   GRADS_OFFSET                196608     3072  grads of the key blocks
 *   NUMBERS_OFFSET              199680     2816  their keys' numbers
 *   BARRIERS_OFFSET             202496      288  mbarriers
 *   SHARED_BYTES                202784  of 232448 that a block may have on sm_90a
 * launch
 *   512 threads a block, 1 block resident per multiprocessor, at most 128 registers a thread
 *   grid: 1 block a group, but no more than are resident at once
 *   persistent: in a grid-stride loop a block does the work of several
 */

enum {
    HEADS = 64,                     /* indexer heads */
    DIM = 128,                      /* width of a head and of a key, elements */
    DETERMINISTIC = 0,              /* 1: what is added to dk is rounded before */
    GROUP_QUERIES = 2,              /* queries of an item */
    RACECHECK = 0,                  /* 1: every lane of a warp arrives at barriers */
    BLOCK_KEYS = 64,                /* keys of a key block */
    STAGES = 6,                     /* key blocks in shared memory */
    NUMBER_STAGES = 11,             /* key blocks whose numbers are kept */
    QUERY_ROWS = 64,                /* rows of a query: heads, padded */
    ROW_TILES = 2,                  /* of 64 rows of an item */
    BLOCK_HEADS = 128,              /* rows of an item */
    GROUP_TILES = 2,                /* 2: lists are in sections: of the first half of the queries, of both, of the second */
    TENSOR_MAPS = 1,                /* 1: q is read through its map */
    SCORES_REGISTERS = 152,         /* of a thread, X and dQ */
    SUMS_REGISTERS = 152,           /* of a thread, dK */
    GATHER_REGISTERS = 56,          /* of a thread, the gather */
    THREADS = 512,                  /* of a thread block */
    BLOCKS_PER_MULTIPROCESSOR = 1,  /* resident at once, at least */
};

/* Shared memory, in bytes from the arena's start. */
enum {
    QUERIES_OFFSET = 0,             /* Q of two items */
    KEYS_OFFSET = 65536,            /* key blocks */
    SLOPES_OFFSET = 163840,         /* dX of two blocks, bf16 */
    GRADS_OFFSET = 196608,          /* grads of the key blocks */
    NUMBERS_OFFSET = 199680,        /* their keys' numbers */
    BARRIERS_OFFSET = 202496,       /* mbarriers */
    SHARED_BYTES = 202784,          /* the arena's size */
};

#define KERNEL_NAME smelt_indexer_bwd_sm90_h64_d128

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

#line 2 "templates/indexer_bwd_main.params.h"
/*
 * Arguments of the indexer_bwd_main kernels, every variant. Included by the host code (behind
 * common/tensor_map.h) and, by the generator, by the CUDA source: plain C types only. Strides count
 * elements. See include/smelt/indexer_bwd.h for what the tensors hold.
 *
 * A group is GROUP_QUERIES queries that share a list of keys; a key is a row of k. What belongs to
 * groups was made by the kernel ahead of this one (indexer_bwd_lists), in the caller's
 * workspace.
 */
struct indexer_bwd_main_params {
    /* q as [tokens, HEADS, DIM], for the copy engine: variants with TENSOR_MAPS alone. Boxes: 64
     * columns, BLOCK_HEADS / GROUP_QUERIES heads, of one query. */
    struct tensor_map q_map;
    const void *q;        /* [tokens, HEADS, DIM] bf16 */
    const void *k;        /* [rows, DIM] bf16 */
    const float *weights; /* [tokens, HEADS] */
    const int *members;   /* [groups, GROUP_QUERIES] token, or -1: none */
    const int *counts;    /* [groups] keys in the group's list */
    const int *runs;     /* [groups, 2] with GROUP_TILES 2: where the keys of the second half of the
                            members begin, and where those of the first half end; else null. The
                            list is: keys of the first half alone, of both, of the second alone */
    const int *keys;     /* [groups, key_stride] the lists; -1 behind a list's end, up to the next
                            multiple of 64 */
    const float *grads;  /* [groups, GROUP_QUERIES, key_stride] of each member's logits; 0 where
                            it has not the key, and where keys has -1 */
    void *dq;            /* [tokens, HEADS, DIM] bf16; every member's is written */
    float *dweights;     /* [tokens, HEADS]; likewise */
    float *dk;           /* [rows, DIM] sums, columns in the order of sparse_attn_bwd.columns.cuh */
    const float *grains; /* [rows] by which what is added to a row of dk is rounded
                            (common/grain.cuh); null without DETERMINISTIC */
    long long q_token_stride, q_head_stride;
    long long weights_token_stride;
    long long dq_token_stride, dq_head_stride;
    long long dweights_token_stride;
    unsigned k_row_bytes; /* from one row of k to the next */
    int tokens;
    int rows;
    int first_group; /* the launch takes this one */
    int groups;      /* and so many: an item each. Thread blocks take items from the last on: with
                        causal lists the longest lists are the last, and short ones end the launch */
    int key_stride;  /* a multiple of 64 */
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

#line 6 "templates/indexer_bwd_main.sm90_shared.cuh"
/*
 * What the roles of indexer_bwd_main.sm90.cu share, whose head has the shared-memory map and says
 * who arrives at each barrier: the sizes of tiles, the barriers' places, and which blocks of an
 * item's list a tile has.
 */

enum {
    WARPGROUP = 128, /* threads */
    ALL_LANES = -1,
    SUMS_WARPGROUP = ROW_TILES, /* the gather is the one behind it */

    TILE_ROWS = 64,
    TILE_COLUMNS = 64,
    TILE_PITCH = 2 * TILE_COLUMNS, /* bytes of a row */
    TILE_BYTES = TILE_ROWS * TILE_PITCH,
    ATOM_BYTES = 8 * TILE_PITCH,     /* eight rows of a tile */
    ROW_STEP_BYTES = 2 * ATOM_BYTES, /* 16 rows of a tile: a k-step along rows */
    COLUMN_TILES = DIM / TILE_COLUMNS,
    QUERY_TILE_BYTES = ROW_TILES * TILE_BYTES, /* of 64 columns of all rows of an item */
    QUERY_BYTES = COLUMN_TILES * QUERY_TILE_BYTES,
    KEY_BYTES = COLUMN_TILES * TILE_BYTES,      /* of a block */
    GRAD_BYTES = GROUP_QUERIES * BLOCK_KEYS * 4 /* of a block */
};

/* ---- barriers and tiles ---------------------------------------------------------------------- */

/* Places in BARRIERS; those of a tile follow each other. */
enum {
    QUERIES_FULL = 0,
    QUERIES_FREE = QUERIES_FULL + 2,
    SLOPES_FULL = QUERIES_FREE + 2,
    SLOPES_FREE = SLOPES_FULL + 2 * ROW_TILES,
    KEYS_FULL = SLOPES_FREE + 2 * ROW_TILES,
    KEYS_FREE = KEYS_FULL + STAGES * ROW_TILES
};

DEVICE u32 barrier_at(u32 number) {
    return shared_address((u32)BARRIERS_OFFSET + number * 8);
}

DEVICE void initialise_barriers(void) {
    if (threadIdx.x == 0) {
        for (u32 i = 0; i < 2; ++i) {
            mbarrier_init(barrier_at(QUERIES_FULL + i), 1);
            mbarrier_init(barrier_at(QUERIES_FREE + i), (ROW_TILES + 1) * 4 * WARP_ARRIVALS);
        }
        for (u32 i = 0; i < 2 * ROW_TILES; ++i) {
            mbarrier_init(barrier_at(SLOPES_FULL + i), 4 * WARP_ARRIVALS);
            mbarrier_init(barrier_at(SLOPES_FREE + i), 4 * WARP_ARRIVALS);
        }
        for (u32 i = 0; i < STAGES * ROW_TILES; ++i) {
            mbarrier_init(barrier_at(KEYS_FULL + i), WARPGROUP);
            mbarrier_init(barrier_at(KEYS_FREE + i), 4 * WARP_ARRIVALS);
        }
        mbarrier_fence_init();
    }
    __syncthreads();
}

/* Waits for the end of the phase in which one of two places is filled for the use of that number,
 * of both together, or in which what was there before is given back. */
DEVICE void wait_full(u32 barriers, u32 use) {
    mbarrier_wait(barrier_at(barriers + use % 2), (int)(use / 2 & 1));
}

DEVICE void wait_free(u32 barriers, u32 use) {
    mbarrier_wait(barrier_at(barriers + use % 2), (int)(use / 2 & 1 ^ 1));
}

/* The same of a stage of keys, of a tile whose phases are a bit a stage. */
DEVICE void wait_keys(u32 barriers, u32 tile, u32 stage, u32 *phases) {
    mbarrier_wait(barrier_at(barriers + tile * STAGES + stage), (int)(*phases >> stage & 1));
    *phases ^= 1u << stage;
}

/* Tiles from an offset on as A or B, columns the depth; or as B, rows the depth. */
DEVICE u64 tile_descriptor(u32 offset) {
    return shared_descriptor(shared_address(offset), 16, ATOM_BYTES, 128);
}

DEVICE u64 columns_descriptor(u32 offset) {
    return shared_descriptor(shared_address(offset), TILE_BYTES, ATOM_BYTES, 128);
}

DEVICE u32 queries_at(u32 item, u32 tile) {
    return QUERIES_OFFSET + item % 2 * QUERY_BYTES + tile * TILE_BYTES;
}

DEVICE u32 keys_at(u32 stage) {
    return KEYS_OFFSET + stage * KEY_BYTES;
}

/* Of the use of that number by a tile. */
DEVICE int slopes_at(u32 tile, u32 use) {
    return (int)(SLOPES_OFFSET + (tile * 2 + use % 2) * TILE_BYTES);
}

/* ---- items ----------------------------------------------------------------------------------- */

/* The thread block's first group; the next one is gridDim.x before it. */
DEVICE int first_group(const struct indexer_bwd_main_params *params) {
    return params->first_group + params->groups - 1 - (int)blockIdx.x;
}

/* Key blocks of a group. */
DEVICE int group_blocks(const struct indexer_bwd_main_params *params, int group) {
    return (params->counts[group] + BLOCK_KEYS - 1) / BLOCK_KEYS;
}

/* Where in the list the block is whose turn it is. */
DEVICE int block_in_turn(int turn, int blocks) {
    return GROUP_TILES == 1 ? turn : turn % 2 ? blocks - 1 - turn / 2 : turn / 2;
}

/* Which blocks of its group's list a tile has. */
struct run {
    int begin, end;
};

DEVICE struct run tile_run(const struct indexer_bwd_main_params *params, int group, int tile) {
    struct run run = {0, group_blocks(params, group)};
    if (GROUP_TILES > 1 && tile == 0) {
        run.end = (params->runs[2 * (i64)group + 1] + BLOCK_KEYS - 1) / BLOCK_KEYS;
    } else if (GROUP_TILES > 1) {
        run.begin = params->runs[2 * (i64)group] / BLOCK_KEYS;
    }
    return run;
}

DEVICE bool has_block(struct run run, int block) {
    return block >= run.begin && block < run.end;
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

#line 2 "templates/ptx/thread.cuh"

/* This thread's number in its block, read anew at each call: what follows from it stays in no
 * register in between (PTX ISA, "Special Registers: %tid"). */
DEVICE u32 thread_number(void) {
    u32 number;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(number));
    return number;
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

#line 4 "templates/ptx/wgmma_rs.cuh"

/* As wgmma_ss_n128, a in registers: row and depth of the warp's 16 x 16 as in mma_m16n8k16_bf16
 * (PTX ISA, "wgmma.mma_async"). */
// clang-format off
DEVICE void wgmma_rs_n128_t01(float *d, const u32 *a, u64 b, int accumulate) {
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
                 "%68, p, 1, 1, 1;}"
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

#line 14 "templates/indexer_bwd_main.sm90_scores.cuh"
/* The scores' warpgroups of indexer_bwd_main.sm90.cu, one a tile: X = Q K^T, dX, which they hand to
 * the sums, dweights, and dQ. */

enum {
    STEP_BYTES = 32, /* 16 columns of a row: a k-step along columns */

    X_VALUES = 2 * FRAGMENT_WORDS, /* of a thread */
    DQ_VALUES = DIM / 2
};

/* The first turn from `turn` on of a block that a tile has; `blocks` if there is none. */
DEVICE int next_turn(struct run run, int turn, int blocks) {
    while (turn < blocks && !has_block(run, block_in_turn(turn, blocks))) {
        ++turn;
    }
    return turn;
}

/* The query of a row of a group, or -1. */
DEVICE int row_query(const struct indexer_bwd_main_params *params, int group, int row) {
    return params->members[(i64)group * GROUP_QUERIES + row / QUERY_ROWS];
}

/* The first of this thread's two rows of an item, in the fragments of tile `tile`; the other is 8
 * further. */
DEVICE int fragment_row(int tile) {
    const int thread = (int)(threadIdx.x % WARPGROUP);
    return tile * TILE_ROWS + thread / 32 * 16 + thread % 32 / 4;
}

/* Of this thread's two rows. */
struct rows {
    float weight[2];
    float dweights[2];
};

DEVICE void open_rows(struct rows *rows, const struct indexer_bwd_main_params *params, int group,
                      int tile) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int row = fragment_row(tile) + 8 * r, head = row % QUERY_ROWS;
        const int query = row_query(params, group, row);
        const bool there = query >= 0 && head < HEADS;
        rows->weight[r] =
            there ? params->weights[query * params->weights_token_stride + head] : 0.0f;
        rows->dweights[r] = 0.0f;
    }
}

/* Issues X = Q K^T. */
DEVICE void issue_scores(float *x, u64 queries, u32 stage) {
    const u64 keys = tile_descriptor(keys_at(stage));
    fence_proxy_async();
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < DIM / 16; ++k) {
        const u32 step = (u32)(k % 4 * STEP_BYTES);
        const u64 a = descriptor_advance(queries, (u32)(k / 4 * QUERY_TILE_BYTES) + step);
        wgmma_ss_n64_t00(x, a, descriptor_advance(keys, (u32)(k / 4 * TILE_BYTES) + step), k > 0);
    }
    wgmma_commit();
}

/* X -> dX in place, and the block's part of dweights. */
DEVICE void slopes(float *x, struct rows *rows, u32 stage, int tile) {
    const float2 *const grads = (const float2 *)(arena + GRADS_OFFSET + stage * GRAD_BYTES) +
                                fragment_row(tile) / QUERY_ROWS * (BLOCK_KEYS / 2) +
                                threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < X_VALUES; i += 2) {
        const int r = i / 2 % 2;
        const float2 grad = grads[i / 4 * 4 + (QUERY_ROWS == 8 ? r * (BLOCK_KEYS / 2) : 0)];
        rows->dweights[r] = fmaf(grad.x, fmaxf(x[i], 0.0f), rows->dweights[r]);
        rows->dweights[r] = fmaf(grad.y, fmaxf(x[i + 1], 0.0f), rows->dweights[r]);
        x[i] = x[i] > 0.0f ? grad.x * rows->weight[r] : 0.0f;
        x[i + 1] = x[i + 1] > 0.0f ? grad.y * rows->weight[r] : 0.0f;
    }
}

/* Issues dQ += dX K. */
DEVICE void issue_slopes(float *dq, const u32 *dx, u32 stage) {
    const u64 keys = columns_descriptor(keys_at(stage));
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < BLOCK_KEYS / 16; ++k) {
        const u64 b = descriptor_advance(keys, (u32)(k * ROW_STEP_BYTES));
        // clang-format off
#line 102 "templates/indexer_bwd_main.sm90_scores.cuh"
        wgmma_rs_n128_t01(dq, &dx[4 * k], b, 1);
#line 104 "templates/indexer_bwd_main.sm90_scores.cuh"
        // clang-format on
    }
    wgmma_commit();
}

/* How far a tile's scores have come, over all items. */
struct progress {
    u32 block;  /* blocks of all items before this one */
    u32 phases; /* of KEYS_FULL, a bit a stage */
    u32 use;    /* blocks that the tile had */
};

/* dX to shared memory, for the sums, and as A's fragments. */
DEVICE void hand_over_slopes(u32 *dx, const float *x, u32 use, u32 tile) {
    pack_fragments(dx, x);
    wait_free(SLOPES_FREE + 2 * tile, use);
    store_fragments(slopes_at(tile, use), dx);
    arrive_warp(barrier_at(SLOPES_FULL + 2 * tile + use % 2), 1);
}

/* All blocks of an item that the tile has. */
DEVICE void score_blocks(float *dq, struct rows *rows, struct progress *progress, struct run run,
                         int blocks, u64 queries, int tile) {
    float x[X_VALUES];
    u32 dx[FRAGMENT_WORDS];
    int turn = next_turn(run, 0, blocks);
    if (turn == blocks) {
        return;
    }
    u32 stage = (progress->block + (u32)turn) % STAGES;
    wait_keys(KEYS_FULL, (u32)tile, stage, &progress->phases);
    issue_scores(x, queries, stage);
    wgmma_wait_0();
    slopes(x, rows, stage, tile);
    hand_over_slopes(dx, x, progress->use++, (u32)tile);
    turn = next_turn(run, turn + 1, blocks);
#pragma unroll 1
    while (turn < blocks) {
        const u32 before = stage;
        stage = (progress->block + (u32)turn) % STAGES;
        wait_keys(KEYS_FULL, (u32)tile, stage, &progress->phases);
        issue_scores(x, queries, stage);
        issue_slopes(dq, dx, before);
        wgmma_wait_1();
        slopes(x, rows, stage, tile);
        wgmma_wait_0();
        arrive_warp(barrier_at(KEYS_FREE + (u32)tile * STAGES + before), 1);
        hand_over_slopes(dx, x, progress->use++, (u32)tile);
        turn = next_turn(run, turn + 1, blocks);
    }
    issue_slopes(dq, dx, stage);
    wgmma_wait_0();
    arrive_warp(barrier_at(KEYS_FREE + (u32)tile * STAGES + stage), 1);
}

/* dQ of a row to global memory: 16 bytes of every 64 are this thread's. */
DEVICE void store_row(char *to, const float *dq, int r) {
#pragma unroll
    for (int i = 0; i < DQ_VALUES / 16; ++i) {
        u32 x[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const float *const pair = &dq[i * 16 + k * 4 + 2 * r];
            x[k] = pack_bf16x2(pair[0], pair[1]);
        }
        transpose_quad(x);
        if (to) {
            store_streaming_16(to + i * 64, x);
        }
    }
}

/* dq and dweights of an item's tile. */
DEVICE void store_rows(const struct indexer_bwd_main_params *params, const float *dq,
                       const struct rows *rows, int group, int tile) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int row = fragment_row(tile) + 8 * r, head = row % QUERY_ROWS;
        const i64 query = row_query(params, group, row);
        const bool there = query >= 0 && head < HEADS;
        const i64 at = query * params->dq_token_stride + head * params->dq_head_stride;
        store_row(there ? (char *)params->dq + 2 * at + threadIdx.x % 4 * 16 : 0, dq, r);
        float dweights = rows->dweights[r];
        dweights += __shfl_xor_sync((u32)ALL_LANES, dweights, 1);
        dweights += __shfl_xor_sync((u32)ALL_LANES, dweights, 2);
        if (there && threadIdx.x % 4 == 0) {
            params->dweights[query * params->dweights_token_stride + head] = dweights;
        }
    }
}

DEVICE void run_scores(const struct indexer_bwd_main_params *params, int tile) {
    registers_increase(SCORES_REGISTERS);
    struct progress progress = {0, 0, 0};
    u32 item = 0;
#pragma unroll 1
    for (int group = first_group(params); group >= params->first_group; group -= (int)gridDim.x) {
        const int blocks = group_blocks(params, group);
        float dq[DQ_VALUES];
        struct rows rows;
        open_rows(&rows, params, group, tile);
#pragma unroll
        for (int i = 0; i < DQ_VALUES; ++i) {
            dq[i] = 0.0f;
        }
        wait_full(QUERIES_FULL, item);
        score_blocks(dq, &rows, &progress, tile_run(params, group, tile), blocks,
                     tile_descriptor(queries_at(item, (u32)tile)), tile);
        arrive_warp(barrier_at(QUERIES_FREE + item % 2), 1);
        store_rows(params, dq, &rows, group, tile);
        progress.block += (u32)blocks;
        ++item;
    }
}

#line 2 "templates/common/grain.cuh"
/*
 * Sums that are the same bits in whatever order they are added up: each value is rounded to a
 * multiple of a power of two u, the row's own, so large that the sum of all values' sizes stays
 * below 2^24 u. Then fp32 holds every partial sum exactly. (J. Demmel and H. D. Nguyen, Fast
 * Reproducible Floating-Point Summation, 2013, round like that, against the largest value.) A row's
 * `grain` is 2^23 u, or 0 where nothing but 0 is added. u is a normal number: reductions in global
 * memory flush what is below to 0.
 */

/* The nearest multiple of u, of values up to 2^24 u: where a value has no digits below u it stays.
 * What is not finite stays so. */
DEVICE float round_to_grain(float value, float grain) {
    const u32 sign = __float_as_uint(value) & 0x80000000u;
    const float towards = __uint_as_float(__float_as_uint(grain) | sign);
    return (value + towards) - towards;
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

#line 4 "templates/ptx/wgmma_rs.cuh"

/* As wgmma_ss_n32, a in registers: row and depth of the warp's 16 x 16 as in mma_m16n8k16_bf16
 * (PTX ISA, "wgmma.mma_async"). */
// clang-format off
DEVICE void wgmma_rs_n32_t01(float *d, const u32 *a, u64 b, int accumulate) {
    asm volatile("{.reg .pred p;\n\t"
                 "setp.ne.s32 p, %21, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
#line 13 "templates/ptx/wgmma_rs.cuh"
                 "%0, %1, %2, %3, "
#line 13 "templates/ptx/wgmma_rs.cuh"
                 "%4, %5, %6, %7, "
#line 13 "templates/ptx/wgmma_rs.cuh"
                 "%8, %9, %10, %11, "
#line 15 "templates/ptx/wgmma_rs.cuh"
                 "%12, %13, %14, %15}, "
                 "{%16, %17, %18, %19}, "
                 "%20, p, 1, 1, 1;}"
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
#line 23 "templates/ptx/wgmma_rs.cuh"
                 "+f"(d[12]), "+f"(d[13]),
                 "+f"(d[14]), "+f"(d[15])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}
// clang-format on

#line 11 "templates/indexer_bwd_main.sm90_sums.cuh"
/* The sums' warpgroup of indexer_bwd_main.sm90.cu: dK = dX^T Q of a block, of all of its tiles
 * together, added to the rows of dk in global memory. */

enum {
    CHUNKS = DIM / SUM_COLUMNS, /* of dK */
    SUM_BYTES = 4               /* of a value of it in global memory */
};

/* Issues a chunk of dK = dX^T Q, of some tiles. */
DEVICE void issue_chunk(float *sums, const u32 *dx, u64 queries, int tiles, int chunk) {
    const u32 at = (u32)(chunk / 2 * QUERY_TILE_BYTES + chunk % 2 * SUM_COLUMNS * 2);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < tiles * 4; ++k) {
        wgmma_rs_n32_t01(sums, &dx[4 * k],
                         descriptor_advance(queries, at + (u32)(k * ROW_STEP_BYTES)), k > 0);
    }
    wgmma_commit();
}

/* Where a block's dK goes: this thread's four rows of dk, and their grains. */
struct sum_rows {
    char *at[4];
    float grains[4]; /* with DETERMINISTIC */
};

/* Behind a list's end dK is 0: a zero may as well be added to the block's first key. (A branch at
 * each addition would cost more.) */
DEVICE void take_rows(struct sum_rows *rows, const struct indexer_bwd_main_params *params,
                      u32 block) {
    const u32 thread = threadIdx.x % WARPGROUP;
    const int first = (int)(thread / 32 * 16 + thread / 4 % 4);
    const int *const numbers =
        (const int *)(arena + NUMBERS_OFFSET) + block % NUMBER_STAGES * BLOCK_KEYS;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int key = numbers[first + 4 * i], row = key < 0 ? numbers[0] : key;
        rows->at[i] = (char *)params->dk + ((i64)row * DIM + first_sum(threadIdx.x)) * SUM_BYTES;
        rows->grains[i] = DETERMINISTIC ? params->grains[row] : 0.0f;
    }
}

/* Adds what exchange_rows gave to the rows of global memory. */
DEVICE void send_rows(const struct sum_rows *rows, float *values, int chunk, int half) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int row = 2 * half + i;
#pragma unroll
        for (int k = 4 * i; k < 4 * i + 4 && DETERMINISTIC; ++k) {
            values[k] = round_to_grain(values[k], rows->grains[row]);
        }
        send_sums(rows->at[row] + chunk * SUM_COLUMNS * SUM_BYTES, &values[4 * i], false);
    }
}

/* Of a block, all chunks of `tiles` tiles from `tile` on, each sent while the next one is computed;
 * uses: of each tile, how many blocks it had. Half of the last one is `held`, to be sent when the
 * next block's first is in the tensor cores; until then `rows` are the block's before. */
DEVICE void sum_tiles(struct sum_rows *rows, float *held,
                      const struct indexer_bwd_main_params *params, u64 queries, u32 *uses,
                      int tile, int tiles, u32 block) {
    float sums[2][SUM_VALUES], values[SENT_VALUES];
    u32 dx[ROW_TILES * FRAGMENT_WORDS];
#pragma unroll
    for (int i = 0; i < tiles; ++i) {
        const u32 own = (u32)(tile + i), use = uses[own]++;
        wait_full(SLOPES_FULL + 2 * own, use);
        load_fragments_transposed(&dx[i * FRAGMENT_WORDS], slopes_at(own, use));
        arrive_warp(barrier_at(SLOPES_FREE + 2 * own + use % 2), 1);
    }
    queries = descriptor_advance(queries, (u32)(tile * TILE_BYTES));
    issue_chunk(sums[0], dx, queries, tiles, 0);
    if (block > 0) {
        send_rows(rows, held, CHUNKS - 1, 1);
    }
    take_rows(rows, params, block);
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS - 1; ++chunk) {
        issue_chunk(sums[(chunk + 1) % 2], dx, queries, tiles, chunk + 1);
        wgmma_wait_1();
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            exchange_rows(values, sums[chunk % 2], half);
            send_rows(rows, values, chunk, half);
        }
        __syncwarp((u32)ALL_LANES); /* ptxas would put them behind the next wait */
    }
    wgmma_wait_0();
    exchange_rows(values, sums[1], 0);
    send_rows(rows, values, CHUNKS - 1, 0);
    exchange_rows(held, sums[1], 1);
}

DEVICE void run_sums(const struct indexer_bwd_main_params *params) {
    registers_increase(SUMS_REGISTERS);
    float held[SENT_VALUES] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
    struct sum_rows rows = {{0, 0, 0, 0}, {0.0f, 0.0f, 0.0f, 0.0f}};
    u32 uses[ROW_TILES] = {0};
    u32 block = 0, item = 0;
#pragma unroll 1
    for (int group = first_group(params); group >= params->first_group; group -= (int)gridDim.x) {
        const int blocks = group_blocks(params, group);
        const u64 queries = columns_descriptor(queries_at(item, 0));
        const struct run lower = tile_run(params, group, 0);
        const struct run upper = tile_run(params, group, ROW_TILES - 1);
        wait_full(QUERIES_FULL, item);
#pragma unroll 1
        for (int turn = 0; turn < blocks; ++turn) {
            const int own = block_in_turn(turn, blocks);
            if (!has_block(upper, own)) {
                sum_tiles(&rows, held, params, queries, uses, 0, 1, block);
            } else if (!has_block(lower, own)) {
                sum_tiles(&rows, held, params, queries, uses, ROW_TILES - 1, 1, block);
            } else {
                sum_tiles(&rows, held, params, queries, uses, 0, ROW_TILES, block);
            }
            ++block;
        }
        arrive_warp(barrier_at(QUERIES_FREE + item % 2), 1);
        ++item;
    }
    if (block > 0) {
        send_rows(&rows, held, CHUNKS - 1, 1);
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
#line 20 "templates/ptx/cp_async.cuh"
DEVICE void cp_async_wait_2(void) {
    asm volatile("cp.async.wait_group 2;" : : : "memory");
}
#line 20 "templates/ptx/cp_async.cuh"
DEVICE void cp_async_wait_3(void) {
    asm volatile("cp.async.wait_group 3;" : : : "memory");
}
#line 20 "templates/ptx/cp_async.cuh"
DEVICE void cp_async_wait_4(void) {
    asm volatile("cp.async.wait_group 4;" : : : "memory");
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

#line 10 "templates/indexer_bwd_main.sm90_gather.cuh"
/* The gather's warpgroup of indexer_bwd_main.sm90.cu: Q of an item, and of each block of its list
 * the rows of k, their numbers and grads. */

enum {
    ROW_PIECES = DIM / 8,                /* of a key, 16 bytes each */
    ROW_STEP = WARPGROUP / ROW_PIECES,   /* keys copied at a time */
    THREAD_ROWS = BLOCK_KEYS / ROW_STEP, /* that a thread copies pieces of */
    LIST_PIECES = BLOCK_KEYS / 4         /* of a block's numbers, or of a member's grads */
};

/* Q of an item, when the item before the last has left its place: by one thread. A member that is
 * not there has its heads past the last one, where the copy engine finds zeros. */
DEVICE void load_queries(const struct indexer_bwd_main_params *params, int group, u32 item) {
    const u32 barrier = barrier_at(QUERIES_FULL + item % 2);
    const u64 policy = policy_evict_first();
    wait_free(QUERIES_FREE, item);
    mbarrier_arrive_expect(barrier, QUERY_BYTES);
#pragma unroll 1
    for (int member = 0; member < GROUP_QUERIES; ++member) {
        const int query = params->members[(i64)group * GROUP_QUERIES + member];
        const u32 to = queries_at(item, 0) + (u32)(member * QUERY_ROWS * TILE_PITCH);
        for (int column = 0; column < COLUMN_TILES; ++column) {
            tensor_load_3d_hint(shared_address(to + (u32)(column * QUERY_TILE_BYTES)),
                                &params->q_map, barrier, column * TILE_COLUMNS,
                                query < 0 ? HEADS : 0, query < 0 ? 0 : query, policy);
        }
    }
}

/* The keys of this thread's rows of the block whose list begins at `keys`. */
DEVICE void fetch_keys(int *own, const int *keys) {
    const u32 thread = thread_number() % WARPGROUP;
#pragma unroll
    for (int i = 0; i < THREAD_ROWS; ++i) {
        own[i] = keys[thread / ROW_PIECES + (u32)(i * ROW_STEP)];
    }
}

/* Starts the copies of a block: rows of k, those that are not there becoming zeros; numbers and
 * grads, from where they stand in the lists (`keys`, and `grads` of the first member). */
DEVICE void copy_block(const struct indexer_bwd_main_params *params, const int *own,
                       const int *keys, const float *grads, u32 block) {
    const u32 thread = thread_number() % WARPGROUP, piece = thread % ROW_PIECES;
    const u32 row = thread / ROW_PIECES;
    const u32 to = shared_address(keys_at(block % STAGES) + piece / 8 * TILE_BYTES +
                                  row * TILE_PITCH + (piece % 8 ^ row % 8) * 16);
#pragma unroll
    for (int i = 0; i < THREAD_ROWS; ++i) {
        const i64 from = own[i] < 0 ? 0 : (i64)own[i] * params->k_row_bytes + piece * 16;
        cp_async_16(to + (u32)(i * ROW_STEP * TILE_PITCH), (const char *)params->k + from,
                    own[i] < 0 ? 0 : 16);
    }
    if (thread < GROUP_QUERIES * LIST_PIECES) {
        cp_async_16(
            shared_address(GRADS_OFFSET + block % STAGES * GRAD_BYTES + thread * 16),
            grads + thread / LIST_PIECES * (u32)params->key_stride + thread % LIST_PIECES * 4, 16);
    }
    if (thread < LIST_PIECES) {
        cp_async_16(
            shared_address(NUMBERS_OFFSET + block % NUMBER_STAGES * (BLOCK_KEYS * 4) + thread * 16),
            keys + thread * 4, 16);
    }
}

/* Which phases of KEYS_FREE the gather waits for next, and whether there is one, of a tile: a bit a
 * stage. */
struct stages {
    u32 phases, taken;
};

/* Makes room in a block's stage: whatever tile had the block before. */
DEVICE void free_stage(struct stages *stages, u32 stage) {
#pragma unroll
    for (u32 tile = 0; tile < ROW_TILES; ++tile) {
        if (stages[tile].taken >> stage & 1) {
            wait_keys(KEYS_FREE, tile, stage, &stages[tile].phases);
        }
    }
}

/* Lets the tiles that have a block begin when this thread's copies have landed. */
DEVICE void announce_block(struct stages *stages, const struct run *runs, int block, u32 stage) {
#pragma unroll
    for (u32 tile = 0; tile < ROW_TILES; ++tile) {
        stages[tile].taken &= ~(1u << stage);
        if (has_block(runs[tile], block)) {
            stages[tile].taken |= 1u << stage;
            cp_async_arrive_noinc(barrier_at(KEYS_FULL + tile * STAGES + stage));
        }
    }
}

DEVICE void run_gather(const struct indexer_bwd_main_params *params) {
    registers_decrease(GATHER_REGISTERS);
    struct stages stages[ROW_TILES];
    u32 block = 0, item = 0;
#pragma unroll
    for (int tile = 0; tile < ROW_TILES; ++tile) {
        stages[tile].phases = stages[tile].taken = 0;
    }
#pragma unroll 1
    for (int group = first_group(params); group >= params->first_group; group -= (int)gridDim.x) {
        const int blocks = group_blocks(params, group);
        const int *const keys = params->keys + (i64)group * params->key_stride;
        const float *const grads = params->grads + (i64)group * params->key_stride * GROUP_QUERIES;
        struct run runs[ROW_TILES];
        int own[THREAD_ROWS];
#pragma unroll
        for (int tile = 0; tile < ROW_TILES; ++tile) {
            runs[tile] = tile_run(params, group, tile);
        }
        if (blocks > 0) {
            fetch_keys(own, keys);
        }
        if (thread_number() % WARPGROUP == 0) {
            load_queries(params, group, item);
        }
        __syncwarp((u32)ALL_LANES);
#pragma unroll 1
        for (int turn = 0; turn < blocks; ++turn) {
            const int at = block_in_turn(turn, blocks) * BLOCK_KEYS;
            const u32 stage = block % STAGES;
            free_stage(stages, stage);
            copy_block(params, own, keys + at, grads + at, block);
            announce_block(stages, runs, at / BLOCK_KEYS, stage);
            if (turn + 1 < blocks) {
                fetch_keys(own, keys + block_in_turn(turn + 1, blocks) * BLOCK_KEYS);
            }
            ++block;
        }
        ++item;
    }
}

#line 7 "templates/indexer_bwd_main.sm90.cu"
/*
 * The indexer's backward pass with wgmma: dq, dweights, and the sums of dk.
 * Mathematics and shapes: include/smelt/indexer_bwd.h; what groups and lists are:
 * indexer_bwd_main.params.h.
 *
 * An item is a group: QUERY_ROWS rows (heads, padded) of each of its GROUP_QUERIES queries, one
 * after the other, in ROW_TILES tiles of 64 rows. Its list of keys is taken in blocks of 64. Of
 * each block and tile:
 *
 *   X = Q K^T                         [rows, keys]
 *   dX = grad w where X > 0, else 0
 *   dweights += sum over keys of grad max(X, 0)
 *   dQ += dX K                        [rows, DIM], in registers for all of the item
 *   dK  = dX^T Q                      [keys, DIM], of all tiles together: added to the rows in
 *                                     global memory, with DETERMINISTIC rounded before, so that
 *                                     additions are exact (common/grain.cuh)
 *
 * Neighbouring queries share most keys: one addition of a row of dk serves all of a group. A key
 * that a query lacks has a grad of 0 there.
 *
 * With GROUP_TILES 2 a list is in sections: keys of the first tile's queries alone, of both tiles',
 * of the second's alone. So each tile has a run of the list's blocks, and does nothing for others.
 * Blocks are taken from both ends by turns, so that neither tile waits while the other one has its
 * own section.
 *
 * Grid: one block a multiprocessor, each taking every gridDim.x-th group, from the last ones on.
 * Warpgroups:
 *
 *   scores[t]  of tile t: X, dX, dweights, dQ. X of the tile's next block and dQ of this one are in
 *              the tensor cores during the arithmetic of dX
 *   sums       dK in chunks of 32 columns: dX^T as A from registers, two accumulators in turn;
 *              added to global memory from registers
 *   gather     copies keys, their numbers and grads, STAGES blocks ahead; Q by tensor copies, an
 *              item ahead
 *
 * What binds: the additions' way out of the multiprocessor (common/row_sums.cuh); all else is to
 * fit beside them.
 *
 * Rows that do not exist (heads past the last, members that are not there) have zeros for Q, so
 * that X and dX are 0. Keys behind a list's end are zeros in K, so their X is 0 and dX, too; zeros
 * are added for them to the block's first key.
 *
 * Shared memory (offsets and sizes: the plan above). A tile is 64 rows of 64 columns, 128-byte
 * swizzled:
 *   QUERIES  [2][COLUMN_TILES][ROW_TILES] tiles, rows by columns: an item's, by turns
 *   KEYS     [STAGES][COLUMN_TILES] tiles, keys by columns
 *   SLOPES   [ROW_TILES][2] tiles, dX, rows by keys: of a tile's blocks, by turns
 *   GRADS    [STAGES][GROUP_QUERIES][64] fp32
 *   NUMBERS  [NUMBER_STAGES][64] the keys' numbers, -1: none
 *
 * Barriers (parities count uses; of KEYS those of a stage by a tile, in bits):
 *   barrier            count  who arrives                               who waits
 *   QUERIES_FULL[i]      1    gather, and the copies' bytes             scores, sums
 *   QUERIES_FREE[i]   4 each  scores, sums: done with the item          gather
 *   KEYS_FULL[t][s]    128    gather: every thread's copies have        scores[t]
 *                             landed, of a block that the tile has
 *   KEYS_FREE[t][s]      4    scores[t]: done with K and grads          gather
 *   SLOPES_FULL[t][i]    4    scores[t]: dX written                     sums
 *   SLOPES_FREE[t][i]    4    sums: fragments loaded                    scores[t]
 * (Counts are of warps where warps arrive: common/warp_arrival.cuh.)
 * NUMBERS are read by the sums behind SLOPES_FULL, and written again NUMBER_STAGES blocks later: by
 * then the gather has waited for a block STAGES before, and of those before that one no more than
 * two a tile, and the one at work, are ahead of the sums.
 *
 * Knobs: GROUP_QUERIES; legal values and the rule that picks it:
 * src/codegen/families/indexer_bwd_main_sm90.c.
 */

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct indexer_bwd_main_params params) {
    initialise_barriers();
    const int warpgroup = __shfl_sync((u32)ALL_LANES, (int)(threadIdx.x / WARPGROUP), 0);
    if (warpgroup < SUMS_WARPGROUP) {
        run_scores(&params, warpgroup);
    } else if (warpgroup == SUMS_WARPGROUP) {
        run_sums(&params);
    } else {
        run_gather(&params);
    }
}
