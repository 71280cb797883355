/* smelt tune: times kernels' knobs on the GPU and stores those that beat the rule's plan. */
#include "tune.h"

#include <stdlib.h>
#include <string.h>

enum { DEFAULT_LIMIT = 64 };

/* Records why a kernel is not tuned; the others continue. */
static int fail(struct tune_subject *subject, smelt_status status, const char *message) {
    subject->failed = tool_exit_of(status);
    snprintf(subject->message, sizeof subject->message, "%.1100s", message);
    return subject->failed;
}

/* ---- candidates ----------------------------------------------------------------------------- */

static int has_knobs(const char *kernel) {
    smelt_family_key key = SMELT_FAMILY_KEY_INIT;
    for (int i = 0; smelt_family_get_key(kernel, i, &key) == SMELT_OK; i++)
        if (key.knob)
            return 1;
    return 0;
}

/* Adds the kernels of a spec that have knobs and are launched on the architecture. */
static smelt_status add_kernels(struct tune_run *tuning, const char *spec, const char *origin) {
    struct tool_list kernels = {0};
    const smelt_status status =
        smelt_spec_expand(tuning->keeping, spec, NULL, tool_list_collect, &kernels);
    for (size_t i = 0; i < kernels.count; i++)
        if (has_knobs(kernels.items[i])) {
            tool_list_add(&tuning->kernels, kernels.items[i]);
            tool_list_add(&tuning->origins, origin);
        }
    tool_list_free(&kernels);
    return status;
}

/* Adds the kernels of an operator with one pass, which is the one timed. */
static smelt_status add_pass(struct tune_run *tuning, const char *text) {
    struct smelt__harness_spec spec;
    char origin[512];
    smelt_status status = smelt__harness_spec_parse(&spec, text);
    if (!status) { /* knobs come last */
        const int named = *spec.knobs != '\0';
        snprintf(origin, sizeof origin, "%.*s", (int)(spec.knobs - spec.text) - named, spec.text);
        status = add_kernels(tuning, text, origin);
    }
    smelt__harness_spec_free(&spec);
    return status;
}

static smelt_status add_passes(struct tune_run *tuning, const char *text) {
    struct smelt__harness_spec spec;
    smelt_status status = smelt__harness_spec_parse(&spec, text);
    unsigned passes = status ? 0 : spec.passes;
    for (; passes && !status; passes &= passes - 1) {
        const char *const name = smelt__harness_spec_pass(&spec, passes & (~passes + 1))->name;
        char *one = NULL;
        status = tool_spec_with_passes(text, name, &one);
        if (!status)
            status = add_pass(tuning, one);
        smelt_free(one);
    }
    smelt__harness_spec_free(&spec);
    return status;
}

static int expand(struct tune_run *tuning, const struct tool_list *specs,
                  const struct tool_options *options) {
    smelt_status status = SMELT_OK;
    for (size_t i = 0; i < specs->count && !status; i++) {
        smelt_family_info family = SMELT_FAMILY_INFO_INIT;
        status = smelt_family_get_info(specs->items[i], &family);
        if (!status)
            status = family.is_operator ? add_passes(tuning, specs->items[i])
                                        : add_kernels(tuning, specs->items[i], "");
    }
    if (status)
        return tool_fail_status(options, status);
    return tuning->kernels.count
               ? TOOL_OK
               : tool_fail(options, TOOL_USAGE, "%s has no knobs to tune", specs->items[0]);
}

/* The rule's plan, then all candidates of the knobs to vary; knobs given in the spec are kept. */
static int find_candidates(struct tune_run *tuning, const struct tool_options *options) {
    const size_t limit = options->limit > 0 ? (size_t)options->limit : DEFAULT_LIMIT;
    tuning->count = tuning->kernels.count;
    tuning->subjects = tool_allocate(NULL, tuning->count, sizeof *tuning->subjects);
    memset(tuning->subjects, 0, tuning->count * sizeof *tuning->subjects);
    for (size_t i = 0; i < tuning->count; i++) {
        struct tune_subject *subject = &tuning->subjects[i];
        const char *kernel = tuning->kernels.items[i];
        subject->origin = tuning->origins.items[i];
        smelt_tuning_entry entry = SMELT_TUNING_ENTRY_INIT;
        smelt_status status = smelt_tuning_get_entry(tuning->keeping, kernel, &entry);
        if (!status) {
            subject->kernel = entry.spec;
            tool_list_add(&subject->specs, subject->kernel);
            status = smelt_tuning_candidates(kernel, tuning->arch, options->knobs, limit,
                                             tool_list_collect, &subject->specs);
        }
        if (status)
            return tool_fail_status(options, status);
    }
    return TOOL_OK;
}

/* Adds the current tuning entry if it still has a plan. */
static int add_entry(const struct tune_run *tuning, struct tune_subject *subject,
                     const struct tool_options *options) {
    smelt_tuning_entry entry = SMELT_TUNING_ENTRY_INIT;
    char text[1024]; /* more than a line of a tuning file */
    char *canonical = NULL, *plan = NULL;
    smelt_status status = smelt_tuning_get_entry(tuning->keeping, subject->kernel, &entry);
    if (status)
        return tool_fail_status(options, status);
    subject->had_entry = *entry.knobs != '\0';
    snprintf(text, sizeof text, "%s,%s", entry.spec, entry.knobs);
    if (subject->had_entry && smelt_spec_canonical(text, &canonical) == SMELT_OK &&
        smelt_kernel_plan(NULL, canonical, tuning->arch, 0, &plan) == SMELT_OK)
        tool_list_add(&subject->specs, canonical);
    smelt_free(canonical);
    smelt_free(plan);
    return TOOL_OK;
}

/* ---- compiling, checking --------------------------------------------------------------------- */

static int show_progress(void *user, size_t done, size_t total, const smelt_kernel_info *info) {
    (void)user;
    tool_progress_draw(done, total, info->spec);
    return 0;
}

static void drop(struct smelt__tune_candidate *candidate, smelt_status status,
                 const char *message) {
    candidate->dropped = 1;
    candidate->status = status;
    snprintf(candidate->message, sizeof candidate->message, "%s", message);
}

/* Compiles all candidates of a kernel in parallel; drops those that fail or spill. */
static void compile(const struct tune_run *tuning, struct tune_subject *subject,
                    const struct tool_options *options) {
    const size_t count = subject->specs.count;
    smelt_kernel_request *requests = tool_allocate(NULL, count, sizeof *requests);
    subject->infos = tool_kernel_infos(count);
    for (size_t i = 0; i < count; i++)
        requests[i] = tool_kernel_request(subject->specs.items[i], NULL);
    const smelt_status first = smelt_kernels_prepare(tuning->measuring, requests, count,
                                                     options->jobs > 0 ? (int)options->jobs : 0,
                                                     show_progress, NULL, subject->infos);
    (void)first; /* the infos have each candidate's */
    tool_progress_clear();
    for (size_t i = 0; i < count; i++) {
        const smelt_kernel_info *info = &subject->infos[i];
        char message[64];
        snprintf(message, sizeof message, "spills %d bytes", info->spill_bytes);
        if (info->state == SMELT_KERNEL_FAILED)
            drop(&subject->candidates[i], info->status, info->error);
        else if (info->spill_bytes > 0 && i > 0)
            drop(&subject->candidates[i], SMELT_OK, message);
    }
    free(requests);
}

/* The origin's spec with knobs for this kernel's family only: for sparse_attn_bwd of sparse_attn
 * "bwd.stages=1". (A family without such a prefix: for all that have them.) */
static void print_operator(char *text, size_t size, const char *origin, const char *kernel,
                           const char *knobs) {
    const size_t stem = strcspn(origin, ":"), family = strcspn(kernel, ":");
    const int has_stem = stem < family && !strncmp(origin, kernel, stem) && kernel[stem] == '_';
    int end = snprintf(text, size, "%s", origin);
    while (*knobs && end >= 0 && (size_t)end < size) {
        const int length = (int)strcspn(knobs, ",");
        end += snprintf(text + end, size - (size_t)end, ",%.*s%s%.*s",
                        has_stem ? (int)(family - stem - 1) : 0, kernel + stem + 1,
                        has_stem ? "." : "", length, knobs);
        knobs += length + (knobs[length] == ',');
    }
}

/* Adds the operator through which a candidate runs: the one with the kernel's keys, else the one
 * given, with its knobs. 1 if there is one. */
static int add_operator(struct tool_list *operators, const struct tune_subject *subject,
                        size_t index) {
    const char *const kernel = subject->specs.items[index];
    char text[512];
    print_operator(text, sizeof text, subject->origin, kernel, tool_tune_knobs(subject, index));
    return tool_add_operator_of(operators, kernel) ||
           (*subject->origin && tool_add_operator_with(operators, text, kernel));
}

/* TOOL_OK, or a status with the error printed if no operator runs a candidate, which is a fault of
 * the specs. */
static int name_operators(struct tune_subject *subject, const struct tool_options *options) {
    struct tool_list operators = {0};
    const size_t count = subject->specs.count;
    int status = TOOL_OK;
    for (size_t i = 0; i < count && status == TOOL_OK; i++)
        if (!add_operator(&operators, subject, i))
            status = tool_fail(options, TOOL_USAGE,
                               "%s: no operator runs this kernel alone; name the operator",
                               subject->specs.items[i]);
    subject->candidates = tool_allocate(NULL, count, sizeof *subject->candidates);
    memset(subject->candidates, 0, count * sizeof *subject->candidates);
    for (size_t i = 0; i < operators.count && i < count; i++)
        snprintf(subject->candidates[i].spec, sizeof subject->candidates[i].spec, "%s",
                 operators.items[i]);
    tool_list_free(&operators);
    return status;
}

static void check(const struct tune_run *tuning, struct tune_subject *subject,
                  const struct tool_options *options) {
    for (size_t i = 0; i < subject->specs.count; i++) {
        tool_progress_draw(i, subject->specs.count, "checking");
        if (!subject->candidates[i].dropped)
            smelt__tune_check(tuning->measuring, &subject->candidates[i], 0, options->problem.seed);
    }
    tool_progress_clear();
}

/* ---- storing -------------------------------------------------------------------------------- */

/* Stores the winner in the tuning file and its kernel in the cache; if the rule's plan is as good,
 * removes an earlier entry. */
static int keep(const struct tune_run *tuning, struct tune_subject *subject) {
    const size_t best = (size_t)subject->result.best;
    const smelt_kernel_request request = tool_kernel_request(subject->kernel, NULL);
    smelt_tuning_entry entry = SMELT_TUNING_ENTRY_INIT;
    if (!best && !subject->had_entry)
        return TOOL_OK;
    entry.spec = subject->kernel;
    entry.knobs = best ? tool_tune_knobs(subject, best) : "";
    entry.microseconds = subject->candidates[best].us;
    smelt_status status = smelt_tuning_store(tuning->keeping, &entry);
    if (!status && best)
        status = smelt_kernels_prepare(tuning->keeping, &request, 1, 1, NULL, NULL, NULL);
    if (status)
        return fail(subject, status, smelt_last_error());
    subject->stored = best != 0;
    subject->removed = best == 0;
    return TOOL_OK;
}

/* ---- one kernel ----------------------------------------------------------------------------- */

static void tune(const struct tune_run *tuning, struct tune_subject *subject,
                 const struct tool_options *options) {
    const struct smelt__problem_options problem =
        tool_bench_problem(options, smelt__harness_find(subject->candidates[0].spec));
    compile(tuning, subject, options);
    check(tuning, subject, options);
    smelt__tune_race(tuning->measuring, 0, &problem, subject->candidates, (int)subject->specs.count,
                     options->repeat > 0 ? (int)options->repeat : 0, &subject->result);
    if (subject->result.status)
        fail(subject, subject->result.status, subject->result.message);
    else
        keep(tuning, subject);
}

static int open_contexts(struct tune_run *tuning, const struct tool_options *options) {
    int status = tool_open_device(options, &tuning->keeping);
    if (status != TOOL_OK)
        return status;
    smelt_context_options settings = tool_context_options(options);
    settings.kind = SMELT_CONTEXT_DEVICE;
    settings.device = options->device >= 0 ? (int)options->device : 0;
    settings.tuning_disable = 1;
    tuning->device = (smelt_device_info)SMELT_DEVICE_INFO_INIT;
    smelt_context_info info = SMELT_CONTEXT_INFO_INIT;
    smelt_status opened = smelt_context_create(&tuning->measuring, &settings);
    if (!opened)
        opened = smelt_device_get_info(tuning->keeping, &tuning->device);
    tuning->arch = smelt_context_arch(tuning->keeping);
    if (!opened)
        opened = smelt_context_get_info(tuning->keeping, &info);
    if (opened)
        return tool_fail_status(options, opened);
    tuning->file = info.tuning_path;
    if (!*tuning->file)
        return tool_fail(options, TOOL_FAILED,
                         "there is no tuning file to write: no cache folder can be used, or "
                         "SMELT_TUNING_DISABLE is set; set SMELT_TUNING to a file");
    return TOOL_OK;
}

/* ---- the verb -------------------------------------------------------------------------------- */

static int run_on_device(struct tune_run *tuning, const struct tool_list *specs,
                         const struct tool_options *options) {
    int status = open_contexts(tuning, options);
    if (status == TOOL_OK)
        status = expand(tuning, specs, options);
    if (status == TOOL_OK)
        status = find_candidates(tuning, options);
    for (size_t i = 0; i < tuning->count && status == TOOL_OK; i++) {
        struct tune_subject *subject = &tuning->subjects[i];
        status = add_entry(tuning, subject, options);
        if (status == TOOL_OK)
            status = name_operators(subject, options);
    }
    for (size_t i = 0; i < tuning->count && status == TOOL_OK; i++)
        tune(tuning, &tuning->subjects[i], options);
    return status == TOOL_OK ? tool_tune_report(tuning, options) : status;
}

static int run_dry(struct tune_run *tuning, struct tool_targets *targets,
                   const struct tool_options *options) {
    int status = tool_targets_need_arch(targets, options);
    if (status != TOOL_OK)
        return status;
    if (targets->archs.count > 1)
        return tool_fail(options, TOOL_USAGE, "takes one --arch at a time");
    tuning->arch = targets->archs.items[0];
    status = tool_open_compiler(options, tuning->arch, &tuning->keeping);
    if (status == TOOL_OK)
        status = expand(tuning, &targets->specs, options);
    if (status == TOOL_OK)
        status = find_candidates(tuning, options);
    return status == TOOL_OK ? tool_tune_print_candidates(tuning, options) : status;
}

static void free_tuning(struct tune_run *tuning) {
    for (size_t i = 0; i < tuning->count; i++) {
        struct tune_subject *subject = &tuning->subjects[i];
        tool_list_free(&subject->specs);
        free(subject->candidates);
        free(subject->infos);
    }
    free(tuning->subjects);
    tool_list_free(&tuning->kernels);
    tool_list_free(&tuning->origins);
    smelt_context_destroy(&tuning->measuring);
    smelt_context_destroy(&tuning->keeping);
}

int tool_run_tune(const struct tool_options *options) {
    struct tool_targets targets;
    struct tune_run tuning = {0};
    int status = tool_targets_read(&targets, options);
    if (status == TOOL_OK && targets.archs.count && !options->dry_run && !options->manifest)
        status = tool_fail(options, TOOL_USAGE,
                           "--arch needs --dry-run: tuning runs on this machine's GPU");
    if (status == TOOL_OK)
        status = options->dry_run ? run_dry(&tuning, &targets, options)
                                  : run_on_device(&tuning, &targets.specs, options);
    free_tuning(&tuning);
    tool_targets_free(&targets);
    return status;
}
