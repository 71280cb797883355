/* The kernel family sparse_attn_bwd: the plan of its variant mma. */
#include "codegen/families/sparse_attn_bwd.h"

int smelt__sparse_attn_bwd_plan_mma(const struct smelt__spec *spec, const struct smelt__arch *arch,
                                    struct smelt__plan *plan, struct smelt__message *message) {
    (void)arch;
    (void)plan;
    smelt__message_set(message, "%s: variant mma is not there yet", spec->schema->name);
    return -1;
}
