/* Presets: the operators the published models need. Pure. */
#ifndef SMELT_CODEGEN_PRESET_H
#define SMELT_CODEGEN_PRESET_H

#include "codegen/spec/spec.h"
#include "codegen/text.h"

enum { SMELT__MAX_PRESET_SPECS = 8 };

/* Name number `index`, NULL past the end. */
const char *smelt__preset_at(int index);
/* The operators of a preset on one of `tp` ranks; their number, or -1 with a message naming what is
 * legal. */
int smelt__preset_expand(const char *name, int tp,
                         struct smelt__spec specs[SMELT__MAX_PRESET_SPECS],
                         struct smelt__message *message);

#endif
