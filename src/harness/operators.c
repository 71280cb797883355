/* The operators that the harness knows: those of include/smelt/operators.h. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/defaults.h"
#include "harness/operator.h"
#include "smelt/kernels.h"

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

const char *smelt__harness_reason(smelt_status status) {
    return status == SMELT_ERROR_OUT_OF_MEMORY ? "the host's memory is exhausted"
                                               : smelt_last_error();
}

/* The struct of keys of a spec's text. */
static smelt_status read_keys(struct smelt__harness_spec *spec) {
    smelt_status status = SMELT_OK;
    for (const struct smelt__harness_key *key = spec->op->keys;
         key && key->name && status == SMELT_OK; key++) {
        int64_t value = 0;
        status = smelt_spec_get(spec->text, key->name, &value);
        *(int *)(void *)((char *)spec->spec + key->field) =
            value < INT_MIN ? -1 : (int)value; /* a list that the library's rule chooses */
    }
    return status;
}

/* The first key that is not the operator's own but a knob of its kernels. */
static const char *find_knobs(const char *text) {
    const char *at = text + strcspn(text, ":");
    while (*at) {
        const char *const key = at + 1;
        char name[64];
        int64_t value;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(key, "="), key);
        if (smelt_spec_get(text, name, &value) != SMELT_OK)
            return key;
        at = key + strcspn(key, ",");
    }
    return at;
}

smelt_status smelt__harness_spec_parse(struct smelt__harness_spec *spec, const char *text) {
    memset(spec, 0, sizeof *spec);
    spec->op = smelt__harness_find(text);
    if (!spec->op)
        return SMELT_ERROR_INVALID_SPEC;
    spec->spec = calloc(1, spec->op->spec_bytes + 1);
    if (!spec->spec)
        return SMELT_ERROR_OUT_OF_MEMORY;
    smelt_status status = smelt_spec_canonical(text, &spec->text);
    if (status == SMELT_OK)
        status = smelt_operator_describe(spec->text, SMELT_PASS_FORWARD, &spec->passes, NULL);
    if (status != SMELT_OK)
        return status;
    spec->knobs = find_knobs(spec->text);
    return read_keys(spec);
}

void smelt__harness_spec_free(struct smelt__harness_spec *spec) {
    smelt_free(spec->text);
    free(spec->spec);
    memset(spec, 0, sizeof *spec);
}

static int64_t value_of(const void *given, const char *key) {
    const struct smelt__harness_spec *const spec = given;
    return smelt__harness_key_of(spec->op, spec->spec, key);
}

int smelt__harness_spec_has(const struct smelt__harness_spec *spec,
                            const struct smelt__harness_pass *pass) {
    return (pass->pass & spec->passes) &&
           pass->table == smelt__table_number(spec->op->passes[0].tensors, value_of, spec);
}

const struct smelt__harness_pass *smelt__harness_spec_pass(const struct smelt__harness_spec *spec,
                                                           unsigned pass) {
    for (int i = 0; i < spec->op->pass_count; i++)
        if ((!pass || spec->op->passes[i].pass & pass) &&
            smelt__harness_spec_has(spec, &spec->op->passes[i]))
            return &spec->op->passes[i];
    return NULL;
}
