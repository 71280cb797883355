/* See spec.h: the knobs and keys that members inherit. */
#include "codegen/spec/knobs.h"

void smelt__spec_inherit_keys(const struct smelt__spec *spec, struct smelt__spec *kernel) {
    for (int i = 0; i < kernel->schema->key_count; i++) {
        const int own = smelt__spec_key(spec->schema, kernel->schema->keys[i].name);
        if (own >= 0)
            kernel->values[i] = spec->values[own];
    }
}

void smelt__spec_inherit(const struct smelt__spec *spec, int member, struct smelt__spec *kernel) {
    smelt__spec_inherit_keys(spec, kernel);
    /* Those for all come first, so that one for this member wins. */
    for (int i = 0; i < spec->knob_count; i++) {
        const int key = smelt__knob_for(spec, &spec->knobs[i], member);
        if (key >= 0)
            kernel->values[key] = spec->knobs[i].value;
    }
}
