/* What the files of the specs share. */
#ifndef SMELT_CODEGEN_SPEC_INTERNAL_H
#define SMELT_CODEGEN_SPEC_INTERNAL_H

#include "codegen/spec/spec.h"

/* "NAME: KEY=VALUE is not legal, did you mean ...?; legal: ...". */
void smelt__spec_bad_value(const char *name, const struct smelt__key *key, const char *value,
                           struct smelt__message *message);

#endif
