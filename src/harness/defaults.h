/* The options of problems that nobody gives: defaults, small and random numbers, and kinds of inputs. */
#pragma once

#include "harness/operator.h"

/* Sets what is not given, for a spec of an operator: to its defaults; to numbers that take the emulator
 * seconds. */
void smelt__options_default(const struct smelt__harness_operator *op, const void *spec,
                            struct smelt__problem_options *options);
void smelt__options_small(const struct smelt__harness_operator *op, const void *spec,
                          struct smelt__problem_options *options);

/* Draws the options of a random problem: shapes up to a few hundred rows, and any flags and choices. Seed,
 * batches, tokens and layout are given. */
void smelt__options_draw(const struct smelt__harness_operator *op, const void *spec,
                         struct smelt__random *random, struct smelt__problem_options *options);

/* Sets the options of kind number `number` of the inputs that check tries by default, beside those given;
 * 0 past the last. */
int smelt__options_kind(const struct smelt__harness_operator *op, int number,
                        struct smelt__problem_options *options);

/* Sets the options of problem number `number` that tune checks a candidate on, of the first kind and the
 * last; 0 past the last. */
int smelt__options_trial(const struct smelt__harness_operator *op, const void *spec, int number,
                         struct smelt__problem_options *options);

/* The number of a key in an operator's struct of keys; 0: it has no such key. */
int64_t smelt__harness_key_of(const struct smelt__harness_operator *op, const void *spec,
                              const char *name);
