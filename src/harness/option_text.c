/* See option_text.h. */
#include "harness/option_text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/operator.h"
#include "ops/args_table.h"

#define FIELD(field) offsetof(struct smelt__problem_options, field)

static const char *const query_lists[] = {"none",  "partial",  "clamped", "whole",
                                          "empty", "repeated", NULL};
static const char *const dkv_kinds[] = {"bf16", "fp32", "add", NULL};

/* Options that several operators may have; all operators have the first COMMON. */
static const struct smelt__option vocabulary[] = {
    {"seed", SMELT__OPTION_SEED, FIELD(seed), 0, 0, NULL, "seed of the random input; default 0", 0},
    {"batches", SMELT__OPTION_INTEGER, FIELD(batches), 1, 65536, NULL, "batches; default 1", 0},
    {"queries", SMELT__OPTION_INTEGER, FIELD(tokens), 1, INT32_MAX, NULL,
     "query tokens of each batch", 0},
    {"rows", SMELT__OPTION_INTEGER, FIELD(rows), 1, INT32_MAX, NULL, "KV rows of each batch", 0},
    {"strided", SMELT__OPTION_FLAG, FIELD(strided), 0, 0, NULL, "tensors with gaps", 0},
    {"odd", SMELT__OPTION_INTEGER, FIELD(odd), 1, 2 * SMELT__MOST_TENSORS, NULL,
     "number of the only tensor whose address or strides are odd. Tensor (N - 1) / 2 of the "
     "operator's table begins at the least legal alignment (N odd) or has gaps (N even); the "
     "others are packed and aligned.",
     0},
    {"far", SMELT__OPTION_FLAG, FIELD(far), 0, 0, NULL,
     "strides of billions, so that every product of an index and a stride exceeds 2^32 elements; "
     "with `--emulate`",
     SMELT__OPTION_EMULATED},
    {"width", SMELT__OPTION_INTEGER, FIELD(width), 1, 1 << 24, NULL,
     "index slots of a query; default: topk", 0},
    {"valid", SMELT__OPTION_INTEGER, FIELD(valid), 1, 1 << 24, NULL,
     "valid slots of a query in random lists, at most its slots and the number of rows; default: "
     "all",
     0},
    {"documents", SMELT__OPTION_INTEGER, FIELD(documents), 1, 1 << 20, NULL,
     "documents of a batch in causal and packed lists", 0},
    {"lists", SMELT__OPTION_CHOICE, FIELD(lists), 0, 0, smelt__lists_names,
     "index lists, or windows of keys. Lists: `random` (distinct rows), `causal` (packed "
     "documents), `window` (the last rows), `adversarial` (empty rows, duplicates, values out of "
     "range), `packed` (packed documents of equal length), `log` (lengths whose logarithm is "
     "uniform), `drift` (nine slots in ten are those of the previous query), `full` (the first "
     "rows of the table, in order). Windows: `full` is every key, `random` any range, `causal` and "
     "`packed` the query's document up to the query, `adversarial` empty, inverted and out of "
     "range. By default `check` runs the first four kinds, for windows also `full`.",
     SMELT__OPTION_INPUTS},
    {"query-list", SMELT__OPTION_CHOICE, FIELD(query_list), 0, 0, query_lists,
     "compute listed queries only. `repeated`: some queries several times.", 0},
    {"scale", SMELT__OPTION_NUMBER, FIELD(scale), 0, 0, NULL, "softmax scale; default 1/sqrt(dqk)",
     0},
    {"spiky", SMELT__OPTION_FLAG, FIELD(spiky), 0, 0, NULL, "inputs whose scores exceed 100", 0},
    {"topk-length", SMELT__OPTION_FLAG, FIELD(topk_length), 0, 0, NULL, "give topk_length too", 0},
    {"max-logits", SMELT__OPTION_FLAG, FIELD(max_logits), 0, 0, NULL,
     "request max_logits or the values too", 0},
    {"dkv", SMELT__OPTION_CHOICE, FIELD(dkv), 0, 0, dkv_kinds,
     "type of the backward pass's gradient of the keys. `add` adds to the caller's fp32 tensor.",
     0},
    {"workspace-limit", SMELT__OPTION_INTEGER, FIELD(workspace_limit), 1, INT64_C(1) << 40, NULL,
     "limit of the call's workspace in bytes, or of the partial rows in it. With a small limit the "
     "call splits its queries into chunks.",
     0},
};

enum { WORDS = sizeof vocabulary / sizeof vocabulary[0], COMMON = 7 };

static int has(const struct smelt__harness_operator *op, int word) {
    if (word < COMMON)
        return 1;
    for (int i = 0; op->options[i]; i++)
        if (strcmp(op->options[i], vocabulary[word].name) == 0)
            return 1;
    return 0;
}

/* An operator's option by number; NULL past the last. */
static const struct smelt__option *option_at(const struct smelt__harness_operator *op, int number) {
    for (int word = 0; word < WORDS; word++)
        if (has(op, word) && number-- == 0)
            return &vocabulary[word];
    return number < op->own_option_count ? &op->own_options[number] : NULL;
}

const struct smelt__option *smelt__option_find(const struct smelt__harness_operator *op,
                                               const char *name) {
    const struct smelt__option *option = NULL;
    for (int i = 0; op && (option = option_at(op, i)) != NULL; i++)
        if (strcmp(option->name, name) == 0)
            return option;
    for (int i = 0; !op && smelt__harness_operators[i] && !option; i++)
        option = smelt__option_find(smelt__harness_operators[i], name);
    return option;
}

int smelt__option_is_common(const struct smelt__option *option) {
    return option >= vocabulary && option < vocabulary + WORDS;
}

/* Whether none of the operators before number `before` has an option of its own with this name. */
static int is_first(int before, const char *name) {
    for (int i = 0; i < before; i++)
        if (smelt__option_find(smelt__harness_operators[i], name))
            return 0;
    return 1;
}

const struct smelt__option *smelt__option_number(int number) {
    for (int word = 0; word < WORDS; word++)
        if (smelt__option_find(NULL, vocabulary[word].name) && number-- == 0)
            return &vocabulary[word];
    for (int i = 0; smelt__harness_operators[i]; i++) {
        const struct smelt__harness_operator *op = smelt__harness_operators[i];
        for (int k = 0; k < op->own_option_count; k++)
            if (is_first(i, op->own_options[k].name) && number-- == 0)
                return &op->own_options[k];
    }
    return NULL;
}

__attribute__((format(printf, 3, 4))) static int fail(char *message, size_t size,
                                                      const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, size, format, arguments);
    va_end(arguments);
    return -1;
}

static int set_integer(const struct smelt__option *option, void *field, const char *value,
                       char *message, size_t size) {
    char *end;
    errno = 0;
    long long number = strtoll(value, &end, 10);
    if (errno || end == value || *end || number < option->least || number > option->most)
        return fail(message, size, "--%s: '%s' is not a number from %lld to %lld", option->name,
                    value, (long long)option->least, (long long)option->most);
    *(int64_t *)field = number;
    return 1;
}

static int set_seed(const struct smelt__option *option, void *field, const char *value,
                    char *message, size_t size) {
    char *end;
    errno = 0;
    unsigned long long number = strtoull(value, &end, 0);
    if (errno || end == value || *end || strchr(value, '-'))
        return fail(message, size, "--%s: '%s' is not a number from 0 to 2^64 - 1", option->name,
                    value);
    *(uint64_t *)field = number;
    return 1;
}

static int set_number(const struct smelt__option *option, void *field, const char *value,
                      char *message, size_t size) {
    char *end;
    float number = strtof(value, &end);
    if (end == value || *end || !(number > 0.0F && number <= 1e30F))
        return fail(message, size, "--%s: '%s' is not a number above 0, at most 1e30", option->name,
                    value);
    *(float *)field = number;
    return 1;
}

static int set_choice(const struct smelt__option *option, void *field, const char *value,
                      char *message, size_t size) {
    int length = 0;
    for (int i = 0; option->choices[i]; i++)
        if (strcmp(value, option->choices[i]) == 0) {
            *(int *)field = i;
            return 1;
        }
    length = snprintf(message, size, "--%s: '%s' is none of ", option->name, value);
    for (int i = 0; option->choices[i] && length >= 0 && (size_t)length < size; i++)
        length += snprintf(message + length, size - (size_t)length, "%s%s", i ? ", " : "",
                           option->choices[i]);
    return -1;
}

int smelt__problem_option_set(const struct smelt__harness_operator *op,
                              struct smelt__problem_options *options, const char *name,
                              const char *value, char *message, size_t message_size) {
    const struct smelt__option *option = smelt__option_find(op, name);
    if (!option) {
        fail(message, message_size, "%s has no option --%s", op ? op->name : "no operator", name);
        return 0;
    }
    void *field = (char *)options + option->field;
    if (option->kind == SMELT__OPTION_FLAG) {
        *(int *)field = 1;
        return 1;
    }
    if (!value)
        return fail(message, message_size, "--%s needs a value", name);
    switch (option->kind) {
    case SMELT__OPTION_SEED:
        return set_seed(option, field, value, message, message_size);
    case SMELT__OPTION_NUMBER:
        return set_number(option, field, value, message, message_size);
    case SMELT__OPTION_CHOICE:
        return set_choice(option, field, value, message, message_size);
    default:
        return set_integer(option, field, value, message, message_size);
    }
}

static int same_field(const struct smelt__option *option, const void *a, const void *b) {
    switch (option->kind) {
    case SMELT__OPTION_SEED:
    case SMELT__OPTION_INTEGER:
        return *(const int64_t *)a == *(const int64_t *)b;
    case SMELT__OPTION_NUMBER:
        return *(const float *)a == *(const float *)b;
    default:
        return *(const int *)a == *(const int *)b;
    }
}

int smelt__problem_same(const struct smelt__harness_operator *op,
                        const struct smelt__problem_options *a,
                        const struct smelt__problem_options *b) {
    const struct smelt__option *option;
    for (int i = 0; (option = option_at(op, i)) != NULL; i++)
        if (!same_field(option, (const char *)a + option->field, (const char *)b + option->field))
            return 0;
    return 1;
}

static int print_option(const struct smelt__option *option,
                        const struct smelt__problem_options *options, char *text, size_t size) {
    const void *field = (const char *)options + option->field;
    switch (option->kind) {
    case SMELT__OPTION_SEED:
        return snprintf(text, size, " --%s %llu", option->name,
                        (unsigned long long)*(const uint64_t *)field);
    case SMELT__OPTION_NUMBER:
        return *(const float *)field > 0
                   ? snprintf(text, size, " --%s %.9g", option->name, (double)*(const float *)field)
                   : 0;
    case SMELT__OPTION_CHOICE: /* lists are always printed, because check tries several kinds if
                                  none is given */
        return *(const int *)field || option->choices == smelt__lists_names
                   ? snprintf(text, size, " --%s %s", option->name,
                              option->choices[*(const int *)field])
                   : 0;
    case SMELT__OPTION_FLAG:
        return *(const int *)field ? snprintf(text, size, " --%s", option->name) : 0;
    default: {
        const int64_t value = *(const int64_t *)field;
        return value ? snprintf(text, size, " --%s %lld", option->name, (long long)value) : 0;
    }
    }
}

/* Whether a pass of the spec has gradients with respect to keys, whose type the option dkv chooses. */
static int has_key_grads(const struct smelt__harness_operator *op, const char *spec) {
    int found = 0;
    for (int i = 0; i < op->pass_count; i++)
        if (op->passes[i].pass == op->passes[0].pass || strstr(spec, ",passes="))
            for (int n = 0; n < op->passes[i].tensors->count; n++)
                found |= op->passes[i].tensors->rows[n].one_of != 0;
    return found;
}

/* Whether an option has an effect on the spec. */
static int applies(const struct smelt__option *option, const struct smelt__harness_operator *op,
                   const char *spec) {
    return option->field != FIELD(dkv) || has_key_grads(op, spec);
}

void smelt__problem_inputs(const char *spec, const struct smelt__problem_options *given,
                           const struct smelt__problem_options *options, char *text, size_t size) {
    const struct smelt__harness_operator *op = smelt__harness_find(spec);
    const char *const name = smelt__harness_inputs(op, options);
    const struct smelt__option *option;
    size_t length = (size_t)snprintf(text, size, "%s", name);
    int named = 0; /* 1: the option that gives the name was found; its value is not repeated */
    for (int i = 0; (option = option_at(op, i)) != NULL && length < size; i++) {
        char words[64];
        const char *const field = (const char *)options + option->field;
        if (same_field(option, (const char *)given + option->field, field) ||
            !applies(option, op, spec) || print_option(option, options, words, sizeof words) == 0)
            continue;
        if (!named && option->kind == SMELT__OPTION_CHOICE &&
            strcmp(option->choices[*(const int *)(const void *)field], name) == 0)
            named = 1;
        else
            length += (size_t)snprintf(text + length, size - length, ", %s", words + strlen(" --"));
    }
}

void smelt__problem_command(const char *verb, const char *spec,
                            const struct smelt__problem_options *options, char *text, size_t size) {
    const struct smelt__harness_operator *op = smelt__harness_find(spec);
    const struct smelt__option *option;
    size_t length = 0;
    int written = snprintf(text, size, "smelt %s %s", verb, spec);
    for (int i = 0; op && (option = option_at(op, i)) != NULL; i++) {
        length += written > 0 ? (size_t)written : 0;
        if (length >= size)
            return;
        written = applies(option, op, spec)
                      ? print_option(option, options, text + length, size - length)
                      : 0;
    }
}
