/* See indexer_keys.h. */
#include "codegen/families/indexer_keys.h"

int smelt__indexer_blocks_check(const struct smelt__spec *spec, const char *listed,
                                struct smelt__message *message) {
    const int block_max = (int)smelt__spec_get(spec, "block_max");
    const int block = (int)smelt__spec_get(spec, listed);
    if (block <= 0 || block_max <= block)
        return 0;
    return smelt__spec_refuse(spec, message,
                              "block_max=%d exceeds %s=%d; listed blocks consist of whole blocks "
                              "of block_max keys; legal: block_max up to %d",
                              block_max, listed, block, block);
}

int smelt__indexer_scoring_check(const struct smelt__spec *spec, struct smelt__message *message) {
    const int heads = (int)smelt__spec_get(spec, "heads");
    const int groups = (int)smelt__spec_get(spec, "groups");
    int less = groups < heads ? groups : heads;
    if (smelt__indexer_blocks_check(spec, "candidate_block", message))
        return -1;
    if (heads % groups == 0)
        return 0;
    while (heads % less != 0)
        less--;
    return smelt__spec_refuse(spec, message,
                              "groups=%d does not divide heads=%d; legal are divisors of the "
                              "heads: groups=%d, for example",
                              groups, heads, less);
}

int smelt__indexer_refuse_fp8(const struct smelt__spec *spec, const struct smelt__arch *arch,
                              struct smelt__message *message) {
    const int capability = 10 * arch->capability_major + arch->capability_minor;
    if (smelt__spec_get(spec, "dtype") != SMELT__INDEXER_FP8 || capability >= 89)
        return 0;
    return smelt__spec_refuse(
        spec, message,
        "dtype=fp8 needs compute capability 8.9 or later, and %s has %d.%d; dtype=bf16 runs there",
        arch->name, arch->capability_major, arch->capability_minor);
}
