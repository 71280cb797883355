/* Specs of indexer_scores, and the shared memory of its kernel's plan. */
#include "smelt/indexer_scores.h"
#include "smelt/smelt.h"
#include "spec_cases.h"
#include "test.h"

TEST(specs) {
    static const struct spec_case cases[] = {
        {"indexer_scores:topk=2048,dim=128,heads=64", "indexer_scores:heads=64,dim=128,topk=2048",
         NULL},
        {"indexer_scores:heads=1,dim=64,topk=1,stages=3",
         "indexer_scores:heads=1,dim=64,topk=1,stages=3", NULL},
        {"indexer_scores:heads=64,dim=128", NULL, "topk"},
        {"indexer_scores:heads=64,dim=128,topk=0", NULL, "1..1048576"},
        {"indexer_scores:heads=129,dim=128,topk=5", NULL, "1..128"},
        {"indexer_scores:heads=64,dim=96,topk=5", NULL, "legal: 32, 64, 128"},
        {"indexer_scores:heads=64,dim=128,topk=5,dtype=fp8", NULL, "dtype"},
        {"indexer_scores:heads=64,dim=128,topk=5,stages=9", NULL, "2..8"},
        {"indexer_scores:heads=64,dim=128,topk=5,warp_keys=24", NULL, "16, 32"},
        {"indexer_scores:heads=64,dim=128,topk=5,block_keys=96", NULL, "64, 128"},
        {"indexer_logits:heads=4,dim=64,dtype=bf16,candidate_block=4,block_max=4",
         "indexer_logits:heads=4,dim=64,dtype=bf16,block_max=4,candidate_block=4", NULL},
        {"indexer_logits:heads=4,dim=64,dtype=bf16,candidate_block=4,block_max=8", NULL,
         "block_max=8 exceeds candidate_block=4; listed blocks consist of whole blocks of "
         "block_max "
         "keys; legal: block_max up to 4"},
        {"indexer_topk:heads=4,dim=64,dtype=bf16,topk=5,candidate_block=1,block_max=2", NULL,
         "block_max=2 exceeds candidate_block=1"},
        {"indexer_scores_fwd:heads=4,dim=64,granularity=4,block_max=8", NULL,
         "block_max=8 exceeds granularity=4"},
    };
    check_specs(cases, sizeof cases / sizeof *cases);
}

/* The rings take the shared memory that the queries leave. */
TEST(stages_fill_shared_memory) {
    static const char *const texts[] = {
        "indexer_scores_fwd:heads=128,dim=128", "indexer_scores_fwd:heads=64,dim=128",
        "indexer_scores_fwd:heads=64,dim=128,warpgroups=2", "indexer_scores_fwd:heads=100,dim=128"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct smelt__plan plan;
        struct smelt__message message;
        const int block = 64 * 128 * 2; /* bytes */
        assert_int_equal(make_plan(texts[i], "sm_90a", &plan, &message), 0);
        assert_string_equal(plan.variant, "sm90");
        assert_true(plan.shared_bytes <= plan.arch->shared_per_block);
        assert_true(plan.shared_bytes + smelt__plan_constant(&plan, "WARPGROUPS", NULL) * block >
                    plan.arch->shared_per_block);
    }
}

TEST(refusals) {
    static const struct plan_case cases[] = {
        {"indexer_scores_fwd:heads=128,dim=128,stages=4", "sm_90a", "legal: 2..3"},
        {"indexer_scores_fwd:heads=65,dim=128,warpgroups=4", "sm_90a", "legal: 2, 3"},
        {"indexer_bwd_main:heads=64,dim=32,variant=sm90", "sm_90a",
         "variant sm90 has no dim=32; variant=mma has it"},
        {"indexer_scores_fwd:heads=4,dim=128,granularity=128,block_max=128,block_keys=64", "sm_90a",
         "block_keys=64 is below block_max=128; legal: 128"},
        {"indexer_scores_fwd:heads=64,dim=128,warpgroups=4,block_keys=128", "sm_90a", "use fewer"},
        {"indexer_scores_fwd:heads=8,dim=64,variant=sm90", "sm_80", "use variant=mma"},
    };
    check_plans(cases, sizeof cases / sizeof *cases);
    struct smelt__plan plan;
    struct smelt__message message;
    assert_int_equal(make_plan("indexer_scores_fwd:heads=8,dim=64", "sm_80", &plan, &message), 0);
    assert_string_equal(plan.variant, "mma");
}

TESTS("indexer_scores")
