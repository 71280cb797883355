/* The operator quantize, rows of bf16 as e4m3 (docs/operators.md), and its
 * kernel family quantize_rows. */
#include "codegen/families/quantize.h"

#include <stddef.h>
#include <stdio.h>

#include "codegen/plan/limits.h"
#include "codegen/spec/keys.h"

/* ---- the kernel ------------------------------------------------------------------------------- */

enum {
    THREADS = 256,
    BLOCKS = 4,       /* of a multiprocessor: bound by memory, so that many loads are under way */
    CHUNKS_AHEAD = 4, /* of a lane: loads in flight */
    CHUNK = 8,        /* elements */
    GROUP_STEP = 16,  /* elements, 32 bytes of x and 16 of y: groups start at multiples of it */
    LANES = 32,       /* of a warp */
    FP8_CAPABILITY = 89
};

/* The kernel's and the operator's. */
static const struct smelt__key keys[] = {
    {SMELT__REQUIRED("dim", "width of a row"), SMELT__STEPS(16, 1024, 16)},
    {SMELT__OPTIONAL("scale", "what a scale is: any number, or a power of two"),
     SMELT__NAMES_2(plain, power_of_two)},
    {SMELT__KEY("groups", "groups of a row's columns, each with a scale of its own"),
     .default_value = 1, SMELT__RANGE(1, 64)},
};

static int check(const struct smelt__spec *spec, struct smelt__message *message) {
    const int dim = (int)smelt__spec_get(spec, "dim"),
              groups = (int)smelt__spec_get(spec, "groups");
    if (dim % (groups * GROUP_STEP) == 0)
        return 0;
    return smelt__spec_refuse(
        spec, message, "groups=%d does not divide dim=%d into groups of a multiple of %d columns",
        groups, dim, GROUP_STEP);
}

/* Chunks of a group. */
static int group_chunks(int dim, int groups) {
    return dim / groups / CHUNK;
}

/* Lanes of a group: a power of two. */
static int group_lanes(int dim, int groups) {
    int lanes = 1;
    while (lanes < LANES && lanes < group_chunks(dim, groups))
        lanes *= 2;
    return lanes;
}

static int lane_chunks(int dim, int groups) {
    const int lanes = group_lanes(dim, groups);
    return (group_chunks(dim, groups) + lanes - 1) / lanes;
}

static int groups_ahead(int dim, int groups) {
    return CHUNKS_AHEAD / lane_chunks(dim, groups) > 1 ? CHUNKS_AHEAD / lane_chunks(dim, groups)
                                                       : 1;
}

int smelt__quantize_block_groups(int dim, int groups) {
    return THREADS / group_lanes(dim, groups) * groups_ahead(dim, groups);
}

static int plan_rows(const struct smelt__spec *spec, const struct smelt__arch *arch,
                     struct smelt__plan *plan, struct smelt__message *message) {
    const int dim = (int)smelt__spec_get(spec, "dim"), scale = (int)smelt__spec_get(spec, "scale");
    const int groups = (int)smelt__spec_get(spec, "groups");
    const int capability = 10 * arch->capability_major + arch->capability_minor;
    (void)message; /* every architecture has it */
    smelt__plan_set_threads(plan, THREADS, BLOCKS);
    snprintf(plan->kernel_name, sizeof plan->kernel_name, "smelt_quantize_rows_d%d_g%d_%s", dim,
             groups, smelt__spec_choice(spec, "scale"));
    smelt__plan_add(plan, "DIM", dim, SMELT__FROM_SPEC, "width of a row, elements");
    smelt__plan_add(plan, "GROUPS", groups, SMELT__FROM_SPEC, "groups of a row's columns");
    smelt__plan_add(plan, "POWER_OF_TWO", scale, SMELT__FROM_SPEC, "1: scales are powers of two");
    smelt__plan_add(plan, "CONVERTS", capability >= FP8_CAPABILITY, SMELT__DERIVED,
                    "1: there is an instruction that rounds to e4m3");
    smelt__plan_add(plan, "GROUP_LANES", group_lanes(dim, groups), SMELT__DERIVED,
                    "lanes that share a group");
    smelt__plan_add(plan, "LANE_CHUNKS", lane_chunks(dim, groups), SMELT__DERIVED,
                    "chunks of a group's lane, at most");
    smelt__plan_add(plan, "GROUPS_AHEAD", groups_ahead(dim, groups), SMELT__DERIVED,
                    "groups of a lane in flight");
    smelt__plan_add(plan, "BLOCK_GROUPS", smelt__quantize_block_groups(dim, groups), SMELT__DERIVED,
                    "groups of an item");
    return 0;
}

static const struct smelt__kernel_family quantize_rows = {
    .schema = {.name = "quantize_rows",
               .summary = "rows of bf16 as e4m3, with a scale for each group of columns",
               SMELT__KEYS(keys),
               .check = check},
    SMELT__VARIANTS({"rows", plan_rows}),
};

/* ---- the operator ----------------------------------------------------------------------------- */

const struct smelt__operator_family smelt__quantize = {
    .schema = {.name = "quantize",
               .is_operator = 1,
               .example = "quantize:dim=128",
               .summary = "rows of bf16 as e4m3, with a scale for each group of columns",
               SMELT__KEYS(keys),
               SMELT__MEMBER("rows", &quantize_rows.schema),
               .check = check},
    .passes = SMELT__FORWARD,
    SMELT__FAMILIES(&quantize_rows),
};
