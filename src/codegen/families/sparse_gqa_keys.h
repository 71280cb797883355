/* What the operator sparse_gqa and its kernels have in common: the keys that say what is computed. */
#pragma once

#include "codegen/spec/keys.h"

enum {
    SMELT__SPARSE_GQA_MOST_HEADS = 1024,
    SMELT__SPARSE_GQA_MOST_GROUP = 64, /* query heads of a KV head */
    SMELT__SPARSE_GQA_MOST_TOPK = 65536
};

/* Values of the key `lists`. */
enum { SMELT__SPARSE_GQA_SHARED, SMELT__SPARSE_GQA_KV };

/* Rows of a table of keys: the shape of every kernel; and the sink. No kernel depends on topk: a call
 * says how wide its lists are. */
#define SMELT__SPARSE_GQA_DQK                                                                      \
    {                                                                                              \
        SMELT__REQUIRED("dqk", "width of a query and of a key"),                                   \
            SMELT__ONE_OF(64, 96, 128, 192, 256)                                                   \
    }
#define SMELT__SPARSE_GQA_WIDTHS                                                                   \
    SMELT__SPARSE_GQA_DQK, {                                                                       \
        SMELT__REQUIRED("dv", "width of a value, at most dqk"),                                    \
            SMELT__ONE_OF(64, 96, 128, 192, 256)                                                   \
    }
#define SMELT__SPARSE_GQA_HEADS                                                                    \
    {SMELT__DIVIDED("heads", "query heads on this rank, a multiple of kv_heads"),                  \
     SMELT__RANGE(1, 1024)},                                                                       \
    {                                                                                              \
        SMELT__SHARED("kv_heads", "KV heads on this rank"), SMELT__RANGE(1, 1024)                  \
    }
#define SMELT__SPARSE_GQA_LISTS                                                                    \
    {SMELT__REQUIRED("granularity", "rows of an entry"), SMELT__ONE_OF(1, 4, 16, 64, 128)}, {      \
        SMELT__OPTIONAL("lists", "shared: one list for all heads; kv: one for each KV head"),      \
            SMELT__NAMES_2(shared, kv)                                                             \
    }
#define SMELT__SPARSE_GQA_TOPK                                                                     \
    { SMELT__REQUIRED("topk", "the most entries of a list"), SMELT__RANGE(1, 65536) }
#define SMELT__SPARSE_GQA_SHAPE                                                                    \
    SMELT__SPARSE_GQA_HEADS, SMELT__SPARSE_GQA_WIDTHS, SMELT__SPARSE_GQA_LISTS
#define SMELT__SPARSE_GQA_SINK                                                                     \
    {                                                                                              \
        SMELT__OPTIONAL("sink", "1: a learnt logit per head in the softmax denominator"),          \
            SMELT__ONE_OF(0, 1)                                                                    \
    }

/* Of the forward pass. */
#define SMELT__SPARSE_GQA_UNITE_KEY                                                                \
    {                                                                                              \
        SMELT__OPTIONAL("unite", "1: lists of neighbouring queries may be united"),                \
            SMELT__ONE_OF(0, 1)                                                                    \
    }

/* Checks what ranges cannot express: heads are whole groups of at most 64; dv, if it is a key, is
 * at most dqk. */
int smelt__sparse_gqa_check(const struct smelt__spec *spec, struct smelt__message *message);
