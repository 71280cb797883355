/*
 * What of each buffer of a problem the operator's meaning takes in: everything else must be neither
 * read nor written. A pure function of the problem.
 *
 * Left out are
 *   - queries that are not to be computed, in q, indices, topk_length and the outputs;
 *   - KV rows that no valid slot of a query to be computed names;
 *   - slots from topk_length on;
 *   - what stands after the count in a query list;
 *   - the gaps of strided tensors.
 */
#ifndef SMELT_TOOLS_FOOTPRINT_H
#define SMELT_TOOLS_FOOTPRINT_H

#include "harness/problem.h"

enum smelt__buffer {
    SMELT__BUFFER_Q,
    SMELT__BUFFER_KV,
    SMELT__BUFFER_INDICES,
    SMELT__BUFFER_TOPK_LENGTH,
    SMELT__BUFFER_SINK,
    SMELT__BUFFER_QUERIES,
    SMELT__BUFFER_QUERY_COUNT,
    SMELT__INPUTS,
    SMELT__BUFFER_OUT = SMELT__INPUTS,
    SMELT__BUFFER_LSE,
    SMELT__BUFFER_MAX_LOGITS,
    SMELT__BUFFERS
};

/* "q", "kv", ... */
const char *smelt__buffer_name(enum smelt__buffer buffer);
size_t smelt__buffer_element_bytes(enum smelt__buffer buffer);

struct smelt__interval {
    int64_t begin, end; /* bytes from the tensor's first */
};

/* Ascending and disjoint. */
struct smelt__footprint {
    struct smelt__interval *intervals;
    size_t count, capacity;
};

/* Makes the footprints of all buffers; those of absent ones are without meaning. 0, or -1 when
 * memory runs out; free them in both cases. */
int smelt__footprint_make(const struct smelt__problem *problem,
                          struct smelt__footprint footprints[SMELT__BUFFERS]);
void smelt__footprint_free(struct smelt__footprint footprints[SMELT__BUFFERS]);

#endif
