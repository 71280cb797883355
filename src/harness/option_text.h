/* Options of problems by name: look-up, parsing, printing as a command. */
#pragma once

#include "harness/options.h"

/* All operators' options by number, each name once, common ones first; NULL past the last. */
const struct smelt__option *smelt__option_number(int number);

/* Whether several operators may have the option; 0: it is an operator's own. */
int smelt__option_is_common(const struct smelt__option *option);

/* The option that an operator has under a command-line name, without its dashes; NULL: none. `op`
 * NULL: any operator's. */
const struct smelt__option *smelt__option_find(const struct smelt__harness_operator *op,
                                               const char *name);

/* Sets an option from text (`value` NULL for a flag). 1: set; 0: the operator has no such option;
 * -1: bad value. Messages name the option and its legal values. */
int smelt__problem_option_set(const struct smelt__harness_operator *op,
                              struct smelt__problem_options *options, const char *name,
                              const char *value, char *message, size_t message_size);

/* Whether two sets of options, with defaults filled in, make the same problem. */
int smelt__problem_same(const struct smelt__harness_operator *op,
                        const struct smelt__problem_options *a,
                        const struct smelt__problem_options *b);

/* The kind of inputs of `options`: its name and what else it adds to the `given` options, for example
 * "causal, topk-length, dkv add". */
void smelt__problem_inputs(const char *spec, const struct smelt__problem_options *given,
                           const struct smelt__problem_options *options, char *text, size_t size);

/* The command that reproduces this problem: "smelt VERB SPEC --seed N ...". */
void smelt__problem_command(const char *verb, const char *spec,
                            const struct smelt__problem_options *options, char *text, size_t size);
