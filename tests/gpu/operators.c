/* The operators that the suite knows: those of include/smelt/operators.h. */
#include <stddef.h>

#include "suite.h"

const struct suite_operator *const suite_operators[] = {
#define OPERATOR(stem) &suite_operator_##stem,
#include "operators.list"
#undef OPERATOR
    NULL,
};
