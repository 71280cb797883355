/* The knobs that an operator's spec names: found by name, kept in canonical order. */
#ifndef SMELT_CODEGEN_KNOBS_H
#define SMELT_CODEGEN_KNOBS_H

#include <stddef.h>

#include "codegen/spec/spec.h"

/* The key that a knob is of; of one for all, the first member's that has it. */
const struct smelt__key *smelt__knob_key(const struct smelt__schema *schema,
                                         const struct smelt__knob *knob);

/* Finds "stages" or "fwd.stages" among the members' knobs. 0 with everything of *knob but its value
 * set; -1 when there is none of that name. */
int smelt__knob_find(const struct smelt__schema *schema, const char *name,
                     struct smelt__knob *knob);

/* The knob of the spec that stands at the same place, or NULL. */
struct smelt__knob *smelt__knob_at(struct smelt__spec *spec, const struct smelt__knob *place);

/* Inserts a knob that the spec has not. 0, or -1 when it names too many already. */
int smelt__knob_insert(struct smelt__spec *spec, const struct smelt__knob *knob);

/* Its name as text has it: "fwd.stages". */
void smelt__knob_name(const struct smelt__schema *schema, const struct smelt__knob *knob,
                      char *text, size_t size);

/* Whether a knob of the spec is for the member, and its index among the member's keys; else -1. One
 * for all is for the members that have it and are of a pass that the spec asks for; where there is
 * none, for all that have it. */
int smelt__knob_for(const struct smelt__spec *spec, const struct smelt__knob *knob, int member);

/* The knobs an operator takes for all its members, each name once: number `index`, NULL past the
 * last. */
const struct smelt__key *smelt__schema_knob(const struct smelt__schema *schema, int index);

/* What is legal of such a knob, of every member that has it. */
const char *smelt__schema_knob_legal(const struct smelt__schema *schema,
                                     const struct smelt__key *knob);

#endif
