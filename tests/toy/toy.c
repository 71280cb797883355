/*
 * The added toy operator through the public API and on the emulator: generic code needs only its
 * table.
 */

#include "smelt/toy.h"
#include "../unit/test.h"
#include "smelt/cache.h"
#include "smelt/device.h"

enum { TOKENS = 5, WIDTH = 75, STRIDE = 80 };

static smelt_context *context;

static int open_context(void **state) {
    (void)state;
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    options.kind = SMELT_CONTEXT_DEVICE;
    options.cache_disable = 1;
    return smelt_context_create(&context, &options) == SMELT_OK ? 0 : -1;
}

static int close_context(void **state) {
    (void)state;
    smelt_context_destroy(&context);
    return 0;
}

static void require(smelt_status status) {
    if (status != SMELT_OK)
        fail_msg("%s: %s", smelt_status_name(status), smelt_last_error());
}

static void refused(smelt_status status, smelt_status expected, const char *part) {
    assert_int_equal(status, expected);
    if (!strstr(smelt_last_error(), part))
        fail_msg("'%s' lacks '%s'", smelt_last_error(), part);
}

/* ---- lists ----------------------------------------------------------------------------------- */

struct texts {
    char items[64][256];
    int count;
};

static int collect(void *user, const char *text) {
    struct texts *texts = user;
    if (texts->count < 64)
        snprintf(texts->items[texts->count++], sizeof texts->items[0], "%s", text);
    return 0;
}

static int has(const struct texts *texts, const char *text) {
    for (int i = 0; i < texts->count; i++)
        if (strcmp(texts->items[i], text) == 0)
            return 1;
    return 0;
}

TEST(is_listed) {
    struct texts families = {.count = 0}, preset = {.count = 0}, kernels = {.count = 0};
    require(smelt_list(SMELT_LIST_FAMILIES, collect, &families));
    assert_true(has(&families, "toy") && has(&families, "toy_scale"));
    assert_true(has(&families, "sparse_attn") && has(&families, "sparse_attn_partition"));
    require(smelt_preset_expand("glm-5.2", 1, 0, collect, &preset));
    assert_true(has(&preset, "toy:width=96,passes=both")); /* training needs both */
    preset.count = 0;
    require(smelt_preset_expand("glm-5.2", 1, SMELT_PASS_FORWARD, collect, &preset));
    assert_true(has(&preset, "toy:width=96"));
    preset.count = 0;
    require(smelt_preset_expand("glm-5.2", 1, SMELT_PASS_BACKWARD, collect, &preset));
    assert_true(has(&preset, "toy:width=96,passes=backward") && !has(&preset, "toy:width=96"));
    require(smelt_spec_expand(NULL, "toy:width=75,passes=both,threads=64,bwd.threads=32", NULL,
                              collect, &kernels));
    assert_int_equal(kernels.count, 2);
    assert_string_equal(kernels.items[0], "toy_scale:width=75,threads=64");
    assert_string_equal(kernels.items[1], "toy_scale:width=75,accumulate=1,threads=32");
}

TEST(emitted) {
    char *source = NULL;
    require(smelt_kernel_source(NULL, "toy_scale:width=75,accumulate=1", "sm_80", &source));
    assert_non_null(strstr(source, "ACCUMULATE = 1,"));
    assert_non_null(strstr(source, "#line"));
    smelt_free(source);
}

/* ---- the operator ---------------------------------------------------------------------------- */

static smelt_operator *make(const char *text) {
    smelt_operator *toy = NULL;
    require(smelt_operator_create(&toy, context, text));
    return toy;
}

static float *upload(const float *host) {
    void *device = NULL;
    require(smelt_device_alloc(context, TOKENS * STRIDE * sizeof *host, &device));
    require(smelt_device_upload(context, device, host, TOKENS * STRIDE * sizeof *host));
    return device;
}

/* Runs a pass on `from` and `to`, rows STRIDE apart, and reads `to` back. */
static void run(smelt_operator *toy, unsigned pass, const float *from, float *to) {
    float *source = upload(from), *target = upload(to);
    const smelt_toy_args args = {.size = sizeof args,
                                 .tokens = TOKENS,
                                 .factor = 2.5F,
                                 .x = {source, {STRIDE}},
                                 .out = {target, {STRIDE}}};
    const smelt_toy_grad_args grad = {.size = sizeof grad,
                                      .tokens = TOKENS,
                                      .factor = 2.5F,
                                      .grad = {source, {STRIDE}},
                                      .dx = {target, {STRIDE}}};
    require(pass == SMELT_PASS_FORWARD ? smelt_toy_forward(toy, &args, NULL)
                                       : smelt_toy_backward(toy, &grad, NULL));
    require(smelt_stream_synchronize(context, NULL));
    require(smelt_device_download(context, to, target, TOKENS * STRIDE * sizeof *to));
    smelt_device_free(context, source);
    smelt_device_free(context, target);
}

TEST(computes) {
    float from[TOKENS * STRIDE], forward[TOKENS * STRIDE], backward[TOKENS * STRIDE];
    for (int i = 0; i < TOKENS * STRIDE; i++) {
        from[i] = (float)(i % 31) - 15;
        forward[i] = backward[i] = (float)(i % 7);
    }
    smelt_operator *toy = make("toy:width=75,passes=both,bwd.threads=32");
    run(toy, SMELT_PASS_FORWARD, from, forward);
    run(toy, SMELT_PASS_BACKWARD, from, backward);
    smelt_operator_destroy(&toy);
    for (int i = 0; i < TOKENS * STRIDE; i++) {
        const int gap = i % STRIDE >= WIDTH;
        const float before = (float)(i % 7), product = 2.5F * from[i];
        assert_true(forward[i] == (gap ? before : product));
        assert_true(backward[i] == (gap ? before : product + before));
    }
}

/* An operator for the forward pass neither compiles nor runs kernels of the backward pass. */
TEST(passes_are_apart) {
    smelt_context_info before = SMELT_CONTEXT_INFO_INIT, after = SMELT_CONTEXT_INFO_INIT;
    smelt_toy_grad_args args = SMELT_TOY_GRAD_ARGS_INIT;
    require(smelt_context_get_info(context, &before));
    smelt_operator *toy = make("toy:width=33");
    require(smelt_context_get_info(context, &after));
    assert_int_equal(after.compiled - before.compiled, 1);
    refused(smelt_toy_backward(toy, &args, NULL), SMELT_ERROR_INVALID_ARGUMENT,
            "was not made for its backward pass");
    smelt_operator_destroy(&toy);
    toy = make("toy:width=34,passes=both");
    require(smelt_context_get_info(context, &before));
    assert_int_equal(before.compiled - after.compiled, 2);
    smelt_operator_destroy(&toy);
}

TEST(refuses) {
    smelt_toy_args args = SMELT_TOY_ARGS_INIT;
    smelt_operator *toy = NULL;
    float host[TOKENS * STRIDE] = {0};
    refused(smelt_operator_create(&toy, context, "toy:width=0"), SMELT_ERROR_INVALID_SPEC,
            "width=0 is not legal; legal: 1..4096");
    refused(smelt_operator_create(&toy, context, "toy:width=8,threads=7"), SMELT_ERROR_INVALID_SPEC,
            "32..256");
    refused(smelt_operator_create(&toy, context, "toy_scale:width=8"), SMELT_ERROR_INVALID_SPEC,
            "is a kernel, not an operator");
    toy = make("toy:width=75");
    float *memory = upload(host);
    args.tokens = TOKENS;
    args.factor = 1.0F;
    refused(smelt_toy_forward(toy, &args, NULL), SMELT_ERROR_INVALID_ARGUMENT, "x is NULL");
    args.x.data = memory;
    args.out.data = memory + 4;
    refused(smelt_toy_forward(toy, &args, NULL), SMELT_ERROR_INVALID_ARGUMENT, "out (");
    assert_non_null(strstr(smelt_last_error(), "overlaps x"));
    args.out.data = (char *)memory + 2;
    refused(smelt_toy_forward(toy, &args, NULL), SMELT_ERROR_INVALID_ARGUMENT, "not aligned");
    smelt_device_free(context, memory);
    smelt_operator_destroy(&toy);
}

TESTS("toy", .group_setup = open_context, .group_teardown = close_context)
