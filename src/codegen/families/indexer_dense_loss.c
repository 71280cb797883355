/*
 * The operator indexer_dense_loss: the indexer's loss against dense attention, and the gradients of
 * its inputs (docs/operators.md). Its kernels are those of the logits, of attention's probabilities,
 * of the loss, and indexer_bwd's; and the kernel family indexer_dense_rows.
 */
#include "codegen/families/indexer_dense_loss.h"

#include <inttypes.h>
#include <stdio.h>

#include "codegen/families/dense_scores_fwd.h"
#include "codegen/families/indexer_bwd.h"
#include "codegen/families/indexer_bwd_main.h"
#include "codegen/families/indexer_keys.h"
#include "codegen/families/indexer_logits_fwd.h"
#include "codegen/families/indexer_loss.h"
#include "codegen/families/key_grads_finish.h"
#include "codegen/families/key_grads_grains.h"

enum { LOGITS, SCORES, MAIN }; /* members by number */

/* ---- indexer_dense_rows ---------------------------------------------------------------------- */

enum {
    THREADS = 512,
    BLOCKS = 4, /* all that are resident */
    WINDOWS_THREADS = 256,
    WARP = 32
};
enum { PASS_ROWS, PASS_WINDOWS }; /* values of the key pass */

static const struct smelt__key row_keys[] = {
    {SMELT__OPTIONAL("pass", "rows: losses and gradients; windows: those of pools"),
     SMELT__NAMES_2(rows, windows)},
    SMELT__DENSE_SLOTS,
};

static void add_regions(struct smelt__plan *plan) {
    const int bytes = THREADS / WARP * 4;
    smelt__plan_add_region(plan, "MAXIMA_OFFSET", bytes, 4, "each warp's largest logit");
    smelt__plan_add_region(plan, "TARGETS_OFFSET", bytes, 4, "each warp's sum of targets");
    smelt__plan_add_region(plan, "SUMS_OFFSET", bytes, 4, "each warp's sum of exponentials");
    smelt__plan_add_region(plan, "LOSSES_OFFSET", bytes, 4, "each warp's part of the loss");
}

/* "smelt_indexer_dense_rows", "_pools4" or "_blocks128" behind it. */
static void name_rows(struct smelt__plan *plan, int pools, int blocks) {
    char slots[16] = "";
    if (pools > 1 || blocks > 1)
        snprintf(slots, sizeof slots, "_%s%d", pools > 1 ? "pools" : "blocks",
                 pools > 1 ? pools : blocks);
    snprintf(plan->kernel_name, sizeof plan->kernel_name, "smelt_indexer_dense_%s%s", plan->variant,
             slots);
}

static int plan_rows(const struct smelt__spec *spec, const struct smelt__arch *arch,
                     struct smelt__plan *plan, struct smelt__message *message) {
    const int windows = smelt__spec_get(spec, "pass") == PASS_WINDOWS;
    const int threads = windows ? WINDOWS_THREADS : THREADS;
    const int resident = arch->threads_per_multiprocessor / threads;
    const int pools = (int)smelt__spec_get(spec, "granularity");
    const int blocks = (int)smelt__spec_get(spec, "block_max");
    (void)message; /* every architecture has it */
    snprintf(plan->template_name, sizeof plan->template_name, "indexer_dense_%s.cu", plan->variant);
    plan->item = windows ? "queries" : "query";
    name_rows(plan, pools, blocks);
    smelt__plan_add(plan, "GRANULARITY", pools, SMELT__FROM_SPEC, "keys of a pool");
    if (!windows)
        smelt__plan_add(plan, "BLOCK_MAX", blocks, SMELT__FROM_SPEC, "keys of a block");
    smelt__plan_set_threads(plan, threads, resident < BLOCKS ? resident : BLOCKS);
    plan->persistent = 1;
    if (!windows)
        add_regions(plan);
    return 0;
}

static int check_slots(const struct smelt__spec *spec, struct smelt__message *message) {
    const int64_t pools = smelt__spec_get(spec, "granularity");
    if (pools == 1 || smelt__spec_get(spec, "block_max") == 1)
        return 0;
    return smelt__spec_refuse(
        spec, message,
        "granularity=%d is not legal with block_max=%d: the indexer scores either pools of keys, "
        "or blocks by their largest logit; legal: one of them 1",
        (int)pools, (int)smelt__spec_get(spec, "block_max"));
}

static const struct smelt__kernel_family indexer_dense_rows = {
    .schema = {.name = "indexer_dense_rows",
               .summary = "the indexer's loss over windows, and its gradient as lists",
               SMELT__KEYS(row_keys),
               .check = check_slots},
    SMELT__VARIANTS({"rows", plan_rows}), /* both passes; a plan is named after its pass */
};

/* ---- the operator ---------------------------------------------------------------------------- */

static const struct smelt__member members[] = {
    [LOGITS] = {"logits", &smelt__indexer_logits_fwd.schema, 0},
    [SCORES] = {"scores", &smelt__dense_scores_fwd.schema, 0},
    [MAIN] = {"main", &smelt__indexer_bwd_main.schema, 0},
};

static const struct smelt__key keys[] = {
    SMELT__DENSE_SHAPE,
    {SMELT__REQUIRED("index_heads", "indexer heads"), SMELT__RANGE(1, 128),
     .divided = SMELT__DIVIDED_WITH_GROUPS},
    {SMELT__REQUIRED("index_dim", "width of an indexer head and key"), SMELT__ONE_OF(32, 64, 128)},
    SMELT__INDEXER_ACTIVATION,
    SMELT__INDEXER_WEIGHTS_DTYPE,
    {SMELT__OPTIONAL("groups", "groups of heads, each with a target and a loss of its own"),
     SMELT__SOME_OF("1..128 that divide heads and index_heads", 1, 128), .default_value = 1,
     .divided = SMELT__DIVIDED_OR_SHARED},
    SMELT__DENSE_SLOTS,
    {SMELT__DETERMINISTIC_KEY},
};

/* Heads and key heads of a group. */
static int group_share(const struct smelt__spec *spec, const char *key) {
    const int64_t groups = smelt__spec_get(spec, "groups"), heads = smelt__spec_get(spec, key);
    return (int)(heads > groups ? heads / groups : 1);
}

static int refuse_groups(const struct smelt__spec *spec, const char *key, const char *legal,
                         struct smelt__message *message) {
    return smelt__spec_refuse(
        spec, message, "groups=%" PRId64 " is not legal with %s=%" PRId64 ", which %s",
        smelt__spec_get(spec, "groups"), key, smelt__spec_get(spec, key), legal);
}

static int check_groups(const struct smelt__spec *spec, struct smelt__message *message) {
    enum { SINGLE_HEADS = 128, HEAD_STEP = 64 }; /* as the key heads has them */
    const int64_t groups = smelt__spec_get(spec, "groups");
    const int64_t heads = smelt__spec_get(spec, "heads");
    const int64_t kv_heads = smelt__spec_get(spec, "kv_heads");
    if (heads % groups != 0)
        return refuse_groups(spec, "heads", "it must divide", message);
    if (heads / groups > SINGLE_HEADS && heads / groups % HEAD_STEP != 0)
        return refuse_groups(spec, "heads", "must make groups of 1 to 128 heads or multiples of 64",
                             message);
    if (smelt__spec_get(spec, "index_heads") % groups != 0)
        return refuse_groups(spec, "index_heads", "it must divide", message);
    if (kv_heads % groups != 0 && groups % kv_heads != 0)
        return refuse_groups(spec, "kv_heads", "must divide it or be a multiple of it", message);
    return 0;
}

static int check(const struct smelt__spec *spec, struct smelt__message *message) {
    if (smelt__dense_check(spec, message) || check_groups(spec, message))
        return -1;
    return check_slots(spec, message);
}

/* Adds a member whose heads are the indexer's. */
static struct smelt__spec *add_indexer(struct smelt__expansion *expansion,
                                       const struct smelt__spec *spec, int member, unsigned pass) {
    struct smelt__spec *const kernel = smelt__expansion_add(expansion, spec, member, pass);
    smelt__spec_set(kernel, "heads", group_share(spec, "index_heads"));
    smelt__spec_set(kernel, "dim", smelt__spec_get(spec, "index_dim"));
    return kernel;
}

/* A group's logits of single keys or pools. */
static void add_logits(struct smelt__expansion *expansion, const struct smelt__spec *spec,
                       unsigned pass) {
    struct smelt__spec *const kernel = add_indexer(expansion, spec, LOGITS, pass);
    smelt__spec_set(kernel, "dtype", SMELT__INDEXER_BF16);
    smelt__spec_set(kernel, "groups", 1);
    smelt__spec_set(kernel, "block_max", 1);
}

/* Attention's of a group. */
static void add_scores(struct smelt__expansion *expansion, const struct smelt__spec *spec,
                       unsigned pass) {
    struct smelt__spec *const kernel = smelt__expansion_add(expansion, spec, SCORES, pass);
    smelt__spec_set(kernel, "heads", group_share(spec, "heads"));
    smelt__spec_set(kernel, "kv_heads", group_share(spec, "kv_heads"));
}

/* Adds a kernel that is not a member; `number`: its pass, if it has several. */
static struct smelt__spec *add(struct smelt__expansion *expansion, const struct smelt__spec *spec,
                               int role, const struct smelt__kernel_family *family, int number) {
    struct smelt__spec *const kernel =
        smelt__expansion_add_other(expansion, spec, family, number, SMELT__FORWARD);
    smelt__expansion_role(expansion, role);
    return kernel;
}

/* The role of a kernel that has role `role` in indexer_bwd. */
static int backward(int role) {
    return SMELT__INDEXER_DENSE_BACKWARD + role - SMELT__INDEXER_BWD_REACH;
}

static void expand(const struct smelt__spec *spec, unsigned pass,
                   struct smelt__expansion *expansion) {
    const int deterministic = (int)smelt__spec_get(spec, "deterministic");
    if (smelt__spec_get(spec, "granularity") > 1)
        add(expansion, spec, SMELT__INDEXER_DENSE_WINDOWS, &indexer_dense_rows, PASS_WINDOWS);
    add_logits(expansion, spec, pass);
    smelt__expansion_role(expansion, SMELT__INDEXER_DENSE_LOGITS);
    add_scores(expansion, spec, pass);
    smelt__expansion_role(expansion, SMELT__INDEXER_DENSE_SCORES);
    add(expansion, spec, SMELT__INDEXER_DENSE_ROWS, &indexer_dense_rows, PASS_ROWS);
    for (int i = SMELT__GRAINS_REACH; deterministic && i <= SMELT__GRAINS_GRAINS; i++)
        add(expansion, spec, backward(SMELT__INDEXER_BWD_REACH + i), &smelt__key_grads_grains, i);
    add_indexer(expansion, spec, MAIN, pass);
    smelt__expansion_role(expansion, backward(SMELT__INDEXER_BWD_MAIN));
    if (deterministic)
        add(expansion, spec, backward(SMELT__INDEXER_BWD_TOTALS), &smelt__key_grads_grains,
            SMELT__GRAINS_TOTALS);
    add(expansion, spec, SMELT__INDEXER_DENSE_SUM, &smelt__indexer_loss_sum, 0);
    smelt__spec_set(
        add(expansion, spec, backward(SMELT__INDEXER_BWD_FINISH), &smelt__key_grads_finish, 0),
        "dqk", smelt__spec_get(spec, "index_dim"));
}

/* Models whose indexer's training begins against dense attention. */
static const struct smelt__preset_row presets[] = {
    {"glm-5.2", "heads=64,dqk=576,index_heads=32,index_dim=128"},
    {"glm-5.3-flash", "heads=64,dqk=512,index_heads=32,index_dim=128,granularity=4"},
    {"deepseek-v3.2", "heads=128,dqk=576,index_heads=64,index_dim=128"},
    {"deepseek-v4-flash", "heads=64,dqk=512,index_heads=64,index_dim=128"},
    {"deepseek-v4-pro", "heads=128,dqk=512,index_heads=64,index_dim=128"},
    {"deepseek-v4.1", "heads=64,dqk=512,index_heads=64,index_dim=128"},
    {"qwen3.8-flash-next", "heads=24,kv_heads=2,dqk=256,index_heads=4,index_dim=128,granularity=4"},
    {"minimax-m3",
     "heads=64,kv_heads=4,dqk=128,index_heads=4,index_dim=128,activation=none,groups=4,"
     "block_max=128"},
    {NULL, NULL},
};

const struct smelt__operator_family smelt__indexer_dense_loss = {
    .schema = {.name = "indexer_dense_loss",
               .is_operator = 1,
               .example = "indexer_dense_loss:heads=64,dqk=576,index_heads=64,index_dim=128",
               .summary = "the indexer's loss against dense attention, and its inputs' gradients",
               SMELT__KEYS(keys),
               SMELT__MEMBERS(members),
               .check = check},
    .passes = SMELT__FORWARD,
    SMELT__FAMILIES(&smelt__indexer_logits_fwd, &smelt__dense_scores_fwd, &indexer_dense_rows,
                    &smelt__indexer_loss_sum, &smelt__key_grads_grains, &smelt__indexer_bwd_main,
                    &smelt__key_grads_finish),
    .expand = expand,
    .presets = presets,
    .training = 1,
};
