/* What the indexer's operators and kernels have in common: the keys that say what is computed. */
#ifndef SMELT_CODEGEN_INDEXER_KEYS_H
#define SMELT_CODEGEN_INDEXER_KEYS_H

#include "codegen/family.h"
#include "codegen/spec/keys.h"

enum { SMELT__INDEXER_MAX_HEADS = 128 };

/* Values of the key dtype; the public enum smelt_indexer_dtype's. */
enum { SMELT__INDEXER_BF16, SMELT__INDEXER_FP8 };

extern const char *const smelt__indexer_dtypes[];

/* Rows of a table of keys. Tensor parallelism does not divide the indexer's heads. */
#define SMELT__INDEXER_DIM                                                                         \
    SMELT__REQUIRED("dim", "64, 128", "width of a head and of a key", 64, 128)
#define SMELT__INDEXER_HEADS                                                                       \
    SMELT__REQUIRED("heads", "1..128", "indexer heads", 1, SMELT__INDEXER_MAX_HEADS),              \
        SMELT__INDEXER_DIM
#define SMELT__INDEXER_SHAPE                                                                       \
    SMELT__INDEXER_HEADS, SMELT__REQUIRED_NAME("dtype", "bf16, fp8",                               \
                                               "elements of q and k: bf16, or e4m3 with scales",   \
                                               smelt__indexer_dtypes)
/* Of operators on selected slots. */
#define SMELT__INDEXER_TOPK                                                                        \
    SMELT__REQUIRED("topk", "1..1048576", "the most slots of a query", 1, 1 << 20)

/* Of those, docs/operators.md's table of models. */
extern const struct smelt__preset_row smelt__indexer_slot_presets[];

/* What their ranges cannot say: dim's two values. 0, or -1 with a message. */
int smelt__indexer_check(const struct smelt__spec *spec, struct smelt__message *message);

#endif
