/* The operator sparse_gqa, sparse attention for grouped heads (docs/operators.md), and the families of its
 * main kernels. */
#include "codegen/families/sparse_gqa.h"

#include "codegen/families/attention.h"
#include "codegen/families/key_grads_finish.h"
#include "codegen/families/key_grads_grains.h"
#include "codegen/families/sparse_attn_keys.h"
#include "codegen/plan/limits.h"

/* ---- the main kernels ------------------------------------------------------------------------ */

static const struct smelt__key fwd_keys[] = {
    SMELT__GQA_KEY_SHAPE,
    SMELT__GQA_KEY_SINK,
    SMELT__GQA_KEY_UNITE,
    {SMELT__VARIANT_KNOB, SMELT__TUNED},
    SMELT__GQA_KNOBS_MMA,
    {SMELT__KNOB("consumers", "warpgroups that compute"), SMELT__AUTO_ONE_OF(2, 3), SMELT__TUNED,
     .variants = "sm90", .only_with = "granularity=64,128"},
    {SMELT__KNOB("segment", "queries of an item"), SMELT__AUTO_RANGE(1, 65536), .variants = "sm90",
     .only_with = "granularity=64,128"},
    SMELT__GQA_KNOB_PART_TILES,
    {SMELT__KNOB("item_queries", "queries of an item, whose lists are united; with unite=1"),
     SMELT__AUTO_ONE_OF(1, 2, 4), SMELT__TUNED, .variants = "sm90",
     .only_with = "granularity=1,4,16"},
    {SMELT__RACECHECK_KNOB},
};

const struct smelt__kernel_family smelt__sparse_gqa_fwd = {
    .schema = {.name = "sparse_gqa_fwd",
               .summary = "forward pass of sparse attention for grouped heads",
               SMELT__KEYS(fwd_keys),
               .check = smelt__sparse_gqa_check},
    SMELT__VARIANTS({"sm90", smelt__sparse_gqa_fwd_plan_sm90}, {"mma", smelt__sparse_gqa_plan_mma}),
};

static const struct smelt__key bwd_keys[] = {
    SMELT__GQA_KEY_SHAPE,
    {SMELT__OPTIONAL("sums",
                     "additions to dk and dv, variant sm90. any: in any order; bounds: only bounds "
                     "of the sums; exact: addends rounded so that no sum depends on the order"),
     SMELT__NAMES_3(any, bounds, exact)},
    {SMELT__VARIANT_KNOB, SMELT__TUNED},
    SMELT__GQA_KNOBS_MMA,
    SMELT__GQA_KNOB_PART_TILES,
    {SMELT__RACECHECK_KNOB},
};

const struct smelt__kernel_family smelt__sparse_gqa_bwd = {
    .schema = {.name = "sparse_gqa_bwd",
               .summary = "dq of sparse attention for grouped heads",
               SMELT__KEYS(bwd_keys),
               .check = smelt__sparse_gqa_check},
    SMELT__VARIANTS({"sm90", smelt__sparse_gqa_bwd_plan_sm90}, {"mma", smelt__sparse_gqa_plan_mma}),
};

static const struct smelt__key by_key_keys[] = {
    SMELT__GQA_KEY_SHAPE,
    {SMELT__VARIANT_KNOB, SMELT__TUNED},
    {SMELT__KNOB("tile_rows", "rows of a tile of queries"), SMELT__AUTO_ONE_OF(16, 32, 48, 64),
     SMELT__TUNED, .variants = "mma"},
    {SMELT__KNOB("blocks", "resident thread blocks a multiprocessor is compiled for"),
     SMELT__AUTO_RANGE(1, 4), SMELT__TUNED_AT(1, 2, 3), .variants = "mma"},
    {SMELT__KNOB("segment", "queries of an item"), SMELT__AUTO_RANGE(1, 65536),
     SMELT__TUNED_AT(128, 256, 512), .variants = "sm90", .only_with = "granularity=64,128"},
    SMELT__GQA_KNOB_PART_TILES,
    {SMELT__RACECHECK_KNOB},
};

const struct smelt__kernel_family smelt__sparse_gqa_bwd_keys = {
    .schema = {.name = "sparse_gqa_bwd_keys",
               .summary = "dk and dv of sparse attention for grouped heads",
               SMELT__KEYS(by_key_keys),
               .check = smelt__sparse_gqa_check},
    SMELT__VARIANTS({"sm90", smelt__sparse_gqa_bwd_keys_plan_sm90},
                    {"mma", smelt__sparse_gqa_bwd_keys_plan_mma}),
};

/* ---- the operator ---------------------------------------------------------------------------- */

enum { FWD, BWD, BWD_KEYS }; /* members by number */

static const struct smelt__member members[] = {
    [FWD] = {"fwd", &smelt__sparse_gqa_fwd.schema, SMELT__FORWARD},
    [BWD] = {"bwd", &smelt__sparse_gqa_bwd.schema, SMELT__BACKWARD},
    [BWD_KEYS] = {"bwd_keys", &smelt__sparse_gqa_bwd_keys.schema, SMELT__BACKWARD},
};

static const struct smelt__key keys[] = {
    SMELT__GQA_KEY_HEADS,
    SMELT__GQA_KEY_WIDTHS,
    SMELT__GQA_KEY_TOPK,
    SMELT__GQA_KEY_LISTS,
    SMELT__GQA_KEY_SINK,
    {SMELT__PASSES_KEY},
    SMELT__SPARSE_ATTN_DETERMINISTIC,
    SMELT__GQA_KEY_UNITE,
};

/* Adds a kernel that is not a member. `number`: its pass, if it has several. */
static struct smelt__spec *add(struct smelt__expansion *expansion, const struct smelt__spec *spec,
                               int role, const struct smelt__kernel_family *family, int number,
                               unsigned pass) {
    struct smelt__spec *const kernel =
        smelt__expansion_add_other(expansion, spec, family, number, pass);
    smelt__expansion_role(expansion, role);
    return kernel;
}

/* Adds a kernel of the forward pass that is launched only if the main kernel has variant sm90. */
static struct smelt__spec *add_forward(struct smelt__expansion *expansion,
                                       const struct smelt__spec *spec, int role,
                                       const struct smelt__kernel_family *family, int number) {
    struct smelt__spec *const kernel = add(expansion, spec, role, family, number, SMELT__FORWARD);
    smelt__expansion_only_if(expansion, SMELT__SPARSE_GQA_FWD, "sm90");
    return kernel;
}

static void expand_forward(const struct smelt__spec *spec, struct smelt__expansion *expansion) {
    const int unite = (int)smelt__spec_get(spec, "unite");
    const int blocks = smelt__spec_get(spec, "granularity") >= SMELT__SPARSE_GQA_BLOCK;
    const int unites_blocks = unite && smelt__sparse_gqa_can_unite(spec);
    struct smelt__spec plain = *spec, lists = *spec, *united = NULL;
    smelt__spec_set(&plain, "unite", 0); /* the pass `unite` does not depend on it */
    smelt__spec_set(&lists, "unite", unites_blocks);
    if (unite && !blocks)
        add_forward(expansion, spec, SMELT__SPARSE_GQA_GROUPS, &smelt__attention_lists,
                    SMELT__ATTENTION_LISTS_GROUP);
    if (unites_blocks)
        add_forward(expansion, &plain, SMELT__SPARSE_GQA_UNITE, &smelt__sparse_gqa_lists,
                    SMELT__GQA_LISTS_UNITE);
    for (int i = 0; blocks && i < SMELT__GQA_LISTS_PASSES; i++)
        add_forward(expansion, &lists, SMELT__SPARSE_GQA_COUNT + i, &smelt__sparse_gqa_lists, i);
    if (unites_blocks)
        united =
            add_forward(expansion, spec, SMELT__SPARSE_GQA_UNITED, &smelt__sparse_gqa_united, 0);
    const struct smelt__spec *fwd = smelt__expansion_add(expansion, spec, FWD, SMELT__FORWARD);
    smelt__expansion_role(expansion, SMELT__SPARSE_GQA_FWD);
    if (united)
        smelt__spec_set(united, "racecheck", smelt__spec_get(fwd, "racecheck"));
    if (blocks)
        add_forward(expansion, &lists, SMELT__SPARSE_GQA_MERGE, &smelt__sparse_gqa_merge, 0);
}

/* Whether the deterministic mode computes dk and dv by query, with exact sums, after a first run that bounds them;
 * else by key. By query an entry costs an addition to each of its rows; by key it costs a read of each head of the
 * KV head. An addition takes as long as reading four heads (measured). */
static int is_exact(const struct smelt__spec *spec) {
    return smelt__spec_get(spec, "deterministic") &&
           smelt__spec_get(spec, "heads") >=
               4 * smelt__spec_get(spec, "granularity") * smelt__spec_get(spec, "kv_heads");
}

static void add_backward(struct smelt__expansion *expansion, const struct smelt__spec *spec,
                         int role, const struct smelt__kernel_family *family, int number) {
    add(expansion, spec, role, family, number, SMELT__BACKWARD);
}

/* Adds sparse_gqa_bwd, which computes dq and, as its key `sums` says, the sums of dk and dv. */
static void add_queries(struct smelt__expansion *expansion, const struct smelt__spec *spec,
                        int role, int sums) {
    smelt__spec_set(smelt__expansion_add(expansion, spec, BWD, SMELT__BACKWARD), "sums", sums);
    smelt__expansion_role(expansion, role);
}

/* Bounds and exact sums need variant sm90 of sparse_gqa_bwd. Variant sm90 of sparse_gqa_bwd_keys with large
 * blocks computes partial results of dq, too, in place of sparse_gqa_bwd. No spec has both, since exact sums
 * need four heads for each key of a block (is_exact). */
static void expand_backward(const struct smelt__spec *spec, struct smelt__expansion *expansion) {
    const int exact = is_exact(spec), may_be_block = smelt__sparse_gqa_grad_may_be_block(spec);
    struct smelt__spec plain = *spec, of_dv = *spec;
    smelt__spec_set(&plain, "unite", 0); /* the backward pass unites no lists */
    smelt__spec_set(&of_dv, "dqk", smelt__spec_get(spec, "dv"));
    add_backward(expansion, spec, SMELT__SPARSE_GQA_BACKWARD_ROWS, &smelt__attention_bwd_rows, 0);
    if (exact) {
        add_queries(expansion, spec, SMELT__SPARSE_GQA_BACKWARD_BOUNDS, SMELT__GQA_SUMS_BOUNDS);
        smelt__expansion_only_if(expansion, SMELT__SPARSE_GQA_BACKWARD_QUERIES, "sm90");
        add_backward(expansion, spec, SMELT__SPARSE_GQA_BACKWARD_GRAINS, &smelt__key_grads_grains,
                     SMELT__GRAINS_BINS);
        smelt__expansion_only_if(expansion, SMELT__SPARSE_GQA_BACKWARD_QUERIES, "sm90");
    }
    add_queries(expansion, spec, SMELT__SPARSE_GQA_BACKWARD_QUERIES,
                exact ? SMELT__GQA_SUMS_EXACT : SMELT__GQA_SUMS_ANY);
    if (may_be_block)
        smelt__expansion_only_if(expansion, SMELT__SPARSE_GQA_BACKWARD_KEYS, "mma");
    for (int i = 0; i < SMELT__GQA_LISTS_PASSES; i++)
        add_backward(expansion, &plain, SMELT__SPARSE_GQA_BACKWARD_COUNT + i,
                     &smelt__sparse_gqa_lists, i);
    smelt__expansion_add(expansion, spec, BWD_KEYS, SMELT__BACKWARD);
    smelt__expansion_role(expansion, SMELT__SPARSE_GQA_BACKWARD_KEYS);
    for (int i = SMELT__GQA_SUMS_QUERIES; may_be_block && i <= SMELT__GQA_SUMS_KEYS; i++) {
        add_backward(expansion, spec, SMELT__SPARSE_GQA_BACKWARD_QUERY_SUMS + i,
                     &smelt__sparse_gqa_sums, i);
        smelt__expansion_only_if(expansion, SMELT__SPARSE_GQA_BACKWARD_KEYS, "sm90");
    }
    add_backward(expansion, spec, SMELT__SPARSE_GQA_BACKWARD_FINISH_DK, &smelt__key_grads_finish,
                 0);
    add_backward(expansion, &of_dv, SMELT__SPARSE_GQA_BACKWARD_FINISH_DV, &smelt__key_grads_finish,
                 0);
}

static void expand(const struct smelt__spec *spec, unsigned pass,
                   struct smelt__expansion *expansion) {
    if (pass == SMELT__FORWARD)
        expand_forward(spec, expansion);
    else
        expand_backward(spec, expansion);
}

/* The attention of models whose indexers are indexer_topk's presets. qwen3.8-flash-next: 512 pools and
 * the incomplete one. Rows with unite=1 are for the Transformers integration and the drop-in for
 * flash-msa, which pass it because neighbouring lists have much in common. */
static const struct smelt__preset_row presets[] = {
    {"minimax-m3", "heads=64,kv_heads=4,dqk=128,dv=128,topk=16,granularity=128,lists=kv"},
    {"minimax-m3", "heads=64,kv_heads=4,dqk=128,dv=128,topk=16,granularity=128,lists=kv,unite=1"},
    {"qwen3.8-flash-next", "heads=24,kv_heads=2,dqk=256,dv=256,topk=513,granularity=4"},
    {"qwen3.8-flash-next", "heads=24,kv_heads=2,dqk=256,dv=256,topk=513,granularity=4,unite=1"},
    {NULL, NULL},
};

const struct smelt__operator_family smelt__sparse_gqa = {
    .schema = {.name = "sparse_gqa",
               .is_operator = 1,
               .example = "sparse_gqa:heads=64,kv_heads=4,dqk=128,dv=128,topk=16,granularity=128,"
                          "lists=kv",
               .summary = "sparse attention for grouped heads: lists of blocks of rows",
               SMELT__KEYS(keys),
               SMELT__MEMBERS(members),
               .check = smelt__sparse_gqa_check},
    .passes = SMELT__FORWARD | SMELT__BACKWARD,
    SMELT__FAMILIES(&smelt__sparse_gqa_fwd, &smelt__sparse_gqa_lists, &smelt__sparse_gqa_merge,
                    &smelt__sparse_gqa_sums, &smelt__attention_bwd_rows, &smelt__sparse_gqa_bwd,
                    &smelt__sparse_gqa_bwd_keys, &smelt__key_grads_finish,
                    &smelt__sparse_gqa_united, &smelt__attention_lists, &smelt__key_grads_grains),
    .expand = expand,
    .presets = presets,
};
