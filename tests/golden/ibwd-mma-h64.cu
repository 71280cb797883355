/*
 * Written by smelt; do not edit. To write it again:
 *   smelt emit indexer_bwd_main:heads=64,dim=128,variant=mma --arch sm_90a
 *
 * spec     indexer_bwd_main:heads=64,dim=128,variant=mma
 * arch     sm_90a
 * variant  mma
 * kernel   smelt_indexer_bwd_mma_h64_d128
 * knobs (by the spec, or by rule)
 *   GROUP_QUERIES                    1  rule     queries of an item
 *   STAGES                           2  rule     key blocks in flight
 *   BLOCKS_PER_MULTIPROCESSOR        3  rule     resident at once, at least
 * shared memory (offset, bytes)
 *   QUERY_OFFSET                     0    16384  rows of queries; at the end those of dq
 *   KEYS_OFFSET                  16384    32768  key blocks
 *   WEIGHTS_OFFSET               49152     8192  dX, bf16
 *   GRADS_OFFSET                 57344     1024  gradients of keys' logits
 *   ENTRIES_OFFSET               58368     1024  numbers of keys
 *   ITEM_OFFSET                  59392       12  which queries
 *   SHARED_BYTES                 59404  of 232448 that a block may have on sm_90a
 * launch
 *   128 threads a block, 3 blocks resident per multiprocessor, at most 168 registers a thread
 *   grid: 1 block a group, but no more than are resident at once
 *   persistent: in a grid-stride loop a block does the work of several
 */

enum {
    HEADS = 64,                     /* indexer heads */
    DIM = 128,                      /* width of a head and of a key, elements */
    DETERMINISTIC = 0,              /* 1: what is added to dk is rounded before */
    GROUP_QUERIES = 1,              /* queries of an item */
    STAGES = 2,                     /* key blocks in flight */
    BLOCK_KEYS = 64,                /* rows of k of one step of the main loop */
    WARPS = 4,                      /* of a thread block */
    QUERY_ROWS = 64,                /* rows of a query: heads, padded */
    BLOCK_HEADS = 64,               /* rows of an item */
    KEY_TILES = 2,                  /* tiles of 16 keys in a unit of dK */
    UNIT_UNROLL = 4,                /* k-steps of a unit of dK that are written out */
    ENTRY_SLOTS = 4,                /* key blocks whose keys' numbers are kept */
    GROUP_TILES = 1,                /* its keys are one list, whoever has them */
    TENSOR_MAPS = 0,                /* no rows come by the copy engine */
    VECTOR_REDUCTIONS = 1,          /* 1: four values are added to global memory at once */
    THREADS = 128,                  /* of a thread block */
    BLOCKS_PER_MULTIPROCESSOR = 3,  /* resident at once, at least */
};

/* Shared memory, in bytes from the arena's start. */
enum {
    QUERY_OFFSET = 0,               /* rows of queries; at the end those of dq */
    KEYS_OFFSET = 16384,            /* key blocks */
    WEIGHTS_OFFSET = 49152,         /* dX, bf16 */
    GRADS_OFFSET = 57344,           /* gradients of keys' logits */
    ENTRIES_OFFSET = 58368,         /* numbers of keys */
    ITEM_OFFSET = 59392,            /* which queries */
    SHARED_BYTES = 59404,           /* the arena's size */
};

#define KERNEL_NAME smelt_indexer_bwd_mma_h64_d128

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

#line 2 "templates/common/tile.cuh"
/*
 * Tiles of bf16 in shared memory: rows of a multiple of 128 bytes, cut into 16-byte chunks (8
 * columns); chunk c of row r stands at place c ^ (r & 7), so that the eight rows ldmatrix reads at
 * one chunk lie in eight different groups of four banks.
 */

enum { CHUNK_BYTES = 16, CHUNK_COLUMNS = 8 };

/* Byte offset of a chunk inside a tile whose rows take `pitch` bytes. */
DEVICE u32 tile_chunk(int row, int chunk, int pitch) {
    return (u32)(row * pitch + ((chunk ^ (row & 7)) * CHUNK_BYTES));
}

/* The swizzled place `delta` bytes on from `base` in the same row. Holds when adding delta to the
 * unswizzled place carries nothing into or within its lower 7 bits, which is where the swizzle
 * works: delta then is xor-ed in below 128 and added above, and differs by constants alone. */
DEVICE u32 tile_advance(u32 base, int delta) {
    return (base ^ (u32)(delta & 127)) + (u32)(delta & ~127);
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

#line 2 "templates/ptx/mma.cuh"

/*
 * d += a * b for one 16 x 8 tile, depth 16, bf16 in, fp32 accumulation (PTX ISA, "Matrix
 * Multiply-Accumulate Instruction: mma", m16n8k16). Fragments, by lane = 4 * g + t:
 *   a[0..3]: rows g, g + 8, g, g + 8; columns 2t, 2t + 1 (+ 8 in a[2], a[3])
 *   b[0..1]: rows 2t, 2t + 1 (+ 8 in b[1]); column g
 *   d[0..3]: rows g, g, g + 8, g + 8; columns 2t, 2t + 1, 2t, 2t + 1
 */
DEVICE void mma_m16n8k16_bf16(float *d, const u32 *a, const u32 *b) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

#line 2 "templates/ptx/thread.cuh"

/* This thread's number in its block, read anew at each call: what follows from it stays in no
 * register in between (PTX ISA, "Special Registers: %tid"). */
DEVICE u32 thread_number(void) {
    u32 number;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(number));
    return number;
}

#line 6 "templates/common/fragments.cuh"

/* Operands of mma.m16n8k16 out of tiles in shared memory. */

/*
 * ldmatrix addresses of 16 rows and two chunks (16 columns, 32 bytes of a row), from row and chunk
 * on. Rows as lane % 16, chunk by lane / 16: an A operand, or with .trans a B operand whose depth
 * is the rows. Rows as lane % 8 and lane / 16, chunk by bit 3: a B operand whose columns are the
 * rows, or with .trans an A operand whose rows are the tile's columns.
 */
DEVICE u32 rows_first(u32 tile, int row, int chunk, int pitch) {
    const int lane = (int)thread_number() % 32;
    return tile + tile_chunk(row + lane % 16, chunk + lane / 16, pitch);
}

DEVICE u32 columns_first(u32 tile, int row, int chunk, int pitch) {
    const int lane = (int)thread_number() % 32;
    return tile + tile_chunk(row + lane % 8 + lane / 16 * 8, chunk + lane / 8 % 2, pitch);
}

DEVICE void clear(float *values, int count) {
#pragma unroll
    for (int i = 0; i < count; ++i) {
        values[i] = 0.0f;
    }
}

/* Fragments of `tiles` times 16 rows. */
DEVICE void load_fragments(u32 *fragments, int tiles, u32 address, int pitch) {
#pragma unroll
    for (int i = 0; i < tiles; ++i) {
        ldmatrix_x4(&fragments[i * 4], address + (u32)(i * 16 * pitch));
    }
}

/* sums += weights^T rows: `tiles` m16 tiles of the weights' columns by 32 columns of the rows,
 * depth 16 * steps, UNIT_UNROLL of them at once. `weights`: of columns_first; `rows`: of
 * rows_first. */
DEVICE void multiply_transposed(float *sums, int tiles, int steps, u32 weights, int weight_pitch,
                                u32 rows, int pitch) {
#pragma unroll UNIT_UNROLL
    for (int step = 0; step < steps; ++step) {
        u32 a[16], b[8];
#pragma unroll
        for (int m = 0; m < tiles; ++m) {
            ldmatrix_x4_trans(&a[m * 4],
                              tile_advance(weights, m * 32) + (u32)(step * 16 * weight_pitch));
        }
        ldmatrix_x4_trans(b, rows + (u32)(step * 16 * pitch));
        ldmatrix_x4_trans(b + 4, tile_advance(rows, 32) + (u32)(step * 16 * pitch));
#pragma unroll
        for (int m = 0; m < tiles; ++m) {
#pragma unroll
            for (int n = 0; n < 4; ++n) {
                mma_m16n8k16_bf16(&sums[(m * 4 + n) * 4], &a[m * 4], &b[n * 2]);
            }
        }
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

#line 6 "templates/common/key_units.cuh"
/*
 * Gradients by keys, from the accumulators of mma.m16n8k16 to global memory: units of 32 columns
 * and some keys. Rows are fp32 sums, added to, or bf16 partial rows, stored: `partial`, known to
 * the compiler. Their columns stand in the order of sparse_attn_bwd.columns.cuh, the fragments'
 * own, which makes wide accesses of them. VECTOR_REDUCTIONS: four values are added at once.
 */

enum { UNIT_COLUMNS = 32 };

/* Rows that units go to. */
struct unit_rows {
    char *first;     /* this lane's place in key number 0's row; if partial, in that of the block's
                        first key */
    int row_bytes;   /* from one row to the next */
    const int *keys; /* the block's, -1: none */
    bool partial;
};

/* Whether a lane has four neighbouring values at once. */
DEVICE bool has_vectors(bool partial) {
    return partial || VECTOR_REDUCTIONS;
}

/* The first column that a lane has of 32. It has four neighbours of them, or, where values are
 * added one by one, the first of four that are eight apart. */
DEVICE int unit_place(bool partial) {
    const int lane = (int)thread_number() % 32;
    return has_vectors(partial) ? lane / 16 * 16 + lane % 4 * 4 : lane / 16 * 4 + lane % 4;
}

/* Four of this lane's values to where they belong in the row of key number `slot` of the block. */
DEVICE void put_sums(const struct unit_rows *rows, int slot, const float *sums) {
    const int key = rows->keys[slot];
    if (rows->partial) {
        const uint2 values = {pack_bf16x2(sums[0], sums[1]), pack_bf16x2(sums[2], sums[3])};
        if (key >= 0) {
            *(uint2 *)(rows->first + slot * rows->row_bytes) = values;
        }
        return;
    }
    float *const to = (float *)(rows->first + (i64)key * rows->row_bytes);
    if (key >= 0 && VECTOR_REDUCTIONS) {
        reduce_add_f32x4(to, sums);
    } else if (key >= 0) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            reduce_add_f32(to + i * 8, sums[i]);
        }
    }
}

/* A lane's two runs of four neighbouring positions in a row of a unit, 16 apart; for additions one
 * by one, what of its quad's runs is its own and four apart. */
DEVICE void find_runs(float *runs, const float *row, bool partial) {
    u32 bits[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        runs[i] = row[i / 2 * 4 + i % 2];
        bits[i] = __float_as_uint(runs[i]);
    }
    if (has_vectors(partial)) {
        return;
    }
    transpose_quad(&bits[0]);
    transpose_quad(&bits[4]);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        runs[i] = __uint_as_float(bits[i]);
    }
}

/*
 * A unit's sums, of `tiles` m16 tiles of the block's keys from number `slot` on. Lanes 16 apart,
 * whose rows are 4 apart, exchange half of what they have, so that one access takes 128 bytes
 * (added one by one: 32) of four rows and not half as much of eight, which is slower by a third.
 */
DEVICE void put_unit(const struct unit_rows *rows, int slot, int tiles, const float *sums) {
    const int lane = (int)thread_number() % 32;
    const bool upper = lane >= 16, vectors = has_vectors(rows->partial);
#pragma unroll
    for (int half = 0; half < tiles * 2; ++half) {
        float runs[8], first[4], second[4];
        find_runs(runs, &sums[half / 2 * 16 + half % 2 * 2], rows->partial);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float low = runs[vectors ? i : i * 2];
            const float high = runs[vectors ? i + 4 : i * 2 + 1];
            const float other = __shfl_xor_sync(0xffffffffu, upper ? low : high, 16);
            first[i] = upper ? other : low;
            second[i] = upper ? high : other;
        }
        const int at = slot + half * 8 + lane / 4 % 4;
        put_sums(rows, at, first);
        put_sums(rows, at + 4, second);
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

#line 13 "templates/indexer_bwd_main.mma.cu"
/*
 * The lightning indexer's backward pass with mma.sync: dq, dweights, and what dk's sums are made
 * of. Mathematics and shapes: include/smelt/indexer_bwd.h; what the kernel ahead of it left:
 * indexer_bwd_main.params.h.
 *
 * Grid: persistent; a block takes every gridDim.x-th item, from the last ones on. An item is a
 * group: BLOCK_HEADS rows, QUERY_ROWS of each of its GROUP_QUERIES queries, which are its heads;
 * rows past the last head, and those of a member that is no query, are zeros. WARPS warps of 16
 * rows each; for each block of BLOCK_KEYS keys:
 *
 *   scores  X = Q K^T, a warp's own rows by all keys, in registers. With g a key's gradient for the
 *           row's query and w the row's weight: dweights += g max(0, X), and dX = g w where X > 0,
 *           else 0. dX goes to shared memory, and stays in the registers, too, as the next
 *           product's A operand
 *   dQ      [16, DIM] += dX K, of a warp's own rows, in registers all along
 *   dK      [BLOCK_KEYS, DIM] = dX^T Q: units of 32 columns and KEY_TILES tiles of 16 keys, warps
 *           in turn, each to global memory from the registers (common/key_units.cuh)
 *
 * So a key that several members have is added to dk once. With DETERMINISTIC what is added is
 * rounded before, so that additions are exact (common/grain.cuh).
 *
 * Shared memory (offsets and sizes: the plan above):
 *   QUERY   [BLOCK_HEADS][DIM] bf16; at the end dQ, on its way to global memory
 *   KEYS    [STAGES][BLOCK_KEYS][DIM] bf16
 *   WEIGHTS [BLOCK_HEADS][BLOCK_KEYS] bf16: dX
 *   ITEM    struct item
 *   GRADS   [ENTRY_SLOTS][GROUP_QUERIES][BLOCK_KEYS] fp32: g of block j in slot j % ENTRY_SLOTS
 *   ENTRIES [ENTRY_SLOTS][BLOCK_KEYS] numbers of keys, -1: none; likewise
 *
 * Copies and barriers, for key block j in stage j % STAGES:
 *   top:        own copies of block j done (groups of STAGES - 2 later blocks may be under way),
 *               then a barrier: everybody's have landed, and everybody is done with block j - 1.
 *               Then gather block j + STAGES - 1
 *   before dK:  WEIGHTS complete
 * With the rows of block b come the numbers and gradients of the keys of block b + STAGES - 1.
 *
 * Knobs: BLOCK_KEYS, STAGES, GROUP_QUERIES, blocks per multiprocessor; legal values and the rule
 * that picks them: src/codegen/families/indexer_bwd_main_mma.c.
 */

enum {
    ROW_BYTES = DIM * 2, /* of a query's head and of a key */
    KEY_BYTES = BLOCK_KEYS * ROW_BYTES,
    WEIGHT_PITCH = BLOCK_KEYS * 2, /* a multiple of 128 */
    LEAD = STAGES - 1,

    /* The gather: eight threads a row, each its 16 of every 128 bytes. */
    GATHER_ROWS = THREADS / 8, /* at once */

    SCORE_STEPS = DIM / 16,
    SCORE_COLUMNS = BLOCK_KEYS / 8, /* n8 tiles of X of a warp */
    SCORE_VALUES = SCORE_COLUMNS * 4,
    OUTPUT_STEPS = BLOCK_KEYS / 16,
    OUTPUT_COLUMNS = DIM / 8, /* n8 tiles of dQ of a warp */
    OUTPUT_VALUES = OUTPUT_COLUMNS * 4,
    UNIT_KEYS = KEY_TILES * 16,
    KEY_PARTS = BLOCK_KEYS / UNIT_KEYS,
    UNITS = DIM / UNIT_COLUMNS * KEY_PARTS,

    ALL_LANES = -1
};

/* What the block computes: at ITEM_OFFSET, since registers are short. */
struct item {
    int group;                  /* of all */
    int blocks;                 /* of keys in its list */
    int queries[GROUP_QUERIES]; /* tokens, or -1: none */
};

DEVICE struct item *block_item(void) {
    return (struct item *)(arena + ITEM_OFFSET);
}

/* Writes down, for the whole block, what there is to do. Ends in a barrier. */
DEVICE void describe_item(const struct indexer_bwd_main_params *params, u32 number) {
    const int group = params->first_group + (int)number, member = (int)threadIdx.x;
    struct item *const item = block_item();
    if (member < GROUP_QUERIES) {
        item->queries[member] = params->members[(i64)group * GROUP_QUERIES + member];
    }
    if (member == 0) {
        item->group = group;
        item->blocks = (params->counts[group] + BLOCK_KEYS - 1) / BLOCK_KEYS;
    }
    __syncthreads();
}

/* A row's query, or -1; and its head, which may be past the last. */
DEVICE int row_query(int row) {
    return block_item()->queries[GROUP_QUERIES == 1 ? 0 : row / QUERY_ROWS];
}

DEVICE int row_head(int row) {
    return GROUP_QUERIES == 1 ? row : row % QUERY_ROWS;
}

/* ---- copies into shared memory --------------------------------------------------------------- */

/* Starts the copy of the item's rows of q; rows that are none become zeros. */
DEVICE void load_queries(const struct indexer_bwd_main_params *params) {
    enum { CHUNKS = ROW_BYTES / CHUNK_BYTES };
    const u32 tile = shared_address(QUERY_OFFSET);
#pragma unroll 4
    for (int i = (int)thread_number(); i < BLOCK_HEADS * CHUNKS; i += THREADS) {
        const int row = i / CHUNKS, chunk = i % CHUNKS, query = row_query(row);
        const bool present = query >= 0 && row_head(row) < HEADS;
        const i64 from =
            present ? query * params->q_token_stride + row_head(row) * params->q_head_stride : 0;
        cp_async_16(tile + tile_chunk(row, chunk, ROW_BYTES),
                    (const char *)params->q + 2 * from + (present ? chunk * CHUNK_BYTES : 0),
                    present ? CHUNK_BYTES : 0);
    }
}

/* The numbers of a block's keys, and their gradients, in shared memory. */
DEVICE const int *block_entries(int block) {
    return (const int *)(arena + ENTRIES_OFFSET) + block % ENTRY_SLOTS * BLOCK_KEYS;
}

DEVICE const float *block_grads(int block) {
    return (const float *)(arena + GRADS_OFFSET) +
           block % ENTRY_SLOTS * (BLOCK_KEYS * GROUP_QUERIES);
}

/* Where a block's keys begin in the group's list. */
DEVICE i64 block_begin(const struct indexer_bwd_main_params *params, int block) {
    return (i64)block_item()->group * params->key_stride + block * BLOCK_KEYS;
}

/* Starts the copy of the numbers and gradients of a block's keys, if there is such a block. */
DEVICE void load_entries(const struct indexer_bwd_main_params *params, int block) {
    const i64 begin = block_begin(params, block);
    const u32 slot = (u32)(block % ENTRY_SLOTS);
    const int at = (int)thread_number() * 4;
    if (block >= block_item()->blocks) {
        return;
    }
    if (at < BLOCK_KEYS) {
        cp_async_16(shared_address(ENTRIES_OFFSET + (slot * BLOCK_KEYS + (u32)at) * 4),
                    params->keys + begin + at, CHUNK_BYTES);
    }
#pragma unroll
    for (int i = at; i < BLOCK_KEYS * GROUP_QUERIES; i += THREADS * 4) {
        const int member = i / BLOCK_KEYS;
        const i64 row = (i64)block_item()->group * GROUP_QUERIES + member;
        cp_async_16(
            shared_address(GRADS_OFFSET + (slot * (BLOCK_KEYS * GROUP_QUERIES) + (u32)i) * 4),
            params->grads + row * params->key_stride + block * BLOCK_KEYS + i % BLOCK_KEYS,
            CHUNK_BYTES);
    }
}

/* Starts the copy of a block's rows; where there is no key they become zeros. */
DEVICE void gather(const struct indexer_bwd_main_params *params, const int *entries, int stage) {
    const int chunk = (int)thread_number() % 8, first = (int)thread_number() / 8;
    const u32 tile = shared_address((u32)(KEYS_OFFSET + stage * KEY_BYTES));
#pragma unroll
    for (int row = first; row < BLOCK_KEYS; row += GATHER_ROWS) {
        const int key = entries[row];
        const char *const source = (const char *)params->k +
                                   (u64)(u32)(key >= 0 ? key : 0) * params->k_row_bytes +
                                   chunk * CHUNK_BYTES;
        const u32 target = tile + tile_chunk(row, chunk, ROW_BYTES);
#pragma unroll
        for (int part = 0; part < ROW_BYTES; part += 128) {
            cp_async_16(target + (u32)part, source + part, key >= 0 ? CHUNK_BYTES : 0);
        }
    }
}

/* Starts the copies of a key block, as one group; an empty one when the item has no such block.
 * `entries`: its keys, from wherever they are. */
DEVICE void begin_block(const struct indexer_bwd_main_params *params, const int *entries,
                        int block) {
    if (block < block_item()->blocks) {
        gather(params, entries, block % STAGES);
        load_entries(params, block + LEAD);
    }
    cp_async_commit();
}

/* Starts the copies of all that the first block needs, and of what the stages hold besides. */
DEVICE void begin_item(const struct indexer_bwd_main_params *params) {
    load_queries(params);
#pragma unroll
    for (int block = 0; block < LEAD; ++block) {
        load_entries(params, block);
    }
#pragma unroll
    for (int block = 0; block < LEAD; ++block) {
        begin_block(params, params->keys + block_begin(params, block), block);
    }
}

/* Waits until the oldest key block under way has landed, everybody's part of it, and everybody has
 * come so far. The item's rows land with the first. */
DEVICE void wait_for_block(void) {
#line 211 "templates/indexer_bwd_main.mma.cu"
    cp_async_wait_0();
#line 213 "templates/indexer_bwd_main.mma.cu"
    __syncthreads();
}

/* ---- scores: X, dweights and dX -------------------------------------------------------------- */

/* This warp's first row, and its rows' query among the group's. */
DEVICE int first_row(void) {
    return (int)thread_number() / 32 * 16;
}

DEVICE int own_member(void) {
    return GROUP_QUERIES == 1 ? 0 : first_row() / QUERY_ROWS;
}

/* x = this warp's rows of Q K^T. */
DEVICE void multiply_scores(float *x, int stage) {
    const u32 query = rows_first(shared_address(QUERY_OFFSET), first_row(), 0, ROW_BYTES);
    const u32 keys =
        columns_first(shared_address((u32)(KEYS_OFFSET + stage * KEY_BYTES)), 0, 0, ROW_BYTES);
    clear(x, SCORE_VALUES);
#pragma unroll
    for (int step = 0; step < SCORE_STEPS; ++step) {
        u32 a[4];
        ldmatrix_x4(a, tile_advance(query, step * 32));
#pragma unroll
        for (int n = 0; n < SCORE_COLUMNS; n += 2) {
            u32 b[4];
            ldmatrix_x4(b, tile_advance(keys, step * 32) + (u32)(n * 8 * ROW_BYTES));
            mma_m16n8k16_bf16(&x[n * 4], a, &b[0]);
            mma_m16n8k16_bf16(&x[n * 4 + 4], a, &b[2]);
        }
    }
}

/* What a lane knows of its two rows, 8 apart. */
struct row_pair {
    float weight[2];
    float dweights[2]; /* sums over this lane's columns */
};

/* x to dX, and its part of dweights. */
DEVICE float weigh(float x, float grad, float w, float *dweights) {
    *dweights = fmaf(grad, fmaxf(x, 0.0f), *dweights);
    return x > 0.0f ? grad * w : 0.0f;
}

/* dX of a block, as the A operands of the product with K: four words each 16 keys. */
DEVICE void weigh_scores(u32 *weights, const float *x, struct row_pair *rows, int block) {
    const float *const grads =
        block_grads(block) + own_member() * BLOCK_KEYS + (int)thread_number() % 4 * 2;
#pragma unroll
    for (int n = 0; n < SCORE_COLUMNS; ++n) {
        const float2 grad = *(const float2 *)&grads[n * 8];
#pragma unroll
        for (int row = 0; row < 2; ++row) {
            const float *const values = &x[n * 4 + row * 2];
            const float first = weigh(values[0], grad.x, rows->weight[row], &rows->dweights[row]);
            const float second = weigh(values[1], grad.y, rows->weight[row], &rows->dweights[row]);
            weights[n * 2 + row] = pack_bf16x2(first, second);
        }
    }
}

/* The same to WEIGHTS, for dK. */
DEVICE void store_weights(const u32 *weights) {
    const int lane = (int)thread_number() % 32;
    const u32 base =
        WEIGHTS_OFFSET + tile_chunk(first_row() + lane / 4, 0, WEIGHT_PITCH) + (u32)(lane % 4 * 4);
#pragma unroll
    for (int n = 0; n < SCORE_COLUMNS; ++n) {
        const u32 offset = tile_advance(base, n * CHUNK_BYTES);
        *(u32 *)(arena + offset) = weights[n * 2];
        *(u32 *)(arena + offset + 8 * WEIGHT_PITCH) = weights[n * 2 + 1];
    }
}

/* ---- dQ -------------------------------------------------------------------------------------- */

/* dq += dX K for the key block in a stage. */
DEVICE void accumulate_dq(float *dq, const u32 *weights, int stage) {
    const u32 keys =
        rows_first(shared_address((u32)(KEYS_OFFSET + stage * KEY_BYTES)), 0, 0, ROW_BYTES);
#pragma unroll
    for (int step = 0; step < OUTPUT_STEPS; ++step) {
#pragma unroll
        for (int n = 0; n < OUTPUT_COLUMNS; n += 2) {
            u32 b[4];
            ldmatrix_x4_trans(b,
                              tile_advance(keys, n * CHUNK_BYTES) + (u32)(step * 16 * ROW_BYTES));
            mma_m16n8k16_bf16(&dq[n * 4], &weights[step * 4], &b[0]);
            mma_m16n8k16_bf16(&dq[n * 4 + 4], &weights[step * 4], &b[2]);
        }
    }
}

/* dQ as bf16 to where the queries were. */
DEVICE void stage_dq(const float *dq) {
    const int lane = (int)thread_number() % 32;
    const u32 base =
        QUERY_OFFSET + tile_chunk(first_row() + lane / 4, 0, ROW_BYTES) + (u32)(lane % 4 * 4);
#pragma unroll
    for (int n = 0; n < OUTPUT_COLUMNS; ++n) {
        const u32 offset = tile_advance(base, n * CHUNK_BYTES);
        *(u32 *)(arena + offset) = pack_bf16x2(dq[n * 4], dq[n * 4 + 1]);
        *(u32 *)(arena + offset + 8 * ROW_BYTES) = pack_bf16x2(dq[n * 4 + 2], dq[n * 4 + 3]);
    }
}

/* The item's rows of dq to global memory, 16 bytes a thread: the staged ones, or zeros. */
DEVICE void store_dq(const struct indexer_bwd_main_params *params, bool zeros) {
    enum { CHUNKS = ROW_BYTES / CHUNK_BYTES };
#pragma unroll 4
    for (int i = (int)thread_number(); i < BLOCK_HEADS * CHUNKS; i += THREADS) {
        const int row = i / CHUNKS, chunk = i % CHUNKS, query = row_query(row);
        const uint4 nothing = {0, 0, 0, 0};
        if (query >= 0 && row_head(row) < HEADS) {
            char *const to = (char *)params->dq + 2 * (query * params->dq_token_stride +
                                                       row_head(row) * params->dq_head_stride);
            *(uint4 *)(to + chunk * CHUNK_BYTES) =
                zeros ? nothing
                      : *(const uint4 *)(arena + QUERY_OFFSET + tile_chunk(row, chunk, ROW_BYTES));
        }
    }
}

/* ---- weights and dweights -------------------------------------------------------------------- */

/* Whether a row is a query's head. */
DEVICE bool is_row(int row) {
    return row_query(row) >= 0 && row_head(row) < HEADS;
}

/* This lane's rows' weights; dweights begins at 0. */
DEVICE void begin_rows(const struct indexer_bwd_main_params *params, struct row_pair *rows) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int row = first_row() + (int)thread_number() % 32 / 4 + i * 8;
        rows->dweights[i] = 0.0f;
        rows->weight[i] =
            is_row(row)
                ? params->weights[row_query(row) * params->weights_token_stride + row_head(row)]
                : 0.0f;
    }
}

/* The sums of each quad to dweights. */
DEVICE void store_dweights(const struct indexer_bwd_main_params *params, const float *sums) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int row = first_row() + (int)thread_number() % 32 / 4 + i * 8;
        float sum = sums[i];
        sum += __shfl_xor_sync((u32)ALL_LANES, sum, 1);
        sum += __shfl_xor_sync((u32)ALL_LANES, sum, 2);
        if (thread_number() % 4 == 0 && is_row(row)) {
            params->dweights[row_query(row) * params->dweights_token_stride + row_head(row)] = sum;
        }
    }
}

/* ---- dK -------------------------------------------------------------------------------------- */

/* The rows of a block's keys in dk, from a column on. */
DEVICE struct unit_rows find_unit_rows(const struct indexer_bwd_main_params *params, int block,
                                       int column) {
    const int place = column + unit_place(false);
    struct unit_rows rows = {(char *)params->dk + 4 * place, DIM * 4, block_entries(block), false};
    return rows;
}

/* The grains of this lane's rows in a unit, 8 apart; of 0, values stay as they are. */
DEVICE void load_grains(float *grains, const struct indexer_bwd_main_params *params,
                        const struct unit_rows *rows, int slot) {
#pragma unroll
    for (int i = 0; i < KEY_TILES * 2; ++i) {
        const int key = rows->keys[slot + i * 8 + (int)thread_number() % 32 / 4];
        grains[i] = DETERMINISTIC && key >= 0 ? params->grains[key] : 0.0f;
    }
}

/* A unit's sums as multiples of their rows' grains. */
DEVICE void round_unit(float *sums, const float *grains) {
#pragma unroll
    for (int i = 0; i < KEY_TILES * 16; ++i) {
        sums[i] = round_to_grain(sums[i], grains[i / 16 * 2 + i % 4 / 2]);
    }
}

/* dK of a key block. */
DEVICE void add_dk(const struct indexer_bwd_main_params *params, int block) {
#pragma unroll 1
    for (int unit = (int)thread_number() / 32; unit < UNITS; unit += WARPS) {
        const int slot = unit % KEY_PARTS * UNIT_KEYS, column = unit / KEY_PARTS * UNIT_COLUMNS;
        const u32 weights =
            columns_first(shared_address(WEIGHTS_OFFSET), 0, slot / CHUNK_COLUMNS, WEIGHT_PITCH);
        const u32 query =
            rows_first(shared_address(QUERY_OFFSET), 0, column / CHUNK_COLUMNS, ROW_BYTES);
        const struct unit_rows rows = find_unit_rows(params, block, column);
        float sums[KEY_TILES * 16], grains[KEY_TILES * 2];
        load_grains(grains, params, &rows, slot);
        clear(sums, KEY_TILES * 16);
        multiply_transposed(sums, KEY_TILES, BLOCK_HEADS / 16, weights, WEIGHT_PITCH, query,
                            ROW_BYTES);
        if (DETERMINISTIC) {
            round_unit(sums, grains);
        }
        put_unit(&rows, slot, KEY_TILES, sums);
    }
}

/* ---- items ----------------------------------------------------------------------------------- */

/* dX of a key block, in WEIGHTS, and its part of dweights and dQ. */
DEVICE void compute_block(float *dq, struct row_pair *rows, int block) {
    float x[SCORE_VALUES];
    u32 weights[SCORE_COLUMNS * 2];
    multiply_scores(x, block % STAGES);
    weigh_scores(weights, x, rows, block);
    store_weights(weights);
    accumulate_dq(dq, weights, block % STAGES);
}

/* Computes one item that has keys. Called by the whole block, which ends in no barrier. */
DEVICE void compute_item(const struct indexer_bwd_main_params *params) {
    float dq[OUTPUT_VALUES];
    struct row_pair rows;
    begin_item(params);
    begin_rows(params, &rows);
    clear(dq, OUTPUT_VALUES);
#pragma unroll 1
    for (int block = 0; block < block_item()->blocks; ++block) {
        const int next = block + LEAD;
        wait_for_block();
        begin_block(params, block_entries(next), next);
        compute_block(dq, &rows, block);
        __syncthreads();
        add_dk(params, block);
    }
    store_dweights(params, rows.dweights);
    __syncthreads();
    stage_dq(dq);
    __syncthreads();
    store_dq(params, false);
}

/* Zeros, for queries without keys. */
DEVICE void clear_item(const struct indexer_bwd_main_params *params) {
    const float nothing[2] = {0.0f, 0.0f};
    store_dweights(params, nothing);
    store_dq(params, true);
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct indexer_bwd_main_params params) {
    const u32 items = (u32)params.groups;
#pragma unroll 1
    for (u32 turn = blockIdx.x; turn < items; turn += gridDim.x) {
        describe_item(&params, items - 1 - turn);
        if (block_item()->blocks > 0) {
            compute_item(&params);
        } else {
            clear_item(&params);
        }
        __syncthreads();
    }
}
