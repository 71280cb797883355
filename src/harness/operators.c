/* The operators that the harness knows: those of the list in the root's meson.build. */
#include <stdlib.h>
#include <string.h>

#include "harness/operator.h"
#include "smelt/kernels.h"

#define OPERATOR(stem) extern const struct smelt__harness_operator smelt__harness_##stem;
#include "operators.list"
#undef OPERATOR

static const struct smelt__harness_operator *const operators[] = {
#define OPERATOR(stem) &smelt__harness_##stem,
#include "operators.list"
#undef OPERATOR
    NULL,
};

const struct smelt__harness_operator *const *smelt__harness_operators = operators;

const char *smelt__harness_inputs(const struct smelt__harness_operator *op,
                                  const struct smelt__problem_options *options) {
    return op->inputs ? op->inputs(options) : smelt__lists_names[options->lists];
}

const struct smelt__harness_operator *smelt__harness_find(const char *spec) {
    const size_t length = strcspn(spec, ":");
    for (int i = 0; smelt__harness_operators[i]; i++) {
        const char *name = smelt__harness_operators[i]->name;
        if (strlen(name) == length && strncmp(name, spec, length) == 0)
            return smelt__harness_operators[i];
    }
    return NULL;
}

smelt_status smelt__harness_spec_parse(struct smelt__harness_spec *spec, const char *text) {
    memset(spec, 0, sizeof *spec);
    spec->op = smelt__harness_find(text);
    if (!spec->op)
        return SMELT_ERROR_INVALID_SPEC;
    spec->spec = calloc(1, spec->op->spec_bytes);
    return spec->spec ? spec->op->parse(text, spec->spec, &spec->knobs) : SMELT_ERROR_OUT_OF_MEMORY;
}

void smelt__harness_spec_free(struct smelt__harness_spec *spec) {
    smelt_free(spec->knobs);
    free(spec->spec);
    memset(spec, 0, sizeof *spec);
}

unsigned smelt__harness_spec_passes(const struct smelt__harness_spec *spec) {
    unsigned passes = 0;
    if (spec->op->passes_field)
        memcpy(&passes, (const char *)spec->spec + spec->op->passes_field, sizeof passes);
    return passes ? passes : spec->op->passes[0].pass;
}

int smelt__harness_spec_has(const struct smelt__harness_spec *spec,
                            const struct smelt__harness_pass *pass) {
    return (pass->pass & smelt__harness_spec_passes(spec)) &&
           (!pass->takes || pass->takes(spec->spec));
}

const struct smelt__harness_pass *smelt__harness_spec_pass(const struct smelt__harness_spec *spec,
                                                           unsigned pass) {
    for (int i = 0; i < spec->op->pass_count; i++)
        if ((!pass || spec->op->passes[i].pass & pass) &&
            smelt__harness_spec_has(spec, &spec->op->passes[i]))
            return &spec->op->passes[i];
    return NULL;
}
