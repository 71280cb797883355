/*
 * The keys that the operator sparse_attn and its kernels have in common: an operator hands its keys
 * and knobs to its kernels unchanged, but for `topk`, which is a bucket's bound, and `buckets`,
 * which it alone has.
 */
#ifndef SMELT_CODEGEN_SPARSE_ATTN_KEYS_H
#define SMELT_CODEGEN_SPARSE_ATTN_KEYS_H

#include "codegen/family.h"

enum { SMELT__SPARSE_ATTN_KEY_COUNT = 17 };

extern const struct smelt__key smelt__sparse_attn_keys[SMELT__SPARSE_ATTN_KEY_COUNT];
extern const struct smelt__key smelt__sparse_attn_operator_keys[SMELT__SPARSE_ATTN_KEY_COUNT + 1];

/* The list's numbers, and topk itself. */
enum { SMELT__SPARSE_ATTN_MOST_BUCKETS = SMELT__MAX_LIST + 1 };

/* The bounds of the operator's buckets, ascending, the last one topk; returns how many there are, 0
 * for an operator without buckets. */
int smelt__sparse_attn_bounds(const struct smelt__spec *spec,
                              int bounds[SMELT__SPARSE_ATTN_MOST_BUCKETS]);

/* Values of the knob `variant`. */
enum smelt__sparse_attn_variant { SMELT__SPARSE_ATTN_MMA = 0, SMELT__SPARSE_ATTN_SM90 };

/* Values of the knob `orientation`. */
enum smelt__sparse_attn_orientation { SMELT__SPARSE_ATTN_HEADS = 0, SMELT__SPARSE_ATTN_KEYS };

/* What the keys' ranges cannot say: the widths' pairs, the heads' rule, the listed key blocks. */
int smelt__sparse_attn_check(const struct smelt__spec *spec, struct smelt__message *message);

/* What tuning tries of a knob: family.h. */
int smelt__sparse_attn_tries(const struct smelt__key *key, int named,
                             int64_t values[SMELT__MAX_TRIES]);

#endif
