/* What timing and checking share: contenders opened, a case's tensors on the device, its operators,
 * launches, and how far an output is from the reference. */
#ifndef PEERS_RIG_H
#define PEERS_RIG_H

#include <stdio.h>

#include "contender.h"
#include "smelt/smelt.h"

enum { MAX_CONTENDERS = 8, PEERS_MESSAGE = 1024 };

/* The order of kernels.cu. */
enum peers_lists { LISTS_RANDOM, LISTS_CAUSAL, LISTS_HALF };

/* topk_length: none, random, at most a few slots; of causal lists: what they hold. */
enum peers_lengths { LENGTHS_NONE, LENGTHS_RANDOM, LENGTHS_FEW, LENGTHS_LISTS };

/* One row of a table. */
struct peers_case {
    struct contender_shape shape;
    int64_t queries, rows;
    enum peers_lists lists;
    enum peers_lengths lengths;
    int empty_queries;  /* 1: one query in 44 has no valid slot */
    int strided;        /* 1: gaps between rows and heads */
    int infinite_sinks; /* 1: some logits of the sink are infinite */
    float scale;        /* 0: 1 / sqrt(dqk) */
    float divisor;      /* of the normal values, 1 for none */
    float shift;        /* at most so far from 0, either way */
};

struct peers_contender {
    char name[32], options[128];
    const struct contender *functions;
};

/* A tensor set on the device, for a number of heads. */
struct peers_tensors {
    struct contender_call call; /* out, lse and max_logits NULL */
    void *memory[8];
};

struct peers_outputs {
    void *out;
    float *lse, *max_logits;
    int heads; /* that they are laid out for */
};

struct peers_rig;

/* What `peers_compare` finds of one tensor. */
struct peers_distance {
    uint64_t elements, misses, strange; /* strange: misses at an infinity or a NaN */
    double relative;                    /* ||answer - reference|| / ||reference|| */
    double cosine;                      /* 1 - 2 <a, r> / (<a, a> + <r, r>) */
    double worst;                       /* the largest error as a share of the tolerance */
    uint64_t where;                     /* its element of the sample */
};

enum peers_tensor { PEERS_OUT, PEERS_LSE, PEERS_MAX_LOGITS, PEERS_TENSORS };

/* All functions that return int: 0, or -1 with a message in peers_problem(). */
const char *peers_problem(void);
int peers_fail(const char *format, ...);

/* Opens the device and compiles kernels.cu, which stands beside the program. */
int peers_open(struct peers_rig **rig);
void peers_close(struct peers_rig *rig); /* also of a failed open; NULL is fine */
const char *peers_machine(const struct peers_rig *rig);
smelt_context *peers_context(const struct peers_rig *rig);
struct CUstream_st *peers_stream(const struct peers_rig *rig);

/* "NAME=FILE[:OPTIONS]" */
int peers_contender_open(struct peers_contender *contender, const char *text);

/* The heads that the contender is given for a shape. */
int peers_padded_heads(const struct peers_contender *contender,
                       const struct contender_shape *shape);
/* Whether it can run the shape, heads padded or not. */
int peers_can(const struct peers_contender *contender, const struct contender_shape *shape,
              int pad);

/* Operators: made once for a contender and a shape. `prepare` makes those of all cases, by several
 * threads, and says how many could not be made on stderr. */
int peers_prepare(struct peers_rig *rig, const struct peers_contender *contenders, int count,
                  const struct peers_case *cases, int case_count, int pad);
/* NULL with a message if it could not be made. */
void *peers_operation(struct peers_rig *rig, const struct peers_contender *contender,
                      const struct contender_shape *shape);

int peers_tensors_make(struct peers_rig *rig, struct peers_tensors *tensors,
                       const struct peers_case *each, int heads, uint64_t seed);
void peers_tensors_free(struct peers_rig *rig, struct peers_tensors *tensors);
int peers_outputs_make(struct peers_rig *rig, struct peers_outputs *outputs,
                       const struct peers_case *each, int heads);
/* All bytes 0xff: NaN. */
int peers_outputs_poison(struct peers_rig *rig, struct peers_outputs *outputs,
                         const struct peers_case *each);
void peers_outputs_free(struct peers_rig *rig, struct peers_outputs *outputs);

/* The reference of `count` queries, first, first + step, ... */
struct peers_reference {
    int first, step, count, heads;
    double *of[PEERS_TENSORS];
};
int peers_reference_make(struct peers_rig *rig, struct peers_reference *reference,
                         const struct peers_tensors *tensors, int first, int step, int count);
void peers_reference_free(struct peers_rig *rig, struct peers_reference *reference);

/* FlashMLA's tolerances. The outputs must be of as many heads as the reference. */
int peers_compare(struct peers_rig *rig, struct peers_distance *distance,
                  const struct peers_outputs *outputs, const struct peers_reference *reference,
                  enum peers_tensor tensor, int empty_lse_inf, int dv);

/* The two commands; the exit status. */
struct peers_options {
    struct peers_contender contenders[MAX_CONTENDERS];
    int contender_count;
    int rounds;  /* timed launches of each contender and row */
    int sample;  /* queries compared, 0: all */
    int verbose; /* a line for each case that misses */
    int list;    /* print the rows or cases and do nothing; no rig is needed */
    uint64_t seed;
    const char *only;          /* rows whose name holds it */
    int heads[16], head_count; /* accuracy: instead of 64 and 128 */
};
int peers_time(struct peers_rig *rig, const struct peers_options *options);
int peers_accuracy(struct peers_rig *rig, const struct peers_options *options);

#endif
