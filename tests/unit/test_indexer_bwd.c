/* Specs of indexer_bwd, their expansions, and its main kernel's plans. */
#include "codegen/families/indexer_bwd.h"
#include "codegen/preset.h"
#include "smelt/indexer_bwd.h"
#include "smelt/smelt.h"
#include "spec_cases.h"
#include "test.h"

TEST(specs) {
    static const struct spec_case cases[] = {
        {"indexer_bwd:topk=2048,dim=128,heads=64", "indexer_bwd:heads=64,dim=128,topk=2048", NULL},
        {"indexer_bwd:heads=1,dim=64,topk=1,deterministic=1,stages=3",
         "indexer_bwd:heads=1,dim=64,topk=1,deterministic=1,stages=3", NULL},
        {"indexer_bwd:heads=64,dim=128", NULL, "topk"},
        {"indexer_bwd:heads=129,dim=128,topk=5", NULL, "1..128"},
        {"indexer_bwd:heads=64,dim=96,topk=5", NULL, "legal: 32, 64, 128"},
        {"indexer_bwd:heads=64,dim=128,topk=5,deterministic=2", NULL, "0, 1"},
        {"indexer_bwd:heads=64,dim=128,topk=5,passes=backward", NULL, "passes"},
        {"indexer_bwd:heads=64,dim=128,topk=5,group=3", NULL, "1, 2, 4, 8"},
        {"indexer_bwd:heads=64,dim=128,topk=5,deterministic=1,exact_groups=7",
         "indexer_bwd:heads=64,dim=128,topk=5,deterministic=1,exact_groups=7", NULL},
        {"indexer_bwd:heads=64,dim=128,topk=5,deterministic=1,exact_groups=0", NULL, "1..2097152"},
        {"indexer_bwd:heads=64,dim=128,topk=5,exact_groups=7", NULL, "deterministic=1"},
    };
    check_specs(cases, sizeof cases / sizeof *cases);
}

/* The order of launches; only deterministic mode has kernels that find grains. */
TEST(expansions) {
    static const char *const plain[] = {"indexer_bwd_lists", "indexer_bwd_main",
                                        "key_grads_finish"};
    static const char *const exact[] = {"indexer_bwd_lists", "key_grads_grains", "key_grads_grains",
                                        "key_grads_grains",  "indexer_bwd_main", "key_grads_grains",
                                        "key_grads_finish"};
    for (int deterministic = 0; deterministic < 2; deterministic++) {
        struct smelt__expansion expansion;
        struct smelt__message message;
        struct smelt__spec spec;
        const char *const *const names = deterministic ? exact : plain;
        assert_int_equal(smelt__spec_parse(deterministic
                                               ? "indexer_bwd:heads=9,dim=64,topk=5,deterministic=1"
                                               : "indexer_bwd:heads=9,dim=64,topk=5",
                                           &spec, &message),
                         0);
        assert_int_equal(smelt__spec_passes(&spec), SMELT__BACKWARD);
        assert_int_equal(smelt__spec_expand(&spec, &expansion, &message), 0);
        assert_int_equal(expansion.count, deterministic ? 7 : 3);
        for (int i = 0; i < expansion.count; i++) {
            assert_string_equal(expansion.kernels[i].schema->name, names[i]);
            assert_int_equal(expansion.pass[i], SMELT__BACKWARD);
        }
    }
}

/* Inference does not need it. */
TEST(presets_have_it_for_training) {
    for (int training = 0; training < 2; training++) {
        static struct smelt__spec all[SMELT__MAX_PRESET_SPECS];
        struct smelt__message message;
        const int count = smelt__preset_expand(
            "glm-5.2", 1, training ? SMELT__BACKWARD : SMELT__FORWARD, all, &message);
        int found = 0;
        for (int i = 0; i < count; i++)
            found += all[i].schema == &smelt__indexer_bwd.schema;
        assert_int_equal(found, training);
    }
}

/* With few heads, neighbouring queries share tiles, with both variants. */
TEST(few_heads_share_tiles) {
    static const struct {
        const char *text, *arch;
        int group, tiles;
    } cases[] = {
        {"indexer_bwd_main:heads=64,dim=128", "sm_90a", 2, 2},
        {"indexer_bwd_main:heads=128,dim=128", "sm_90a", 1, 1},
        {"indexer_bwd_main:heads=16,dim=64", "sm_90a", 8, 2},
        {"indexer_bwd_main:heads=64,dim=128", "sm_80", 1, 1},
        {"indexer_bwd_main:heads=17,dim=128", "sm_80", 2, 1},
        {"indexer_bwd_main:heads=3,dim=128,deterministic=1", "sm_80", 4, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct smelt__plan plan;
        struct smelt__message message;
        assert_int_equal(make_plan(cases[i].text, cases[i].arch, &plan, &message), 0);
        assert_int_equal(smelt__plan_constant(&plan, "GROUP_QUERIES", NULL), cases[i].group);
        assert_int_equal(smelt__plan_constant(&plan, "GROUP_TILES", NULL), cases[i].tiles);
        assert_int_equal(smelt__plan_constant(&plan, "BLOCK_HEADS", NULL),
                         cases[i].group * smelt__plan_constant(&plan, "QUERY_ROWS", NULL));
        assert_int_equal(plan.persistent, 1);
    }
}

TEST(refusals) {
    static const struct plan_case cases[] = {
        {"indexer_bwd_main:heads=64,dim=128,group=4,variant=mma", "sm_80", "at most 2 of them"},
        {"indexer_bwd_main:heads=64,dim=128,blocks=4,variant=mma", "sm_90a",
         "shared memory per block"},
        {"indexer_bwd_main:heads=64,dim=128,variant=sm90", "sm_80", "use variant=mma"},
    };
    check_plans(cases, sizeof cases / sizeof *cases);
}

TESTS("indexer_bwd")
