/* The core of tune with the stand-in, whose launches take given times. */

#include "../unit/test.h"
#include "harness/tune.h"
#include "stand_in.h"

#define OPERATOR "sparse_attn:heads=4,dqk=128,dv=64,topk=24"

enum { MOST = 16, LAUNCHES = 8 };

static smelt_context *context;
static struct smelt__tune_candidate candidates[MOST];
static int launches; /* of all candidates */
static uint64_t random_state;

static int set_up(void **state) {
    (void)state;
    launches = 0;
    random_state = 1;
    stand_in_ms = NULL;
    stand_in_defect = STAND_IN_CORRECT;
    stand_in_defect_knobs = NULL;
    return smelt_context_create(&context, NULL) == SMELT_OK ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    smelt_context_destroy(&context);
    return 0;
}

/* The rule's plan and `count` - 1 others, pv_overlap=1, pv_overlap=2, ... */
static void make(int count) {
    memset(candidates, 0, sizeof candidates);
    for (int i = 0; i < count; i++)
        snprintf(candidates[i].spec, sizeof candidates[i].spec,
                 i ? OPERATOR ",pv_overlap=%d" : OPERATOR, i);
}

static struct smelt__tune_result race(int count) {
    const struct smelt__problem_options problem = {.tokens = 2, .rows = 30};
    struct smelt__tune_result result;
    smelt__tune_race(context, 0, &problem, candidates, count, LAUNCHES, &result);
    return result;
}

static int number_of(const char *knobs) {
    return *knobs ? atoi(strchr(knobs, '=') + 1) : 0;
}

/* -1 to 1, the same in every run. */
static double noise(void) {
    random_state = random_state * 6364136223846793005U + 1442695040888963407U;
    return (double)(random_state >> 40) / (double)(1 << 23) - 1;
}

/* ---- who wins ---- */

/* Candidate 3 takes 0.9 ms, the others 1 ms or more, within a percent. */
static double one_is_faster(const char *knobs) {
    const int number = number_of(knobs);
    launches++;
    return (number == 3 ? 0.9 : 1 + 0.01 * number) * (1 + 0.01 * noise());
}

TEST(the_fastest_wins) {
    make(10);
    stand_in_ms = one_is_faster;
    struct smelt__tune_result result = race(10);
    assert_int_equal(result.status, SMELT_OK);
    assert_int_equal(result.best, 3);
    assert_in_range((int)candidates[3].us, 890, 910);
    assert_in_range((int)result.rule_us, 990, 1010);
    assert_true(result.noise_us > 0 && result.noise_us < 20);
    assert_int_equal(result.queries, 2);
    assert_int_equal(result.rows, 30);
    int finalists = 0;
    for (int i = 1; i < 10; i++) {
        assert_true(candidates[i].quick_us > 800);
        finalists += candidates[i].us > 0;
    }
    assert_int_equal(finalists, SMELT__TUNE_FINALISTS);
    /* Without warm-up rounds: seven of each, then the finalists and the rule's plan four times. */
    assert_int_equal(launches, 10 * (2 + SMELT__TUNE_QUICK) +
                                   (SMELT__TUNE_FINALISTS + SMELT__TUNE_REPEATS) * (2 + LAUNCHES));
}

static double one_is_hardly_faster(const char *knobs) {
    return (number_of(knobs) == 3 ? 0.995 : 1) * (1 + 0.02 * noise());
}

/* A gain of 0.5 % with noise of 2 % is not enough. */
TEST(less_than_the_noise) {
    int victories = 0;
    stand_in_ms = one_is_hardly_faster;
    for (int i = 0; i < 40; i++) {
        make(4);
        struct smelt__tune_result result = race(4);
        assert_true(result.noise_us > 0);
        victories += result.best != 0;
    }
    assert_true(victories <= 2);
}

/* A GPU that becomes slower over time affects all candidates equally. */
static double slower_and_slower(const char *knobs) {
    return (number_of(knobs) == 3 ? 0.9 : 1) * (1 + 0.002 * launches++);
}

TEST(drift) {
    make(5);
    stand_in_ms = slower_and_slower;
    struct smelt__tune_result result = race(5);
    assert_int_equal(result.best, 3);
    assert_true(result.noise_us < 0.05 * result.rule_us);
}

TEST(the_rule_alone) {
    make(1);
    struct smelt__tune_result result = race(1);
    assert_int_equal(result.status, SMELT_OK);
    assert_int_equal(result.best, 0);
    assert_true(result.rule_us > 499 && result.rule_us < 501);
}

/* ---- who takes no part ---- */

TEST(wrong_results) {
    static const enum stand_in_defect defects[] = {STAND_IN_DROPS_LAST_SLOT, STAND_IN_LSE_BASE_2};
    for (size_t i = 0; i < sizeof defects / sizeof defects[0]; i++) {
        make(5);
        stand_in_defect = defects[i];
        stand_in_defect_knobs = "pv_overlap=3";
        stand_in_ms = one_is_faster;
        for (int k = 0; k < 5; k++) {
            smelt__tune_check(context, &candidates[k], 0, 7);
            assert_int_equal(candidates[k].dropped, k == 3);
        }
        assert_non_null(strstr(candidates[3].message, "check: "));
        struct smelt__tune_result result = race(5);
        assert_int_equal(result.status, SMELT_OK);
        assert_int_equal(result.best, 0);
        assert_true(candidates[3].quick_us <= 0);
    }
}

static double one_is_refused(const char *knobs) {
    return number_of(knobs) == 3 && launches++ > 5 ? -1 : 0.5;
}

static double the_rule_is_refused(const char *knobs) {
    return *knobs ? 0.5 : -1;
}

TEST(refused_launches) {
    make(5);
    stand_in_ms = one_is_refused;
    struct smelt__tune_result result = race(5);
    assert_int_equal(result.status, SMELT_OK);
    assert_int_equal(candidates[3].dropped, 1);
    assert_int_equal(candidates[3].status, SMELT_ERROR_DRIVER);
    assert_non_null(strstr(candidates[3].message, "launching it"));
    assert_int_equal(result.best, 0);
    make(5);
    stand_in_ms = the_rule_is_refused;
    result = race(5);
    assert_int_equal(result.status, SMELT_ERROR_DRIVER);
    assert_non_null(strstr(result.message, "the rule's plan"));
}

TESTS("tune", .setup = set_up, .teardown = tear_down)
