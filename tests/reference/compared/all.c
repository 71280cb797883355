/* The tables of the library's operators: compared_STEM of each, as src/operators.list.in has them.
 */
#include "compared.h"

#define OPERATOR(stem) extern const struct compared compared_##stem;
#include "operators.list"
#undef OPERATOR

const struct smelt__harness_operator *const *compared_registry = NULL;

const struct compared *const compared_operators[] = {
#define OPERATOR(stem) &compared_##stem,
#include "operators.list"
#undef OPERATOR
    NULL,
};
