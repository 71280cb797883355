/* The operator topk_select: the topk largest elements of a matrix's rows (docs/operators.md). */
#include <stddef.h>

#include "codegen/families/topk_select_rows.h"
#include "codegen/family.h"
#include "codegen/spec/keys.h"

enum { ROWS }; /* members by number */

static const struct smelt__key keys[] = {
    SMELT__TOPK_KEYS,
    {SMELT__OPTIONAL("dtype", "elements of the matrix"), SMELT__NAMES_2(fp32, bf16)},
    {SMELT__OPTIONAL("groups", "rows of a query, which share its window"), SMELT__RANGE(1, 128),
     .default_value = 1},
    SMELT__TOPK_LIST_KEYS,
};

static void expand(const struct smelt__spec *spec, unsigned pass,
                   struct smelt__expansion *expansion) {
    const struct smelt__topk_setting settings[] = {{"logits", (int)smelt__spec_get(spec, "dtype")},
                                                   {NULL, 0}};
    smelt__topk_select_expand(expansion, spec, ROWS, pass, smelt__topk_select_kernels(spec),
                              settings);
}

const struct smelt__operator_family smelt__topk_select = {
    .schema = {.name = "topk_select",
               .is_operator = 1,
               .example = "topk_select:topk=2048",
               .summary = "exact top-k of the rows of a matrix within windows",
               SMELT__KEYS(keys),
               SMELT__MEMBER("rows", &smelt__topk_select_rows.schema),
               .check = smelt__topk_select_check},
    .passes = SMELT__FORWARD,
    SMELT__FAMILIES(&smelt__topk_select_rows),
    .expand = expand,
};
