/* Operators' specs as structs of any numbers: each is refused with a message, or is printed,
 * parsed again as the same, and supported or not on every architecture. No number overflows (the
 * sanitizers' builds see that). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "random.h"
#include "smelt/smelt.h"

enum { SPECS = 4000 /* of each operator */, MOST_BYTES = 128 };

union spec {
    size_t size;
    int words[MOST_BYTES / sizeof(int)];
    unsigned char bytes[MOST_BYTES];
};

/* An operator's functions on a spec, and where its struct has what. */
struct subject {
    const char *legal;
    size_t size, knobs;
    smelt_status (*print)(const void *spec, char **text);
    smelt_status (*parse)(const char *text, void *spec, char **knobs);
    smelt_status (*supported)(const smelt_context *context, const void *spec, const char **why);
    /* *made: what the caller's pointer holds before and, unless made is NULL, after. */
    smelt_status (*create)(void **made, smelt_context *context, const void *spec);
};

#define FUNCTIONS(op)                                                                              \
    static smelt_status print_##op(const void *spec, char **text) {                                \
        return smelt_##op##_spec_print(spec, text);                                                \
    }                                                                                              \
    static smelt_status parse_##op(const char *text, void *spec, char **knobs) {                   \
        return smelt_##op##_spec_parse(text, spec, knobs);                                         \
    }                                                                                              \
    static smelt_status supported_##op(const smelt_context *context, const void *spec,             \
                                       const char **why) {                                         \
        return smelt_##op##_supported(context, spec, why);                                         \
    }                                                                                              \
    static smelt_status create_##op(void **made, smelt_context *context, const void *spec) {       \
        smelt_##op *object = made ? *made : NULL;                                                  \
        smelt_status status = smelt_##op##_create(made ? &object : NULL, context, spec);           \
        if (made)                                                                                  \
            *made = object;                                                                        \
        return status;                                                                             \
    }
#define SUBJECT(op, keys)                                                                          \
    {                                                                                              \
#op keys, sizeof(smelt_##op##_spec), offsetof(smelt_##op##_spec, knobs), print_##op,       \
            parse_##op, supported_##op, create_##op                                                \
    }

FUNCTIONS(sparse_attn)
FUNCTIONS(sparse_scores)
FUNCTIONS(indexer_windows)
FUNCTIONS(indexer_quantize)
FUNCTIONS(indexer_logits)
FUNCTIONS(indexer_clean)
FUNCTIONS(indexer_topk)
FUNCTIONS(topk_select)
FUNCTIONS(indexer_scores)
FUNCTIONS(indexer_loss)
FUNCTIONS(indexer_bwd)

static const struct subject subjects[] = {
    SUBJECT(sparse_attn, ":heads=64,dqk=576,dv=512,topk=2048"),
    SUBJECT(sparse_scores, ":heads=64,dqk=576,dv=512,topk=2048"),
    SUBJECT(indexer_windows, ""),
    SUBJECT(indexer_quantize, ":dim=128"),
    SUBJECT(indexer_logits, ":heads=32,dim=128,dtype=bf16"),
    SUBJECT(indexer_clean, ""),
    SUBJECT(indexer_topk, ":heads=32,dim=128,dtype=bf16,topk=2048"),
    SUBJECT(topk_select, ":topk=2048"),
    SUBJECT(indexer_scores, ":heads=64,dim=128,topk=2048"),
    SUBJECT(indexer_loss, ":topk=2048"),
    SUBJECT(indexer_bwd, ":heads=64,dim=128,topk=2048"),
};

static const char *const archs[] = {"sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a"};
enum { ARCHS = sizeof archs / sizeof *archs };

static int draw_number(struct random *random) {
    static const int common[] = {1,    2,       8,         16,        64,  64,   128,
                                 512,  576,     192,       256,       320, 1024, 2048,
                                 4096, 1048576, INT32_MAX, INT32_MIN, -1};
    switch (random_below(random, 8)) {
    case 0:
        return (int)(uint32_t)random_next(random);
    case 1:
        return random_below(random, 300);
    case 2:
    case 3:
        return common[random_below(random, sizeof common / sizeof *common)];
    case 4:
        return random_below(random, 64) * 64;
    default:
        return random_below(random, 3);
    }
}

static const char *draw_knobs(struct random *random) {
    static const char *const knobs[] = {"",
                                        ",",
                                        "=",
                                        "stages=2",
                                        "stages=-1",
                                        "stages=99999999999999999999",
                                        "variant=mma",
                                        "variant=sm90",
                                        "main.variant=mma",
                                        "fwd.stages=2",
                                        "fwd.stages=2,fwd.stages=3",
                                        "heads=3",
                                        "nothing=1",
                                        "variant",
                                        "warps=8,"};
    return random_below(random, 2) ? NULL
                                   : knobs[random_below(random, sizeof knobs / sizeof *knobs)];
}

/* A legal one that some of its numbers are others in. */
static void draw_spec(struct random *random, const struct subject *subject, const union spec *good,
                      union spec *spec) {
    const int words = (int)(subject->size / sizeof(int)), first = sizeof(size_t) / sizeof(int);
    const int knobs = (int)(subject->knobs / sizeof(int));
    const char *text = draw_knobs(random);
    *spec = *good;
    for (int changes = random_below(random, 4); changes > 0 && words > first; changes--) {
        const int at = first + random_below(random, words - first);
        if (at < knobs || at >= knobs + (int)(sizeof text / sizeof(int)))
            spec->words[at] = draw_number(random);
    }
    memcpy(spec->bytes + subject->knobs, &text, sizeof text);
}

static int is_refusal(smelt_status status) {
    return status == SMELT_ERROR_INVALID_ARGUMENT || status == SMELT_ERROR_INVALID_SPEC;
}

/* Whether the spec is one. */
static int try_spec(const struct subject *subject, smelt_context *const contexts[ARCHS],
                    const union spec *spec) {
    union spec again = {.size = subject->size};
    char *text = NULL, *text_again, *knobs = NULL;
    const smelt_status printed = subject->print(spec, &text);
    if (printed) {
        assert_true(is_refusal(printed));
        assert_true(strlen(smelt_last_error()) > 10);
    } else {
        assert_int_equal(subject->parse(text, &again, &knobs), SMELT_OK);
        assert_int_equal(subject->print(&again, &text_again), SMELT_OK);
        assert_string_equal(text, text_again);
        smelt_free(text_again);
    }
    for (int i = 0; i < ARCHS; i++) {
        const char *why = NULL;
        const smelt_status status = subject->supported(contexts[i], spec, &why);
        if (printed)
            assert_int_equal(status, printed);
        else if (status)
            assert_int_equal(status, SMELT_ERROR_UNSUPPORTED);
        assert_non_null(why);
        assert_int_equal(status == SMELT_OK, *why == '\0');
    }
    smelt_free(knobs);
    smelt_free(text);
    return printed == SMELT_OK;
}

static smelt_context *make_context(const char *arch) {
    smelt_context *context;
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    options.kind = SMELT_CONTEXT_COMPILE_ONLY;
    options.arch = arch;
    options.cache_disable = 1;
    assert_int_equal(smelt_context_create(&context, &options), SMELT_OK);
    return context;
}

static void specs_of_any_numbers(void **unused) {
    (void)unused;
    struct random random = random_begin("specs_of_any_numbers");
    smelt_context *contexts[ARCHS];
    for (int i = 0; i < ARCHS; i++)
        contexts[i] = make_context(archs[i]);
    for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++) {
        const struct subject *subject = &subjects[i];
        union spec spec, first = {.size = subject->size}, good;
        int legal = 0;
        assert_true(subject->size <= sizeof spec);
        assert_int_equal(subject->parse(subject->legal, &first, NULL), SMELT_OK);
        good = first;
        for (int k = 0; k < SPECS; k++) {
            if (k % 16 == 0) /* from there they wander */
                good = first;
            draw_spec(&random, subject, &good, &spec);
            if (try_spec(subject, contexts, &spec)) {
                good = spec;
                legal++;
            }
        }
        printf("%s: %d of %d are legal\n", subject->legal, legal, SPECS);
        assert_in_range(legal, SPECS / 10, SPECS - 1);
    }
    for (int i = 0; i < ARCHS; i++)
        smelt_context_destroy(&contexts[i]);
}

/* A call that makes no operator leaves NULL, whatever the caller's pointer held: most declare it
 * and hand it over. */
static void made_none(const struct subject *subject, smelt_context *context, const void *spec,
                      smelt_status expected, const char *message) {
    void *made = (void *)(uintptr_t)64; // NOLINT: nothing is there, and nobody looks
    assert_int_equal(subject->create(&made, context, spec), expected);
    assert_null(made);
    assert_non_null(strstr(smelt_last_error(), message));
}

static void operators_that_are_not_made(void **unused) {
    (void)unused;
    smelt_context *context = make_context("sm_90a");
    for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++) {
        const struct subject *subject = &subjects[i];
        union spec spec = {.size = subject->size};
        assert_int_equal(subject->parse(subject->legal, &spec, NULL), SMELT_OK);
        made_none(subject, NULL, &spec, SMELT_ERROR_INVALID_ARGUMENT, "context is NULL");
        made_none(subject, NULL, NULL, SMELT_ERROR_INVALID_ARGUMENT, "context is NULL");
        made_none(subject, context, &spec, SMELT_ERROR_NO_DEVICE, "sm_90a");
        assert_int_equal(subject->create(NULL, context, &spec), SMELT_ERROR_INVALID_ARGUMENT);
        assert_non_null(strstr(smelt_last_error(), " is NULL"));
    }
    smelt_context_destroy(&context);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(specs_of_any_numbers),
                                       cmocka_unit_test(operators_that_are_not_made)};
    return cmocka_run_group_tests_name("specs as structs", tests, NULL, NULL);
}
