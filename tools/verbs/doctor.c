/* smelt doctor: what this machine has and lacks, with remedies. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../tool.h"

enum { PATH_BYTES = 4096 + 32, TRIED_BYTES = 64 << 10 /* about a kernel's size */ };

/* Whether kernels can be stored in the cache's folder. */
struct cache_rights {
    const char *word;
    char problem[2 * PATH_BYTES]; /* why not, and the remedy; "": they can */
};

/* Writes TRIED_BYTES and syncs the file; 0, or errno. */
static int fill(int file) {
    static const char bytes[TRIED_BYTES];
    size_t done = 0;
    while (done < sizeof bytes) {
        const ssize_t written = write(file, bytes + done, sizeof bytes - done);
        if (written < 0 && errno != EINTR)
            return errno;
        done += written > 0 ? (size_t)written : 0;
    }
    return fsync(file) ? errno : 0;
}

/* Writes and removes a file, as storing a kernel does; 0, or errno. Permissions alone do not show a
 * full disk or a file system that rejects files. */
static int try_folder(const char *folder) {
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/doctor-XXXXXX", folder);
    const int file = mkstemp(path);
    if (file < 0)
        return errno;
    unlink(path);
    void (*const before)(int) = signal(SIGXFSZ, SIG_IGN); /* EFBIG instead of a signal */
    const int error = fill(file);
    signal(SIGXFSZ, before);
    return close(file) && !error ? errno : error;
}

static const char *remedy_of(int error) {
    return error == ENOSPC || error == EDQUOT ? "free some space there"
           : error == EROFS                   ? "mount it writable"
           : error == EFBIG                   ? "raise the limit on the size of files (ulimit -f)"
                                              : "correct its permissions";
}

/* `unreadable`: why the cache's entries cannot be counted; "": they can. */
static struct cache_rights find_rights(const smelt_machine_report *report, const char *unreadable) {
    struct cache_rights rights = {.word = "bypassed"};
    if (*report->cache_problem || !*report->cache_folder) {
        snprintf(rights.problem, sizeof rights.problem, "%s", report->cache_problem);
        return rights;
    }
    const char *off = secure_getenv("SMELT_CACHE_DISABLE");
    if (off && !strcmp(off, "1")) {
        rights.word = "disabled by SMELT_CACHE_DISABLE";
        return rights;
    }
    if (*unreadable) {
        rights.word = "not completely readable";
        snprintf(
            rights.problem, sizeof rights.problem,
            "%s: every process compiles again what it cannot read; correct the permissions, or "
            "name another folder in SMELT_CACHE_DIR",
            unreadable);
        return rights;
    }
    const int error = try_folder(report->cache_folder);
    rights.word = error ? "not writable" : "writable";
    if (error)
        snprintf(rights.problem, sizeof rights.problem,
                 "%s: every process compiles again what is not in it; %s, or name another folder "
                 "in SMELT_CACHE_DIR",
                 strerror(error), remedy_of(error));
    return rights;
}

/* Missing things determine the exit status before faults. */
static int judge(const smelt_machine_report *report, const struct cache_rights *rights,
                 const smelt_cache_stats *stats) {
    if (!report->driver_found || !report->devices || !report->nvrtc_found)
        return TOOL_MISSING;
    return *rights->problem || *stats->readonly_problem ? TOOL_FAILED : TOOL_OK;
}

/* What the cache's layers hold. */
struct contents {
    smelt_context *context; /* owns the strings in stats */
    smelt_cache_stats stats;
    char unreadable[512]; /* why the cache's entries cannot be counted; "": they can */
    struct tool_stale cache, layer;
};

/* The report has logged everything. A layer without problem that becomes unreadable is not counted. */
static smelt_status inspect_cache(struct contents *contents, const smelt_machine_report *report) {
    smelt_context_options settings = SMELT_CONTEXT_OPTIONS_INIT;
    settings.kind = SMELT_CONTEXT_COMPILE_ONLY;
    settings.arch = "sm_80"; /* any architecture */
    smelt_status status = smelt_context_create(&contents->context, &settings);
    if (!status)
        status = smelt_cache_get_stats(contents->context, &contents->stats);
    if (status == SMELT_ERROR_CACHE) {
        snprintf(contents->unreadable, sizeof contents->unreadable, "%s", smelt_last_error());
        contents->stats.problem = contents->stats.readonly = contents->stats.readonly_problem = "";
        return SMELT_OK;
    }
    const smelt_cache_stats *stats = &contents->stats;
    if (!status && !*stats->problem && stats->entries)
        (void)tool_find_stale(contents->context, NULL, report->nvrtc_major, report->nvrtc_minor,
                              &contents->cache);
    if (!status && *stats->readonly && !*stats->readonly_problem)
        (void)tool_find_stale(contents->context, stats->readonly, 0, 0, &contents->layer);
    return status;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *devices_json(const smelt_machine_report *report) {
    json_t *devices = tool_json(json_array());
    for (int i = 0; i < report->devices; i++)
        json_array_append_new(devices,
                              tool_pack("{s:i, s:s, s:s}", "number", i, "name",
                                        report->device_names[i], "arch", report->device_archs[i]));
    return devices;
}

static json_t *stale_json(const struct tool_stale *stale) {
    return tool_pack("{s:I, s:I, s:I}", "entries", (json_int_t)stale->entries, "other_source",
                     (json_int_t)stale->other_source, "other_nvrtc",
                     (json_int_t)stale->other_nvrtc);
}

static void print_json(const smelt_machine_report *report, const struct cache_rights *rights,
                       const struct contents *contents) {
    const smelt_cache_stats *stats = &contents->stats;
    json_t *driver = tool_pack("{s:b, s:i, s:s, s:s}", "found", report->driver_found, "version",
                               report->driver_version, "path", report->driver_path, "problem",
                               report->driver_problem);
    json_t *nvrtc =
        tool_pack("{s:b, s:i, s:i, s:s, s:s, s:s}", "found", report->nvrtc_found, "major",
                  report->nvrtc_major, "minor", report->nvrtc_minor, "path", report->nvrtc_path,
                  "archs", report->nvrtc_archs, "problem", report->nvrtc_problem);
    json_t *cache =
        tool_pack("{s:s, s:s, s:s, s:o, s:s, s:s, s:o}", "folder", report->cache_folder, "rights",
                  rights->word, "problem", rights->problem, "stale", stale_json(&contents->cache),
                  "readonly_folder", stats->readonly, "readonly_problem", stats->readonly_problem,
                  "readonly_stale", stale_json(&contents->layer));
    tool_print_json(tool_pack("{s:s, s:o, s:o, s:o, s:o, s:b}", "version", smelt_version(),
                              "driver", driver, "devices", devices_json(report), "nvrtc", nvrtc,
                              "cache", cache, "ok", judge(report, rights, stats) == TOOL_OK));
}

/* ---- text ------------------------------------------------------------------------------------ */

/* Aligns a message's continuation lines with its first. */
static void print_problem(const char *problem) {
    printf("         ");
    for (; *problem; problem++) {
        putchar(*problem);
        if (*problem == '\n' && problem[1])
            printf("         ");
    }
    putchar('\n');
}

static void print_driver(const smelt_machine_report *report) {
    if (!report->driver_found) {
        printf("driver   not found\n");
        print_problem(report->driver_problem);
        return;
    }
    printf("driver   CUDA %d.%d, %s\n", report->driver_version / 1000,
           report->driver_version % 1000 / 10, report->driver_path);
}

static void print_devices(const smelt_machine_report *report) {
    if (!report->devices)
        printf("GPU      none: kernels can be compiled (--arch), not run\n");
    for (int i = 0; i < report->devices; i++)
        printf("GPU %-4d %s, %s\n", i, report->device_names[i],
               *report->device_archs[i] ? report->device_archs[i]
                                        : "not one that smelt has kernels for");
}

static void print_compiler(const smelt_machine_report *report) {
    if (!report->nvrtc_found) {
        printf("NVRTC    not found: only cached kernels can be used\n");
        print_problem(report->nvrtc_problem);
        return;
    }
    printf("NVRTC    %d.%d, %s\n", report->nvrtc_major, report->nvrtc_minor, report->nvrtc_path);
    if (*report->nvrtc_archs)
        printf("         compiles for %s\n", report->nvrtc_archs);
}

static void print_stale(const struct tool_stale *stale, const char *remedy) {
    if (stale->other_source)
        printf("         %" PRIu64 " of %" PRIu64 " entries are of another version of smelt, which "
               "this one does not use: %s\n",
               stale->other_source, stale->entries, remedy);
    if (stale->other_nvrtc)
        printf("         %" PRIu64 " of %" PRIu64
               " entries are of another NVRTC and will be compiled "
               "again\n",
               stale->other_nvrtc, stale->entries);
}

static void print_cache(const smelt_machine_report *report, const struct cache_rights *rights,
                        const struct contents *contents) {
    const smelt_cache_stats *stats = &contents->stats;
    printf("cache    %s, %s\n", *report->cache_folder ? report->cache_folder : "no folder",
           rights->word);
    if (*rights->problem)
        print_problem(rights->problem);
    print_stale(&contents->cache,
                "`smelt warm` compiles its own, and old ones are evicted in time");
    if (*stats->readonly_problem)
        printf("layer    not used (SMELT_CACHE_READONLY_DIR)\n");
    else if (*stats->readonly)
        printf("layer    %s, read-only, %" PRIu64 " entries\n", stats->readonly,
               stats->readonly_entries);
    if (*stats->readonly_problem)
        print_problem(stats->readonly_problem);
    print_stale(&contents->layer, "`smelt warm` and `smelt cache export` with this version");
}

static int print_report(const smelt_machine_report *report, const struct contents *contents,
                        const struct tool_options *options) {
    const struct cache_rights rights = find_rights(report, contents->unreadable);
    if (options->json) {
        print_json(report, &rights, contents);
        return judge(report, &rights, &contents->stats);
    }
    printf("smelt    %s\n", smelt_version());
    print_driver(report);
    print_devices(report);
    print_compiler(report);
    print_cache(report, &rights, contents);
    return judge(report, &rights, &contents->stats);
}

int tool_run_doctor(const struct tool_options *options) {
    smelt_machine_report report = SMELT_MACHINE_REPORT_INIT;
    struct contents contents = {.stats = SMELT_CACHE_STATS_INIT};
    smelt_context_options settings = tool_context_options(options);
    if (options->arguments.count)
        return tool_fail(options, TOOL_USAGE, "takes no argument, not '%s'",
                         options->arguments.items[0]);
    smelt_status status = smelt_machine_get_report(&settings, &report);
    if (!status)
        status = inspect_cache(&contents, &report);
    int result = TOOL_OK;
    if (status)
        result = tool_fail_status(options, status);
    else
        result = print_report(&report, &contents, options);
    smelt_context_destroy(&contents.context);
    smelt_machine_report_release(&report);
    return result;
}
