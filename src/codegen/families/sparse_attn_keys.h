/*
 * What the operator sparse_attn and its kernels have in common: the keys that say what is computed.
 */
#pragma once

#include "codegen/plan/plan.h"
#include "codegen/spec/keys.h"

enum { SMELT__SPARSE_ATTN_MAX_HEADS = 1024, SMELT__SPARSE_ATTN_MAX_TOPK = 1 << 20 };

/* Legal widths. */
#define SMELT__ATTN_WIDTHS SMELT__STEPS(16, 1024, 16)

/* Rows of a table of keys: the shape of every kernel, and the other keys of the operator and its
 * forward pass. */
#define SMELT__SPARSE_ATTN_HEADS                                                                   \
    SMELT__DIVIDED("heads", "query heads on this rank"),                                           \
        SMELT__SOME_OF("1..128 and multiples of 64 above, up to 1024", 1,                          \
                       SMELT__SPARSE_ATTN_MAX_HEADS)
#define SMELT__SPARSE_ATTN_SHAPE                                                                   \
    {SMELT__SPARSE_ATTN_HEADS},                                                                    \
        {SMELT__REQUIRED("dqk", "width of a query and of a KV row"), SMELT__ATTN_WIDTHS}, {        \
        SMELT__REQUIRED("dv", "width of a value, at most dqk: the first columns of a KV row"),     \
            SMELT__ATTN_WIDTHS                                                                     \
    }
#define SMELT__SPARSE_ATTN_COMPUTED                                                                \
    SMELT__SPARSE_ATTN_SHAPE,                                                                      \
        {SMELT__REQUIRED("topk", "the most valid slots of a query"), SMELT__RANGE(1, 1048576)}, {  \
        SMELT__SINK_KEY                                                                            \
    }

/* Of kernels that know one of the widths alone. */
#define SMELT__SPARSE_ATTN_DQK                                                                     \
    { SMELT__REQUIRED("dqk", "width of a KV row"), SMELT__ATTN_WIDTHS }
#define SMELT__SPARSE_ATTN_DV                                                                      \
    { SMELT__REQUIRED("dv", "width of a value"), SMELT__ATTN_WIDTHS }

/* Checks what their ranges cannot express: dv is at most dqk, the rule for heads. */
int smelt__sparse_attn_check(const struct smelt__spec *spec, struct smelt__message *message);

/* Names the kernel of a plan whose variant is set, smelt_FAMILY_VARIANT_h64_qk576_v512 and so on, and
 * adds the constants that the spec gives. */
void smelt__sparse_attn_name(const struct smelt__spec *spec, struct smelt__plan *plan);
