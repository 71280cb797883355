/*
 * The command line of `smelt`: one table of options, from which parsing, help and error messages
 * follow. What describes a problem (check, bench) is read by harness/options.h's tables.
 */
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "tool.h"

enum option_kind {
    FLAG,   /* counts */
    NUMBER, /* an int64_t within a range */
    NAME,   /* a string, or one of the choices */
    VALUES, /* a string; may be repeated */
    PROBLEM /* smelt__problem_option_set reads it */
};

struct option_description {
    const char *name;
    char letter;       /* 0: none */
    const char *value; /* what help calls the argument, NULL for a flag */
    const char *help;
    enum option_kind kind;
    size_t field; /* offset in struct tool_options; unused by PROBLEM */
    int64_t minimum, maximum;
    const char *const *choices; /* NULL-terminated, or NULL */
};

static const char *const shape_tables[] = {"peers", NULL};
static const char *const pass_sets[] = {"forward", "backward", "both", NULL};

#define FIELD(name) offsetof(struct tool_options, name)
/* clang-format off: a table */
#define FLAG_OPTION(name, letter, help)                                                            \
    { #name, letter, NULL, help, FLAG, FIELD(name), 0, 0, NULL }
#define NUMBER_OPTION(name, letter, minimum, maximum, help)                                        \
    { #name, letter, "N", help, NUMBER, FIELD(name), minimum, maximum, NULL }
#define PROBLEM_OPTION(name, value, help)                                                          \
    { name, 0, value, help, PROBLEM, 0, 0, 0, NULL }

static const struct option_description descriptions[TOOL_OPTION_COUNT] = {
    [TOOL_ARCH] = {"arch", 0, "ARCH", "architecture, such as sm_90a; default: the GPU's", VALUES,
                   FIELD(archs), 0, 0, NULL},
    [TOOL_PRESET] = {"preset", 0, "NAME", "the operators a model needs; may be repeated", VALUES,
                     FIELD(presets), 0, 0, NULL},
    [TOOL_TP] = NUMBER_OPTION(tp, 0, INT32_MIN, INT32_MAX,
                              "tensor-parallel ranks a preset's heads are divided by"),
    [TOOL_PASSES] = {"passes", 0, "SET",
                     "forward, backward or both; default: the spec's, of a preset all there are",
                     NAME, FIELD(passes), 0, 0, pass_sets},
    [TOOL_MANIFEST] = {"manifest", 0, "FILE", "JSON file of specs, presets and architectures", NAME,
                       FIELD(manifest), 0, 0, NULL},
    [TOOL_JOBS] =
        NUMBER_OPTION(jobs, 'j', 1, 1024, "kernels compiled at a time; default: one per processor"),
    [TOOL_DEVICE] = NUMBER_OPTION(device, 0, 0, 1023, "number of the GPU; default 0"),
    [TOOL_CACHE] = FLAG_OPTION(cache, 0, "list what is cached instead"),
    [TOOL_EMULATE] = FLAG_OPTION(emulate, 0, "run on the emulator instead of a GPU"),
    [TOOL_SEED] = PROBLEM_OPTION("seed", "N", "seed of the random input; default 0"),
    [TOOL_QUERIES] = PROBLEM_OPTION("queries", "N", "query tokens of each batch"),
    [TOOL_ROWS] = PROBLEM_OPTION("rows", "N", "KV rows of each batch"),
    [TOOL_BATCHES] = PROBLEM_OPTION("batches", "N", "batches; default 1"),
    [TOOL_WIDTH] = PROBLEM_OPTION("width", "N", "index slots of a query; default: topk"),
    [TOOL_VALID] =
        PROBLEM_OPTION("valid", "N", "valid slots of a query, random lists; default all"),
    [TOOL_LISTS] = PROBLEM_OPTION("lists", "KIND",
                                  "random, causal, window, adversarial, packed, log, drift, full"),
    [TOOL_DOCUMENTS] =
        PROBLEM_OPTION("documents", "N", "documents of a batch, causal and packed lists"),
    [TOOL_QUERY_LIST] =
        PROBLEM_OPTION("query-list", "KIND", "none, partial, clamped, whole, empty, repeated"),
    [TOOL_SCALE] = PROBLEM_OPTION("scale", "X", "softmax scale; default 1/sqrt(dqk)"),
    [TOOL_SPIKY] = PROBLEM_OPTION("spiky", NULL, "inputs whose scores pass 100"),
    [TOOL_TOPK_LENGTH] = PROBLEM_OPTION("topk-length", NULL, "give topk_length too"),
    [TOOL_STRIDED] = PROBLEM_OPTION("strided", NULL, "tensors with gaps"),
    [TOOL_MAX_LOGITS] = PROBLEM_OPTION("max-logits", NULL, "ask for max_logits too"),
    [TOOL_DKV] =
        PROBLEM_OPTION("dkv", "KIND", "what a backward pass gives: bf16, fp32, add (to fp32)"),
    [TOOL_DATA] = PROBLEM_OPTION("data", "KIND",
                                 "topk_select: the scores, gaussian or one of 15 that are hard"),
    [TOOL_WINDOWS] =
        PROBLEM_OPTION("windows", "KIND", "topk_select: of its rows: whole, causal, random"),
    [TOOL_VALUES] =
        PROBLEM_OPTION("values", NULL, "topk_select, indexer_topk: ask for the values too"),
    [TOOL_SCORES] = PROBLEM_OPTION(
        "scores", "KIND", "indexer_loss: beside its target: far-off, trained, odd, certain"),
    [TOOL_WEIGHTED] =
        PROBLEM_OPTION("weighted", NULL, "indexer_loss: give weights and grad_loss too"),
    [TOOL_OUTPUTS] =
        PROBLEM_OPTION("outputs", "KIND", "indexer_loss: what is asked for: grad, losses, loss"),
    [TOOL_SAMPLE] =
        NUMBER_OPTION(sample, 0, 1, INT32_MAX, "queries compared with the reference; default 32"),
    [TOOL_FAR] = PROBLEM_OPTION("far", NULL, "strides of billions; with --emulate"),
    [TOOL_SCHEDULES] =
        NUMBER_OPTION(schedules, 0, 1, 1000000, "emulated runs of each check; default 4"),
    [TOOL_SCHEDULE] = {"schedule", 0, "NAME", "one such run by its name; may be repeated", VALUES,
                       FIELD(schedule), 0, 0, NULL},
    [TOOL_SHAPES] = {"shapes", 0, "TABLE", "a table of shapes instead of specs: peers", NAME,
                     FIELD(shapes), 0, 0, shape_tables},
    [TOOL_REPEAT] = NUMBER_OPTION(repeat, 0, 1, 100000, "timed launches of each shape; default 30"),
    [TOOL_MAX_SIZE] = {"max-size", 0, "SIZE",
                       "prune: bytes to keep, or with K, M, G; default: the cap", NAME,
                       FIELD(max_size), 0, 0, NULL},
    [TOOL_OLDER_THAN] = {"older-than", 0, "AGE", "prune: what was not used so long, as 12h or 30d",
                         NAME, FIELD(older_than), 0, 0, NULL},
    [TOOL_TUNED_FOR] = {"tuned-for", 0, "NAME",
                        "use this device's tuning entries; default: the GPU's, without --arch",
                        NAME, FIELD(tuned_for), 0, 0, NULL},
    [TOOL_TUNED] = FLAG_OPTION(tuned, 0, "list what the tuning file says instead"),
    [TOOL_KNOBS] = {"knobs", 0, "NAMES", "vary these knobs alone, as stages,turn_steps", NAME,
                    FIELD(knobs), 0, 0, NULL},
    [TOOL_LIMIT] = NUMBER_OPTION(limit, 0, 1, 4096, "candidates of a kernel; default 64"),
    [TOOL_DRY_RUN] = {"dry-run", 0, NULL, "list the candidates; needs no GPU with --arch", FLAG,
                      FIELD(dry_run), 0, 0, NULL},
    [TOOL_KERNEL] = NUMBER_OPTION(kernel, 0, 1, INT32_MAX,
                                  "of an operator's kernels this one alone, as show numbers them"),
    [TOOL_JSON] = FLAG_OPTION(json, 0, "one JSON document on standard output"),
    [TOOL_VERBOSE] = FLAG_OPTION(verbose, 'v', "say what is found and done; twice: in detail"),
    [TOOL_HELP] = FLAG_OPTION(help, 'h', "print this help"),
};
/* clang-format on */

/* getopt_long's code of a long option; above every letter. */
enum { FIRST_CODE = 512, LONGEST_SHORT = 2 * TOOL_OPTION_COUNT + 2 };

static int has(const struct tool_verb *verb, int option) {
    return (verb->options & TOOL_BIT(option)) != 0;
}

/* ---- help ------------------------------------------------------------------------------------ */

void tool_print_verb_help(const struct tool_verb *verb) {
    printf("usage: smelt %s [OPTION]...%s%s\n\n%s\noptions:\n", verb->name,
           *verb->arguments ? " " : "", verb->arguments, verb->details);
    for (int i = 0; i < TOOL_OPTION_COUNT; i++) {
        const struct option_description *option = &descriptions[i];
        char left[40];
        if (!has(verb, i))
            continue;
        snprintf(left, sizeof left, "%c%c%s --%s%s%s", option->letter ? '-' : ' ',
                 option->letter ? option->letter : ' ', option->letter ? "," : " ", option->name,
                 option->value ? " " : "", option->value ? option->value : "");
        printf("  %-22s  %s\n", left, option->help);
    }
}

int tool_wants_json(int argc, char **argv) {
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (!strcmp(argv[i], "--json"))
            return 1;
    return 0;
}

/* ---- values ---------------------------------------------------------------------------------- */

static int read_number(struct tool_options *options, const struct option_description *option,
                       const char *text) {
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    /* strtoll skips blanks and takes a plus sign: neither is a number here. */
    int plain = isdigit((unsigned char)*text) || *text == '-';
    if (!plain || *end || end == text)
        return tool_fail(options, TOOL_USAGE, "--%s takes a number, not '%s'", option->name, text);
    if (errno || value < option->minimum || value > option->maximum)
        return tool_fail(options, TOOL_USAGE, "--%s %s is out of range; legal: %lld..%lld",
                         option->name, text, (long long)option->minimum,
                         (long long)option->maximum);
    *(int64_t *)(void *)((char *)options + option->field) = value;
    return TOOL_OK;
}

static int read_name(struct tool_options *options, const struct option_description *option,
                     const char *text) {
    size_t count = 0;
    char legal[128] = "";
    *(const char **)(void *)((char *)options + option->field) = text;
    if (!option->choices)
        return TOOL_OK;
    for (; option->choices[count]; count++) {
        size_t used = strlen(legal);
        if (!strcmp(option->choices[count], text))
            return TOOL_OK;
        snprintf(legal + used, sizeof legal - used, "%s%s", count ? ", " : "",
                 option->choices[count]);
    }
    const char *nearest = tool_nearest(text, option->choices, count);
    return tool_fail(options, TOOL_USAGE, "--%s: unknown '%s'%s%s%s; legal: %s", option->name, text,
                     nearest ? ", did you mean " : "", nearest ? nearest : "", nearest ? "?" : "",
                     legal);
}

static int read_problem_option(struct tool_options *options,
                               const struct option_description *option, const char *text) {
    char message[512] = "";
    options->problem_given |= TOOL_BIT(option - descriptions);
    if (smelt__problem_option_set(NULL, &options->problem, option->name, text, message,
                                  sizeof message) == 1)
        return TOOL_OK;
    return tool_fail(options, TOOL_USAGE, "%s", message);
}

int tool_options_fit(const struct tool_options *options, const char *spec) {
    const struct smelt__harness_operator *op = smelt__harness_find(spec);
    for (int i = 0; op && i < TOOL_OPTION_COUNT; i++)
        if ((options->problem_given & TOOL_BIT(i)) && !smelt__option_find(op, descriptions[i].name))
            return tool_fail(options, TOOL_USAGE, "%s has no option --%s", op->name,
                             descriptions[i].name);
    return TOOL_OK;
}

static void add_value(struct tool_values *values, const char *text) {
    values->items =
        tool_allocate(values->items, (size_t)values->count + 1, sizeof values->items[0]);
    values->items[values->count++] = text;
}

static int read_value(struct tool_options *options, const struct option_description *option,
                      const char *text) {
    void *field = (char *)options + option->field;
    switch (option->kind) {
    case FLAG:
        ++*(int64_t *)field;
        return TOOL_OK;
    case NUMBER:
        return read_number(options, option, text);
    case NAME:
        return read_name(options, option, text);
    case PROBLEM:
        return read_problem_option(options, option, text);
    default:
        add_value(field, text);
        return TOOL_OK;
    }
}

/* ---- the command line ------------------------------------------------------------------------ */

/* An option the verb does not have, or an abbreviation of several it has. */
static int refuse_name(const struct tool_options *options, const char *word) {
    const struct tool_verb *verb = options->verb;
    const char *names[TOOL_OPTION_COUNT];
    char given[80];
    size_t count = 0;
    snprintf(given, sizeof given, "%.*s", (int)strcspn(word + 2, "="), word + 2);
    for (int i = 0; i < TOOL_OPTION_COUNT; i++)
        if (has(verb, i))
            names[count++] = descriptions[i].name;
    const char *nearest = tool_nearest(given, names, count);
    if (nearest)
        return tool_fail(options, TOOL_USAGE, "no option --%s, did you mean --%s?", given, nearest);
    return tool_fail(options, TOOL_USAGE, "no option --%s; `smelt %s --help` lists them", given,
                     verb->name);
}

/* What getopt_long refused: ':' for a missing value, '?' for the rest; `culprit` is its optopt. */
static int refuse(const struct tool_options *options, int code, int culprit, const char *word) {
    if (code == ':')
        return tool_fail(options, TOOL_USAGE, "%s needs a value", word);
    if (!culprit)
        return refuse_name(options, word);
    if (culprit >= FIRST_CODE)
        return tool_fail(options, TOOL_USAGE, "--%s takes no value",
                         descriptions[culprit - FIRST_CODE].name);
    return tool_fail(options, TOOL_USAGE, "no option -%c; `smelt %s --help` lists them", culprit,
                     options->verb->name);
}

/* getopt_long's two tables for a verb. */
static void list_options(const struct tool_verb *verb,
                         struct option long_options[TOOL_OPTION_COUNT + 1],
                         char short_options[LONGEST_SHORT]) {
    size_t count = 0, length = 0;
    short_options[length++] = ':'; /* tell a missing value from an unknown option */
    for (int i = 0; i < TOOL_OPTION_COUNT; i++) {
        const struct option_description *option = &descriptions[i];
        if (!has(verb, i))
            continue;
        long_options[count++] = (struct option){
            option->name, option->value ? required_argument : no_argument, NULL, FIRST_CODE + i};
        if (option->letter)
            short_options[length++] = option->letter;
        if (option->letter && option->value)
            short_options[length++] = ':';
    }
    long_options[count] = (struct option){0};
    short_options[length] = '\0';
}

static const struct option_description *option_of_code(int code) {
    if (code >= FIRST_CODE)
        return &descriptions[code - FIRST_CODE];
    for (int i = 0; i < TOOL_OPTION_COUNT; i++)
        if (descriptions[i].letter == code)
            return &descriptions[i];
    return NULL;
}

/* argv[0] is the verb. */
static int read_all(struct tool_options *options, int argc, char **argv) {
    struct option long_options[TOOL_OPTION_COUNT + 1];
    char short_options[LONGEST_SHORT];
    int code, status;
    list_options(options->verb, long_options, short_options);
    opterr = 0;
    while ((code = getopt_long(argc, argv, short_options, long_options, NULL)) != -1) {
        const struct option_description *option = option_of_code(code);
        if (!option)
            return refuse(options, code, optopt, argv[optind - 1]);
        if ((status = read_value(options, option, optarg)) != TOOL_OK)
            return status;
    }
    while (optind < argc)
        add_value(&options->arguments, argv[optind++]);
    return TOOL_OK;
}

int tool_options_read(struct tool_options *options, const struct tool_verb *verb, int argc,
                      char **argv) {
    *options = (struct tool_options){.verb = verb,
                                     .tp = TOOL_NOT_GIVEN,
                                     .jobs = TOOL_NOT_GIVEN,
                                     .device = TOOL_NOT_GIVEN,
                                     .sample = TOOL_NOT_GIVEN,
                                     .repeat = TOOL_NOT_GIVEN,
                                     .limit = TOOL_NOT_GIVEN,
                                     .kernel = TOOL_NOT_GIVEN,
                                     .schedules = TOOL_NOT_GIVEN};
    /* An error in front of --json obeys it too. */
    options->json = tool_wants_json(argc, argv);
    return read_all(options, argc - 1, argv + 1);
}

void tool_options_free(struct tool_options *options) {
    free(options->arguments.items);
    free(options->presets.items);
    free(options->archs.items);
    free(options->schedule.items);
}
