//@use topk_select_rows.rank.cuh
/*
 * From a window to a bound, below which hardly one of its best is: a guess from a sample. What is
 * above it is then counted exactly (topk_select_rows.list.cuh), which proves the guess or tells
 * where the next is to be looked for. So whatever is guessed here, good or bad, costs time alone.
 */

/* Standard deviations by which the bound is below the rank that the sample shows: of 100 to 200
 * rows one is read again because too few elements are above it. Of long windows, for which there
 * may be no more blocks than are resident at once, so that all wait for one that reads again,
 * hardly any is: more samples leave the list room for more elements. */
#define DEVIATIONS 2.5f
#define LONG_DEVIATIONS 3.25f
enum { LONG = LEAST_SAMPLES * SAMPLED };

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
    for (u32 group = thread_number(); group < groups; group += THREADS) {
        const u64 place = ((u64)group << 10) + (hash(group + (u32)round * groups) & 1023u);
        const u32 vector = begin + (u32)(place * vectors >> shift);
        u32 values[VECTOR];
        load_once_16(values, window->data + vector * (u64)VECTOR);
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

/* The middle of what is possible. */
DEVICE struct bound halve(const struct known *known) {
    struct bound bound = {known->low + (known->high - known->low) / 2, 1};
    bound.key += bound.key == KEY_MINUS_ZERO;
    return bound;
}

/* Guesses a score that `target` samples are not below, and at most `slack` more: from bins of equal
 * width, by the histogram that was cleared. False if one bin has too many, or scores are infinite.
 */
DEVICE bool guess_bound(struct sample sample, int target, int slack, struct bound *bound) {
    const u32 counts = shared_address(HISTOGRAM_OFFSET);
    const float low = key_score((u32)(sample.range.low >> 32));
    const float width = (key_score((u32)(sample.range.high >> 32)) - low) / (float)(BINS - 1);
    const float scale = 1.0f / width;
    const float most = 1e30f; /* so that no product of a difference and the scale overflows */
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

/* What was found out is in shared memory, so that reading a window needs no registers for it;
 * before the first round it is nothing. */
DEVICE struct known *shared_known(void) {
    return (struct known *)(arena + KNOWN_OFFSET);
}

DEVICE struct known load_known(const struct window *window, int round) {
    return round == 0 ? know_nothing(window) : *shared_known();
}

/* The next bound: so far below the wanted rank that it is hardly missed. All threads agree. */
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
        return halve(&known);
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
        /* Many equal samples: the list is to do without those elements. */
        bound.counted = threshold.count - target > slack;
    }
    bound.counted = bound.counted || bound.key <= known.low;
    return bound;
}
