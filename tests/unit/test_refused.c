/* Refused public calls: they give a reason, and set the caller's pointers that are passed to
 * smelt_free to NULL. */

#include "smelt/smelt.h"
#include "test.h"

static const char KERNEL[] = "indexer_windows_build";

static smelt_context *context;

static int make_context(void **unused) {
    (void)unused;
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    options.kind = SMELT_CONTEXT_COMPILE_ONLY;
    options.arch = "sm_90a";
    options.cache_disable = 1;
    return smelt_context_create(&context, &options);
}

static int destroy_context(void **unused) {
    (void)unused;
    smelt_context_destroy(&context);
    return 0;
}

/* An uninitialised pointer. */
static char *unset(void) {
    return (char *)(uintptr_t)64; // NOLINT: nothing is there, and nobody looks
}

TEST(texts) {
    char *text = unset();
    assert_refused(smelt_kernel_plan(NULL, KERNEL, NULL, 0, &text), SMELT_ERROR_INVALID_ARGUMENT,
                   "arch is NULL");
    assert_null(text);
    text = unset();
    assert_refused(smelt_kernel_source(NULL, KERNEL, NULL, &text), SMELT_ERROR_INVALID_ARGUMENT,
                   "arch is NULL");
    assert_null(text);
    text = unset();
    assert_refused(smelt_kernel_plan(context, NULL, NULL, 0, &text), SMELT_ERROR_INVALID_ARGUMENT,
                   "kernel is NULL");
    assert_null(text);
    assert_refused(smelt_kernel_plan(context, KERNEL, NULL, 0, NULL), SMELT_ERROR_INVALID_ARGUMENT,
                   "the result is NULL");
    assert_refused(smelt_kernel_source(context, KERNEL, NULL, NULL), SMELT_ERROR_INVALID_ARGUMENT,
                   "the result is NULL");
}

static int take_nothing(void *user, const char *text) {
    (void)user, (void)text;
    return 0;
}

TEST(expansions) {
    assert_refused(smelt_spec_expand(context, NULL, NULL, take_nothing, NULL),
                   SMELT_ERROR_INVALID_ARGUMENT, "spec is NULL");
    assert_refused(smelt_spec_expand(context, KERNEL, NULL, NULL, NULL),
                   SMELT_ERROR_INVALID_ARGUMENT, "each is NULL");
    assert_int_equal(smelt_spec_expand(NULL, KERNEL, "sm_1", take_nothing, NULL),
                     SMELT_ERROR_INVALID_SPEC);
}

TEST(cubins) {
    void *cubin = unset();
    size_t bytes = 77;
    assert_refused(smelt_kernel_cubin(NULL, KERNEL, NULL, &cubin, &bytes),
                   SMELT_ERROR_INVALID_ARGUMENT, "context is NULL");
    assert_null(cubin);
    assert_int_equal(bytes, 0);
    cubin = unset();
    assert_refused(smelt_kernel_cubin(context, KERNEL, NULL, &cubin, NULL),
                   SMELT_ERROR_INVALID_ARGUMENT, "bytes is NULL");
    assert_null(cubin);
    bytes = 77;
    assert_refused(smelt_kernel_cubin(context, KERNEL, NULL, NULL, &bytes),
                   SMELT_ERROR_INVALID_ARGUMENT, "cubin is NULL");
    assert_int_equal(bytes, 0);
}

/* A message names the argument as the header does. */
TEST(kernels_that_are_null) {
    const smelt_kernel_request request = SMELT_KERNEL_REQUEST_INIT;
    smelt_tuning_entry entry = SMELT_TUNING_ENTRY_INIT;
    assert_refused(smelt_tuning_get_entry(context, NULL, &entry), SMELT_ERROR_INVALID_ARGUMENT,
                   "kernel is NULL");
    assert_refused(smelt_kernels_prepare(context, &request, 1, 1, NULL, NULL, NULL),
                   SMELT_ERROR_INVALID_ARGUMENT, "spec is NULL");
}

static int take_text(void *user, const char *text) {
    (void)user;
    (void)text;
    return 0;
}

/* Families without keys have a message that says so, not one with a range up to -1. */
TEST(families_without_keys) {
    smelt_family_key key = SMELT_FAMILY_KEY_INIT;
    char *text = unset();
    assert_refused(smelt_family_get_key("indexer_windows", 0, &key), SMELT_ERROR_INVALID_ARGUMENT,
                   "indexer_windows has no keys");
    assert_refused(smelt_spec_canonical("indexer_windows:stages=2", &text),
                   SMELT_ERROR_INVALID_SPEC, "indexer_windows: unknown key 'stages'; known: none");
    assert_null(text);
    assert_refused(smelt_tuning_candidates(KERNEL, "sm_90a", "stages", 0, take_text, NULL),
                   SMELT_ERROR_INVALID_SPEC,
                   "indexer_windows_build: unknown knob 'stages'; known: none");
}

/* The message names the pass or key that does not exist, and says which do. */
TEST(passes_and_keys_that_do_not_exist) {
    smelt_pass_info info = SMELT_PASS_INFO_INIT;
    unsigned passes = 0;
    int64_t value = 0;
    assert_refused(smelt_operator_describe("sparse_attn", (enum smelt_pass)3, &passes, &info),
                   SMELT_ERROR_INVALID_ARGUMENT,
                   "sparse_attn has no pass 3; legal: 1 (forward), 2 (backward)");
    assert_refused(smelt_operator_describe("quantize", SMELT_PASS_BACKWARD, &passes, &info),
                   SMELT_ERROR_INVALID_ARGUMENT, "quantize has no pass 2; legal: 1 (forward)");
    assert_refused(smelt_spec_get("topk_select:topk=64", "", &value), SMELT_ERROR_INVALID_ARGUMENT,
                   "topk_select has no key ''");
}

TESTS("refused calls", .group_setup = make_context, .group_teardown = destroy_context)
