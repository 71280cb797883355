/* What the kernel family topk_select_rows and its callers agree on. */
#pragma once

#include "codegen/family.h"

extern const struct smelt__kernel_family smelt__topk_select_rows;

/* Values of the key `order`. */
enum smelt__topk_order { SMELT__TOPK_BY_INDEX = 0, SMELT__TOPK_BY_SCORE };

/* Values of the key `pass`: rows for many rows, parts and then merge for few, warps for many short
 * rows. */
enum smelt__topk_pass {
    SMELT__TOPK_ROWS = 0,
    SMELT__TOPK_PARTS,
    SMELT__TOPK_MERGE,
    SMELT__TOPK_WARPS,
    SMELT__TOPK_PASSES
};

enum { SMELT__TOPK_WARP_MOST = 64 /* largest topk that has the pass warps */ };

/* Rows of a table of keys that operators with a top-k have in common. */
#define SMELT__TOPK_KEYS                                                                           \
    {SMELT__REQUIRED("topk", "elements that are selected of a row"), SMELT__RANGE(1, 16384)}, {    \
        SMELT__OPTIONAL("order", "ascending by index, or descending by score"),                    \
            SMELT__NAMES_2(index, score)                                                           \
    }

/* What is always selected, and what a list holds. */
#define SMELT__TOPK_LIST_KEYS                                                                      \
    {SMELT__OPTIONAL("pinned", "of them: the last ones of a window, whatever their scores"),       \
     SMELT__RANGE(0, 16384)},                                                                      \
        {SMELT__OPTIONAL("expand", "rows of a list that an entry becomes; 1: lists hold entries"), \
         SMELT__ONE_OF(1, 2, 4, 8, 16, 32, 64, 128), .default_value = 1},                          \
    {                                                                                              \
        SMELT__OPTIONAL("tail", "1: rows after the last complete entry are appended"),             \
            SMELT__ONE_OF(0, 1)                                                                    \
    }

/* Checks what the ranges of these keys cannot express. 0, or -1 with a message. */
int smelt__topk_select_check(const struct smelt__spec *spec, struct smelt__message *message);

/* The value of a key of the kernels that the operator's spec does not have; a key of NULL ends. */
struct smelt__topk_setting {
    const char *key;
    int value;
};

/* How many kernels a selection of all rows has: all passes, or those before warps. */
int smelt__topk_select_kernels(const struct smelt__spec *spec);

/* Adds the first `count` kernels, in the order of enum smelt__topk_pass, of an operator that has the
 * keys above; `member`: its number of this family. With one kernel every row has one block. */
void smelt__topk_select_expand(struct smelt__expansion *expansion, const struct smelt__spec *spec,
                               int member, unsigned pass, int count,
                               const struct smelt__topk_setting *settings);

/* Slots of a list. */
static inline int64_t smelt__topk_select_width(const struct smelt__spec *spec) {
    const int64_t expand = smelt__spec_get(spec, "expand");
    return smelt__spec_get(spec, "topk") * expand + smelt__spec_get(spec, "tail") * (expand - 1);
}

/* Entries of the list that each part of a row produces; the maximum number of parts per row. */
int smelt__topk_select_part_list(int topk);
enum { SMELT__TOPK_MOST_PARTS = 512 };
