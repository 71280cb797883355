/* The kernel family sparse_attn_bwd: the plan of its variant sm90. */
#include "codegen/families/sparse_attn_bwd.h"

int smelt__sparse_attn_bwd_plan_sm90(const struct smelt__spec *spec, const struct smelt__arch *arch,
                                     struct smelt__plan *plan, struct smelt__message *message) {
    (void)arch;
    (void)plan;
    smelt__message_set(message, "%s: variant sm90 is not there yet", spec->schema->name);
    return -1;
}
