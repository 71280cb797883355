//@use common/base.cuh
//@use ptx/redux.cuh
//@use sparse_gqa_lists.unit.cuh
/*
 * Reverse index of sparse_gqa's lists, the pass before the first: decides which tiles' lists are
 * united, and unites them.
 *
 * Neighbouring queries often choose the same blocks. A kernel that computes a tile of them together
 * reads a block once and has no partial results to combine. It multiplies a block with all entries of a
 * part if one of them chose it. So uniting is faster only where blocks, summed over the parts, are few
 * compared with the pairs of an entry and a block.
 *
 * Not united are tiles with queries of several batches, or with a list that names a block twice.
 *
 * Grid: a warp for each tile and group. Shared memory: SLOTS [WARPS][MOST_SLOTS] u64, of which a slot
 * is its block, its entry of the tile, and how many keys the query reads; ~0: masked.
 */

enum { ENTRY_BITS = 5, KEYS_BITS = 8, LOW_BITS = ENTRY_BITS + KEYS_BITS };

DEVICE u64 *slots_of(int warp) {
    return (u64 *)(arena + SLOTS_OFFSET) + warp * MOST_SLOTS;
}

DEVICE int block_of(u64 slot) {
    return (int)(slot >> LOW_BITS);
}

/* Writes the slots of a tile, and returns how many are valid; 0, too, if its queries are of several
 * batches. By a warp. */
DEVICE int read_slots(const struct sparse_gqa_lists_params *params, int tile, int group,
                      int entries, u64 *slots) {
    const int width = params->work.width, all = params->tile_entries * width;
    int valid = 0, least = params->work.batches, most = -1; /* batches */
#pragma unroll 2
    for (int i = (int)threadIdx.x % 32; i < all; i += 32) {
        const int entry = tile * params->tile_entries + i / width;
        struct chooser chooser = {0, 0, 0, -1, 0};
        int block;
        if (entry < entries) {
            chooser = find_chooser(params, params->first + entry, group);
        }
        const int keys = slot_keys(params, &chooser, i % width, &block);
        slots[i] =
            keys > 0 ? (u64)block << LOW_BITS | (u64)(i / width) << KEYS_BITS | (u64)keys : ~(u64)0;
        valid += keys > 0;
        if (chooser.query >= 0) {
            least = minimum(least, chooser.batch);
            most = maximum(most, chooser.batch);
        }
    }
    if (warp_reduce_min((u32)least) != warp_reduce_max((u32)(most + 1)) - 1u) {
        return 0;
    }
    return (int)warp_reduce_add((u32)valid);
}

/* Whether the first two entries of a tile have half of their blocks in common. If not, the rest of the
 * tile is not examined. By a warp. */
DEVICE bool begins_alike(const struct sparse_gqa_lists_params *params, int tile, int group,
                         int entries) {
    const int lane = (int)threadIdx.x % 32, first = tile * params->tile_entries;
    int common = 0, least = 0;
    if (params->tile_entries < 2 || first + 1 >= entries) {
        return true;
    }
    const struct chooser a = find_chooser(params, params->first + first, group);
    const struct chooser b = find_chooser(params, params->first + first + 1, group);
    for (int base = 0; base < params->work.width; base += 32) {
        int block, other, found = 0;
        const bool valid = slot_keys(params, &a, base + lane, &block) > 0;
        least += valid;
        for (int from = 0; from < params->work.width; from += 32) {
            if (slot_keys(params, &b, from + lane, &other) == 0) {
                other = -1;
            }
            for (int i = 0; i < minimum(params->work.width - from, 32); ++i) {
                found |= __shfl_sync((u32)ALL_LANES, other, i) == block;
            }
        }
        common += valid && found;
    }
    return 2 * warp_reduce_add((u32)common) >= warp_reduce_add((u32)least);
}

/* Sorts `count` slots, a power of two. By a warp. */
DEVICE void sort_slots(u64 *slots, int count) {
    for (int size = 2; size <= count; size *= 2) {
        for (int distance = size / 2; distance > 0; distance /= 2) {
            __syncwarp((u32)ALL_LANES);
            for (int i = (int)threadIdx.x % 32; i < count / 2; i += 32) {
                const int within = i & (distance - 1), low = 2 * i - within;
                const u64 a = slots[low], b = slots[low + distance];
                if ((a > b) == ((low & size) == 0)) {
                    slots[low] = b;
                    slots[low + distance] = a;
                }
            }
        }
    }
    __syncwarp((u32)ALL_LANES);
}

/* A block of the united list, from the first of its slots on. */
DEVICE int4 unite_slots(const u64 *slots, int first, int count) {
    int4 block = {block_of(slots[first]), 0, 0, 0};
    for (int i = first; i < count && block_of(slots[i]) == block.x; ++i) {
        block.y |= 1 << ((int)(slots[i] >> KEYS_BITS) & ((1 << ENTRY_BITS) - 1));
        block.z = maximum(block.z, (int)slots[i] & ((1 << KEYS_BITS) - 1));
    }
    return block;
}

/* The parts of a tile that have at least one of the entries, a bit each. */
DEVICE int parts_of(const struct sparse_gqa_lists_params *params, u32 entries) {
    const u32 first = (1u << params->part_entries) - 1u;
    return (entries & first ? 1 : 0) | (entries & ~first ? 2 : 0);
}

/* Blocks of a united list, by the parts that read them. */
enum { BOTH = 3 };
struct tally {
    int of[BOTH + 1];
};

/* The index in the united list of the block that is number `rank` of those that the same parts read.
 * Blocks of one part alternate with blocks of the other, so that both parts have work. These pairs are
 * spread evenly among the blocks of both parts, since a pair takes twice as many copies. Up to LEAD blocks
 * of the first part begin the list, and as many of the second end it: the first part then begins the
 * next tile while the second finishes this one. */
DEVICE int place_of(const struct tally *total, int parts, int rank) {
    enum { LEAD = 2 };
    const int lead = minimum(minimum(total->of[1], total->of[2]), LEAD);
    const int both = total->of[BOTH], own = parts == 1 ? rank - lead : rank;
    const int pairs = minimum(total->of[1], total->of[2]) - lead;
    if (parts == BOTH) {
        return lead + rank + 2 * minimum(pairs, ((rank + 1) * (pairs + 1) - 1) / both);
    }
    if (own < 0) {
        return rank;
    }
    return own < pairs  ? lead + (own + 1) * both / (pairs + 1) + 2 * own + parts - 1
           : parts == 1 ? both + pairs + rank
                        : both + total->of[1] + rank;
}

/* Whether a list names a block twice. By a warp. */
DEVICE bool has_repetitions(const u64 *slots, int count) {
    bool any = false;
    for (int i = 1 + (int)threadIdx.x % 32; i < count; i += 32) {
        any |= slots[i] >> KEYS_BITS == slots[i - 1] >> KEYS_BITS;
    }
    return __any_sync((u32)ALL_LANES, any) != 0;
}

/* Unites `count` sorted slots and counts the blocks by the parts that read them. Writes the list to
 * `united`, if that is not null; `total` then holds the counts of an earlier call. By a warp. */
DEVICE struct tally unite(const struct sparse_gqa_lists_params *params, const u64 *slots, int count,
                          const struct tally *total, int4 *united) {
    const int lane = (int)threadIdx.x % 32;
    struct tally tally = {{0, 0, 0, 0}};
    for (int base = 0; base < count; base += 32) {
        const int i = base + lane;
        const bool first = i < count && (i == 0 || block_of(slots[i]) != block_of(slots[i - 1]));
        int4 block = {0, 0, 0, 0};
        if (first) {
            block = unite_slots(slots, i, count);
        }
        const int parts = parts_of(params, (u32)block.y);
#pragma unroll
        for (int k = 1; k <= BOTH; ++k) {
            const u32 same = __ballot_sync((u32)ALL_LANES, parts == k);
            if (united && parts == k) {
                united[place_of(total, k, tally.of[k] + __popc(same & ((1u << lane) - 1u)))] =
                    block;
            }
            tally.of[k] += __popc(same);
        }
    }
    return tally;
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct sparse_gqa_lists_params params) {
    const int number = (int)(blockIdx.x * WARPS + threadIdx.x / 32);
    const int tile = number / params.groups, group = number % params.groups;
    const int listed = find_query_range(&params.work).queries - params.first;
    const int entries = minimum(listed, params.entries);
    u64 *const slots = slots_of((int)threadIdx.x / 32);
    const int all = params.tile_entries * params.work.width;
    int size = 32;
    if (tile * params.tile_entries >= params.entries) {
        return;
    }
    const int valid = begins_alike(&params, tile, group, entries)
                          ? read_slots(&params, tile, group, entries, slots)
                          : 0;
    while (size < all) {
        size *= 2;
    }
    for (int i = all + (int)threadIdx.x % 32; i < size; i += 32) {
        slots[i] = ~(u64)0;
    }
    int blocks = 0;
    if (valid > 0) {
        sort_slots(slots, size);
        const struct tally total = unite(&params, slots, valid, 0, 0);
        const int cost = total.of[1] + total.of[2] + 2 * total.of[BOTH]; /* parts' blocks */
        if (!has_repetitions(slots, valid) &&
            (i64)cost * 100 <= (i64)valid * params.most_tile_cost) {
            unite(&params, slots, valid, &total, (int4 *)params.united + (i64)number * all);
            blocks = total.of[1] + total.of[2] + total.of[BOTH];
        }
    }
    if (threadIdx.x % 32 == 0) {
        params.tiles[number] = blocks;
    }
}
