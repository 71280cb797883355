/*
 * Tests that the kinds of inputs that check tries by default, in small problems, check every rule of every operator
 * and produce every output, and that their texts differ: test_kinds FOLDER [OPERATOR]
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "compared.h"
#include "harness/defaults.h"
#include "harness/option_text.h"

static const char *folder, *only;
static uint64_t seed;

/* How many times small problems checked each rule of a pass, and each output's elements. */
static struct looked {
    const struct smelt__harness_pass *pass;
    const struct smelt__rule *rules[SMELT__MOST_RULES];
    int rule_count;
    int64_t applied[SMELT__MOST_RULES], elements[SMELT__MOST_TENSORS];
} looked;

static void look_at_kind(const struct compared_pass *about, const char *text,
                         struct smelt__problem_options options, int kind) {
    struct bench bench;
    struct smelt__harness_spec spec;
    assert_int_equal(smelt__harness_spec_parse(&spec, text), SMELT_OK);
    smelt__options_small(about->op, spec.spec, &options);
    smelt__harness_spec_free(&spec);
    bench_open(&bench, about->pass, text, &options);
    const struct smelt__check_result *result = bench_compare(&bench);
    if (!result->passed)
        fail_msg("%s, kind %d, seed %llu: %s", text, kind, (unsigned long long)options.seed,
                 result->message);
    looked.pass = bench.problem.pass;
    looked.rule_count = result->rule_count;
    for (int k = 0; k < result->rule_count; k++) {
        looked.rules[k] = result->rules[k].rule;
        looked.applied[k] += result->rules[k].applied;
    }
    for (int k = 0; k < SMELT__MOST_TENSORS; k++)
        looked.elements[k] += result->elements[k];
    bench_close(&bench);
}

/* A rule or an output that none of them checked, or NULL. */
static const char *not_looked_at(void) {
    for (int i = 0; i < looked.rule_count; i++)
        if (looked.applied[i] == 0)
            return looked.rules[i]->name;
    for (int i = 0; looked.pass && i < looked.pass->tensors->count; i++) {
        const struct smelt__tensor_row *row = &looked.pass->tensors->rows[i];
        if (row->role != SMELT__INPUT && looked.elements[i] == 0)
            return row->name;
    }
    return NULL;
}

/* Up to SEEDS seeds are tried until every rule is checked and every output is produced. */
static void kinds_of(const struct compared_pass *passes, int count) {
    enum { SEEDS = 8 };
    for (const struct compared_pass *about = passes; about < passes + count; about++) {
        looked = (struct looked){0};
        for (uint64_t more = 0; more < SEEDS && (more == 0 || not_looked_at()); more++)
            for (int i = 0; i < about->spec_count; i++) {
                struct smelt__problem_options options = {.seed = seed + more};
                for (int kind = 0; smelt__options_kind(about->op, kind, &options); kind++) {
                    look_at_kind(about, about->specs[i], options, kind);
                    options = (struct smelt__problem_options){.seed = seed + more};
                }
            }
        if (not_looked_at())
            fail_msg("%s, seed %llu: what check tries by itself never looks at %s", about->op->name,
                     (unsigned long long)seed, not_looked_at());
    }
}

static void kinds(void **state) {
    (void)state;
    compared_each(folder, only, kinds_of);
}

/* `check` prints a kind's name and the options that it adds: no two kinds of an operator look the same. */
static void kinds_differ(const struct compared_pass *passes, int count) {
    enum { MOST = 16 };
    for (const struct compared_pass *about = passes; about < passes + count; about++) {
        const struct smelt__problem_options given = {.seed = seed};
        char texts[MOST][128];
        struct smelt__problem_options options = given;
        for (int kind = 0; smelt__options_kind(about->op, kind, &options); kind++) {
            assert_in_range(kind, 0, MOST - 1);
            smelt__problem_inputs(about->specs[0], &given, &options, texts[kind],
                                  sizeof texts[kind]);
            for (int other = 0; other < kind; other++)
                assert_string_not_equal(texts[kind], texts[other]);
            options = given;
        }
    }
}

static void names(void **state) {
    (void)state;
    compared_each(folder, only, kinds_differ);
}

int main(int count, char **arguments) {
    const char *given = getenv("SMELT_TEST_SEED");
    const struct CMUnitTest tests[] = {cmocka_unit_test(kinds), cmocka_unit_test(names)};
    if (count < 2)
        return 2;
    folder = arguments[1];
    only = count > 2 ? arguments[2] : NULL;
    seed = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
    print_message("SMELT_TEST_SEED=%llu\n", (unsigned long long)seed);
    return cmocka_run_group_tests_name("kinds", tests, compared_begin, compared_end);
}
