/*
 * Written by smelt; do not edit. To write it again:
 *   smelt emit sparse_attn_bwd:heads=64,dqk=576,dv=512,variant=mma --arch sm_90a
 *
 * spec     sparse_attn_bwd:heads=64,dqk=576,dv=512,variant=mma
 * arch     sm_90a
 * variant  mma
 * kernel   smelt_sparse_attn_bwd_mma_h64_qk576_v512
 * knobs (by the spec, or by rule)
 *   BLOCK_KEYS                      64  rule     KV rows of one step of the main loop
 *   STAGES                           1  rule     key blocks in flight
 *   WARPS                            8  rule     of a thread block
 *   BLOCK_HEADS                     64  rule     heads of a thread block
 *   BLOCKS_PER_MULTIPROCESSOR        1  rule     resident at once, at least
 * shared memory (offset, bytes)
 *   QUERY_OFFSET                     0    73728  query tile; at the end the tile of dq
 *   GRAD_OFFSET                  73728    65536  tile of grad_out
 *   KEYS_OFFSET                 139264    73728  key blocks
 *   WEIGHTS_OFFSET              212992    16384  rows of P and dS, bf16; before, partial sums of S and dP, fp32
 *   STATISTICS_OFFSET           229376      512  base and delta of each row
 *   ITEM_OFFSET                 229888       20  which query and heads this is
 *   ENTRIES_OFFSET              230016     1024  numbers of keys
 *   SHARED_BYTES                231040  of 232448 that a block may have on sm_90a
 * launch
 *   256 threads a block, 1 block resident per multiprocessor, at most 255 registers a thread
 *   grid: 1 block a group, but no more than are resident at once
 *   persistent: in a grid-stride loop a block does the work of several
 */

enum {
    HEADS = 64,                     /* query heads */
    DQK = 576,                      /* width of a query and of a KV row, elements */
    DV = 512,                       /* width of a value, elements */
    DETERMINISTIC = 0,              /* 1: partial rows of dkv are stored, not added */
    BLOCK_KEYS = 64,                /* KV rows of one step of the main loop */
    STAGES = 1,                     /* key blocks in flight */
    WARPS = 8,                      /* of a thread block */
    BLOCK_HEADS = 64,               /* heads of a thread block */
    GROUP_QUERIES = 1,              /* queries of an item */
    QUERY_ROWS = 64,                /* heads, padded */
    HEAD_BLOCKS = 1,                /* items of a query */
    TENSOR_MAPS = 0,                /* no rows come by the copy engine */
    SUMS_BESIDE = 0,                /* sums of partial rows follow it */
    SLICE_BLOCKS = 0,               /* items are not sliced */
    SCORE_HEAD_GROUPS = 4,          /* warps side by side over the heads of S */
    SCORE_KEY_GROUPS = 2,           /* over its keys */
    SCORE_DEPTH_GROUPS = 1,         /* over its depth: partial sums */
    LATENT_KEY_TILES = 4,           /* tiles of 16 keys in a unit of dKV, columns that are key and value */
    ROPE_KEY_TILES = 1,             /* columns that are key alone */
    UNIT_UNROLL = 4,                /* k-steps of a unit of dKV that are written out */
    ENTRY_SLOTS = 4,                /* key blocks whose keys' numbers are kept */
    VECTOR_REDUCTIONS = 1,          /* 1: four values are added to global memory at once */
    THREADS = 256,                  /* of a thread block */
    BLOCKS_PER_MULTIPROCESSOR = 1,  /* resident at once, at least */
};

/* Shared memory, in bytes from the arena's start. */
enum {
    QUERY_OFFSET = 0,               /* query tile; at the end the tile of dq */
    GRAD_OFFSET = 73728,            /* tile of grad_out */
    KEYS_OFFSET = 139264,           /* key blocks */
    WEIGHTS_OFFSET = 212992,        /* rows of P and dS, bf16; before, partial sums of S and dP, fp32 */
    STATISTICS_OFFSET = 229376,     /* base and delta of each row */
    ITEM_OFFSET = 229888,           /* which query and heads this is */
    ENTRIES_OFFSET = 230016,        /* numbers of keys */
    SHARED_BYTES = 231040,          /* the arena's size */
};

#define KERNEL_NAME smelt_sparse_attn_bwd_mma_h64_qk576_v512

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

#line 2 "templates/ptx/ldmatrix_x2.cuh"

/* As ldmatrix_x4_trans (ptx/ldmatrix.cuh), two matrices: the addresses of lanes 0 to 15 count (PTX
 * ISA, "Warp-level matrix load instruction: ldmatrix"). */
DEVICE void ldmatrix_x2_trans(u32 *r, u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(address)
                 : "memory");
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

#line 14 "templates/sparse_attn_bwd.mma.cu"
/*
 * Sparse attention backward with mma.sync: dq, and what dkv's sums are made of. Mathematics and
 * shapes: include/smelt/sparse_attn.h; what the kernels ahead of it left: sparse_attn_bwd.params.h.
 *
 * Grid: persistent; a block takes every gridDim.x-th item, from the last ones on. An item is a
 * query's BLOCK_HEADS heads (groups have one member); rows past the last head are zeros. WARPS
 * warps, all of one role; for each block of BLOCK_KEYS keys they change formation:
 *
 *   scores   S = Q K^T and dP = dO K^T, [BLOCK_HEADS, BLOCK_KEYS]: warps over heads x keys x depth
 *            (SCORE_*_GROUPS), both products of the same heads and keys, so that K's fragments
 *            serve twice and P and dS follow in the registers
 *   dQ       [BLOCK_HEADS, DQK] += dS K: warps over columns, 8 of every 64 with eight warps; it
 *            stays in registers all along
 *   dKV      [BLOCK_KEYS, DQK] = dS^T Q + P^T dO: units of 32 columns and some keys, warps in turn.
 *            Each unit goes to global memory from the registers, where the fragments' own order of
 *            columns (sparse_attn_bwd.columns.cuh) makes wide accesses of it
 *
 * Shared memory (offsets and sizes: the plan above):
 *   QUERY      [BLOCK_HEADS][DQK] bf16; at the end dQ, on its way to global memory
 *   GRAD       [BLOCK_HEADS][DV] bf16: dO
 *   KEYS       [STAGES][BLOCK_KEYS][DQK] bf16
 *   WEIGHTS    [BLOCK_HEADS] rows of P and dS, BLOCK_KEYS bf16 each, at least 128 bytes; earlier
 *              the partial sums of S and dP, fp32, of SCORE_DEPTH_GROUPS - 1 groups
 *   STATISTICS [BLOCK_HEADS] base and delta
 *   ITEM       struct item
 *   ENTRIES    [ENTRY_SLOTS][BLOCK_KEYS] numbers of keys, -1: none; of block j in slot
 *              j % ENTRY_SLOTS
 *
 * Copies and barriers, for key block j in stage j % STAGES:
 *   top:          own copies of block j done (groups of STAGES - 2 later blocks may be under way),
 *                 then a barrier: everybody's have landed, and everybody is done with block j - 1.
 *                 With several stages: gather block j + STAGES - 1
 *   after scores: with several depth groups, partial sums complete; and read
 *   before dQ:    WEIGHTS complete
 *   after dQ:     with one stage, K is free: gather block j + 1, which dKV hides
 * With the rows of block b come the numbers of the keys of block b + ENTRY_LEAD.
 *
 * Knobs: BLOCK_KEYS, STAGES, WARPS, BLOCK_HEADS, blocks per multiprocessor; legal values and the
 * rule that picks them: src/codegen/families/sparse_attn_bwd_mma.c.
 */

enum {
    QUERY_PITCH = DQK * 2, /* bytes of a row, here and below */
    GRAD_PITCH = DV * 2,
    KEY_PITCH = DQK * 2,
    KEY_BYTES = BLOCK_KEYS * KEY_PITCH, /* of a stage */
    WEIGHT_PITCH = BLOCK_KEYS < 32 ? 128 : BLOCK_KEYS * 4,
    DS_BYTES = BLOCK_KEYS * 2, /* from P to dS in a row of weights */
    ENTRY_LEAD = STAGES > 1 ? STAGES - 1 : 1,

    /* The gather: eight threads a row, each its 16 of every 128 bytes. */
    GATHER_ROWS = BLOCK_KEYS < THREADS / 8 ? BLOCK_KEYS : THREADS / 8, /* at once */
    GATHER_PARTS = THREADS / 8 / GATHER_ROWS,                          /* threads' share of them */

    HEAD_TILES = BLOCK_HEADS / 16,
    SCORE_TILES = HEAD_TILES / SCORE_HEAD_GROUPS,     /* m16 tiles of a warp */
    SCORE_PAIRS = BLOCK_KEYS / 16 / SCORE_KEY_GROUPS, /* pairs of n8 tiles of a warp */
    SCORE_COLUMNS = SCORE_PAIRS * 2,
    SCORE_LATENT_STEPS = DV / 16 / SCORE_DEPTH_GROUPS, /* k-steps of a warp, of both products */
    SCORE_ROPE_STEPS = (DQK - DV) / 16 / SCORE_DEPTH_GROUPS, /* of S alone */
    SCORE_STEPS = SCORE_LATENT_STEPS + SCORE_ROPE_STEPS,
    SCORE_STEP_BYTES = SCORE_DEPTH_GROUPS * 2 * CHUNK_BYTES, /* from one step to the next */
    SCORE_VALUES = SCORE_TILES * SCORE_PAIRS * 8,
    /* At once: the swizzle repeats after four k-steps. */
    SCORE_UNROLL = SCORE_LATENT_STEPS < 4 ? SCORE_LATENT_STEPS : 4,
    SUM_BYTES = BLOCK_HEADS * BLOCK_KEYS * 8, /* of a depth group */
    SUM_WARP_BYTES = SCORE_VALUES * 8 * 32,

    OUTPUT_COLUMNS = DQK / WARPS / 8, /* n8 tiles of dQ of a warp */
    OUTPUT_VALUES = HEAD_TILES * OUTPUT_COLUMNS * 4,
    OUTPUT_UNROLL = 2, /* k-steps */

    LATENT_PARTS = BLOCK_KEYS / 16 / LATENT_KEY_TILES,
    ROPE_PARTS = BLOCK_KEYS / 16 / ROPE_KEY_TILES,
    LATENT_UNITS = DV / UNIT_COLUMNS * LATENT_PARTS,
    ROPE_UNITS = (DQK - DV) / UNIT_COLUMNS * ROPE_PARTS
};

/* What the block computes: at ITEM_OFFSET, since registers are short. */
struct item {
    int number; /* of the launch's */
    int group;  /* of all */
    int query;  /* batch * tokens + token, or -1: none */
    int first_head;
    int blocks; /* of keys in its list */
};

DEVICE struct item *block_item(void) {
    return (struct item *)(arena + ITEM_OFFSET);
}

/* Writes down, for the whole block, what there is to do. Ends in a barrier. */
DEVICE void describe_item(const struct sparse_attn_bwd_params *params, u32 number) {
    if (threadIdx.x == 0) {
        struct item *const item = block_item();
        item->number = (int)number;
        item->group = params->first_group + (int)(number / HEAD_BLOCKS);
        item->query = params->members[item->group];
        item->first_head = (int)(number % HEAD_BLOCKS) * BLOCK_HEADS;
        item->blocks = (params->counts[item->group] + BLOCK_KEYS - 1) / BLOCK_KEYS;
    }
    __syncthreads();
}

/* ---- copies into shared memory --------------------------------------------------------------- */

/* Where a query's rows begin in a tensor, in elements. */
DEVICE i64 query_offset(const struct sparse_attn_bwd_params *params, i64 batch_stride,
                        i64 token_stride) {
    const int batch = block_item()->query / params->tokens;
    return batch * batch_stride + (block_item()->query - batch * params->tokens) * token_stride;
}

/* Starts the copy of the item's rows of q or grad_out; rows past the last head become zeros. */
DEVICE void load_rows(const void *tensor, i64 offset, i64 head_stride, u32 tile, int pitch) {
    const char *const rows = (const char *)tensor + 2 * offset;
    const int chunks = pitch / CHUNK_BYTES;
#pragma unroll 4
    for (int i = (int)thread_number(); i < BLOCK_HEADS * chunks; i += THREADS) {
        const int row = i / chunks, chunk = i % chunks, head = block_item()->first_head + row;
        const bool present = head < HEADS;
        cp_async_16(tile + tile_chunk(row, chunk, pitch),
                    present ? rows + 2 * (head * head_stride) + chunk * CHUNK_BYTES : rows,
                    present ? CHUNK_BYTES : 0);
    }
}

/* What the item's rows are lessened by, and their deltas. */
DEVICE void load_statistics(const struct sparse_attn_bwd_params *params) {
    const float2 *const rows = (const float2 *)params->statistics +
                               (i64)block_item()->group * QUERY_ROWS + block_item()->first_head;
    for (int row = (int)thread_number(); row < BLOCK_HEADS; row += THREADS) {
        ((float2 *)(arena + STATISTICS_OFFSET))[row] = rows[row];
    }
}

/* The numbers of a block's keys, in shared memory; and in global memory. */
DEVICE const int *block_entries(int block) {
    return (const int *)(arena + ENTRIES_OFFSET) + block % ENTRY_SLOTS * BLOCK_KEYS;
}

DEVICE const int *listed_entries(const struct sparse_attn_bwd_params *params, int block) {
    return params->keys + (i64)block_item()->group * params->key_stride + block * BLOCK_KEYS;
}

/* Starts the copy of the numbers of a block's keys, if there is such a block. */
DEVICE void load_entries(const struct sparse_attn_bwd_params *params, int block) {
    const int at = (int)thread_number() * 4;
    if (block < block_item()->blocks && at < BLOCK_KEYS) {
        cp_async_16(
            shared_address((u32)(ENTRIES_OFFSET + (block % ENTRY_SLOTS * BLOCK_KEYS + at) * 4)),
            listed_entries(params, block) + at, CHUNK_BYTES);
    }
}

/* Where a key's row is. */
DEVICE const char *key_row(const struct sparse_attn_bwd_params *params, int key) {
    const char *kv = (const char *)params->kv;
    if (!params->even_batches) {
        const int batch = key / params->rows;
        kv += 2 * (batch * params->kv_batch_stride);
        key -= batch * params->rows;
    }
    return kv + (u64)(u32)key * params->kv_row_bytes;
}

/* Starts the copy of a block's rows; where there is no key they become zeros. */
DEVICE void gather(const struct sparse_attn_bwd_params *params, const int *entries, int stage) {
    const int chunk = (int)thread_number() % 8, first = (int)thread_number() / 8 % GATHER_ROWS;
    const int part = (int)thread_number() / 8 / GATHER_ROWS;
    const u32 tile = shared_address((u32)(KEYS_OFFSET + stage * KEY_BYTES));
#pragma unroll
    for (int i = 0; i < BLOCK_KEYS / GATHER_ROWS; ++i) {
        const int row = i * GATHER_ROWS + first, key = entries[row];
        const char *const source =
            (key >= 0 ? key_row(params, key) : (const char *)params->kv) + chunk * CHUNK_BYTES;
        const u32 target = tile + tile_chunk(row, chunk, KEY_PITCH);
#pragma unroll
        for (int group = 0; group < DQK / 64; ++group) {
            if (GATHER_PARTS == 1 || group % GATHER_PARTS == part) {
                cp_async_16(target + (u32)(group * 128), source + group * 128,
                            key >= 0 ? CHUNK_BYTES : 0);
            }
        }
    }
}

/* Starts the copies of a key block, as one group; an empty one when the item has no such block. */
DEVICE void begin_block(const struct sparse_attn_bwd_params *params, const int *entries,
                        int block) {
    if (block < block_item()->blocks) {
        gather(params, entries, block % STAGES);
        load_entries(params, block + ENTRY_LEAD);
    }
    cp_async_commit();
}

/* Starts the copies of all that the first block needs, and of what the stages hold besides. */
DEVICE void begin_item(const struct sparse_attn_bwd_params *params) {
    load_rows(params->q, query_offset(params, params->q_batch_stride, params->q_token_stride),
              params->q_head_stride, shared_address(QUERY_OFFSET), QUERY_PITCH);
    load_rows(params->grad_out,
              query_offset(params, params->grad_out_batch_stride, params->grad_out_token_stride),
              params->grad_out_head_stride, shared_address(GRAD_OFFSET), GRAD_PITCH);
    load_statistics(params);
#pragma unroll
    for (int block = 0; block < ENTRY_LEAD; ++block) {
        load_entries(params, block);
    }
#pragma unroll
    for (int block = 0; block < ENTRY_LEAD; ++block) {
        begin_block(params, listed_entries(params, block), block);
    }
}

/* Waits until the oldest key block under way has landed, everybody's part of it, and everybody has
 * come so far. The item's rows land with the first. */
DEVICE void wait_for_block(void) {
#line 233 "templates/sparse_attn_bwd.mma.cu"
    cp_async_wait_all();
#line 239 "templates/sparse_attn_bwd.mma.cu"
    __syncthreads();
}

/* ---- scores: S and dP, P and dS -------------------------------------------------------------- */

/* This warp's place in their formation. */
struct score_place {
    int tile;  /* first m16 tile */
    int key;   /* first key */
    int depth; /* takes the k-steps equal to this modulo SCORE_DEPTH_GROUPS */
};

DEVICE struct score_place find_score_place(void) {
    const int warp = (int)thread_number() / 32;
    struct score_place place;
    place.tile = warp % SCORE_HEAD_GROUPS * SCORE_TILES;
    place.key = warp / SCORE_HEAD_GROUPS % SCORE_KEY_GROUPS * SCORE_PAIRS * 16;
    place.depth = warp / (SCORE_HEAD_GROUPS * SCORE_KEY_GROUPS);
    return place;
}

/* Operands of this warp's k-steps: their ldmatrix addresses at its first one. */
struct score_operands {
    u32 query, grad, keys;
};

DEVICE struct score_operands find_score_operands(const struct score_place *place, int stage) {
    const int chunk = place->depth * 2;
    struct score_operands at;
    at.query = rows_first(shared_address(QUERY_OFFSET), place->tile * 16, chunk, QUERY_PITCH);
    at.grad = rows_first(shared_address(GRAD_OFFSET), place->tile * 16, chunk, GRAD_PITCH);
    at.keys = columns_first(shared_address((u32)(KEYS_OFFSET + stage * KEY_BYTES)), place->key,
                            chunk, KEY_PITCH);
    return at;
}

/* Operands of step number `step`, if there is one; dO's for a step of both products. */
DEVICE void load_step(u32 *q, u32 *grad, u32 *k, const struct score_operands *at, int step) {
    const int delta = step * SCORE_STEP_BYTES;
    if (step < SCORE_STEPS) {
        load_fragments(q, SCORE_TILES, tile_advance(at->query, delta), QUERY_PITCH);
        load_fragments(k, SCORE_PAIRS, tile_advance(at->keys, delta), KEY_PITCH);
    }
    if (step < SCORE_LATENT_STEPS) {
        load_fragments(grad, SCORE_TILES, tile_advance(at->grad, delta), GRAD_PITCH);
    }
}

DEVICE void multiply_step(float *sums, const u32 *a, const u32 *k) {
#pragma unroll
    for (int m = 0; m < SCORE_TILES; ++m) {
#pragma unroll
        for (int n = 0; n < SCORE_COLUMNS; ++n) {
            mma_m16n8k16_bf16(&sums[(m * SCORE_COLUMNS + n) * 4], &a[m * 4], &k[n * 2]);
        }
    }
}

/* s and dp = this warp's parts of Q K^T and dO K^T. The operands of a step are loaded while the one
 * before is multiplied, into the other of two buffers. */
DEVICE void multiply_scores(float *s, float *dp, const struct score_place *place, int stage) {
    enum { A = SCORE_TILES * 4, B = SCORE_PAIRS * 4 };
    const struct score_operands at = find_score_operands(place, stage);
    u32 q[2 * A], grad[2 * A], k[2 * B];
    clear(s, SCORE_VALUES);
    clear(dp, SCORE_VALUES);
    load_step(q, grad, k, &at, 0);
#pragma unroll 1
    for (int first = 0; first < SCORE_LATENT_STEPS; first += SCORE_UNROLL) {
#pragma unroll
        for (int i = 0; i < SCORE_UNROLL; ++i) {
            const int now = i % 2, next = (i + 1) % 2;
            load_step(&q[next * A], &grad[next * A], &k[next * B], &at, first + i + 1);
            multiply_step(s, &q[now * A], &k[now * B]);
            multiply_step(dp, &grad[now * A], &k[now * B]);
        }
    }
#pragma unroll
    for (int i = SCORE_LATENT_STEPS; i < SCORE_STEPS; ++i) {
        const int now = i % 2, next = (i + 1) % 2;
        load_step(&q[next * A], &grad[next * A], &k[next * B], &at, i + 1);
        multiply_step(s, &q[now * A], &k[now * B]);
    }
}

/* Each of a warp's n8 tiles is completed by one of the depth groups. */
DEVICE bool completes(const struct score_place *place, int tile) {
    return SCORE_DEPTH_GROUPS == 1 || tile % SCORE_DEPTH_GROUPS == place->depth;
}

/* Where the partial sums of an n8 tile stand: S, and dP 512 bytes on. `from`: by how many groups,
 * less one, the contributing one is behind the completing one. */
DEVICE float4 *partial_sums(int tile, int from) {
    const int warp = (int)thread_number() / 32 % (SCORE_HEAD_GROUPS * SCORE_KEY_GROUPS);
    const int lane = (int)thread_number() % 32;
    return (float4 *)(arena + WEIGHTS_OFFSET + from * SUM_BYTES + warp * SUM_WARP_BYTES +
                      tile * 1024) +
           lane;
}

/* Hands over the tiles that other depth groups complete. */
DEVICE void store_partial_sums(const float *s, const float *dp, const struct score_place *place) {
#pragma unroll
    for (int tile = 0; tile < SCORE_VALUES / 4; ++tile) {
        if (!completes(place, tile)) {
            const int from =
                (place->depth - tile % SCORE_DEPTH_GROUPS - 1 + 2 * SCORE_DEPTH_GROUPS) %
                SCORE_DEPTH_GROUPS;
            const float *const a = &s[tile * 4], *const b = &dp[tile * 4];
            float4 *const to = partial_sums(tile, from);
            const float4 first = {a[0], a[1], a[2], a[3]}, second = {b[0], b[1], b[2], b[3]};
            to[0] = first;
            to[32] = second;
        }
    }
}

DEVICE void add_float4(float *sums, const float4 *more) {
    const float4 values = *more;
    sums[0] += values.x;
    sums[1] += values.y;
    sums[2] += values.z;
    sums[3] += values.w;
}

/* Adds to the tiles that this warp completes what the others have of them. */
DEVICE void add_partial_sums(float *s, float *dp, const struct score_place *place) {
#pragma unroll
    for (int tile = 0; tile < SCORE_VALUES / 4; ++tile) {
        if (completes(place, tile)) {
#pragma unroll
            for (int from = 0; from < SCORE_DEPTH_GROUPS - 1; ++from) {
                const float4 *const more = partial_sums(tile, from);
                add_float4(&s[tile * 4], &more[0]);
                add_float4(&dp[tile * 4], &more[32]);
            }
        }
    }
}

/* Two neighbouring values of a row, their keys present or not: S and dP to P and dS, in WEIGHTS at
 * an offset of the arena. A key's absence is a choice and no factor: its scores need not be finite
 * where a row's base is infinite. */
DEVICE void weigh(u32 offset, const float *s, const float *dp, const bool *present,
                  float2 statistics, float scale) {
    float p[2], ds[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
        const float x = fmaf(s[e], scale * LOG2_E, -statistics.x);
        const float exponential = exp2_approximate(x > 0.0f ? 0.0f : x);
        p[e] = present[e] ? exponential : 0.0f;
        ds[e] = present[e] ? scale * exponential * (dp[e] - statistics.y) : 0.0f;
    }
    *(u32 *)(arena + offset) = pack_bf16x2(p[0], p[1]);
    *(u32 *)(arena + tile_advance(offset, DS_BYTES)) = pack_bf16x2(ds[0], ds[1]);
}

/* P and dS of the tiles that this warp completes, to WEIGHTS. */
DEVICE void store_weights(const float *s, const float *dp, const struct score_place *place,
                          const int *entries, float scale) {
    const int lane = (int)thread_number() % 32, first = place->tile * 16 + lane / 4;
    const float2 *const statistics = (const float2 *)(arena + STATISTICS_OFFSET) + first;
    const u32 base = WEIGHTS_OFFSET + tile_chunk(first, place->key / CHUNK_COLUMNS, WEIGHT_PITCH) +
                     (u32)(lane % 4 * 4);
#pragma unroll
    for (int n = 0; n < SCORE_COLUMNS; ++n) {
        const int *const keys = &entries[place->key + n * 8 + lane % 4 * 2];
        const bool present[2] = {keys[0] >= 0, keys[1] >= 0};
        const u32 offset = tile_advance(base, n * CHUNK_BYTES);
#pragma unroll
        for (int m = 0; m < SCORE_TILES; ++m) {
            const int tile = m * SCORE_COLUMNS + n;
            if (completes(place, tile)) {
                weigh(offset + m * 16 * WEIGHT_PITCH, &s[tile * 4], &dp[tile * 4], present,
                      statistics[m * 16], scale);
                weigh(offset + (m * 16 + 8) * WEIGHT_PITCH, &s[tile * 4 + 2], &dp[tile * 4 + 2],
                      present, statistics[m * 16 + 8], scale);
            }
        }
    }
}

/* P and dS of a key block, in WEIGHTS. */
DEVICE void compute_weights(const struct sparse_attn_bwd_params *params, int block) {
    const struct score_place place = find_score_place();
    float s[SCORE_VALUES], dp[SCORE_VALUES];
    multiply_scores(s, dp, &place, block % STAGES);
    if (SCORE_DEPTH_GROUPS > 1) {
        store_partial_sums(s, dp, &place);
        __syncthreads();
        add_partial_sums(s, dp, &place);
        __syncthreads();
    }
    store_weights(s, dp, &place, block_entries(block), params->scale);
}

/* ---- dQ -------------------------------------------------------------------------------------- */

/* The first of this warp's columns of every 64, in chunks. */
DEVICE int output_chunk(void) {
    return (int)thread_number() / 32 * (8 / WARPS);
}

/* dq += dS K for the key block in a stage. With eight warps n8 tile number i of a warp is in
 * columns 64 * i and on, and one ldmatrix brings two of them; with four, tiles 2 * i and 2 * i + 1
 * are. */
DEVICE void accumulate_dq(float *dq, int stage) {
    const int lane = (int)thread_number() % 32;
    const u32 weights =
        tile_advance(rows_first(shared_address(WEIGHTS_OFFSET), 0, 0, WEIGHT_PITCH), DS_BYTES);
    const u32 tile = shared_address((u32)(KEYS_OFFSET + stage * KEY_BYTES));
    const u32 keys = WARPS == 8 ? tile + tile_chunk(lane % 16, output_chunk(), KEY_PITCH) +
                                      (u32)(lane / 16 * 128)
                                : rows_first(tile, 0, output_chunk(), KEY_PITCH);
#pragma unroll OUTPUT_UNROLL
    for (int step = 0; step < BLOCK_KEYS / 16; ++step) {
        u32 a[HEAD_TILES * 4];
        load_fragments(a, HEAD_TILES, tile_advance(weights, step * 32), WEIGHT_PITCH);
#pragma unroll
        for (int n = 0; n < OUTPUT_COLUMNS; n += 2) {
            const bool pair = n + 1 < OUTPUT_COLUMNS;
            const u32 address = keys + (u32)(step * 16 * KEY_PITCH + n * (WARPS == 8 ? 128 : 64));
            u32 b[4];
            if (pair) {
                ldmatrix_x4_trans(b, address);
            } else {
                ldmatrix_x2_trans(b, address);
            }
#pragma unroll
            for (int m = 0; m < HEAD_TILES; ++m) {
                float *const sums = &dq[(m * OUTPUT_COLUMNS + n) * 4];
                mma_m16n8k16_bf16(sums, &a[m * 4], &b[0]);
                if (pair) {
                    mma_m16n8k16_bf16(sums + 4, &a[m * 4], &b[2]);
                }
            }
        }
    }
}

/* dQ as bf16 to where the query was. */
DEVICE void stage_dq(const float *dq) {
    const int lane = (int)thread_number() % 32;
    const u32 base =
        QUERY_OFFSET + tile_chunk(lane / 4, output_chunk(), QUERY_PITCH) + (u32)(lane % 4 * 4);
#pragma unroll
    for (int n = 0; n < OUTPUT_COLUMNS; ++n) {
        const u32 offset = WARPS == 8
                               ? base + (u32)(n * 128)
                               : tile_advance(base, n % 2 * CHUNK_BYTES) + (u32)(n / 2 * 128);
#pragma unroll
        for (int m = 0; m < HEAD_TILES; ++m) {
            const float *const tile = &dq[(m * OUTPUT_COLUMNS + n) * 4];
            *(u32 *)(arena + offset + m * 16 * QUERY_PITCH) = pack_bf16x2(tile[0], tile[1]);
            *(u32 *)(arena + offset + (m * 16 + 8) * QUERY_PITCH) = pack_bf16x2(tile[2], tile[3]);
        }
    }
}

/* The item's rows of dq to global memory, 16 bytes a thread: the staged ones, or zeros. */
DEVICE void store_dq(const struct sparse_attn_bwd_params *params, bool zeros) {
    enum { CHUNKS = DQK / CHUNK_COLUMNS };
    char *const rows = (char *)params->dq +
                       2 * query_offset(params, params->dq_batch_stride, params->dq_token_stride);
#pragma unroll 4
    for (int i = (int)thread_number(); i < BLOCK_HEADS * CHUNKS; i += THREADS) {
        const int row = i / CHUNKS, chunk = i % CHUNKS, head = block_item()->first_head + row;
        if (head < HEADS) {
            const uint4 nothing = {0, 0, 0, 0};
            *(uint4 *)(rows + 2 * (head * params->dq_head_stride) + chunk * CHUNK_BYTES) =
                zeros
                    ? nothing
                    : *(const uint4 *)(arena + QUERY_OFFSET + tile_chunk(row, chunk, QUERY_PITCH));
        }
    }
}

/* ---- dKV ------------------------------------------------------------------------------------- */

/* The rows of a block's keys in dkv, or with partial rows in what the launch has of them, from a
 * column on. */
DEVICE struct unit_rows find_unit_rows(const struct sparse_attn_bwd_params *params, int block,
                                       int column) {
    const int place = column + unit_place(DETERMINISTIC);
    struct unit_rows rows = {(char *)params->dkv + 4 * place, DQK * 4, block_entries(block),
                             DETERMINISTIC};
    if (DETERMINISTIC) {
        const u32 item = (u32)block_item()->number;
        const i64 key = (i64)(item / HEAD_BLOCKS) * params->key_stride + block * BLOCK_KEYS;
        const i64 row = key * HEAD_BLOCKS + item % HEAD_BLOCKS;
        rows.first = (char *)params->partials + 2 * (row * DQK + place);
        rows.row_bytes = HEAD_BLOCKS * DQK * 2;
    }
    return rows;
}

/* One unit: `tiles` m16 tiles of the block's keys from number `slot` on, 32 columns. */
DEVICE void compute_unit(const struct sparse_attn_bwd_params *params, int block, int slot,
                         int tiles, int column, bool latent) {
    float sums[64];
    const u32 p =
        columns_first(shared_address(WEIGHTS_OFFSET), 0, slot / CHUNK_COLUMNS, WEIGHT_PITCH);
    const u32 query =
        rows_first(shared_address(QUERY_OFFSET), 0, column / CHUNK_COLUMNS, QUERY_PITCH);
    clear(sums, tiles * 16);
    multiply_transposed(sums, tiles, HEAD_TILES, tile_advance(p, DS_BYTES), WEIGHT_PITCH, query,
                        QUERY_PITCH);
    if (latent) {
        const u32 grad =
            rows_first(shared_address(GRAD_OFFSET), 0, column / CHUNK_COLUMNS, GRAD_PITCH);
        multiply_transposed(sums, tiles, HEAD_TILES, p, WEIGHT_PITCH, grad, GRAD_PITCH);
    }
    const struct unit_rows rows = find_unit_rows(params, block, column);
    put_unit(&rows, slot, tiles, sums);
}

/* dKV of a key block. */
DEVICE void add_dkv(const struct sparse_attn_bwd_params *params, int block) {
    const int warp = (int)thread_number() / 32;
#pragma unroll 1
    for (int unit = warp; unit < LATENT_UNITS; unit += WARPS) {
        compute_unit(params, block, unit % LATENT_PARTS * LATENT_KEY_TILES * 16, LATENT_KEY_TILES,
                     unit / LATENT_PARTS * UNIT_COLUMNS, true);
    }
#pragma unroll 1
    for (int unit = warp; unit < ROPE_UNITS; unit += WARPS) {
        compute_unit(params, block, unit % ROPE_PARTS * ROPE_KEY_TILES * 16, ROPE_KEY_TILES,
                     DV + unit / ROPE_PARTS * UNIT_COLUMNS, false);
    }
}

/* ---- items ----------------------------------------------------------------------------------- */

/* Computes one item that has keys. Called by the whole block, which ends in no barrier. */
DEVICE void compute_item(const struct sparse_attn_bwd_params *params) {
    float dq[OUTPUT_VALUES];
    begin_item(params);
    clear(dq, OUTPUT_VALUES);
#pragma unroll 1
    for (int block = 0; block < block_item()->blocks; ++block) {
        const int next = block + ENTRY_LEAD;
        wait_for_block();
        if (STAGES > 1) {
            begin_block(params, block_entries(next), next);
        }
        compute_weights(params, block);
        __syncthreads();
        accumulate_dq(dq, block % STAGES);
        if (STAGES == 1) {
            __syncthreads();
            begin_block(params, block_entries(next), next);
        }
        add_dkv(params, block);
    }
    __syncthreads();
    stage_dq(dq);
    __syncthreads();
    store_dq(params, false);
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct sparse_attn_bwd_params params) {
    const u32 items = (u32)params.groups * HEAD_BLOCKS;
#pragma unroll 1
    for (u32 turn = blockIdx.x; turn < items; turn += gridDim.x) {
        describe_item(&params, items - 1 - turn);
        if (block_item()->query >= 0) {
            if (block_item()->blocks > 0) {
                compute_item(&params);
            } else {
                store_dq(&params, true);
            }
        }
        __syncthreads();
    }
}
