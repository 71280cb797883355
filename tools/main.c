/* The `smelt` command: its verbs and its general help. docs/smelt.1 says the same at more length.
 */
#include <stdlib.h>
#include <string.h>

#include "tool.h"

#define OPTION(name) TOOL_BIT(TOOL_##name)

static const char SPEC_HELP[] =
    "A SPEC is `family:key=value,...`, an operator or one of its kernels; `smelt list`\n"
    "says what there is.\n";

static const struct tool_verb verbs[] = {
    {"warm", "[SPEC]...", "compile kernels into the cache",
     "Compiles into the cache every kernel that the specs, presets and the manifest need,\n"
     "for every --arch. What is cached is not compiled again. It may be stopped (Ctrl-C)\n"
     "and started again: what is done stays done. Exit status 1 when a kernel could not be kept.\n",
     TOOL_TARGETS | OPTION(ARCH) | OPTION(TUNED_FOR) | OPTION(JOBS) | TOOL_COMMON, tool_run_warm},
    {"list", "", "list presets, operators, kernels and architectures, or the cache",
     "Lists what there is to choose from: presets, operators and kernels with their keys,\n"
     "architectures. With --cache: the kernels that are cached. With --tuned: what the tuning\n"
     "file says.\n",
     OPTION(CACHE) | OPTION(TUNED) | TOOL_COMMON, tool_run_list},
    {"show", "SPEC", "show a kernel's plan and what its compilation gave",
     "Shows the plan of a kernel, every knob and derived number, then what its compilation\n"
     "(or the cache) says: registers, spills, shared memory, size, seconds, cache key. Of an\n"
     "operator with several kernels it lists them; --kernel shows one. Without NVRTC the plan\n"
     "is still shown (exit status 3).\n",
     OPTION(ARCH) | OPTION(PASSES) | OPTION(KERNEL) | OPTION(TUNED_FOR) | TOOL_COMMON,
     tool_run_show},
    {"emit", "SPEC", "print a kernel's CUDA source",
     "Prints the complete CUDA source of a kernel, or of an operator's kernels one after the\n"
     "other, each under a line that says which; --kernel prints one alone. Needs neither GPU\n"
     "nor compiler; each source by itself compiles with `nvcc -arch=ARCH -cubin -x cu`.\n"
     "With --constants it ends before the kernel's own template: the constants and parts are a\n"
     "header with which an editor resolves the template's names (build/constants.h in .clangd).\n",
     OPTION(ARCH) | OPTION(PASSES) | OPTION(KERNEL) | OPTION(CONSTANTS) | OPTION(TUNED_FOR) |
         TOOL_COMMON,
     tool_run_emit},
    {"check", "[SPEC]...", "compare kernels with the double-precision reference",
     "Runs each operator on the GPU on input made from a seed and compares the results with\n"
     "the double-precision reference; without --lists, on several kinds of index lists. A\n"
     "failure prints the command that reproduces it.\n"
     "\n"
     "With --emulate on the CPU, as a device for --arch (default sm_90a): the kernels are\n"
     "compiled with the C compiler (CC, cc, gcc or clang), each check runs under several\n"
     "schedules (when copies land, which warp goes first), and races, missing waits, bad\n"
     "addresses and deadlocks are reported by name. Problems are small unless --queries,\n"
     "--rows and --width say otherwise.\n",
     TOOL_TARGETS | OPTION(ARCH) | OPTION(DEVICE) | OPTION(EMULATE) | OPTION(PROBLEM) |
         OPTION(SAMPLE) | OPTION(SCHEDULES) | OPTION(SCHEDULE) | TOOL_COMMON,
     tool_run_check},
    {"bench", "[SPEC]...", "time kernels on the GPU",
     "Times each operator on the GPU, in turn with the others: median time, TFLOP/s, gathered\n"
     "TB/s, CPU time of a launch, and the share of an H200's ceilings. Each operator has its\n"
     "own --queries and --rows unless they are given (attention 4096 and 8192); --shapes peers\n"
     "runs every operator at the shapes where it is compared with other libraries: attention's\n"
     "forward with FlashMLA, its backward with cuDNN, the indexer's operators with DeepGEMM,\n"
     "cuDNN and PyTorch (bench/peers times them in turn).\n",
     TOOL_TARGETS | OPTION(DEVICE) | OPTION(PROBLEM) | OPTION(SHAPES) | OPTION(REPEAT) |
         TOOL_COMMON,
     tool_run_bench},
    {"tune", "[SPEC]...", "find a kernel's fastest knobs on the GPU",
     "Tries the legal knobs of every kernel the specs need: compiles the candidates, checks\n"
     "each against the reference on a small problem, and times them in turn on the shape that\n"
     "--queries, --rows, --lists and the like describe, by default as bench's. The fastest, if\n"
     "it beats the rule's plan by more than the noise, goes into the tuning file, from which\n"
     "plans take it; else an earlier entry is taken out. The noise: how far the medians of the\n"
     "rule's plan, which takes part four times, lie apart, or three of their standard errors.\n"
     "Knobs that a spec names stay as they are; --knobs names those to vary. --dry-run lists\n"
     "the candidates.\n",
     TOOL_TARGETS | OPTION(ARCH) | OPTION(DEVICE) | OPTION(JOBS) | OPTION(PROBLEM) |
         OPTION(REPEAT) | OPTION(KNOBS) | OPTION(LIMIT) | OPTION(DRY_RUN) | TOOL_COMMON,
     tool_run_tune},
    {"cache", "stat|verify|prune|clear|export FILE|import FILE",
     "look after the cache of compiled kernels",
     "stat    counts the cache's entries and bytes, and what all processes found in it\n"
     "verify  reads every entry and removes damaged ones (exit status 1 if there were any)\n"
     "prune   removes the least recently used entries: those older than --older-than, and as\n"
     "        many as it takes to keep --max-size, or the cap\n"
     "clear   removes every entry\n"
     "export  writes every entry and the tuning file into one file, for a container image or\n"
     "        another machine: there import it, or name it in SMELT_CACHE_READONLY_DIR, or\n"
     "        unpack it with tar and name the folder\n"
     "import  adds the kernels in such a file or in a cache folder; if there are none, that is an\n"
     "        error without --allow-empty\n",
     OPTION(MAX_SIZE) | OPTION(OLDER_THAN) | OPTION(ALLOW_EMPTY) | TOOL_COMMON, tool_run_cache},
    {"doctor", "", "say what this machine has and lacks",
     "Says what was found (driver, GPUs, NVRTC, cache folder, read-only layer), what is wrong and\n"
     "what to do. Exit status 3 when something is missing, 1 when the cache, or a read-only layer\n"
     "that is named, cannot be used.\n",
     TOOL_COMMON, tool_run_doctor},
};

enum { VERBS = sizeof verbs / sizeof verbs[0] };

/* ---- general help ---------------------------------------------------------------------------- */

static void print_short_help(FILE *file) {
    fputs("usage: smelt VERB [OPTION]... [ARGUMENT]...\n\n", file);
    for (size_t i = 0; i < VERBS; i++)
        fprintf(file, "  %-8s %s\n", verbs[i].name, verbs[i].summary);
    fputs("\n`smelt VERB --help` tells more; `smelt --version` prints the version.\n", file);
}

static void print_long_help(void) {
    printf("smelt writes, compiles, caches and launches CUDA kernels for sparse attention and "
           "the\nlightning indexer that chooses its keys.\n\n");
    print_short_help(stdout);
    printf(
        "\n%s\n"
        "Every verb takes --json: one JSON document on standard output.\n\n"
        "exit status:\n"
        "  0  all well\n"
        "  1  something failed: a check, a compilation\n"
        "  2  a usage error or an impossible spec\n"
        "  3  the machine lacks something: a GPU, a driver, NVRTC, a C compiler\n\n"
        "environment:\n"
        "  SMELT_CACHE_DIR           the cache's folder; default $XDG_CACHE_HOME/smelt, else\n"
        "                            ~/.cache/smelt\n"
        "  SMELT_CACHE_READONLY_DIR  a cache, or an exported file, that is looked at first\n"
        "  SMELT_CACHE_CAP           the cache's size limit: bytes, or with K, M, G; default 1G\n"
        "  SMELT_CACHE_DISABLE=1     the cache is neither read nor written\n"
        "  SMELT_CACHE_RECOMPILE=1   it is written, not read\n"
        "  SMELT_TUNING              the tuning file; default `tuning` in the cache's folder\n"
        "  SMELT_TUNING_DISABLE=1    plans are the rule's, whatever was tuned\n"
        "  SMELT_NVRTC               the libnvrtc to use, and no other\n"
        "  SMELT_NVRTC_DEBUG         lines or full: compile for a profiler or a debugger\n"
        "  SMELT_TEMPLATES           a folder whose templates are used instead of the built-in "
        "ones\n"
        "  SMELT_EMULATOR            the emulator's library for check --emulate\n"
        "  CC                        the C compiler for check --emulate\n"
        "  SMELT_EMU_...             settings of the emulator, in smelt(1)\n"
        "  SMELT_LOG                 error, warning, info or debug\n"
        "  NO_COLOR                  no colour and no progress bar\n\n"
        "The man page smelt(1) has them all, and examples.\n",
        SPEC_HELP);
}

/* ---- dispatch -------------------------------------------------------------------------------- */

static const struct tool_verb *find_verb(const char *name) {
    for (size_t i = 0; i < VERBS; i++)
        if (!strcmp(verbs[i].name, name))
            return &verbs[i];
    return NULL;
}

static int refuse_verb(const struct tool_options *options, const char *name) {
    const char *names[VERBS];
    for (size_t i = 0; i < VERBS; i++)
        names[i] = verbs[i].name;
    const char *nearest = tool_nearest(name, names, VERBS);
    const char *kind = *name == '-' ? "option" : "verb";
    if (nearest)
        return tool_fail(options, TOOL_USAGE, "unknown %s '%s', did you mean %s?", kind, name,
                         nearest);
    return tool_fail(options, TOOL_USAGE, "unknown %s '%s'; `smelt --help` lists them", kind, name);
}

static int run_verb(const struct tool_verb *verb, int argc, char **argv) {
    struct tool_options options;
    int status = tool_options_read(&options, verb, argc, argv);
    if (status == TOOL_OK && options.help)
        tool_print_verb_help(verb);
    else if (status == TOOL_OK)
        status = verb->run(&options);
    tool_options_free(&options);
    return status;
}

/* What stands in front of any verb: --help, --version, `help [VERB]`; or the verb itself. */
static int run(int argc, char **argv) {
    struct tool_options none = {.json = tool_wants_json(argc, argv)};
    const char *first = argc > 1 ? argv[1] : "";
    if (argc < 2) {
        print_short_help(stderr);
        return TOOL_USAGE;
    }
    if (!strcmp(first, "--version") || !strcmp(first, "-V")) {
        printf("smelt %s\n", smelt_version());
        return TOOL_OK;
    }
    if (!strcmp(first, "--help") || !strcmp(first, "-h") || (!strcmp(first, "help") && argc == 2)) {
        print_long_help();
        return TOOL_OK;
    }
    int help = !strcmp(first, "help");
    const struct tool_verb *verb = find_verb(help ? argv[2] : first);
    if (!verb)
        return refuse_verb(&none, help ? argv[2] : first);
    if (!help)
        return run_verb(verb, argc, argv);
    tool_print_verb_help(verb);
    return TOOL_OK;
}

int main(int argc, char **argv) {
    int status = run(argc, argv);
    /* A full disk or a closed pipe must not look like success. */
    if (fflush(stdout) || ferror(stdout)) {
        fputs("smelt: standard output could not be written completely\n", stderr);
        return TOOL_FAILED;
    }
    return status;
}
