/* See check.h. */
#include "harness/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "harness/option_text.h"
#include "smelt/device.h"
#include "smelt/kernels.h"

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void append(struct smelt__check_result *result, const char *text, const char *value) {
    size_t length = strlen(result->command);
    snprintf(result->command + length, sizeof result->command - length, " %s %s", text, value);
}

/* `spec`: parsed, or NULL. */
static void describe(const struct smelt__check_options *options,
                     const struct smelt__harness_spec *spec, struct smelt__check_result *result) {
    char number[16];
    snprintf(result->spec, sizeof result->spec, "%s", spec ? spec->text : options->spec);
    smelt__problem_command("check", result->spec, &options->problem, result->command,
                           sizeof result->command);
    snprintf(number, sizeof number, "%d", options->sample);
    if (options->sample > 0)
        append(result, "--sample", number);
    if (result->emulated)
        append(result, "--emulate --arch", result->arch);
}

static void library_failed(struct smelt__check_result *result, const char *step) {
    snprintf(result->message, sizeof result->message, "%s: %s: %s", step,
             smelt_status_name(result->status), smelt__harness_reason(result->status));
}

/* Whether the launch wrote to an input, which fails the check. */
static int inputs_changed(const struct smelt__placed *placed, struct smelt__check_result *result) {
    const char *name = smelt__placed_changed_input(placed, &result->status);
    if (result->status != SMELT_OK)
        library_failed(result, "downloading the inputs");
    if (name) {
        snprintf(result->message, sizeof result->message, "the input %s was written to", name);
        result->culprit = "input_written";
    }
    return result->status != SMELT_OK || name != NULL;
}

/* The emulator stopped the kernel: the first report says why. */
static void take_reports(struct smelt__check_result *result) {
    const struct emu_interface *emulator = smelt__emulator();
    struct emu_report first = emulator->report(0);
    result->reports = (int)emulator->report_count();
    result->status = SMELT_OK; /* every call succeeded */
    snprintf(result->message, sizeof result->message, "%s: %s", emulator->kind_name(first.kind),
             first.text);
}

/* Runs a placed problem once and compares it with the reference. bits: NULL if they are not
 * compared: a digest of gigabytes takes seconds. */
static void run_once(struct smelt__placed *placed, const smelt_operator *object, int sample,
                     struct CUstream_st *stream, uint64_t *bits,
                     struct smelt__check_result *result) {
    const struct emu_interface *emulator = smelt__emulator();
    result->passed = 0;
    result->status = smelt__placed_run(placed, object, stream);
    if (emulator && emulator->report_count() > 0) {
        take_reports(result);
    } else if (result->status != SMELT_OK) {
        library_failed(result, "running it");
    } else {
        if (bits)
            *bits = smelt__placed_digest(placed);
        if (smelt__check_compare(placed, sample, result) == 0 && emulator)
            result->passed = !inputs_changed(placed, result);
    }
}

/* Limit of a launch's processor time on the emulator, in seconds: it assumes a tenth of the usual speed. */
static double time_limit(const struct smelt__problem *problem) {
    const struct smelt__problem_cost cost =
        smelt__problem_cost(problem->op, problem->pass, problem->spec, &problem->options);
    return 60 + (cost.work > 0 ? cost.work / 10e6 : 0);
}

/* On the emulator: runs under each requested schedule, alternately on `stream` and on the default
 * stream. Elsewhere: runs once. */
static void run_schedules(struct smelt__placed *placed, const smelt_operator *object,
                          const struct smelt__check_options *options, struct CUstream_st *stream,
                          struct smelt__check_result *result) {
    char name[2][SMELT__SCHEDULE_TEXT];
    uint64_t first = 0, bits = 0;
    if (!result->emulated || !options->schedules) {
        run_once(placed, object, options->sample, NULL, NULL, result);
        return;
    }
    for (int i = 0; i < options->schedule_count; i++) {
        smelt__schedule_print(options->schedules[i], name[i > 0]);
        smelt__emulator_configure(result->arch, options->schedules[i], time_limit(placed->problem));
        run_once(placed, object, options->sample, i % 2 ? NULL : stream, &bits, result);
        if (i == 0)
            first = bits;
        if (result->passed && bits != first) {
            result->passed = 0;
            result->culprit = "other_bits";
            snprintf(result->message, sizeof result->message,
                     "schedule %s gives other bits than %s", name[1], name[0]);
            append(result, "--schedule", name[0]); /* both schedules are needed to reproduce it */
        }
        if (!result->passed) {
            append(result, "--schedule", name[i > 0]);
            return;
        }
    }
}

static void run_placed(smelt_context *context, const struct smelt__harness_spec *spec,
                       const struct smelt__problem *problem,
                       const struct smelt__check_options *options,
                       struct smelt__check_result *result) {
    struct smelt__placed placed;
    struct CUstream_st *stream = NULL;
    smelt_operator *object = NULL;
    result->status = smelt__placed_create(&placed, context, problem);
    if (result->status != SMELT_OK) {
        library_failed(result, "placing the problem on the device");
        return;
    }
    result->status = smelt_stream_create(context, &stream);
    if (result->status == SMELT_OK)
        result->status = smelt__harness_calls->create(&object, context, spec->text);
    if (result->status != SMELT_OK)
        library_failed(result, "making the operator");
    else
        run_schedules(&placed, object, options, stream, result);
    smelt__harness_calls->destroy(&object);
    if (stream)
        smelt_stream_destroy(context, stream);
    smelt__placed_destroy(&placed);
}

static void run_spec(smelt_context *context, const struct smelt__harness_spec *spec,
                     const struct smelt__check_options *options,
                     struct smelt__check_result *result) {
    struct smelt__problem problem;
    const struct smelt__harness_pass *pass = smelt__harness_spec_pass(spec, options->pass);
    if (!pass) {
        result->status = SMELT_ERROR_INVALID_SPEC;
        snprintf(result->message, sizeof result->message,
                 "the operator is not made for the requested pass");
        return;
    }
    result->pass = pass->name;
    if (smelt__problem_create(&problem, spec->op, pass, spec->spec, &options->problem) != 0) {
        result->status = SMELT_ERROR_OUT_OF_MEMORY;
        snprintf(result->message, sizeof result->message, "out of memory while making the problem");
        return;
    }
    run_placed(context, spec, &problem, options, result);
    smelt__problem_destroy(&problem);
}

static int spec_refused(smelt_context *context, const struct smelt__harness_spec *spec,
                        const struct smelt__check_options *options,
                        struct smelt__check_result *result) {
    const struct smelt__harness_pass *pass = smelt__harness_spec_pass(spec, options->pass);
    const char *why = "";
    smelt_operator *object = NULL;
    result->status = smelt_operator_supported(context, spec->text, &why);
    if (result->status != SMELT_OK) {
        snprintf(result->message, sizeof result->message, "%s", why);
        return 1;
    }
    if (pass && smelt__harness_calls->create(&object, context, spec->text) == SMELT_OK &&
        smelt__problem_refused(spec->op, pass, spec->spec, &options->problem, object,
                               result->message, sizeof result->message))
        result->status = SMELT_ERROR_INVALID_ARGUMENT;
    smelt__harness_calls->destroy(&object);
    return result->status != SMELT_OK;
}

int smelt__check_refused(smelt_context *context, const struct smelt__check_options *options,
                         struct smelt__check_result *result) {
    struct smelt__harness_spec spec;
    memset(result, 0, sizeof *result);
    snprintf(result->spec, sizeof result->spec, "%s", options->spec);
    const int refused = smelt__harness_spec_parse(&spec, options->spec) == SMELT_OK &&
                        spec_refused(context, &spec, options, result);
    smelt__harness_spec_free(&spec);
    return refused;
}

int smelt__check_run(smelt_context *context, const struct smelt__check_options *options,
                     struct smelt__check_result *result) {
    const double begin = seconds_now();
    struct smelt__harness_spec spec;
    memset(result, 0, sizeof *result);
    snprintf(result->arch, sizeof result->arch, "%s", smelt_context_arch(context));
    result->emulated = smelt__emulator() != NULL;
    result->status = smelt__harness_spec_parse(&spec, options->spec);
    describe(options, result->status == SMELT_OK ? &spec : NULL, result);
    if (result->status != SMELT_OK)
        library_failed(result, "the spec");
    else
        run_spec(context, &spec, options, result);
    smelt__harness_spec_free(&spec);
    if (!result->passed) {
        size_t length = strlen(result->message);
        snprintf(result->message + length, sizeof result->message - length, "\n  reproduce: %s",
                 result->command);
    }
    result->seconds = seconds_now() - begin;
    return result->passed ? 0 : -1;
}
