/*
 * Written by smelt; do not edit. To write it again:
 *   smelt emit indexer_bwd_lists --arch sm_90a
 *
 * spec     indexer_bwd_lists
 * arch     sm_90a
 * variant  lists
 * kernel   smelt_indexer_bwd_lists
 * knobs (by the spec, or by rule)
 * shared memory (offset, bytes)
 *   MAP_OFFSET                       0    20480  a bit for each row and member, and where keys stand
 *   ENTRIES_OFFSET               20480    32768  entries of a list
 *   COUNTS_OFFSET                53248       64  keys of each warp's words
 *   SHARED_BYTES                 53312  of 232448 that a block may have on sm_90a
 * launch
 *   256 threads a block, 4 blocks resident per multiprocessor, at most 64 registers a thread
 *   grid: 1 block a group, but no more than are resident at once
 *   persistent: in a grid-stride loop a block does the work of several
 */

enum {
    THREADS = 256,                  /* of a thread block */
    BLOCKS_PER_MULTIPROCESSOR = 4,  /* resident at once, at least */
    LOADS = 4,                      /* that a thread has under way */
    LIST_STEP = 64,                 /* lists are padded to a multiple of it */
    MAP_BYTES = 20480,              /* of the map */
    ENTRIES = 8192,                 /* of a list that are put together at a time */
};

/* Shared memory, in bytes from the arena's start. */
enum {
    MAP_OFFSET = 0,                 /* a bit for each row and member, and where keys stand */
    ENTRIES_OFFSET = 20480,         /* entries of a list */
    COUNTS_OFFSET = 53248,          /* keys of each warp's words */
    SHARED_BYTES = 53312,           /* the arena's size */
};

#define KERNEL_NAME smelt_indexer_bwd_lists

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

#line 2 "templates/common/lanes.cuh"

/* Reductions over `lanes` neighbouring threads of a warp, a power of two: the same result in each
 * of them. The whole warp takes part. */

DEVICE int lanes_sum(int value, int lanes) {
    for (int step = lanes / 2; step > 0; step /= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, step);
    }
    return value;
}

/* (Not the smallest by negated values: of -a in the smallest of three ptxas of CUDA 13.0 drops the
 * sign.) */
DEVICE int lanes_maximum(int value, int lanes) {
    for (int step = lanes / 2; step > 0; step /= 2) {
        value = maximum(value, __shfl_xor_sync(0xffffffffu, value, step));
    }
    return value;
}

#line 2 "templates/common/zeros.cuh"
/*
 * What kernels behind this one add to begins as zeros: each block fills its share, in any grid.
 */

/* `vectors` of four floats, at a multiple of 16 bytes; by all threads of all blocks. */
DEVICE void fill_zeros(float *begin, i64 vectors) {
    const float4 zeros = {0.0f, 0.0f, 0.0f, 0.0f};
    float4 *const end = (float4 *)begin + vectors;
    for (float4 *at = (float4 *)begin + blockIdx.x * THREADS + threadIdx.x; at < end;
         at += gridDim.x * THREADS) {
        *at = zeros;
    }
}

#line 1 "templates/indexer_bwd_lists.params.h"
/*
 * Arguments of the indexer_bwd_lists kernel: each group's list of keys, and their gradients.
 * Included by the host code and, by the generator, by the CUDA source: plain C types only. Strides
 * count elements. See indexer_bwd_main.params.h for groups, include/smelt/indexer_bwd.h for slots.
 */
struct indexer_bwd_lists_params {
    const int *indices;     /* [tokens, width] */
    const int *topk_length; /* [tokens] slots that are looked at; or null: all */
    const float *grad;      /* [tokens, width]; of masked slots it is not read */
    int *members;           /* [groups, group_queries] query group * group_queries + member; -1 past
                               the last */
    int *counts;            /* [groups] keys in the list */
    int *runs; /* [groups, 2] or null: where the keys of the second half of the members begin, and
                  where those of the first half end. The list is then: keys of the first half alone,
                  of both halves, of the second half alone; else it is of one part. Keys of a part
                  are strictly ascending */
    int *keys; /* [groups, key_stride]; -1 behind a list's end, up to the next multiple of
                  LIST_STEP */
    float *grads; /* [groups, group_queries, key_stride] for each key the sum of the member's slots
                     that name it, in their order; 0 where there is none, and where keys has -1 */
    float *zeros; /* [zero_vectors, 4] is filled with zeros, too: the sums that the kernels behind
                     it add to */
    long long zero_vectors;
    long long indices_token_stride, topk_length_token_stride, grad_token_stride;
    int tokens, rows, width;
    int groups;
    int group_queries; /* 1, 2, 4 or 8; an even number with runs */
    int key_stride;    /* a multiple of LIST_STEP, at least group_queries * width */
};

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

#line 7 "templates/indexer_bwd_lists.cu"
/*
 * The indexer's backward pass, ahead of the main kernel: each group's list of keys, out of its
 * members' index rows, with the slots' gradients. What is written: indexer_bwd_lists.params.h.
 *
 * A block takes a group at a time, and a share of the zeros; any grid is right: what is written
 * depends on the arguments alone. Of each window of rows, of as many as the map holds:
 *
 *   mark   a map has a bit for each member and row; slots set theirs, in any order
 *   count  the map's words, read in order, say where each word's first key of each part stands;
 *          of the members' bits what is needed from there on is kept, those of each half
 *   store  keys, then each member's gradients, are put together in shared memory, ENTRIES at a
 *          time, since scattered stores to global memory take most of the time else: keys by going
 *          through the map, gradients by a second look at the member's slots
 *
 * A bit found set belongs to a slot that names a key again. Then gradients are added in the slots'
 * order, by one warp. Lists in parts that take several windows are counted ahead, for the second
 * part begins behind all of the first.
 *
 * Shared memory:
 *   MAP     [columns][words] u32: bits of each member, row by row; once they are counted those of
 *           the first half of the members (of all, without runs) and of the second. Behind them
 *           where each word's first key of each part stands
 *   ENTRIES [ENTRIES] u32 or fp32, of the window's list
 *   COUNTS  [WARPS] struct counts
 *
 * Barriers of a window: the map is empty; bits are set; COUNTS are there; the map is counted; then
 * of each array, ENTRIES at a time: they are there, they are stored.
 */

enum {
    WARPS = THREADS / 32,
    ALL_LANES = -1,
    MASKED = -1,
    HALF_BITS = 16 /* of a packed count */
};

/* Parts of a list: keys of the first half of the members alone, of both, of the second alone. */
enum { FIRST_HALF, BOTH_HALVES, SECOND_HALF, PARTS };

/* What is done with the windows of a list. */
enum { COUNT_AHEAD, STORE };

/* Rows that the map has bits of at a time. */
struct window {
    u32 first, rows;
    int words;
};

/* Keys of each part: of a window, or of one behind the other. */
struct counts {
    u32 alone; /* of the first half; << HALF_BITS: of the second. Each of a warp's words only */
    u32 both;
};

/* A group's list while it is made; the same in all threads. Two orders: that of the window's list,
 * which has its parts one behind the other, and that of the whole list. */
struct list {
    int group;
    bool runs;
    int ends[PARTS];      /* of the whole list, where the next key of a part goes */
    int parts[PARTS + 1]; /* of the window's list, where its parts begin; and its end */
};

DEVICE u32 *map_words(void) {
    return (u32 *)(arena + MAP_OFFSET);
}

DEVICE u32 *entries(void) {
    return (u32 *)(arena + ENTRIES_OFFSET);
}

/* Columns of the map that have bits; the halves take two of them, whatever the members. */
DEVICE int bit_columns(const struct indexer_bwd_lists_params *params) {
    return maximum(params->group_queries, 2);
}

/* Of each word of a window, where its first key of a part stands. */
DEVICE u32 *map_places(const struct indexer_bwd_lists_params *params, const struct window *window,
                       int part) {
    return map_words() + (bit_columns(params) + part) * window->words;
}

/* ---- slots ----------------------------------------------------------------------------------- */

/* A member's slots, of which the first `count` are looked at. */
struct slots {
    const int *indices;
    const float *grad;
    int count;
};

DEVICE struct slots member_slots(const struct indexer_bwd_lists_params *params, int group,
                                 int member) {
    const i64 query = (i64)group * params->group_queries + member;
    struct slots slots = {params->indices, params->grad, 0};
    if (query < params->tokens) {
        slots.indices += query * params->indices_token_stride;
        slots.grad += query * params->grad_token_stride;
        slots.count = params->width;
        if (params->topk_length) {
            const int given = params->topk_length[query * params->topk_length_token_stride];
            slots.count = minimum(maximum(given, 0), params->width);
        }
    }
    return slots;
}

/* The row of the window that a slot names, or one that it has not. */
DEVICE u32 window_row(const struct window *window, const struct slots *slots, int slot) {
    return slot < slots->count ? (u32)slots->indices[slot] - window->first : (u32)MASKED;
}

/* Whether the bit was set before. */
DEVICE bool set_bit(u32 column, u32 row) {
    const u32 bit = 1u << row % 32;
    return atomic_or_shared(shared_address(MAP_OFFSET + (column + row / 32) * 4), bit) & bit;
}

/* All members' slots of a window. Whether one names a row again, the same in all threads. */
DEVICE bool mark(const struct indexer_bwd_lists_params *params, const struct window *window,
                 int group) {
    bool again = false;
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < bit_columns(params) * window->words; i += THREADS) {
        map_words()[i] = 0;
    }
    __syncthreads();
#pragma unroll 1
    for (int member = 0; member < params->group_queries; ++member) {
        const struct slots slots = member_slots(params, group, member);
        const u32 column = (u32)(member * window->words);
#pragma unroll 1
        for (int begin = (int)threadIdx.x; begin < slots.count; begin += THREADS * LOADS) {
            u32 rows[LOADS];
#pragma unroll
            for (int i = 0; i < LOADS; ++i) {
                rows[i] = window_row(window, &slots, begin + i * THREADS);
            }
#pragma unroll
            for (int i = 0; i < LOADS; ++i) {
                again |= rows[i] < window->rows && set_bit(column, rows[i]);
            }
        }
    }
    return __syncthreads_or(again);
}

/* ---- the map, counted ------------------------------------------------------------------------ */

/* Rows of a word of the map that each half of the members has. */
struct halves {
    u32 first, second;
};

/* Those of the members' bits: without runs the first half is all of them. */
DEVICE struct halves read_members(const struct indexer_bwd_lists_params *params,
                                  const struct window *window, int word) {
    struct halves halves = {0, 0};
    for (int member = 0; member < params->group_queries; ++member) {
        const u32 bits = map_words()[member * window->words + word];
        if (params->runs && member >= params->group_queries / 2) {
            halves.second |= bits;
        } else {
            halves.first |= bits;
        }
    }
    return halves;
}

DEVICE u32 part_rows(struct halves halves, int part) {
    return part == FIRST_HALF    ? halves.first & ~halves.second
           : part == BOTH_HALVES ? halves.first & halves.second
                                 : halves.second & ~halves.first;
}

DEVICE struct counts count_rows(struct halves halves) {
    const struct counts counts = {(u32)__popc(part_rows(halves, FIRST_HALF)) |
                                      (u32)__popc(part_rows(halves, SECOND_HALF)) << HALF_BITS,
                                  (u32)__popc(part_rows(halves, BOTH_HALVES))};
    return counts;
}

/* Sum of the values of the lanes up to this one. */
DEVICE u32 sum_up_to(u32 value) {
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const u32 below = __shfl_up_sync((u32)ALL_LANES, value, (u32)step);
        value += lane >= step ? below : 0;
    }
    return value;
}

DEVICE void add_counts(int *keys, struct counts counts) {
    keys[FIRST_HALF] += (int)(counts.alone & (1u << HALF_BITS) - 1u);
    keys[BOTH_HALVES] += (int)counts.both;
    keys[SECOND_HALF] += (int)(counts.alone >> HALF_BITS);
}

/* A warp's share of a window's words. */
DEVICE int share_begin(const struct window *window, int warp) {
    const int share = (window->words + THREADS - 1) / THREADS * 32;
    return minimum(warp * share, window->words);
}

/* What a warp's words have, into COUNTS. */
DEVICE void count_share(const struct indexer_bwd_lists_params *params,
                        const struct window *window) {
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int end = share_begin(window, warp + 1);
    struct counts sum = {0, 0};
#pragma unroll 1
    for (int i = share_begin(window, warp) + lane; i < end; i += 32) {
        const struct counts counts = count_rows(read_members(params, window, i));
        sum.alone += counts.alone;
        sum.both += counts.both;
    }
    sum.alone = (u32)lanes_sum((int)sum.alone, 32);
    sum.both = (u32)lanes_sum((int)sum.both, 32);
    if (lane == 0) {
        ((struct counts *)(arena + COUNTS_OFFSET))[warp] = sum;
    }
    __syncthreads();
}

/* Where each of the warp's words' keys stand, from `keys` of each part on. */
DEVICE void place_share(const struct indexer_bwd_lists_params *params, const struct window *window,
                        int *keys) {
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int end = share_begin(window, warp + 1);
#pragma unroll 1
    for (int begin = share_begin(window, warp); begin < end; begin += 32) {
        const int word = begin + lane;
        struct halves halves = {0, 0};
        if (word < end) {
            halves = read_members(params, window, word);
        }
        const struct counts own = count_rows(halves);
        const struct counts sums = {sum_up_to(own.alone), sum_up_to(own.both)};
        int places[PARTS] = {keys[FIRST_HALF], keys[BOTH_HALVES], keys[SECOND_HALF]};
        const struct counts below = {sums.alone - own.alone, sums.both - own.both};
        const struct counts all = {__shfl_sync((u32)ALL_LANES, sums.alone, 31),
                                   __shfl_sync((u32)ALL_LANES, sums.both, 31)};
        add_counts(places, below);
        add_counts(keys, all);
        if (word < end) {
            map_words()[word] = halves.first;
            map_words()[window->words + word] = halves.second;
#pragma unroll
            for (int part = 0; part < PARTS; ++part) {
                map_places(params, window, part)[word] = (u32)places[part];
            }
        }
    }
}

/* The window's list: how many keys its parts have, and where each word's stand. */
DEVICE void count(const struct indexer_bwd_lists_params *params, const struct window *window,
                  struct list *list) {
    const struct counts *const counts = (const struct counts *)(arena + COUNTS_OFFSET);
    int before[PARTS] = {0, 0, 0}, all[PARTS] = {0, 0, 0};
    count_share(params, window);
#pragma unroll
    for (int warp = 0; warp < WARPS; ++warp) {
        if (warp < (int)threadIdx.x / 32) {
            add_counts(before, counts[warp]);
        }
        add_counts(all, counts[warp]);
    }
    list->parts[0] = 0;
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
        list->parts[part + 1] = list->parts[part] + all[part];
        before[part] += list->parts[part];
    }
    place_share(params, window, before);
    __syncthreads();
}

/* ---- entries --------------------------------------------------------------------------------- */

/* Entries [begin, begin + ENTRIES) of the window's list to global memory, and zeros in their
 * place; barriers before and behind. */
DEVICE void store_entries(const struct list *list, u32 *to, int begin) {
    __syncthreads();
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
        const int first = maximum(list->parts[part], begin);
        const int end = minimum(list->parts[part + 1], begin + ENTRIES);
        u32 *const own = to + (list->ends[part] - list->parts[part]);
#pragma unroll 1
        for (int i = first + (int)threadIdx.x; i < end; i += THREADS) {
            own[i] = entries()[i - begin];
            entries()[i - begin] = 0;
        }
    }
    __syncthreads();
}

/* An entry of the window's list; null: not among those from `begin` on. */
DEVICE u32 *find_entry(int place, int begin) {
    const u32 number = (u32)(place - begin);
    return number < (u32)ENTRIES ? entries() + number : 0;
}

DEVICE void place_keys(const struct indexer_bwd_lists_params *params, const struct window *window,
                       int begin) {
#pragma unroll 1
    for (int word = (int)threadIdx.x; word < window->words; word += THREADS) {
        const struct halves halves = {map_words()[word], map_words()[window->words + word]};
        const u32 key = window->first + (u32)word * 32;
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
            int place = (int)map_places(params, window, part)[word];
#pragma unroll 1
            for (u32 rest = part_rows(halves, part); rest; rest &= rest - 1) {
                u32 *const entry = find_entry(place++, begin);
                if (entry) {
                    *entry = key + (u32)__ffs((int)rest) - 1;
                }
            }
        }
    }
}

/* Where the gradient of a row of the window goes; null: not among the entries from `begin` on. */
DEVICE float *grad_entry(const struct indexer_bwd_lists_params *params, const struct window *window,
                         u32 row, int begin) {
    const u32 word = row / 32, bit = 1u << row % 32;
    const struct halves halves = {map_words()[word], map_words()[window->words + (int)word]};
    const int part = !(halves.second & bit)  ? FIRST_HALF
                     : !(halves.first & bit) ? SECOND_HALF
                                             : BOTH_HALVES;
    const int place =
        (int)map_places(params, window, part)[word] + __popc(part_rows(halves, part) & (bit - 1));
    return (float *)find_entry(place, begin);
}

/* Of slots that name no row twice. */
DEVICE void place_grads(const struct indexer_bwd_lists_params *params, const struct window *window,
                        const struct slots *slots, int begin) {
#pragma unroll 1
    for (int slot = (int)threadIdx.x; slot < slots->count; slot += THREADS * LOADS) {
        u32 rows[LOADS];
        float grads[LOADS];
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            rows[i] = window_row(window, slots, slot + i * THREADS);
        }
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            grads[i] = rows[i] < window->rows ? slots->grad[slot + i * THREADS] : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            float *const entry =
                rows[i] < window->rows ? grad_entry(params, window, rows[i], begin) : 0;
            if (entry) {
                *entry = grads[i];
            }
        }
    }
}

/* Of any slots, by one warp, a slot after the other. */
DEVICE void add_grads(const struct indexer_bwd_lists_params *params, const struct window *window,
                      const struct slots *slots, int begin) {
    const int lane = (int)threadIdx.x;
    for (int first = 0; lane < 32 && first < slots->count; first += 32) {
        const u32 row = window_row(window, slots, first + lane);
        float *const entry = row < window->rows ? grad_entry(params, window, row, begin) : 0;
#pragma unroll 1
        for (int turn = 0; turn < 32; ++turn) {
            if (entry && lane == turn) {
                *entry += slots->grad[first + lane];
            }
            __syncwarp((u32)ALL_LANES);
        }
    }
}

/* ---- lists ----------------------------------------------------------------------------------- */

DEVICE float *member_grads(const struct indexer_bwd_lists_params *params, int group, int member) {
    return params->grads + ((i64)group * params->group_queries + member) * params->key_stride;
}

/* The window's keys and gradients, behind those of the windows before. */
DEVICE void store_window(const struct indexer_bwd_lists_params *params, const struct window *window,
                         struct list *list, bool again) {
#pragma unroll 1
    for (int begin = 0; begin < list->parts[PARTS]; begin += ENTRIES) {
        place_keys(params, window, begin);
        store_entries(list, (u32 *)params->keys + (i64)list->group * params->key_stride, begin);
#pragma unroll 1
        for (int member = 0; member < params->group_queries; ++member) {
            const struct slots slots = member_slots(params, list->group, member);
            if (again) {
                add_grads(params, window, &slots, begin);
            } else {
                place_grads(params, window, &slots, begin);
            }
            store_entries(list, (u32 *)member_grads(params, list->group, member), begin);
        }
    }
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
        list->ends[part] += list->parts[part + 1] - list->parts[part];
    }
}

/* The window from a row on. */
DEVICE struct window open_window(const struct indexer_bwd_lists_params *params, u32 first) {
    const u32 most = (u32)(MAP_BYTES / 4 / (bit_columns(params) + PARTS) * 32);
    struct window window = {first, (u32)params->rows - first, 0};
    window.rows = window.rows < most ? window.rows : most;
    window.words = (int)((window.rows + 31) / 32);
    return window;
}

/* What stands beside a group's list: its members, its length, its parts; and behind it, up to the
 * next multiple of LIST_STEP. */
DEVICE void close_list(const struct indexer_bwd_lists_params *params, const struct list *list) {
    const int keys = list->runs ? list->ends[SECOND_HALF] : list->ends[FIRST_HALF];
    const int end = (keys + LIST_STEP - 1) / LIST_STEP * LIST_STEP;
    const int thread = (int)threadIdx.x;
#pragma unroll 1
    for (int i = keys + thread; i < end; i += THREADS) {
        params->keys[(i64)list->group * params->key_stride + i] = MASKED;
        for (int member = 0; member < params->group_queries; ++member) {
            member_grads(params, list->group, member)[i] = 0.0f;
        }
    }
    if (thread < params->group_queries) {
        const i64 entry = (i64)list->group * params->group_queries + thread;
        params->members[entry] = entry < params->tokens ? (int)entry : -1;
    }
    if (thread == 0) {
        params->counts[list->group] = keys;
    }
    if (thread == 0 && list->runs) {
        params->runs[2 * (i64)list->group] = list->ends[FIRST_HALF];
        params->runs[2 * (i64)list->group + 1] = list->ends[BOTH_HALVES];
    }
}

/* A counted window's keys, added to where those of the parts behind them begin. */
DEVICE void move_parts(struct list *list) {
    list->ends[BOTH_HALVES] += list->parts[BOTH_HALVES];
    list->ends[SECOND_HALF] += list->parts[SECOND_HALF];
}

DEVICE void make_list(const struct indexer_bwd_lists_params *params, int group) {
    struct list list = {group, params->runs != 0, {0, 0, 0}, {0, 0, 0, 0}};
    const bool alone = open_window(params, 0).rows == (u32)params->rows;
#pragma unroll 1
    for (int pass = list.runs && !alone ? COUNT_AHEAD : STORE; pass <= STORE; ++pass) {
#pragma unroll 1
        for (u32 first = 0; first < (u32)params->rows;) {
            const struct window window = open_window(params, first);
            const bool again = mark(params, &window, group);
            count(params, &window, &list);
            if (alone || pass == COUNT_AHEAD) {
                move_parts(&list);
            }
            if (pass == STORE) {
                store_window(params, &window, &list, again);
            }
            first += window.rows;
        }
    }
    close_list(params, &list);
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct indexer_bwd_lists_params params) {
    fill_zeros(params.zeros, params.zero_vectors);
    for (int group = (int)blockIdx.x; group < params.groups; group += (int)gridDim.x) {
        make_list(&params, group);
    }
}
