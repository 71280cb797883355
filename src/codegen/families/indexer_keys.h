/* What the indexer's operators and kernels have in common: the keys that say what is computed. */
#pragma once

#include "codegen/family.h"
#include "codegen/spec/keys.h"

/* Values of the key dtype; the public enum smelt_indexer_dtype's. */
enum { SMELT__INDEXER_BF16, SMELT__INDEXER_FP8 };

/* Rows of a table of keys. Tensor parallelism does not divide the indexer's heads. */
#define SMELT__INDEXER_DIM                                                                         \
    { SMELT__REQUIRED("dim", "width of a head and of a key"), SMELT__ONE_OF(64, 128) }
#define SMELT__INDEXER_HEADS                                                                       \
    {SMELT__REQUIRED("heads", "indexer heads"), SMELT__RANGE(1, 128)}, SMELT__INDEXER_DIM
#define SMELT__INDEXER_SHAPE                                                                       \
    SMELT__INDEXER_HEADS, {                                                                        \
        SMELT__REQUIRED("dtype", "elements of q and k: bf16, or e4m3 with scales"),                \
            SMELT__NAMES_2(bf16, fp8)                                                              \
    }
/* Of operators on selected slots. */
#define SMELT__INDEXER_TOPK                                                                        \
    { SMELT__REQUIRED("topk", "the most slots of a query"), SMELT__RANGE(1, 1048576) }

/* Of those, docs/operators.md's table of models. */
extern const struct smelt__preset_row smelt__indexer_slot_presets[];
