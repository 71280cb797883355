/* See sparse_attn_keys.h. */
#include "codegen/families/sparse_attn_keys.h"

#include <inttypes.h>

/* Above FEW_HEADS, heads come in whole groups of HEAD_GROUP. */
enum { FEW_HEADS = 128, HEAD_GROUP = 64 };

int smelt__sparse_attn_check(const struct smelt__spec *spec, struct smelt__message *message) {
    const int64_t heads = smelt__spec_get(spec, "heads");
    if (heads > FEW_HEADS && heads % HEAD_GROUP != 0)
        return smelt__refuse_value(spec, "heads", message);
    const int64_t dqk = smelt__spec_get(spec, "dqk"), dv = smelt__spec_get(spec, "dv");
    if (dv <= dqk)
        return 0;
    smelt__message_set(message,
                       "%s: dv=%" PRId64 " is not legal with dqk=%" PRId64
                       "; legal: at most dqk, since a value is the first dv columns of a KV row",
                       spec->schema->name, dv, dqk);
    return -1;
}
