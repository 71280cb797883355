/*
 * Written by smelt; do not edit. To write it again:
 *   smelt emit indexer_bwd_grains:pass=bounds --arch sm_90a
 *
 * spec     indexer_bwd_grains:pass=bounds
 * arch     sm_90a
 * variant  bounds
 * kernel   smelt_indexer_bwd_grains_bounds
 * knobs (by the spec, or by rule)
 * shared memory (offset, bytes)
 *   BINS_OFFSET                      0   131072  sums of rows
 *   TOPS_OFFSET                 131072      128  the largest of each warp
 *   SHARED_BYTES                131200  of 232448 that a block may have on sm_90a
 * launch
 *   1024 threads a block, 1 block resident per multiprocessor, at most 64 registers a thread
 */

enum {
    THREADS = 1024,                 /* of a thread block */
    BLOCKS_PER_MULTIPROCESSOR = 1,  /* resident at once, at least */
    BINS = 16384,                   /* rows that are added up by blocks */
};

/* Shared memory, in bytes from the arena's start. */
enum {
    BINS_OFFSET = 0,                /* sums of rows */
    TOPS_OFFSET = 131072,           /* the largest of each warp */
    SHARED_BYTES = 131200,          /* the arena's size */
};

#define KERNEL_NAME smelt_indexer_bwd_grains_bounds

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

#line 2 "templates/indexer_bwd_grains.finite.cuh"

/* A size that counts, or 0: of an infinity and NaN. */
DEVICE float finite(float size) {
    return size <= 3.4028235e38f ? size : 0.0f;
}

/* A sum of such, which may have gone beyond the largest number. */
DEVICE float clamped(float sum) {
    return fminf(sum, 3.4028235e38f);
}

#line 1 "templates/indexer_bwd_grains.params.h"
/*
 * Arguments of the indexer_bwd_grains kernels, which find the grains of dk's rows
 * (common/grain.cuh). Included by the host code and, by the generator, by the CUDA source: plain C
 * types only. Strides count elements. See indexer_bwd_main.params.h for groups and lists: these are
 * the ones of one launch of the main kernel.
 */
struct indexer_bwd_grains_params {
    const void *q;        /* [tokens, heads, dim] bf16 */
    const float *weights; /* [tokens, heads] */
    const int *members;   /* [groups, group_queries] */
    const int *counts;    /* [groups] */
    const int *keys;      /* [groups, key_stride] no key twice in a list */
    const float *grads;   /* [groups, group_queries, key_stride] */
    float *reach;     /* [groups, group_queries] what a member adds to a row of dk at most, in any
                         column, for a gradient of 1 */
    float *tops;      /* [top_count] of what is added to a row at once the largest, of some groups
                         each: a block of the pass `reach` writes one */
    unsigned *bounds; /* [rows, 2] sums of what is added, in units: coarse ones, fine ones; zeros
                         ahead of the pass `bounds` */
    float *grains;    /* [rows] */
    float *sums;      /* [rows, dim] of dk, of this launch's groups; columns in any order */
    float *totals;    /* [rows, dim] of the groups before; columns likewise */
    long long q_token_stride, q_head_stride;
    long long weights_token_stride;
    int heads, dim; /* dim: 64 or 128 */
    int rows;
    int groups, group_queries, key_stride;
    int top_count;   /* the blocks of the pass `reach` */
    int first, last; /* which of the launches that share the groups this one is */
    /* The largest of all is 2^(bits - 1) to 2^bits coarse units; groups * 2^bits stay below 2^31.
     * At least 2, so that the inverse of every unit is a normal number. */
    int bits;
};

#line 2 "templates/common/warp_sums.cuh"

/* The sum and the maximum of a float of each lane, the same bits in all of them. By whole warps. */

DEVICE float warp_sum(float value) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, step);
    }
    return value;
}

DEVICE float warp_maximum(float value) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, step));
    }
    return value;
}

#line 3 "templates/common/block_sums.cuh"

/*
 * The sum and the maximum of a float of each thread, the same bits in all of them, in an order that
 * THREADS alone fixes. `warps`: a float of each warp, in shared memory. block_begin by all threads;
 * a barrier; block_sum or block_maximum by whole warps.
 */

/* `own`: the same in all lanes of a warp. */
DEVICE void block_begin(float *warps, float own) {
    if (threadIdx.x % 32 == 0) {
        warps[threadIdx.x / 32] = own;
    }
}

DEVICE float block_sum(const float *warps) {
    const int lane = (int)threadIdx.x % 32;
    return warp_sum(lane < THREADS / 32 ? warps[lane] : 0.0f);
}

DEVICE float block_maximum(const float *warps) {
    const int lane = (int)threadIdx.x % 32;
    return warp_maximum(warps[lane < THREADS / 32 ? lane : 0]);
}

#line 4 "templates/indexer_bwd_grains.unit.cuh"
/*
 * The units that bounds are counted in, powers of two: coarse ones, of which the largest of all
 * addends has params.bits, and fine ones. As fp32's exponent fields; where one would end below 0,
 * addends are too small for it to matter.
 *
 * TOPS_OFFSET: [WARPS] float.
 */

enum { EXPONENT_ONE = 127, EXPONENT_MOST = 254, MANTISSA_BITS = 23 };

/* Kinds of units. A coarse one is 2^FINER fine ones: what comes to more than 2^bits of these is at
 * least 2^(bits - FINER) coarse ones, 64 of as many groups as there are by rule. */
enum { COARSE, FINE, UNITS };
enum { FINER = 12 };

/* The exponent field of 1 / unit of a kind, out of the coarse one's. */
DEVICE int scale_exponent(int scale, int kind) {
    return kind == COARSE ? scale : minimum(scale + FINER, EXPONENT_MOST);
}

DEVICE float scale_of(int scale, int kind) {
    return __uint_as_float((u32)scale_exponent(scale, kind) << MANTISSA_BITS);
}

/* The exponent field of 1 / coarse unit, the same in all threads; a barrier. */
DEVICE int find_scale(const struct indexer_bwd_grains_params *params) {
    float *const warps = (float *)(arena + TOPS_OFFSET);
    float largest = 0.0f;
    for (int i = (int)threadIdx.x; i < params->top_count; i += THREADS) {
        largest = fmaxf(largest, params->tops[i]);
    }
    block_begin(warps, warp_maximum(largest));
    __syncthreads();
    const int exponent = (int)(__float_as_uint(block_maximum(warps)) >> MANTISSA_BITS);
    /* largest < 2^(exponent - EXPONENT_ONE + 1) */
    return minimum(2 * EXPONENT_ONE - 1 + params->bits - exponent, EXPONENT_MOST);
}

#line 2 "templates/ptx/atomic.cuh"

/* One thread after another changes a word; the result is what was there before. Nothing else is
 * ordered by it (PTX ISA, "atom", "red", .relaxed). Shared memory is named by 32-bit addresses
 * (ptx/shared.cuh). */
DEVICE u32 atomic_or_shared(u32 address, u32 bits) {
    u32 before;
    asm volatile("atom.relaxed.cta.shared.or.b32 %0, [%1], %2;"
                 : "=r"(before)
                 : "r"(address), "r"(bits)
                 : "memory");
    return before;
}

DEVICE u32 atomic_add_shared(u32 address, u32 value) {
    u32 before;
    asm volatile("atom.relaxed.cta.shared.add.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "r"(address), "r"(value)
                 : "memory");
    return before;
}

/* Without a result: nobody waits for it. */
DEVICE void reduce_add_global(u32 *to, u32 value) {
    asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" : : "l"(to), "r"(value) : "memory");
}

#line 2 "templates/ptx/shared.cuh"

/* The arena's 32-bit address in the shared state space, which the wrappers below take (PTX ISA,
 * "State Spaces", .shared). */
DEVICE u32 shared_address(u32 offset) {
    return (u32)__cvta_generic_to_shared(arena) + offset;
}

#line 7 "templates/indexer_bwd_grains.bounds.cu"
/*
 * Deterministic backward pass of the indexer, second pass: adds up, for each key, what is added to
 * its row of dk at most, in whole units, each group's share rounded up. Integers, so that the
 * order does not matter. Large shares are counted in coarse units, small ones in fine ones: rows
 * that are far from the largest of all have bounds of as many digits.
 *
 * A block takes a group at a time, a thread a few keys; any grid is right. A table of at most BINS
 * rows is added up in shared memory first, since additions to global memory take four times as
 * long.
 *
 * Shared memory: BINS [BINS][UNITS] u32, and what unit.cuh has. Barriers: find_scale's, behind
 * which bins are empty, too; bins are full.
 */

enum { ENTRIES = 4 /* of a list, that a thread takes at a time */ };

/* What a group adds at most to the rows of keys: its entries from number `entry` on. */
DEVICE void find_shares(const struct indexer_bwd_grains_params *params, i64 group, int entry,
                        float *shares) {
    for (int i = 0; i < ENTRIES; ++i) {
        shares[i] = 0.0f;
    }
#pragma unroll 2
    for (int member = 0; member < params->group_queries; ++member) {
        const i64 place = group * params->group_queries + member;
        const float4 grads = *(const float4 *)(params->grads + place * params->key_stride + entry);
        const float reach = params->reach[place];
        shares[0] += reach * finite(fabsf(grads.x));
        shares[1] += reach * finite(fabsf(grads.y));
        shares[2] += reach * finite(fabsf(grads.z));
        shares[3] += reach * finite(fabsf(grads.w));
    }
}

/* Units of one kind. */
struct units {
    u32 count;
    int kind;
};

/* In fine units, where they are no more than the most that a share may have; else in coarse ones,
 * where what is too large for all of them counts as the largest that there may be. */
DEVICE struct units count_units(const struct indexer_bwd_grains_params *params, float share,
                                int scale) {
    const float most = (float)(1u << params->bits);
    const float coarse = ceilf(share * scale_of(scale, COARSE));
    const float fine = ceilf(share * scale_of(scale, FINE));
    const bool small = fine <= most;
    const struct units units = {(u32)fminf(small ? fine : coarse, most), small ? FINE : COARSE};
    return units;
}

/* Adds a share to a key's bounds, in the block's bins or at once. */
DEVICE void add_units(const struct indexer_bwd_grains_params *params, int key, struct units units,
                      bool binned) {
    const i64 place = (i64)key * UNITS + units.kind;
    if (binned) {
        atomic_add_shared(shared_address(BINS_OFFSET + (u32)place * 4), units.count);
    } else {
        reduce_add_global(&params->bounds[place], units.count);
    }
}

/* The block's groups. */
DEVICE void visit_groups(const struct indexer_bwd_grains_params *params, int scale, bool binned) {
    for (i64 group = blockIdx.x; group < params->groups; group += gridDim.x) {
        const int count = params->counts[group];
        for (int entry = (int)threadIdx.x * ENTRIES; entry < count; entry += THREADS * ENTRIES) {
            const int4 four = *(const int4 *)(params->keys + group * params->key_stride + entry);
            const int keys[ENTRIES] = {four.x, four.y, four.z, four.w};
            float shares[ENTRIES];
            find_shares(params, group, entry, shares);
#pragma unroll
            for (int i = 0; i < ENTRIES; ++i) {
                if (entry + i < count) {
                    add_units(params, keys[i], count_units(params, shares[i], scale), binned);
                }
            }
        }
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct indexer_bwd_grains_params params) {
    const int binned = params.rows <= BINS ? params.rows * UNITS : 0;
    u32 *const bins = (u32 *)(arena + BINS_OFFSET);
    for (int i = (int)threadIdx.x; i < binned; i += THREADS) {
        bins[i] = 0;
    }
    visit_groups(&params, find_scale(&params), binned > 0);
    __syncthreads();
    for (int i = (int)threadIdx.x; i < binned; i += THREADS) {
        if (bins[i] > 0) {
            reduce_add_global(&params.bounds[i], bins[i]);
        }
    }
}
