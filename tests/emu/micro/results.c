/* See results.h. */
#include "results.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ULPS = 2 };

struct result {
    char name[CASE_NAME];
    uint64_t *numbers;
    size_t count;
    int used;
    struct result *next;
};

struct results {
    struct result *first, **last;
};

/* All words of approximate functions are recorded, and a sample of rounded sums. */
static size_t stride_of(const struct micro_case *one) {
    const size_t words = one->out_bytes / 4, kept = one->comparison == ULPS ? 4096 : 512;
    return words > kept ? (words + kept - 1) / kept : 1;
}

static uint32_t word_at(const void *out, size_t index) {
    uint32_t word;
    memcpy(&word, (const char *)out + 4 * index, sizeof word);
    return word;
}

/* The line's name: the case's name, or its first two words if it is compared bit for bit. */
static void name_line(const struct micro_case *one, char name[CASE_NAME]) {
    snprintf(name, CASE_NAME, "%s", one->name);
    char *space = one->comparison == BIT_FOR_BIT ? strchr(name, ' ') : NULL;
    if (space && (space = strchr(space + 1, ' ')))
        *space = '\0';
}

/* The index of a case among those of its line, and their number. */
static size_t find_index(const struct micro_case *one, size_t *line_cases) {
    size_t count, index = 0;
    char name[CASE_NAME], other[CASE_NAME];
    const struct micro_case *cases = micro_cases(&count);
    name_line(one, name);
    *line_cases = 0;
    for (size_t i = 0; i < count; i++) {
        name_line(&cases[i], other);
        if (&cases[i] == one)
            index = *line_cases;
        *line_cases += cases[i].comparison == one->comparison && strcmp(name, other) == 0;
    }
    return index;
}

/* The line of that name; a new one where `create` and there is none. */
static struct result *find(struct results *results, const char *name, int create) {
    struct result *result = results->first;
    while (result && strcmp(result->name, name) != 0)
        result = result->next;
    if (!result && create && (result = calloc(1, sizeof *result))) {
        snprintf(result->name, sizeof result->name, "%s", name);
        *results->last = result;
        results->last = &result->next;
    }
    return result;
}

static int add_number(struct result *result, uint64_t number) {
    if ((result->count & (result->count - 1)) == 0) { /* a power of two: full */
        size_t capacity = result->count ? 2 * result->count : 1;
        uint64_t *numbers = realloc(result->numbers, capacity * sizeof *numbers);
        if (!numbers)
            return -1;
        result->numbers = numbers;
    }
    result->numbers[result->count++] = number;
    return 0;
}

/* ---- recording, reading ---------------------------------------------------------------------- */

int results_add(struct results *results, const struct micro_case *one, const void *out) {
    char name[CASE_NAME];
    name_line(one, name);
    struct result *result = find(results, name, 1);
    int failed = !result || add_number(result, micro_hash(0, out, one->out_bytes));
    for (size_t i = 0; i < one->out_bytes / 4 && !failed && one->comparison != BIT_FOR_BIT;
         i += stride_of(one))
        failed = add_number(result, word_at(out, i));
    return failed ? -1 : 0;
}

void results_write(const struct results *results, FILE *file) {
    for (const struct result *result = results->first; result; result = result->next) {
        fprintf(file, "%s:", result->name);
        for (size_t i = 0; i < result->count; i++)
            fprintf(file, " %" PRIx64, result->numbers[i]);
        fprintf(file, "\n");
    }
}

static int read_line(struct results *results, char *line) {
    char *colon = strchr(line, ':'), *end;
    if (line[0] == '#')
        return 0;
    if (!colon || colon - line >= CASE_NAME)
        return -1;
    *colon = '\0';
    struct result *result = find(results, line, 1);
    for (const char *at = colon + 1; result; at = end) {
        const uint64_t number = strtoull(at, &end, 16);
        if (end == at)
            return *at == '\n' || *at == '\0' ? 0 : -1;
        if (add_number(result, number))
            break;
    }
    return -1;
}

struct results *results_read(const char *path) {
    struct results *results = calloc(1, sizeof *results);
    char *line = NULL;
    size_t room = 0;
    int number = 0, failed = 0;
    FILE *file = path ? fopen(path, "r") : NULL;
    if (results)
        results->last = &results->first;
    if (!results || (path && !file)) {
        fprintf(stderr, "micro: %s cannot be read\n", path ? path : "nothing");
        failed = 1;
    }
    while (!failed && file && getline(&line, &room, file) > 0) {
        number++;
        failed = read_line(results, line);
        if (failed)
            fprintf(stderr, "micro: %s:%d: not a line of recorded results\n", path, number);
    }
    free(line);
    if (file)
        fclose(file);
    if (failed && results)
        results_free(results);
    return failed ? NULL : results;
}

void results_free(struct results *results) {
    for (struct result *result = results->first; result;) {
        struct result *next = result->next;
        free(result->numbers);
        free(result);
        result = next;
    }
    free(results);
}

const char *results_unused(const struct results *results) {
    const struct result *result = results->first;
    while (result && result->used)
        result = result->next;
    return result ? result->name : NULL;
}

/* ---- comparing ------------------------------------------------------------------------------- */

static float float_of(uint32_t word) {
    float value;
    memcpy(&value, &word, sizeof value);
    return value;
}

/* Maps floats to integers in order: neighbours differ by 1, and both zeros are equal. */
static int64_t rank_of(uint32_t word) {
    return word & 0x80000000 ? -(int64_t)(word & 0x7fffffff) : (int64_t)word;
}

static int is_close(const struct micro_case *one, uint32_t word, uint32_t recorded) {
    float value = float_of(word), expected = float_of(recorded);
    if (word == recorded || (isnan(value) && isnan(expected)))
        return 1;
    if (!isfinite(value) || !isfinite(expected))
        return 0;
    double apart = fabs((double)value - (double)expected);
    if (one->comparison == ULPS)
        return llabs(rank_of(word) - rank_of(recorded)) <= MOST_ULPS ||
               apart <= (double)one->tolerance;
    return apart <= (double)one->tolerance * ((double)one->scale + fabs((double)expected));
}

/* Compares word by word if the hash differs. */
static enum verdict compare_words(const struct micro_case *one, const struct result *result,
                                  const void *out) {
    const size_t stride = stride_of(one), count = result->count - 1;
    size_t apart = 0, first = 0;
    for (size_t i = count; i-- > 0;)
        if (!is_close(one, word_at(out, i * stride), (uint32_t)result->numbers[1 + i])) {
            first = i;
            apart++;
        }
    if (apart == 0)
        return WITHIN;
    uint32_t word = word_at(out, first * stride), recorded = (uint32_t)result->numbers[1 + first];
    fprintf(stderr,
            "%s: %zu of %zu words recorded differ; word %zu is %08x (%g), recorded: %08x (%g)\n",
            one->name, apart, count, first * stride, word, (double)float_of(word), recorded,
            (double)float_of(recorded));
    return DIFFERENT;
}

enum verdict results_compare(struct results *results, const struct micro_case *one,
                             const void *out) {
    const size_t words = (one->out_bytes / 4 + stride_of(one) - 1) / stride_of(one);
    const int exact = one->comparison == BIT_FOR_BIT;
    const uint64_t hash = micro_hash(0, out, one->out_bytes);
    size_t line_cases;
    const size_t index = find_index(one, &line_cases), wanted = exact ? line_cases : 1 + words;
    char name[CASE_NAME];
    name_line(one, name);
    struct result *result = find(results, name, 0);
    if (!result || result->count != wanted) {
        fprintf(stderr, "%s: %zu numbers are recorded for it, not %zu: record it on a GPU\n", name,
                result ? result->count : 0, wanted);
        return DIFFERENT;
    }
    result->used = 1;
    if (hash == result->numbers[index])
        return SAME_BITS;
    if (!exact)
        return compare_words(one, result, out);
    fprintf(stderr, "%s: the output's hash is %016" PRIx64 ", recorded: %016" PRIx64 "\n",
            one->name, hash, result->numbers[index]);
    return DIFFERENT;
}
