/* The `smelt` command: its verbs, environment variables and general help, from which tools/man.py makes the
 * man page. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tool.h"

#define OPTION(name) TOOL_BIT(TOOL_##name)

static const struct tool_verb verbs[] = {
    {"warm", "[SPEC]...", "compile kernels into the cache",
     (const char *const[]){
         "Compiles into the cache every kernel that the specs, presets and the manifest need, for "
         "every architecture, unless it is cached. It may be stopped and started again: Ctrl-C "
         "finishes running compilations and lists the remaining kernels; a second Ctrl-C does not "
         "wait. Several processes, on one node or on many with a common cache folder, share the "
         "work: a kernel that another process is compiling is postponed and then taken from the "
         "cache. The last lines show kernels per second and how the threads' time was spent; NVRTC "
         "reports its assembler's share. Exit status 1, with the reason, if a compiled kernel "
         "could not be written to the cache. On a terminal it draws a progress bar.",
         "With `--offline` nothing is compiled: exit status 0 if every kernel is in the cache or "
         "in the read-only layer, else 3, and the table lists the missing ones. An image that "
         "passes this test finds its kernels in production.",
         NULL},
     TOOL_TARGETS | OPTION(ARCH) | OPTION(STRICT) | OPTION(TUNED_FOR) | OPTION(JOBS) |
         OPTION(OFFLINE) | TOOL_COMMON,
     tool_run_warm},
    {"list", "[gpus | NAME...]",
     "list presets, operators, kernels and architectures, GPUs, or the cache",
     (const char *const[]){
         "Lists presets, operators and kernels with their keys, and the architectures; with NAMEs "
         "only the presets, operators and kernels of these names. `list gpus`: the GPUs by which "
         "`--arch` may name an architecture. With `--cache`: the cached kernels, also those of the "
         "read-only layer. With `--tuned`: the entries of the tuning file.",
         NULL},
     OPTION(CACHE) | OPTION(TUNED) | TOOL_COMMON, tool_run_list},
    {"show", "SPEC", "show a kernel's plan and its compiled figures",
     (const char *const[]){
         "Shows the plan of a kernel, with every knob and derived number, and the results of its "
         "compilation, from the cache if it is there: registers, spills, shared memory, size, "
         "seconds, cache key. For an operator with several kernels it lists them in the order of "
         "launch, pass by pass; `--kernel` selects one. Without NVRTC the plan is still shown, and "
         "the exit status is 3.",
         NULL},
     OPTION(ARCH) | OPTION(PASSES) | OPTION(KERNEL) | OPTION(TUNED_FOR) | TOOL_COMMON,
     tool_run_show},
    {"emit", "SPEC", "print a kernel's CUDA source",
     (const char *const[]){
         "Prints the complete CUDA source of a kernel; it needs neither GPU nor compiler. For an "
         "operator with several kernels it prints all, in the order of `show`, each below a "
         "comment that begins with `/* ========` and names the kernel; `--kernel` prints one of "
         "them. Each is a separate translation unit, which compiles with `nvcc -arch=ARCH -cubin "
         "-x cu` and no include path. The same kernel and architecture always give the same bytes.",
         "With `--constants` the output ends before the kernel's own template. It then has only "
         "the constants and parts that the template uses, as a header with which an editor "
         "resolves the template's names (docs/developing.md of the source tree).",
         NULL},
     OPTION(ARCH) | OPTION(PASSES) | OPTION(KERNEL) | OPTION(CONSTANTS) | OPTION(TUNED_FOR) |
         TOOL_COMMON,
     tool_run_emit},
    {"check", "[SPEC]...", "compare kernels with the double-precision reference",
     (const char *const[]){
         "Runs each operator on the GPU on input made from a seed and compares the results with "
         "the double-precision reference; without `--lists`, on several kinds of index lists, the "
         "last with every optional output. A failure prints the command that reproduces it. Below "
         "each table it prints how many elements of each output it compared, and how often it "
         "checked each rule (a masked slot is 0, an empty query's output is 0, and the like). A "
         "run that compares no element of an output fails.",
         "With `--emulate` it needs no GPU: the CUDA source is compiled with the C compiler (CC, "
         "cc, gcc or clang) and run on the CPU, as a device for `--arch` would run it. Each check "
         "runs under several schedules: asynchronous copies complete as late as possible, as early "
         "as possible or at a random permitted moment, and warps run in different orders. All "
         "schedules must give the same bits. Races, missing waits and fences, accesses outside a "
         "buffer or the operator's footprint, and deadlocks fail the check and are reported with "
         "the source lines of both sides. The compiled kernels do not enter the cache. Inputs are "
         "small by default: attention has 3 queries, 10 with adversarial lists, at most 200 slots, "
         "and four times as many rows, at least 800.",
         NULL},
     TOOL_TARGETS | OPTION(ARCH) | OPTION(DEVICE) | OPTION(EMULATE) | OPTION(PROBLEM) |
         OPTION(SAMPLE) | OPTION(SCHEDULES) | OPTION(SCHEDULE) | TOOL_COMMON,
     tool_run_check},
    {"bench", "[SPEC]...", "time kernels on the GPU",
     (const char *const[]){
         "Times the operators on the GPU, alternating between them: median, smallest and largest "
         "time, TFLOP/s, gathered TB/s, CPU time of a launch, and the fraction of an H200's peak. "
         "The defaults of `--queries` and `--rows` depend on the operator; attention has 4096 and "
         "8192.",
         NULL},
     TOOL_TARGETS | OPTION(DEVICE) | OPTION(PROBLEM) | OPTION(SHAPES) | OPTION(REPEAT) |
         TOOL_COMMON,
     tool_run_bench},
    {"tune", "[SPEC]...", "find a kernel's fastest knobs on the GPU",
     (const char *const[]){
         "Finds the fastest knobs of every kernel that the specs need, on the GPU. The autotuning "
         "candidates are different plans, at most `--limit`, those nearest to the rule's plan "
         "first. A knob with many legal values is varied over some of them. The knob compact, "
         "whose best value depends on the data, is varied only if `--knobs` names it. Knobs that a "
         "spec sets are not varied.",
         "All candidates are compiled in parallel and compared with the reference on a small "
         "problem, with full lists and with damaged ones. Then they are timed alternately, on the "
         "shape of `--queries`, `--rows`, `--lists` and similar options, with the defaults of "
         "`bench`: seven launches of each, then `--repeat` of the six fastest and of the rule's "
         "plan, which is timed four times. The noise is the range of these four medians, or three "
         "standard errors of a median, estimated from the rule's launches, if that is more. A "
         "candidate whose median is below the smallest of the four by more than the noise goes "
         "into the tuning file. Otherwise an earlier entry, which is also a candidate, is removed. "
         "Exit status 1 if a candidate did not compile or gave wrong results; the others are still "
         "tuned.",
         "With `--dry-run` the candidates are only listed; with `--arch` this needs no GPU.", NULL},
     TOOL_TARGETS | OPTION(ARCH) | OPTION(DEVICE) | OPTION(JOBS) | OPTION(PROBLEM) |
         OPTION(REPEAT) | OPTION(KNOBS) | OPTION(LIMIT) | OPTION(DRY_RUN) | TOOL_COMMON,
     tool_run_tune},
    {"emulate", "-- PROGRAM [ARGUMENT]...", "run a program without a GPU, on the emulator",
     (const char *const[]){
         "Runs a program with the emulator as its CUDA driver and NVRTC (SMELT_CUDA, SMELT_NVRTC). "
         "Its smelt contexts must be of kind SMELT_CONTEXT_DEVICE, on a device for sm_90a, and its "
         "device memory comes from smelt (smelt/device.h); it cannot call CUDA itself. Kernels for "
         "the emulator are kept in the cache, apart from those for GPUs. A race, a bad address or "
         "a deadlock in a kernel makes the call fail. The exit status is the program's.",
         NULL},
     TOOL_COMMON, tool_run_emulate},
    {"cache", "stat|verify [PATH]|prune|clear|export FILE|import FILE",
     "inspect and maintain the cache of compiled kernels",
     (const char *const[]){
         "stat\tcounts the cache's entries and bytes, and shows how many lookups of all processes "
         "found their kernel since the cache was created or cleared",
         "verify\treads every entry and removes damaged ones (exit status 1 if there were any); it "
         "also reads the read-only layer, or instead of both the file or folder PATH, from which "
         "it removes nothing",
         "prune\tremoves the least recently used entries: those not used for `--older-than`, then "
         "as many as it takes to keep `--max-size`, or else the cap",
         "clear\tremoves every entry",
         "export\twrites every entry of the cache and of the read-only layer, and the tuning file, "
         "into one tar file: the same entries give the same bytes. Its member `contents` names the "
         "version of smelt and the kernels. It replaces an existing file when the new one is "
         "complete, and refuses to replace anything but a file.",
         "import\tadds the entries of an exported file or of a cache folder to the cache (exit "
         "status 1 if some were damaged). A file or folder without a kernel, often a mistake, is "
         "an error without `--allow-empty`. A world-writable file is refused.",
         "Instead of importing an exported file, SMELT_CACHE_READONLY_DIR can name the file "
         "itself, or the folder that tar(1) unpacked it into. Kernels compiled for the emulator "
         "have a separate subfolder, with a cap of the same size: `stat` counts them separately, "
         "`verify`, `prune` and `clear` process both kinds, and `list --cache` and `export` leave "
         "them out. Files that smelt did not write are kept. If folders of the cache cannot be "
         "read, the action names them and fails with exit status 1; it processes the others "
         "nevertheless, except `export`, which then writes nothing.",
         NULL},
     OPTION(MAX_SIZE) | OPTION(OLDER_THAN) | OPTION(ALLOW_EMPTY) | TOOL_COMMON, tool_run_cache},
    {"doctor", "", "report what this machine has and lacks",
     (const char *const[]){
         "Shows driver, GPUs, NVRTC, cache folder and read-only layer, their problems and how to "
         "fix them, and how many entries of each layer belong to another version of smelt, so that "
         "this one does not use them, or to another NVRTC. Exit status 3 if something is missing, "
         "1 if the cache or a configured read-only layer cannot be used.",
         NULL},
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

/* The environment variables of the command, the library and the emulator. As for options, --help prints a
 * text's first sentence, the man page all. */
static const struct variable {
    const char *name, *help;
} variables[] = {
    {"SMELT_CACHE_DIR",
     "the cache's folder; default $XDG_CACHE_HOME/smelt or ~/.cache/smelt. smelt bypasses it, with "
     "a warning that gives the reason, unless it is safe from other users. Every folder and "
     "symbolic link on its path, from the root on, must belong to the user or to root. A folder "
     "that everyone or another group can write needs the sticky bit, and the path must not have a "
     "link in such a folder."},
    {"SMELT_CACHE_READONLY_DIR",
     "a cache that is searched first and never written: a folder, or an exported file. `smelt "
     "cache export` writes such a file. smelt uses kernels of any NVRTC from it, preferring those "
     "of the installed one, so NVRTC need not be installed. Anyone may own it, but it must not be "
     "writable by everyone, and neither must a folder on its path, unless that folder has the "
     "sticky bit."},
    {"SMELT_CACHE_CAP", "the cache's size limit: bytes, or with K, M, G; default 1 GiB"},
    {"SMELT_CACHE_LOCK",
     "`local` (the default), `shared` or `off`: which processes wait for the one that compiles the "
     "kernel they need. `local`: those of one machine; `shared`: all that use the cache's folder, "
     "whose file system must support locks; `off`: none."},
    {"SMELT_CACHE_LOCK_TIMEOUT", "how long they wait at most, in seconds; default 60"},
    {"SMELT_CACHE_DISABLE", "1: the cache is neither read nor written"},
    {"SMELT_CACHE_RECOMPILE", "1: the cache is written, not read"},
    {"SMELT_OFFLINE",
     "1: nothing is compiled; a kernel that is in no layer of the cache is an error that names it"},
    {"SMELT_TUNING",
     "the tuning file; default: `tuning` in the cache's folder, and in the read-only layer"},
    {"SMELT_TUNING_DISABLE", "1: tuning entries are ignored"},
    {"SMELT_TEMPLATES",
     "for work on kernels: a folder whose templates replace the built-in ones of the same names. "
     "It is laid out as `templates/` of the source tree (`NAME.cu`, `NAME.cuh`, `NAME.h`, "
     "`common/`, `ptx/`). Each new context reads and checks it; it must be as trustworthy as a "
     "read-only cache. Headers that the library was compiled with must not differ."},
    {"SMELT_NVRTC", "the only libnvrtc to use"},
    {"SMELT_NVRTC_DEBUG",
     "`lines` or `full`: compile for a profiler or a debugger. `lines`: kernels carry their "
     "templates' line numbers; `full`: they are unoptimised, with debug information. Such kernels "
     "have separate entries in the cache."},
    {"SMELT_CUDA", "for tests: the driver library to open instead of libcuda.so.1"},
    {"SMELT_EMULATOR",
     "the emulator's library, libsmelt_emu.so, for `check --emulate` and `emulate`. Default: that "
     "of the command's build folder, else the installed one."},
    {"CC", "the C compiler of `check --emulate`; default: cc, gcc or clang, the first that can be "
           "run. It must exist; options may follow it."},
    {"SMELT_EMU_DEVICES", "the number of emulated devices, 1 to 8; default 1"},
    {"SMELT_EMU_MULTIPROCESSORS", "the number of multiprocessors of the emulated device 0, 1 to "
                                  "1024; default 2. Device n has n more."},
    {"SMELT_EMU_SOURCE",
     "a file with CUDA source that the emulator compiles instead of the kernel of the same name. "
     "It serves to try an edit of the output of `smelt emit`. It is an error if the file cannot be "
     "read, holds no kernel, or holds a kernel that is never compiled."},
    {"SMELT_EMU_CFLAGS", "options for the emulator's C compiler, after its own"},
    {"SMELT_EMU_KEEP", "an existing folder that keeps each kernel's C source, compiler output and "
                       "object. Each kernel has a subfolder."},
    {"SMELT_EMU_OBJECTS",
     "a folder in which processes share kernels compiled for the emulator, up to 1 GiB. Default: "
     "none; each process compiles its kernels. A folder that the rules of SMELT_CACHE_DIR do not "
     "allow is an error. The emulator ignores it with SMELT_EMU_CFLAGS or SMELT_EMU_KEEP."},
    {"SMELT_EMU_EDITED_OBJECTS", "another such folder, for kernels of SMELT_EMU_SOURCE"},
    {"SMELT_EMU_LAZY",
     "1: the emulator compiles a kernel when it is first launched, not when its operator is "
     "created. An operator's kernels that a program never launches are then never compiled; if one "
     "does not compile, the launch fails, and standard error has the compiler's output."},
    {"SMELT_LOG", "`error`, `warning`, `info` or `debug`; overrides the level that a program sets. "
                  "If the program has no log callback, the log goes to standard error. At `info` "
                  "it has a line for the start and the end of each compilation."},
    {"NO_COLOR", "if set: no colour and no progress bar"},
};

enum { VARIABLES = sizeof variables / sizeof variables[0] };

static void print_long_help(void) {
    tool_print_wrapped("smelt writes, compiles, caches and launches CUDA kernels for sparse "
                       "attention and the lightning indexer that chooses its keys.",
                       0);
    putchar('\n');
    print_short_help(stdout);
    printf(
        "\n"
        "A SPEC is `family:key=value,...`, an operator or one of its kernels; see `smelt list`.\n"
        "Every verb takes --json: one JSON document on standard output.\n\n"
        "exit status:\n"
        "  0  success\n"
        "  1  something failed: a check, a compilation\n"
        "  2  a usage error or an impossible spec\n"
        "  3  the machine lacks something: a GPU, a driver, NVRTC, a C compiler, a cached "
        "kernel\n\n"
        "environment:\n");
    for (size_t i = 0; i < VARIABLES; i++) {
        char *text = tool_first_sentence(variables[i].help);
        printf("  %-26s", variables[i].name);
        tool_print_wrapped(text, 28);
        free(text);
    }
    printf("\nThe man page smelt(1) has more about each, with examples.\n");
}

/* All help as one document, from which the man page is made. */
static void print_json_help(void) {
    json_t *of_verbs = tool_json(json_array()), *environment = tool_json(json_array());
    for (size_t i = 0; i < VERBS; i++)
        json_array_append_new(of_verbs, tool_verb_json(&verbs[i]));
    for (size_t i = 0; i < VARIABLES; i++)
        json_array_append_new(environment, tool_pack("{s:s, s:s}", "name", variables[i].name,
                                                     "help", variables[i].help));
    tool_print_json(tool_pack("{s:s, s:o, s:o}", "version", smelt_version(), "verbs", of_verbs,
                              "environment", environment));
}

/* ---- dispatch -------------------------------------------------------------------------------- */

static const struct tool_verb *find_verb(const char *name) {
    for (size_t i = 0; i < VERBS; i++)
        if (!strcmp(verbs[i].name, name))
            return &verbs[i];
    return NULL;
}

static int refuse_verb(const struct tool_options *options, const char *name) {
    const char *names[VERBS + 2] = {"--help", "--version"};
    for (size_t i = 0; i < VERBS; i++)
        names[2 + i] = verbs[i].name;
    const char *nearest = tool_nearest(name, names, VERBS + 2);
    const char *kind = *name == '-' ? "option" : "verb";
    if (nearest)
        return tool_fail(options, TOOL_USAGE, "unknown %s '%s', did you mean %s?", kind, name,
                         nearest);
    return tool_fail(options, TOOL_USAGE, "unknown %s '%s'; `smelt --help` lists them", kind, name);
}

static void print_verb_help(const struct tool_verb *verb, int json) {
    if (json)
        tool_print_json(tool_verb_json(verb));
    else
        tool_print_verb_help(verb);
}

static int run_verb(const struct tool_verb *verb, int argc, char **argv) {
    struct tool_options options;
    int status = tool_options_read(&options, verb, argc, argv);
    if (status == TOOL_OK && options.help)
        print_verb_help(verb, options.json != 0);
    else if (status == TOOL_OK)
        status = verb->run(&options);
    tool_options_free(&options);
    return status;
}

static void print_help(int json) {
    if (json)
        print_json_help();
    else
        print_long_help();
}

static int run_help(const struct tool_options *options, int argc, char **argv) {
    const struct tool_verb *verb = NULL;
    for (int i = 2; i < argc; i++) {
        if (!strcmp(argv[i], "--json"))
            continue;
        if (verb)
            return tool_fail(options, TOOL_USAGE, "help takes one verb, not also '%s'", argv[i]);
        verb = find_verb(argv[i]);
        if (!verb)
            return refuse_verb(options, argv[i]);
    }
    if (verb)
        print_verb_help(verb, options->json != 0);
    else
        print_help(options->json != 0);
    return TOOL_OK;
}

/* Handles options before a verb (--help, --version) and `help`, or runs the verb. */
static int run(int argc, char **argv) {
    struct tool_options none = {.json = tool_wants_json(argc, argv)};
    const char *first = argc > 1 ? argv[1] : "";
    if (argc < 2) {
        print_short_help(stderr);
        return TOOL_USAGE;
    }
    if (!strcmp(first, "help"))
        return run_help(&none, argc, argv);
    if (!strcmp(first, "--version") || !strcmp(first, "-V")) {
        if (none.json)
            tool_print_json(tool_pack("{s:s}", "version", smelt_version()));
        else
            printf("smelt %s\n", smelt_version());
        return TOOL_OK;
    }
    if (!strcmp(first, "--help") || !strcmp(first, "-h")) {
        print_help(none.json != 0);
        return TOOL_OK;
    }
    const struct tool_verb *verb = find_verb(first);
    return verb ? run_verb(verb, argc, argv) : refuse_verb(&none, first);
}

/* Occupies standard descriptors that the caller closed; otherwise a file would get one of their numbers and
 * receive messages or the C compiler's output. They are opened for the wrong direction, so that reading
 * standard input and writing the others still fail. */
static void occupy_standard_descriptors(void) {
    for (int standard = STDIN_FILENO; standard <= STDERR_FILENO; standard++)
        if (fcntl(standard, F_GETFD) < 0)
            (void)!open("/dev/null", standard == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

int main(int argc, char **argv) {
    occupy_standard_descriptors();
    /* A parent that ignores SIGCHLD passes this on, and the C compiler's exit status would be lost. */
    signal(SIGCHLD, SIG_DFL);
    int status = run(argc, argv);
    /* A full disk or a closed pipe must not look like success. */
    if (fflush(stdout) || ferror(stdout)) {
        fputs("smelt: standard output could not be written completely\n", stderr);
        return TOOL_FAILED;
    }
    return status;
}
