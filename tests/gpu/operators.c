/* The operators that the suite knows: those of the root's list. */
#include <stddef.h>

#include "suite.h"

#define OPERATOR(stem) extern const struct suite_operator suite_operator_##stem;
#include "operators.list"
#undef OPERATOR

const struct suite_operator *const suite_operators[] = {
#define OPERATOR(stem) &suite_operator_##stem,
#include "operators.list"
#undef OPERATOR
    NULL,
};
