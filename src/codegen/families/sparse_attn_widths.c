/* See sparse_attn_widths.h. */
#include "codegen/families/sparse_attn_widths.h"

#include "codegen/arch.h"

enum {
    GROUP = 64, /* columns */
    STEP = 16   /* of widths */
};

int smelt__sparse_attn_columns(const struct smelt__spec *spec, const char *key) {
    return ((int)smelt__spec_get(spec, key) + GROUP - 1) / GROUP * GROUP;
}

void smelt__sparse_attn_add_columns(const struct smelt__spec *spec, struct smelt__plan *plan) {
    smelt__plan_add(plan, "KEY_COLUMNS", smelt__sparse_attn_columns(spec, "dqk"), SMELT__DERIVED,
                    "dqk in whole 64s: of the tiles in shared memory");
    smelt__plan_add(plan, "VALUE_COLUMNS", smelt__sparse_attn_columns(spec, "dv"), SMELT__DERIVED,
                    "dv in whole 64s");
}

/* The nearest smaller widths that fit: a dqk with the same dv, else both the same. 0 if there are none. */
static int narrow(struct smelt__spec *spec, const struct smelt__arch *arch,
                  smelt__sparse_attn_fits *fits) {
    const int64_t dqk = smelt__spec_get(spec, "dqk"), dv = smelt__spec_get(spec, "dv");
    for (int64_t width = dqk - STEP; width >= STEP; width -= STEP) {
        smelt__spec_set(spec, "dqk", width);
        smelt__spec_set(spec, "dv", width < dv ? width : dv);
        if (fits(spec, arch))
            return 1;
    }
    return 0;
}

int smelt__sparse_attn_refuse_widths(const struct smelt__spec *spec, const struct smelt__arch *arch,
                                     smelt__sparse_attn_fits *fits,
                                     struct smelt__message *message) {
    struct smelt__spec without;
    smelt__spec_strip_knobs(spec, &without);
    if (fits(&without, arch) || !narrow(&without, arch, fits))
        return 0;
    smelt__message_set(message,
                       "%s: dqk=%d with dv=%d needs more than the %d KB of shared memory that a "
                       "block of %s has; dqk=%d with dv=%d fits",
                       spec->schema->name, (int)smelt__spec_get(spec, "dqk"),
                       (int)smelt__spec_get(spec, "dv"), arch->shared_per_block / 1024, arch->name,
                       (int)smelt__spec_get(&without, "dqk"), (int)smelt__spec_get(&without, "dv"));
    return -1;
}
