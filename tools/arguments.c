/*
 * The command line of `smelt`: one table of options, from which parsing, help and error messages
 * follow. The options that describe a problem (check, bench) come from the operators
 * (harness/options.h).
 */
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
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
    const char *value; /* the argument's name in help; NULL for a flag */
    const char *help; /* --help prints its first sentence, the man page all; both add the choices */
    enum option_kind kind;
    size_t field; /* offset in struct tool_options; unused by PROBLEM */
    int64_t minimum, maximum;
    const char *const *choices; /* NULL-terminated, or NULL */
};

static const char *const shape_tables[] = {"peers", NULL};
static const char *const pass_sets[] = {"forward", "backward", "both", NULL};

#define FIELD(name) offsetof(struct tool_options, name)
#define FLAG_OPTION(name, letter, help)                                                            \
    { #name, letter, NULL, help, FLAG, FIELD(name), 0, 0, NULL }
#define NUMBER_OPTION(name, letter, minimum, maximum, help)                                        \
    { #name, letter, "N", help, NUMBER, FIELD(name), minimum, maximum, NULL }

static const struct option_description descriptions[TOOL_OPTION_COUNT] = {
    [TOOL_ARCH] = {"arch", 0, "ARCH",
                   "architecture (sm_90a) or GPU (h100); default: the GPU's. May be repeated for "
                   "`warm` and `check --emulate`, whose default is sm_90a. `smelt list gpus` lists "
                   "the GPUs. An architecture whose kernels no GPU uses, such as sm_90 instead of "
                   "sm_90a, gives a warning.",
                   VALUES, FIELD(archs), 0, 0, NULL},
    [TOOL_PRESET] = {"preset", 0, "NAME", "the operators that a model needs; may be repeated",
                     VALUES, FIELD(presets), 0, 0, NULL},
    [TOOL_TP] =
        NUMBER_OPTION(tp, 0, INT32_MIN, INT32_MAX,
                      "number of tensor-parallel ranks, by which a preset's heads are divided"),
    [TOOL_PASSES] = {"passes", 0, "SET",
                     "passes to use; default: all of a preset, those of a spec. Only `show` and "
                     "`emit` can replace those of a spec.",
                     NAME, FIELD(passes), 0, 0, pass_sets},
    [TOOL_MANIFEST] = {"manifest", 0, "FILE", "JSON file of specs, presets and architectures", NAME,
                       FIELD(manifest), 0, 0, NULL},
    [TOOL_JOBS] =
        NUMBER_OPTION(jobs, 'j', 1, 1024, "kernels compiled at a time; default: one per processor"),
    [TOOL_OFFLINE] =
        FLAG_OPTION(offline, 0, "compile nothing; exit status 3 and a list if kernels are missing"),
    [TOOL_STRICT] = FLAG_OPTION(strict, 0, "refuse an architecture whose kernels no GPU uses"),
    [TOOL_DEVICE] = NUMBER_OPTION(device, 0, 0, 1023, "number of the GPU; default 0"),
    [TOOL_CACHE] = FLAG_OPTION(cache, 0, "list the cached kernels instead"),
    [TOOL_EMULATE] = FLAG_OPTION(emulate, 0, "run on the emulator, on the CPU, instead of a GPU"),
    [TOOL_PROBLEM] = {.name = NULL}, /* replaced by add_problem_rows */
    [TOOL_SAMPLE] =
        NUMBER_OPTION(sample, 0, 1, INT32_MAX,
                      "queries compared with the reference, at most; default 32. For outputs that "
                      "have no queries it is the number of their units, such as rows of keys."),
    [TOOL_SCHEDULES] =
        NUMBER_OPTION(schedules, 0, 1, 1000000,
                      "emulated runs of each check; default 4. Each has another schedule: the "
                      "first four are the extremes, later ones are random, by `--seed`."),
    [TOOL_SCHEDULE] = {"schedule", 0, "NAME",
                       "emulated run with this schedule instead, as printed by a failure; may be "
                       "repeated. The name is when copies complete (`late`, `early` or `random`), "
                       "a comma, which warp goes first (`ascending`, `descending` or `shuffled`) "
                       "and, if one of them is random, a comma and the seed.",
                       VALUES, FIELD(schedule), 0, 0, NULL},
    [TOOL_SHAPES] =
        {"shapes", 0, "TABLE",
         "a table of shapes instead of specs. `peers` has every operator at the shapes at which "
         "`bench/peers` of the source tree compares it with other libraries: attention's forward "
         "pass with FlashMLA, its backward pass with cuDNN, the indexer's operators with DeepGEMM, "
         "cuDNN and PyTorch. This verb times smelt only; bench/peers times both alternately.",
         NAME, FIELD(shapes), 0, 0, shape_tables},
    [TOOL_REPEAT] = NUMBER_OPTION(
        repeat, 0, 1, 100000, "timed launches of each shape, or of `tune`'s finalists; default 30"),
    [TOOL_MAX_SIZE] = {"max-size", 0, "SIZE",
                       "prune: bytes to keep, optionally with K, M or G; default: the cap", NAME,
                       FIELD(max_size), 0, 0, NULL},
    [TOOL_OLDER_THAN] =
        {"older-than", 0, "AGE",
         "prune: remove entries that were not used for this time, such as 12h or 30d. A number "
         "with s, m, h, d or w. The time of an entry's last use has a resolution of ten minutes.",
         NAME, FIELD(older_than), 0, 0, NULL},
    [TOOL_ALLOW_EMPTY] = {"allow-empty", 0, NULL,
                          "import: accept a file or folder without a kernel", FLAG,
                          FIELD(allow_empty), 0, 0, NULL},
    [TOOL_TUNED_FOR] = {"tuned-for", 0, "NAME",
                        "use the tuning entries of the device with this name, such as \"NVIDIA "
                        "H200\"; default: the GPU's, with `--arch` none",
                        NAME, FIELD(tuned_for), 0, 0, NULL},
    [TOOL_TUNED] = FLAG_OPTION(tuned, 0, "list the tuning file's entries instead"),
    [TOOL_KNOBS] = {"knobs", 0, "NAMES", "vary only these knobs, as in stages,pv_overlap", NAME,
                    FIELD(knobs), 0, 0, NULL},
    [TOOL_LIMIT] =
        NUMBER_OPTION(limit, 0, 1, 4096, "autotuning candidates of a kernel; default 64"),
    [TOOL_DRY_RUN] = {"dry-run", 0, NULL, "list the candidates; needs no GPU with `--arch`", FLAG,
                      FIELD(dry_run), 0, 0, NULL},
    [TOOL_KERNEL] = NUMBER_OPTION(kernel, 0, 1, INT32_MAX,
                                  "only this kernel of an operator, as `show` numbers them"),
    [TOOL_CONSTANTS] =
        FLAG_OPTION(constants, 0, "only constants and parts, as a header for an editor"),
    [TOOL_JSON] =
        FLAG_OPTION(json, 0,
                    "print one JSON document on standard output and nothing else. An error's "
                    "document has the members `error` and `exit_status`. JSON is UTF-8: bytes of "
                    "paths, names and messages that are not valid UTF-8 are replaced by U+FFFD."),
    [TOOL_VERBOSE] =
        FLAG_OPTION(verbose, 'v', "log compilations and loaded kernels; twice: in detail"),
    [TOOL_HELP] = FLAG_OPTION(help, 'h', "print the verb's help"),
};

/* getopt_long's code of a long option; above every letter. */
enum {
    MAX_PROBLEM_OPTIONS = 64, /* bits of problem_given */
    MAX_ROWS = TOOL_OPTION_COUNT + MAX_PROBLEM_OPTIONS,
    FIRST_CODE = 512,
    LONGEST_SHORT = 2 * TOOL_OPTION_COUNT + 3
};

/* A verb's options: its rows of the table, with the problem options in their place. */
struct rows {
    struct row {
        struct option_description is;
        const struct smelt__option *problem; /* NULL: not one of a problem's */
        int number;
    } list[MAX_ROWS];
    int count;
};

static int has(const struct tool_verb *verb, int option) {
    return (verb->options & TOOL_BIT(option)) != 0;
}

static const char *value_of(const struct smelt__option *option) {
    static const char *const names[] = {[SMELT__OPTION_INTEGER] = "N",
                                        [SMELT__OPTION_FLAG] = NULL,
                                        [SMELT__OPTION_CHOICE] = "KIND",
                                        [SMELT__OPTION_SEED] = "N",
                                        [SMELT__OPTION_NUMBER] = "X"};
    return names[option->kind];
}

static void add_problem_rows(struct rows *rows, const struct tool_verb *verb) {
    const struct smelt__option *option;
    for (int i = 0; i < MAX_PROBLEM_OPTIONS && (option = smelt__option_number(i)) != NULL; i++)
        if (!(option->traits & SMELT__OPTION_EMULATED) || has(verb, TOOL_EMULATE))
            rows->list[rows->count++] = (struct row){.is = {.name = option->name,
                                                            .value = value_of(option),
                                                            .help = option->help,
                                                            .kind = PROBLEM,
                                                            .choices = option->choices},
                                                     .problem = option,
                                                     .number = i};
}

static void list_rows(struct rows *rows, const struct tool_verb *verb) {
    rows->count = 0;
    for (int i = 0; i < TOOL_OPTION_COUNT; i++)
        if (has(verb, i) && i == TOOL_PROBLEM)
            add_problem_rows(rows, verb);
        else if (has(verb, i))
            rows->list[rows->count++] = (struct row){.is = descriptions[i]};
}

/* ---- help ------------------------------------------------------------------------------------ */

enum { HELP_LEFT = 26, HELP_WIDTH = 98, HELP_LONGEST = 1024 };

__attribute__((format(printf, 2, 3))) static void add_text(char text[HELP_LONGEST],
                                                           const char *format, ...) {
    const size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + used, HELP_LONGEST - used, format, arguments);
    va_end(arguments);
}

/* Whether an option is this operator's own; 0 for options that several operators share. */
static int is_own(const struct row *row, const struct smelt__harness_operator *op) {
    return row->problem && !smelt__option_is_common(row->problem) &&
           smelt__option_find(op, row->is.name);
}

char *tool_first_sentence(const char *text) {
    char *copy = tool_copy(text), *end = strstr(copy, ". ");
    if (end)
        *end = '\0';
    return copy;
}

/* The help text of an option: the operators whose own it is, the first sentence of its meaning, its
 * choices. */
static void describe(const struct row *row, char text[HELP_LONGEST]) {
    char *meaning = tool_first_sentence(row->is.help);
    int owners = 0;
    text[0] = '\0';
    for (int i = 0; smelt__harness_operators[i]; i++)
        if (is_own(row, smelt__harness_operators[i]))
            add_text(text, "%s%s", owners++ ? ", " : "", smelt__harness_operators[i]->name);
    add_text(text, "%s%s", owners ? ": " : "", meaning);
    free(meaning);
    for (int i = 0; row->is.choices && row->is.choices[i]; i++)
        add_text(text, "%s%s%s", i ? ", " : " (", row->is.choices[i],
                 row->is.choices[i + 1] ? "" : ")");
}

void tool_print_wrapped(const char *text, int left) {
    int column = left;
    for (const char *word = text; *word;) {
        const int length = (int)strcspn(word, " ");
        if (word > text && column + 1 + length > HELP_WIDTH) {
            printf("\n%*s", left, "");
            column = left;
        } else if (word > text) {
            putchar(' ');
            column++;
        }
        printf("%.*s", length, word);
        column += length;
        word += length + (word[length] == ' ');
    }
    putchar('\n');
}

void tool_print_verb_help(const struct tool_verb *verb) {
    struct rows rows;
    list_rows(&rows, verb);
    printf("usage: smelt %s [OPTION]...%s%s\n\n", verb->name, *verb->arguments ? " " : "",
           verb->arguments);
    for (const char *const *paragraph = verb->details; *paragraph; paragraph++) {
        const char *text = strchr(*paragraph, '\t');
        if (text)
            printf("%-8.*s", (int)(text - *paragraph), *paragraph);
        tool_print_wrapped(text ? text + 1 : *paragraph, text ? 8 : 0);
        if (!text || !paragraph[1] || !strchr(paragraph[1], '\t'))
            putchar('\n');
    }
    printf("options:\n");
    for (int i = 0; i < rows.count; i++) {
        const struct option_description *option = &rows.list[i].is;
        char left[40], help[HELP_LONGEST];
        snprintf(left, sizeof left, "%c%c%s --%s%s%s", option->letter ? '-' : ' ',
                 option->letter ? option->letter : ' ', option->letter ? "," : " ", option->name,
                 option->value ? " " : "", option->value ? option->value : "");
        describe(&rows.list[i], help);
        printf("  %-22s  ", left);
        tool_print_wrapped(help, HELP_LEFT);
    }
}

static json_t *row_json(const struct row *row) {
    json_t *choices = tool_json(json_array()), *operators = tool_json(json_array());
    const char letter[] = {row->is.letter, '\0'};
    for (int i = 0; row->is.choices && row->is.choices[i]; i++)
        json_array_append_new(choices, tool_json_text(row->is.choices[i]));
    for (int i = 0; smelt__harness_operators[i]; i++)
        if (is_own(row, smelt__harness_operators[i]))
            json_array_append_new(operators, tool_json_text(smelt__harness_operators[i]->name));
    return tool_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:b}", "name", row->is.name, "letter", letter,
                     "value", row->is.value ? row->is.value : "", "help", row->is.help, "choices",
                     choices, "operators", operators, "problem", row->problem != NULL);
}

json_t *tool_verb_json(const struct tool_verb *verb) {
    struct rows rows;
    json_t *details = tool_json(json_array()), *options = tool_json(json_array());
    list_rows(&rows, verb);
    for (const char *const *paragraph = verb->details; *paragraph; paragraph++)
        json_array_append_new(details, tool_json_text(*paragraph));
    for (int i = 0; i < rows.count; i++)
        json_array_append_new(options, row_json(&rows.list[i]));
    return tool_pack("{s:s, s:s, s:s, s:o, s:o}", "name", verb->name, "arguments", verb->arguments,
                     "summary", verb->summary, "details", details, "options", options);
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
    /* strtoll would skip blanks and accept a plus sign. */
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

static int read_problem_option(struct tool_options *options, const struct row *row,
                               const char *text) {
    char message[512] = "";
    options->problem_given |= TOOL_BIT(row->number);
    if (smelt__problem_option_set(NULL, &options->problem, row->is.name, text, message,
                                  sizeof message) == 1)
        return TOOL_OK;
    return tool_fail(options, TOOL_USAGE, "%s", message);
}

/* Problem option `number` if it was given, else NULL. */
static const struct smelt__option *given_option(const struct tool_options *options, int number) {
    return options->problem_given & TOOL_BIT(number) ? smelt__option_number(number) : NULL;
}

struct smelt__problem_options tool_bench_problem(const struct tool_options *options,
                                                 const struct smelt__harness_operator *op) {
    struct smelt__problem_options problem = options->problem;
    int lists_given = 0;
    for (int i = 0; i < MAX_PROBLEM_OPTIONS; i++) {
        const struct smelt__option *option = given_option(options, i);
        lists_given |= option && !strcmp(option->name, "lists");
    }
    if (op && !problem.tokens)
        problem.tokens = op->bench.tokens;
    if (op && !problem.rows)
        problem.rows = op->bench.rows;
    if (op && !lists_given)
        problem.lists = op->bench.lists;
    return problem;
}

int tool_inputs_given(const struct tool_options *options) {
    for (int i = 0; i < MAX_PROBLEM_OPTIONS; i++) {
        const struct smelt__option *option = given_option(options, i);
        if (option && (option->traits & SMELT__OPTION_INPUTS))
            return 1;
    }
    return 0;
}

int tool_options_fit(const struct tool_options *options, const char *spec) {
    const struct smelt__harness_operator *op = smelt__harness_find(spec);
    const struct smelt__option *option = NULL;
    char owners[HELP_LONGEST] = "";
    for (int i = 0; op && i < MAX_PROBLEM_OPTIONS && !option; i++) {
        option = given_option(options, i);
        if (option && smelt__option_find(op, option->name))
            option = NULL;
    }
    if (!option)
        return TOOL_OK;
    for (int i = 0; smelt__harness_operators[i]; i++)
        if (smelt__option_find(smelt__harness_operators[i], option->name))
            add_text(owners, "%s%s", *owners ? ", " : "", smelt__harness_operators[i]->name);
    return tool_fail(options, TOOL_USAGE, "%s has no option --%s; operators that have it: %s",
                     op->name, option->name, owners);
}

static void add_value(struct tool_values *values, const char *text) {
    values->items =
        tool_allocate(values->items, (size_t)values->count + 1, sizeof values->items[0]);
    values->items[values->count++] = text;
}

static int read_value(struct tool_options *options, const struct row *row, const char *text) {
    const struct option_description *option = &row->is;
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
        return read_problem_option(options, row, text);
    default:
        add_value(field, text);
        return TOOL_OK;
    }
}

/* ---- the command line ------------------------------------------------------------------------ */

/* Refuses an option that the verb does not have, or an ambiguous abbreviation. */
static int refuse_name(const struct tool_options *options, const struct rows *rows,
                       const char *word) {
    const char *names[MAX_ROWS];
    char given[80];
    size_t count = 0;
    snprintf(given, sizeof given, "%.*s", (int)strcspn(word + 2, "="), word + 2);
    for (int i = 0; i < rows->count; i++)
        names[count++] = rows->list[i].is.name;
    const char *nearest = tool_nearest(given, names, count);
    if (nearest)
        return tool_fail(options, TOOL_USAGE, "no option --%s, did you mean --%s?", given, nearest);
    return tool_fail(options, TOOL_USAGE, "no option --%s; `smelt %s --help` lists them", given,
                     options->verb->name);
}

/* Explains a refusal by getopt_long: ':' for a missing value, '?' for the rest; `culprit` is its
 * optopt. */
static int refuse(const struct tool_options *options, const struct rows *rows, int code,
                  int culprit, const char *word) {
    if (code == ':')
        return tool_fail(options, TOOL_USAGE, "%s needs a value", word);
    if (!culprit)
        return refuse_name(options, rows, word);
    if (culprit >= FIRST_CODE)
        return tool_fail(options, TOOL_USAGE, "--%s takes no value",
                         rows->list[culprit - FIRST_CODE].is.name);
    return tool_fail(options, TOOL_USAGE, "no option -%c; `smelt %s --help` lists them", culprit,
                     options->verb->name);
}

/* getopt_long's two tables. */
static void list_options(const struct rows *rows, const struct tool_verb *verb,
                         struct option long_options[MAX_ROWS + 1],
                         char short_options[LONGEST_SHORT]) {
    size_t length = 0;
    if (!strncmp(verb->arguments, "-- ", 3))
        short_options[length++] = '+'; /* options end where the program begins */
    short_options[length++] = ':';     /* distinguish a missing value from an unknown option */
    for (int i = 0; i < rows->count; i++) {
        const struct option_description *option = &rows->list[i].is;
        long_options[i] = (struct option){
            option->name, option->value ? required_argument : no_argument, NULL, FIRST_CODE + i};
        if (option->letter)
            short_options[length++] = option->letter;
        if (option->letter && option->value)
            short_options[length++] = ':';
    }
    long_options[rows->count] = (struct option){0};
    short_options[length] = '\0';
}

static const struct row *row_of_code(const struct rows *rows, int code) {
    if (code >= FIRST_CODE)
        return &rows->list[code - FIRST_CODE];
    for (int i = 0; i < rows->count; i++)
        if (rows->list[i].is.letter == code)
            return &rows->list[i];
    return NULL;
}

/* argv[0] is the verb. */
static int read_all(struct tool_options *options, int argc, char **argv) {
    struct rows rows;
    struct option long_options[MAX_ROWS + 1];
    char short_options[LONGEST_SHORT];
    int code, status;
    list_rows(&rows, options->verb);
    list_options(&rows, options->verb, long_options, short_options);
    opterr = 0;
    while ((code = getopt_long(argc, argv, short_options, long_options, NULL)) != -1) {
        const struct row *row = row_of_code(&rows, code);
        if (!row)
            return refuse(options, &rows, code, optopt, argv[optind - 1]);
        if ((status = read_value(options, row, optarg)) != TOOL_OK)
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
    /* Errors before --json obey it too. */
    options->json = tool_wants_json(argc, argv);
    return read_all(options, argc - 1, argv + 1);
}

void tool_options_free(struct tool_options *options) {
    free(options->arguments.items);
    free(options->presets.items);
    free(options->archs.items);
    free(options->schedule.items);
}
