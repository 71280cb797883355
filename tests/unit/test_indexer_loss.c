/* indexer_loss: its specs, and the numbers of threads and blocks for rows of each length. */

#include "smelt/indexer_loss.h"
#include "spec_cases.h"
#include "test.h"

TEST(specs) {
    static const struct spec_case cases[] = {
        {"indexer_loss:topk=2048", "indexer_loss:topk=2048", NULL},
        {"indexer_loss:blocks=3,topk=1048576", "indexer_loss:topk=1048576,blocks=3", NULL},
        {"indexer_loss:topk=5,rows.vectors=4", "indexer_loss:topk=5,rows.vectors=4", NULL},
        {"indexer_loss:topk=0", NULL, "legal: 1..1048576"},
        {"indexer_loss:topk=1048577", NULL, "legal: 1..1048576"},
        {"indexer_loss:vectors=1", NULL, "topk"},
        {"indexer_loss:topk=5,vectors=3", NULL, "1, 2, 4"},
        {"indexer_loss:topk=5,blocks=17", NULL, "1..16"},
        {"indexer_loss:topk=5,heads=3", NULL, "heads"},
    };
    check_specs(cases, sizeof cases / sizeof *cases);
}

/* Every slot of a row has a thread, with as few warps as possible; longer rows have several
 * parts. */
TEST(rows_fit) {
    for (int topk = 1; topk < 70000; topk += 1 + topk / 9) {
        struct smelt__plan plan;
        struct smelt__message message;
        char text[64];
        snprintf(text, sizeof text, "indexer_loss_rows:topk=%d", topk);
        assert_int_equal(make_plan(text, "sm_90a", &plan, &message), 0);
        const int vectors = smelt__plan_constant(&plan, "VECTORS", NULL);
        const int parts = smelt__plan_constant(&plan, "PARTS", NULL);
        const int part = plan.threads * vectors * 4, warp = 32 * vectors * 4;
        assert_true(parts * part >= topk && (parts - 1) * part < topk);
        assert_true(parts == 1 ? part - topk < warp : plan.threads == 1024);
        assert_true(topk > 16384 ? parts > 1 : parts == 1);
    }
}

/* Numbers of blocks that leave too few registers per thread, or that do not fit. */
TEST(blocks_are_refused) {
    static const struct plan_case cases[] = {
        {"indexer_loss_rows:topk=2048,blocks=5", "sm_90a", NULL},
        {"indexer_loss_rows:topk=2048,blocks=6", "sm_90a", "blocks="},
        {"indexer_loss_rows:topk=2048,vectors=1,blocks=3", "sm_90a", NULL},
        {"indexer_loss_rows:topk=2048,vectors=1,blocks=4", "sm_90a", "blocks="},
        {"indexer_loss_rows:topk=2048,vectors=4,blocks=8", "sm_90a", NULL},
        {"indexer_loss_rows:topk=2048,vectors=4,blocks=9", "sm_90a", "blocks="},
        {"indexer_loss_rows:topk=4096,vectors=1,blocks=2", "sm_86",
         "blocks="}, /* of 1536 threads */
    };
    check_plans(cases, sizeof cases / sizeof *cases);
}

TESTS("indexer_loss")
