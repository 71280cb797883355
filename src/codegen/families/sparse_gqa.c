/* The operator sparse_gqa, sparse attention for grouped heads (docs/operators.md), and the families of its
 * main kernels. */
#include "codegen/families/sparse_gqa.h"

#include "codegen/families/attention.h"
#include "codegen/families/key_grads_finish.h"
#include "codegen/families/key_grads_grains.h"

/* ---- the main kernels ------------------------------------------------------------------------ */

#define PART_TILES                                                                                 \
    SMELT__KNOB("part_tiles", "tiles of 64 columns that are filled and freed together"),           \
        SMELT__AUTO_ONE_OF(1, 2, 4), SMELT__TUNED, .variants = "sm90",                             \
                                                   .only_with = "granularity=1,4,16"
#define SEGMENT                                                                                    \
    SMELT__KNOB("segment", "queries of an item"), SMELT__AUTO_RANGE(1, 65536),                     \
        .variants = "sm90", .only_with = "granularity=64,128"

static const struct smelt__key fwd_keys[] = {
    SMELT__GQA_SHAPE,
    {SMELT__SINK_KEY},
    {SMELT__GQA_UNITE},
    {SMELT__VARIANT_KNOB, SMELT__TUNED},
    SMELT__GQA_KNOBS_MMA,
    {SMELT__KNOB("consumers", "warpgroups that compute"), SMELT__AUTO_ONE_OF(2, 3), SMELT__TUNED,
     .variants = "sm90", .only_with = "granularity=64,128"},
    {SEGMENT},
    {PART_TILES},
    {SMELT__KNOB("item_queries", "queries of an item, whose lists are united; with unite=1"),
     SMELT__AUTO_ONE_OF(1, 2, 4), SMELT__TUNED, .variants = "sm90",
     .only_with = "granularity=1,4,16"},
    {SMELT__RACECHECK_KNOB},
};

static const struct smelt__kernel_family sparse_gqa_fwd = {
    .schema = {.name = "sparse_gqa_fwd",
               .summary = "forward pass of sparse attention for grouped heads",
               SMELT__KEYS(fwd_keys),
               .check = smelt__sparse_gqa_check},
    SMELT__VARIANTS({"sm90", smelt__sparse_gqa_fwd_plan_sm90}, {"mma", smelt__sparse_gqa_plan_mma}),
};

static const struct smelt__key bwd_keys[] = {
    SMELT__GQA_SHAPE,
    {SMELT__OPTIONAL("sums",
                     "additions to dk and dv, variant sm90. any: in any order; bounds: only bounds "
                     "of the sums; exact: addends rounded so that no sum depends on the order"),
     SMELT__NAMES_3(any, bounds, exact)},
    {SMELT__VARIANT_KNOB, SMELT__TUNED},
    SMELT__GQA_KNOBS_MMA,
    {PART_TILES},
    {SMELT__RACECHECK_KNOB},
};

static const struct smelt__kernel_family sparse_gqa_bwd = {
    .schema = {.name = "sparse_gqa_bwd",
               .summary = "dq of sparse attention for grouped heads",
               SMELT__KEYS(bwd_keys),
               .check = smelt__sparse_gqa_check},
    SMELT__VARIANTS({"sm90", smelt__sparse_gqa_bwd_plan_sm90}, {"mma", smelt__sparse_gqa_plan_mma}),
};

static const struct smelt__key by_key_keys[] = {
    SMELT__GQA_SHAPE,
    {SMELT__VARIANT_KNOB, SMELT__TUNED},
    {SMELT__KNOB("tile_rows", "rows of a tile of queries"), SMELT__AUTO_ONE_OF(16, 32, 48, 64),
     SMELT__TUNED, .variants = "mma"},
    {SMELT__GQA_BLOCKS_KNOB},
    {SEGMENT, SMELT__TUNED_AT(128, 256, 512)},
    {PART_TILES},
    {SMELT__RACECHECK_KNOB},
};

static const struct smelt__kernel_family sparse_gqa_bwd_keys = {
    .schema = {.name = "sparse_gqa_bwd_keys",
               .summary = "dk and dv of sparse attention for grouped heads",
               SMELT__KEYS(by_key_keys),
               .check = smelt__sparse_gqa_check},
    SMELT__VARIANTS({"sm90", smelt__sparse_gqa_bwd_keys_plan_sm90},
                    {"mma", smelt__sparse_gqa_bwd_keys_plan_mma}),
};

/* ---- the operator ---------------------------------------------------------------------------- */

static const struct smelt__member members[] = {
    {"fwd", &sparse_gqa_fwd.schema, SMELT__FORWARD},
    {"bwd", &sparse_gqa_bwd.schema, SMELT__BACKWARD},
    {"bwd_keys", &sparse_gqa_bwd_keys.schema, SMELT__BACKWARD},
};

static const struct smelt__key keys[] = {
    {SMELT__GQA_HEADS},  {SMELT__GQA_KV_HEADS},      {SMELT__GQA_DQK},   {SMELT__GQA_DV},
    {SMELT__GQA_TOPK},   {SMELT__GQA_GRANULARITY},   {SMELT__GQA_LISTS}, {SMELT__SINK_KEY},
    {SMELT__PASSES_KEY}, {SMELT__DETERMINISTIC_KEY}, {SMELT__GQA_UNITE},
};

/* Adds a kernel. `number`: the value of its key `pass`, if it has one. It is launched only if the kernel of role
 * `with` has the variant `variant`; NULL: always. */
static struct smelt__spec *add(struct smelt__expansion *expansion, const struct smelt__spec *spec,
                               unsigned pass, int role, const struct smelt__kernel_family *family,
                               int number, int with, const char *variant) {
    struct smelt__spec *const kernel =
        smelt__expansion_add_role(expansion, spec, pass, role, family, number);
    smelt__expansion_only_if(expansion, with, variant);
    return kernel;
}

/* All but the main kernel are launched only if that has variant sm90. */
#define ROLE(name) SMELT__GQA_FORWARD_##name
#define ADD(role, family, number)                                                                  \
    add(expansion, spec, SMELT__FORWARD, ROLE(role), family, number, ROLE(MAIN), "sm90")

static void expand_forward(const struct smelt__spec *spec, struct smelt__expansion *expansion) {
    const struct smelt__gqa_shape shape = smelt__sparse_gqa_shape(spec);
    const int unite = (int)smelt__spec_get(spec, "unite");
    const int blocks = shape.granularity >= SMELT__GQA_BLOCK;
    const int unites_blocks = unite && smelt__sparse_gqa_can_unite(&shape);
    struct smelt__spec *united = NULL;
    if (unite && !blocks)
        ADD(GROUPS, &smelt__attention_lists, SMELT__ATTENTION_LISTS_GROUP);
    if (unites_blocks) /* this pass does not depend on `unite` */
        smelt__spec_set(ADD(UNITE, &smelt__sparse_gqa_lists, SMELT__GQA_LISTS_UNITE), "unite", 0);
    for (int i = SMELT__GQA_LISTS_COUNT; blocks && i <= SMELT__GQA_LISTS_FILL; i++)
        smelt__spec_set(ADD(COUNT + i, &smelt__sparse_gqa_lists, i), "unite", unites_blocks);
    if (unites_blocks)
        united = ADD(UNITED, &smelt__sparse_gqa_united, 0);
    const struct smelt__spec *const fwd =
        add(expansion, spec, SMELT__FORWARD, ROLE(MAIN), &sparse_gqa_fwd, 0, 0, NULL);
    if (united)
        smelt__spec_set(united, "racecheck", smelt__spec_get(fwd, "racecheck"));
    if (blocks)
        smelt__spec_set(ADD(MERGE, &smelt__sparse_gqa_merge, 0), "unite", unites_blocks);
}

/* Whether the deterministic mode computes dk and dv by query, with exact sums, after a first run that bounds them;
 * else by key. By query an entry costs an addition to each of its rows; by key it costs a read of each head of the
 * KV head. An addition takes as long as reading four heads (measured). */
static int is_exact(const struct smelt__spec *spec, const struct smelt__gqa_shape *shape) {
    return smelt__spec_get(spec, "deterministic") && shape->group >= 4 * shape->granularity;
}

#undef ROLE
#undef ADD
#define ROLE(name) SMELT__GQA_BACKWARD_##name
#define ADD(role, ...) add(expansion, spec, SMELT__BACKWARD, ROLE(role), __VA_ARGS__)

/* Bounds and exact sums need variant sm90 of sparse_gqa_bwd. Variant sm90 of sparse_gqa_bwd_keys with large
 * blocks computes partial results of dq, too, in place of sparse_gqa_bwd. No spec has both, since exact sums
 * need four heads for each key of a block (is_exact). The backward pass unites no lists. */
static void expand_backward(const struct smelt__spec *spec, struct smelt__expansion *expansion) {
    const struct smelt__gqa_shape shape = smelt__sparse_gqa_shape(spec);
    const int exact = is_exact(spec, &shape);
    const int may_be_block = smelt__sparse_gqa_grad_may_be_block(&shape);
    ADD(ROWS, &smelt__attention_bwd_rows, 0, 0, NULL);
    if (exact) {
        smelt__spec_set(ADD(BOUNDS, &sparse_gqa_bwd, 0, ROLE(QUERIES), "sm90"), "sums",
                        SMELT__GQA_SUMS_BOUNDS);
        ADD(GRAINS, &smelt__key_grads_grains, SMELT__GRAINS_BINS, ROLE(QUERIES), "sm90");
    }
    smelt__spec_set(ADD(QUERIES, &sparse_gqa_bwd, 0, ROLE(KEYS), may_be_block ? "mma" : NULL),
                    "sums", exact ? SMELT__GQA_SUMS_EXACT : SMELT__GQA_SUMS_ANY);
    for (int i = SMELT__GQA_LISTS_COUNT; i <= SMELT__GQA_LISTS_FILL; i++)
        smelt__spec_set(ADD(COUNT + i, &smelt__sparse_gqa_lists, i, 0, NULL), "unite", 0);
    ADD(KEYS, &sparse_gqa_bwd_keys, 0, 0, NULL);
    for (int i = SMELT__GQA_SUMS_QUERIES; may_be_block && i <= SMELT__GQA_SUMS_KEYS; i++)
        ADD(QUERY_SUMS + i, &smelt__sparse_gqa_sums, i, ROLE(KEYS), "sm90");
    ADD(FINISH_DK, &smelt__key_grads_finish, 0, 0, NULL);
    smelt__spec_set(ADD(FINISH_DV, &smelt__key_grads_finish, 0, 0, NULL), "dqk", shape.dv);
}

static void expand(const struct smelt__spec *spec, unsigned pass,
                   struct smelt__expansion *expansion) {
    (pass == SMELT__FORWARD ? expand_forward : expand_backward)(spec, expansion);
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
    SMELT__FAMILIES(&sparse_gqa_fwd, &smelt__sparse_gqa_lists, &smelt__sparse_gqa_merge,
                    &smelt__sparse_gqa_sums, &smelt__attention_bwd_rows, &sparse_gqa_bwd,
                    &sparse_gqa_bwd_keys, &smelt__key_grads_finish, &smelt__sparse_gqa_united,
                    &smelt__attention_lists, &smelt__key_grads_grains),
    .expand = expand,
    .presets = presets,
};
