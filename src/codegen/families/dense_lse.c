/* The operator dense_lse: dense attention's log-sum-exp over windows (docs/operators.md); and its
 * kernel family, dense_lse_fwd. */
#include "codegen/families/dense_scores_fwd.h"

static const struct smelt__key kernel_keys[] = {
    SMELT__DENSE_SHAPE,
    {SMELT__KNOB("block_rows", "rows of queries that stay in shared memory"),
     SMELT__AUTO_ONE_OF(32, 64, 128), SMELT__TUNED},
    SMELT__STREAMED_KNOBS,
};

static int plan_mma(const struct smelt__spec *spec, const struct smelt__arch *arch,
                    struct smelt__plan *plan, struct smelt__message *message) {
    const int kv_heads = (int)smelt__spec_get(spec, "kv_heads");
    const int group = (int)smelt__spec_get(spec, "heads") / kv_heads;
    struct smelt__streamed_shape shape;
    plan->variant = "mma";
    plan->template_name = "dense_lse_fwd.mma.cu";
    smelt__dense_name(spec, "dense_lse", plan);
    if (smelt__streamed_plan(spec, arch, "block_rows", &shape, plan, message))
        return -1;
    struct smelt__dense_lse_launch *const launch = (void *)plan->launch;
    const int query_rows = smelt__dense_rows(group, 1, shape.resident_rows);
    const struct smelt__plan_row rows = {"QUERY_ROWS", NULL, query_rows,
                                         "rows of a query: heads that read a key head, padded"};
    smelt__plan_add_rows(plan, spec, &rows, 1);
    launch->item_queries = shape.resident_rows / query_rows;
    launch->query_items = (group + query_rows - 1) / query_rows * kv_heads;
    plan->item = "rows";
    return 0;
}

static const struct smelt__kernel_family dense_lse_fwd = {
    .schema = {.name = "dense_lse_fwd",
               .summary = "the log-sum-exp of dense attention's scores over windows",
               SMELT__KEYS(kernel_keys),
               .check = smelt__dense_check},
    SMELT__VARIANTS({"mma", plan_mma}),
};

static const struct smelt__key keys[] = {SMELT__DENSE_SHAPE};

static const struct smelt__preset_row presets[] = {{NULL, NULL}};

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
