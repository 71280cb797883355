/* The specs and architectures named by a command line. */
#include <stdlib.h>
#include <string.h>

#include "tool.h"

/* ---- architectures --------------------------------------------------------------------------- */

/* Without an architecture: the first GPU's. */
static int take_arch(struct tool_targets *targets, const smelt_machine_report *report,
                     const struct tool_options *options) {
    if (!report->driver_found || !report->devices)
        return tool_fail(options, TOOL_MISSING,
                         "no GPU from which to take the architecture; give one: --arch sm_90a "
                         "(`smelt list` lists them)");
    if (!report->device_archs[0][0])
        return tool_fail(options, TOOL_MISSING,
                         "the GPU that is here, %s, is not one that smelt has kernels for; name an "
                         "architecture with --arch",
                         report->device_names[0]);
    tool_list_add(&targets->archs, report->device_archs[0]);
    snprintf(targets->gpu, sizeof targets->gpu, "%s", report->device_names[0]);
    return TOOL_OK;
}

int tool_targets_need_arch(struct tool_targets *targets, const struct tool_options *options) {
    smelt_machine_report report = SMELT_MACHINE_REPORT_INIT;
    if (targets->archs.count)
        return TOOL_OK;
    smelt_context_options context = tool_context_options(options);
    context.log = NULL; /* the context that follows logs the same */
    smelt_status status = smelt_machine_get_report(&context, &report);
    if (status)
        return tool_fail_status(options, status);
    const int result = take_arch(targets, &report, options);
    smelt_machine_report_release(&report);
    return result;
}

/* ---- specs ----------------------------------------------------------------------------------- */

static int is_same(void *user, const char *name) {
    return strcmp(name, *(const char *const *)user) == 0;
}

static int add_argument(struct tool_targets *targets, const struct tool_options *options,
                        const char *text) {
    const int takes_presets = (options->verb->options & TOOL_BIT(TOOL_PRESET)) != 0;
    char *canonical = NULL;
    smelt_status status = smelt_spec_canonical(text, &canonical);
    /* A spec that is illegal with its own passes may be legal with those of --passes. */
    if (status && options->passes && !takes_presets && strchr(text, ':') &&
        smelt__harness_find(text))
        status = tool_spec_with_passes(text, options->passes, &canonical);
    if (status && smelt_list(SMELT_LIST_PRESETS, is_same, &text) == SMELT_ERROR_CANCELLED)
        return tool_fail(options, TOOL_USAGE, "'%s' is a preset, not a spec: %s%s", text,
                         takes_presets ? "write --preset " : "`smelt list` has its specs",
                         takes_presets ? text : "");
    if (status)
        return tool_fail_status(options, status);
    tool_list_add(&targets->specs, canonical);
    smelt_free(canonical);
    return TOOL_OK;
}

static int add_presets(struct tool_targets *targets, const struct tool_options *options) {
    int given = options->tp != TOOL_NOT_GIVEN;
    int tp = given ? (int)options->tp : 1;
    if (given && !options->presets.count)
        return tool_fail(options, TOOL_USAGE,
                         "--tp divides the heads of a --preset, and none is named; a spec names "
                         "the heads of one rank");
    const int takes_presets = (options->verb->options & TOOL_BIT(TOOL_PRESET)) != 0;
    if (options->passes && takes_presets && !options->presets.count)
        return tool_fail(options, TOOL_USAGE,
                         "--passes chooses those of a --preset's operators, and none is named; a "
                         "spec names its own, passes=%s",
                         options->passes);
    const unsigned passes = options->passes ? tool_passes(options->passes) : 0;
    for (int64_t i = 0; i < options->presets.count; i++) {
        smelt_status status = smelt_preset_expand(options->presets.items[i], tp, passes,
                                                  tool_list_collect, &targets->specs);
        if (status)
            return tool_fail_status(options, status);
    }
    return TOOL_OK;
}

int tool_targets_read(struct tool_targets *targets, const struct tool_options *options) {
    int status = TOOL_OK;
    *targets = (struct tool_targets){0};
    for (int64_t i = 0; i < options->archs.count && status == TOOL_OK; i++)
        status = tool_add_arch(&targets->archs, options, "", options->archs.items[i]);
    for (int64_t i = 0; i < options->arguments.count && status == TOOL_OK; i++)
        status = add_argument(targets, options, options->arguments.items[i]);
    if (status == TOOL_OK)
        status = add_presets(targets, options);
    if (status == TOOL_OK && options->manifest)
        status = tool_manifest_read(&targets->specs, &targets->archs, options);
    if (status == TOOL_OK && !targets->specs.count && options->manifest)
        return tool_fail(options, TOOL_USAGE,
                         "%s: \"specs\" is empty, and no spec is given in addition",
                         options->manifest);
    if (status == TOOL_OK && !targets->specs.count) {
        uint64_t more = options->verb->options & TOOL_BIT(TOOL_PRESET);
        status = tool_fail(options, TOOL_USAGE, "name a spec%s; see `smelt list`",
                           more ? ", a --preset or a --manifest" : "");
    }
    return status;
}

smelt_status tool_spec_with_passes(const char *spec, const char *passes, char **canonical) {
    const struct smelt__harness_operator *op = smelt__harness_find(spec);
    const char *const named = strstr(spec, ",passes=");
    const int before = named ? (int)(named - spec) : (int)strlen(spec);
    const char *after = named ? named + 1 + strcspn(named + 1, ",") : "";
    char text[1024];
    unsigned has = 0;
    if (op && smelt_operator_describe(op->name, SMELT_PASS_FORWARD, &has, NULL) == SMELT_OK &&
        (has & (has - 1)) == 0 && strcmp(passes, op->passes[0].name) == 0) /* it has no other */
        return smelt_spec_canonical(spec, canonical);
    snprintf(text, sizeof text, "%.*s%s,passes=%s", before, spec, after, passes);
    return smelt_spec_canonical(text, canonical);
}

/* Replaces the passes of operators' specs by those of --passes. */
static int choose_passes(struct tool_list *specs, const struct tool_options *options) {
    struct tool_list chosen = {0};
    char *canonical = NULL;
    if (tool_spec_with_passes(specs->items[0], options->passes, &canonical))
        return tool_fail(options, TOOL_USAGE, "--passes %s: %s", options->passes,
                         smelt_last_error());
    tool_list_add(&chosen, canonical);
    smelt_free(canonical);
    tool_list_free(specs);
    *specs = chosen;
    return TOOL_OK;
}

int tool_targets_expand(struct tool_targets *targets, const struct tool_options *options,
                        smelt_context **context, struct tool_list *kernels) {
    if (targets->specs.count > 1 || targets->archs.count > 1)
        return tool_fail(options, TOOL_USAGE, "takes one spec and one --arch at a time");
    int result = options->passes ? choose_passes(&targets->specs, options) : TOOL_OK;
    if (result == TOOL_OK)
        result = tool_targets_need_arch(targets, options);
    if (result == TOOL_OK)
        result = tool_open_tuned_compiler(options, targets, context);
    if (result)
        return result;
    const char *const spec = targets->specs.items[0];
    const smelt_status status =
        smelt_spec_expand(*context, spec, targets->archs.items[0], tool_list_collect, kernels);
    if (status)
        return tool_fail_status(options, status);
    if (options->kernel == TOOL_NOT_GIVEN)
        return TOOL_OK;
    if (options->kernel > (int64_t)kernels->count)
        return tool_fail(options, TOOL_USAGE, "--kernel %lld: %s has %zu kernel%s",
                         (long long)options->kernel, spec, kernels->count,
                         kernels->count == 1 ? "" : "s");
    struct tool_list chosen = {0};
    tool_list_add(&chosen, kernels->items[options->kernel - 1]);
    tool_list_free(kernels);
    tool_list_free(&targets->specs);
    tool_list_add(kernels, chosen.items[0]);
    targets->specs = chosen;
    return TOOL_OK;
}

void tool_targets_free(struct tool_targets *targets) {
    tool_list_free(&targets->specs);
    tool_list_free(&targets->archs);
}

/* ---- operators ------------------------------------------------------------------------------- */

int tool_add_operator_with(struct tool_list *operators, const char *text, const char *kernel) {
    struct tool_list kernels = {0};
    char *canonical = NULL;
    int found = 0;
    if (!smelt_spec_canonical(text, &canonical) &&
        !smelt_spec_expand(NULL, canonical, NULL, tool_list_collect, &kernels))
        for (size_t i = 0; i < kernels.count; i++)
            found |= !strcmp(kernels.items[i], kernel);
    if (found)
        tool_list_add(operators, canonical);
    smelt_free(canonical);
    tool_list_free(&kernels);
    return found;
}

int tool_add_operator_of(struct tool_list *operators, const char *kernel) {
    struct tool_list families = {0};
    const char *keys = strchr(kernel, ':');
    int found = 0;
    if (!keys || smelt_list(SMELT_LIST_FAMILIES, tool_list_collect, &families))
        return 0;
    for (size_t i = 0; i < families.count && !found; i++) {
        smelt_family_info info = SMELT_FAMILY_INFO_INIT;
        char text[512];
        snprintf(text, sizeof text, "%s%s", families.items[i], keys);
        if (!smelt_family_get_info(families.items[i], &info) && info.is_operator)
            found = tool_add_operator_with(operators, text, kernel);
    }
    tool_list_free(&families);
    return found;
}

int tool_operators_of(struct tool_list *operators, const struct tool_list *specs,
                      const struct tool_options *options) {
    for (size_t i = 0; i < specs->count; i++) {
        smelt_family_info family = SMELT_FAMILY_INFO_INIT;
        const smelt_status status = smelt_family_get_info(specs->items[i], &family);
        if (status)
            return tool_fail_status(options, status);
        if (family.is_operator)
            tool_list_add(operators, specs->items[i]);
        else if (!tool_add_operator_of(operators, specs->items[i]))
            return tool_fail(options, TOOL_USAGE, "%s: no operator runs this kernel alone",
                             specs->items[i]);
    }
    return TOOL_OK;
}
