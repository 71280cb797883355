/*
 * The harness's row of indexer_logits against the stand-in: what is right passes, and each defect
 * is caught, with windows of every kind and both element types.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "harness/check.h"
#include "stand_in_indexer_logits.h"

static smelt_context *context;

static int open_context(void **state) {
    (void)state;
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    return smelt_context_create(&context, &options) == SMELT_OK ? 0 : -1;
}

static int close_context(void **state) {
    (void)state;
    smelt_context_destroy(&context);
    return 0;
}

static int run(const char *dtype, enum smelt__lists lists, int strided,
               struct smelt__check_result *result) {
    char spec[64];
    snprintf(spec, sizeof spec, "indexer_logits:heads=3,dim=64,dtype=%s", dtype);
    const struct smelt__check_options options = {
        .spec = spec,
        .problem = {.seed = 5, .tokens = 24, .rows = 90, .lists = lists, .strided = strided},
        .sample = 24};
    return smelt__check_run(context, &options, result);
}

static void correct_passes(void **state) {
    (void)state;
    for (int lists = 0; lists < SMELT__LISTS_KINDS; lists++)
        for (int strided = 0; strided < 2; strided++) {
            struct smelt__check_result result;
            if (run("bf16", (enum smelt__lists)lists, strided, &result) != 0 ||
                run("fp8", (enum smelt__lists)lists, strided, &result) != 0)
                fail_msg("%s", result.message);
            assert_true(smelt__check_value(&result, "relative_error", "logits") < 1e-6);
        }
}

static void defects_are_caught(void **state) {
    (void)state;
    for (int defect = 1; defect < STAND_IN_LOGITS_DEFECTS; defect++) {
        struct smelt__check_result result;
        stand_in_logits_defect = (enum stand_in_logits_defect)defect;
        const char *dtype =
            defect == STAND_IN_LOGITS_COARSE ? "bf16" : "fp8"; /* fp8 may be coarse */
        const int status = run(dtype, SMELT__LISTS_ADVERSARIAL, 1, &result);
        stand_in_logits_defect = STAND_IN_LOGITS_CORRECT;
        if (status == 0)
            fail_msg("defect %d was not caught", defect);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(correct_passes),
                                       cmocka_unit_test(defects_are_caught)};
    return cmocka_run_group_tests_name("indexer_logits in the harness", tests, open_context,
                                       close_context);
}
