/* The operator indexer_quantize: rows of bf16 as e4m3 and a scale each (docs/operators.md). */
#include <stddef.h>

#include "codegen/families/indexer_quantize.h"

enum { ROWS }; /* members by number */

static const struct smelt__member members[] = {
    [ROWS] = {"rows", &smelt__indexer_quantize_rows.schema, 0},
};

static const struct smelt__kernel_family *const kernels[] = {&smelt__indexer_quantize_rows, NULL};

static const struct smelt__key keys[] = {SMELT__QUANTIZE_KEYS};

static void expand(const struct smelt__spec *spec, unsigned pass,
                   struct smelt__expansion *expansion) {
    smelt__expansion_add(expansion, spec, ROWS, pass);
}

/* Which models quantise so is the caller's choice. */
static const struct smelt__preset_row presets[] = {{NULL, NULL}};

const struct smelt__operator_family smelt__indexer_quantize = {
    .schema = {.name = "indexer_quantize",
               .is_operator = 1,
               .summary = "rows of bf16 as e4m3 and a scale each",
               .keys = keys,
               .key_count = sizeof keys / sizeof *keys,
               .members = members,
               .member_count = sizeof members / sizeof *members,
               .check = smelt__indexer_check},
    .passes = SMELT__FORWARD,
    .kernels = kernels,
    .expand = expand,
    .presets = presets,
};
