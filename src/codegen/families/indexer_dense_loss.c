/*
 * The operator indexer_dense_loss: the indexer's loss against dense attention, and the gradients of
 * its inputs (docs/operators.md). Its kernels are those of the logits, of attention's probabilities,
 * of the loss, and indexer_bwd's; and the kernel family indexer_dense_rows.
 */
#include "codegen/families/indexer_dense_loss.h"

#include <stdio.h>

#include "codegen/families/dense_scores_fwd.h"
#include "codegen/families/indexer_bwd_grains.h"
#include "codegen/families/indexer_bwd_main.h"
#include "codegen/families/indexer_keys.h"
#include "codegen/families/indexer_logits_fwd.h"
#include "codegen/families/indexer_loss.h"
#include "codegen/families/key_grads_finish.h"

enum { LOGITS, SCORES, MAIN }; /* members by number */

/* ---- indexer_dense_rows ---------------------------------------------------------------------- */

enum { THREADS = 512, BLOCKS = 4 /* all that are resident */, WARP = 32 };

static int plan_rows(const struct smelt__spec *spec, const struct smelt__arch *arch,
                     struct smelt__plan *plan, struct smelt__message *message) {
    const int bytes = THREADS / WARP * 4;
    (void)spec, (void)message; /* every architecture has it */
    plan->variant = "rows";
    plan->template_name = "indexer_dense_rows.cu";
    plan->item = "query";
    snprintf(plan->kernel_name, sizeof plan->kernel_name, "smelt_indexer_dense_rows");
    smelt__plan_set_threads(plan, THREADS,
                            arch->threads_per_multiprocessor / THREADS < BLOCKS
                                ? arch->threads_per_multiprocessor / THREADS
                                : BLOCKS);
    plan->blocks_per_item = 1;
    plan->persistent = 1;
    smelt__plan_add_region(plan, "MAXIMA_OFFSET", bytes, 4, "each warp's largest logit");
    smelt__plan_add_region(plan, "TARGETS_OFFSET", bytes, 4, "each warp's sum of targets");
    smelt__plan_add_region(plan, "SUMS_OFFSET", bytes, 4, "each warp's sum of exponentials");
    smelt__plan_add_region(plan, "LOSSES_OFFSET", bytes, 4, "each warp's part of the loss");
    return 0;
}

static const struct smelt__kernel_family indexer_dense_rows = {
    .schema = {.name = "indexer_dense_rows",
               .summary = "the indexer's loss over windows, and its gradient as lists"},
    SMELT__VARIANTS({"rows", plan_rows}),
};

/* ---- the operator ---------------------------------------------------------------------------- */

static const struct smelt__member members[] = {
    [LOGITS] = {"logits", &smelt__indexer_logits_fwd.schema, 0},
    [SCORES] = {"scores", &smelt__dense_scores_fwd.schema, 0},
    [MAIN] = {"main", &smelt__indexer_bwd_main.schema, 0},
};

static const struct smelt__key keys[] = {
    SMELT__DENSE_SHAPE,
    {SMELT__REQUIRED("index_heads", "indexer heads"), SMELT__RANGE(1, 128)},
    {SMELT__REQUIRED("index_dim", "width of an indexer head and key"), SMELT__ONE_OF(32, 64, 128)},
    SMELT__INDEXER_ACTIVATION,
    SMELT__INDEXER_WEIGHTS_DTYPE,
    SMELT__SPARSE_ATTN_DETERMINISTIC,
};

/* Adds a member whose heads are the indexer's. */
static struct smelt__spec *add_indexer(struct smelt__expansion *expansion,
                                       const struct smelt__spec *spec, int member, unsigned pass) {
    struct smelt__spec *const kernel = smelt__expansion_add(expansion, spec, member, pass);
    smelt__spec_set(kernel, "heads", smelt__spec_get(spec, "index_heads"));
    smelt__spec_set(kernel, "dim", smelt__spec_get(spec, "index_dim"));
    return kernel;
}

/* The order is enum smelt__indexer_dense_loss_kernel's. */
static void expand(const struct smelt__spec *spec, unsigned pass,
                   struct smelt__expansion *expansion) {
    const int grains = smelt__spec_get(spec, "deterministic") ? SMELT__GRAINS_PASSES : 0;
    smelt__spec_set(add_indexer(expansion, spec, LOGITS, pass), "dtype", SMELT__INDEXER_BF16);
    smelt__expansion_add(expansion, spec, SCORES, pass);
    smelt__expansion_add_other(expansion, &indexer_dense_rows, pass);
    smelt__expansion_add_other(expansion, &smelt__indexer_loss_sum, pass);
    for (int i = 0; i < grains; i++)
        smelt__spec_set(smelt__expansion_add_other(expansion, &smelt__indexer_bwd_grains, pass),
                        "pass", i);
    add_indexer(expansion, spec, MAIN, pass);
    smelt__spec_set(smelt__expansion_add_other(expansion, &smelt__key_grads_finish, pass), "dqk",
                    smelt__spec_get(spec, "index_dim"));
}

/* Models whose indexer's training begins against dense attention over single keys. */
static const struct smelt__preset_row presets[] = {
    {"glm-5.2", "heads=64,dqk=576,index_heads=32,index_dim=128"},
    {"glm-5.3-flash", "heads=64,dqk=512,index_heads=32,index_dim=128"},
    {"deepseek-v3.2", "heads=128,dqk=576,index_heads=64,index_dim=128"},
    {NULL, NULL},
};

const struct smelt__operator_family smelt__indexer_dense_loss = {
    .schema = {.name = "indexer_dense_loss",
               .is_operator = 1,
               .example = "indexer_dense_loss:heads=64,dqk=576,index_heads=64,index_dim=128",
               .summary = "the indexer's loss against dense attention, and its inputs' gradients",
               SMELT__KEYS(keys),
               SMELT__MEMBERS(members),
               .check = smelt__dense_check},
    .passes = SMELT__FORWARD,
    SMELT__FAMILIES(&smelt__indexer_logits_fwd, &smelt__dense_scores_fwd, &indexer_dense_rows,
                    &smelt__indexer_loss_sum, &smelt__indexer_bwd_grains, &smelt__indexer_bwd_main,
                    &smelt__key_grads_finish),
    .expand = expand,
    .presets = presets,
    .training = 1,
};
