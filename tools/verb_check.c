/* smelt check: run kernels on the GPU and compare them with the double-precision reference. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "tool.h"

/* All checks of one command: each operator with each kind of lists. */
struct checks {
    struct smelt__check_result *results;
    struct smelt__check_options *asked;
    size_t count, passed;
};

enum { LIST_KINDS = SMELT__LISTS_ADVERSARIAL + 1 };

/* ---- running --------------------------------------------------------------------------------- */

static void plan_checks(struct checks *checks, const struct tool_list *operators,
                        const struct tool_options *options) {
    size_t kinds = options->lists_given ? 1 : LIST_KINDS;
    checks->count = operators->count * kinds;
    checks->asked = tool_allocate(NULL, checks->count, sizeof *checks->asked);
    checks->results = tool_allocate(NULL, checks->count, sizeof *checks->results);
    memset(checks->results, 0, checks->count * sizeof *checks->results);
    for (size_t i = 0; i < checks->count; i++) {
        struct smelt__check_options *asked = &checks->asked[i];
        asked->spec = operators->items[i / kinds];
        asked->problem = options->problem;
        asked->sample = options->sample > 0 ? (int)options->sample : 0;
        if (!options->lists_given)
            asked->problem.lists = (enum smelt__lists)(i % kinds);
    }
}

static void run_checks(struct checks *checks, smelt_context *context) {
    for (size_t i = 0; i < checks->count; i++) {
        tool_progress_draw(i, checks->count, checks->asked[i].spec);
        int failed = smelt__check_run(context, &checks->asked[i], &checks->results[i]);
        checks->passed += !failed;
    }
    tool_progress_clear();
}

/* ---- reporting ------------------------------------------------------------------------------- */

static json_t *result_json(const struct smelt__check_options *asked,
                           const struct smelt__check_result *result) {
    json_t *errors =
        tool_json(json_pack("{s:o, s:o, s:o}", "out", tool_json_real(result->out_absolute), "lse",
                            tool_json_real(result->lse_absolute), "max_logits",
                            tool_json_real(result->max_logits_absolute)));
    json_t *relative =
        tool_json(json_pack("{s:o, s:o}", "out", tool_json_real(result->out_relative), "out_row",
                            tool_json_real(result->row_relative)));
    json_t *tolerance = tool_json(json_pack(
        "{s:o, s:o, s:o}", "out", tool_json_real(result->out_tolerance), "out_row",
        tool_json_real(result->row_tolerance), "lse", tool_json_real(result->lse_tolerance)));
    json_t *document = tool_json(json_pack(
        "{s:s, s:s, s:s, s:I, s:s, s:b, s:o, s:o, s:o, s:I, s:I, s:f}", "spec", result->spec,
        "arch", result->arch, "where", "gpu", "seed", (json_int_t)asked->problem.seed, "lists",
        smelt__lists_name(asked->problem.lists), "passed", result->passed, "max_abs_error", errors,
        "relative_error", relative, "tolerance", tolerance, "queries", (json_int_t)result->queries,
        "compared", (json_int_t)result->compared, "seconds", result->seconds));
    if (!result->passed) {
        json_object_set_new(document, "error", tool_json(json_string(result->message)));
        json_object_set_new(document, "command", tool_json(json_string(result->command)));
    }
    return document;
}

static void print_json(const struct checks *checks) {
    json_t *results = tool_json(json_array());
    for (size_t i = 0; i < checks->count; i++)
        json_array_append_new(results, result_json(&checks->asked[i], &checks->results[i]));
    tool_print_json(json_pack("{s:o, s:I, s:I}", "results", results, "passed",
                              (json_int_t)checks->passed, "failed",
                              (json_int_t)(checks->count - checks->passed)));
}

static void print_table(const struct checks *checks) {
    static const char *const headers[] = {"operator",  "lists", "queries", "out, relative",
                                          "worst row", "lse",   "seconds", "result"};
    struct tool_table table;
    tool_table_begin(&table, "llrrrrrl", headers);
    for (size_t i = 0; i < checks->count; i++) {
        const struct smelt__check_result *result = &checks->results[i];
        tool_table_add(&table, TOOL_PLAIN, "%s",
                       *result->spec ? result->spec : checks->asked[i].spec);
        tool_table_add(&table, TOOL_PLAIN, "%s", smelt__lists_name(checks->asked[i].problem.lists));
        tool_table_add(&table, TOOL_PLAIN, "%lld of %lld", (long long)result->compared,
                       (long long)result->queries);
        tool_table_add(&table, TOOL_PLAIN, "%.2e", result->out_relative);
        tool_table_add(&table, TOOL_PLAIN, "%.2e", result->row_relative);
        tool_table_add(&table, TOOL_PLAIN, "%.2e", result->lse_absolute);
        tool_table_add(&table, TOOL_PLAIN, "%.2f", result->seconds);
        tool_table_add(&table, result->passed ? TOOL_GOOD : TOOL_BAD, "%s",
                       result->passed ? "passed" : "FAILED");
    }
    tool_table_end(&table);
    printf("\n%zu passed, %zu failed on %s (seed %llu)\n", checks->passed,
           checks->count - checks->passed, checks->results[0].arch,
           (unsigned long long)checks->asked[0].problem.seed);
}

static int report(const struct checks *checks, const struct tool_options *options) {
    int status = TOOL_OK;
    if (options->json)
        print_json(checks);
    else
        print_table(checks);
    fflush(stdout);
    for (size_t i = 0; i < checks->count; i++) {
        const struct smelt__check_result *result = &checks->results[i];
        if (result->passed)
            continue;
        int one = result->status ? tool_exit_of(result->status) : TOOL_FAILED;
        status = status == TOOL_OK || status == one ? one : TOOL_FAILED;
        tool_say(options, "%s", result->message);
        if (!strstr(result->message, result->command))
            tool_say(options, "reproduce: %s", result->command);
    }
    return status;
}

int tool_run_check(const struct tool_options *options) {
    struct tool_targets targets;
    struct tool_list operators = {0};
    struct checks checks = {0};
    smelt_context *context = NULL;
    if (options->emulate)
        return tool_fail(options, TOOL_USAGE,
                         "--emulate: the emulator is not there yet; checks need a GPU");
    int status = tool_targets_read(&targets, options);
    if (status == TOOL_OK)
        status = tool_operators_of(&operators, &targets.specs, options);
    if (status == TOOL_OK)
        status = tool_open_device(options, &context);
    if (status == TOOL_OK) {
        plan_checks(&checks, &operators, options);
        run_checks(&checks, context);
        status = report(&checks, options);
    }
    smelt_context_destroy(&context);
    free(checks.asked);
    free(checks.results);
    tool_list_free(&operators);
    tool_targets_free(&targets);
    return status;
}
