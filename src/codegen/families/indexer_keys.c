/* See indexer_keys.h. */
#include "codegen/families/indexer_keys.h"

int smelt__indexer_scoring_check(const struct smelt__spec *spec, struct smelt__message *message) {
    const int heads = (int)smelt__spec_get(spec, "heads");
    const int groups = (int)smelt__spec_get(spec, "groups");
    int less = groups < heads ? groups : heads;
    if (heads % groups == 0)
        return 0;
    while (heads % less != 0)
        less--;
    smelt__message_set(message,
                       "%s: groups=%d does not divide heads=%d; legal are divisors of the heads: "
                       "groups=%d, for example",
                       spec->schema->name, groups, heads, less);
    return -1;
}

const struct smelt__preset_row smelt__indexer_slot_presets[] = {
    {"glm-5.2", "heads=32,dim=128,topk=2048"},
    {"glm-5.3-flash", "heads=32,dim=128,topk=2048"},
    {"deepseek-v3.2", "heads=64,dim=128,topk=2048"},
    {"deepseek-v4-flash", "heads=64,dim=128,topk=512"},
    {"deepseek-v4-pro", "heads=64,dim=128,topk=1024"},
    {NULL, NULL},
};
