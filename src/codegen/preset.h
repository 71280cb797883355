/* Presets: the operators that published models need. Pure. This file lists the models; each
 * operator's family has its keys for them (family.h). */
#pragma once

#include "codegen/family.h"

enum { SMELT__MAX_PRESET_SPECS = 32 };

/* Name number `index`, NULL past the end. */
const char *smelt__preset_at(int index);

/*
 * The operators of a preset on one of `tp` ranks, for `passes` (a set; 0: all passes, as training
 * needs). Returns their number, or -1 with a message that lists the legal values.
 */
int smelt__preset_expand(const char *name, int tp, unsigned passes,
                         struct smelt__spec specs[SMELT__MAX_PRESET_SPECS],
                         struct smelt__message *message);
