/* The tables of the library's operators: compared_STEM of each, as include/smelt/operators.h has
 * them.
 */
#include "compared.h"

const struct smelt__harness_operator *const *compared_registry = NULL;

const struct compared *const compared_operators[] = {
#define OPERATOR(stem) &compared_##stem,
#include "operators.list"
#undef OPERATOR
    NULL,
};
