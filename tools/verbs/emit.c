/* smelt emit: the CUDA source of a kernel. */
#include <stdlib.h>
#include <string.h>

#include "../tool.h"

/* Refuses an operator, naming the kernels to choose from. */
static int need_kernel(const char *spec, const struct tool_options *options) {
    struct tool_list kernels = {0};
    int is_operator = 0;
    smelt_status status = smelt_spec_is_operator(spec, &is_operator);
    if (!status && is_operator)
        status = smelt_spec_expand(spec, tool_list_collect, &kernels);
    if (status)
        return tool_fail_status(options, status);
    if (!is_operator)
        return TOOL_OK;
    char *names = tool_copy("");
    for (size_t i = 0; i < kernels.count; i++) {
        size_t used = strlen(names);
        size_t room = used + strlen(kernels.items[i]) + 3;
        names = tool_allocate(names, room, 1);
        snprintf(names + used, room - used, "%s%s", i ? ", " : "", kernels.items[i]);
    }
    int result = tool_fail(options, TOOL_USAGE, "%s is an operator; name one of its kernels: %s",
                           spec, names);
    free(names);
    tool_list_free(&kernels);
    return result;
}

static int emit(const struct tool_targets *targets, const struct tool_options *options) {
    const char *spec = targets->specs.items[0], *arch = targets->archs.items[0];
    smelt_context *context = NULL;
    char *source = NULL;
    int result = tool_open_tuned_compiler(options, targets, &context);
    if (result)
        return result;
    smelt_status status = smelt_kernel_source(context, spec, arch, &source);
    smelt_context_destroy(&context);
    if (status)
        return tool_fail_status(options, status);
    if (options->json)
        tool_print_json(tool_pack("{s:s, s:s, s:s}", "spec", spec, "arch", arch, "source", source));
    else
        fputs(source, stdout);
    smelt_free(source);
    return TOOL_OK;
}

int tool_run_emit(const struct tool_options *options) {
    struct tool_targets targets;
    int status = tool_targets_read(&targets, options);
    if (status == TOOL_OK && (targets.specs.count > 1 || targets.archs.count > 1))
        status = tool_fail(options, TOOL_USAGE, "takes one kernel and one --arch at a time");
    if (status == TOOL_OK)
        status = need_kernel(targets.specs.items[0], options);
    if (status == TOOL_OK)
        status = tool_targets_need_arch(&targets, options);
    if (status == TOOL_OK)
        status = emit(&targets, options);
    tool_targets_free(&targets);
    return status;
}
