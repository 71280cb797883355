/* The kernel family dense_scores_fwd, and what dense attention's kernels share: their keys, and the
 * plans of common/streamed_product.cuh and common/streamed_wgmma.cuh. */
#pragma once

#include "codegen/families/sparse_attn_keys.h"
#include "codegen/family.h"
#include "codegen/plan/limits.h"
#include "codegen/spec/keys.h"

extern const struct smelt__kernel_family smelt__dense_scores_fwd;

/* Rows of tables of keys: dense attention's shape. */
#define SMELT__DENSE_SHAPE                                                                         \
    {SMELT__SPARSE_ATTN_HEADS},                                                                    \
        {SMELT__REQUIRED("dqk", "width of a query and of a key"), SMELT__ATTN_WIDTHS}, {           \
        SMELT__OPTIONAL("kv_heads", "key heads, each read by heads / kv_heads query heads"),       \
            SMELT__SOME_OF("divisors of heads", 1, SMELT__SPARSE_ATTN_MAX_HEADS),                  \
            .default_value = 1, .divided = SMELT__DIVIDED_OR_SHARED                                \
    }
/* Rows of the kernels' knobs. */
#define SMELT__DENSE_KNOBS                                                                         \
    {SMELT__VARIANT_KNOB},                                                                         \
        {SMELT__KNOB("row_tiles", "m16 tiles of a warp"), SMELT__AUTO_ONE_OF(2, 4), SMELT__TUNED,  \
         .variants = "mma"},                                                                       \
        {SMELT__KNOB("slabs", "of 64 rows that a tile of the stream has"),                         \
         SMELT__AUTO_ONE_OF(1, 2, 4), SMELT__TUNED},                                               \
        {SMELT__KNOB("stages", "parts of 64 columns of the stream in flight"),                     \
         SMELT__AUTO_RANGE(2, 14), SMELT__TUNED_AT(2, 3, 4)},                                      \
    {                                                                                              \
        SMELT__RACECHECK_KNOB                                                                      \
    }

/* Checks what their ranges cannot express. 0, or -1 with a message. */
int smelt__dense_check(const struct smelt__spec *spec, struct smelt__message *message);

/* The least power of two that is at least `count`, within `least` and `most`. */
int smelt__dense_rows(int count, int least, int most);

/* The shape of a streamed product. */
struct smelt__streamed_shape {
    int resident_rows, row_tiles, slabs, stages;
};

static inline int smelt__streamed_warps(const struct smelt__streamed_shape *shape) {
    return shape->resident_rows / (16 * shape->row_tiles) * shape->slabs;
}

/* Plans common/streamed_product.cuh: chooses a shape, with the knobs of SMELT__DENSE_KNOBS and the knob
 * `rows`, and adds its constants, regions and threads, and HEADS, KV_HEADS and DQK. 0, or -1 with a
 * message. */
int smelt__streamed_plan(const struct smelt__spec *spec, const struct smelt__arch *arch,
                         const char *rows, struct smelt__streamed_shape *shape,
                         struct smelt__plan *plan, struct smelt__message *message);

/* Plans common/streamed_wgmma.cuh likewise, for variant sm90. In further regions each stage has
 * `column_bytes` for each column of D (OFFSETS), and `step_bytes` (STEPS); 0: no such region. */
int smelt__dense_sm90_plan(const struct smelt__spec *spec, const struct smelt__arch *arch,
                           int column_bytes, int step_bytes, struct smelt__streamed_shape *shape,
                           struct smelt__plan *plan, struct smelt__message *message);

/* What the host reads of a plan of dense_scores_fwd: queries and keys of an item of the grid; and of
 * the boxes of tensor maps, if the kernel has them. */
struct smelt__dense_scores_launch {
    int item_queries, block_keys;
    int tensor_maps, tile_queries, query_rows;
};

SMELT__PLAN_LAUNCH(smelt__dense_scores_launch)

/* What the host reads of a plan of dense_lse_fwd: queries of an item, items of the same queries; and the
 * tensor maps' boxes, if the kernel has maps. */
struct smelt__dense_lse_launch {
    int item_queries, query_items;
    int tensor_maps, query_rows, box_keys;
};

SMELT__PLAN_LAUNCH(smelt__dense_lse_launch)

/* Names a kernel "smelt_STEM_VARIANT_h64_d576", with "_kv4" where there are several key heads. */
void smelt__dense_name(const struct smelt__spec *spec, const char *stem, struct smelt__plan *plan);
