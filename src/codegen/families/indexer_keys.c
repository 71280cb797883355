/* See indexer_keys.h. */
#include "codegen/families/indexer_keys.h"

const struct smelt__preset_row smelt__indexer_slot_presets[] = {
    {"glm-5.2", "heads=32,dim=128,topk=2048"},
    {"glm-5.3-flash", "heads=32,dim=128,topk=2048"},
    {"deepseek-v3.2", "heads=64,dim=128,topk=2048"},
    {"deepseek-v4-flash", "heads=64,dim=128,topk=512"},
    {"deepseek-v4-pro", "heads=64,dim=128,topk=1024"},
    {NULL, NULL},
};
