/*
 * Written by smelt; do not edit. To write it again:
 *   smelt emit sparse_scores_fwd:heads=64,dqk=576,dv=512 --arch sm_80
 *
 * spec     sparse_scores_fwd:heads=64,dqk=576,dv=512
 * arch     sm_80
 * variant  mma
 * kernel   smelt_sparse_scores_fwd_mma_h64_qk576_v512
 * knobs (by the spec, or by rule)
 *   BLOCK_KEYS                      32  rule     slots of a step
 *   STAGES                           2  rule     key blocks in flight
 *   WARPS                            8  rule     of a thread block
 *   BLOCKS_PER_MULTIPROCESSOR        1  rule     resident at once, at least
 * shared memory (offset, bytes)
 *   QUERY_OFFSET                     0    73728  query tile
 *   LATENT_OFFSET                73728    65536  key blocks, the first columns
 *   ROPE_OFFSET                 139264     8192  key blocks, the last columns
 *   OFFSETS_OFFSET              147456      256  of the heads: what their p is divided by, as a power of two
 *   SUMS_OFFSET                 147712      512  sums over a warp's heads
 *   PARTS_OFFSET                148224        0  partial scores
 *   SLOTS_OFFSET                148224       16  where the slots are
 *   RING_OFFSET                 148352     2048  KV row numbers of the key blocks to come
 *   COUNTS_OFFSET               150400       32  valid slots that each warp found
 *   RANGE_OFFSET                150432        8  which items the launch takes
 *   SHARED_BYTES                150440  of 166912 that a block may have on sm_80
 * launch
 *   256 threads a block, 1 block resident per multiprocessor, at most 255 registers a thread
 *   grid: 1 block a query
 */

enum {
    HEADS = 64,                     /* query heads */
    DQK = 576,                      /* width of a query and of a KV row, elements */
    DV = 512,                       /* width of a value, elements */
    HEAD_BLOCKS = 1,                /* items of a query */
    TURNS_AHEAD = 32,               /* entries of a query list that a warp holds */
    DEPENDENT_LAUNCH = 0,           /* 1: a kernel may begin before the one ahead of it has ended */
    BLOCK_KEYS = 32,                /* slots of a step */
    STAGES = 2,                     /* key blocks in flight */
    WARPS = 8,                      /* of a thread block */
    COMPACT = 0,                    /* slots keep their places */
    TOPK = 2147483647,              /* every valid slot counts */
    BLOCK_HEADS = 64,               /* heads at once */
    RAGGED_HEADS = 0,               /* all of a part's tiles are computed */
    ROPE_STAGES = 2,                /* buffers for the last columns */
    SCORE_HEAD_GROUPS = 4,          /* warps side by side over the heads */
    SCORE_KEY_GROUPS = 2,           /* over the slots */
    SCORE_DEPTH_GROUPS = 1,         /* over the depth: partial sums */
    QUERY_IN_REGISTERS = 0,         /* query fragments are loaded anew */
    SCORE_UNROLL = 8,               /* k-steps unrolled */
    RING_ENTRIES = 512,             /* row numbers the ring holds, a power of two */
    THREADS = 256,                  /* of a thread block */
    BLOCKS_PER_MULTIPROCESSOR = 1,  /* resident at once, at least */
};

/* Shared memory, in bytes from the arena's start. */
enum {
    QUERY_OFFSET = 0,               /* query tile */
    LATENT_OFFSET = 73728,          /* key blocks, the first columns */
    ROPE_OFFSET = 139264,           /* key blocks, the last columns */
    OFFSETS_OFFSET = 147456,        /* of the heads: what their p is divided by, as a power of two */
    SUMS_OFFSET = 147712,           /* sums over a warp's heads */
    PARTS_OFFSET = 148224,          /* partial scores */
    SLOTS_OFFSET = 148224,          /* where the slots are */
    RING_OFFSET = 148352,           /* KV row numbers of the key blocks to come */
    COUNTS_OFFSET = 150400,         /* valid slots that each warp found */
    RANGE_OFFSET = 150432,          /* which items the launch takes */
    SHARED_BYTES = 150440,          /* the arena's size */
};

#define KERNEL_NAME smelt_sparse_scores_fwd_mma_h64_qk576_v512

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

#line 2 "templates/common/block_slots.cuh"
/*
 * The slots of one query's index row, turned into a ring of KV row numbers. The whole block scans
 * THREADS slots at a time; with COMPACT only the valid ones enter the ring, in slot order, else
 * every slot does, a masked one as MASKED. No more than TOPK valid slots are kept.
 *
 * The ring lives at RING_OFFSET (RING_ENTRIES ints, a power of two) with one count per warp at
 * COUNTS_OFFSET. A key block's entries stay until the block STAGES after it is reached.
 */

enum { MASKED = -1, RING_MASK = RING_ENTRIES - 1, ALL_LANES = -1 };

/* What the scan reads, at SLOTS_OFFSET: in shared memory, since registers are short in between. */
struct slot_row {
    const int *row; /* this query's indices */
    int slots;      /* how many there are to scan */
    int rows;       /* KV rows: an index from 0 on and below this is valid */
};

/* The same in every thread of the block, but for `value`. */
struct block_scan {
    int scanned; /* slots looked at so far, a multiple of THREADS */
    int entries; /* entries put into the ring since the query began */
    int valid;   /* valid ones among them */
    int value;   /* slot scanned + threadIdx.x, loaded ahead */
};

DEVICE struct slot_row *block_scan_row(void) {
    return (struct slot_row *)(arena + SLOTS_OFFSET);
}

DEVICE void block_scan_load_ahead(struct block_scan *scan) {
    const int slot = scan->scanned + (int)threadIdx.x;
    scan->value = slot < block_scan_row()->slots ? block_scan_row()->row[slot] : MASKED;
}

/* Called by the whole block after *block_scan_row() was written and a barrier passed. */
DEVICE void block_scan_begin(struct block_scan *scan) {
    scan->scanned = 0;
    scan->entries = 0;
    scan->valid = 0;
    block_scan_load_ahead(scan);
}

/* Number of valid slots in lower warps, and in all of them, from the counts just written. */
DEVICE int block_scan_lower_warps(const int *counts, int warp, int *total) {
    int lower = 0;
    *total = 0;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
        lower += w < warp ? counts[w] : 0;
        *total += counts[w];
    }
    return lower;
}

/* Scans THREADS more slots. Called by the whole block; two barriers. */
DEVICE void block_scan_more(struct block_scan *scan) {
    int *const ring = (int *)(arena + RING_OFFSET);
    int *const counts = (int *)(arena + COUNTS_OFFSET);
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int row = scan->value;
    const bool valid = row >= 0 && row < block_scan_row()->rows;
    const u32 votes = __ballot_sync((u32)ALL_LANES, valid);
    if (lane == 0) {
        counts[warp] = __popc(votes);
    }
    __syncthreads();
    int total;
    const int rank = scan->valid + block_scan_lower_warps(counts, warp, &total) +
                     __popc(votes & ((1u << lane) - 1u));
    const bool keep = valid && rank < TOPK;
    if (COMPACT) {
        if (keep) {
            ring[rank & RING_MASK] = row;
        }
    } else {
        ring[(scan->entries + (int)threadIdx.x) & RING_MASK] = keep ? row : MASKED;
    }
    scan->valid = minimum(scan->valid + total, TOPK);
    scan->entries = COMPACT
                        ? scan->valid
                        : scan->entries + minimum(block_scan_row()->slots - scan->scanned, THREADS);
    scan->scanned = scan->valid < TOPK ? scan->scanned + THREADS : block_scan_row()->slots;
    block_scan_load_ahead(scan);
    __syncthreads();
}

/* Scans until the ring holds all entries of key block number `block`, or the row ends. Called by
 * the whole block. */
DEVICE void block_scan_reach(struct block_scan *scan, int block) {
    while (scan->entries < (block + 1) * BLOCK_KEYS && scan->scanned < block_scan_row()->slots) {
        block_scan_more(scan);
    }
}

/* Number of entries of a key block that was reached: BLOCK_KEYS but for the last, 0 past it. */
DEVICE int block_scan_count(const struct block_scan *scan, int block) {
    return minimum(maximum(scan->entries - block * BLOCK_KEYS, 0), BLOCK_KEYS);
}

/* A key block's entries: they do not wrap, RING_ENTRIES being a multiple of BLOCK_KEYS. MASKED
 * occurs only without COMPACT. */
DEVICE const int *block_scan_entries(int block) {
    return (const int *)(arena + RING_OFFSET) + (block * BLOCK_KEYS & RING_MASK);
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

#line 7 "templates/common/mma_scores.cuh"
/*
 * S[BLOCK_HEADS, BLOCK_KEYS] = Q K^T of a query's heads and one of its key blocks after the other,
 * with mma.sync, by a thread block whose warps stand over heads x keys x depth (SCORE_*_GROUPS). S
 * stays in registers, SCORE_DEPTH_GROUPS partial sums of it.
 *
 * Shared memory: QUERY [BLOCK_HEADS][DQK] bf16; LATENT [STAGES][BLOCK_KEYS][DV] bf16, and ROPE
 * [ROPE_STAGES][BLOCK_KEYS][DQK - DV] bf16, key blocks, gathered STAGES - 1 ahead; what
 * common/block_slots.cuh has.
 */

enum {
    LATENT_PITCH = DV * 2, /* bytes of a row */
    ROPE_PITCH = (DQK - DV) * 2,
    QUERY_PITCH = DQK * 2,
    LATENT_BYTES = BLOCK_KEYS * LATENT_PITCH, /* of a stage */
    ROPE_BYTES = BLOCK_KEYS * ROPE_PITCH,
    LATENT_CHUNKS = DV / CHUNK_COLUMNS, /* of a row */
    ROPE_CHUNKS = (DQK - DV) / CHUNK_COLUMNS,
    QUERY_CHUNKS = DQK / CHUNK_COLUMNS,
    LATENT_STEPS = DV / 16, /* k-steps of the product */
    ROPE_STEPS = (DQK - DV) / 16,

    HEAD_TILES = BLOCK_HEADS / 16,
    SCORE_TILES = HEAD_TILES / SCORE_HEAD_GROUPS,           /* m16 tiles of a warp */
    SCORE_PAIRS = BLOCK_KEYS / 16 / SCORE_KEY_GROUPS,       /* pairs of n8 tiles of a warp */
    SCORE_LATENT_STEPS = LATENT_STEPS / SCORE_DEPTH_GROUPS, /* k-steps of a warp */
    SCORE_ROPE_STEPS = ROPE_STEPS / SCORE_DEPTH_GROUPS,
    SCORE_STEPS = SCORE_LATENT_STEPS + SCORE_ROPE_STEPS,
    QUERY_FRAGMENTS = QUERY_IN_REGISTERS ? SCORE_STEPS * SCORE_TILES * 4 : 1
};

/* Starts the copy of the query tile: BLOCK_HEADS heads of the query at `q`, the first `first_head`;
 * rows past the last head become zeros. `head_stride`: elements. */
DEVICE void load_query(const char *q, i64 head_stride, int first_head) {
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < BLOCK_HEADS * QUERY_CHUNKS; i += THREADS) {
        const int row = i / QUERY_CHUNKS, chunk = i % QUERY_CHUNKS;
        const int head = first_head + row;
        const bool present = head < HEADS;
        const char *const source = present ? q + 2 * (head * head_stride) + chunk * CHUNK_BYTES : q;
        cp_async_16(shared_address(QUERY_OFFSET + tile_chunk(row, chunk, QUERY_PITCH)), source,
                    present ? CHUNK_BYTES : 0);
    }
}

/*
 * Starts the copy of `columns` chunks, from column chunk `skip` on, of a block's KV rows into a
 * tile. Unless `whole`, rows past `count` become zeros, and so do masked ones: nothing is read for
 * them.
 */
DEVICE void gather_rows(const char *kv, u32 row_bytes, int block, int count, bool whole, u32 tile,
                        int pitch, int columns, int skip) {
    const int rows_at_once = THREADS / columns;
    const int chunk = (int)threadIdx.x % columns;
    const int thread_row = (int)threadIdx.x / columns % rows_at_once;
    const char *const source = kv + (skip + chunk) * CHUNK_BYTES;
    const int *const entries = block_scan_entries(block) + thread_row;
#pragma unroll 4
    for (int i = 0; i < (BLOCK_KEYS + rows_at_once - 1) / rows_at_once; ++i) {
        const int key = i * rows_at_once + thread_row;
        if (BLOCK_KEYS % rows_at_once != 0 && key >= BLOCK_KEYS) {
            break;
        }
        const int row = whole || key < count ? entries[i * rows_at_once] : MASKED;
        const bool present = whole || row >= 0;
        cp_async_16(tile + tile_chunk(key, chunk, pitch),
                    present ? source + (u64)(u32)row * row_bytes : kv, present ? CHUNK_BYTES : 0);
    }
}

/* The same for a block that is most often whole. An empty one is left alone. */
DEVICE void gather(const char *kv, u32 row_bytes, int block, int count, u32 tile, int pitch,
                   int columns, int skip) {
    if (COMPACT && count == BLOCK_KEYS) {
        gather_rows(kv, row_bytes, block, count, true, tile, pitch, columns, skip);
    } else if (count > 0) {
        gather_rows(kv, row_bytes, block, count, false, tile, pitch, columns, skip);
    }
}

/*
 * ldmatrix addresses. A warp reads 16 rows and two chunks (16 columns, 32 bytes of a row) at a
 * time; `base` is the address of this lane's row at step 0.
 */
DEVICE u32 step_address(u32 base, int step) {
    return tile_advance(base, step * 2 * CHUNK_BYTES);
}

/* A operand: rows lane % 16, chunk lane / 16. */
DEVICE u32 a_address(u32 tile, int first_row, int pitch) {
    const int lane = (int)threadIdx.x % 32;
    return tile + tile_chunk(first_row + lane % 16, lane / 16, pitch);
}

/* B operand, keys as columns: rows lane % 8 and, for the second n8 tile, 8 more; chunk by bit 3. */
DEVICE u32 b_address(u32 tile, int first_row, int pitch) {
    const int lane = (int)threadIdx.x % 32;
    return tile + tile_chunk(first_row + lane % 8 + lane / 16 * 8, lane / 8 % 2, pitch);
}

/* This warp's place in the formation. */
struct score_place {
    int tile;  /* first m16 tile */
    int key;   /* first key */
    int depth; /* takes the k-steps equal to this modulo SCORE_DEPTH_GROUPS */
    u32 query; /* ldmatrix address of the first query tile at step 0 */
};

DEVICE struct score_place find_score_place(void) {
    const int warp = (int)threadIdx.x / 32;
    struct score_place place;
    place.tile = warp % SCORE_HEAD_GROUPS * SCORE_TILES;
    place.key = warp / SCORE_HEAD_GROUPS % SCORE_KEY_GROUPS * SCORE_PAIRS * 16;
    place.depth = warp / (SCORE_HEAD_GROUPS * SCORE_KEY_GROUPS);
    place.query = a_address(shared_address(QUERY_OFFSET), place.tile * 16, QUERY_PITCH);
    return place;
}

/* The k-step number `index` of this warp. */
DEVICE int find_step(const struct score_place *place, int index) {
    return SCORE_DEPTH_GROUPS == 1 ? index : index * SCORE_DEPTH_GROUPS + place->depth;
}

/* Query fragments of one k-step, from the query tile. */
DEVICE void load_query_step(u32 *a, const struct score_place *place, int step) {
    const u32 address = step_address(place->query, step);
#pragma unroll
    for (int m = 0; m < SCORE_TILES; ++m) {
        ldmatrix_x4(&a[m * 4], address + (u32)(m * 16 * QUERY_PITCH));
    }
}

/* All of this warp's query fragments, when they stay in registers for the whole query. */
DEVICE void load_query_fragments(u32 *query, const struct score_place *place) {
#pragma unroll
    for (int i = 0; i < SCORE_STEPS; ++i) {
        load_query_step(&query[i * SCORE_TILES * 4], place, find_step(place, i));
    }
}

/* Operands of this warp's step number `index`, which lies at column `step` * 16 of the key tile
 * whose ldmatrix address at column 0 is `keys`. */
DEVICE void load_step(u32 *a, u32 *b, const struct score_place *place, int index, u32 keys,
                      int pitch, int step) {
    if (!QUERY_IN_REGISTERS) {
        load_query_step(a, place, find_step(place, index));
    }
    const u32 address = step_address(keys, step);
#pragma unroll
    for (int n = 0; n < SCORE_PAIRS; ++n) {
        ldmatrix_x4(&b[n * 4], address + (u32)(n * 16 * pitch));
    }
}

DEVICE void multiply_step(float *s, const u32 *a, const u32 *b, int tiles) {
#pragma unroll
    for (int n = 0; n < SCORE_PAIRS; ++n) {
#pragma unroll
        for (int m = 0; m < SCORE_TILES; ++m) {
            if (!RAGGED_HEADS || m < tiles) {
                mma_m16n8k16_bf16(&s[(m * SCORE_PAIRS + n) * 8], &a[m * 4], &b[n * 4]);
                mma_m16n8k16_bf16(&s[(m * SCORE_PAIRS + n) * 8 + 4], &a[m * 4], &b[n * 4 + 2]);
            }
        }
    }
}

/*
 * s = this warp's part of Q K^T for the key block in a stage: the rope columns first, then the
 * latent ones. The operands of a step are loaded while the one before is multiplied, into the other
 * of two buffers. Step number `index` counts the latent steps first, as the query tile does.
 * `tiles`: the m16 tiles from the warp's first one on that hold heads.
 */
DEVICE void compute_scores(float *s, const u32 *query, const struct score_place *place, int stage,
                           int tiles) {
    enum { A = SCORE_TILES * 4, B = SCORE_PAIRS * 4 };
    const int rope_stage = ROPE_STAGES == 1 ? 0 : stage;
    const u32 latent = b_address(shared_address(LATENT_OFFSET + (u32)(stage * LATENT_BYTES)),
                                 place->key, LATENT_PITCH);
    const u32 rope = b_address(shared_address(ROPE_OFFSET + (u32)(rope_stage * ROPE_BYTES)),
                               place->key, ROPE_PITCH);
    u32 a[2 * A], b[2 * B];
#pragma unroll
    for (int i = 0; i < SCORE_TILES * SCORE_PAIRS * 8; ++i) {
        s[i] = 0.0f;
    }
    if (SCORE_ROPE_STEPS > 0) {
        load_step(a, b, place, SCORE_LATENT_STEPS, rope, ROPE_PITCH, find_step(place, 0));
    } else {
        load_step(a, b, place, 0, latent, LATENT_PITCH, find_step(place, 0));
    }
#pragma unroll
    for (int i = 0; i < SCORE_ROPE_STEPS; ++i) {
        const int now = i % 2, next = (i + 1) % 2, index = SCORE_LATENT_STEPS + i;
        if (i + 1 < SCORE_ROPE_STEPS) {
            load_step(&a[next * A], &b[next * B], place, index + 1, rope, ROPE_PITCH,
                      find_step(place, i + 1));
        } else {
            load_step(&a[next * A], &b[next * B], place, 0, latent, LATENT_PITCH,
                      find_step(place, 0));
        }
        multiply_step(s, QUERY_IN_REGISTERS ? &query[index * A] : &a[now * A], &b[now * B], tiles);
    }
#pragma unroll SCORE_UNROLL
    for (int i = 0; i < SCORE_LATENT_STEPS; ++i) {
        const int now = (SCORE_ROPE_STEPS + i) % 2, next = (SCORE_ROPE_STEPS + i + 1) % 2;
        if (i + 1 < SCORE_LATENT_STEPS) {
            load_step(&a[next * A], &b[next * B], place, i + 1, latent, LATENT_PITCH,
                      find_step(place, i + 1));
        }
        multiply_step(s, QUERY_IN_REGISTERS ? &query[i * A] : &a[now * A], &b[now * B], tiles);
    }
}

/* Starts the gather of a key block, as one group of copies; nothing when the query has no such. */
DEVICE void begin_block(struct block_scan *scan, const char *kv, u32 row_bytes, int block) {
    block_scan_reach(scan, block);
    const int count = block_scan_count(scan, block), stage = block % STAGES;
    const int rope_stage = ROPE_STAGES == 1 ? 0 : stage;
    gather(kv, row_bytes, block, count, shared_address(LATENT_OFFSET + (u32)(stage * LATENT_BYTES)),
           LATENT_PITCH, LATENT_CHUNKS, 0);
    if (ROPE_STEPS > 0) {
        gather(kv, row_bytes, block, count,
               shared_address(ROPE_OFFSET + (u32)(rope_stage * ROPE_BYTES)), ROPE_PITCH,
               ROPE_CHUNKS > 0 ? ROPE_CHUNKS : 1, LATENT_CHUNKS);
    }
    cp_async_commit();
}

/* Waits until the oldest key block under way has landed, everybody's part of it, and everybody has
 * come so far. The query tile lands with the first. */
DEVICE void wait_for_block(void) {
#line 240 "templates/common/mma_scores.cuh"
    cp_async_wait_0();
#line 242 "templates/common/mma_scores.cuh"
    __syncthreads();
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

#line 8 "templates/sparse_scores_fwd.mma.cu"
/*
 * Attention's probabilities at the selected slots, summed over the heads, with mma.sync: one thread
 * block computes one query. Mathematics and shapes: include/smelt/sparse_scores.h.
 *
 * Grid: a block for each query (common/work.cuh). More heads than BLOCK_HEADS are done one part
 * after the other, each adding to the target; a slot's sum is always the same thread's, so that
 * their order is fixed. WARPS warps, all of one role: S = Q K^T of a key block
 * (common/mma_scores.cuh), then p = exp2(S * scale + offset) and its sum over the warp's heads, in
 * registers; the SCORE_HEAD_GROUPS sums of a slot meet in shared memory. Slots keep their places: a
 * masked one has a row of zeros, and its result is not looked at.
 *
 * Shared memory (offsets and sizes: the plan above):
 *   QUERY, LATENT, ROPE: common/mma_scores.cuh
 *   OFFSETS [BLOCK_HEADS] fp32: of the heads, sparse_scores_fwd.heads.cuh
 *   SUMS    [SCORE_HEAD_GROUPS][BLOCK_KEYS] fp32
 *   PARTS   [SCORE_DEPTH_GROUPS - 1][SCORES][DEPTH_THREADS] fp32: partial scores
 *   SLOTS, RING, COUNTS: common/block_slots.cuh; RANGE: common/work.cuh
 *
 * Copies and barriers, for key block j in stage j % STAGES:
 *   top:          own copies of block j done (groups of STAGES - 2 later blocks may be under way),
 *                 then a block-wide barrier: everybody's have landed, nobody reads stage
 *                 (j - 1) % STAGES nor SUMS any more: gather block j + STAGES - 1
 *   after scores: PARTS complete, where there are any
 *   after sums:   SUMS complete
 *
 * Knobs: BLOCK_KEYS, STAGES, WARPS, blocks per multiprocessor; legal values and the rule that picks
 * them: src/codegen/families/sparse_scores_fwd_mma.c.
 */

enum {
    SCORES = SCORE_TILES * SCORE_PAIRS * 8, /* of a thread */
    DEPTH_THREADS = THREADS / SCORE_DEPTH_GROUPS
};

/* Which query this block computes. */
struct task {
    int batch, token;
    const char *kv;
    float *target; /* its row */
};

/* What there is to do; and for block_scan_begin, where the slots are, which a barrier must follow.
 */
DEVICE struct task find_task(const struct sparse_scores_fwd_params *params,
                             const struct work *work) {
    const int batch = work_batch(&params->work, work), token = work_token(&params->work, work);
    const struct task task = {batch, token,
                              (const char *)params->kv + 2 * (batch * params->kv_batch_stride),
                              target_row(params, batch, token)};
    if (threadIdx.x == 0) {
        struct slot_row *const row = block_scan_row();
        row->row = work_row(&params->work, work);
        row->slots = work_slots(&params->work, work);
        row->rows = params->work.rows;
    }
    return task;
}

/* The offsets of a part's heads, for everybody behind the next barrier. */
DEVICE void store_offsets(const struct sparse_scores_fwd_params *params, const struct task *task,
                          int first_head) {
    for (int i = (int)threadIdx.x; i < BLOCK_HEADS; i += THREADS) {
        ((float *)(arena + OFFSETS_OFFSET))[i] =
            head_offset(params, task->batch, task->token, first_head + i);
    }
}

/* The offsets of this thread's heads: two of each of the warp's m16 tiles. */
DEVICE void load_offsets(float *offsets, const struct score_place *place) {
    const float *const all =
        (const float *)(arena + OFFSETS_OFFSET) + place->tile * 16 + threadIdx.x % 32 / 4;
#pragma unroll
    for (int k = 0; k < SCORE_TILES * 2; ++k) {
        offsets[k] = all[k * 8];
    }
}

/* The partial scores of all depth groups together, in the first one's threads. */
DEVICE void add_depths(float *s, const struct score_place *place) {
    float *const parts = (float *)(arena + PARTS_OFFSET) + threadIdx.x % DEPTH_THREADS;
    if (SCORE_DEPTH_GROUPS == 1) {
        return;
    }
    if (place->depth > 0) {
#pragma unroll
        for (int i = 0; i < SCORES; ++i) {
            parts[((place->depth - 1) * SCORES + i) * DEPTH_THREADS] = s[i];
        }
    }
    __syncthreads();
    if (place->depth == 0) {
#pragma unroll
        for (int i = 0; i < (SCORE_DEPTH_GROUPS - 1) * SCORES; ++i) {
            s[i % SCORES] += parts[i * DEPTH_THREADS];
        }
    }
}

/* The sums of p over the warp's heads, to SUMS, by four lanes. */
DEVICE void store_sums(const float *s, const float *offsets, float scale_log2,
                       const struct score_place *place) {
    const int lane = (int)(threadIdx.x % 32);
    float *const sums = (float *)(arena + SUMS_OFFSET) + place->tile / SCORE_TILES * BLOCK_KEYS +
                        place->key + lane * 2;
#pragma unroll
    for (int n = 0; n < SCORE_PAIRS * 2; ++n) {
        float sum[2] = {0.0f, 0.0f}; /* of two keys */
#pragma unroll
        for (int m = 0; m < SCORE_TILES; ++m) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float score = s[(m * SCORE_PAIRS * 2 + n) * 4 + i];
                sum[i % 2] += exp2_approximate(fmaf(score, scale_log2, offsets[m * 2 + i / 2]));
            }
        }
#pragma unroll
        for (int mask = 4; mask <= 16; mask *= 2) {
            sum[0] += __shfl_xor_sync((u32)ALL_LANES, sum[0], mask);
            sum[1] += __shfl_xor_sync((u32)ALL_LANES, sum[1], mask);
        }
        if (lane < 4) {
            sums[n * 8] = sum[0];
            sums[n * 8 + 1] = sum[1];
        }
    }
}

/* A key block's sums over all of the part's heads, to the target: a slot a thread. (Slots past the
 * last have masked entries, since a scan looks at as many slots as there are threads.) */
DEVICE void store_target(const struct sparse_scores_fwd_params *params, const struct task *task,
                         int block, bool add) {
    const int key = (int)threadIdx.x, slot = block * BLOCK_KEYS + key;
    if (key >= BLOCK_KEYS || slot >= params->work.width) {
        return;
    }
    const float *const sums = (const float *)(arena + SUMS_OFFSET) + key;
    float sum = sums[0];
#pragma unroll
    for (int group = 1; group < SCORE_HEAD_GROUPS; ++group) {
        sum += sums[group * BLOCK_KEYS];
    }
    const bool valid = block_scan_entries(block)[key] >= 0;
    if (add) {
        task->target[slot] += valid ? sum : 0.0f;
    } else {
        task->target[slot] = valid ? sum : 0.0f;
    }
}

/* The part of a query's heads that begins with `first_head`; the target of slots past the last key
 * block becomes 0. Called by the whole block, behind a barrier; behind its last one no shared
 * memory is looked at. */
DEVICE void compute_part(const struct sparse_scores_fwd_params *params, const struct task *task,
                         int first_head) {
    const struct score_place place = find_score_place();
    struct block_scan scan;
    float offsets[SCORE_TILES * 2];
    int block = 0;

    block_scan_begin(&scan);
    store_offsets(params, task, first_head);
    load_query((const char *)params->q + 2 * (task->batch * params->q_batch_stride +
                                              task->token * params->q_token_stride),
               params->q_head_stride, first_head);
#pragma unroll
    for (int i = 0; i < STAGES - 1; ++i) {
        begin_block(&scan, task->kv, params->kv_row_bytes, i);
    }
    for (;; ++block) {
        wait_for_block();
        const int count = block_scan_count(&scan, block);
        if (count == 0) {
            break;
        }
        begin_block(&scan, task->kv, params->kv_row_bytes, block + STAGES - 1);
        if (block == 0) {
            load_offsets(offsets, &place);
        }
        float s[SCORES];
        compute_scores(s, 0, &place, block % STAGES, SCORE_TILES);
        add_depths(s, &place);
        if (place.depth == 0) {
            store_sums(s, offsets, params->scale * LOG2_E, &place);
        }
        __syncthreads();
        store_target(params, task, block, first_head > 0);
    }
    for (int slot = block * BLOCK_KEYS + (int)threadIdx.x; slot < params->work.width;
         slot += THREADS) {
        task->target[slot] = 0.0f;
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct sparse_scores_fwd_params params) {
    begin_grid(&params.work);
    __syncthreads();
    struct work work = first_work(&params.work);
    while (work.query >= 0) {
        const struct task task = find_task(&params, &work);
        __syncthreads();
        for (int head = 0; head < HEADS; head += BLOCK_HEADS) {
            compute_part(&params, &task, head);
        }
        work = next_work(&params.work, &work);
    }
    end_grid(&params.work);
}
