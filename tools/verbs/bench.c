/* smelt bench: time kernels on the GPU. */
#include <stdlib.h>
#include <string.h>

#include "../tool.h"
#include "harness/bench.h"

struct benchmarks {
    struct smelt__bench_item *items;
    struct smelt__bench_result *results;
    int count, failed;
    smelt_device_info device;
};

/* ---- selection ------------------------------------------------------------------------------ */

/* Adds each pass of an operator that its spec asks for. */
static int add_operator(struct benchmarks *benchmarks, const char *text,
                        const struct tool_options *options) {
    struct smelt__harness_spec spec;
    const int status = tool_options_fit(options, text);
    if (status != TOOL_OK)
        return status;
    unsigned passes = smelt__harness_spec_parse(&spec, text) == SMELT_OK
                          ? spec.passes
                          : 0; /* one item, which reports the fault */
    do {
        struct smelt__bench_item item = {.problem = tool_bench_problem(options, spec.op)};
        item.pass = passes & (~passes + 1); /* the lowest pass */
        passes &= passes - 1;
        snprintf(item.spec, sizeof item.spec, "%s", text);
        benchmarks->items = tool_allocate(benchmarks->items, (size_t)benchmarks->count + 1,
                                          sizeof *benchmarks->items);
        benchmarks->items[benchmarks->count++] = item;
    } while (passes);
    smelt__harness_spec_free(&spec);
    return TOOL_OK;
}

static int add_operators(struct benchmarks *benchmarks, const struct tool_list *operators,
                         const struct tool_options *options) {
    int status = TOOL_OK;
    for (size_t i = 0; i < operators->count && status == TOOL_OK; i++)
        status = add_operator(benchmarks, operators->items[i], options);
    return status;
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
            return tool_fail(options, TOOL_USAGE, "--shapes replaces specs: give one or the other");
        add_peers(benchmarks);
        return TOOL_OK;
    }
    int status = tool_targets_read(&targets, options);
    if (status == TOOL_OK)
        status = tool_operators_of(&operators, &targets.specs, options);
    if (status == TOOL_OK)
        status = add_operators(benchmarks, &operators, options);
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
    json_t *document =
        tool_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:s, s:o}", "spec", result->spec, "pass",
                  result->pass, "queries", (json_int_t)result->queries, "rows",
                  (json_int_t)result->rows, "width", (json_int_t)result->width, "valid_slots",
                  (json_int_t)result->valid_slots, "lists", result->lists, "ms", milliseconds);
    for (int i = 0; i < result->rate_count; i++) {
        const double value = smelt__bench_rate(result, i);
        json_object_set_new(document, result->rates[i].name, tool_json_real(value));
        json_object_set_new(document, result->rates[i].ratio,
                            tool_json_real(value / result->rates[i].ceiling));
    }
    if (result->launch_us > 0)
        json_object_set_new(document, "launch_us", tool_json_real(result->launch_us));
    return document;
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

enum { LEFT = 7, MAX_COLUMNS = LEFT + SMELT__MOST_RATES + 1 };

static void add_rate(struct tool_table *table, const struct smelt__bench_result *result, int rate) {
    const double value = smelt__bench_rate(result, rate);
    if (rate < result->rate_count)
        tool_table_add(table, TOOL_PLAIN, "%.*f (%.0f%%)", result->rates[rate].decimals, value,
                       100 * value / result->rates[rate].ceiling);
    else
        tool_table_add(table, TOOL_PLAIN, "-");
}

/* `rates`: the number of rate columns. */
static void add_row(struct tool_table *table, const struct smelt__bench_result *result, int rates) {
    tool_table_add_cells(table, "%s\t%s\t%lld\t%lld\t%s", result->spec,
                         result->pass ? result->pass : "-", (long long)result->queries,
                         (long long)result->rows, result->lists ? result->lists : "-");
    if (result->status) {
        tool_table_add(table, TOOL_BAD, "failed");
        for (int column = 0; column < 2 + rates; column++)
            tool_table_add(table, TOOL_PLAIN, "-");
        return;
    }
    tool_table_add_cells(table, "%.3f\t%.3f..%.3f", result->ms_median, result->ms_min,
                         result->ms_max);
    for (int rate = 0; rate < rates; rate++)
        add_rate(table, result, rate);
    tool_table_add(table, TOOL_PLAIN, result->launch_us > 0 ? "%.2f" : "-", result->launch_us);
}

/* Whether two results have the same rates; a failure matches any. */
static int same_columns(const struct smelt__bench_result *a, const struct smelt__bench_result *b) {
    if (a->rate_count == 0 || b->rate_count == 0)
        return 1;
    for (int i = 0; i < SMELT__MOST_RATES; i++)
        if ((i < a->rate_count) != (i < b->rate_count) ||
            (i < a->rate_count && strcmp(a->rates[i].name, b->rates[i].name) != 0))
            return 0;
    return 1;
}

/* Prints a table of the results from `begin` on with equal columns; returns its end. */
static int print_part(const struct benchmarks *benchmarks, int begin) {
    static const char *const left[LEFT] = {"operator", "pass", "queries", "rows",
                                           "inputs",   "ms",   "min..max"};
    const struct smelt__bench_result *results = benchmarks->results;
    const char *headers[MAX_COLUMNS];
    char alignment[MAX_COLUMNS + 1] = "llrrl"; /* then r for each rate */
    struct tool_table table;
    int end = begin, named = begin, count = LEFT;
    for (; end < benchmarks->count && same_columns(&results[named], &results[end]); end++)
        if (results[named].rate_count == 0)
            named = end;
    memcpy(headers, left, sizeof left);
    for (int i = 0; i < results[named].rate_count; i++)
        headers[count++] = results[named].rates[i].heading;
    headers[count++] = "launch us";
    memset(alignment + 5, 'r', (size_t)count - 5);
    tool_table_begin(&table, alignment, headers);
    for (int i = begin; i < end; i++)
        add_row(&table, &results[i], results[named].rate_count);
    tool_table_end(&table);
    return end;
}

static void print_table(const struct benchmarks *benchmarks) {
    printf("%s, %d multiprocessors, driver CUDA %d.%d; percentages: of an H200's peaks\n\n",
           benchmarks->device.name, benchmarks->device.multiprocessors,
           benchmarks->device.driver_version / 1000, benchmarks->device.driver_version % 1000 / 10);
    for (int next = 0; next < benchmarks->count;) {
        if (next > 0)
            putchar('\n');
        next = print_part(benchmarks, next);
    }
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
        status = tool_exit_join(status, tool_exit_of(result->status));
        if (result->status)
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
