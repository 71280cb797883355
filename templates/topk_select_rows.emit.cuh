//@use topk_select_rows.bound.cuh
/*
 * From a list that holds a window's best to what is written.
 *
 * Ascending by index without values: each chosen element is a bit of a map, and its place is the
 * number of bits before it. Else the chosen entries are sorted: Batcher's bitonic network (K. E.
 * Batcher, Sorting networks and their applications, 1968), which takes any number of entries.
 */

enum { WORDS = BLOCK / 32 /* of the map, a block */ };

DEVICE u32 *map_words(void) {
    return (u32 *)(arena + MAP_OFFSET);
}

DEVICE int *block_counts(void) {
    return (int *)(arena + BLOCK_COUNTS_OFFSET);
}

DEVICE u32 *equal_words(void) {
    return (u32 *)(arena + EQUAL_OFFSET) + warp_number() * 32;
}

/* Puts keys where the list has scores. */
DEVICE void order_entries(int count) {
    for (int i = (int)threadIdx.x; i < count; i += THREADS) {
        const u64 entry = list()[i];
        list()[i] = (u64)ordered_key((u32)(entry >> 32)) << 32 | (u32)entry;
    }
}

/* The least entry of those wanted; the list holds keys. */
DEVICE u64 least_wanted(int count, int wanted) {
    u32 least = ~0u, most = 0;
    if (count <= wanted) {
        return 0;
    }
    for (int i = (int)threadIdx.x; i < count; i += THREADS) {
        const u32 key = (u32)(list()[i] >> 32);
        least = key < least ? key : least;
        most = key > most ? key : most;
    }
    return find_threshold(count, wanted, range_of(least, most), 0, 0).entry;
}

/* ---- elements equal to the bound ------------------------------------------------------------- */

/* Lane n's 32 elements from 32 * n on, the first in bit 31, out of all lanes' masks. */
DEVICE u32 turn_masks(u32 mask) {
    u32 *const words = equal_words();
    const int shift = 28 - 4 * (lane_number() / 4);
    u32 word = 0;
    words[lane_number()] = mask;
    __syncwarp((u32)ALL_LANES);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        word = word << 4 | (words[lane_number() % 4 * 8 + i] >> shift & 15u);
    }
    __syncwarp((u32)ALL_LANES);
    return word;
}

/* A lane's elements of a block that are equal to the bound. */
DEVICE u32 equal_elements(const struct window *window, int block, u32 key) {
    u32 values[VECTORS][VECTOR];
    u32 mask = 0;
    if (block >= window->blocks) {
        return 0;
    }
    load_block(window, block, values);
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
#pragma unroll
        for (int c = 0; c < VECTOR; ++c) {
            mask = mask << 1 | (ordered_key(values[i][c]) == key);
        }
    }
    return mask & mask_inside(window, block);
}

DEVICE u64 make_entry(u32 key, u32 element) {
    return ORDER_BY_SCORE ? (u64)key << 32 | ~element : (u64)~element << 32 | key;
}

/* Takes the first `wanted` elements equal to the bound into the map, or into the list behind its
 * `count` entries. */
DEVICE void take_equal(const struct window *window, u32 key, int wanted, bool mapped, int count) {
    u32 *const sums = warp_numbers(WARP_SUM);
    int taken = 0;
#pragma unroll 1
    for (int first = 0; first < window->blocks && taken < wanted; first += WARPS) {
        const int block = first + warp_number();
        u32 word = turn_masks(equal_elements(window, block, key));
        const int own = __popc(word), inclusive = sum_lanes_before(own);
        if (lane_number() == 31) {
            sums[warp_number()] = (u32)inclusive;
        }
        __syncthreads();
        const u32 sum = lane_number() < WARPS ? sums[lane_number()] : 0;
        int rank = taken + inclusive - own +
                   (int)warp_reduce_add(lane_number() < warp_number() ? sum : 0);
        while (word && rank < wanted) {
            const u32 bit = (u32)__clz(word), element = (u32)(block * BLOCK + lane_number() * 32) + bit;
            word &= ~(0x80000000u >> bit);
            if (mapped) {
                map_words()[element / 32] |= 0x80000000u >> bit;
            } else {
                list()[count + rank] = make_entry(key, element);
            }
            ++rank;
        }
        taken += (int)warp_reduce_add(sum);
        __syncthreads();
    }
}

/* ---- ascending by index ---------------------------------------------------------------------- */

/* The map of the entries from `least` on. Ends with a barrier. */
DEVICE void make_map(const struct window *window, int count, u64 least) {
    const u32 words = shared_address(MAP_OFFSET);
    for (int i = (int)threadIdx.x; i < window->blocks * WORDS; i += THREADS) {
        map_words()[i] = 0;
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < count; i += THREADS) {
        const u64 entry = list()[i];
        if (entry >= least) {
            const u32 element = ~(u32)entry;
            atomic_or_shared(words + element / 32 * 4, 0x80000000u >> element % 32);
        }
    }
    __syncthreads();
}

/* How many elements of the map are in the blocks before this one, of all warps alike. */
DEVICE int sum_blocks_before(int block) {
    int before = 0;
#pragma unroll
    for (int i = 0; i < MAP_BLOCKS; i += 32) {
        const int other = i + lane_number();
        before += other < block ? block_counts()[other] : 0;
    }
    return (int)warp_reduce_add((u32)before);
}

/* Writes the elements of the map in order over the list. Ends with a barrier. */
DEVICE void list_map(const struct window *window) {
    u32 *const elements = (u32 *)list();
    for (int block = warp_number(); block < window->blocks; block += WARPS) {
        const u32 count =
            warp_reduce_add((u32)__popc(map_words()[block * WORDS + lane_number()]));
        if (lane_number() == 0) {
            block_counts()[block] = (int)count;
        }
    }
    __syncthreads();
    for (int block = warp_number(); block < window->blocks; block += WARPS) {
        u32 word = map_words()[block * WORDS + lane_number()];
        const int own = __popc(word);
        int place = sum_blocks_before(block) + sum_lanes_before(own) - own;
        while (word) {
            const u32 bit = (u32)__clz(word);
            word &= ~(0x80000000u >> bit);
            elements[place++] = (u32)(block * BLOCK + lane_number() * 32) + bit;
        }
    }
    __syncthreads();
}

/* ---- sorted ---------------------------------------------------------------------------------- */

/* Moves the entries from `least` on to the list's beginning, as they are to be sorted; how many.
 * Those of THREADS places are read before any of them is written, none of which lies further on.
 * Ends with a barrier. */
DEVICE int gather_entries(int count, u64 least) {
    if (threadIdx.x == 0) {
        shared_numbers()[LIST_COUNT] = 0;
    }
    __syncthreads();
#pragma unroll 1
    for (int begin = 0; begin < count; begin += THREADS) {
        const int i = begin + (int)threadIdx.x;
        const u64 entry = i < count ? list()[i] : 0;
        const bool chosen = i < count && entry >= least;
        const u32 lanes = __ballot_sync((u32)ALL_LANES, chosen);
        u32 place = 0;
        if (lane_number() == 0) {
            place = atomic_add_shared(shared_number_address(LIST_COUNT), (u32)__popc(lanes));
        }
        place = __shfl_sync((u32)ALL_LANES, place, 0) +
                (u32)__popc(lanes & ((1u << lane_number()) - 1u));
        __syncthreads();
        if (chosen) {
            list()[place] = make_entry((u32)(entry >> 32), ~(u32)entry);
        }
    }
    __syncthreads();
    return shared_numbers()[LIST_COUNT];
}

/* One step of the network: entries `stride` apart in runs of 2 * stride, or mirrored in them. */
DEVICE void sort_step(int count, int stride, bool mirrored) {
    for (int i = (int)threadIdx.x;; i += THREADS) {
        const int within = i & (stride - 1), low = 2 * i - within;
        const int high = mirrored ? low + 2 * (stride - within) - 1 : low + stride;
        if (low >= count) {
            break;
        }
        if (high < count && list()[low] < list()[high]) {
            const u64 larger = list()[high];
            list()[high] = list()[low];
            list()[low] = larger;
        }
    }
    __syncthreads();
}

/* Descending. Begins behind a barrier and ends with one. */
DEVICE void sort_list(int count) {
    for (int run = 1; run < count; run *= 2) {
        sort_step(count, run, true);
        for (int stride = run / 2; stride > 0; stride /= 2) {
            sort_step(count, stride, false);
        }
    }
}

/* ---- what is written ------------------------------------------------------------------------- */

/* Place i of a row: an element, or none; and its score. */
DEVICE void store_place(const struct topk_select_rows_params *params, const struct window *window,
                        int row, int i, bool there, u32 element, u32 key, u32 offset) {
    params->indices[row * params->indices_stride + i] =
        there ? (int)(element + (u32)window->column + offset) : -1;
    if (params->values) {
        params->values[row * params->values_stride + i] = there ? key_score(key) : minus_infinity();
    }
}

/* The elements, or else the entries, that the list now begins with. A map is made of windows that
 * fill all places. */
DEVICE void store_row(const struct topk_select_rows_params *params, const struct window *window,
                      int row, int wanted, bool mapped) {
    const u32 offset =
        (u32)params->index_offset + (params->offset ? (u32)params->offset[row] : 0);
    const u32 *const elements = (const u32 *)list();
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < TOPK; i += THREADS) {
        if (mapped) {
            store_place(params, window, row, i, true, elements[i], 0, offset);
        } else {
            const u64 entry = i < wanted ? list()[i] : 0;
            const u32 high = (u32)(entry >> 32), low = (u32)entry;
            store_place(params, window, row, i, i < wanted, ~(ORDER_BY_SCORE ? low : high),
                        ORDER_BY_SCORE ? high : low, offset);
        }
    }
}

/* Writes a row out of its list of scores. */
DEVICE void emit_row(const struct topk_select_rows_params *params, const struct window *window,
                     int row, int wanted, struct found found) {
    const bool mapped = !ORDER_BY_SCORE && !params->values && window->blocks <= MAP_BLOCKS;
    order_entries(found.count);
    __syncthreads();
    const u64 least = least_wanted(found.count, wanted);
    const int missing = maximum(wanted - found.count, 0);
    if (mapped) {
        make_map(window, found.count, least);
        if (missing > 0) {
            take_equal(window, found.bound.key, missing, true, 0);
        }
        list_map(window);
    } else {
        const int count = gather_entries(found.count, least);
        if (missing > 0) {
            take_equal(window, found.bound.key, missing, false, count);
        }
        sort_list(wanted);
    }
    store_row(params, window, row, wanted, mapped);
}

/* A window of at most TOPK elements: all of it, in order. */
DEVICE void emit_whole(const struct topk_select_rows_params *params, const struct window *window,
                       int row) {
    const u32 offset =
        (u32)params->index_offset + (params->offset ? (u32)params->offset[row] : 0);
    for (int i = (int)threadIdx.x; i < TOPK; i += THREADS) {
        store_place(params, window, row, i, i < window_length(window),
                    (u32)(window->first + i), 0, offset);
    }
}
