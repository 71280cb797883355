/* See sparse_attn_keys.h. */
#include "codegen/families/sparse_attn_keys.h"

#include <inttypes.h>

/* Above FEW_HEADS, heads come in whole groups of HEAD_GROUP; a KV row ends in ROPE_WIDTH columns
 * that are no value, or in none. */
enum { FEW_HEADS = 128, HEAD_GROUP = 64, ROPE_WIDTH = 64 };

int smelt__sparse_attn_check(const struct smelt__spec *spec, struct smelt__message *message) {
    const int64_t heads = smelt__spec_get(spec, "heads");
    if (heads > FEW_HEADS && heads % HEAD_GROUP != 0)
        return smelt__refuse_value(spec, "heads", message);
    const int64_t dqk = smelt__spec_get(spec, "dqk"), dv = smelt__spec_get(spec, "dv");
    if (dqk == dv || dqk == dv + ROPE_WIDTH)
        return 0;
    smelt__message_set(message,
                       "%s: dqk=%" PRId64 " is not legal with dv=%" PRId64 "; legal: %" PRId64
                       " or %" PRId64 " (dv or dv+64)",
                       spec->schema->name, dqk, dv, dv, dv + ROPE_WIDTH);
    return -1;
}
