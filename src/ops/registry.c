/* See call.h: the types of operators there are. */
#include "ops/call.h"

static const struct smelt__operator_type *const types[] = {
#define OPERATOR(stem) &smelt__##stem##_type,
#include "operators.list"
#undef OPERATOR
};
enum { COUNT = sizeof types / sizeof *types };

const struct smelt__operator_type *smelt__operator_type_at(int index) {
    return index >= 0 && index < COUNT ? types[index] : NULL;
}

const struct smelt__operator_type *smelt__operator_type_of(const struct smelt__schema *schema) {
    for (int i = 0; i < COUNT; i++)
        if (&types[i]->family->schema == schema)
            return types[i];
    return NULL;
}
