//@use ptx/append.cuh
//@use topk_select_rows.rank.cuh
/*
 * From a window to a list of entries that holds its best: a bound is guessed from a sample, the
 * window read once, and what is above the bound kept. Exact counts then prove the guess or tell
 * where the next is to be looked for, so that the result is exact whatever the guess.
 *
 * An entry of the list is a score's bits, later its key, above ~element: of equal keys the first
 * element is the largest entry.
 */

/* Standard deviations by which the bound is below the rank that the sample shows: of 500 rows about
 * one is read again because too few elements are above it. */
#define DEVIATIONS 2.5f

/* Where the key of the wanted rank is known to be. Neither end is the key of -0. */
struct known {
    u32 low, high; /* it is one of these and what is between */
    int above;     /* elements above high */
    int at_least;  /* elements from low on */
    int kept;      /* entries of the list that are of the latter, the first ones that were found */
};

/* What the list is to hold: elements from the key on; or those above it, the equal ones counted. */
struct bound {
    u32 key;
    u32 top; /* hardly an element's key is above; -inf's: nothing is known */
    int counted;
};

DEVICE struct known know_nothing(const struct window *window) {
    const struct known known = {KEY_MINUS_INFINITY, KEY_PLUS_INFINITY, 0,
                                window_length(window), 0};
    return known;
}

DEVICE u32 hash(u32 number) {
    number = number * 0x9e3779b1u + 0x7f4a7c15u;
    number = (number ^ number >> 15) * 0x85ebca6bu;
    return number ^ number >> 13;
}

DEVICE int sample_count(const struct window *window) {
    int count = LEAST_SAMPLES;
    while (count < MOST_SAMPLES && count * SAMPLED < window_length(window)) {
        count *= 2;
    }
    return count;
}

/* Keys of which some are possible. */
struct sample {
    int count, possible;
    struct range range; /* of the possible ones */
};

/* Puts `count` keys into the list: whole vectors, each somewhere in its part of the window, in each
 * round elsewhere. Clears the histogram. */
DEVICE struct sample draw_sample(const struct window *window, int count, int round,
                                 const struct known *known) {
    const u32 begin = (u32)(window->first + VECTOR - 1) / VECTOR;
    const u32 vectors = (u32)window->last / VECTOR - begin, groups = (u32)count / VECTOR;
    const int shift = 31 - __clz(groups) + 10; /* groups are a power of two */
    struct sample sample = {count};
    u32 least = ~0u, most = 0;
    int possible = 0;
    clear_histogram();
    for (u32 group = threadIdx.x; group < groups; group += THREADS) {
        const u64 place = ((u64)group << 10) + (hash(group + (u32)round * groups) & 1023u);
        const u32 vector = begin + (u32)(place * vectors >> shift);
        u32 values[VECTOR];
        load_streaming_16(values, window->data + vector * (u64)VECTOR);
#pragma unroll
        for (int c = 0; c < VECTOR; ++c) {
            const u32 key = ordered_key(values[c]);
            const bool inside = key >= known->low && key <= known->high;
            list()[group * VECTOR + (u32)c] = (u64)key << 32;
            least = inside && key < least ? key : least;
            most = inside && key > most ? key : most;
            possible += inside;
        }
    }
    sample.range = range_of(least, most);
    sample.possible = round == 0 ? count : sum_threads(possible);
    return sample;
}

/* Makes a sample of what a list that was too short kept. Clears the histogram. */
DEVICE struct sample take_kept(int count) {
    struct sample sample = {count, count};
    u32 least = ~0u, most = 0;
    clear_histogram();
    for (int i = (int)threadIdx.x; i < count; i += THREADS) {
        const u32 key = ordered_key((u32)(list()[i] >> 32));
        list()[i] = (u64)key << 32;
        least = key < least ? key : least;
        most = key > most ? key : most;
    }
    sample.range = range_of(least, most);
    return sample;
}

/* The middle of what is possible. */
DEVICE struct bound halve(const struct known *known) {
    struct bound bound = {known->low + (known->high - known->low) / 2, KEY_MINUS_INFINITY, 1};
    bound.key += bound.key == KEY_MINUS_ZERO;
    return bound;
}

/* Guesses a score that `target` samples are not below, and at most `slack` more: from bins of equal
 * width, by the histogram that was cleared. False if one bin has too many, or scores are infinite. */
DEVICE bool guess_bound(struct sample sample, int target, int slack, struct bound *bound) {
    const u32 counts = shared_address(HISTOGRAM_OFFSET);
    const float low = key_score((u32)(sample.range.low >> 32));
    const float width = (key_score((u32)(sample.range.high >> 32)) - low) / (float)(BINS - 1);
    const float scale = 1.0f / width;
    const float most = 1e30f; /* so that no product of a difference and the scale overflows */
    if (!(width < most && scale < most)) {
        return false;
    }
    for (int i = (int)threadIdx.x; i < sample.count; i += THREADS) {
        const u64 entry = list()[i];
        if (entry >= sample.range.low && entry <= sample.range.high) {
            const float place = (key_score((u32)(entry >> 32)) - low) * scale;
            atomic_add_shared(counts + (u32)(BINS - 1 - minimum((int)place, BINS - 1)) * 4, 1);
        }
    }
    __syncthreads();
    find_bin(target);
    if (shared_numbers()[FOUND_COUNT] - shared_numbers()[FOUND_RANK] > slack) {
        return false;
    }
    bound->key =
        ordered_key(__float_as_uint(low + (float)shared_numbers()[FOUND_BIN] * width));
    return true;
}

/* The next bound: so far below the wanted rank that it is hardly missed. All threads agree. */
DEVICE struct bound choose_bound(const struct window *window, int wanted, int round,
                                 const struct known *known) {
    struct bound bound = {known->low, KEY_MINUS_INFINITY, 1};
    if (known->at_least <= LIST) {
        return bound;
    }
    const struct sample sample =
        known->kept > 0 && round % 2 ? take_kept(known->kept)
                                     : draw_sample(window, sample_count(window), round, known);
    if (sample.possible == 0 || round % 8 == 7) {
        return halve(known);
    }
    const float share = (float)(wanted - known->above) / (float)(known->at_least - known->above);
    const float rank = share * (float)sample.possible;
    const float deviation = sqrtf(fmaxf(rank * (1.0f - share), 0.0f));
    const int target = clamp((int)ceilf(rank + DEVIATIONS * deviation + 1.0f), 1, sample.possible);
    const int slack = target / 8;
    bound.top = (u32)(sample.range.high >> 32);
    bound.counted = 0;
    if (!guess_bound(sample, target, slack, &bound)) {
        const struct threshold threshold =
            find_threshold(sample.count, target, sample.range, 32, slack);
        bound.key = (u32)(threshold.entry >> 32);
        /* Many equal samples: the list is to do without those elements. */
        bound.counted = threshold.count - target > slack;
    }
    bound.counted = bound.counted || bound.key <= known->low;
    return bound;
}

/* Keeps a lane's elements of the mask, in any order. A list that is too short is noticed by its
 * count. */
DEVICE void keep_elements(u32 values[VECTORS][VECTOR], u32 mask, int block) {
    const int count = __popc(mask);
    const int inclusive = sum_lanes_before(count);
    const u32 element = (u32)(block * BLOCK + lane_number() * VECTOR);
    const int total = __shfl_sync((u32)ALL_LANES, inclusive, 31);
    u32 at = 0;
    if (total == 0) {
        return;
    }
    if (lane_number() == 31) {
        at = atomic_add_shared(shared_number_address(LIST_COUNT), (u32)total);
    }
    at = __shfl_sync((u32)ALL_LANES, at, 31);
    if (at + (u32)total > LIST) {
        return;
    }
    u32 address = shared_address(LIST_OFFSET) + (at + (u32)(inclusive - count)) * 8;
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
#pragma unroll
        for (int c = 0; c < VECTOR; ++c) {
            address = append_shared_8(address, mask & 0x80000000u >> (i * VECTOR + c),
                                      ~(element + (u32)(i * STEP + c)), values[i][c]);
        }
    }
}

/* Reads blocks `begin` to `end` of the window, a warp a block; the list's count was cleared before
 * a barrier. How many equal elements this thread counted. */
DEVICE int read_blocks(const struct window *window, int begin, int end, struct bound bound) {
    const bool lowest = bound.key == KEY_MINUS_INFINITY;
    const float below = score_below(lowest ? KEY_MINUS_INFINITY + 1 : bound.key);
    const float threshold = bound.counted ? key_score(bound.key) : below;
    int equal = 0;
#pragma unroll 1
    for (int block = begin + warp_number(); block < end; block += WARPS) {
        u32 values[VECTORS][VECTOR];
        load_block(window, block, values);
        const u32 above = mask_greater(values, threshold);
        if (bound.counted) {
            /* NaN is above nothing, but as good as -inf. */
            const u32 from = lowest ? mask_inside(window, block) : mask_greater(values, below);
            equal += __popc(from & ~above);
        }
        keep_elements(values, above, block);
    }
    return equal;
}

/* Whether a list of `above` entries, with `equal` elements at the bound that it lacks, is enough;
 * else what follows. `complete`: it had room for all; else for `kept` at least. */
DEVICE bool is_enough(struct known *known, struct bound bound, int above, int equal, int wanted,
                      bool complete, int kept) {
    if (above >= wanted) {
        known->low = bound.key + (u32)bound.counted;
        known->low += known->low == KEY_MINUS_ZERO;
        known->at_least = above;
        known->kept = kept;
        return complete;
    }
    if (bound.counted && above + equal >= wanted) {
        return true;
    }
    known->high = bound.key - 1 - (bound.key - 1 == KEY_MINUS_ZERO);
    known->above = above + equal;
    known->kept = 0;
    return false;
}

/* What the list holds. */
struct found {
    struct bound bound;
    int count;
};

/* The list of a window whose `wanted` best it has, but for those equal to the bound. `known` says
 * where to look. Begins and ends behind a barrier. */
DEVICE struct found find_list(const struct window *window, int wanted, int round,
                              struct known known) {
    struct found found;
    for (;; ++round) {
        if (threadIdx.x == 0) {
            shared_numbers()[LIST_COUNT] = 0;
        }
        found.bound = choose_bound(window, wanted, round, &known);
        __syncthreads(); /* the sample was read, the count is 0 */
        const int equal = sum_threads(read_blocks(window, 0, window->blocks, found.bound));
        found.count = shared_numbers()[LIST_COUNT];
        if (is_enough(&known, found.bound, found.count, equal, wanted, found.count <= LIST,
                      LIST - BLOCK)) {
            return found;
        }
        __syncthreads(); /* the count was read */
    }
}
