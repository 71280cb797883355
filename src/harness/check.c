#include "harness/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "harness/parallel.h"
#include "harness/random.h"
#include "reference/sparse_attn.h"

/* OPERATORS.md's meaning rounded to bf16 is 2e-3 away; probabilities rounded to bf16 add to it. A
 * few rows may all be of one slot: there the probability, which an integer maximum leaves between
 * 1/2 and 1, rounds by up to half a unit, as each element of out does, and the two add: 5.7e-3. */
static const double OUT_TOLERANCE = 4e-3, OUT_TOLERANCE_FEW = 5.8e-3, ROW_TOLERANCE = 1.5e-2;
enum { FEW_ROWS = 64 }; /* queries times heads */
static const double LSE_TOLERANCE = 2e-3, LSE_TOLERANCE_PER_SCORE = 1e-6;
/* Rows smaller than this (a sink took nearly everything) are compared as if they were this large:
 * below it exponentials leave fp32's normal range. */
static const double SMALLEST_ROW_NORM = 1e-30;

enum { DEFAULT_SAMPLE = 32, STREAM_SAMPLE = 201 };

/* ---- one query ------------------------------------------------------------------------------- */

struct query_error {
    double difference_squared, reference_squared; /* over all heads of out */
    double row_relative, out_absolute, lse_absolute, max_logits_absolute, largest_score;
    int worst_head;
    const char *problem; /* what no tolerance excuses, or NULL */
    int problem_head;
};

struct comparison {
    const struct smelt__placed *placed;
    const int64_t *queries;
    struct query_error *errors; /* one per query */
};

/* The difference of two numbers of which one may be -inf: 0 when both are, else infinite. */
static double difference(double got, double expected) {
    if (isinf(expected))
        return got == expected ? 0 : INFINITY;
    return isfinite(got) ? fabs(got - expected) : INFINITY;
}

static void compare_row(const struct comparison *comparison, int64_t query, int head,
                        const double *expected, int empty, struct query_error *error) {
    int dv = comparison->placed->problem->spec.dv;
    const uint16_t *out = smelt__placed_out(comparison->placed, query, head);
    double different = 0, reference = 0;
    for (int d = 0; d < dv; d++) {
        double got = (double)smelt__bf16_to_float(out[d]);
        double delta = got - expected[d];
        if (!isfinite(got) || (empty && got != 0)) {
            error->problem = empty ? "out of a query without a valid slot is not 0"
                                   : "out is NaN, infinite or not written";
            error->problem_head = head;
            return;
        }
        different += delta * delta;
        reference += expected[d] * expected[d];
        error->out_absolute = fmax(error->out_absolute, fabs(delta));
    }
    double relative = sqrt(different) / fmax(sqrt(reference), SMALLEST_ROW_NORM);
    if (relative > error->row_relative) {
        error->row_relative = relative;
        error->worst_head = head;
    }
    error->difference_squared += different;
    error->reference_squared += reference;
}

static void compare_query(const struct comparison *comparison, int64_t query,
                          const struct smelt__sparse_attn_results *expected,
                          struct query_error *error) {
    const struct smelt__placed *placed = comparison->placed;
    const smelt_sparse_attn_spec *spec = &placed->problem->spec;
    error->largest_score = expected->max_abs[0];
    for (int head = 0; head < spec->heads; head++) {
        double lse = expected->lse[head];
        compare_row(comparison, query, head, expected->out + (int64_t)head * spec->dv, isinf(lse),
                    error);
        double off = difference((double)smelt__placed_lse(placed, query, head), lse);
        error->lse_absolute = fmax(error->lse_absolute, off);
        if (!placed->max_logits.host)
            continue;
        off = difference((double)smelt__placed_max_logit(placed, query, head),
                         expected->max_logits[head]);
        error->max_logits_absolute = fmax(error->max_logits_absolute, off);
    }
}

static void compare_range(void *user, int64_t begin, int64_t end) {
    struct comparison *comparison = user;
    const struct smelt__problem *problem = comparison->placed->problem;
    size_t heads = (size_t)problem->spec.heads, dv = (size_t)problem->spec.dv;
    double max_abs = 0;
    double *memory = malloc(heads * (dv + 2) * sizeof *memory);
    struct smelt__sparse_attn_results expected = {memory, NULL, NULL, &max_abs};
    if (memory) {
        expected.lse = memory + heads * dv;
        expected.max_logits = expected.lse + heads;
    }
    for (int64_t i = begin; i < end; i++) {
        struct query_error *error = &comparison->errors[i];
        if (!memory || smelt__sparse_attn_reference(&problem->spec, &problem->args,
                                                    &comparison->queries[i], 1, &expected) != 0)
            error->problem = "out of memory while computing the reference";
        else
            compare_query(comparison, comparison->queries[i], &expected, error);
    }
    free(memory);
}

/* ---- a sample of them ------------------------------------------------------------------------ */

/* Draws at most `sample` of the computed queries: all when they are few, else the first, the last
 * and random ones between, ascending. Returns their number. */
static int64_t choose_queries(const struct smelt__problem *problem, int64_t sample,
                              int64_t *queries) {
    int64_t total = problem->args.batches * problem->args.tokens;
    struct smelt__random random = smelt__random_at(problem->options.seed, STREAM_SAMPLE, 0);
    int64_t left = problem->computed, wanted = sample < left ? sample : left, count = 0;
    for (int64_t query = 0; query < total && count < wanted; query++) {
        if (problem->listed && !problem->listed[query])
            continue;
        /* Selection sampling (Knuth, TAOCP 2, 3.4.2 S), with the two ends fixed. */
        int end = left == problem->computed || (wanted > 1 && left == 1);
        int64_t open = wanted - count - (wanted > 1 && left > 1);
        if (end || smelt__random_below(&random, left > 1 ? left - 1 : 1) < open)
            queries[count++] = query;
        left--;
    }
    return count;
}

static void collect(const struct comparison *comparison, int64_t count,
                    struct smelt__check_result *result, int64_t *worst_query, int *worst_head) {
    double different = 0, reference = 0;
    for (int64_t i = 0; i < count; i++) {
        const struct query_error *error = &comparison->errors[i];
        different += error->difference_squared;
        reference += error->reference_squared;
        if (error->row_relative >= result->row_relative) {
            result->row_relative = error->row_relative;
            *worst_query = comparison->queries[i];
            *worst_head = error->worst_head;
        }
        result->out_absolute = fmax(result->out_absolute, error->out_absolute);
        result->lse_absolute = fmax(result->lse_absolute, error->lse_absolute);
        result->max_logits_absolute = fmax(result->max_logits_absolute, error->max_logits_absolute);
        result->largest_score = fmax(result->largest_score, error->largest_score);
    }
    if (different > 0)
        result->out_relative =
            fmax(result->out_relative, sqrt(different) / fmax(sqrt(reference), SMALLEST_ROW_NORM));
    result->lse_tolerance = LSE_TOLERANCE + LSE_TOLERANCE_PER_SCORE * result->largest_score;
}

/* Not `x > tolerance`: NaN must not pass. */
static int within(double error, double tolerance) {
    return error <= tolerance;
}

static void judge(const struct comparison *comparison, int64_t count,
                  struct smelt__check_result *result) {
    int64_t worst_query = 0;
    int worst_head = 0;
    collect(comparison, count, result, &worst_query, &worst_head);
    char *message = result->message;
    size_t size = sizeof result->message;
    for (int64_t i = 0; i < count; i++)
        if (comparison->errors[i].problem) {
            snprintf(message, size, "query %lld head %d: %s", (long long)comparison->queries[i],
                     comparison->errors[i].problem_head, comparison->errors[i].problem);
            return;
        }
    if (!within(result->row_relative, result->row_tolerance))
        snprintf(message, size, "query %lld head %d: relative error of out %.3g, bar %.3g",
                 (long long)worst_query, worst_head, result->row_relative, result->row_tolerance);
    else if (!within(result->out_relative, result->out_tolerance))
        snprintf(message, size, "relative error of out %.3g over everything compared, bar %.3g",
                 result->out_relative, result->out_tolerance);
    else if (!within(result->lse_absolute, result->lse_tolerance))
        snprintf(message, size, "error of lse %.3g, bar %.3g", result->lse_absolute,
                 result->lse_tolerance);
    else if (!within(result->max_logits_absolute, result->lse_tolerance))
        snprintf(message, size, "error of max_logits %.3g, bar %.3g", result->max_logits_absolute,
                 result->lse_tolerance);
    else
        result->passed = 1;
}

int smelt__check_compare(struct smelt__placed *placed, int sample,
                         struct smelt__check_result *result) {
    const struct smelt__problem *problem = placed->problem;
    size_t wanted = sample > 0 ? (size_t)sample : DEFAULT_SAMPLE;
    int64_t *queries = malloc(wanted * sizeof *queries);
    struct query_error *errors = calloc(wanted, sizeof *errors);
    struct comparison comparison = {placed, queries, errors};
    result->passed = 0;
    result->row_tolerance = ROW_TOLERANCE;
    result->lse_tolerance = LSE_TOLERANCE;
    result->queries = problem->args.batches * problem->args.tokens;
    if (!queries || !errors) {
        snprintf(result->message, sizeof result->message, "out of memory");
    } else {
        result->compared = choose_queries(problem, (int64_t)wanted, queries);
        result->out_tolerance =
            result->compared * problem->spec.heads < FEW_ROWS ? OUT_TOLERANCE_FEW : OUT_TOLERANCE;
        smelt__parallel_for(result->compared, 1, compare_range, &comparison);
        judge(&comparison, result->compared, result);
    }
    free(queries);
    free(errors);
    char message[256];
    if (smelt__placed_verify_extent(placed, message, sizeof message) != 0 && result->passed) {
        snprintf(result->message, sizeof result->message, "%s", message);
        result->passed = 0;
    }
    return result->passed ? 0 : -1;
}

/* ---- a whole check --------------------------------------------------------------------------- */

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void append(struct smelt__check_result *result, const char *text, const char *value) {
    size_t length = strlen(result->command);
    snprintf(result->command + length, sizeof result->command - length, " %s %s", text, value);
}

static void describe(const struct smelt__check_options *options, const smelt_sparse_attn_spec *spec,
                     struct smelt__check_result *result) {
    char *canonical = NULL, number[16];
    snprintf(result->spec, sizeof result->spec, "%s", options->spec);
    if (spec && smelt_sparse_attn_spec_print(spec, &canonical) == SMELT_OK)
        snprintf(result->spec, sizeof result->spec, "%s", canonical);
    smelt_free(canonical);
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
             smelt_status_name(result->status), smelt_last_error());
}

/* FNV-1a. */
static uint64_t mix(uint64_t hash, const void *bytes, size_t count) {
    const unsigned char *byte = bytes;
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ byte[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* The bits of all results, as a number. */
static uint64_t digest(const struct smelt__placed *placed) {
    const struct smelt__problem *problem = placed->problem;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (int64_t query = 0; query < problem->args.batches * problem->args.tokens; query++)
        for (int head = 0; head < problem->spec.heads; head++) {
            if (problem->listed && !problem->listed[query])
                continue;
            float numbers[2] = {smelt__placed_lse(placed, query, head), 0};
            if (placed->max_logits.host)
                numbers[1] = smelt__placed_max_logit(placed, query, head);
            hash = mix(hash, numbers, sizeof numbers);
            hash = mix(hash, smelt__placed_out(placed, query, head),
                       (size_t)problem->spec.dv * sizeof(uint16_t));
        }
    return hash;
}

/* Inputs are read, never written. */
static int inputs_changed(const struct smelt__placed *placed, struct smelt__check_result *result) {
    const char *name = smelt__placed_changed_input(placed, &result->status);
    if (result->status != SMELT_OK)
        library_failed(result, "downloading the inputs");
    else if (name)
        snprintf(result->message, sizeof result->message, "the input %s was written to", name);
    return result->status != SMELT_OK || name != NULL;
}

/* The emulator stopped the kernel: the first report says why. */
static void take_reports(struct smelt__check_result *result) {
    const struct emu_interface *emulator = smelt__emulator();
    struct emu_report first = emulator->report(0);
    result->reports = (int)emulator->report_count();
    result->status = SMELT_OK; /* no call's fault */
    snprintf(result->message, sizeof result->message, "%s: %s", emulator->kind_name(first.kind),
             first.text);
}

/* Runs a placed problem once and compares it with the reference. */
static void run_once(struct smelt__placed *placed, smelt_sparse_attn *attn, int sample,
                     uint64_t *bits, struct smelt__check_result *result) {
    const struct emu_interface *emulator = smelt__emulator();
    result->passed = 0;
    result->status = smelt__placed_run(placed, attn, NULL);
    if (emulator && emulator->report_count() > 0) {
        take_reports(result);
    } else if (result->status != SMELT_OK) {
        library_failed(result, "running it");
    } else {
        *bits = digest(placed);
        if (smelt__check_compare(placed, sample, result) == 0 && emulator)
            result->passed = !inputs_changed(placed, result);
    }
}

/* Processor time a launch may take on the emulator, seconds: it does about a hundred million
 * multiplications in one, and a tenth of that is still no endless loop. */
static double time_limit(const struct smelt__problem *problem) {
    const smelt_sparse_attn_spec *spec = &problem->spec;
    double rows = (double)problem->computed * (double)problem->args.width;
    return 60 + rows * spec->heads * (spec->dqk + spec->dv) / 10e6;
}

/* Under every schedule asked for, on the emulator; once anywhere else. */
static void run_schedules(struct smelt__placed *placed, smelt_sparse_attn *attn,
                          const struct smelt__check_options *options,
                          struct smelt__check_result *result) {
    char name[2][SMELT__SCHEDULE_TEXT];
    uint64_t first = 0, bits = 0;
    if (!result->emulated || !options->schedules) {
        run_once(placed, attn, options->sample, &bits, result);
        return;
    }
    for (int i = 0; i < options->schedule_count; i++) {
        smelt__schedule_print(options->schedules[i], name[i > 0]);
        smelt__emulator_configure(result->arch, options->schedules[i], time_limit(placed->problem));
        run_once(placed, attn, options->sample, &bits, result);
        if (i == 0)
            first = bits;
        if (result->passed && bits != first) {
            result->passed = 0;
            snprintf(result->message, sizeof result->message,
                     "schedule %s gives other bits than %s", name[1], name[0]);
            append(result, "--schedule", name[0]); /* both are needed to see it */
        }
        if (!result->passed) {
            append(result, "--schedule", name[i > 0]);
            return;
        }
    }
}

static void run_placed(smelt_context *context, const smelt_sparse_attn_spec *spec,
                       const struct smelt__problem *problem,
                       const struct smelt__check_options *options,
                       struct smelt__check_result *result) {
    struct smelt__placed placed;
    smelt_sparse_attn *attn = NULL;
    result->status = smelt__placed_create(&placed, context, problem);
    if (result->status != SMELT_OK) {
        library_failed(result, "placing the problem on the device");
        return;
    }
    result->status = smelt_sparse_attn_create(&attn, context, spec);
    if (result->status != SMELT_OK)
        library_failed(result, "smelt_sparse_attn_create");
    else
        run_schedules(&placed, attn, options, result);
    smelt_sparse_attn_destroy(&attn);
    smelt__placed_destroy(&placed);
}

int smelt__check_run(smelt_context *context, const struct smelt__check_options *options,
                     struct smelt__check_result *result) {
    double begin = seconds_now();
    char *knobs = NULL;
    smelt_sparse_attn_spec spec = SMELT_SPARSE_ATTN_SPEC_INIT;
    struct smelt__problem problem;
    memset(result, 0, sizeof *result);
    snprintf(result->arch, sizeof result->arch, "%s", smelt_context_arch(context));
    result->emulated = smelt__emulator() != NULL;
    result->status = smelt_sparse_attn_spec_parse(options->spec, &spec, &knobs);
    describe(options, result->status == SMELT_OK ? &spec : NULL, result);
    if (result->status != SMELT_OK) {
        library_failed(result, "the spec");
    } else if (smelt__problem_create(&problem, &spec, &options->problem) != 0) {
        result->status = SMELT_ERROR_OUT_OF_MEMORY;
        snprintf(result->message, sizeof result->message, "out of memory while making the problem");
    } else {
        run_placed(context, &spec, &problem, options, result);
        smelt__problem_destroy(&problem);
    }
    smelt_free(knobs);
    if (!result->passed) {
        size_t length = strlen(result->message);
        snprintf(result->message + length, sizeof result->message - length, "\n  reproduce: %s",
                 result->command);
    }
    result->seconds = seconds_now() - begin;
    return result->passed ? 0 : -1;
}
