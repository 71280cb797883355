/* smelt check: run kernels, on the GPU or the emulator, and compare them with the double-precision
 * reference. */
#include <stdlib.h>
#include <string.h>

#include "../tool.h"
#include "harness/check.h"

/* All checks of one command: each architecture with each operator with each kind of lists. */
struct checks {
    struct smelt__check_result *results;
    struct smelt__check_options *asked;
    json_t **reports; /* of a failed check on the emulator, else NULL */
    size_t count, passed;
    size_t per_arch; /* checks of one architecture */
    struct smelt__schedule *schedules;
    int schedule_count;
};

static const char DEFAULT_ARCH[] = "sm_90a";

enum {
    LIST_KINDS = SMELT__LISTS_ADVERSARIAL + 1, /* by default; the others are for benchmarks */
    /* A problem that the emulator is done with in seconds, and still several key blocks wide, the
     * last of them not whole. */
    EMULATED_TOKENS = 3,
    EMULATED_WIDTH = 200,
    EMULATED_SCHEDULES = 4
};

/* ---- planning -------------------------------------------------------------------------------- */

static void shrink(struct smelt__check_options *asked) {
    smelt_sparse_attn_spec spec = SMELT_SPARSE_ATTN_SPEC_INIT;
    struct smelt__problem_options *problem = &asked->problem;
    if (smelt_sparse_attn_spec_parse(asked->spec, &spec, NULL) != SMELT_OK)
        return; /* the check will say so */
    if (problem->tokens == 0)
        problem->tokens = EMULATED_TOKENS;
    if (problem->width == 0)
        problem->width = spec.topk < EMULATED_WIDTH ? spec.topk : EMULATED_WIDTH;
    if (problem->rows == 0)
        problem->rows = 4 * (problem->width > EMULATED_WIDTH ? problem->width : EMULATED_WIDTH);
}

static void plan_checks(struct checks *checks, const struct tool_list *operators, size_t archs,
                        const struct tool_options *options) {
    size_t kinds = options->lists_given ? 1 : LIST_KINDS;
    checks->per_arch = operators->count * kinds;
    checks->count = archs * checks->per_arch;
    checks->asked = tool_allocate(NULL, checks->count, sizeof *checks->asked);
    checks->results = tool_allocate(NULL, checks->count, sizeof *checks->results);
    checks->reports = tool_allocate(NULL, checks->count, sizeof *checks->reports);
    memset(checks->asked, 0, checks->count * sizeof *checks->asked);
    memset(checks->results, 0, checks->count * sizeof *checks->results);
    memset(checks->reports, 0, checks->count * sizeof *checks->reports);
    for (size_t i = 0; i < checks->count; i++) {
        struct smelt__check_options *asked = &checks->asked[i];
        asked->spec = operators->items[i % checks->per_arch / kinds];
        asked->problem = options->problem;
        asked->sample = options->sample > 0 ? (int)options->sample : 0;
        asked->schedules = checks->schedules;
        asked->schedule_count = checks->schedule_count;
        if (!options->lists_given)
            asked->problem.lists = (enum smelt__lists)(i % kinds);
        if (options->emulate)
            shrink(asked);
    }
}

/* Those named, else the first few of the seed. */
static int plan_schedules(struct checks *checks, const struct tool_options *options) {
    char message[256];
    int64_t wanted = options->schedule.count;
    if (wanted == 0)
        wanted = options->schedules > 0 ? options->schedules : EMULATED_SCHEDULES;
    checks->schedules = tool_allocate(NULL, (size_t)wanted, sizeof *checks->schedules);
    checks->schedule_count = (int)wanted;
    for (int i = 0; i < checks->schedule_count; i++) {
        checks->schedules[i] = smelt__schedule_at(options->problem.seed, i);
        if (options->schedule.count > 0 &&
            smelt__schedule_parse(options->schedule.items[i], &checks->schedules[i], message,
                                  sizeof message) != 0)
            return tool_fail(options, TOOL_USAGE, "%s", message);
    }
    return TOOL_OK;
}

/* ---- running --------------------------------------------------------------------------------- */

static json_t *take_reports(int count) {
    const struct emu_interface *emulator = smelt__emulator();
    json_t *reports = tool_json(json_array());
    for (int i = 0; i < count; i++) {
        struct emu_report report = emulator->report((size_t)i);
        json_array_append_new(
            reports,
            tool_pack("{s:s, s:s}", "kind", emulator->kind_name(report.kind), "text", report.text));
    }
    return reports;
}

/* The checks of architecture number `arch`. */
static void run_checks(struct checks *checks, size_t arch, smelt_context *context) {
    size_t begin = arch * checks->per_arch;
    for (size_t i = begin; i < begin + checks->per_arch; i++) {
        struct smelt__check_result *result = &checks->results[i];
        tool_progress_draw(i, checks->count, checks->asked[i].spec);
        int failed = smelt__check_run(context, &checks->asked[i], result);
        checks->passed += !failed;
        if (failed && result->emulated)
            checks->reports[i] = take_reports(result->reports);
    }
    tool_progress_clear();
}

static int run_on_device(struct checks *checks, const struct tool_options *options) {
    smelt_context *context = NULL;
    int status = tool_open_device(options, &context);
    if (status == TOOL_OK)
        run_checks(checks, 0, context);
    smelt_context_destroy(&context);
    return status;
}

static int run_emulated(struct checks *checks, const struct tool_list *archs,
                        const struct tool_options *options) {
    int status = TOOL_OK;
    for (size_t i = 0; i < archs->count && status == TOOL_OK; i++) {
        smelt_context *context = NULL;
        status = tool_open_emulated_device(options, archs->items[i], &context);
        if (status == TOOL_OK)
            run_checks(checks, i, context);
        smelt_context_destroy(&context);
    }
    return status;
}

/* ---- reporting ------------------------------------------------------------------------------- */

static json_t *result_json(const struct checks *checks, size_t number) {
    const struct smelt__check_options *asked = &checks->asked[number];
    const struct smelt__check_result *result = &checks->results[number];
    json_t *errors = tool_pack("{s:o, s:o, s:o}", "out", tool_json_real(result->out_absolute),
                               "lse", tool_json_real(result->lse_absolute), "max_logits",
                               tool_json_real(result->max_logits_absolute));
    json_t *relative = tool_pack("{s:o, s:o}", "out", tool_json_real(result->out_relative),
                                 "out_row", tool_json_real(result->row_relative));
    json_t *tolerance = tool_pack("{s:o, s:o, s:o}", "out", tool_json_real(result->out_tolerance),
                                  "out_row", tool_json_real(result->row_tolerance), "lse",
                                  tool_json_real(result->lse_tolerance));
    json_t *document = tool_pack(
        "{s:s, s:s, s:s, s:I, s:s, s:b, s:o, s:o, s:o, s:I, s:I, s:f}", "spec", result->spec,
        "arch", result->arch, "where", result->emulated ? "emulator" : "gpu", "seed",
        (json_int_t)asked->problem.seed, "lists", smelt__lists_name(asked->problem.lists), "passed",
        result->passed, "max_abs_error", errors, "relative_error", relative, "tolerance", tolerance,
        "queries", (json_int_t)result->queries, "compared", (json_int_t)result->compared, "seconds",
        result->seconds);
    if (!result->passed) {
        json_object_set_new(document, "error", tool_json_text(result->message));
        json_object_set_new(document, "command", tool_json_text(result->command));
    }
    if (checks->schedules)
        json_object_set_new(document, "schedules", tool_json(json_integer(checks->schedule_count)));
    if (checks->reports[number])
        json_object_set(document, "reports", checks->reports[number]);
    return document;
}

static void print_json(const struct checks *checks) {
    json_t *results = tool_json(json_array());
    for (size_t i = 0; i < checks->count; i++)
        json_array_append_new(results, result_json(checks, i));
    tool_print_json(tool_pack("{s:o, s:I, s:I}", "results", results, "passed",
                              (json_int_t)checks->passed, "failed",
                              (json_int_t)(checks->count - checks->passed)));
}

static void print_table(const struct checks *checks) {
    static const char *const headers[] = {"operator", "arch",          "lists",
                                          "queries",  "out, relative", "worst row",
                                          "lse",      "seconds",       "result"};
    struct tool_table table;
    tool_table_begin(&table, "lllrrrrrl", headers);
    for (size_t i = 0; i < checks->count; i++) {
        const struct smelt__check_result *result = &checks->results[i];
        tool_table_add(&table, TOOL_PLAIN, "%s",
                       *result->spec ? result->spec : checks->asked[i].spec);
        tool_table_add(&table, TOOL_PLAIN, "%s", result->arch);
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
    printf("\n%zu passed, %zu failed on %s", checks->passed, checks->count - checks->passed,
           checks->results[0].arch);
    for (size_t i = checks->per_arch; i < checks->count; i += checks->per_arch)
        printf(", %s", checks->results[i].arch);
    if (checks->schedules)
        printf(", emulated, %d schedule%s each", checks->schedule_count,
               checks->schedule_count == 1 ? "" : "s");
    printf(" (seed %llu)\n", (unsigned long long)checks->asked[0].problem.seed);
}

/* What the emulator reported, in full; otherwise the check's message. */
static void say_failure(const struct checks *checks, size_t number,
                        const struct tool_options *options) {
    const struct smelt__check_result *result = &checks->results[number];
    json_t *reports = checks->reports[number];
    for (size_t i = 0; i < json_array_size(reports); i++) {
        json_t *one = json_array_get(reports, i);
        tool_say(options, "%s: %s", json_string_value(json_object_get(one, "kind")),
                 json_string_value(json_object_get(one, "text")));
    }
    int said = json_array_size(reports) > 0;
    if (!said)
        tool_say(options, "%s", result->message);
    if (said || !strstr(result->message, result->command))
        tool_say(options, "reproduce: %s", result->command);
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
        say_failure(checks, i, options);
    }
    return status;
}

/* Options that say how to emulate go with --emulate, and the others without it. */
static int refuse_options(const struct tool_options *options) {
    const struct {
        const char *name;
        int given;
    } emulated[] = {
        {"arch", options->archs.count > 0},
        {"schedules", options->schedules != TOOL_NOT_GIVEN},
        {"schedule", options->schedule.count > 0},
        {"far", options->problem.far},
    };
    for (size_t i = 0; i < sizeof emulated / sizeof emulated[0]; i++)
        if (emulated[i].given && !options->emulate)
            return tool_fail(options, TOOL_USAGE, "--%s goes with --emulate", emulated[i].name);
    if (options->emulate && options->device != TOOL_NOT_GIVEN)
        return tool_fail(options, TOOL_USAGE,
                         "--device numbers GPUs, and --emulate uses none; --arch says which to "
                         "emulate");
    if (options->schedule.count > 0 && options->schedules != TOOL_NOT_GIVEN)
        return tool_fail(options, TOOL_USAGE, "--schedules or --schedule, not both");
    return TOOL_OK;
}

static void free_checks(struct checks *checks) {
    for (size_t i = 0; i < checks->count; i++)
        json_decref(checks->reports[i]);
    free(checks->reports);
    free(checks->asked);
    free(checks->results);
    free(checks->schedules);
}

int tool_run_check(const struct tool_options *options) {
    struct tool_targets targets = {0};
    struct tool_list operators = {0};
    struct checks checks = {0};
    int status = refuse_options(options);
    if (status == TOOL_OK)
        status = tool_targets_read(&targets, options);
    if (status == TOOL_OK)
        status = tool_operators_of(&operators, &targets.specs, options);
    if (status == TOOL_OK && options->emulate)
        status = plan_schedules(&checks, options);
    if (status == TOOL_OK && options->emulate)
        status = tool_open_emulator(options);
    if (options->emulate && !targets.archs.count)
        tool_list_add(&targets.archs, DEFAULT_ARCH);
    if (status == TOOL_OK) {
        plan_checks(&checks, &operators, options->emulate ? targets.archs.count : 1, options);
        status = options->emulate ? run_emulated(&checks, &targets.archs, options)
                                  : run_on_device(&checks, options);
    }
    if (status == TOOL_OK)
        status = report(&checks, options);
    free_checks(&checks);
    tool_list_free(&operators);
    tool_targets_free(&targets);
    return status;
}
