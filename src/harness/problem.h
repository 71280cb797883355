/*
 * Sparse attention problems for checks and benchmarks: inputs made from a seed, on the host. The
 * same options give the same bytes, whatever the number of processors.
 */
#ifndef SMELT_TOOLS_PROBLEM_H
#define SMELT_TOOLS_PROBLEM_H

#include <stddef.h>
#include <stdint.h>

#include "smelt/sparse_attn.h"

enum smelt__lists {
    SMELT__LISTS_RANDOM = 0, /* distinct rows of the whole table, in random order */
    SMELT__LISTS_CAUSAL = 1, /* packed documents: a query's own document up to itself, -1 after */
    SMELT__LISTS_WINDOW = 2, /* the last `width` rows up to the query, -1 for those before row 0 */
    SMELT__LISTS_ADVERSARIAL = 3, /* empty rows, duplicates, out-of-range values anywhere */
    SMELT__LISTS_PACKED = 4,      /* as causal, with documents of equal length */
    SMELT__LISTS_LOG = 5,         /* distinct rows, then -1: their number's logarithm is uniform */
    SMELT__LISTS_KINDS
};

/* How a query list is given; the operator must treat each as documented in smelt/sparse_attn.h. */
enum smelt__query_list {
    SMELT__QUERY_LIST_NONE = 0,
    SMELT__QUERY_LIST_PARTIAL = 1, /* count below capacity; what stands after it must be ignored */
    SMELT__QUERY_LIST_CLAMPED = 2, /* count above capacity */
    SMELT__QUERY_LIST_WHOLE = 3,   /* no count: all of it */
    SMELT__QUERY_LIST_EMPTY = 4    /* count below zero: nothing is computed */
};

/* Zero in a field means its default. */
struct smelt__problem_options {
    uint64_t seed;
    int64_t batches;   /* default 1 */
    int64_t tokens;    /* of each batch; default 16 */
    int64_t rows;      /* of each batch; default 4 * topk, 256 at least */
    int64_t width;     /* default topk */
    int64_t valid;     /* random lists: valid slots of a row, at random places; default all */
    int64_t documents; /* causal and packed lists: documents of a batch; default 4 */
    enum smelt__lists lists;
    enum smelt__query_list query_list;
    int spiky;       /* scores of 100 and more, of both signs; some rise from row to row */
    int topk_length; /* causal, packed and log lists: the true counts; others: any, also out of
                        range */
    int strided;     /* gaps between batches, tokens and heads, lse transposed; gaps hold NaN */
    int max_logits;  /* ask for the optional output */
    int far;         /* strides of billions, so that every product of an index and a stride passes
                        2^32 elements; on the emulator alone, whose memory exists when touched */
    float scale;     /* default 1 / sqrt(dqk) */
};

struct smelt__problem {
    smelt_sparse_attn_spec spec;           /* without knobs */
    struct smelt__problem_options options; /* defaults filled in */
    smelt_sparse_attn_args args;           /* pointers to the host's inputs below; outputs NULL */
    uint16_t *q, *kv;
    int32_t *indices, *topk_length, *queries, *query_count;
    float *sink;
    size_t q_elements, kv_elements, indices_elements, topk_length_elements; /* gaps included */
    size_t out_elements, lse_elements;                                      /* to allocate */
    uint8_t *listed;     /* [B*T] whether a query is to be computed; NULL: all are */
    int64_t valid_slots; /* over the queries to be computed */
    int64_t computed;    /* how many those are */
};

/* Fills in defaults. */
void smelt__problem_defaults(const smelt_sparse_attn_spec *spec,
                             struct smelt__problem_options *options);

/* Whether two sets of options, defaults filled in, make the same problem of one shape. */
int smelt__problem_same(const struct smelt__problem_options *a,
                        const struct smelt__problem_options *b);

/* Makes a problem; everything in it belongs to it. 0, or -1 when memory runs out. */
int smelt__problem_create(struct smelt__problem *problem, const smelt_sparse_attn_spec *spec,
                          const struct smelt__problem_options *options);
void smelt__problem_destroy(struct smelt__problem *problem);

/* Host memory for a tensor. `far`: its pages exist when touched, and are zero. */
void *smelt__host_allocate(size_t bytes, int far);
void smelt__host_free(void *pointer, size_t bytes, int far);

/* The number of valid slots of a query (b * T + t). */
int64_t smelt__problem_valid_slots(const struct smelt__problem *problem, int64_t query);

/* ---- options as text: the same table parses the command line and prints the command ---------- */

/* Sets the option of a command-line name, without its dashes: seed, batches, queries (the tokens of
 * a batch), rows, width, valid, documents, lists, query-list, scale with a value; spiky,
 * topk-length, strided, max-logits, far without one (`value` NULL). 1: set; 0: no such option; -1:
 * bad value, with a message naming it and what is legal. */
int smelt__problem_option_set(struct smelt__problem_options *options, const char *name,
                              const char *value, char *message, size_t message_size);

/* Whether the option takes a value: 1, 0, or -1 for no such option. */
int smelt__problem_option_takes_value(const char *name);

/* The command that makes this problem again: "smelt VERB SPEC --seed N ...". */
void smelt__problem_command(const char *verb, const char *spec,
                            const struct smelt__problem_options *options, char *text, size_t size);

const char *smelt__lists_name(enum smelt__lists lists);

#endif
