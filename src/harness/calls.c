/* See operator.h: the library's calls. */
#include "harness/operator.h"

static const struct smelt__harness_calls library = {
    smelt_operator_create, smelt_operator_destroy, smelt_operator_launch, smelt_operator_workspace};
const struct smelt__harness_calls *smelt__harness_calls = &library;
