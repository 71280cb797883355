/* The operator dense_lse: dense attention's log-sum-exp over windows (docs/operators.md); and its
 * kernel family, dense_lse_fwd. */
#include "codegen/families/dense_scores_fwd.h"

static const struct smelt__key kernel_keys[] = {
    SMELT__DENSE_SHAPE,
    {SMELT__KNOB("block_rows", "rows of queries that stay in shared memory"),
     SMELT__AUTO_ONE_OF(32, 64, 128), SMELT__TUNED, .variants = "mma"},
    SMELT__DENSE_KNOBS,
};

/* What follows from the rows of an item. */
static struct smelt__dense_lse_launch *add_items(const struct smelt__spec *spec, int rows,
                                                 struct smelt__plan *plan) {
    struct smelt__dense_lse_launch *const launch = (void *)plan->launch;
    const int kv_heads = (int)smelt__spec_get(spec, "kv_heads");
    const int group = (int)smelt__spec_get(spec, "heads") / kv_heads;
    launch->query_rows = smelt__dense_rows(group, 1, rows);
    launch->item_queries = rows / launch->query_rows;
    launch->query_items = (group + launch->query_rows - 1) / launch->query_rows * kv_heads;
    smelt__plan_add(plan, "QUERY_ROWS", launch->query_rows, SMELT__DERIVED,
                    "rows of a query: heads that read a key head, padded");
    plan->item = "rows";
    return launch;
}

static int plan_mma(const struct smelt__spec *spec, const struct smelt__arch *arch,
                    struct smelt__plan *plan, struct smelt__message *message) {
    struct smelt__streamed_shape shape;
    smelt__dense_name(spec, "dense_lse", plan);
    if (smelt__streamed_plan(spec, arch, "block_rows", &shape, plan, message))
        return -1;
    add_items(spec, shape.resident_rows, plan);
    return 0;
}

/* Two warpgroups have 64 rows each. */
static int plan_sm90(const struct smelt__spec *spec, const struct smelt__arch *arch,
                     struct smelt__plan *plan, struct smelt__message *message) {
    enum { SLAB_ROWS = 64 };
    struct smelt__streamed_shape shape;
    smelt__dense_name(spec, "dense_lse", plan);
    if (smelt__dense_sm90_plan(spec, arch, 0, 0, &shape, plan, message))
        return -1;
    struct smelt__dense_lse_launch *const launch = add_items(spec, shape.resident_rows, plan);
    launch->tensor_maps = 1;
    launch->box_keys = shape.slabs * SLAB_ROWS;
    return 0;
}

static const struct smelt__kernel_family dense_lse_fwd = {
    .schema = {.name = "dense_lse_fwd",
               .summary = "the log-sum-exp of dense attention's scores over windows",
               SMELT__KEYS(kernel_keys),
               .check = smelt__dense_check},
    SMELT__VARIANTS({"sm90", plan_sm90}, {"mma", plan_mma}),
};

static const struct smelt__key keys[] = {SMELT__DENSE_SHAPE};

/* For indexer_dense_loss, where dense attention is another library's that does not return it. */
static const struct smelt__preset_row presets[] = {
    {"glm-5.2", "heads=64,dqk=576"},
    {"glm-5.3-flash", "heads=64,dqk=512"},
    {"deepseek-v3.2", "heads=128,dqk=576"},
    {"deepseek-v4-flash", "heads=64,dqk=512"},
    {"deepseek-v4-pro", "heads=128,dqk=512"},
    {"deepseek-v4.1", "heads=64,dqk=512"},
    {"qwen3.8-flash-next", "heads=24,kv_heads=2,dqk=256"},
    {"minimax-m3", "heads=64,kv_heads=4,dqk=128"},
    {NULL, NULL},
};

const struct smelt__operator_family smelt__dense_lse = {
    .schema = {.name = "dense_lse",
               .is_operator = 1,
               .example = "dense_lse:heads=64,dqk=576",
               .summary = "the log-sum-exp of dense attention's scores over windows",
               SMELT__KEYS(keys),
               SMELT__MEMBER("fwd", &dense_lse_fwd.schema),
               .check = smelt__dense_check},
    .passes = SMELT__FORWARD,
    SMELT__FAMILIES(&dense_lse_fwd),
    .presets = presets,
    .training = 1,
};
