/* What the indexer's operators and kernels have in common: the keys that say what is computed. */
#pragma once

#include "codegen/family.h"
#include "codegen/spec/keys.h"

/* Values of the key dtype. */
enum { SMELT__INDEXER_BF16, SMELT__INDEXER_FP8 };

/* Rows of a table of keys. Tensor parallelism does not divide the indexer's heads. */
#define SMELT__INDEXER_DIM                                                                         \
    { SMELT__REQUIRED("dim", "width of a head and of a key"), SMELT__ONE_OF(32, 64, 128) }
#define SMELT__INDEXER_HEADS                                                                       \
    {SMELT__REQUIRED("heads", "indexer heads"), SMELT__RANGE(1, 128)}, SMELT__INDEXER_DIM
#define SMELT__INDEXER_SHAPE                                                                       \
    SMELT__INDEXER_HEADS, {                                                                        \
        SMELT__REQUIRED("dtype", "elements of q and k: bf16, or e4m3 with scales"),                \
            SMELT__NAMES_2(bf16, fp8)                                                              \
    }
/* How heads make a logit; smelt__indexer_scoring_check has the combinations of these keys. */
#define SMELT__INDEXER_ACTIVATION                                                                  \
    { SMELT__OPTIONAL("activation", "of a head's product with a key"), SMELT__NAMES_2(relu, none) }
#define SMELT__INDEXER_SUMS                                                                        \
    SMELT__INDEXER_ACTIVATION,                                                                     \
        {SMELT__OPTIONAL("weights", "0: every head has the weight scale, an argument"),            \
         SMELT__ONE_OF(0, 1), .default_value = 1},                                                 \
    {                                                                                              \
        SMELT__OPTIONAL("groups", "groups of heads, each with logits of its own"),                 \
            SMELT__SOME_OF("1..128 that divide heads", 1, 128), .default_value = 1                 \
    }
/* Of an operator only: its kernels are told at the launch. */
#define SMELT__INDEXER_WEIGHTS_DTYPE                                                               \
    {                                                                                              \
        SMELT__OPTIONAL("weights_dtype", "elements of the indexer's weights and their gradient"),  \
            SMELT__NAMES_2(fp32, bf16)                                                             \
    }
/* Rows that an entry of a list may stand for. */
#define SMELT__INDEXER_GRANULES SMELT__ONE_OF(1, 2, 4, 8, 16, 32, 64, 128)
#define SMELT__INDEXER_GRANULARITY                                                                 \
    {                                                                                              \
        SMELT__OPTIONAL("granularity", "rows of an entry of the lists"), SMELT__INDEXER_GRANULES,  \
            .default_value = 1                                                                     \
    }
#define SMELT__INDEXER_BLOCK_MAX                                                                   \
    {                                                                                              \
        SMELT__OPTIONAL("block_max", "keys of a block, whose largest logit is written"),           \
            SMELT__INDEXER_GRANULES, .default_value = 1                                            \
    }
#define SMELT__INDEXER_SCORING                                                                     \
    SMELT__INDEXER_SUMS, SMELT__INDEXER_BLOCK_MAX, {                                               \
        SMELT__OPTIONAL("candidate_block",                                                         \
                        "keys of a listed block, which alone are scored; 0: no lists"),            \
            SMELT__ONE_OF(0, 1, 2, 4, 8, 16, 32, 64, 128)                                          \
    }
/* Values of the key weights_dtype. */
enum { SMELT__INDEXER_WEIGHTS_FP32, SMELT__INDEXER_WEIGHTS_BF16 };
/* Of kernels that write logits, and of operators whose logits are in the workspace alone. */
#define SMELT__INDEXER_STORED_LOGITS                                                               \
    {                                                                                              \
        SMELT__OPTIONAL("logits", "elements of the matrix of logits, to which they are rounded"),  \
            SMELT__NAMES_2(fp32, bf16)                                                             \
    }
/* Bytes of a row of `dim` elements in shared memory: at least 64, of which 32 are zeros with dim=32 of
 * e4m3. */
static inline int smelt__indexer_row_bytes(const struct smelt__spec *spec) {
    enum { LEAST = 64 };
    const int bytes = (int)smelt__spec_get(spec, "dim") *
                      (smelt__spec_get(spec, "dtype") == SMELT__INDEXER_FP8 ? 1 : 2);
    return bytes > LEAST ? bytes : LEAST;
}
/* Values of the key activation. */
enum { SMELT__INDEXER_RELU, SMELT__INDEXER_NO_ACTIVATION };

/* Of operators on selected slots. */
#define SMELT__INDEXER_TOPK                                                                        \
    { SMELT__REQUIRED("topk", "the most slots of a query"), SMELT__RANGE(1, 1048576) }

/* 0, or -1 with a message: block_max above the keys of a listed block, which the key `listed` says. (Both
 * are powers of two.) */
int smelt__indexer_blocks_check(const struct smelt__spec *spec, const char *listed,
                                struct smelt__message *message);

/* 0, or -1 with a message: groups that do not divide the heads, block_max above candidate_block. */
int smelt__indexer_scoring_check(const struct smelt__spec *spec, struct smelt__message *message);

/* Refuses dtype=fp8 where a GPU has no products of e4m3: -1, else 0. */
int smelt__indexer_refuse_fp8(const struct smelt__spec *spec, const struct smelt__arch *arch,
                              struct smelt__message *message);

/* Preset rows of the operators that take the slots of lists, for the models of docs/operators.md that
 * choose keys or pools. */
#define SMELT__INDEXER_SLOT_PRESETS                                                                \
    {"glm-5.2", "heads=32,dim=128,topk=2048"}, {"glm-5.3-flash", "heads=32,dim=128,topk=512"},     \
        {"deepseek-v3.2", "heads=64,dim=128,topk=2048"},                                           \
        {"deepseek-v4-flash", "heads=64,dim=128,topk=512"},                                        \
        {"deepseek-v4-pro", "heads=64,dim=128,topk=1024"},                                         \
        {"deepseek-v4.1", "heads=64,dim=128,topk=512"}, {                                          \
        "qwen3.8-flash-next", "heads=4,dim=128,topk=512"                                           \
    }
