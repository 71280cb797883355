/*
 * Shared by the files of the `smelt` command. The command is a client of the public API and not
 * part of the library, hence the prefix tool_ instead of smelt__.
 *
 * The files form layers, in this header's order; each calls only those above it: memory, json,
 * output, names, arguments, manifest, targets, kernels, stale and emulator, the verbs, main.
 *
 * Output rules: results go to standard output, messages to standard error. With
 * --json standard output carries exactly one JSON document.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jansson.h>

#include "harness/operator.h"
#include "harness/option_text.h"
#include "smelt/smelt.h"

/* Exit statuses, on which scripts rely. */
enum tool_exit {
    TOOL_OK = 0,
    TOOL_FAILED = 1, /* a check or a compilation failed */
    TOOL_USAGE = 2,  /* a usage error or an impossible spec */
    TOOL_MISSING = 3 /* the machine lacks a GPU, a driver or NVRTC */
};

/* ---- arguments.c: verbs, their options and their help ---------------------------------------- */

enum tool_option {
    TOOL_ARCH,
    TOOL_PRESET,
    TOOL_TP,
    TOOL_PASSES,
    TOOL_MANIFEST,
    TOOL_JOBS,
    TOOL_OFFLINE,
    TOOL_STRICT,
    TOOL_DEVICE,
    TOOL_CACHE,
    TOOL_EMULATE,
    TOOL_PROBLEM, /* all options of operators' problems (harness/options.h), a row each */
    TOOL_SAMPLE,
    TOOL_SCHEDULES,
    TOOL_SCHEDULE,
    TOOL_SHAPES,
    TOOL_REPEAT,
    TOOL_MAX_SIZE,
    TOOL_OLDER_THAN,
    TOOL_ALLOW_EMPTY,
    TOOL_TUNED_FOR,
    TOOL_TUNED,
    TOOL_KNOBS,
    TOOL_LIMIT,
    TOOL_DRY_RUN,
    TOOL_KERNEL,
    TOOL_CONSTANTS,
    TOOL_JSON,
    TOOL_VERBOSE,
    TOOL_HELP,
    TOOL_OPTION_COUNT
};

/* One option in a set of them. */
#define TOOL_BIT(option) (UINT64_C(1) << (option))
/* Options of every verb. */
#define TOOL_COMMON (TOOL_BIT(TOOL_JSON) | TOOL_BIT(TOOL_VERBOSE) | TOOL_BIT(TOOL_HELP))
/* Options that select specs. */
#define TOOL_TARGETS                                                                               \
    (TOOL_BIT(TOOL_PRESET) | TOOL_BIT(TOOL_TP) | TOOL_BIT(TOOL_PASSES) | TOOL_BIT(TOOL_MANIFEST))

struct tool_options;

struct tool_verb {
    const char *name;
    const char *arguments; /* as in the usage line; "-- ...": a program's, which may have options */
    const char *summary;   /* one line */
    const char *const *details; /* the help's paragraphs, ended by NULL: a sentence or more, or a
                                   term, a tab and its explanation */
    uint64_t options;           /* a set: TOOL_BIT of enum tool_option */
    int (*run)(const struct tool_options *options);
};

/* A list of an option's values, or of arguments: pointers into argv. */
struct tool_values {
    const char **items;
    int64_t count;
};

/* A number option that was not given. */
#define TOOL_NOT_GIVEN INT64_MIN

/* The parsed command line. */
struct tool_options {
    const struct tool_verb *verb;
    struct tool_values arguments, presets, archs, schedule;
    const char *manifest, *passes, *shapes, *max_size, *older_than, *tuned_for, *knobs;
    int64_t tp, jobs, device, sample, repeat, schedules, limit, kernel;
    int64_t cache, tuned, dry_run, allow_empty, constants, emulate, json, verbose, offline, strict,
        help;                              /* how often a flag was given */
    struct smelt__problem_options problem; /* 0 where not given */
    uint64_t problem_given;                /* options of `problem` that were given: bits by */
};

/* Parses argv[2..] by the verb's table. TOOL_OK, or TOOL_USAGE with the error printed. Free with
 * tool_options_free in both cases. */
int tool_options_read(struct tool_options *options, const struct tool_verb *verb, int argc,
                      char **argv);
void tool_options_free(struct tool_options *options);
/* The problem on which an operator is timed: options that were not given are the operator's defaults for
 * bench. */
struct smelt__problem_options tool_bench_problem(const struct tool_options *options,
                                                 const struct smelt__harness_operator *op);
/* Whether any option was given that selects a kind of inputs. */
int tool_inputs_given(const struct tool_options *options);
/* Refuses problem options that the operator of a spec does not have. Exit status, with the error
 * printed. */
int tool_options_fit(const struct tool_options *options, const char *spec);
void tool_print_verb_help(const struct tool_verb *verb);
/* The complete help of a verb, from which tools/man.py makes the man page. */
json_t *tool_verb_json(const struct tool_verb *verb);
/* The first sentence of a help text, without the period; the caller frees it. */
char *tool_first_sentence(const char *text);
/* Prints a text that begins at column `left`, and indents its other lines to that column. */
void tool_print_wrapped(const char *text, int left);
/* Whether argv contains --json, so that errors before it obey it too. */
int tool_wants_json(int argc, char **argv);

/* ---- memory.c -------------------------------------------------------------------------------- */

/* Allocates or ends the program with a message. */
void *tool_allocate(void *old, size_t count, size_t size);
char *tool_copy(const char *string);
/* Ends the program with that message. */
__attribute__((noreturn)) void tool_die_of_memory(void);

/* ---- json.c: documents ----------------------------------------------------------------------- */

/* Prints a document and a newline on standard output and drops the reference. */
void tool_print_json(json_t *document);
/* Passes on a json_t; NULL ends the program: out of memory. */
json_t *tool_json(json_t *value);
/* Any text: bytes that are not UTF-8 become U+FFFD. */
json_t *tool_json_text(const char *text);
/* A number; null if JSON cannot represent it (a failed check may yield infinity). */
json_t *tool_json_real(double value);
/*
 * Makes a value by a format like jansson's json_pack: {} an object of keys and values, s a text, i
 * an int, I a json_int_t, f a double, b a truth value, o a json_t whose reference is taken over, O
 * one whose is not. Unlike json_pack, accepts texts that are not UTF-8.
 */
json_t *tool_pack(const char *format, ...);
#pragma GCC poison json_pack json_string

/* ---- output.c: messages, tables, the progress bar -------------------------------------------- */

/* Prints "smelt VERB: message" on standard error and, with --json, {"error", "exit_status"} as the
 * one document. Returns exit_status. Must not follow another document. */
__attribute__((format(printf, 3, 4))) int tool_fail(const struct tool_options *options,
                                                    int exit_status, const char *format, ...);
/* The same with the library's last message; the exit status is derived from `status`. */
int tool_fail_status(const struct tool_options *options, smelt_status status);
int tool_exit_of(smelt_status status);
/* Adds a part's exit status to that of earlier parts: TOOL_OK if all succeeded, the status of the failed
 * parts if they agree, else TOOL_FAILED. */
int tool_exit_join(int status, int part);
/* Prints "smelt VERB: message" on standard error only. */
__attribute__((format(printf, 2, 3))) void tool_say(const struct tool_options *options,
                                                    const char *format, ...);

enum tool_style { TOOL_PLAIN, TOOL_GOOD, TOOL_BAD };

/* An aligned table. `alignment` has a letter per column: l or r. */
struct tool_table {
    const char *alignment;
    size_t columns, count, capacity;
    struct tool_cell {
        char *text;
        enum tool_style style;
    } * cells;
};

/* headers: one string per letter of `alignment`. */
void tool_table_begin(struct tool_table *table, const char *alignment, const char *const *headers);
__attribute__((format(printf, 3, 4))) void
tool_table_add(struct tool_table *table, enum tool_style style, const char *format, ...);
/* Adds several plain cells, which the format separates by tabs. The values must not contain tabs. */
__attribute__((format(printf, 2, 3))) void tool_table_add_cells(struct tool_table *table,
                                                                const char *format, ...);
/* Prints on standard output, indented by two columns, and frees the cells. */
void tool_table_end(struct tool_table *table);

/* "512 B", "12.3 KiB", "1.0 GiB". */
struct tool_size_text {
    char text[24];
};
struct tool_size_text tool_size(uint64_t bytes);

/* Draws "[####....] 3/12 label" if standard error is a terminal and NO_COLOR is unset. One bar at a
 * time; tool_log does not overwrite it. */
void tool_progress_draw(size_t done, size_t total, const char *label);
void tool_progress_clear(void);

/* A smelt_log_function that writes to standard error. */
void tool_log(void *user, smelt_log_level level, const char *message);

/* ---- names.c --------------------------------------------------------------------------------- */

/* A growing list of owned strings without duplicates. */
struct tool_list {
    char **items;
    size_t count, capacity;
};

void tool_list_add(struct tool_list *list, const char *text);
void tool_list_free(struct tool_list *list);
/* A smelt_text_function; user is a struct tool_list. */
int tool_list_collect(void *list, const char *text);

/* "forward", "backward" or "both" as a set of enum smelt_pass; 0 for anything else. */
unsigned tool_passes(const char *name);

/* The name most similar to `given`; NULL: none is similar. */
const char *tool_nearest(const char *given, const char *const *names, size_t count);

/* Adds an architecture, named so or by a GPU. Refuses an unknown name, and warns of an architecture
 * whose kernels no GPU uses (--strict: refuses it). `where` precedes the message. */
int tool_add_arch(struct tool_list *archs, const struct tool_options *options, const char *where,
                  const char *name);

/* ---- manifest.c ------------------------------------------------------------------------------ */

/* Adds the specs and, unless --arch names some, the architectures of a manifest file. Exit status,
 * with the error (file and line) printed. */
int tool_manifest_read(struct tool_list *specs, struct tool_list *archs,
                       const struct tool_options *options);
/* The same for a manifest's NUL-terminated text, called `path` in messages. */
int tool_manifest_parse(struct tool_list *specs, struct tool_list *archs,
                        const struct tool_options *options, const char *path, const char *text,
                        size_t length);

/* ---- targets.c: which kernels, for which architectures --------------------------------------- */

/* The specs (canonical, operators and kernels) and architectures a command line names. */
struct tool_targets {
    struct tool_list specs, archs;
    char gpu[256]; /* the GPU whose architecture was taken; "": one was named */
};

/* Reads arguments, presets and the manifest; requires at least one spec. The architectures are
 * those of --arch, else the manifest's, else none. Exit status, with the error printed. */
int tool_targets_read(struct tool_targets *targets, const struct tool_options *options);
/* Ensures at least one architecture: if none was named, this machine's GPU's. */
int tool_targets_need_arch(struct tool_targets *targets, const struct tool_options *options);
/* For verbs with one spec and one architecture: opens the compiler for it (tool_open_tuned_compiler), and
 * adds the kernels of the spec there, for the passes of --passes if given. --kernel replaces the spec by
 * one of them. Exit status, with the error printed. */
int tool_targets_expand(struct tool_targets *targets, const struct tool_options *options,
                        smelt_context **context, struct tool_list *kernels);
void tool_targets_free(struct tool_targets *targets);
/* An operator's canonical spec with its passes replaced; freed by smelt_free. */
smelt_status tool_spec_with_passes(const char *spec, const char *passes, char **canonical);
/* Adds the operator of this text if it expands to exactly that kernel, knobs included; likewise the
 * operator that has the kernel's keys. 1 if there was one; prints nothing. */
int tool_add_operator_with(struct tool_list *operators, const char *text, const char *kernel);
int tool_add_operator_of(struct tool_list *operators, const char *kernel);
/* The operators that run these specs: an operator itself, or the operator that a kernel belongs to.
 * Exit status, with the error printed. */
int tool_operators_of(struct tool_list *operators, const struct tool_list *specs,
                      const struct tool_options *options);

/* ---- kernels.c: contexts and compiled kernels, shared by warm and show ----------------------- */

/* Context options for every verb: logs to standard error at -v's level. */
smelt_context_options tool_context_options(const struct tool_options *options);
/* A compile-only context. TOOL_OK, or an exit status with the error printed. */
int tool_open_compiler(const struct tool_options *options, const char *arch,
                       smelt_context **context);
/* The same for the targets' first architecture, with the tuning entries of --tuned-for, else of the
 * GPU that the architecture was taken from. */
int tool_open_tuned_compiler(const struct tool_options *options, const struct tool_targets *targets,
                             smelt_context **context);
/* Warns when a compile-only context without a device ignores tuning entries of these kernels: that
 * device will run other kernels than the ones compiled. */
void tool_note_untuned(const struct tool_options *options, smelt_context *context,
                       const struct tool_list *kernels);
/* A context on --device, else the first GPU. */
int tool_open_device(const struct tool_options *options, smelt_context **context);

const char *tool_kernel_state(smelt_kernel_state state);
/* One element of "kernels" in warm's and show's documents. */
json_t *tool_kernel_json(const smelt_kernel_info *info);
/* An array for smelt_kernels_prepare, freed by the caller; its elements are failed kernels without
 * a name until they are filled. */
smelt_kernel_info *tool_kernel_infos(size_t count);
/* One of its requests; arch NULL: the context's. */
smelt_kernel_request tool_kernel_request(const char *spec, const char *arch);
/* TOOL_OK if nothing failed; the failures' common exit status, else TOOL_FAILED. */
int tool_kernels_exit(const smelt_kernel_info *infos, size_t count);
/* The number of kernels that were compiled but could not be stored in the cache. */
size_t tool_kernels_lost(const smelt_kernel_info *infos, size_t count);
/* Prints each distinct message of failures and of kernels that were not stored, once. */
void tool_kernels_say_errors(const struct tool_options *options, const smelt_kernel_info *infos,
                             size_t count);

/* ---- stale.c --------------------------------------------------------------------------------- */

/* A layer's entries, and those of them that this version of smelt never looks up: of kernels whose
 * source is another today (smelt or its templates changed), and of another NVRTC. */
struct tool_stale {
    uint64_t entries, other_source, other_nvrtc;
};
/* path: as for smelt_cache_walk. nvrtc_major 0: entries of any NVRTC are used. */
smelt_status tool_find_stale(smelt_context *context, const char *path, int nvrtc_major,
                             int nvrtc_minor, struct tool_stale *stale);

/* ---- emulator.c: the emulator instead of a GPU ----------------------------------------------- */

/* Makes the emulator the driver and the compiler of this process, which must not have used either
 * yet: SMELT_EMULATOR, else the library beside the command in a build folder, else the installed
 * one. TOOL_OK, or an exit status with the error printed. */
int tool_open_emulator(const struct tool_options *options);
/* A context on an emulated device that runs kernels for `arch`. */
int tool_open_emulated_device(const struct tool_options *options, const char *arch,
                              smelt_context **context);

/* ---- the verbs ------------------------------------------------------------------------------- */

int tool_run_warm(const struct tool_options *options);
int tool_run_list(const struct tool_options *options);
int tool_run_show(const struct tool_options *options);
int tool_run_emit(const struct tool_options *options);
int tool_run_check(const struct tool_options *options);
int tool_run_bench(const struct tool_options *options);
int tool_run_tune(const struct tool_options *options);
int tool_run_cache(const struct tool_options *options);
int tool_run_doctor(const struct tool_options *options);
int tool_run_emulate(const struct tool_options *options);
