/* The `smelt` command: its verbs and general help. docs/smelt.1 has more detail. */
#include <stdlib.h>
#include <string.h>

#include "tool.h"

#define OPTION(name) TOOL_BIT(TOOL_##name)

static const char SPEC_HELP[] =
    "A SPEC is `family:key=value,...`, an operator or one of its kernels; see `smelt list`.\n";

static const struct tool_verb verbs[] = {
    {"warm", "[SPEC]...", "compile kernels into the cache",
     "Compiles into the cache every kernel that the specs, presets and the manifest need,\n"
     "for every --arch, unless it is cached already. It can be stopped (Ctrl-C) and started\n"
     "again without losing work. Exit status 1 when a kernel could not be stored.\n"
     "With --offline it compiles nothing, and lists what is missing: a test of an image.\n",
     TOOL_TARGETS | OPTION(ARCH) | OPTION(STRICT) | OPTION(TUNED_FOR) | OPTION(JOBS) |
         OPTION(OFFLINE) | TOOL_COMMON,
     tool_run_warm},
    {"list", "[gpus]", "list presets, operators, kernels and architectures, GPUs, or the cache",
     "Lists presets, operators and kernels with their keys, and architectures; `list gpus`:\n"
     "the GPUs that --arch takes, by architecture.\n"
     "With --cache: the kernels that are cached, also in the read-only layer. With --tuned: the\n"
     "entries of the tuning file.\n",
     OPTION(CACHE) | OPTION(TUNED) | TOOL_COMMON, tool_run_list},
    {"show", "SPEC", "show a kernel's plan and its compiled figures",
     "Shows the plan of a kernel, with every knob and derived number, then figures of the\n"
     "compiled kernel: registers, spills, shared memory, size, seconds, cache key. For an\n"
     "operator with several kernels it lists them; --kernel shows one. Without NVRTC it shows\n"
     "the plan only (exit status 3).\n",
     OPTION(ARCH) | OPTION(PASSES) | OPTION(KERNEL) | OPTION(TUNED_FOR) | TOOL_COMMON,
     tool_run_show},
    {"emit", "SPEC", "print a kernel's CUDA source",
     "Prints the complete CUDA source of a kernel, or of all kernels of an operator, each under\n"
     "a heading; --kernel prints one of them. Needs neither GPU nor compiler; each source by\n"
     "itself compiles with `nvcc -arch=ARCH -cubin -x cu`.\n"
     "With --constants it stops before the kernel's own template: the constants and parts are a\n"
     "header with which an editor resolves the template's names (build/constants.h in .clangd).\n",
     OPTION(ARCH) | OPTION(PASSES) | OPTION(KERNEL) | OPTION(CONSTANTS) | OPTION(TUNED_FOR) |
         TOOL_COMMON,
     tool_run_emit},
    {"check", "[SPEC]...", "compare kernels with the double-precision reference",
     "Runs each operator on the GPU on seeded random input and compares the results with the\n"
     "double-precision reference; without --lists, on several kinds of index lists. A failure\n"
     "prints the command that reproduces it.\n"
     "\n"
     "With --emulate it runs on the CPU, as a device for --arch (default sm_90a): kernels are\n"
     "compiled with the C compiler (CC, cc, gcc or clang), each check runs under several\n"
     "schedules (when copies complete, which warp runs first), and races, missing waits, bad\n"
     "addresses and deadlocks are reported. Problems are small unless --queries, --rows and\n"
     "--width are given.\n",
     TOOL_TARGETS | OPTION(ARCH) | OPTION(DEVICE) | OPTION(EMULATE) | OPTION(PROBLEM) |
         OPTION(SAMPLE) | OPTION(SCHEDULES) | OPTION(SCHEDULE) | TOOL_COMMON,
     tool_run_check},
    {"bench", "[SPEC]...", "time kernels on the GPU",
     "Times each operator on the GPU, alternating between them: median time, TFLOP/s, gathered\n"
     "TB/s, CPU time of a launch, and percentages of an H200's peaks. --queries and --rows have\n"
     "defaults per operator (attention 4096 and 8192); --shapes peers runs every operator at\n"
     "the shapes at which bench/peers compares it with other libraries: attention's forward\n"
     "with FlashMLA, its backward with cuDNN, the indexer's operators with DeepGEMM, cuDNN and\n"
     "PyTorch.\n",
     TOOL_TARGETS | OPTION(DEVICE) | OPTION(PROBLEM) | OPTION(SHAPES) | OPTION(REPEAT) |
         TOOL_COMMON,
     tool_run_bench},
    {"tune", "[SPEC]...", "find a kernel's fastest knobs on the GPU",
     "Tries the legal knobs of every kernel the specs need: compiles the candidates, checks\n"
     "each against the reference on a small problem, and times them alternately on the shape\n"
     "given by --queries, --rows, --lists and the like, by default bench's. If the fastest\n"
     "beats the rule's plan by more than the noise, it goes into the tuning file, which later\n"
     "plans use; otherwise an earlier entry is removed. The noise is the spread of the medians\n"
     "of the rule's plan, which is timed four times, or three of their standard errors. Knobs\n"
     "given in a spec are kept; --knobs names the knobs to vary. --dry-run lists\n"
     "the candidates.\n",
     TOOL_TARGETS | OPTION(ARCH) | OPTION(DEVICE) | OPTION(JOBS) | OPTION(PROBLEM) |
         OPTION(REPEAT) | OPTION(KNOBS) | OPTION(LIMIT) | OPTION(DRY_RUN) | TOOL_COMMON,
     tool_run_tune},
    {"emulate", "-- PROGRAM [ARGUMENT]...", "run a program without a GPU, on the emulator",
     "Runs the program with the emulator as its CUDA driver and NVRTC (SMELT_CUDA, SMELT_NVRTC).\n"
     "Its smelt contexts must be of kind SMELT_CONTEXT_DEVICE, and its device memory smelt's\n"
     "(smelt/device.h): it cannot call CUDA itself. Ends with the program's exit status.\n",
     TOOL_COMMON, tool_run_emulate},
    {"cache", "stat|verify [PATH]|prune|clear|export FILE|import FILE",
     "inspect and maintain the cache of compiled kernels",
     "stat    counts the cache's entries and bytes, and all processes' hits and misses\n"
     "verify  reads every entry and removes damaged ones (exit status 1 if there were any); of\n"
     "        the read-only layer, or of a PATH (an exported file or a folder), it removes none\n"
     "prune   removes the least recently used entries: those older than --older-than, and\n"
     "        others until --max-size, or the cap, is kept\n"
     "clear   removes every entry\n"
     "export  writes every entry and the tuning file into one file, for a container image or\n"
     "        another machine: there import it, or name it in SMELT_CACHE_READONLY_DIR, or\n"
     "        unpack it with tar and name the folder\n"
     "import  adds the kernels in such a file or in a cache folder; without kernels that is an\n"
     "        error unless --allow-empty is given\n",
     OPTION(MAX_SIZE) | OPTION(OLDER_THAN) | OPTION(ALLOW_EMPTY) | TOOL_COMMON, tool_run_cache},
    {"doctor", "", "report what this machine has and lacks",
     "Reports driver, GPUs, NVRTC, cache folder and read-only layer, and for each problem a\n"
     "remedy; also how many cached kernels are another version's, which this one does not use.\n"
     "Exit status 3 when something is missing, 1 when the cache, or a read-only layer\n"
     "that was named, cannot be used.\n",
     TOOL_COMMON, tool_run_doctor},
};

enum { VERBS = sizeof verbs / sizeof verbs[0] };

/* ---- general help ---------------------------------------------------------------------------- */

static void print_short_help(FILE *file) {
    fputs("usage: smelt VERB [OPTION]... [ARGUMENT]...\n\n", file);
    for (size_t i = 0; i < VERBS; i++)
        fprintf(file, "  %-8s %s\n", verbs[i].name, verbs[i].summary);
    fputs("\nSee also `smelt VERB --help`; `smelt --version` prints the version.\n", file);
}

static void print_long_help(void) {
    printf("smelt writes, compiles, caches and launches CUDA kernels for sparse attention and "
           "the\nlightning indexer that chooses its keys.\n\n");
    print_short_help(stdout);
    printf(
        "\n%s\n"
        "Every verb takes --json: one JSON document on standard output.\n\n"
        "exit status:\n"
        "  0  success\n"
        "  1  something failed: a check, a compilation\n"
        "  2  a usage error or an impossible spec\n"
        "  3  the machine lacks something: a GPU, a driver, NVRTC, a C compiler, a cached "
        "kernel\n\n"
        "environment:\n"
        "  SMELT_CACHE_DIR           the cache's folder; default $XDG_CACHE_HOME/smelt, else\n"
        "                            ~/.cache/smelt\n"
        "  SMELT_CACHE_READONLY_DIR  a cache, or an exported file, that is searched first\n"
        "  SMELT_CACHE_CAP           the cache's size limit: bytes, or with K, M, G; default 1G\n"
        "  SMELT_CACHE_DISABLE=1     neither read nor write the cache\n"
        "  SMELT_CACHE_RECOMPILE=1   write the cache without reading it\n"
        "  SMELT_OFFLINE=1           compile nothing: a kernel that is not cached is an error\n"
        "  SMELT_TUNING              the tuning file; default `tuning` in the cache's folder\n"
        "  SMELT_TUNING_DISABLE=1    ignore tuning entries\n"
        "  SMELT_NVRTC               the libnvrtc to use instead of searching\n"
        "  SMELT_NVRTC_DEBUG         lines or full: compile for a profiler or a debugger\n"
        "  SMELT_TEMPLATES           a folder whose templates are used instead of the built-in "
        "ones\n"
        "  SMELT_EMULATOR            the emulator's library for check --emulate and emulate\n"
        "  CC                        the C compiler for check --emulate\n"
        "  SMELT_EMU_...             settings of the emulator, in smelt(1)\n"
        "  SMELT_LOG                 error, warning, info or debug\n"
        "  NO_COLOR                  no colour and no progress bar\n\n"
        "The man page smelt(1) lists all of them, with examples.\n",
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

/* Handles options before a verb (--help, --version, `help [VERB]`), or runs the verb. */
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
