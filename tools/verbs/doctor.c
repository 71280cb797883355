/* smelt doctor: what was found on this machine, what is wrong, what to do. */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "../tool.h"

static const char *cache_rights(const smelt_machine_report *report) {
    if (*report->cache_problem || !*report->cache_folder)
        return "bypassed";
    if (access(report->cache_folder, W_OK) == 0)
        return "writable";
    /* The folder is made by the first kernel that is stored. */
    return access(report->cache_folder, F_OK) ? "made when needed" : "not writable";
}

/* Kernels would be compiled again by every process. */
static int keeps_nothing(const smelt_machine_report *report) {
    return *report->cache_problem || !strcmp(cache_rights(report), "not writable");
}

/* What is missing decides before what is merely wrong. */
static int judge(const smelt_machine_report *report, const smelt_cache_stats *stats) {
    if (!report->driver_found || !report->devices || !report->nvrtc_found)
        return TOOL_MISSING;
    return keeps_nothing(report) || *stats->readonly_problem ? TOOL_FAILED : TOOL_OK;
}

/* The read-only layer, of which a context knows. The report has said all there is to log. */
static smelt_status inspect_layer(smelt_context **context, smelt_cache_stats *stats) {
    smelt_context_options settings = SMELT_CONTEXT_OPTIONS_INIT;
    settings.kind = SMELT_CONTEXT_COMPILE_ONLY;
    settings.arch = "sm_80"; /* any */
    smelt_status status = smelt_context_create(context, &settings);
    return status ? status : smelt_cache_get_stats(*context, stats);
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

static void print_json(const smelt_machine_report *report, const smelt_cache_stats *stats) {
    json_t *driver = tool_pack("{s:b, s:i, s:s, s:s}", "found", report->driver_found, "version",
                               report->driver_version, "path", report->driver_path, "problem",
                               report->driver_problem);
    json_t *nvrtc =
        tool_pack("{s:b, s:i, s:i, s:s, s:s, s:s}", "found", report->nvrtc_found, "major",
                  report->nvrtc_major, "minor", report->nvrtc_minor, "path", report->nvrtc_path,
                  "archs", report->nvrtc_archs, "problem", report->nvrtc_problem);
    json_t *cache =
        tool_pack("{s:s, s:s, s:s, s:s, s:s}", "folder", report->cache_folder, "rights",
                  cache_rights(report), "problem", report->cache_problem, "readonly_folder",
                  stats->readonly, "readonly_problem", stats->readonly_problem);
    tool_print_json(tool_pack("{s:s, s:o, s:o, s:o, s:o, s:b}", "version", smelt_version(),
                              "driver", driver, "devices", devices_json(report), "nvrtc", nvrtc,
                              "cache", cache, "ok", judge(report, stats) == TOOL_OK));
}

/* ---- text ------------------------------------------------------------------------------------ */

/* Continuation lines of a message stand under its first. */
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

static void print_cache(const smelt_machine_report *report, const smelt_cache_stats *stats) {
    printf("cache    %s, %s\n", *report->cache_folder ? report->cache_folder : "no folder",
           cache_rights(report));
    if (*report->cache_problem)
        print_problem(report->cache_problem);
    if (*stats->readonly_problem)
        printf("layer    not used (SMELT_CACHE_READONLY_DIR)\n");
    else if (*stats->readonly)
        printf("layer    %s, read-only, %" PRIu64 " entries\n", stats->readonly,
               stats->readonly_entries);
    if (*stats->readonly_problem)
        print_problem(stats->readonly_problem);
}

static int print_report(const smelt_machine_report *report, const smelt_cache_stats *stats,
                        const struct tool_options *options) {
    if (options->json) {
        print_json(report, stats);
        return judge(report, stats);
    }
    printf("smelt    %s\n", smelt_version());
    print_driver(report);
    print_devices(report);
    print_compiler(report);
    print_cache(report, stats);
    return judge(report, stats);
}

int tool_run_doctor(const struct tool_options *options) {
    smelt_machine_report report = SMELT_MACHINE_REPORT_INIT;
    smelt_cache_stats stats = SMELT_CACHE_STATS_INIT;
    smelt_context *context = NULL; /* of the layer, and of the strings in stats */
    smelt_context_options settings = tool_context_options(options);
    if (options->arguments.count)
        return tool_fail(options, TOOL_USAGE, "takes no argument, not '%s'",
                         options->arguments.items[0]);
    smelt_status status = smelt_machine_get_report(&settings, &report);
    if (!status)
        status = inspect_layer(&context, &stats);
    int result = TOOL_OK;
    if (status)
        result = tool_fail_status(options, status);
    else
        result = print_report(&report, &stats, options);
    smelt_context_destroy(&context);
    smelt_machine_report_release(&report);
    return result;
}
