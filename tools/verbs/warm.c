/* smelt warm: compiles kernels into the cache. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../tool.h"

/* The kernels to compile, and the results. */
struct work {
    struct tool_list *kernels; /* of each architecture */
    smelt_kernel_request *requests;
    smelt_kernel_info *infos;
    size_t count;
    size_t compiled, cached, failed, undone;
    size_t lost;     /* compiled but not stored */
    size_t missing;  /* not cached, with --offline */
    size_t emulated; /* for the emulator */
    double seconds;
    /* Time of the threads: front end and assembler of compiled kernels, cache of all. */
    double front_end_seconds, assembler_seconds, cache_seconds;
    int assembler_told; /* every compilation reported its assembler's time */
    int interrupted;
};

/* ---- stopping -------------------------------------------------------------------------------- */

static volatile sig_atomic_t stop_asked;

static void ask_to_stop(int signal_number) {
    (void)signal_number;
    stop_asked = 1;
}

/* The first signal lets running compilations finish; a second one ends the program. */
static void catch_signals(void) {
    struct sigaction action = {.sa_handler = ask_to_stop, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

static int show_progress(void *user, size_t done, size_t total, const smelt_kernel_info *info) {
    static const char elsewhere[] = " (another process compiles it)";
    char label[512];
    (void)user;
    snprintf(label, sizeof label, "%s %s%s", info->arch, info->spec,
             info->state == SMELT_KERNEL_AWAITED ? elsewhere : "");
    tool_progress_draw(done, total, label);
    return stop_asked;
}

/* ---- the work -------------------------------------------------------------------------------- */

static int expand(struct work *work, const struct tool_targets *targets,
                  const smelt_context *context, const struct tool_options *options) {
    const struct tool_list *const specs = &targets->specs, *const archs = &targets->archs;
    work->kernels = tool_allocate(NULL, archs->count, sizeof *work->kernels);
    memset(work->kernels, 0, archs->count * sizeof *work->kernels);
    for (size_t i = 0; i < archs->count; work->count += work->kernels[i++].count)
        for (size_t j = 0; j < specs->count; j++) {
            const smelt_status status = smelt_spec_expand(context, specs->items[j], archs->items[i],
                                                          tool_list_collect, &work->kernels[i]);
            if (status)
                return tool_fail_status(options, status);
        }
    work->requests = tool_allocate(NULL, work->count, sizeof *work->requests);
    work->infos = tool_kernel_infos(work->count);
    smelt_kernel_request *request = work->requests;
    for (size_t i = 0; i < archs->count; i++)
        for (size_t j = 0; j < work->kernels[i].count; j++)
            *request++ = tool_kernel_request(work->kernels[i].items[j], archs->items[i]);
    return TOOL_OK;
}

/* The front end and optimiser are NVRTC's time minus its assembler's; the cache is the rest of a
 * call: lookups, locks, stores. */
static void add_times(struct work *work) {
    work->assembler_told = 1;
    for (size_t i = 0; i < work->count; i++) {
        const smelt_kernel_info *info = &work->infos[i];
        if (info->state == SMELT_KERNEL_COMPILED) {
            work->assembler_seconds += info->assembler_seconds;
            work->front_end_seconds += info->compile_seconds - info->assembler_seconds;
            work->cache_seconds += info->seconds - info->compile_seconds;
            work->assembler_told &= info->assembler_seconds > 0;
        } else if (info->state == SMELT_KERNEL_CACHED) {
            work->cache_seconds += info->seconds;
        }
    }
}

/* Whether it is not cached and was not compiled for --offline. */
static int is_missing(const struct tool_options *options, const smelt_kernel_info *info) {
    return options->offline && info->state == SMELT_KERNEL_FAILED &&
           info->status == SMELT_ERROR_NO_COMPILER;
}

/* Counts the kernels; those that were never started get their names here. */
static void count_states(struct work *work, const struct tool_options *options) {
    for (size_t i = 0; i < work->count; i++) {
        smelt_kernel_info *info = &work->infos[i];
        work->emulated += info->emulated != 0;
        work->compiled += info->state == SMELT_KERNEL_COMPILED;
        work->cached += info->state == SMELT_KERNEL_CACHED;
        if (info->state != SMELT_KERNEL_FAILED)
            continue;
        if (!info->spec[0])
            info->spec = work->requests[i].spec;
        if (!info->arch[0])
            info->arch = work->requests[i].arch;
        if (work->interrupted && (!info->status || info->status == SMELT_ERROR_CANCELLED)) {
            info->status = SMELT_ERROR_CANCELLED;
            info->error = "not done: stopped by a signal";
            work->undone++;
        } else if (is_missing(options, info)) {
            work->missing++;
        } else {
            work->failed++;
        }
    }
}

/* Warns about a read-only layer that is not used, which otherwise shows only as compile time. */
static void note_missing_layer(const struct tool_options *options) {
    const char *layer = getenv("SMELT_CACHE_READONLY_DIR");
    if (layer && *layer && access(layer, F_OK))
        tool_say(options, "the read-only layer %s (SMELT_CACHE_READONLY_DIR) is not used: %s",
                 layer, strerror(errno));
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int prepare(struct work *work, smelt_context *context, const struct tool_options *options) {
    double begin = now();
    catch_signals();
    tool_progress_draw(0, work->count, options->offline ? "looking" : "compiling");
    smelt_status status = smelt_kernels_prepare(context, work->requests, work->count,
                                                options->jobs > 0 ? (int)options->jobs : 0,
                                                show_progress, NULL, work->infos);
    tool_progress_clear();
    work->seconds = now() - begin;
    work->interrupted = stop_asked;
    count_states(work, options);
    work->lost = tool_kernels_lost(work->infos, work->count);
    add_times(work);
    /* A failure of the call itself, not of a kernel. */
    if (status && !work->failed && !work->undone && !work->missing)
        return tool_fail_status(options, status);
    return TOOL_OK;
}

/* ---- the report ------------------------------------------------------------------------------ */

static double kernels_per_second(const struct work *work) {
    size_t done = work->compiled + work->cached;
    return work->seconds > 0 ? (double)done / work->seconds : 0;
}

static void print_json(const struct work *work, const struct tool_options *options) {
    json_t *kernels = tool_json(json_array()), *undone = tool_json(json_array());
    json_t *missing = tool_json(json_array());
    for (size_t i = 0; i < work->count; i++) {
        const smelt_kernel_info *info = &work->infos[i];
        if (is_missing(options, info))
            json_array_append_new(missing, tool_pack("{s:s, s:s, s:s}", "spec", info->spec, "arch",
                                                     info->arch, "key", info->key));
        else if (info->status != SMELT_ERROR_CANCELLED)
            json_array_append_new(kernels, tool_kernel_json(info));
        else
            json_array_append_new(undone,
                                  tool_pack("{s:s, s:s}", "spec", info->spec, "arch", info->arch));
    }
    json_t *times = tool_pack("{s:f, s:o, s:f}", "front_end", work->front_end_seconds, "assembler",
                              work->assembler_told ? tool_json_real(work->assembler_seconds)
                                                   : tool_json(json_null()),
                              "cache", work->cache_seconds);
    tool_print_json(tool_pack(
        "{s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:o}", "kernels", kernels,
        "undone_kernels", undone, "missing_kernels", missing, "missing", (json_int_t)work->missing,
        "compiled", (json_int_t)work->compiled, "cached", (json_int_t)work->cached, "not_kept",
        (json_int_t)work->lost, "failed", (json_int_t)work->failed, "undone",
        (json_int_t)work->undone, "seconds", work->seconds, "kernels_per_second",
        kernels_per_second(work), "thread_seconds", times));
}

/* Percentages of the threads' summed time. */
static void print_times(const struct work *work) {
    double compiling = work->front_end_seconds + work->assembler_seconds;
    double all = compiling + work->cache_seconds;
    if (!work->compiled || all <= 0)
        return;
    if (work->assembler_told)
        printf("wall time of the threads: %.0f %% NVRTC's front end and optimiser, %.0f %% its "
               "assembler, %.1f %% the cache\n",
               100 * work->front_end_seconds / all, 100 * work->assembler_seconds / all,
               100 * work->cache_seconds / all);
    else
        printf("wall time of the threads: %.1f %% NVRTC, %.1f %% the cache\n",
               100 * compiling / all, 100 * work->cache_seconds / all);
}

static void print_table(const struct work *work, const struct tool_options *options) {
    static const char *const headers[] = {"kernel",    "arch",   "state",  "wall seconds",
                                          "registers", "spills", "shared", "cubin"};
    struct tool_table table;
    tool_table_begin(&table, "lllrrrrr", headers);
    for (size_t i = 0; i < work->count; i++) {
        const smelt_kernel_info *info = &work->infos[i];
        int failed = info->state == SMELT_KERNEL_FAILED;
        int undone = info->status == SMELT_ERROR_CANCELLED;
        tool_table_add_cells(&table, "%s\t%s", info->spec, info->arch);
        tool_table_add(&table, failed ? TOOL_BAD : TOOL_PLAIN, "%s",
                       undone                      ? "not done"
                       : is_missing(options, info) ? "missing"
                                                   : tool_kernel_state(info->state));
        tool_table_add(&table, TOOL_PLAIN, "%.3f", info->seconds);
        if (failed) {
            tool_table_add_cells(&table, "-\t-\t-\t-");
            continue;
        }
        tool_table_add(&table, TOOL_PLAIN, "%d", info->registers);
        tool_table_add(&table, info->spill_bytes ? TOOL_BAD : TOOL_PLAIN, "%d B",
                       info->spill_bytes);
        tool_table_add_cells(
            &table, "%s\t%s",
            tool_size((uint64_t)(info->static_shared_bytes + info->dynamic_shared_bytes)).text,
            tool_size(info->cubin_bytes).text);
    }
    tool_table_end(&table);
    printf("\n%zu kernel%s: ", work->count, work->count == 1 ? "" : "s");
    if (options->offline)
        printf("%zu cached, %zu missing, %zu failed\n", work->cached, work->missing, work->failed);
    else
        printf("%zu compiled, %zu cached, %zu failed, in %.2f s (%.1f a second)\n", work->compiled,
               work->cached, work->failed, work->seconds, kernels_per_second(work));
    print_times(work);
}

static int report(const struct work *work, const struct tool_options *options) {
    if (options->json)
        print_json(work, options);
    else
        print_table(work, options);
    fflush(stdout);
    if (work->missing)
        tool_say(options,
                 "%zu of %zu kernels are not in the cache; `smelt warm` without --offline compiles "
                 "them",
                 work->missing, work->count);
    if (work->failed || work->lost)
        tool_kernels_say_errors(options, work->infos, work->count);
    if (work->undone)
        tool_say(options, "stopped: %zu of %zu kernels are not done; run it again to continue",
                 work->undone, work->count);
    if (work->emulated)
        tool_say(
            options,
            "%zu of %zu kernels are for the emulator, which SMELT_NVRTC names, and not for a GPU",
            work->emulated, work->count);
    /* Storing kernels is this verb's purpose. */
    if (work->lost)
        tool_say(options, "%zu of %zu kernels are not stored in the cache", work->lost,
                 work->count);
    if (work->undone || (work->lost && !work->failed))
        return TOOL_FAILED;
    return tool_kernels_exit(work->infos, work->count);
}

int tool_run_warm(const struct tool_options *options) {
    struct tool_targets targets;
    struct work work = {0};
    smelt_context *context = NULL;
    int status = tool_targets_read(&targets, options);
    if (status == TOOL_OK)
        status = tool_targets_need_arch(&targets, options);
    if (status == TOOL_OK)
        status = tool_open_tuned_compiler(options, &targets, &context);
    if (status == TOOL_OK)
        status = expand(&work, &targets, context, options);
    if (status == TOOL_OK && targets.archs.count == 1)
        tool_note_untuned(options, context, work.kernels);
    if (status == TOOL_OK)
        note_missing_layer(options);
    if (status == TOOL_OK)
        status = prepare(&work, context, options);
    if (status == TOOL_OK)
        status = report(&work, options);
    smelt_context_destroy(&context);
    free(work.requests);
    free(work.infos);
    for (size_t i = 0; work.kernels && i < targets.archs.count; i++)
        tool_list_free(&work.kernels[i]);
    free(work.kernels);
    tool_targets_free(&targets);
    return status;
}
