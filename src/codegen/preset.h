/* Presets: the operators the published models need. Pure. Each operator's family says what a model
 * asks of it (family.h); here stand the models. */
#ifndef SMELT_CODEGEN_PRESET_H
#define SMELT_CODEGEN_PRESET_H

#include "codegen/family.h"

enum { SMELT__MAX_PRESET_SPECS = 32 };

/* Name number `index`, NULL past the end. */
const char *smelt__preset_at(int index);

/*
 * The operators of a preset on one of `tp` ranks, for `passes` (a set; those of them that an
 * operator has), 0 for all that there are: training needs them all. Their number, or -1 with a
 * message naming what is legal.
 */
int smelt__preset_expand(const char *name, int tp, unsigned passes,
                         struct smelt__spec specs[SMELT__MAX_PRESET_SPECS],
                         struct smelt__message *message);

#endif
