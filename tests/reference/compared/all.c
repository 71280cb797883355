/* The tables of the library's operators: compared_STEM for each one in
 * include/smelt/operators.h. */
#include "compared.h"

const struct smelt__harness_operator *const *compared_registry = NULL;

const struct compared *const compared_operators[] = {
#define OPERATOR(stem) &compared_##stem,
#include "operators.list"
#undef OPERATOR
    NULL,
};
