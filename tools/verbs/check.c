/* smelt check: runs kernels on the GPU or the emulator and compares them with the double-precision
 * reference. */
#include <stdlib.h>
#include <string.h>

#include "../tool.h"
#include "harness/check.h"
#include "harness/defaults.h"
#include "harness/option_text.h"

/* A check, to be made for each architecture. */
struct request {
    struct smelt__check_options options;
    char inputs[128]; /* the kind of its inputs: "causal, topk-length" */
};

/* All checks of one command: every architecture, operator, pass and kind of inputs. */
struct checks {
    struct smelt__check_result *results;
    struct request *requests;
    json_t **reports; /* of checks that failed on the emulator, else NULL */
    size_t count, passed;
    size_t per_arch; /* checks of one architecture */
    struct smelt__schedule *schedules;
    int schedule_count;
};

static const char DEFAULT_ARCH[] = "sm_90a";

enum { EMULATED_SCHEDULES = 4 };

/* ---- planning -------------------------------------------------------------------------------- */

static struct request *add_request(struct checks *checks) {
    checks->requests =
        tool_allocate(checks->requests, checks->per_arch + 1, sizeof *checks->requests);
    struct request *const added = &checks->requests[checks->per_arch++];
    memset(added, 0, sizeof *added);
    return added;
}

/* Adds a check of one pass with inputs of kind `kind`; 0: there is no such kind. */
static int plan_check(struct checks *checks, const struct smelt__harness_spec *spec,
                      const char *text, int pass, int kind, const struct tool_options *options) {
    const struct smelt__harness_operator *op = spec->op;
    struct smelt__check_options request = {.spec = text,
                                           .pass = op->passes[pass].pass,
                                           .problem = options->problem,
                                           .sample = options->sample > 0 ? (int)options->sample : 0,
                                           .schedules = checks->schedules,
                                           .schedule_count = checks->schedule_count};
    if (tool_inputs_given(options) ? kind > 0 : !smelt__options_kind(op, kind, &request.problem))
        return 0;
    struct request *const added = add_request(checks);
    smelt__problem_inputs(text, &options->problem, &request.problem, added->inputs,
                          sizeof added->inputs);
    if (options->emulate)
        smelt__options_small(op, spec->spec, &request.problem);
    added->options = request;
    return 1;
}

/* Adds an operator's checks. An invalid spec is added too: its check reports the fault. */
static int plan_operator(struct checks *checks, const char *text,
                         const struct tool_options *options) {
    struct smelt__harness_spec spec;
    int status = tool_options_fit(options, text);
    if (status != TOOL_OK)
        return status;
    if (smelt__harness_spec_parse(&spec, text) == SMELT_OK) {
        for (int pass = 0; pass < spec.op->pass_count; pass++)
            for (int kind = 0; smelt__harness_spec_has(&spec, &spec.op->passes[pass]); kind++)
                if (!plan_check(checks, &spec, text, pass, kind, options))
                    break;
    } else {
        status =
            spec.op ? TOOL_OK : tool_fail(options, TOOL_USAGE, "%s: there is no check of it", text);
        add_request(checks)->options.spec = text;
    }
    smelt__harness_spec_free(&spec);
    return status;
}

static int plan_checks(struct checks *checks, const struct tool_list *operators, size_t archs,
                       const struct tool_options *options) {
    int status = TOOL_OK;
    for (size_t i = 0; i < operators->count && status == TOOL_OK; i++)
        status = plan_operator(checks, operators->items[i], options);
    if (status != TOOL_OK)
        return status;
    checks->count = archs * checks->per_arch;
    checks->results = tool_allocate(NULL, checks->count, sizeof *checks->results);
    checks->reports = tool_allocate(NULL, checks->count, sizeof *checks->reports);
    memset(checks->results, 0, checks->count * sizeof *checks->results);
    memset(checks->reports, 0, checks->count * sizeof *checks->reports);
    return TOOL_OK;
}

static const struct smelt__check_options *requested(const struct checks *checks, size_t number) {
    return &checks->requests[number % checks->per_arch].options;
}

static const char *inputs_of(const struct checks *checks, size_t number) {
    return checks->requests[number % checks->per_arch].inputs;
}

/* The name of a check's lists or data. */
static const char *lists_of(const struct checks *checks, size_t number) {
    const struct smelt__check_options *request = requested(checks, number);
    const struct smelt__harness_operator *op = smelt__harness_find(request->spec);
    return op ? smelt__harness_inputs(op, &request->problem) : "";
}

/* The schedules named, else the seed's first ones. */
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

/* The emulator's first `count` reports, if a check failed there. */
static json_t *take_reports(int count) {
    const struct emu_interface *emulator = count > 0 ? smelt__emulator() : NULL;
    json_t *reports = tool_json(json_array());
    for (int i = 0; i < count; i++) {
        struct emu_report report = emulator->report((size_t)i);
        json_array_append_new(
            reports,
            tool_pack("{s:s, s:s}", "kind", emulator->kind_name(report.kind), "text", report.text));
    }
    return reports;
}

/* Refuses impossible checks before any input is made. */
static int refuse_checks(const struct checks *checks, smelt_context *context,
                         const struct tool_options *options) {
    struct smelt__check_result *result = tool_allocate(NULL, 1, sizeof *result);
    int status = TOOL_OK;
    for (size_t i = 0; i < checks->per_arch && status == TOOL_OK; i++)
        if (smelt__check_refused(context, &checks->requests[i].options, result))
            status = tool_fail(options, tool_exit_of(result->status), "%s on %s: %s", result->spec,
                               smelt_context_arch(context), result->message);
    free(result);
    return status;
}

/* The checks of architecture number `arch`. */
static void run_checks(struct checks *checks, size_t arch, smelt_context *context) {
    size_t begin = arch * checks->per_arch;
    for (size_t i = begin; i < begin + checks->per_arch; i++) {
        struct smelt__check_result *result = &checks->results[i];
        tool_progress_draw(i, checks->count, requested(checks, i)->spec);
        int failed = smelt__check_run(context, requested(checks, i), result);
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
        status = refuse_checks(checks, context, options);
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
            status = refuse_checks(checks, context, options);
        if (status == TOOL_OK)
            run_checks(checks, i, context);
        smelt_context_destroy(&context);
    }
    return status;
}

/* ---- reporting ------------------------------------------------------------------------------- */

/* Whether elements of the outputs that a metric judges were compared; without outputs it judges none. */
static int was_compared(const struct smelt__check_result *result,
                        const struct smelt__metric *metric) {
    for (int i = 0; i < SMELT__MOST_TENSORS; i++)
        if (metric->outputs >> i & 1 && result->elements[i] > 0)
            return 1;
    return metric->outputs == 0;
}

/* {"max_abs_error": {"out", ...}, ..., "tolerance": {...}} into the document: what was compared. */
static void add_metrics(json_t *document, const struct smelt__check_result *result) {
    json_t *tolerance = tool_json(json_object());
    for (int i = 0; i < result->metric_count; i++) {
        const struct smelt__metric_result *one = &result->metrics[i];
        json_t *group = json_object_get(document, one->metric->group);
        if (!*one->metric->group || !was_compared(result, one->metric))
            continue;
        if (!group) {
            group = tool_json(json_object());
            json_object_set_new(document, one->metric->group, group);
        }
        json_object_set_new(group, one->metric->name, tool_json_real(one->value));
        if (one->bar >= 0)
            json_object_set_new(tolerance, one->metric->name, tool_json_real(one->bar));
    }
    json_object_set_new(document, "tolerance", tolerance);
}

/* {"outputs": {"dq": 1536, ...}, "rules": {"dq_nothing": 128, ...}}: the number of elements
 * compared per output, and the number of times each rule was checked. */
static void add_counts(json_t *document, const struct smelt__check_result *result) {
    json_t *outputs = tool_json(json_object()), *rules = tool_json(json_object());
    for (int i = 0; i < SMELT__MOST_TENSORS && result->tensors; i++)
        if (result->elements[i] > 0)
            json_object_set_new(outputs, result->tensors->rows[i].name,
                                tool_json(json_integer((json_int_t)result->elements[i])));
    for (int i = 0; i < result->rule_count; i++)
        json_object_set_new(rules, result->rules[i].rule->name,
                            tool_json(json_integer((json_int_t)result->rules[i].applied)));
    json_object_set_new(document, "outputs", outputs);
    json_object_set_new(document, "rules", rules);
}

static json_t *result_json(const struct checks *checks, size_t number) {
    const struct smelt__check_options *request = requested(checks, number);
    const struct smelt__check_result *result = &checks->results[number];
    json_t *document =
        tool_pack("{s:s, s:s, s:s, s:s, s:I, s:s, s:s, s:b, s:I, s:I, s:f}", "spec", result->spec,
                  "pass", result->pass ? result->pass : "", "arch", result->arch, "where",
                  result->emulated ? "emulator" : "gpu", "seed", (json_int_t)request->problem.seed,
                  "lists", lists_of(checks, number), "inputs", inputs_of(checks, number), "passed",
                  result->passed, "queries", (json_int_t)result->units, "compared",
                  (json_int_t)result->compared, "seconds", result->seconds);
    add_metrics(document, result);
    add_counts(document, result);
    if (result->culprit)
        json_object_set_new(document, "culprit", tool_json_text(result->culprit));
    if (!result->passed) {
        json_object_set_new(document, "error", tool_json_text(result->message));
        json_object_set_new(document, "command", tool_json_text(result->command));
    }
    json_object_set_new(document, "schedules", tool_json(json_integer(checks->schedule_count)));
    json_t *reports = checks->reports[number];
    json_object_set_new(document, "reports", reports ? json_incref(reports) : take_reports(0));
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

/* The table's columns: the metrics with headings, between fixed ones. */
enum { LEFT = 5, RIGHT = 2, MAX_COLUMNS = LEFT + SMELT__MOST_METRICS + RIGHT };

static int begin_table(struct tool_table *table, const struct smelt__check_result *result,
                       char alignment[MAX_COLUMNS + 1]) {
    static const char *const left[LEFT] = {"operator", "pass", "arch", "inputs", "compared"};
    const char *headers[MAX_COLUMNS];
    int count = LEFT;
    memcpy(headers, left, sizeof left);
    for (int i = 0; i < result->metric_count; i++)
        if (result->metrics[i].metric->heading)
            headers[count++] = result->metrics[i].metric->heading;
    headers[count++] = "seconds";
    headers[count++] = "result";
    memset(alignment, 'r', (size_t)count); /* numbers, except the first four columns and the last */
    memset(alignment, 'l', 4);
    memcpy(alignment + count - 1, "l", 2);
    tool_table_begin(table, alignment, headers);
    return count - LEFT - RIGHT;
}

/* `columns`: the number of metric columns; a check that failed early may have fewer. */
static void add_row(struct tool_table *table, const struct checks *checks, size_t number,
                    int columns) {
    const struct smelt__check_result *result = &checks->results[number];
    tool_table_add_cells(table, "%s\t%s\t%s\t%s\t%lld of %lld",
                         *result->spec ? result->spec : requested(checks, number)->spec,
                         result->pass ? result->pass : "-", result->arch, inputs_of(checks, number),
                         (long long)result->compared, (long long)result->units);
    for (int i = 0; i < result->metric_count; i++) {
        const struct smelt__metric_result *one = &result->metrics[i];
        if (one->metric->heading && columns-- > 0)
            tool_table_add(table, TOOL_PLAIN, was_compared(result, one->metric) ? "%.2e" : "-",
                           one->value);
    }
    for (; columns > 0; columns--)
        tool_table_add(table, TOOL_PLAIN, "-");
    tool_table_add(table, TOOL_PLAIN, "%.2f", result->seconds);
    tool_table_add(table, result->passed ? TOOL_GOOD : TOOL_BAD, "%s",
                   result->passed ? "passed" : "FAILED");
}

/* Identifies a pass's comparison; NULL: nothing was compared. */
static const void *comparison_of(const struct smelt__check_result *result) {
    return result->metric_count > 0 ? (const void *)result->metrics[0].metric
           : result->rule_count > 0 ? (const void *)result->rules[0].rule
                                    : NULL;
}

/* Whether two results have the same columns. A failure without a comparison fits any columns. */
static int same_columns(const struct smelt__check_result *a, const struct smelt__check_result *b) {
    const void *const one = comparison_of(a), *const other = comparison_of(b);
    return !one || !other || one == other;
}

/* Prints one name and number of a list. */
static void print_count(const char *name, int64_t count, const char **before) {
    if (count > 0)
        printf("%s%s %lld", *before, name, (long long)count);
    if (count > 0)
        *before = ", ";
}

/* Prints the compared elements and rules of all results of a table. `named`: one of the compared
 * results. */
static void print_counts(const struct checks *checks, size_t begin, size_t end, size_t named) {
    const struct smelt__check_result *of = &checks->results[named];
    const char *before = "compared: ";
    for (int i = 0; i < SMELT__MOST_TENSORS && of->tensors; i++) {
        int64_t sum = 0;
        for (size_t k = begin; k < end; k++)
            sum += checks->results[k].elements[i];
        print_count(sum ? of->tensors->rows[i].name : "", sum, &before);
    }
    if (strcmp(before, ", ") != 0)
        return;
    before = " elements; rules: ";
    for (int i = 0; i < of->rule_count; i++) {
        int64_t sum = 0;
        for (size_t k = begin; k < end; k++)
            sum += checks->results[k].rules[i].applied;
        print_count(of->rules[i].rule->name, sum, &before);
    }
    puts(strcmp(before, ", ") == 0 ? "" : " elements");
}

/* Prints a table of the results from `begin` on with equal columns; returns its end. */
static size_t print_part(const struct checks *checks, size_t begin) {
    char alignment[MAX_COLUMNS + 1];
    struct tool_table table;
    size_t end = begin, named = begin;
    while (end < checks->count && same_columns(&checks->results[named], &checks->results[end])) {
        if (!comparison_of(&checks->results[named]))
            named = end;
        end++;
    }
    const int columns = begin_table(&table, &checks->results[named], alignment);
    for (size_t i = begin; i < end; i++)
        add_row(&table, checks, i, columns);
    tool_table_end(&table);
    print_counts(checks, begin, end, named);
    return end;
}

static void print_table(const struct checks *checks) {
    for (size_t next = 0; next < checks->count;) {
        if (next > 0)
            putchar('\n');
        next = print_part(checks, next);
    }
    printf("\n%zu passed, %zu failed on %s", checks->passed, checks->count - checks->passed,
           checks->results[0].arch);
    for (size_t i = checks->per_arch; i < checks->count; i += checks->per_arch)
        printf(", %s", checks->results[i].arch);
    if (checks->schedules)
        printf(", emulated, %d schedule%s each", checks->schedule_count,
               checks->schedule_count == 1 ? "" : "s");
    printf(" (seed %llu)\n", (unsigned long long)checks->requests[0].options.problem.seed);
}

/* Whether an earlier check failed with the same error, such as a kernel that does not compile: the
 * messages differ only in the command. */
static int is_said(const struct checks *checks, size_t number) {
    const struct smelt__check_result *result = &checks->results[number];
    const char *command = strstr(result->message, result->command);
    const size_t length =
        command ? (size_t)(command - result->message) : strlen(result->message) + 1;
    if (result->status == SMELT_OK || json_array_size(checks->reports[number]) > 0)
        return 0;
    for (size_t i = 0; i < number; i++)
        if (!checks->results[i].passed && checks->results[i].status == result->status &&
            strncmp(checks->results[i].message, result->message, length) == 0)
            return 1;
    return 0;
}

/* Prints the emulator's reports in full, else the check's message. */
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
        status =
            tool_exit_join(status, result->status ? tool_exit_of(result->status) : TOOL_FAILED);
        if (!is_said(checks, i))
            say_failure(checks, i, options);
    }
    return status;
}

/* Refuses options of the emulator without --emulate and vice versa. */
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
                         "--device selects a GPU, and --emulate uses none; --arch selects what to "
                         "emulate");
    if (options->schedule.count > 0 && options->schedules != TOOL_NOT_GIVEN)
        return tool_fail(options, TOOL_USAGE, "--schedules or --schedule, not both");
    return TOOL_OK;
}

static void free_checks(struct checks *checks) {
    for (size_t i = 0; i < checks->count && checks->reports; i++)
        json_decref(checks->reports[i]);
    free(checks->reports);
    free(checks->requests);
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
        status =
            plan_checks(&checks, &operators, options->emulate ? targets.archs.count : 1, options);
    }
    if (status == TOOL_OK) {
        status = options->emulate ? run_emulated(&checks, &targets.archs, options)
                                  : run_on_device(&checks, options);
    }
    const char *problem = options->emulate ? smelt__emulator_source_problem() : NULL;
    if (status == TOOL_OK)
        status =
            problem ? tool_fail(options, TOOL_FAILED, "%s", problem) : report(&checks, options);
    free_checks(&checks);
    tool_list_free(&operators);
    tool_targets_free(&targets);
    return status;
}
