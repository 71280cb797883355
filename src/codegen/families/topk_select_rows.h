/* What the kernel family topk_select_rows and its callers agree on. */
#pragma once

#include "codegen/family.h"

extern const struct smelt__kernel_family smelt__topk_select_rows;

enum { SMELT__TOPK_SELECT_MOST = 4096 /* values of topk */ };

/* Values of the key `order`. */
enum smelt__topk_order { SMELT__TOPK_BY_INDEX = 0, SMELT__TOPK_BY_SCORE };

/* Values of the key `pass`: the first alone for many rows, the others one after the other for few.
 */
enum smelt__topk_pass {
    SMELT__TOPK_ROWS = 0,
    SMELT__TOPK_PARTS,
    SMELT__TOPK_MERGE,
    SMELT__TOPK_PASSES
};

/* Rows of a table of keys that operators with a top-k have in common. */
#define SMELT__TOPK_KEYS                                                                           \
    {SMELT__REQUIRED("topk", "elements that are selected of a row"), SMELT__RANGE(1, 4096)}, {     \
        SMELT__OPTIONAL("order", "ascending by index, or descending by score"),                    \
            SMELT__NAMES_2(index, score)                                                           \
    }

/* Adds the three kernels, in the order of enum smelt__topk_pass, of an operator that has the keys
 * above; `member`: its number of this family. */
void smelt__topk_select_expand(struct smelt__expansion *expansion, const struct smelt__spec *spec,
                               int member, unsigned pass);

/* Entries of the list that each part of a row produces; the maximum number of parts per row. */
int smelt__topk_select_part_list(int topk);
enum { SMELT__TOPK_MOST_PARTS = 512 };
