/* See indexer_keys.h. */
#include "codegen/families/indexer_keys.h"

const char *const smelt__indexer_dtypes[] = {"bf16", "fp8", NULL};

int smelt__indexer_check(const struct smelt__spec *spec, struct smelt__message *message) {
    static const int widths[] = {64, 128};
    return smelt__check_one_of(spec, "dim", widths, 2, message);
}
