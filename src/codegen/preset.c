/* See preset.h. The table: OPERATORS.md. */
#include "codegen/preset.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "codegen/family.h"

struct preset {
    const char *name;
    int heads, dqk, dv, topk, sink; /* of sparse_attn; heads of the whole model */
};

static const struct preset presets[] = {
    {"glm-5.2", 64, 576, 512, 2048, 0},          {"glm-5.3-flash", 64, 512, 512, 2048, 0},
    {"deepseek-v3.2", 128, 576, 512, 2048, 0},   {"deepseek-v4-flash", 64, 512, 512, 640, 1},
    {"deepseek-v4-pro", 128, 512, 512, 1152, 1},
};
enum { PRESET_COUNT = sizeof presets / sizeof presets[0] };

const char *smelt__preset_at(int index) {
    return index >= 0 && index < PRESET_COUNT ? presets[index].name : NULL;
}

static const struct preset *find(const char *name, struct smelt__message *message) {
    const char *names[PRESET_COUNT + 1] = {0};
    char list[256] = "";
    size_t used = 0;
    for (int i = 0; i < PRESET_COUNT; i++) {
        names[i] = presets[i].name;
        if (strcmp(names[i], name) == 0)
            return &presets[i];
        if (used < sizeof list)
            used +=
                (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", names[i]);
    }
    const char *nearest = smelt__nearest_name(name, names);
    smelt__message_set(message, "unknown preset '%.60s'%s%s%s; known: %s", name,
                       nearest ? ", did you mean " : "", nearest ? nearest : "", nearest ? "?" : "",
                       list);
    return NULL;
}

int smelt__preset_expand(const char *name, int tp,
                         struct smelt__spec specs[SMELT__MAX_PRESET_SPECS],
                         struct smelt__message *message) {
    const struct preset *preset = find(name, message);
    if (!preset)
        return -1;
    if (tp < 1 || preset->heads % tp != 0) {
        smelt__message_set(message, "%s: tp=%d is not legal; legal: a divisor of its %d heads",
                           preset->name, tp, preset->heads);
        return -1;
    }
    struct smelt__spec *spec = &specs[0];
    smelt__spec_init(spec, &smelt__sparse_attn);
    smelt__spec_set(spec, "heads", preset->heads / tp);
    smelt__spec_set(spec, "dqk", preset->dqk);
    smelt__spec_set(spec, "dv", preset->dv);
    smelt__spec_set(spec, "topk", preset->topk);
    smelt__spec_set(spec, "sink", preset->sink);
    specs[1] = *spec; /* for batches of many lengths; it has the plain one's kernel, too */
    smelt__spec_set(&specs[1], "buckets", SMELT__AUTO);
    assert(smelt__spec_check(spec, message) == 0 && smelt__spec_check(&specs[1], message) == 0);
    return 2;
}
