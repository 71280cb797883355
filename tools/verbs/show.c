/* smelt show: the plan of a kernel and its compiled figures; for an operator with several kernels,
 * their list. */
#include <stdlib.h>
#include <string.h>

#include "../tool.h"

/* The output: a kernel, or the kernels of an operator. */
struct view {
    const char *spec, *arch;
    int is_operator;
    struct tool_list kernels;
    smelt_context *context;
    char **plans; /* as JSON, one per kernel; freed by smelt_free */
    smelt_kernel_info *infos;
    smelt_status compile_status;
};

/* ---- gathering ------------------------------------------------------------------------------- */

static int make_plans(struct view *view, const struct tool_options *options) {
    smelt_family_info family = SMELT_FAMILY_INFO_INIT;
    smelt_status status = smelt_family_get_info(view->spec, &family);
    if (status)
        return tool_fail_status(options, status);
    view->is_operator = family.is_operator;
    view->plans = tool_allocate(NULL, view->kernels.count, sizeof view->plans[0]);
    memset(view->plans, 0, view->kernels.count * sizeof view->plans[0]);
    for (size_t i = 0; i < view->kernels.count; i++) {
        status = smelt_kernel_plan(view->context, view->kernels.items[i], view->arch, 1,
                                   &view->plans[i]);
        if (status)
            return tool_fail_status(options, status);
    }
    return TOOL_OK;
}

static void compile(struct view *view) {
    size_t count = view->kernels.count;
    smelt_kernel_request *requests = tool_allocate(NULL, count, sizeof *requests);
    view->infos = tool_kernel_infos(count);
    for (size_t i = 0; i < count; i++)
        requests[i] = tool_kernel_request(view->kernels.items[i], view->arch);
    view->compile_status =
        smelt_kernels_prepare(view->context, requests, count, 0, NULL, NULL, view->infos);
    free(requests);
}

/* ---- printing -------------------------------------------------------------------------------- */

static json_t *plan_json(const char *text) {
    json_error_t error;
    return tool_json(json_loads(text, 0, &error));
}

static void print_json(const struct view *view) {
    json_t *kernels = tool_json(json_array());
    json_t *document = tool_pack("{s:s, s:s}", "spec", view->spec, "arch", view->arch);
    for (size_t i = 0; i < view->kernels.count; i++) {
        json_t *kernel = tool_kernel_json(&view->infos[i]);
        json_t *plan = plan_json(view->plans[i]);
        if (view->kernels.count == 1) {
            json_object_set(document, "variant", json_object_get(plan, "variant"));
            json_object_set(document, "plan", plan);
        }
        if (view->is_operator) {
            json_object_set(kernel, "variant", json_object_get(plan, "variant"));
            json_object_set(kernel, "plan", plan);
        }
        json_decref(plan);
        json_array_append_new(kernels, kernel);
    }
    json_object_set_new(document, "kernels", kernels);
    tool_print_json(document);
}

static void print_figures(const smelt_kernel_info *info) {
    printf("\ncompiled kernel %s (%s)\n", info->kernel, tool_kernel_state(info->state));
    printf("  registers              %d per thread\n", info->registers);
    printf("  spills                 %d B\n", info->spill_bytes);
    printf("  static shared memory   %d B\n", info->static_shared_bytes);
    printf("  dynamic shared memory  %d B\n", info->dynamic_shared_bytes);
    printf("  threads                %d per block\n", info->threads);
    printf("  cubin                  %zu B\n", info->cubin_bytes);
    printf("  compiled in            %.3f s of wall time\n", info->compile_seconds);
    printf("  cache key              %s\n", info->key);
}

static int print_kernel(const struct view *view, const struct tool_options *options) {
    char *text = NULL;
    smelt_status status =
        smelt_kernel_plan(view->context, view->kernels.items[0], view->arch, 0, &text);
    if (status)
        return tool_fail_status(options, status);
    if (view->is_operator)
        printf("operator %s on %s is one kernel\n\n", view->spec, view->arch);
    fputs(text, stdout);
    if (!*text || text[strlen(text) - 1] != '\n')
        putchar('\n');
    smelt_free(text);
    if (view->infos[0].state != SMELT_KERNEL_FAILED)
        print_figures(&view->infos[0]);
    return TOOL_OK;
}

/* A number of a plan, for the table of an operator's kernels. */
static int plan_number(json_t *plan, const char *name) {
    return (int)json_integer_value(json_object_get(plan, name));
}

static void print_operator(const struct view *view) {
    static const char *const headers[] = {"",       "kernel", "variant",   "threads",
                                          "shared", "state",  "registers", "spills"};
    struct tool_table table;
    printf("operator %s on %s expands to %zu kernels\n\n", view->spec, view->arch,
           view->kernels.count);
    tool_table_begin(&table, "rllrrlrr", headers);
    for (size_t i = 0; i < view->kernels.count; i++) {
        const smelt_kernel_info *info = &view->infos[i];
        int failed = info->state == SMELT_KERNEL_FAILED;
        json_t *plan = plan_json(view->plans[i]);
        tool_table_add_cells(&table, "%zu\t%s\t%s\t%d\t%d B", i + 1, view->kernels.items[i],
                             json_string_value(json_object_get(plan, "variant")),
                             plan_number(plan, "threads"), plan_number(plan, "shared_bytes"));
        tool_table_add(&table, failed ? TOOL_BAD : TOOL_PLAIN, "%s",
                       tool_kernel_state(info->state));
        tool_table_add(&table, TOOL_PLAIN, failed ? "-" : "%d", info->registers);
        tool_table_add(&table, TOOL_PLAIN, failed ? "-" : "%d B", info->spill_bytes);
        json_decref(plan);
    }
    tool_table_end(&table);
    printf("\nin the order of launch, pass by pass; a call leaves out kernels that it does not "
           "need, and may launch one several times\n--kernel N, 1 to %zu, shows the plan of one\n",
           view->kernels.count);
}

static int report(const struct view *view, const struct tool_options *options) {
    int result = TOOL_OK;
    if (options->json)
        print_json(view);
    else if (view->kernels.count > 1)
        print_operator(view);
    else
        result = print_kernel(view, options);
    fflush(stdout);
    if (result)
        return result;
    tool_kernels_say_errors(options, view->infos, view->kernels.count);
    return tool_kernels_exit(view->infos, view->kernels.count);
}

int tool_run_show(const struct tool_options *options) {
    struct tool_targets targets;
    struct view view = {0};
    int status = tool_targets_read(&targets, options);
    if (status == TOOL_OK)
        status = tool_targets_expand(&targets, options, &view.context, &view.kernels);
    if (status == TOOL_OK) {
        view.spec = targets.specs.items[0];
        view.arch = targets.archs.items[0];
        status = make_plans(&view, options);
    }
    if (status == TOOL_OK) {
        compile(&view);
        status = report(&view, options);
    }
    smelt_context_destroy(&view.context);
    for (size_t i = 0; view.plans && i < view.kernels.count; i++)
        smelt_free(view.plans[i]);
    free(view.plans);
    free(view.infos);
    tool_list_free(&view.kernels);
    tool_targets_free(&targets);
    return status;
}
