//@use common/base.cuh
//@use sparse_gqa_lists.unit.cuh
/*
 * Reverse index of sparse_gqa's lists, third pass: writes the pairs.
 *
 * Grid: a CTA for each chunk, group and LISTS_AT_ONCE of the group's lists. Each warp has consecutive
 * entries of the chunk and its own counters, one for each list. The warps first count their pairs;
 * then each counter is replaced by the number of the warp's first pair in the list. So the entries of
 * a warp, which it processes one after another, get ascending numbers. Slots of one entry that name
 * the same block may get their numbers in any order: their pairs are equal.
 *
 * Shared memory: COUNTERS [WARPS][LISTS_AT_ONCE] int.
 */

DEVICE void write_pair(const struct sparse_gqa_lists_params *params, int pair, int entry, int query,
                       int keys) {
    if (params->queries) {
        params->queries[pair] = entry;
    }
    if (params->pairs) {
        const int2 both = {query, keys};
        ((int2 *)params->pairs)[pair] = both;
    }
}

/* Writes the pairs of an entry. By a warp. */
DEVICE void place_slots(const struct sparse_gqa_lists_params *params, int entry, int group,
                        int base, int row) {
    //@if UNITES
    if (is_united(params, entry, group)) {
        return; /* the merge kernel reads no partial results of it */
    }
    //@end
    const struct chooser chooser = find_chooser(params, entry, group);
    const i64 first_place =
        ((i64)(entry - params->first) * params->groups + group) * params->work.width;
    for (int slot = (int)threadIdx.x % 32; slot < params->work.width; slot += 32) {
        int block, pair = -1;
        const int keys = slot_keys(params, &chooser, slot, &block);
        const int list = chooser.batch * params->blocks + block - base;
        if (keys > 0 && list >= 0 && list < LISTS_AT_ONCE) {
            pair = (int)atomic_add_shared(counter_address(row, list), 1);
            write_pair(params, pair, entry, chooser.query, keys);
        }
        if (params->places && (pair >= 0 || (keys == 0 && base == 0))) {
            params->places[first_place + slot] = pair;
        }
    }
    __syncwarp((u32)ALL_LANES);
}

/* Turns the warps' counts of lists into the numbers of their first pairs. */
DEVICE void begin_pairs(const struct sparse_gqa_lists_params *params, const int *counts, int group,
                        int base, int lists) {
    for (int i = (int)threadIdx.x; i < minimum(lists - base, LISTS_AT_ONCE); i += THREADS) {
        const int list = list_number(params, group, base + i);
        int pair = params->starts[list] + counts[list];
#pragma unroll
        for (int warp = 0; warp < WARPS; ++warp) {
            const int count = counters(warp)[i];
            counters(warp)[i] = pair;
            pair += count;
        }
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct sparse_gqa_lists_params params) {
    const struct part part = find_part(&params);
    const struct chunk chunk = find_chunk(&params, part.chunk);
    const int *const counts = params.counts + (i64)part.chunk * part.lists * params.groups;
    const int each = (params.chunk_entries + WARPS - 1) / WARPS, warp = (int)threadIdx.x / 32;
    const int begin = chunk.begin + warp * each, end = minimum(begin + each, chunk.end);
    zero_counters(WARPS);
    __syncthreads();
    for (int entry = begin; entry < end; ++entry) {
        count_slots(&params, entry, part.group, part.base, warp);
    }
    __syncthreads();
    begin_pairs(&params, counts, part.group, part.base, part.lists);
    __syncthreads();
    for (int entry = begin; entry < end; ++entry) {
        place_slots(&params, entry, part.group, part.base, warp);
    }
}
