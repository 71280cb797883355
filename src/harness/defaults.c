/* See defaults.h. */
#include "harness/defaults.h"

#include <math.h>
#include <string.h>

#include "harness/random.h"

int64_t smelt__harness_key_of(const struct smelt__harness_operator *op, const void *spec,
                              const char *name) {
    for (const struct smelt__harness_key *key = op->keys; key && key->name; key++)
        if (strcmp(key->name, name) == 0)
            return *(const int *)(const void *)((const char *)spec + key->field);
    return 0;
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* The number of rows of a list's entry. */
static int64_t rows_of_entry(const struct smelt__harness_operator *op, const void *spec) {
    const int64_t granularity = op->has_lists ? smelt__harness_key_of(op, spec, "granularity") : 1;
    return granularity > 1 ? granularity : 1;
}

/* The width for this number of rows: of lists, a few entries more, but at most topk. */
static int64_t width_for(const struct smelt__harness_operator *op, const void *spec, int64_t rows) {
    enum { MORE = 3 };
    const int64_t r = rows_of_entry(op, spec);
    return op->has_lists && rows > 0
               ? least(rows / r + (r > 1 ? MORE : 0), smelt__harness_key_of(op, spec, "topk"))
               : rows;
}

/* If `sizes` has no number of rows, lists name about half of the rows, and the last entry is incomplete. */
static void set_sizes(const struct smelt__harness_operator *op, const void *spec,
                      const struct smelt__harness_sizes *sizes,
                      struct smelt__problem_options *options) {
    enum { ODD = 3 };
    if (options->tokens == 0)
        options->tokens = options->lists == SMELT__LISTS_ADVERSARIAL && sizes->patterns
                              ? sizes->patterns
                              : sizes->tokens;
    if (options->width == 0)
        options->width = width_for(op, spec, sizes->width);
    if (options->rows == 0)
        options->rows = op->has_lists && sizes->rows == 0 && options->width > 0
                            ? 2 * options->width * rows_of_entry(op, spec) + ODD
                            : sizes->rows;
}

/* Whether the operator has lists, or windows of a width. */
static int has_width(const struct smelt__harness_operator *op) {
    for (int i = 0; op->options[i]; i++)
        if (strcmp(op->options[i], "width") == 0)
            return 1;
    return 0;
}

void smelt__options_default(const struct smelt__harness_operator *op, const void *spec,
                            struct smelt__problem_options *options) {
    enum { TOKENS = 16, DOCUMENTS = 4, ROWS = 1024, LEAST_ROWS = 256, MOST_ROWS = 1 << 16 };
    const int64_t topk = smelt__harness_key_of(op, spec, "topk");
    const int64_t dqk = smelt__harness_key_of(op, spec, "dqk");
    const int64_t rows = least(4 * topk * rows_of_entry(op, spec), MOST_ROWS);
    const int64_t width = op->has_lists ? topk : has_width(op) ? LEAST_ROWS : 0;
    if (options->batches == 0)
        options->batches = 1;
    if (options->tokens == 0)
        options->tokens = TOKENS;
    if (options->documents == 0)
        options->documents = DOCUMENTS;
    if (options->width == 0)
        options->width = width;
    if (options->scale == 0.0F && dqk > 0)
        options->scale = (float)(1.0 / sqrt((double)dqk));
    if (options->rows == 0)
        options->rows = op->rows > rows     ? op->rows
                        : topk == 0         ? ROWS
                        : rows < LEAST_ROWS ? LEAST_ROWS
                                            : rows;
}

void smelt__options_small(const struct smelt__harness_operator *op, const void *spec,
                          struct smelt__problem_options *options) {
    set_sizes(op, spec, &op->small, options);
}

/* A random number from 0 to count - 1. */
static int any(struct smelt__random *random, int count) {
    return (int)smelt__random_below(random, count);
}

/* Also draws options that the operator lacks, which have no effect. */
void smelt__options_draw(const struct smelt__harness_operator *op, const void *spec,
                         struct smelt__random *random, struct smelt__problem_options *options) {
    const int64_t width = width_for(op, spec, op->most.width);
    if (op->most.rows > 0)
        options->rows = 1 + smelt__random_below(random, op->most.rows) + (options->far ? 2 : 0);
    if (width > 0)
        options->width = 1 + smelt__random_below(random, width);
    options->lists = (enum smelt__lists)any(random, SMELT__LISTS_KINDS);
    /* No repeated queries: the emulator runs these problems. */
    options->query_list = (enum smelt__query_list)any(random, SMELT__QUERY_LIST_REPEATED);
    options->spiky = any(random, 3) == 0;
    options->topk_length = any(random, 2);
    options->max_logits = any(random, 2);
    options->dkv = (enum smelt__dkv)any(random, SMELT__DKV_ADD + 1);
    for (int i = 0; i < op->own_option_count; i++) {
        const struct smelt__option *const option = &op->own_options[i];
        int64_t *const field = (int64_t *)(void *)((char *)options + option->field);
        int choices = option->kind == SMELT__OPTION_FLAG ? 2 : 0;
        while (option->kind == SMELT__OPTION_CHOICE && option->choices[choices])
            choices++;
        *field = choices > 0 ? any(random, choices) : *field;
    }
    if (op->draw)
        op->draw(spec, random, options);
}

/* The kinds of lists and windows. */
static const struct smelt__problem_options lists[] = {
    {.lists = SMELT__LISTS_RANDOM},      {.lists = SMELT__LISTS_CAUSAL},
    {.lists = SMELT__LISTS_WINDOW},      {.lists = SMELT__LISTS_FULL},
    {.lists = SMELT__LISTS_ADVERSARIAL},
};

static int count_kinds(const struct smelt__harness_operator *op) {
    return op->kinds ? op->kind_count : (int)(sizeof lists / sizeof *lists);
}

int smelt__options_kind(const struct smelt__harness_operator *op, int number,
                        struct smelt__problem_options *options) {
    if (number >= count_kinds(op))
        return 0;
    const struct smelt__problem_options *const kind =
        op->kinds ? &op->kinds[number] : &lists[number];
    options->lists = kind->lists;
    options->strided |= kind->strided;
    options->topk_length |= kind->topk_length;
    options->max_logits |= kind->max_logits;
    options->dkv = kind->dkv ? kind->dkv : options->dkv;
    for (int i = 0; i < SMELT__OWN_OPTIONS; i++)
        options->own[i] = kind->own[i] ? kind->own[i] : options->own[i];
    return 1;
}

int smelt__options_trial(const struct smelt__harness_operator *op, const void *spec, int number,
                         struct smelt__problem_options *options) {
    if (number > 1)
        return 0;
    smelt__options_kind(op, number ? count_kinds(op) - 1 : 0, options);
    set_sizes(op, spec, op->trial.tokens ? &op->trial : &op->small, options);
    return 1;
}
