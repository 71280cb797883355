/* See results.h. */
#include "results.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ULPS = 2 };

struct result {
    char name[CASE_NAME];
    uint64_t hash;
    size_t bytes, stride, count;
    uint32_t *words;
    struct result *next;
};

struct results {
    struct result *first, **last;
    size_t count;
};

/* FNV-1a. */
static uint64_t hash_of(const void *bytes, size_t count) {
    const unsigned char *at = bytes;
    uint64_t hash = 0xcbf29ce484222325U;
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ at[i]) * 0x100000001b3U;
    return hash;
}

/* How many words of an output are written down: a few where the hash decides (to see what went
 * wrong), all of an approximate function's, a good sample of rounded sums. */
static size_t words_kept(const struct micro_case *one) {
    return one->comparison == ULPS ? 4096 : one->comparison == ROUNDED ? 512 : 16;
}

static uint32_t word_at(const void *out, size_t index) {
    uint32_t word;
    memcpy(&word, (const char *)out + 4 * index, sizeof word);
    return word;
}

void results_write(FILE *file, const struct micro_case *one, const void *out) {
    size_t words = one->out_bytes / 4, kept = words_kept(one);
    size_t stride = words > kept ? (words + kept - 1) / kept : 1;
    fprintf(file, "%s: %016" PRIx64 " %zu %zu", one->name, hash_of(out, one->out_bytes),
            one->out_bytes, stride);
    for (size_t i = 0; i < words; i += stride)
        fprintf(file, " %x", word_at(out, i));
    fprintf(file, "\n");
}

/* ---- reading --------------------------------------------------------------------------------- */

static int add_word(struct result *result, uint32_t word) {
    if ((result->count & (result->count - 1)) == 0) { /* a power of two: full */
        size_t capacity = result->count ? 2 * result->count : 1;
        uint32_t *words = realloc(result->words, capacity * sizeof *words);
        if (!words)
            return -1;
        result->words = words;
    }
    result->words[result->count++] = word;
    return 0;
}

static int read_words(struct result *result, const char *line) {
    char *end;
    for (;;) {
        unsigned long word = strtoul(line, &end, 16);
        if (end == line)
            return *line == '\n' || *line == '\0' ? 0 : -1;
        if (word > UINT32_MAX || add_word(result, (uint32_t)word))
            return -1;
        line = end;
    }
}

static int read_line(struct results *results, const char *line) {
    const char *colon = strchr(line, ':');
    struct result *result;
    int used = 0;
    if (line[0] == '#')
        return 0;
    result = calloc(1, sizeof *result);
    if (!result)
        return -1;
    *results->last = result;
    results->last = &result->next;
    results->count++;
    if (!colon || colon - line >= CASE_NAME ||
        sscanf(colon + 1, "%" SCNx64 " %zu %zu%n", &result->hash, &result->bytes, &result->stride,
               &used) != 3)
        return -1;
    memcpy(result->name, line, (size_t)(colon - line));
    return read_words(result, colon + 1 + used);
}

struct results *results_read(const char *path) {
    struct results *results = calloc(1, sizeof *results);
    char *line = NULL;
    size_t room = 0;
    int number = 0, status = -1;
    FILE *file = fopen(path, "r");
    if (!file || !results) {
        fprintf(stderr, "micro: %s cannot be read\n", path);
        goto out;
    }
    results->last = &results->first;
    while (getline(&line, &room, file) > 0) {
        number++;
        if (read_line(results, line)) {
            fprintf(stderr, "micro: %s:%d: not a line of recorded results\n", path, number);
            goto out;
        }
    }
    status = 0;
out:
    free(line);
    if (file)
        fclose(file);
    if (status && results)
        results_free(results);
    return status ? NULL : results;
}

void results_free(struct results *results) {
    for (struct result *result = results->first; result;) {
        struct result *next = result->next;
        free(result->words);
        free(result);
        result = next;
    }
    free(results);
}

size_t results_count(const struct results *results) {
    return results->count;
}

/* ---- comparing ------------------------------------------------------------------------------- */

static float float_of(uint32_t word) {
    float value;
    memcpy(&value, &word, sizeof value);
    return value;
}

/* Floats in order as integers, so that neighbours differ by 1 and the two zeros by none. */
static int64_t rank_of(uint32_t word) {
    return word & 0x80000000 ? -(int64_t)(word & 0x7fffffff) : (int64_t)word;
}

static int is_close(const struct micro_case *one, uint32_t word, uint32_t recorded) {
    float value = float_of(word), expected = float_of(recorded);
    if (word == recorded || (isnan(value) && isnan(expected)))
        return 1;
    if (one->comparison == BIT_FOR_BIT || !isfinite(value) || !isfinite(expected))
        return 0;
    double apart = fabs((double)value - (double)expected);
    if (one->comparison == ULPS)
        return llabs(rank_of(word) - rank_of(recorded)) <= MOST_ULPS ||
               apart <= (double)one->tolerance;
    return apart <= (double)one->tolerance * ((double)one->scale + fabs((double)expected));
}

static const struct result *find(const struct results *results, const char *name) {
    const struct result *result = results->first;
    while (result && strcmp(result->name, name) != 0)
        result = result->next;
    return result;
}

enum verdict results_compare(const struct results *results, const struct micro_case *one,
                             const void *out) {
    const struct result *result = find(results, one->name);
    size_t apart = 0, first = 0;
    if (!result) {
        fprintf(stderr, "%s: there is no recorded result: record it on a GPU\n", one->name);
        return DIFFERENT;
    }
    if (result->bytes != one->out_bytes || result->stride == 0 ||
        result->count != (one->out_bytes / 4 + result->stride - 1) / result->stride) {
        fprintf(stderr, "%s: %zu bytes were recorded, not %zu: record it again\n", one->name,
                result->bytes, one->out_bytes);
        return DIFFERENT;
    }
    if (hash_of(out, one->out_bytes) == result->hash)
        return SAME_BITS;
    for (size_t i = result->count; i-- > 0;)
        if (!is_close(one, word_at(out, i * result->stride), result->words[i])) {
            first = i;
            apart++;
        }
    if (apart == 0 && one->comparison != BIT_FOR_BIT)
        return WITHIN;
    uint32_t word = word_at(out, first * result->stride), recorded = result->words[first];
    fprintf(stderr,
            "%s: %zu of %zu words shown differ; word %zu is %08x (%g), recorded: %08x (%g)\n",
            one->name, apart, result->count, first * result->stride, word, (double)float_of(word),
            recorded, (double)float_of(recorded));
    return DIFFERENT;
}
