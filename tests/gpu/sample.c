/* `--sample N`: a total of N cases for any number of operators. Each has an equal share; what one
 * does not need, the others get. The draw depends on the cases' names and the seed only. */
#include "sample.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct candidate {
    char *name;
    int op;
    uint64_t ticket; /* an operator's lowest ones are drawn */
};

struct sample {
    struct candidate *cases;
    size_t count, capacity, size; /* size: the number of drawn cases */
    uint64_t seed;
    int complete; /* all cases were added; only drawn ones run */
};

struct sample *sample_create(size_t size, uint64_t seed) {
    struct sample *sample = calloc(1, sizeof *sample);
    if (sample)
        sample->size = size, sample->seed = seed;
    return sample;
}

void sample_destroy(struct sample *sample) {
    for (size_t i = 0; sample && i < sample->count; i++)
        free(sample->cases[i].name);
    if (sample)
        free(sample->cases);
    free(sample);
}

/* FNV-1a, and splitmix64's last steps, which spread it over all bits. */
uint64_t sample_ticket(const char *name, uint64_t seed) {
    uint64_t hash = 0xcbf29ce484222325U ^ seed;
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3U;
    hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9U;
    hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebU;
    return hash ^ (hash >> 31);
}

int sample_add(struct sample *sample, int op, const char *name) {
    if (sample->count == sample->capacity) {
        const size_t capacity = sample->capacity ? 2 * sample->capacity : 256;
        struct candidate *cases = realloc(sample->cases, capacity * sizeof *cases);
        if (!cases)
            return -1;
        sample->cases = cases;
        sample->capacity = capacity;
    }
    char *copy = strdup(name);
    if (!copy)
        return -1;
    sample->cases[sample->count++] =
        (struct candidate){copy, op, sample_ticket(name, sample->seed)};
    return 0;
}

static int by_operator(const void *left, const void *right) {
    const struct candidate *a = left, *b = right;
    if (a->op != b->op)
        return a->op < b->op ? -1 : 1;
    return (a->ticket > b->ticket) - (a->ticket < b->ticket);
}

/* The number of cases with at most `share` per operator. */
static size_t count_shared(const struct sample *sample, size_t share) {
    size_t total = 0;
    for (size_t i = 0, own = 0; i < sample->count; i++) {
        own = i > 0 && sample->cases[i].op == sample->cases[i - 1].op ? own + 1 : 0;
        total += own < share;
    }
    return total;
}

void sample_draw(struct sample *sample) {
    size_t share = sample->count, kept = 0;
    if (sample->count > 0)
        qsort(sample->cases, sample->count, sizeof *sample->cases, by_operator);
    while (share > 1 && count_shared(sample, share) > sample->size)
        share--;
    size_t own = 0;
    int op = 0;
    for (size_t i = 0; i < sample->count; i++) {
        const struct candidate one = sample->cases[i];
        own = i > 0 && op == one.op ? own + 1 : 0;
        op = one.op;
        if (own < share)
            sample->cases[kept++] = one;
        else
            free(one.name);
    }
    sample->count = kept;
    sample->complete = 1;
}

int sample_is_complete(const struct sample *sample) {
    return sample->complete;
}

int sample_has(const struct sample *sample, int op, const char *name) {
    for (size_t i = 0; i < sample->count; i++)
        if (sample->cases[i].op == op && strcmp(sample->cases[i].name, name) == 0)
            return 1;
    return 0;
}
