/*
 * What the operator sparse_attn and its kernels have in common: the keys that say what is computed.
 */
#ifndef SMELT_CODEGEN_SPARSE_ATTN_KEYS_H
#define SMELT_CODEGEN_SPARSE_ATTN_KEYS_H

#include "codegen/spec/keys.h"

enum { SMELT__SPARSE_ATTN_MAX_HEADS = 1024, SMELT__SPARSE_ATTN_MAX_TOPK = 1 << 20 };

/* Rows of a table of keys: what every kernel's shape is, and what the operator and its forward pass
 * have beside it. */
#define SMELT__SPARSE_ATTN_SHAPE                                                                   \
    SMELT__DIVIDED("heads", "1..128 and multiples of 64 above, up to 1024",                        \
                   "query heads on this rank", 1, SMELT__SPARSE_ATTN_MAX_HEADS),                   \
        SMELT__REQUIRED("dqk", "dv or dv+64", "width of a query and of a KV row", 64, 576),        \
        SMELT__REQUIRED("dv", "64, 128, 256, 512",                                                 \
                        "width of a value: the first columns of a KV row", 64, 512)
#define SMELT__SPARSE_ATTN_COMPUTED                                                                \
    SMELT__SPARSE_ATTN_SHAPE,                                                                      \
        SMELT__REQUIRED("topk", "1..1048576", "the most valid slots of a query", 1,                \
                        SMELT__SPARSE_ATTN_MAX_TOPK),                                              \
        SMELT__OPTIONAL("sink", "0, 1", "1: a learnt logit per head in the softmax denominator",   \
                        0, 1, 0)
#define SMELT__SPARSE_ATTN_DETERMINISTIC                                                           \
    SMELT__OPTIONAL("deterministic", "0, 1",                                                       \
                    "1: the backward pass gives the same bits in every run", 0, 1, 0)

/* Of kernels that know one of the widths alone, and what their ranges cannot say. */
#define SMELT__SPARSE_ATTN_DQK                                                                     \
    SMELT__REQUIRED("dqk", "64, 128, 192, 256, 320, 512, 576", "width of a KV row", 64, 576)
#define SMELT__SPARSE_ATTN_DV                                                                      \
    SMELT__REQUIRED("dv", "64, 128, 256, 512", "width of a value", 64, 512)
int smelt__sparse_attn_check_widths(const struct smelt__spec *spec, struct smelt__message *message);

/* What their ranges cannot say: the widths' pairs, the heads' rule. */
int smelt__sparse_attn_check(const struct smelt__spec *spec, struct smelt__message *message);

#endif
