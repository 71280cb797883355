/* Output of smelt tune: a dry run's candidates, results as tables and JSON, failures. */
#include "tune.h"

#include <stdlib.h>
#include <string.h>

/* A candidate's knobs, the last part of the canonical text. */
const char *tool_tune_knobs(const struct tune_subject *subject, size_t index) {
    const char *knobs = subject->specs.items[index] + strlen(subject->kernel);
    return *knobs == ',' ? knobs + 1 : "";
}

static const char *shown_knobs(const struct tune_subject *subject, size_t index) {
    const char *knobs = tool_tune_knobs(subject, index);
    return *knobs ? knobs : "(the rule's)";
}

int tool_tune_print_candidates(const struct tune_run *tuning, const struct tool_options *options) {
    json_t *results = tool_json(json_array());
    for (size_t i = 0; i < tuning->count; i++) {
        const struct tune_subject *subject = &tuning->subjects[i];
        json_t *list = tool_json(json_array());
        if (!options->json)
            printf("%s%s on %s: %zu candidate%s\n", i ? "\n" : "", subject->kernel, tuning->arch,
                   subject->specs.count, subject->specs.count == 1 ? "" : "s");
        for (size_t k = 0; k < subject->specs.count; k++) {
            if (!options->json)
                printf("  %s\n", shown_knobs(subject, k));
            json_array_append_new(list, tool_pack("{s:s}", "knobs", tool_tune_knobs(subject, k)));
        }
        json_array_append_new(results, tool_pack("{s:s, s:s, s:o}", "spec", subject->kernel, "arch",
                                                 tuning->arch, "candidates", list));
    }
    if (options->json)
        tool_print_json(tool_pack("{s:O}", "results", results));
    json_decref(results);
    return TOOL_OK;
}

/* ---- results --------------------------------------------------------------------------------- */

static const char *state_of(const struct tune_subject *subject, size_t index) {
    const struct smelt__tune_candidate *candidate = &subject->candidates[index];
    if (candidate->dropped)
        return "dropped";
    if (index == 0)
        return subject->result.best == 0 ? "rule, kept" : "rule";
    if ((int)index == subject->result.best)
        return "best";
    return candidate->us > 0 ? "finalist" : "slower";
}

/* Orders finalists, others and dropped candidates, each by time. */
static int compare_places(const void *left, const void *right, void *user) {
    const struct tune_subject *subject = *(const struct tune_subject **)user;
    const struct smelt__tune_candidate *a = &subject->candidates[*(const size_t *)left];
    const struct smelt__tune_candidate *b = &subject->candidates[*(const size_t *)right];
    const int kind_a = a->dropped ? 2 : a->us <= 0, kind_b = b->dropped ? 2 : b->us <= 0;
    const double x = a->us > 0 ? a->us : a->quick_us, y = b->us > 0 ? b->us : b->quick_us;
    return kind_a != kind_b ? kind_a - kind_b : (x > y) - (x < y);
}

static size_t *places_of(const struct tune_subject *subject) {
    size_t *places = tool_allocate(NULL, subject->specs.count, sizeof *places);
    for (size_t i = 0; i < subject->specs.count; i++)
        places[i] = i;
    qsort_r(places, subject->specs.count, sizeof *places, compare_places, &subject);
    return places;
}

static json_t *candidate_json(const struct tune_subject *subject, size_t index) {
    const struct smelt__tune_candidate *candidate = &subject->candidates[index];
    const smelt_kernel_info *info = &subject->infos[index];
    json_t *document =
        tool_pack("{s:s, s:s, s:i, s:i, s:f, s:f}", "knobs", tool_tune_knobs(subject, index),
                  "state", state_of(subject, index), "registers", info->registers, "spill_bytes",
                  info->spill_bytes, "quick_us", candidate->quick_us, "us", candidate->us);
    if (candidate->dropped)
        json_object_set_new(document, "error", tool_json_text(candidate->message));
    return document;
}

static void print_json(const struct tune_run *tuning) {
    json_t *results = tool_json(json_array());
    for (size_t i = 0; i < tuning->count; i++) {
        const struct tune_subject *subject = &tuning->subjects[i];
        const struct smelt__tune_result *result = &subject->result;
        json_t *list = tool_json(json_array());
        for (size_t k = 0; k < subject->specs.count; k++)
            json_array_append_new(list, candidate_json(subject, k));
        json_array_append_new(
            results,
            tool_pack("{s:s, s:s, s:I, s:I, s:I, s:f, s:f, s:f, s:s, s:b, s:b, s:o}", "spec",
                      subject->kernel, "arch", tuning->arch, "queries", (json_int_t)result->queries,
                      "rows", (json_int_t)result->rows, "width", (json_int_t)result->width,
                      "rule_us", result->rule_us, "noise_us", result->noise_us, "us",
                      subject->candidates[result->best].us, "knobs",
                      tool_tune_knobs(subject, (size_t)result->best), "stored", subject->stored,
                      "removed", subject->removed, "candidates", list));
    }
    tool_print_json(tool_pack("{s:s, s:s, s:o}", "device", tuning->device.name, "file",
                              tuning->file, "results", results));
}

static void print_rows(const struct tune_subject *subject) {
    static const char *const headers[] = {"knobs", "registers", "quick us",
                                          "us",    "to rule",   "result"};
    struct tool_table table;
    size_t *places = places_of(subject);
    tool_table_begin(&table, "lrrrrl", headers);
    for (size_t i = 0; i < subject->specs.count; i++) {
        const size_t index = places[i];
        const struct smelt__tune_candidate *candidate = &subject->candidates[index];
        const double us = candidate->us > 0 ? candidate->us : candidate->quick_us;
        const double rule =
            candidate->us > 0 ? subject->candidates[0].us : subject->candidates[0].quick_us;
        const int best = (int)index == subject->result.best && !candidate->dropped;
        tool_table_add_cells(&table, "%s\t%d", shown_knobs(subject, index),
                             subject->infos[index].registers);
        tool_table_add(&table, TOOL_PLAIN, candidate->quick_us > 0 ? "%.1f" : "-",
                       candidate->quick_us);
        tool_table_add(&table, TOOL_PLAIN, candidate->us > 0 ? "%.1f" : "-", candidate->us);
        tool_table_add(&table, TOOL_PLAIN, us > 0 && rule > 0 ? "%.3fx" : "-", rule / us);
        tool_table_add(&table,
                       best                 ? TOOL_GOOD
                       : candidate->dropped ? TOOL_BAD
                                            : TOOL_PLAIN,
                       "%s", state_of(subject, index));
    }
    tool_table_end(&table);
    free(places);
}

static void print_subject(const struct tune_run *tuning, const struct tune_subject *subject) {
    const struct smelt__tune_result *result = &subject->result;
    printf("%s on %s, %lld queries, %lld rows, %lld slots\n\n", subject->kernel,
           tuning->device.name, (long long)result->queries, (long long)result->rows,
           (long long)result->width);
    print_rows(subject);
    if (subject->failed) {
        printf("\nnot tuned\n");
        return;
    }
    printf("\nthe rule's plan: %.1f us, noise %.1f us\n", result->rule_us, result->noise_us);
    if (subject->stored)
        printf("kept in %s: %s, %.3f times as fast\n", tuning->file,
               tool_tune_knobs(subject, (size_t)result->best),
               result->rule_us / subject->candidates[result->best].us);
    else if (subject->removed)
        printf("nothing is faster by more than that; the entry in %s is removed\n", tuning->file);
    else
        printf("nothing is faster by more than that; nothing is stored\n");
}

/* Reports failed candidates even if another one won. */
static int say_failures(const struct tune_subject *subject, const struct tool_options *options) {
    int status = TOOL_OK;
    for (size_t k = 1; k < subject->specs.count; k++) {
        const struct smelt__tune_candidate *candidate = &subject->candidates[k];
        /* Spilling excludes a candidate but is not a failure. */
        if (!candidate->dropped || subject->infos[k].spill_bytes > 0)
            continue;
        tool_say(options, "%s: %s", candidate->spec, candidate->message);
        status = TOOL_FAILED;
    }
    if (subject->failed)
        tool_say(options, "%s: not tuned: %s", subject->kernel, subject->message);
    return subject->failed ? subject->failed : status;
}

int tool_tune_report(const struct tune_run *tuning, const struct tool_options *options) {
    if (options->json)
        print_json(tuning);
    for (size_t i = 0; i < tuning->count && !options->json; i++) {
        if (i)
            putchar('\n');
        print_subject(tuning, &tuning->subjects[i]);
    }
    fflush(stdout);
    int status = TOOL_OK;
    for (size_t i = 0; i < tuning->count; i++)
        status = tool_exit_join(status, say_failures(&tuning->subjects[i], options));
    return status;
}
