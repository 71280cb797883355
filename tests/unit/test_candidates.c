/* Tuning candidates. */

#include "codegen/candidates.h"
#include "codegen/families/sparse_attn_fwd.h"
#include "codegen/family.h"
#include "codegen/template/engine.h"
#include "random_spec.h"
#include "test.h"

static const struct smelt__arch *arch_of(const char *name) {
    struct smelt__message message;
    return smelt__arch_find(name, &message);
}

static struct smelt__spec parse(const char *text) {
    struct smelt__message message = {0};
    struct smelt__spec spec;
    if (smelt__spec_parse(text, &spec, &message))
        fail_msg("%s", message.text);
    return spec;
}

/* The source without its banner. */
static const char *body_of(struct smelt__text *text) {
    const char *end = strstr(text->data, "*/");
    assert_non_null(end);
    return end;
}

static void emit(const struct smelt__spec *spec, const struct smelt__arch *arch,
                 struct smelt__text *text) {
    struct smelt__message message = {0};
    struct smelt__plan plan;
    if (smelt__plan_make(spec, arch, &plan, &message) ||
        smelt__source_emit(&plan, NULL, text, &message))
        fail_msg("%s", message.text);
}

/* Each candidate has a plan; no two give the same source; every named knob has an effect; the
 * rule's plan is first. */
static void check_list(const struct smelt__spec *spec, const struct smelt__arch *arch,
                       const struct smelt__candidates *list) {
    char asked[SMELT__SPEC_TEXT], first[SMELT__SPEC_TEXT];
    struct smelt__text sources[1024] = {{0}};
    assert_in_range(list->count, 1, 1024);
    smelt__spec_print(spec, asked);
    smelt__spec_print(&list->list[0].spec, first);
    assert_string_equal(asked, first);
    for (int i = 0; i < list->count; i++) {
        emit(&list->list[i].spec, arch, &sources[i]);
        assert_true(i == 0 || list->list[i].distance >= list->list[i - 1].distance);
        for (int j = 0; j < i; j++)
            assert_string_not_equal(body_of(&sources[i]), body_of(&sources[j]));
        struct smelt__plan plan, rule;
        struct smelt__message message;
        assert_int_equal(smelt__plan_make(spec, arch, &rule, &message), 0);
        assert_int_equal(smelt__plan_make(&list->list[i].spec, arch, &plan, &message), 0);
        assert_true(strcmp(plan.variant, rule.variant) == 0 ||
                    smelt__spec_get(&list->list[i].spec, "variant") != SMELT__AUTO);
        for (int k = 0; k < spec->schema->key_count; k++)
            if (spec->values[k] != SMELT__AUTO)
                assert_int_equal(list->list[i].spec.values[k], spec->values[k]);
    }
    for (int i = 0; i < list->count; i++)
        smelt__text_free(&sources[i]);
}

static void find(const struct smelt__spec *spec, const struct smelt__arch *arch, const char *knobs,
                 struct smelt__candidates *list) {
    struct smelt__message message = {0};
    if (smelt__candidates_find(spec, arch, knobs, list, &message))
        fail_msg("%s", message.text);
}

TEST(lists) {
    static const struct {
        const char *spec, *arch;
        int least;
    } cases[] = {
        {"sparse_attn_fwd:heads=64,dqk=576,dv=512,topk=2048", "sm_90a", 20},
        {"sparse_attn_fwd:heads=64,dqk=512,dv=512,topk=640,sink=1", "sm_90a", 20},
        {"sparse_attn_fwd:heads=16,dqk=576,dv=512,topk=512", "sm_90a", 20},
        {"sparse_attn_fwd:heads=16,dqk=128,dv=64,topk=512", "sm_86", 10},
        {"sparse_attn_fwd:heads=64,dqk=576,dv=512,topk=2048,variant=sm90,stages=3", "sm_90a", 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct smelt__spec spec = parse(cases[i].spec);
        struct smelt__candidates list;
        struct timespec begin, end;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        find(&spec, arch_of(cases[i].arch), NULL, &list);
        clock_gettime(CLOCK_MONOTONIC, &end);
        printf("%s on %s: %d in %.0f ms\n", cases[i].spec, cases[i].arch, list.count,
               1e3 * (double)(end.tv_sec - begin.tv_sec) +
                   1e-6 * (double)(end.tv_nsec - begin.tv_nsec));
        assert_true(list.count >= cases[i].least);
        check_list(&spec, arch_of(cases[i].arch), &list);
        smelt__candidates_free(&list);
    }
}

TEST(of_any_spec) {
    struct random random = random_begin("of_any_spec");
    for (int i = 0; i < 12; i++) {
        struct smelt__spec spec = random_spec(&random, random_kernel(&random));
        struct smelt__candidates list;
        struct smelt__message message;
        const struct smelt__arch *arch = smelt__arch_at(random_below(&random, 16));
        if (smelt__candidates_find(&spec, arch, NULL, &list, &message))
            continue; /* its own knobs have no plan */
        check_list(&spec, arch, &list);
        smelt__candidates_free(&list);
    }
}

TEST(named_knobs) {
    struct smelt__spec spec = parse("sparse_attn_fwd:heads=64,dqk=576,dv=512,topk=2048");
    struct smelt__candidates list;
    struct smelt__message message = {0};
    find(&spec, arch_of("sm_90a"), "pv_overlap", &list);
    assert_int_equal(list.count, 4); /* 10 is the rule's */
    check_list(&spec, arch_of("sm_90a"), &list);
    smelt__candidates_free(&list);
    find(&spec, arch_of("sm_90a"), "", &list);
    assert_int_equal(list.count, 1);
    smelt__candidates_free(&list);
    /* compact has candidates only if it is named. */
    find(&spec, arch_of("sm_80"), "compact,stages", &list);
    int without = 0;
    for (int i = 0; i < list.count; i++)
        without += smelt__spec_get(&list.list[i].spec, "compact") == 0;
    assert_true(without > 0);
    smelt__candidates_free(&list);
    static const char *const bad[] = {"turn", "heads", "stages,,pv_overlap", "stages=2", ","};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(smelt__candidates_find(&spec, arch_of("sm_90a"), bad[i], &list, &message),
                         -1);
        assert_true(strlen(message.text) > 10);
        assert_null(list.list);
    }
    spec = parse("sparse_attn_fwd:heads=64,dqk=576,dv=512,topk=2048,stages=4,variant=sm90");
    assert_int_equal(smelt__candidates_find(&spec, arch_of("sm_90a"), NULL, &list, &message), -1);
}

TESTS("candidates")
