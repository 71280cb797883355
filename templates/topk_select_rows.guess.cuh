//@use topk_select_rows.rank.cuh
/*
 * From a window to a bound that almost always lies below the wanted rank: an estimate from a
 * sample. topk_select_rows.list.cuh then counts exactly what is above it, which confirms the bound
 * or narrows the search. A bad estimate therefore costs only time.
 */

/* The bound lies this many standard deviations below the wanted rank's estimate, so that one of 100
 * to 200 rows has too few elements above it and is read again. In a grid of long windows all blocks
 * may be resident at once and all wait for the one that reads again; there the margin is larger,
 * and more samples make up for the longer list. */
#define DEVIATIONS 2.5f
#define LONG_DEVIATIONS 3.25f
enum { LONG = LEAST_SAMPLES * SAMPLED };

/* The interval of keys that contains the wanted rank's key. Neither end is the key of -0. */
struct known {
    u32 low, high; /* inclusive */
    int above;     /* elements above `high` */
    int at_least;  /* elements from `low` on */
    int kept;      /* how many of the latter the list still holds, from its start */
};

/* What the list holds: with `counted` the elements above the key, while equal ones are only
 * counted; else the elements from the key on. */
struct bound {
    u32 key;
    int counted;
};

DEVICE struct known know_nothing(const struct window *window) {
    const struct known known = {KEY_MINUS_INFINITY, KEY_PLUS_INFINITY, 0, window_length(window), 0};
    return known;
}

DEVICE u32 hash(u32 number) {
    number = number * 0x9e3779b1u + 0x7f4a7c15u;
    number = (number ^ number >> 15) * 0x85ebca6bu;
    return number ^ number >> 13;
}

DEVICE int sample_count(const struct window *window) {
    const int each = window_length(window) > LONG ? LONG_SAMPLED : SAMPLED;
    int count = LEAST_SAMPLES;
    while (count < MOST_SAMPLES && count * each < window_length(window)) {
        count *= 2;
    }
    return count;
}

/* Sampled keys; `possible` of them are inside the known interval. */
struct sample {
    int count, possible;
    struct range range; /* of the possible keys */
};

/* Writes `count` keys to the list: whole vectors, one from a random position in each of equally
 * long parts of the window, other positions in each round. Clears the histogram. */
DEVICE struct sample draw_sample(const struct window *window, int count, int round,
                                 const struct known *known) {
    const u32 begin = (u32)(window->first + VECTOR - 1) / VECTOR;
    const u32 vectors = (u32)window->last / VECTOR - begin, groups = (u32)count / VECTOR;
    const int shift = 31 - __clz(groups) + 10; /* log2(groups * 1024) */
    struct sample sample = {count};
    u32 least = ~0u, most = 0;
    int possible = 0;
    clear_histogram();
    for (u32 group = thread_number(); group < groups; group += THREADS) {
        const u64 place = ((u64)group << 10) + (hash(group + (u32)round * groups) & 1023u);
        const u32 vector = begin + (u32)(place * vectors >> shift);
        u32 values[VECTOR];
        load_inside(window, (i64)vector * VECTOR, values);
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
    sample.possible = round == 0 ? count : block_sum(possible);
    return sample;
}

/* Turns the entries kept from a list that overflowed into a sample. Clears the histogram. */
DEVICE struct sample take_kept(int count) {
    struct sample sample = {count, count};
    u32 least = ~0u, most = 0;
    clear_histogram();
#pragma unroll 1
    for (int i = (int)thread_number(); i < count; i += THREADS) {
        const u32 key = ordered_key((u32)(list()[i] >> 32));
        list()[i] = (u64)key << 32;
        least = key < least ? key : least;
        most = key > most ? key : most;
    }
    sample.range = range_of(least, most);
    return sample;
}

/* Bisects the known interval. */
DEVICE struct bound bisect(const struct known *known) {
    struct bound bound = {known->low + (known->high - known->low) / 2, 1};
    bound.key += bound.key == KEY_MINUS_ZERO;
    return bound;
}

/* Estimates a score with at least `target` samples at or above it, and at most `slack` more, from a
 * histogram of bins of equal width. False if one bin has too many samples or scores are infinite.
 * The histogram must be clear. */
DEVICE bool guess_bound(struct sample sample, int target, int slack, struct bound *bound) {
    const u32 counts = shared_address(HISTOGRAM_OFFSET);
    const float low = key_score((u32)(sample.range.low >> 32));
    const float width = (key_score((u32)(sample.range.high >> 32)) - low) / (float)(BINS - 1);
    const float scale = 1.0f / width;
    const float most = 1e30f; /* keeps the product of a difference and the scale finite */
    if (!(width < most && scale < most)) {
        return false;
    }
    for (int i = (int)thread_number(); i < sample.count; i += THREADS) {
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
    bound->key = ordered_key(__float_as_uint(low + (float)shared_numbers()[FOUND_BIN] * width));
    return true;
}

/* The known interval lives in shared memory so that it occupies no registers while a window is
 * read. Before the first round it is unset. */
DEVICE struct known *shared_known(void) {
    return (struct known *)(arena + KNOWN_OFFSET);
}

DEVICE struct known load_known(const struct window *window, int round) {
    return round == 0 ? know_nothing(window) : *shared_known();
}

/* The next bound, far enough below the wanted rank that it is rarely too high. The same in all
 * threads. */
DEVICE struct bound choose_bound(const struct window *window, int wanted, int round) {
    const struct known known = load_known(window, round);
    struct bound bound = {known.low, 1};
    if (thread_number() == 0) {
        shared_numbers()[SAMPLE_TOP] = KEY_MINUS_INFINITY;
    }
    if (known.at_least <= LIST) {
        return bound;
    }
    const struct sample sample = known.kept > 0 && round % 2
                                     ? take_kept(known.kept)
                                     : draw_sample(window, sample_count(window), round, &known);
    if (sample.possible == 0 || round % 8 == 7) {
        return bisect(&known);
    }
    const float share = (float)(wanted - known.above) / (float)(known.at_least - known.above);
    const float rank = share * (float)sample.possible;
    const float deviation = sqrtf(fmaxf(rank * (1.0f - share), 0.0f));
    const float below =
        LONG_SAMPLED < SAMPLED && window_length(window) > LONG ? LONG_DEVIATIONS : DEVIATIONS;
    const int target = clamp((int)ceilf(rank + below * deviation + 1.0f), 1, sample.possible);
    const int slack = target / 8;
    if (thread_number() == 0) {
        shared_numbers()[SAMPLE_TOP] = (int)(u32)(sample.range.high >> 32);
    }
    bound.counted = 0;
    if (!guess_bound(sample, target, slack, &bound)) {
        const struct threshold threshold =
            find_threshold(sample.count, target, sample.range, 32, slack);
        bound.key = (u32)(threshold.entry >> 32);
        /* Many samples are equal to the bound: keep such elements out of the list. */
        bound.counted = threshold.count - target > slack;
    }
    bound.counted = bound.counted || bound.key <= known.low;
    return bound;
}
