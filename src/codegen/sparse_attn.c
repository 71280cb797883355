/* The operator sparse_attn: sparse attention over a shared latent cache (OPERATORS.md, section 1).
 */
#include <string.h>

#include "codegen/family.h"
#include "codegen/sparse_attn_keys.h"

static int expand(const struct smelt__spec *spec, struct smelt__spec kernels[SMELT__MAX_KERNELS]) {
    smelt__spec_init(&kernels[0], &smelt__sparse_attn_fwd);
    /* The key tables are one and the same. */
    memcpy(kernels[0].values, spec->values, sizeof kernels[0].values);
    return 1;
}

const struct smelt__family smelt__sparse_attn = {
    .name = "sparse_attn",
    .summary = "sparse attention: each query attends to its own list of KV rows",
    .keys = smelt__sparse_attn_keys,
    .key_count = SMELT__SPARSE_ATTN_KEY_COUNT,
    .check = smelt__sparse_attn_check,
    .expand = expand,
};
