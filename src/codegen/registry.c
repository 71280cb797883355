/* See family.h: the table of all families. */
#include <string.h>

#include "codegen/family.h"
#include "codegen/spec/names.h"

static const struct smelt__operator_family *const operators[] = {
#define OPERATOR(stem) &smelt__##stem,
#include "operators.list"
#undef OPERATOR
};
enum { OPERATOR_COUNT = sizeof operators / sizeof operators[0], MAX_NAMES = 64 };

/* Whether an operator before number `count` has these kernels, too. */
static int is_known(const struct smelt__kernel_family *kernel, int count) {
    for (int i = 0; i < count; i++)
        for (const struct smelt__kernel_family *const *other = operators[i]->kernels; *other;
             other++)
            if (*other == kernel)
                return 1;
    return 0;
}

const struct smelt__schema *smelt__schema_at(int index) {
    for (int i = 0; i < OPERATOR_COUNT && index >= 0; i++) {
        if (index-- == 0)
            return &operators[i]->schema;
        for (const struct smelt__kernel_family *const *kernel = operators[i]->kernels; *kernel;
             kernel++)
            if (!is_known(*kernel, i) && index-- == 0)
                return &(*kernel)->schema;
    }
    return NULL;
}

const struct smelt__schema *smelt__schema_find(const char *name, struct smelt__message *message) {
    const char *names[MAX_NAMES + 1] = {0};
    const struct smelt__schema *schema;
    int count = 0;
    for (int kernels = 0; kernels < 2; kernels++) /* the message lists operators first */
        for (int i = 0; count < MAX_NAMES && (schema = smelt__schema_at(i)) != NULL; i++) {
            if (strcmp(schema->name, name) == 0)
                return schema;
            if (schema->is_operator != kernels)
                names[count++] = schema->name;
        }
    smelt__name_unknown("", "operator or kernel", name, names, message);
    return NULL;
}

/* Whether a text is keys without a family, with the message. */
static int lacks_family(const char *text, struct smelt__message *message) {
    if (strchr(text, ':') || !strchr(text, '='))
        return 0;
    smelt__message_set(message, "'%.60s' has no ':': write family:key=value,...", text);
    return 1;
}

const struct smelt__schema *smelt__operator_schema_find(const char *text,
                                                        struct smelt__message *message) {
    const char *names[OPERATOR_COUNT + 1] = {0};
    char name[SMELT__SPEC_TEXT];
    if (smelt__spec_copy_text(text, name, message) || lacks_family(name, message))
        return NULL;
    name[strcspn(name, ":")] = '\0';
    const struct smelt__schema *const schema = smelt__schema_find(name, message);
    if (schema && schema->is_operator)
        return schema;
    for (int i = 0; i < OPERATOR_COUNT; i++)
        names[i] = operators[i]->schema.name;
    if (schema)
        smelt__message_set(
            message, "%s is a kernel, not an operator; `smelt list` names the operators", name);
    else
        smelt__name_unknown("", "operator", name, names, message);
    return NULL;
}

int smelt__spec_parse(const char *text, struct smelt__spec *spec, struct smelt__message *message) {
    char copy[SMELT__SPEC_TEXT];
    if (smelt__spec_copy_text(text, copy, message) || lacks_family(copy, message))
        return -1;
    char *colon = strchr(copy, ':');
    if (colon)
        *colon = '\0';
    const struct smelt__schema *schema = smelt__schema_find(copy, message);
    if (!schema)
        return -1;
    smelt__spec_init(spec, schema);
    if (colon && smelt__spec_parse_keys(colon + 1, 0, spec, message))
        return -1;
    return smelt__spec_check_all(spec, message);
}
