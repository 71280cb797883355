/*
 * Options of problems: as fields, as text on a command line, and in the command that repeats a
 * check. An option means the same for every operator that has it. Each operator's row lists its
 * options and may add its own.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "harness/lists.h"

struct smelt__harness_operator;

/* Forms of the list of queries; the operator must treat each as its header documents. */
enum smelt__query_list {
    SMELT__QUERY_LIST_NONE = 0,
    SMELT__QUERY_LIST_PARTIAL = 1, /* count below capacity; the entries after it must be ignored */
    SMELT__QUERY_LIST_CLAMPED = 2, /* count above capacity */
    SMELT__QUERY_LIST_WHOLE = 3,   /* no count: all of it */
    SMELT__QUERY_LIST_EMPTY = 4,   /* count below zero: nothing is computed */
    SMELT__QUERY_LIST_REPEATED = 5 /* no count, and some queries several times */
};

/* The type of the gradient with respect to keys. */
enum smelt__dkv { SMELT__DKV_BF16 = 0, SMELT__DKV_FP32 = 1, SMELT__DKV_ADD = 2 };

enum { SMELT__OWN_OPTIONS = 8 };

/* Zero in a field means its default. */
struct smelt__problem_options {
    /* every operator's */
    uint64_t seed;
    int64_t batches; /* default 1 */
    int64_t tokens;  /* of each batch; default 16; the option is called queries */
    int64_t rows;    /* of each batch; the default is the operator's */
    int strided;     /* all tensors have gaps, which hold NaN, and the smallest legal alignment;
                        strides of dimensions of extent 1 are arbitrary; outputs are transposed */
    int64_t odd;     /* 1 + 2 * i: only tensor number i of the table has the smallest alignment; 2 +
                        2 * i: only it has gaps */
    int far;         /* strides of billions, so that every product of an index and a stride exceeds
                        2^32 elements; emulator only, whose memory is allocated on access */
    /* index lists */
    int64_t width;     /* slots of a row */
    int64_t valid;     /* random lists: number of valid slots of a row, at random positions; default
                          all */
    int64_t documents; /* causal and packed lists: documents of a batch; default 4 */
    enum smelt__lists lists;
    int topk_length; /* for counted lists the true counts, for others any values, also out of
                        range */
    /* of some operators */
    enum smelt__query_list query_list;
    int spiky;      /* scores beyond 100 of both signs; in some queries they increase from row to
                       row */
    int max_logits; /* request the optional output */
    enum smelt__dkv dkv;
    float scale;             /* default 1 / sqrt(dqk) */
    int64_t workspace_limit; /* of the args struct; default: the operator's choice */
    /* an operator's own options, by its table */
    int64_t own[SMELT__OWN_OPTIONS];
};

/* One option. */
struct smelt__option {
    const char *name;
    enum smelt__option_kind {
        SMELT__OPTION_INTEGER, /* int64_t; 0: not given */
        SMELT__OPTION_FLAG,    /* int */
        SMELT__OPTION_CHOICE,  /* an enumeration of an int's size */
        SMELT__OPTION_SEED,    /* uint64_t */
        SMELT__OPTION_NUMBER   /* float above 0; 0: not given */
    } kind;
    size_t field; /* its offset in struct smelt__problem_options */
    int64_t least, most;
    const char *const *choices; /* ended by NULL */
    const char *help;           /* --help prints its first sentence, the man page all; both add the
                                   choices, and the operator that has an own option */
    unsigned traits;            /* a set of enum smelt__option_trait */
};

enum smelt__option_trait {
    SMELT__OPTION_INPUTS = 1,  /* it selects the kind of inputs; if it is given, check tries no
                                  other kinds */
    SMELT__OPTION_EMULATED = 2 /* emulator only */
};
