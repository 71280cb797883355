/* smelt bench: time kernels on the GPU. */
#include <stdlib.h>
#include <string.h>

#include "../tool.h"
#include "harness/bench.h"

/* The shape that the peers' table starts from. */
enum { DEFAULT_QUERIES = 4096, DEFAULT_ROWS = 8192 };

struct benchmarks {
    struct smelt__bench_item *items;
    struct smelt__bench_result *results;
    int count, failed;
    smelt_device_info device;
};

/* ---- what to time ---------------------------------------------------------------------------- */

static void add_operators(struct benchmarks *benchmarks, const struct tool_list *operators,
                          const struct tool_options *options) {
    benchmarks->count = (int)operators->count;
    benchmarks->items = tool_allocate(NULL, operators->count, sizeof *benchmarks->items);
    for (size_t i = 0; i < operators->count; i++) {
        struct smelt__bench_item *item = &benchmarks->items[i];
        memset(item, 0, sizeof *item);
        snprintf(item->spec, sizeof item->spec, "%s", operators->items[i]);
        item->problem = options->problem;
        if (!item->problem.tokens)
            item->problem.tokens = DEFAULT_QUERIES;
        if (!item->problem.rows)
            item->problem.rows = DEFAULT_ROWS;
    }
}

static void add_peers(struct benchmarks *benchmarks) {
    benchmarks->count = smelt__bench_peer_items(NULL, 0);
    benchmarks->items = tool_allocate(NULL, (size_t)benchmarks->count, sizeof *benchmarks->items);
    smelt__bench_peer_items(benchmarks->items, benchmarks->count);
}

static int choose(struct benchmarks *benchmarks, const struct tool_options *options) {
    struct tool_targets targets;
    struct tool_list operators = {0};
    if (options->shapes) {
        if (options->arguments.count || options->presets.count || options->manifest)
            return tool_fail(options, TOOL_USAGE, "--shapes stands in the place of specs");
        add_peers(benchmarks);
        return TOOL_OK;
    }
    int status = tool_targets_read(&targets, options);
    if (status == TOOL_OK)
        status = tool_operators_of(&operators, &targets.specs, options);
    if (status == TOOL_OK)
        add_operators(benchmarks, &operators, options);
    tool_list_free(&operators);
    tool_targets_free(&targets);
    return status;
}

/* ---- reporting ------------------------------------------------------------------------------- */

static json_t *result_json(const struct smelt__bench_result *result) {
    if (result->status)
        return tool_pack("{s:s, s:s}", "spec", result->spec, "error", result->message);
    json_t *milliseconds = tool_pack("{s:f, s:f, s:f}", "median", result->ms_median, "min",
                                     result->ms_min, "max", result->ms_max);
    return tool_pack("{s:s, s:I, s:I, s:I, s:I, s:s, s:o, s:f, s:f, s:f, s:f, s:f}", "spec",
                     result->spec, "queries", (json_int_t)result->queries, "rows",
                     (json_int_t)result->rows, "width", (json_int_t)result->width, "valid_slots",
                     (json_int_t)result->valid_slots, "lists", result->lists, "ms", milliseconds,
                     "tflops", result->tflops, "gather_tbs", result->gather_tbs, "launch_us",
                     result->launch_us, "tflops_ratio", result->tflops_ratio, "gather_ratio",
                     result->gather_ratio);
}

static void print_json(const struct benchmarks *benchmarks) {
    const smelt_device_info *device = &benchmarks->device;
    char capability[24];
    json_t *results = tool_json(json_array());
    snprintf(capability, sizeof capability, "%d.%d", device->capability_major,
             device->capability_minor);
    for (int i = 0; i < benchmarks->count; i++)
        json_array_append_new(results, result_json(&benchmarks->results[i]));
    json_t *about =
        tool_pack("{s:s, s:s, s:i, s:i, s:I}", "name", device->name, "capability", capability,
                  "multiprocessors", device->multiprocessors, "driver_version",
                  device->driver_version, "memory_bytes", (json_int_t)device->memory_bytes);
    tool_print_json(tool_pack("{s:o, s:o}", "device", about, "results", results));
}

static void add_row(struct tool_table *table, const struct smelt__bench_result *result) {
    tool_table_add(table, TOOL_PLAIN, "%s", result->spec);
    tool_table_add(table, TOOL_PLAIN, "%lld", (long long)result->queries);
    tool_table_add(table, TOOL_PLAIN, "%lld", (long long)result->rows);
    tool_table_add(table, TOOL_PLAIN, "%s", result->lists ? result->lists : "-");
    if (result->status) {
        tool_table_add(table, TOOL_BAD, "failed");
        for (int column = 0; column < 4; column++)
            tool_table_add(table, TOOL_PLAIN, "-");
        return;
    }
    tool_table_add(table, TOOL_PLAIN, "%.3f", result->ms_median);
    tool_table_add(table, TOOL_PLAIN, "%.3f..%.3f", result->ms_min, result->ms_max);
    tool_table_add(table, TOOL_PLAIN, "%.0f (%.0f%%)", result->tflops, 100 * result->tflops_ratio);
    tool_table_add(table, TOOL_PLAIN, "%.2f (%.0f%%)", result->gather_tbs,
                   100 * result->gather_ratio);
    tool_table_add(table, TOOL_PLAIN, "%.2f", result->launch_us);
}

static void print_table(const struct benchmarks *benchmarks) {
    static const char *const headers[] = {"operator", "queries", "rows",        "lists",    "ms",
                                          "min..max", "TFLOP/s", "gather TB/s", "launch us"};
    struct tool_table table;
    printf("%s, %d multiprocessors, driver CUDA %d.%d; percentages: of an H200's ceilings\n\n",
           benchmarks->device.name, benchmarks->device.multiprocessors,
           benchmarks->device.driver_version / 1000, benchmarks->device.driver_version % 1000 / 10);
    tool_table_begin(&table, "lrrlrrrrr", headers);
    for (int i = 0; i < benchmarks->count; i++)
        add_row(&table, &benchmarks->results[i]);
    tool_table_end(&table);
}

static int report(const struct benchmarks *benchmarks, const struct tool_options *options) {
    int status = TOOL_OK;
    if (options->json)
        print_json(benchmarks);
    else
        print_table(benchmarks);
    fflush(stdout);
    for (int i = 0; i < benchmarks->count; i++) {
        const struct smelt__bench_result *result = &benchmarks->results[i];
        int one = tool_exit_of(result->status);
        if (one == TOOL_OK)
            continue;
        status = status == TOOL_OK || status == one ? one : TOOL_FAILED;
        tool_say(options, "%s: %s", result->spec, result->message);
    }
    return status;
}

int tool_run_bench(const struct tool_options *options) {
    struct benchmarks benchmarks = {.device = SMELT_DEVICE_INFO_INIT};
    smelt_context *context = NULL;
    int status = choose(&benchmarks, options);
    if (status == TOOL_OK)
        status = tool_open_device(options, &context);
    if (status == TOOL_OK) {
        smelt_status got = smelt_device_get_info(context, &benchmarks.device);
        status = got ? tool_fail_status(options, got) : TOOL_OK;
    }
    if (status == TOOL_OK) {
        size_t count = (size_t)benchmarks.count;
        benchmarks.results = tool_allocate(NULL, count, sizeof *benchmarks.results);
        memset(benchmarks.results, 0, count * sizeof *benchmarks.results);
        smelt__bench_run(context, benchmarks.items, benchmarks.count,
                         options->repeat > 0 ? (int)options->repeat : 0, benchmarks.results);
        status = report(&benchmarks, options);
    }
    smelt_context_destroy(&context);
    free(benchmarks.items);
    free(benchmarks.results);
    return status;
}
