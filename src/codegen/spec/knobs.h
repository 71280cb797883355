/* The knobs in an operator's spec: found by name, kept in canonical order. */
#pragma once

#include <stddef.h>

#include "codegen/spec/spec.h"

/* A knob's key; for a knob for all members, the key of the first member that has it. */
const struct smelt__key *smelt__knob_key(const struct smelt__schema *schema,
                                         const struct smelt__knob *knob);

/* Finds "stages" or "fwd.stages" among the members' knobs. 0 with all of *knob but its value set;
 * -1: there is none of that name. */
int smelt__knob_find(const struct smelt__schema *schema, const char *name,
                     struct smelt__knob *knob);

/* The spec's knob with the same member and key, or NULL. */
struct smelt__knob *smelt__knob_at(struct smelt__spec *spec, const struct smelt__knob *knob);

/* Inserts a knob that the spec lacks. 0; -1: the spec has too many. */
int smelt__knob_insert(struct smelt__spec *spec, const struct smelt__knob *knob);

/* The knob's name in text: "fwd.stages". */
void smelt__knob_name(const struct smelt__schema *schema, const struct smelt__knob *knob,
                      char *text, size_t size);

/* The index of a knob among the member's keys if it applies to the member, else -1. A knob for all
 * applies to the members that have it and belong to a pass of the spec; if there is none, to all
 * members that have it. */
int smelt__knob_for(const struct smelt__spec *spec, const struct smelt__knob *knob, int member);

/* An operator's knobs for all members, without duplicates: number `index`, NULL past the last. */
const struct smelt__key *smelt__schema_knob(const struct smelt__schema *schema, int index);

/* The rows of an operator's knobs, for lists. Knobs of several members with one name have one row
 * if their legal values agree, else a row each. Number `index`, NULL past the last; *prefix: the
 * member's if they differ, else "". */
const struct smelt__key *smelt__schema_knob_row(const struct smelt__schema *schema, int index,
                                                const char **prefix);
