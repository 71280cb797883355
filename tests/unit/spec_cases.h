/* Shared by the tests of an operator's specs: from text to canonical text, and to a kernel's
 * plan. */
#pragma once

#include "codegen/arch.h"
#include "codegen/family.h"
#include "smelt/kernels.h"
#include "test.h"

struct spec_case {
    const char *text, *canonical; /* NULL: refused, */
    const char *part;             /* with this in the message */
};

static inline void check_specs(const struct spec_case *cases, size_t count) {
    for (size_t i = 0; i < count; i++) {
        char *printed = NULL;
        const smelt_status status = smelt_spec_canonical(cases[i].text, &printed);
        if (cases[i].canonical && status != SMELT_OK)
            fail_msg("'%s' was refused: %s", cases[i].text, smelt_last_error());
        if (cases[i].canonical) {
            assert_string_equal(printed, cases[i].canonical);
        } else {
            assert_int_equal(status, SMELT_ERROR_INVALID_SPEC);
            assert_says(smelt_last_error(), cases[i].part, cases[i].text);
        }
        smelt_free(printed);
    }
}

/* 0, or -1 with a message. */
static inline int make_plan(const char *text, const char *arch, struct smelt__plan *plan,
                            struct smelt__message *message) {
    struct smelt__spec spec;
    assert_int_equal(smelt__spec_parse(text, &spec, message), 0);
    return smelt__plan_make(&spec, smelt__arch_find(arch, message), plan, message);
}

/* A kernel on an architecture. */
struct plan_case {
    const char *text, *arch, *part; /* of the message; NULL: there is a plan */
};

static inline void check_plans(const struct plan_case *cases, size_t count) {
    for (size_t i = 0; i < count; i++) {
        struct smelt__plan plan;
        struct smelt__message message = {0};
        const int status = make_plan(cases[i].text, cases[i].arch, &plan, &message);
        assert_int_equal(status, cases[i].part ? -1 : 0);
        assert_says(message.text, cases[i].part ? cases[i].part : "", cases[i].text);
    }
}
