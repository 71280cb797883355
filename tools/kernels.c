/* Contexts and compiled kernels, for several verbs. */
#include <stdlib.h>
#include <string.h>

#include "tool.h"

smelt_context_options tool_context_options(const struct tool_options *options) {
    smelt_context_options context = SMELT_CONTEXT_OPTIONS_INIT;
    context.log = tool_log;
    context.offline = options->offline > 0;
    if (options->verbose > 0)
        context.log_level = options->verbose > 1 ? SMELT_LOG_DEBUG : SMELT_LOG_INFO;
    return context;
}

int tool_open_compiler(const struct tool_options *options, const char *arch,
                       smelt_context **context) {
    smelt_context_options settings = tool_context_options(options);
    settings.kind = SMELT_CONTEXT_COMPILE_ONLY;
    settings.arch = arch;
    smelt_status status = smelt_context_create(context, &settings);
    return status ? tool_fail_status(options, status) : TOOL_OK;
}

int tool_open_tuned_compiler(const struct tool_options *options, const struct tool_targets *targets,
                             smelt_context **context) {
    smelt_context_options settings = tool_context_options(options);
    settings.kind = SMELT_CONTEXT_COMPILE_ONLY;
    settings.arch = targets->archs.items[0];
    settings.tuning_device = options->tuned_for ? options->tuned_for : targets->gpu;
    if (options->tuned_for && targets->archs.count > 1)
        return tool_fail(
            options, TOOL_USAGE,
            "--tuned-for names a device, which has one architecture: give a single --arch");
    smelt_status status = smelt_context_create(context, &settings);
    return status ? tool_fail_status(options, status) : TOOL_OK;
}

/* State of a walk through the tuning entries. */
struct untuned {
    const struct tool_list *kernels;
    const char *arch;
    char device[256];
};

/* Whether an entry's knobs have a plan on this architecture; otherwise it is another one's. */
static int has_plan(const smelt_tuning_entry *entry, const char *arch) {
    char text[1024]; /* more than a line of a tuning file */
    char *plan = NULL;
    snprintf(text, sizeof text, "%s,%s", entry->spec, entry->knobs);
    const int has = smelt_kernel_plan(NULL, text, arch, 0, &plan) == SMELT_OK;
    smelt_free(plan);
    return has;
}

static int note_entry(void *user, const smelt_tuning_entry *entry) {
    struct untuned *untuned = user;
    for (size_t i = 0; i < untuned->kernels->count && !untuned->device[0]; i++)
        if (!strcmp(untuned->kernels->items[i], entry->spec) && has_plan(entry, untuned->arch))
            snprintf(untuned->device, sizeof untuned->device, "%s", entry->device);
    return 0;
}

void tool_note_untuned(const struct tool_options *options, smelt_context *context,
                       const struct tool_list *kernels) {
    struct untuned untuned = {kernels, smelt_context_arch(context), ""};
    smelt_context_info info = SMELT_CONTEXT_INFO_INIT;
    if (smelt_context_get_info(context, &info) || *info.tuning_device ||
        smelt_tuning_walk(context, note_entry, &untuned) || !untuned.device[0])
        return;
    tool_say(options,
             "tuning entries for these kernels are not used: --tuned-for \"%s\" compiles what that "
             "device runs",
             untuned.device);
}

int tool_open_device(const struct tool_options *options, smelt_context **context) {
    smelt_context_options settings = tool_context_options(options);
    settings.kind = SMELT_CONTEXT_DEVICE;
    settings.device = options->device >= 0 ? (int)options->device : 0;
    smelt_status status = smelt_context_create(context, &settings);
    if (status == SMELT_ERROR_NO_DRIVER || status == SMELT_ERROR_NO_DEVICE)
        return tool_fail(options, TOOL_MISSING, "needs a GPU%s: %s",
                         options->verb->options & TOOL_BIT(TOOL_EMULATE) ? " (or --emulate)" : "",
                         smelt_last_error());
    return status ? tool_fail_status(options, status) : TOOL_OK;
}

const char *tool_kernel_state(smelt_kernel_state state) {
    switch (state) {
    case SMELT_KERNEL_CACHED:
        return "cached";
    case SMELT_KERNEL_COMPILED:
        return "compiled";
    default:
        return "failed";
    }
}

json_t *tool_kernel_json(const smelt_kernel_info *info) {
    json_t *kernel = tool_pack(
        "{s:s, s:s, s:s, s:s, s:f, s:f, s:i, s:i, s:i, s:i, s:i, s:i, s:I, s:s, s:b, s:b}", "spec",
        info->spec, "arch", info->arch, "kernel", info->kernel, "state",
        tool_kernel_state(info->state), "seconds", info->seconds, "compile_seconds",
        info->compile_seconds, "registers", info->registers, "spill_bytes", info->spill_bytes,
        "shared_bytes", info->static_shared_bytes + info->dynamic_shared_bytes,
        "static_shared_bytes", info->static_shared_bytes, "dynamic_shared_bytes",
        info->dynamic_shared_bytes, "threads", info->threads, "cubin_bytes",
        (json_int_t)info->cubin_bytes, "key", info->key, "kept", info->kept, "emulated",
        info->emulated);
    if (info->error[0])
        json_object_set_new(kernel, "error", tool_json_text(info->error));
    return kernel;
}

smelt_kernel_info *tool_kernel_infos(size_t count) {
    smelt_kernel_info *infos = tool_allocate(NULL, count, sizeof *infos);
    for (size_t i = 0; i < count; i++) {
        infos[i] = (smelt_kernel_info)SMELT_KERNEL_INFO_INIT;
        infos[i].spec = infos[i].arch = infos[i].kernel = infos[i].key = infos[i].error = "";
    }
    return infos;
}

smelt_kernel_request tool_kernel_request(const char *spec, const char *arch) {
    smelt_kernel_request request = SMELT_KERNEL_REQUEST_INIT;
    request.spec = spec;
    request.arch = arch;
    return request;
}

/* Compiled but not stored in the cache. */
static int is_lost(const smelt_kernel_info *info) {
    return info->state == SMELT_KERNEL_COMPILED && !info->kept;
}

int tool_kernels_exit(const smelt_kernel_info *infos, size_t count) {
    int result = TOOL_OK;
    for (size_t i = 0; i < count; i++) {
        if (infos[i].state != SMELT_KERNEL_FAILED)
            continue;
        const int status = tool_exit_of(infos[i].status);
        result = tool_exit_join(result, status == TOOL_OK ? TOOL_FAILED : status);
    }
    return result;
}

size_t tool_kernels_lost(const smelt_kernel_info *infos, size_t count) {
    size_t lost = 0;
    for (size_t i = 0; i < count; i++)
        lost += is_lost(&infos[i]) ? 1 : 0;
    return lost;
}

/* Whether an earlier info of the same kind has the same message. */
static int is_said(const smelt_kernel_info *infos, size_t index) {
    for (size_t i = 0; i < index; i++)
        if (infos[i].state == infos[index].state && !strcmp(infos[i].error, infos[index].error))
            return 1;
    return 0;
}

void tool_kernels_say_errors(const struct tool_options *options, const smelt_kernel_info *infos,
                             size_t count) {
    for (size_t i = 0; i < count; i++) {
        const smelt_kernel_info *info = &infos[i];
        const int failed =
            info->state == SMELT_KERNEL_FAILED && info->status != SMELT_ERROR_CANCELLED;
        if ((!failed && !is_lost(info)) || is_said(infos, i))
            continue;
        if (!failed)
            tool_say(options, "%s on %s is not stored: %s", info->spec, info->arch, info->error);
        /* A missing compiler concerns the machine, not one kernel. */
        else if (info->status == SMELT_ERROR_NO_COMPILER)
            tool_say(options, "%s", info->error);
        else
            tool_say(options, "%s on %s: %s", info->spec, info->arch, info->error);
    }
}
