/* Shared by the files of src/codegen/spec. */
#pragma once

#include "codegen/spec/spec.h"

/* "NAME: KEY=VALUE is not legal, did you mean ...?; legal: ..."; -1. */
int smelt__spec_bad_value(const char *name, const struct smelt__key *key, const char *value,
                          struct smelt__message *message);

/* The canonical text with the keys of `mask`, truncated to the buffer; returns its full length. */
size_t smelt__spec_print_masked(const struct smelt__spec *spec, uint32_t mask, char *text,
                                size_t size);
