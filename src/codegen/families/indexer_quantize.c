/* The operator indexer_quantize, rows of bf16 as e4m3 and a scale each (docs/operators.md), and its
 * kernel family indexer_quantize_rows. */
#include "codegen/families/indexer_quantize.h"

#include <stddef.h>
#include <stdio.h>

#include "codegen/families/indexer_keys.h"
#include "codegen/plan/limits.h"

/* ---- the kernel ------------------------------------------------------------------------------- */

enum {
    THREADS = 256,
    BLOCKS = 4, /* of a multiprocessor: bound by memory, so that many loads are under way */
    ROWS_AHEAD = 4,
    LANE_ELEMENTS = 8,
    FP8_CAPABILITY = 89
};

/* The kernel's and the operator's. */
static const struct smelt__key keys[] = {
    SMELT__INDEXER_DIM,
    {SMELT__OPTIONAL("scale", "what a row's scale is: any number, or a power of two"),
     SMELT__NAMES_2(plain, power_of_two)},
};

int smelt__indexer_quantize_block_rows(int dim) {
    return THREADS / (dim / LANE_ELEMENTS) * ROWS_AHEAD;
}

static int plan_rows(const struct smelt__spec *spec, const struct smelt__arch *arch,
                     struct smelt__plan *plan, struct smelt__message *message) {
    const int dim = (int)smelt__spec_get(spec, "dim"), scale = (int)smelt__spec_get(spec, "scale");
    const int capability = 10 * arch->capability_major + arch->capability_minor;
    (void)message; /* every architecture has it */
    plan->variant = "rows";
    plan->template_name = "indexer_quantize_rows.cu";
    smelt__plan_set_threads(plan, THREADS, BLOCKS);
    snprintf(plan->kernel_name, sizeof plan->kernel_name, "smelt_indexer_quantize_rows_d%d_%s", dim,
             smelt__spec_choice(spec, "scale"));
    smelt__plan_add(plan, "DIM", dim, SMELT__FROM_SPEC, "width of a row, elements");
    smelt__plan_add(plan, "POWER_OF_TWO", scale, SMELT__FROM_SPEC, "1: scales are powers of two");
    smelt__plan_add(plan, "CONVERTS", capability >= FP8_CAPABILITY, SMELT__DERIVED,
                    "1: there is an instruction that rounds to e4m3");
    smelt__plan_add(plan, "ROWS_AHEAD", ROWS_AHEAD, SMELT__DERIVED, "rows of a lane under way");
    smelt__plan_add(plan, "BLOCK_ROWS", smelt__indexer_quantize_block_rows(dim), SMELT__DERIVED,
                    "rows of an item");
    return 0;
}

static const struct smelt__variant variants[] = {
    {"rows", plan_rows},
    {NULL, NULL},
};

static const struct smelt__kernel_family indexer_quantize_rows = {
    .schema = {.name = "indexer_quantize_rows",
               .summary = "rows of bf16 as e4m3 and a scale each",
               .keys = keys,
               .key_count = sizeof keys / sizeof *keys},
    .variants = variants,
};

/* ---- the operator ----------------------------------------------------------------------------- */

enum { ROWS }; /* members by number */

static const struct smelt__member members[] = {
    [ROWS] = {"rows", &indexer_quantize_rows.schema, 0},
};

static const struct smelt__kernel_family *const kernels[] = {&indexer_quantize_rows, NULL};

static void expand(const struct smelt__spec *spec, unsigned pass,
                   struct smelt__expansion *expansion) {
    smelt__expansion_add(expansion, spec, ROWS, pass);
}

const struct smelt__operator_family smelt__indexer_quantize = {
    .schema = {.name = "indexer_quantize",
               .is_operator = 1,
               .example = "indexer_quantize:dim=128",
               .summary = "rows of bf16 as e4m3 and a scale each",
               .keys = keys,
               .key_count = sizeof keys / sizeof *keys,
               .members = members,
               .member_count = sizeof members / sizeof *members},
    .passes = SMELT__FORWARD,
    .kernels = kernels,
    .expand = expand,
};
