/* The tests' toy operator and its one kernel family, toy_scale. */
#include <stdio.h>

#include "codegen/family.h"
#include "codegen/spec/keys.h"

enum { DEFAULT_THREADS = 128, REGISTERS = 64 };

#define WIDTH_KEY                                                                                  \
    { SMELT__REQUIRED("width", "elements of a row"), SMELT__RANGE(1, 4096) }

/* ---- the kernel ------------------------------------------------------------------------------ */

static const struct smelt__key kernel_keys[] = {
    WIDTH_KEY,
    {SMELT__OPTIONAL("accumulate", "1: adds to what is there"), SMELT__ONE_OF(0, 1)},
    {SMELT__KNOB("threads", "of a thread block"), SMELT__AUTO_RANGE(32, 256),
     SMELT__TUNED_AT(64, 256)},
};

static int plan(const struct smelt__spec *spec, const struct smelt__arch *arch,
                struct smelt__plan *plan, struct smelt__message *message) {
    const int64_t threads = smelt__spec_get(spec, "threads");
    (void)arch, (void)message;
    plan->threads = threads == SMELT__AUTO ? DEFAULT_THREADS : (int)threads;
    plan->blocks_per_multiprocessor = 1;
    plan->max_registers = REGISTERS;
    plan->item = "row";
    snprintf(plan->kernel_name, sizeof plan->kernel_name, "smelt_toy_scale_w%d",
             (int)smelt__spec_get(spec, "width"));
    smelt__plan_add(plan, "WIDTH", (int)smelt__spec_get(spec, "width"), SMELT__FROM_SPEC,
                    "elements of a row");
    smelt__plan_add(plan, "ACCUMULATE", (int)smelt__spec_get(spec, "accumulate"), SMELT__FROM_SPEC,
                    "1: adds to what is there");
    smelt__plan_add(plan, "THREADS", plan->threads, smelt__plan_origin(spec, "threads"),
                    "of a thread block");
    smelt__plan_add(plan, "BLOCKS_PER_MULTIPROCESSOR", 1, SMELT__DERIVED, "resident at once");
    return 0;
}

static const struct smelt__kernel_family toy_scale = {
    .schema = {.name = "toy_scale",
               .summary = "multiplies rows by a factor",
               SMELT__KEYS(kernel_keys)},
    SMELT__VARIANTS({"mma", plan}),
};

/* ---- the operator ---------------------------------------------------------------------------- */

enum { FWD, BWD }; /* members by number */

static const struct smelt__member members[] = {
    [FWD] = {"fwd", &toy_scale.schema, SMELT__FORWARD},
    [BWD] = {"bwd", &toy_scale.schema, SMELT__BACKWARD},
};

static const struct smelt__key keys[] = {WIDTH_KEY, {SMELT__PASSES_KEY}};

static void expand(const struct smelt__spec *spec, unsigned pass,
                   struct smelt__expansion *expansion) {
    const int backward = pass == SMELT__BACKWARD;
    smelt__spec_set(smelt__expansion_add(expansion, spec, backward ? BWD : FWD, pass), "accumulate",
                    backward);
}

static const struct smelt__preset_row presets[] = {{"glm-5.2", "width=96"}, {NULL, NULL}};

const struct smelt__operator_family smelt__toy = {
    .schema = {.name = "toy",
               .is_operator = 1,
               .example = "toy:width=75",
               .summary = "rows times a factor: the tests' toy",
               SMELT__KEYS(keys),
               SMELT__MEMBERS(members)},
    .passes = SMELT__FORWARD | SMELT__BACKWARD,
    SMELT__FAMILIES(&toy_scale),
    .expand = expand,
    .presets = presets,
};
