/* smelt emit: prints the CUDA source of a kernel, or of each kernel of an operator. */
#include <stdlib.h>
#include <string.h>

#include "../tool.h"

/* Cuts a source before its last part, the kernel's own template. This leaves the constants and the
 * parts that the template uses. */
static void leave_header(char *source) {
    static const char directive[] = "\n#line ";
    char *own = NULL, *name = NULL;
    for (char *at = source; (at = strstr(at, directive)) != NULL; at++)
        own = at;
    if (!own || !(name = strchr(own, '"')))
        return;
    const size_t length = strcspn(name, "\n");
    for (char *at = source; (at = strstr(at, directive)) != NULL; at++) {
        const char *const quoted = strchr(at, '"');
        if (quoted && strncmp(quoted, name, length) == 0) {
            at[1] = '\0';
            return;
        }
    }
}

/* Makes all sources before any is printed. */
static int make_sources(const struct tool_targets *targets, const struct tool_options *options,
                        const smelt_context *context, const struct tool_list *kernels,
                        char **sources) {
    smelt_status status = SMELT_OK;
    for (size_t i = 0; i < kernels->count && !status; i++)
        status =
            smelt_kernel_source(context, kernels->items[i], targets->archs.items[0], &sources[i]);
    for (size_t i = 0; i < kernels->count && !status && options->constants; i++)
        leave_header(sources[i]);
    return status ? tool_fail_status(options, status) : TOOL_OK;
}

/* "source" is at the top level for a single kernel, as in show's document. */
static void print_json(const struct tool_targets *targets, const struct tool_list *kernels,
                       char *const *sources) {
    json_t *array = tool_json(json_array());
    json_t *document =
        tool_pack("{s:s, s:s}", "spec", targets->specs.items[0], "arch", targets->archs.items[0]);
    if (kernels->count == 1)
        json_object_set_new(document, "source", tool_json_text(sources[0]));
    for (size_t i = 0; i < kernels->count; i++)
        json_array_append_new(
            array, tool_pack("{s:s, s:s}", "spec", kernels->items[i], "source", sources[i]));
    json_object_set_new(document, "kernels", array);
    tool_print_json(document);
}

/* Each source is its own translation unit. Several in one stream are for reading; each has a
 * heading with the command that prints it alone. */
static void print_text(const struct tool_list *kernels, char *const *sources) {
    for (size_t i = 0; i < kernels->count; i++) {
        if (kernels->count > 1)
            printf("%s/* ======== kernel %zu of %zu (alone: --kernel %zu): %s ======== */\n\n",
                   i ? "\n" : "", i + 1, kernels->count, i + 1, kernels->items[i]);
        fputs(sources[i], stdout);
    }
}

static int emit(const struct tool_targets *targets, const struct tool_options *options,
                const smelt_context *context, const struct tool_list *kernels) {
    char **sources = tool_allocate(NULL, kernels->count, sizeof sources[0]);
    for (size_t i = 0; i < kernels->count; i++)
        sources[i] = NULL;
    const int result = make_sources(targets, options, context, kernels, sources);
    if (result == TOOL_OK && options->json)
        print_json(targets, kernels, sources);
    else if (result == TOOL_OK)
        print_text(kernels, sources);
    for (size_t i = 0; i < kernels->count; i++)
        smelt_free(sources[i]);
    free(sources);
    return result;
}

int tool_run_emit(const struct tool_options *options) {
    struct tool_targets targets;
    struct tool_list kernels = {0};
    smelt_context *context = NULL;
    int status = tool_targets_read(&targets, options);
    if (status == TOOL_OK)
        status = tool_targets_expand(&targets, options, &context, &kernels);
    if (status == TOOL_OK)
        status = emit(&targets, options, context, &kernels);
    smelt_context_destroy(&context);
    tool_list_free(&kernels);
    tool_targets_free(&targets);
    return status;
}
