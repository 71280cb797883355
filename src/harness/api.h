/*
 * An operator's public API as its row has it: the calls of every operator differ in their names and
 * types alone.
 */
#ifndef SMELT_HARNESS_API_H
#define SMELT_HARNESS_API_H

#include "smelt/context.h"
#include "smelt/status.h"

struct CUstream_st;

/* Defines parse, print, supported, create and destroy, as harness/operator.h describes them, from
 * smelt_STEM_spec_parse and the like. INIT: of the spec, SMELT_STEM_SPEC_INIT. */
#define SMELT__HARNESS_SPEC_API(stem, INIT)                                                        \
    static smelt_status parse(const char *text, void *spec, char **knobs) {                        \
        *(smelt_##stem##_spec *)spec = (smelt_##stem##_spec)INIT;                                  \
        return smelt_##stem##_spec_parse(text, spec, knobs);                                       \
    }                                                                                              \
    static smelt_status print(const void *spec, char **text) {                                     \
        return smelt_##stem##_spec_print(spec, text);                                              \
    }                                                                                              \
    static smelt_status supported(smelt_context *context, const void *spec, const char **why) {    \
        return smelt_##stem##_supported(context, spec, why);                                       \
    }                                                                                              \
    static smelt_status create(void **object, smelt_context *context, const void *spec) {          \
        smelt_##stem *made = NULL;                                                                 \
        const smelt_status status = smelt_##stem##_create(&made, context, spec);                   \
        *object = made;                                                                            \
        return status;                                                                             \
    }                                                                                              \
    static void destroy(void **object) {                                                           \
        smelt_##stem *made = *object;                                                              \
        smelt_##stem##_destroy(&made);                                                             \
        *object = NULL;                                                                            \
    }

/* And forward. */
#define SMELT__HARNESS_API(stem, INIT)                                                             \
    SMELT__HARNESS_SPEC_API(stem, INIT)                                                            \
    static smelt_status forward(const void *object, const void *args,                              \
                                struct CUstream_st *stream) {                                      \
        return smelt_##stem##_forward(object, args, stream);                                       \
    }

#endif
