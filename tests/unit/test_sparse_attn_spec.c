/* The spec of sparse_attn as a struct: as text and back, what is refused, what is supported. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "smelt/context.h"
#include "smelt/sparse_attn.h"
#include "smelt/status.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Where a result was never written. */
static char untouched[1];

#define SPEC(heads_, dqk_, dv_, topk_, sink_, knobs_, ...)                                         \
    {                                                                                              \
        .size = sizeof(smelt_sparse_attn_spec), .heads = heads_, .dqk = dqk_, .dv = dv_,           \
        .topk = topk_, .sink = sink_, .knobs = knobs_, .buckets = {                                \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

static const smelt_sparse_attn_spec glm = SPEC(64, 576, 512, 2048, 0, NULL, 0);

static void spec_print(void **state) {
    (void)state;
    smelt_sparse_attn_spec spec = glm;
    char *text;
    assert_int_equal(smelt_sparse_attn_spec_print(&spec, &text), SMELT_OK);
    assert_string_equal(text, "sparse_attn:heads=64,dqk=576,dv=512,topk=2048");
    smelt_free(text);
    spec.sink = 1, spec.knobs = "stages=3,block_keys=32";
    assert_int_equal(smelt_sparse_attn_spec_print(&spec, &text), SMELT_OK);
    assert_string_equal(
        text, "sparse_attn:heads=64,dqk=576,dv=512,topk=2048,sink=1,block_keys=32,stages=3");
    smelt_free(text);
    spec.buckets[0] = 512, spec.buckets[1] = 1024;
    assert_int_equal(smelt_sparse_attn_spec_print(&spec, &text), SMELT_OK);
    assert_string_equal(text, "sparse_attn:heads=64,dqk=576,dv=512,topk=2048,sink=1,"
                              "buckets=512/1024,block_keys=32,stages=3");
    smelt_free(text);
    spec.buckets[0] = SMELT_BUCKETS_AUTO, spec.buckets[1] = 0, spec.knobs = NULL;
    assert_int_equal(smelt_sparse_attn_spec_print(&spec, &text), SMELT_OK);
    assert_string_equal(text, "sparse_attn:heads=64,dqk=576,dv=512,topk=2048,sink=1,buckets=auto");
    smelt_free(text);
    spec.buckets[0] = 0;
    spec.sink = 0, spec.knobs = "";
    assert_int_equal(smelt_sparse_attn_spec_print(&spec, &text), SMELT_OK);
    assert_string_equal(text, "sparse_attn:heads=64,dqk=576,dv=512,topk=2048");
    smelt_free(text);
}

static void spec_refusals(void **state) {
    (void)state;
    static const struct {
        smelt_sparse_attn_spec spec;
        smelt_status status;
        const char *message;
    } cases[] = {
        {{0}, SMELT_ERROR_INVALID_ARGUMENT, "spec.size is 0"},
        {SPEC(0, 576, 512, 2048, 0, NULL, 0), SMELT_ERROR_INVALID_SPEC, "heads=0"},
        {SPEC(-64, 576, 512, 2048, 0, NULL, 0), SMELT_ERROR_INVALID_SPEC, "heads=-64"},
        {SPEC(129, 576, 512, 2048, 0, NULL, 0), SMELT_ERROR_INVALID_SPEC, "heads=129"},
        {SPEC(64, 512, 576, 2048, 0, NULL, 0), SMELT_ERROR_INVALID_SPEC, "dv=576"},
        {SPEC(64, 520, 512, 2048, 0, NULL, 0), SMELT_ERROR_INVALID_SPEC, "dqk=520"},
        {SPEC(64, 576, 512, 0, 0, NULL, 0), SMELT_ERROR_INVALID_SPEC, "topk=0"},
        {SPEC(64, 576, 512, 2048, 2, NULL, 0), SMELT_ERROR_INVALID_SPEC, "sink=2"},
        {SPEC(64, 576, 512, 2048, 0, NULL, -2), SMELT_ERROR_INVALID_SPEC, "entry 1, -2"},
        {SPEC(64, 576, 512, 2048, 0, NULL, 512, 512), SMELT_ERROR_INVALID_SPEC,
         "entry 2, 512, is the same as entry 1"},
        {SPEC(64, 576, 512, 2048, 0, NULL, 512, 256), SMELT_ERROR_INVALID_SPEC,
         "buckets: entry 2, 256, is below entry 1, 512"},
        {SPEC(64, 576, 512, 2048, 0, NULL, 512, 0, 1024), SMELT_ERROR_INVALID_SPEC,
         "buckets[2] = 1024 stands behind the list's end, the 0 at [1]"},
        {SPEC(64, 576, 512, 2048, 0, NULL, -1, 512), SMELT_ERROR_INVALID_SPEC,
         "buckets[1] = 512 stands behind the list's end, SMELT_BUCKETS_AUTO"},
        {SPEC(64, 576, 512, 2048, 0, NULL, 1, 2, 3, 4, 5, 6, 7, 1 << 21), SMELT_ERROR_INVALID_SPEC,
         "entry 8, 2097152, is out of range"},
        {SPEC(64, 576, 512, 2048, 0, NULL, 0, 512), SMELT_ERROR_INVALID_SPEC,
         "buckets[1] = 512 stands behind"},
        {SPEC(64, 576, 512, 2048, 0, "stages=9", 0), SMELT_ERROR_INVALID_SPEC, "stages"},
        {SPEC(64, 576, 512, 2048, 0, "stage=2", 0), SMELT_ERROR_INVALID_SPEC, "stages"},
        {SPEC(64, 576, 512, 2048, 0, "heads=8", 0), SMELT_ERROR_INVALID_SPEC, "heads"},
        {SPEC(64, 576, 512, 2048, 0, "stages", 0), SMELT_ERROR_INVALID_SPEC, "stages"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char *text = untouched;
        smelt_status status = smelt_sparse_attn_spec_print(&cases[i].spec, &text);
        if (status != cases[i].status || !strstr(smelt_last_error(), cases[i].message))
            fail_msg("case %zu: expected '%s', got status %d '%s'", i, cases[i].message,
                     (int)status, smelt_last_error());
        assert_null(text);
    }
    char *text;
    assert_int_equal(smelt_sparse_attn_spec_print(NULL, &text), SMELT_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(smelt_last_error(), "spec is NULL"));
    assert_int_equal(smelt_sparse_attn_spec_print(&glm, NULL), SMELT_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(smelt_last_error(), "text is NULL"));
}

static void spec_parse(void **state) {
    (void)state;
    static const char text[] =
        "sparse_attn:stages=3,heads=8,dqk=128,dv=64,buckets=2/3,topk=7,sink=1,warps=4";
    smelt_sparse_attn_spec spec = SMELT_SPARSE_ATTN_SPEC_INIT;
    char *knobs, *again;
    assert_int_equal(smelt_sparse_attn_spec_parse(text, &spec, &knobs), SMELT_OK);
    assert_int_equal(spec.heads, 8);
    assert_int_equal(spec.dqk, 128);
    assert_int_equal(spec.dv, 64);
    assert_int_equal(spec.topk, 7);
    assert_int_equal(spec.sink, 1);
    assert_string_equal(knobs, "stages=3,warps=4");
    assert_ptr_equal(spec.knobs, knobs);
    assert_int_equal(smelt_sparse_attn_spec_print(&spec, &again), SMELT_OK);
    assert_string_equal(again, "sparse_attn:heads=8,dqk=128,dv=64,topk=7,sink=1,buckets=2/3,"
                               "stages=3,warps=4");
    assert_int_equal(spec.buckets[0], 2);
    assert_int_equal(spec.buckets[1], 3);
    assert_int_equal(spec.buckets[2], 0);
    smelt_free(again);
    smelt_free(knobs);
    assert_int_equal(smelt_sparse_attn_spec_parse(text, &spec, NULL), SMELT_OK);
    assert_null(spec.knobs);
    assert_int_equal(
        smelt_sparse_attn_spec_parse("sparse_attn:heads=8,dqk=64,dv=64,topk=7", &spec, &knobs),
        SMELT_OK);
    assert_null(knobs);
}

static void spec_parse_refusals(void **state) {
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", ""},
        {"sparse_attn", "heads is missing"},
        {"sparse_atn:heads=8,dqk=64,dv=64,topk=7", "sparse_attn"},
        {"sparse_attn:heads=8,dqk=64,dv=64", "topk"},
        {"sparse_attn:heads=8,dqk=64,dv=64,topk=x", "topk"},
        {"sparse_attn_fwd:heads=8,dqk=64,dv=64,topk=7", "sparse_attn_fwd is no sparse_attn"},
    };
    smelt_sparse_attn_spec spec = glm;
    for (size_t i = 0; i < COUNT(cases); i++) {
        char *knobs = untouched;
        assert_int_equal(smelt_sparse_attn_spec_parse(cases[i].text, &spec, &knobs),
                         SMELT_ERROR_INVALID_SPEC);
        if (!strstr(smelt_last_error(), cases[i].message))
            fail_msg("expected '%s', got '%s'", cases[i].message, smelt_last_error());
        assert_null(knobs);
    }
    assert_int_equal(spec.heads, glm.heads); /* untouched by failures */
    assert_int_equal(spec.topk, glm.topk);
    assert_null(spec.knobs);
    assert_int_equal(smelt_sparse_attn_spec_parse(NULL, &spec, NULL), SMELT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(smelt_sparse_attn_spec_parse("sparse_attn:heads=8", NULL, NULL),
                     SMELT_ERROR_INVALID_ARGUMENT);
    spec.size = 0;
    assert_int_equal(
        smelt_sparse_attn_spec_parse("sparse_attn:heads=8,dqk=64,dv=64,topk=7", &spec, NULL),
        SMELT_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(smelt_last_error(), "spec.size is 0"));
}

static void supported(void **state) {
    (void)state;
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    options.kind = SMELT_CONTEXT_COMPILE_ONLY;
    options.arch = "sm_90a";
    options.cache_disable = 1;
    smelt_context *context;
    assert_int_equal(smelt_context_create(&context, &options), SMELT_OK);
    smelt_sparse_attn_spec spec = glm;
    const char *why = NULL;
    assert_int_equal(smelt_sparse_attn_supported(context, &spec, &why), SMELT_OK);
    assert_string_equal(why, "");
    assert_int_equal(smelt_sparse_attn_supported(context, &spec, NULL), SMELT_OK);
    spec.knobs = "fwd.stages=4,fwd.block_keys=128"; /* more shared memory than there is */
    assert_int_equal(smelt_sparse_attn_supported(context, &spec, &why), SMELT_ERROR_UNSUPPORTED);
    assert_non_null(strstr(why, "shared memory"));
    spec.passes = SMELT_PASS_FORWARD, spec.knobs = "stages=4"; /* no bwd would take it */
    assert_int_equal(smelt_sparse_attn_supported(context, &spec, &why), SMELT_OK);
    spec.passes = SMELT_PASS_BACKWARD, spec.knobs = "stages=1"; /* nor a fwd this */
    assert_int_equal(smelt_sparse_attn_supported(context, &spec, &why), SMELT_OK);
    spec.passes |= SMELT_PASS_FORWARD;
    assert_int_equal(smelt_sparse_attn_supported(context, &spec, &why), SMELT_ERROR_INVALID_SPEC);
    assert_non_null(strstr(why, "only bwd accepts it, as bwd.stages=1"));
    spec.passes = 0, spec.knobs = NULL, spec.reserved = 5;
    assert_int_equal(smelt_sparse_attn_supported(context, &spec, &why), SMELT_ERROR_INVALID_SPEC);
    assert_non_null(strstr(why, "reserved = 5 is not legal; it must be 0"));
    spec.reserved = 0, spec.heads = 129;
    assert_int_equal(smelt_sparse_attn_supported(context, &spec, &why), SMELT_ERROR_INVALID_SPEC);
    assert_non_null(strstr(why, "heads=129"));
    assert_int_equal(smelt_sparse_attn_supported(NULL, &glm, &why), SMELT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(smelt_sparse_attn_supported(context, NULL, &why),
                     SMELT_ERROR_INVALID_ARGUMENT);

    smelt_sparse_attn *attn =
        (smelt_sparse_attn *)(void *)untouched; /* an operator needs a device */
    assert_int_equal(smelt_sparse_attn_create(&attn, context, &glm), SMELT_ERROR_NO_DEVICE);
    assert_null(attn);
    smelt_context_destroy(&context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spec_print), cmocka_unit_test(spec_refusals),
        cmocka_unit_test(spec_parse), cmocka_unit_test(spec_parse_refusals),
        cmocka_unit_test(supported),
    };
    return cmocka_run_group_tests_name("sparse_attn_spec", tests, NULL, NULL);
}
