/* Values of the options of a problem that the user does not give: defaults, small problems, random problems,
 * and the kinds of inputs. */
#pragma once

#include "harness/operator.h"

/* Set the options that are not given, for a spec of an operator: to its defaults, or to a problem that the
 * emulator computes in seconds. */
void smelt__options_default(const struct smelt__harness_operator *op, const void *spec,
                            struct smelt__problem_options *options);
void smelt__options_small(const struct smelt__harness_operator *op, const void *spec,
                          struct smelt__problem_options *options);

/* Draws the options of a random problem of up to a few hundred rows, with any flags and choices. The caller
 * sets seed, batches, tokens and layout. */
void smelt__options_draw(const struct smelt__harness_operator *op, const void *spec,
                         struct smelt__random *random, struct smelt__problem_options *options);

/* Sets the options of kind number `number` of the inputs that check tries by default, and keeps the others;
 * returns 0 past the last kind. */
int smelt__options_kind(const struct smelt__harness_operator *op, int number,
                        struct smelt__problem_options *options);

/* Sets the options of problem number `number` with which tune checks a candidate (the first kind of inputs,
 * then the last one); returns 0 past the last problem. */
int smelt__options_trial(const struct smelt__harness_operator *op, const void *spec, int number,
                         struct smelt__problem_options *options);

/* The value of a key in an operator's struct of keys; 0 if it has no such key. */
int64_t smelt__harness_key_of(const struct smelt__harness_operator *op, const void *spec,
                              const char *name);
