#include "harness/tune.h"
#include "harness/defaults.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/check.h"
#include "harness/placed.h"
#include "smelt/device.h"

enum {
    WARM_UP = 2,
    CHECKED_SAMPLE = 4, /* units compared with the reference */
    LANES = SMELT__TUNE_FINALISTS + SMELT__TUNE_REPEATS
};

static void drop(struct smelt__tune_candidate *candidate, smelt_status status, const char *step,
                 const char *message) {
    candidate->dropped = 1;
    candidate->status = status;
    snprintf(candidate->message, sizeof candidate->message, "%s: %.1000s", step, message);
}

/* ---- results --------------------------------------------------------------------------------- */

void smelt__tune_check(smelt_context *context, struct smelt__tune_candidate *candidate,
                       unsigned pass, uint64_t seed) {
    struct smelt__harness_spec spec;
    struct smelt__check_options options = {
        .spec = candidate->spec, .pass = pass, .sample = CHECKED_SAMPLE, .problem.seed = seed};
    const smelt_status status = smelt__harness_spec_parse(&spec, candidate->spec);
    if (status != SMELT_OK)
        drop(candidate, status, "the spec", smelt_last_error());
    for (int i = 0;
         !candidate->dropped && smelt__options_trial(spec.op, spec.spec, i, &options.problem);
         i++) {
        struct smelt__check_result result;
        if (smelt__check_run(context, &options, &result) != 0)
            drop(candidate, result.status, "check", result.message);
    }
    smelt__harness_spec_free(&spec);
}

/* ---- the race -------------------------------------------------------------------------------- */

/* A candidate in a race; the rule's plan may have several lanes. */
struct lane {
    struct smelt__tune_candidate *candidate;
    smelt_operator *object; /* the race's */
    double *us;             /* [launches] */
};

struct race {
    smelt_context *context;
    struct smelt__problem problem;
    struct smelt__placed placed;
    struct CUstream_st *stream;
    struct CUevent_st *begin, *end;
    struct smelt__tune_candidate *candidates;
    const struct smelt__harness_operator *op;
    const struct smelt__harness_pass *pass;
    smelt_operator **objects; /* one per candidate, NULL for a dropped one */
    int count;
};

static smelt_status note(struct smelt__tune_result *result, const char *step, smelt_status status) {
    if (status != SMELT_OK && result->status == SMELT_OK) {
        result->status = status;
        snprintf(result->message, sizeof result->message, "%s: %s", step,
                 smelt__harness_reason(status));
    }
    return status;
}

static void open_candidate(struct race *race, int index) {
    struct smelt__tune_candidate *candidate = &race->candidates[index];
    struct smelt__harness_spec spec;
    if (candidate->dropped)
        return;
    smelt_status status = smelt__harness_spec_parse(&spec, candidate->spec);
    if (status == SMELT_OK)
        status = smelt__harness_calls->create(&race->objects[index], race->context, spec.text);
    if (status == SMELT_OK)
        status = smelt__placed_workspace(&race->placed, race->objects[index]);
    if (status != SMELT_OK)
        drop(candidate, status, "loading it", smelt_last_error());
    smelt__harness_spec_free(&spec);
}

/* Makes the problem from the spec of the rule's plan. */
static smelt_status make_problem(struct race *race, unsigned pass,
                                 const struct smelt__problem_options *problem,
                                 struct smelt__tune_result *result) {
    struct smelt__harness_spec spec;
    smelt_status status =
        note(result, "the spec", smelt__harness_spec_parse(&spec, race->candidates[0].spec));
    race->op = spec.op;
    race->pass = status == SMELT_OK ? smelt__harness_spec_pass(&spec, pass) : NULL;
    if (status == SMELT_OK && !race->pass)
        status = note(result, "the pass to tune", SMELT_ERROR_INVALID_SPEC);
    race->objects = calloc((size_t)race->count, sizeof *race->objects);
    if (status == SMELT_OK &&
        (!race->objects ||
         smelt__problem_create(&race->problem, race->op, race->pass, spec.spec, problem) != 0)) {
        result->status = status = SMELT_ERROR_OUT_OF_MEMORY;
        snprintf(result->message, sizeof result->message, "out of memory for the problem");
    }
    smelt__harness_spec_free(&spec);
    return status;
}

static smelt_status open_race(struct race *race, unsigned pass,
                              const struct smelt__problem_options *problem,
                              struct smelt__tune_result *result) {
    smelt_context *context = race->context;
    if (make_problem(race, pass, problem, result) != SMELT_OK)
        return result->status;
    result->queries = race->problem.computed;
    result->rows = race->problem.options.rows;
    result->width = race->problem.options.width;
    if (note(result, "placing the problem on the device",
             smelt__placed_create(&race->placed, context, &race->problem)) ||
        note(result, "smelt_stream_create", smelt_stream_create(context, &race->stream)) ||
        note(result, "smelt_event_create", smelt_event_create(context, &race->begin)) ||
        note(result, "smelt_event_create", smelt_event_create(context, &race->end)))
        return result->status;
    for (int i = 0; i < race->count; i++)
        open_candidate(race, i);
    return SMELT_OK;
}

static void close_race(struct race *race) {
    for (int i = 0; race->objects && i < race->count; i++)
        if (race->objects[i])
            smelt__harness_calls->destroy(&race->objects[i]);
    free(race->objects);
    if (race->end)
        smelt_event_destroy(race->context, race->end);
    if (race->begin)
        smelt_event_destroy(race->context, race->begin);
    if (race->stream)
        smelt_stream_destroy(race->context, race->stream);
    if (race->placed.context)
        smelt__placed_destroy(&race->placed);
    smelt__problem_destroy(&race->problem);
}

/* A launch's time in microseconds; a failure drops the candidate. */
static double launch(struct race *race, const struct lane *lane) {
    float ms = 0;
    smelt_status status = smelt_event_record(race->context, race->begin, race->stream);
    if (status == SMELT_OK)
        status = smelt__harness_calls->launch(lane->object, race->pass->pass, race->placed.args,
                                              race->stream);
    if (status == SMELT_OK)
        status = smelt_event_record(race->context, race->end, race->stream);
    if (status == SMELT_OK)
        status = smelt_event_elapsed(race->context, race->begin, race->end, &ms);
    if (status != SMELT_OK)
        drop(lane->candidate, status, "launching it", smelt_last_error());
    return 1e3 * (double)ms;
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count) {
    qsort(values, (size_t)count, sizeof *values, compare_doubles);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

/* In every round each lane launches once. */
static void run_rounds(struct race *race, struct lane *lanes, int count, int launches) {
    for (int round = -WARM_UP; round < launches; round++)
        for (int i = 0; i < count; i++) {
            if (lanes[i].candidate->dropped)
                continue;
            const double us = launch(race, &lanes[i]);
            if (round >= 0)
                lanes[i].us[round] = us;
        }
}

static struct lane lane_of(const struct race *race, int candidate, double *us) {
    return (struct lane){&race->candidates[candidate], race->objects[candidate], us};
}

/* Times all candidates and sorts `ranking` by their medians, dropped ones last. */
static int run_quick(struct race *race, int *ranking) {
    const int launches = SMELT__TUNE_QUICK;
    struct lane *lanes = calloc((size_t)race->count, sizeof *lanes);
    double *us = calloc((size_t)race->count * (size_t)launches, sizeof *us);
    if (lanes && us) {
        for (int i = 0; i < race->count; i++)
            lanes[i] = lane_of(race, i, us + i * launches);
        run_rounds(race, lanes, race->count, launches);
        for (int i = 0; i < race->count; i++)
            if (!race->candidates[i].dropped)
                race->candidates[i].quick_us = median(lanes[i].us, launches);
        /* Insertion sort: there are a few dozen. */
        for (int i = 0; i < race->count; i++) {
            int at = i;
            const struct smelt__tune_candidate *all = race->candidates;
            for (;
                 at > 0 && !all[i].dropped &&
                 (all[ranking[at - 1]].dropped || all[ranking[at - 1]].quick_us > all[i].quick_us);
                 at--)
                ranking[at] = ranking[at - 1];
            ranking[at] = i;
        }
    }
    const int failed = !lanes || !us;
    free(lanes);
    free(us);
    return failed ? -1 : 0;
}

/* The lanes of the rule's plan are evenly distributed among the finalists'. */
static int line_up(const struct race *race, const int *ranking, struct lane lanes[LANES],
                   double *us, int launches) {
    const int each = SMELT__TUNE_FINALISTS / (SMELT__TUNE_REPEATS - 1);
    int count = 0, finalists = 0;
    lanes[count] = lane_of(race, 0, us);
    count++;
    for (int i = 0; i < race->count && finalists < SMELT__TUNE_FINALISTS; i++) {
        if (ranking[i] == 0 || race->candidates[ranking[i]].dropped)
            continue;
        lanes[count] = lane_of(race, ranking[i], us + count * launches);
        count++;
        if (++finalists % each == 0) {
            lanes[count] = lane_of(race, 0, us + count * launches);
            count++;
        }
    }
    for (int repeats = 1 + finalists / each; repeats < SMELT__TUNE_REPEATS; repeats++, count++)
        lanes[count] = lane_of(race, 0, us + count * launches);
    return count;
}

/* The mean time of the rule's plan in a round. */
static double round_mean(const struct race *race, const struct lane *lanes, int count, int round) {
    double sum = 0;
    int repeats = 0;
    for (int i = 0; i < count; i++)
        if (lanes[i].candidate == race->candidates) {
            sum += lanes[i].us[round];
            repeats++;
        }
    return sum / repeats;
}

/* Three standard errors of a lane's median, told from the quartiles of what the rule's launches
 * differ by within a round, so that a clock which drifts counts for nothing, as of a normal
 * distribution. With these for noise, and six finalists all just as fast as the rule's plan, one in
 * 200 races has a winner; with the medians' distances alone one in ten. */
static double spread_of_rule(const struct race *race, const struct lane *lanes, int count,
                             int launches) {
    static const double errors = 3, quartiles = 1.349, median_error = 1.2533;
    double *all = calloc((size_t)launches * SMELT__TUNE_REPEATS, sizeof *all);
    int n = 0;
    for (int i = 0; i < count && all; i++)
        if (lanes[i].candidate == race->candidates)
            for (int k = 0; k < launches; k++)
                all[n++] = lanes[i].us[k] - round_mean(race, lanes, count, k);
    double spread = 0;
    if (n > 0) {
        qsort(all, (size_t)n, sizeof *all, compare_doubles);
        spread = (all[3 * n / 4] - all[n / 4]) / quartiles * median_error / sqrt(launches);
        spread *= sqrt(SMELT__TUNE_REPEATS / (SMELT__TUNE_REPEATS - 1.0)); /* corrects for the mean,
                                                                              which is computed from
                                                                              the same launches */
    }
    free(all);
    return errors * spread;
}

/* Evaluates the final. */
static void judge(struct race *race, struct lane *lanes, int count, int launches,
                  struct smelt__tune_result *result) {
    const double spread = spread_of_rule(race, lanes, count, launches);
    double rules[SMELT__TUNE_REPEATS];
    int repeats = 0, best = 0;
    for (int i = 0; i < count; i++) {
        struct smelt__tune_candidate *candidate = lanes[i].candidate;
        if (candidate->dropped)
            continue;
        const double us = median(lanes[i].us, launches);
        if (candidate == race->candidates)
            rules[repeats++] = us;
        else
            candidate->us = us;
    }
    if (!repeats)
        return;
    result->rule_us = median(rules, repeats); /* sorts them */
    result->noise_us = fmax(rules[repeats - 1] - rules[0], spread);
    race->candidates[0].us = result->rule_us;
    for (int i = 0; i < race->count; i++)
        if (race->candidates[i].us > 0 && !race->candidates[i].dropped &&
            race->candidates[i].us < race->candidates[best].us)
            best = i;
    result->best = race->candidates[best].us < rules[0] - result->noise_us ? best : 0;
}

static void run_race(struct race *race, int launches, struct smelt__tune_result *result) {
    struct lane lanes[LANES];
    int *ranking = calloc((size_t)race->count, sizeof *ranking);
    double *us = calloc((size_t)LANES * (size_t)launches, sizeof *us);
    if (!ranking || !us || run_quick(race, ranking) != 0) {
        result->status = SMELT_ERROR_OUT_OF_MEMORY;
        snprintf(result->message, sizeof result->message, "out of memory");
    } else if (!race->candidates[0].dropped) {
        const int count = line_up(race, ranking, lanes, us, launches);
        run_rounds(race, lanes, count, launches);
        judge(race, lanes, count, launches, result);
    }
    free(ranking);
    free(us);
}

void smelt__tune_race(smelt_context *context, unsigned pass,
                      const struct smelt__problem_options *problem,
                      struct smelt__tune_candidate *candidates, int count, int launches,
                      struct smelt__tune_result *result) {
    struct race race = {.context = context, .candidates = candidates, .count = count};
    memset(result, 0, sizeof *result);
    if (open_race(&race, pass, problem, result) == SMELT_OK)
        run_race(&race, launches > 0 ? launches : SMELT__TUNE_LAUNCHES, result);
    close_race(&race);
    /* Without the rule's plan there is no baseline. */
    if (result->status == SMELT_OK && candidates[0].dropped) {
        result->status = candidates[0].status ? candidates[0].status : SMELT_ERROR_INTERNAL;
        snprintf(result->message, sizeof result->message, "the rule's plan: %.900s",
                 candidates[0].message);
    }
}
