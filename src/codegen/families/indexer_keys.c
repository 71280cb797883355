/* See indexer_keys.h. */
#include "codegen/families/indexer_keys.h"

const char *const smelt__indexer_dtypes[] = {"bf16", "fp8", NULL};

const struct smelt__preset_row smelt__indexer_slot_presets[] = {
    {"glm-5.2", "heads=32,dim=128,topk=2048"},
    {"glm-5.3-flash", "heads=32,dim=128,topk=2048"},
    {"deepseek-v3.2", "heads=64,dim=128,topk=2048"},
    {"deepseek-v4-flash", "heads=64,dim=128,topk=512"},
    {"deepseek-v4-pro", "heads=64,dim=128,topk=1024"},
    {NULL, NULL},
};

int smelt__indexer_check(const struct smelt__spec *spec, struct smelt__message *message) {
    static const int widths[] = {64, 128};
    return smelt__check_one_of(spec, "dim", widths, 2, message);
}
