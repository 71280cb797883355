/* Specs of indexer_scores, and what its kernel's plan makes of shared memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "codegen/family.h"
#include "smelt/indexer_scores.h"
#include "smelt/smelt.h"

static void specs(void **state) {
    (void)state;
    static const struct {
        const char *text, *canonical; /* NULL: refused, */
        const char *part;             /* with this in the message */
    } cases[] = {
        {"indexer_scores:topk=2048,dim=128,heads=64", "indexer_scores:heads=64,dim=128,topk=2048",
         NULL},
        {"indexer_scores:heads=1,dim=64,topk=1,stages=3",
         "indexer_scores:heads=1,dim=64,topk=1,stages=3", NULL},
        {"indexer_scores:heads=64,dim=128", NULL, "topk"},
        {"indexer_scores:heads=64,dim=128,topk=0", NULL, "1..1048576"},
        {"indexer_scores:heads=129,dim=128,topk=5", NULL, "1..128"},
        {"indexer_scores:heads=64,dim=96,topk=5", NULL, "64, 128"},
        {"indexer_scores:heads=64,dim=128,topk=5,dtype=fp8", NULL, "dtype"},
        {"indexer_scores:heads=64,dim=128,topk=5,stages=9", NULL, "2..8"},
        {"indexer_scores:heads=64,dim=128,topk=5,warp_keys=24", NULL, "16, 32"},
        {"indexer_scores:heads=64,dim=128,topk=5,block_keys=96", NULL, "64, 128"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        smelt_indexer_scores_spec spec = SMELT_INDEXER_SCORES_SPEC_INIT;
        char *knobs = NULL, *text = NULL;
        const smelt_status status = smelt_indexer_scores_spec_parse(cases[i].text, &spec, &knobs);
        if (cases[i].canonical) {
            assert_int_equal(status, SMELT_OK);
            assert_int_equal(smelt_indexer_scores_spec_print(&spec, &text), SMELT_OK);
            assert_string_equal(text, cases[i].canonical);
        } else {
            assert_int_equal(status, SMELT_ERROR_INVALID_SPEC);
            assert_non_null(strstr(smelt_last_error(), cases[i].part));
        }
        smelt_free(text);
        smelt_free(knobs);
    }
}

/* 0, or -1 with a message. */
static int make_plan(const char *text, const char *arch, struct smelt__plan *plan,
                     struct smelt__message *message) {
    struct smelt__spec spec;
    assert_int_equal(smelt__spec_parse(text, &spec, message), 0);
    return smelt__plan_make(&spec, smelt__arch_find(arch, message), plan, message);
}

/* The rings take what the queries leave. */
static void stages_fill_shared_memory(void **state) {
    (void)state;
    static const char *const texts[] = {
        "indexer_scores_fwd:heads=128,dim=128", "indexer_scores_fwd:heads=64,dim=128",
        "indexer_scores_fwd:heads=64,dim=128,groups=2", "indexer_scores_fwd:heads=100,dim=128"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct smelt__plan plan;
        struct smelt__message message;
        const int block = 64 * 128 * 2; /* bytes */
        assert_int_equal(make_plan(texts[i], "sm_90a", &plan, &message), 0);
        assert_string_equal(plan.variant, "sm90");
        assert_true(plan.shared_bytes <= plan.arch->shared_per_block);
        assert_true(plan.shared_bytes + smelt__plan_constant(&plan, "GROUPS", NULL) * block >
                    plan.arch->shared_per_block);
    }
}

static void refusals(void **state) {
    (void)state;
    static const struct {
        const char *text, *arch, *part;
    } cases[] = {
        {"indexer_scores_fwd:heads=128,dim=128,stages=4", "sm_90a", "legal: 2..3"},
        {"indexer_scores_fwd:heads=65,dim=128,groups=4", "sm_90a", "legal: 2, 3"},
        {"indexer_scores_fwd:heads=64,dim=128,groups=4,block_keys=128", "sm_90a", "take fewer"},
        {"indexer_scores_fwd:heads=8,dim=64,variant=sm90", "sm_80", "variant=mma runs there"},
    };
    struct smelt__plan plan;
    struct smelt__message message;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(make_plan(cases[i].text, cases[i].arch, &plan, &message), -1);
        assert_non_null(strstr(message.text, cases[i].part));
    }
    assert_int_equal(make_plan("indexer_scores_fwd:heads=8,dim=64", "sm_80", &plan, &message), 0);
    assert_string_equal(plan.variant, "mma");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(specs),
        cmocka_unit_test(stages_fill_shared_memory),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests_name("indexer_scores", tests, NULL, NULL);
}
