/* Presets: the specs of each model, and how tensor parallelism divides them. */

#include "codegen/family.h"
#include "codegen/preset.h"
#include "test.h"

TEST(table) {
    static const struct {
        const char *name;
        int tp;
        const char *spec;
    } cases[] = {
        {"glm-5.2", 1, "sparse_attn:heads=64,dqk=576,dv=512,topk=2048"},
        {"glm-5.2", 8, "sparse_attn:heads=8,dqk=576,dv=512,topk=2048"},
        {"glm-5.2", 64, "sparse_attn:heads=1,dqk=576,dv=512,topk=2048"},
        {"glm-5.3-flash", 2, "sparse_attn:heads=32,dqk=512,dv=512,topk=2176"},
        {"deepseek-v3.2", 1, "sparse_attn:heads=128,dqk=576,dv=512,topk=2048"},
        {"deepseek-v4-flash", 4, "sparse_attn:heads=16,dqk=512,dv=512,topk=640,sink=1"},
        {"deepseek-v4-pro", 1, "sparse_attn:heads=128,dqk=512,dv=512,topk=1152,sink=1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct smelt__spec specs[SMELT__MAX_PRESET_SPECS];
        struct smelt__message message = {0};
        char text[SMELT__SPEC_TEXT];
        /* sparse_attn, plain and with buckets, comes first. */
        assert_true(smelt__preset_expand(cases[i].name, cases[i].tp, 0, specs, &message) >= 2);
        smelt__spec_print(&specs[0], text);
        assert_int_equal(strncmp(text, cases[i].spec, strlen(cases[i].spec)), 0);
        assert_string_equal(text + strlen(cases[i].spec), ",passes=both");
        smelt__spec_print(&specs[1], text);
        assert_int_equal(strncmp(text, cases[i].spec, strlen(cases[i].spec)), 0);
        assert_string_equal(text + strlen(cases[i].spec), ",buckets=auto,passes=both");
        assert_int_equal(smelt__spec_check(&specs[0], &message), 0);
    }
}

/* An operator without the requested passes is omitted; the default is all passes. */
TEST(passes) {
    struct smelt__spec specs[SMELT__MAX_PRESET_SPECS];
    struct smelt__message message = {0};
    int all = smelt__preset_expand("glm-5.2", 1, 0, specs, &message);
    int forward = smelt__preset_expand("glm-5.2", 1, SMELT__FORWARD, specs, &message);
    assert_true(all >= 3 && forward >= 3 && forward <= all); /* includes the operators that select
                                                                keys */
    for (int i = 0; i < forward; i++) {
        assert_int_equal(smelt__spec_passes(&specs[i]), SMELT__FORWARD);
        assert_int_equal(smelt__operator_of(specs[i].schema)->training, 0);
    }
    all = smelt__preset_expand("glm-5.2", 1, SMELT__BACKWARD, specs, &message);
    for (int i = 0; i < all; i++)
        assert_true(smelt__spec_passes(&specs[i]) == SMELT__BACKWARD ||
                    smelt__operator_of(specs[i].schema)->training);
}

/* The operators that train the indexer are included with all passes and with the backward pass, not
 * with the forward pass. */
TEST(training) {
    static const struct {
        unsigned passes;
        int found;
    } cases[] = {{0, 1}, {SMELT__FORWARD, 0}, {SMELT__BACKWARD, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct smelt__spec specs[SMELT__MAX_PRESET_SPECS];
        struct smelt__message message = {0};
        const int count =
            smelt__preset_expand("deepseek-v4-pro", 4, cases[i].passes, specs, &message);
        int found = 0;
        for (int k = 0; k < count; k++) {
            char text[SMELT__SPEC_TEXT];
            smelt__spec_print(&specs[k], text);
            found += strcmp(text, "indexer_loss:topk=1024") == 0;
        }
        assert_int_equal(found, cases[i].found);
    }
}

/* A rank's groups have its own heads; without groups every rank has the whole indexer. */
TEST(groups) {
    static const struct {
        const char *name;
        int tp;
        const char *spec;
    } cases[] = {
        {"minimax-m3", 2,
         "indexer_dense_loss:heads=32,dqk=128,kv_heads=2,index_heads=2,index_dim=128,"
         "activation=none,groups=2,block_max=128"},
        {"minimax-m3", 8,
         "indexer_dense_loss:heads=8,dqk=128,index_heads=1,index_dim=128,activation=none,"
         "block_max=128"},
        {"glm-5.2", 8, "indexer_dense_loss:heads=8,dqk=576,index_heads=32,index_dim=128"},
        {"qwen3.8-flash-next", 4,
         "indexer_dense_loss:heads=6,dqk=256,index_heads=4,index_dim=128,granularity=4"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct smelt__spec specs[SMELT__MAX_PRESET_SPECS];
        struct smelt__message message = {0};
        const int count = smelt__preset_expand(cases[i].name, cases[i].tp, 0, specs, &message);
        int found = 0;
        for (int k = 0; k < count; k++) {
            char text[SMELT__SPEC_TEXT];
            smelt__spec_print(&specs[k], text);
            found += strcmp(text, cases[i].spec) == 0;
        }
        assert_int_equal(found, 1);
    }
}

TEST(names) {
    int count = 0;
    struct smelt__spec specs[SMELT__MAX_PRESET_SPECS];
    struct smelt__message message;
    for (; smelt__preset_at(count); count++)
        assert_true(smelt__preset_expand(smelt__preset_at(count), 1, 0, specs, &message) > 0);
    assert_int_equal(count, 8);
    assert_null(smelt__preset_at(-1));
}

TEST(bad_input) {
    static const struct {
        const char *name;
        int tp;
        const char *part;
    } cases[] = {
        {"glm-5.2", 0, "glm-5.2: tp=0 is not legal; legal: a divisor of its 64 heads"},
        {"glm-5.2", -1, "tp=-1 is not legal"},
        {"glm-5.2", 3, "tp=3 is not legal"},
        {"glm-5.2", 128, "tp=128 is not legal"},
        {"glm5.2", 1, "unknown preset 'glm5.2', did you mean glm-5.2?"},
        {"", 1, "unknown preset ''; known: glm-5.2, glm-5.3-flash"},
        {"llama", 1, "unknown preset 'llama'; known:"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct smelt__spec specs[SMELT__MAX_PRESET_SPECS];
        struct smelt__message message = {0};
        assert_int_equal(smelt__preset_expand(cases[i].name, cases[i].tp, 0, specs, &message), -1);
        assert_says(message.text, cases[i].part, cases[i].name);
    }
}

TESTS("preset")
