/* What the operator sparse_gqa's kernel families share, and what the host asks of them. */
#pragma once

#include "codegen/family.h"

extern const struct smelt__kernel_family smelt__sparse_gqa_fwd;
extern const struct smelt__kernel_family smelt__sparse_gqa_bwd;      /* dq */
extern const struct smelt__kernel_family smelt__sparse_gqa_bwd_keys; /* dk, dv */

/* The kernels of the forward pass in the order of its expansion. */
enum smelt__sparse_gqa_forward_kernel {
    SMELT__SPARSE_GQA_FWD,
    /* Only with a granularity that variant sm90 takes: */
    SMELT__SPARSE_GQA_COUNT, /* the passes of sparse_gqa_lists */
    SMELT__SPARSE_GQA_SCAN,
    SMELT__SPARSE_GQA_FILL,
    SMELT__SPARSE_GQA_MERGE,
    /* Only where lists may be united: */
    SMELT__SPARSE_GQA_UNITE, /* a pass of sparse_gqa_lists */
    SMELT__SPARSE_GQA_UNITED,
    /* With smaller granularities: */
    SMELT__SPARSE_GQA_GROUPS = SMELT__SPARSE_GQA_COUNT /* sparse_attn_bwd_lists, pass group */
};

/* The kernels of the backward pass in the order of its expansion. */
enum smelt__sparse_gqa_backward_kernel {
    SMELT__SPARSE_GQA_BACKWARD_ROWS,  /* sparse_attn_bwd_rows */
    SMELT__SPARSE_GQA_BACKWARD_COUNT, /* the passes of sparse_gqa_lists */
    SMELT__SPARSE_GQA_BACKWARD_SCAN,
    SMELT__SPARSE_GQA_BACKWARD_FILL,
    SMELT__SPARSE_GQA_BACKWARD_QUERIES,   /* sparse_gqa_bwd */
    SMELT__SPARSE_GQA_BACKWARD_KEYS,      /* sparse_gqa_bwd_keys */
    SMELT__SPARSE_GQA_BACKWARD_FINISH_DK, /* key_grads_finish */
    SMELT__SPARSE_GQA_BACKWARD_FINISH_DV,
    /* Only where variant sm90 of sparse_gqa_bwd_keys may be had: the passes of sparse_gqa_sums */
    SMELT__SPARSE_GQA_BACKWARD_QUERY_SUMS,
    SMELT__SPARSE_GQA_BACKWARD_KEY_SUMS
};

/* From this granularity on variant sm90 is block-stationary. */
enum { SMELT__SPARSE_GQA_BLOCK = 64 };

/* Queries of an item of sparse_gqa_bwd_keys, variant mma. */
enum { SMELT__SPARSE_GQA_SEGMENT = 512 };

/* Knobs of variant mma. */
#define SMELT__SPARSE_GQA_MMA_KNOBS                                                                \
    {SMELT__KNOB("block_keys", "rows of one step of the main loop"),                               \
     SMELT__AUTO_ONE_OF(32, 64, 128), SMELT__TUNED, .variants = "mma"},                            \
        {SMELT__KNOB("stages", "key blocks in flight"), SMELT__AUTO_RANGE(2, 4), SMELT__TUNED,     \
         .variants = "mma"},                                                                       \
        {SMELT__KNOB("key_groups", "warps that divide a block's keys"),                            \
         SMELT__AUTO_ONE_OF(1, 2, 4, 8), SMELT__TUNED, .variants = "mma"},                         \
    {                                                                                              \
        SMELT__KNOB("blocks", "resident thread blocks a multiprocessor is compiled for"),          \
            SMELT__AUTO_RANGE(1, 4), SMELT__TUNED_AT(1, 2, 3), .variants = "mma"                   \
    }

/* A knob of variant sm90. */
#define SMELT__SPARSE_GQA_PART_TILES                                                               \
    {                                                                                              \
        SMELT__KNOB("part_tiles", "tiles of 64 columns that are filled and freed together"),       \
            SMELT__AUTO_ONE_OF(1, 2, 4), SMELT__TUNED, .variants = "sm90",                         \
                                                       .only_with = "granularity=1,4,16"           \
    }

/* Names the kernel of a plan whose variant is set, "smelt_FAMILY_VARIANT_...", and adds the constants
 * that the spec gives: HEADS, KV_HEADS, GROUP_HEADS, DQK, DV (0 without the key), GRANULARITY,
 * LISTS_OF_KV_HEADS; PDL. */
void smelt__sparse_gqa_name(const struct smelt__spec *spec, struct smelt__plan *plan);

/* Each plans its variant or says why it cannot: 0, or -1 with the reason. */
int smelt__sparse_gqa_fwd_plan_mma(const struct smelt__spec *spec, const struct smelt__arch *arch,
                                   struct smelt__plan *plan, struct smelt__message *message);
int smelt__sparse_gqa_scores_fwd_plan_mma(const struct smelt__spec *spec,
                                          const struct smelt__arch *arch, struct smelt__plan *plan,
                                          struct smelt__message *message);
int smelt__sparse_gqa_fwd_plan_few(const struct smelt__spec *spec, const struct smelt__arch *arch,
                                   struct smelt__plan *plan, struct smelt__message *message);
int smelt__sparse_gqa_bwd_plan_sm90(const struct smelt__spec *spec, const struct smelt__arch *arch,
                                    struct smelt__plan *plan, struct smelt__message *message);
/* The same of granularity 1, 4 and 16, which always has a plan. */
int smelt__sparse_gqa_bwd_keys_plan_few(const struct smelt__spec *spec,
                                        const struct smelt__arch *arch, struct smelt__plan *plan);
int smelt__sparse_gqa_bwd_plan_mma(const struct smelt__spec *spec, const struct smelt__arch *arch,
                                   struct smelt__plan *plan, struct smelt__message *message);
