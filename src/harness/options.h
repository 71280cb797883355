/*
 * What a problem can be asked to be: options with a name, as fields, as text on a command line, as
 * the command that repeats a check. An option means the same for every operator that has it; each
 * operator's row says which it has, and may add its own.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "harness/lists.h"

struct smelt__harness_operator;

/* How a list of queries is given; the operator must treat each as its header documents. */
enum smelt__query_list {
    SMELT__QUERY_LIST_NONE = 0,
    SMELT__QUERY_LIST_PARTIAL = 1, /* count below capacity; what stands after it must be ignored */
    SMELT__QUERY_LIST_CLAMPED = 2, /* count above capacity */
    SMELT__QUERY_LIST_WHOLE = 3,   /* no count: all of it */
    SMELT__QUERY_LIST_EMPTY = 4,   /* count below zero: nothing is computed */
    SMELT__QUERY_LIST_REPEATED = 5 /* no count, and some queries several times */
};

/* How a gradient by keys is handed out. */
enum smelt__dkv { SMELT__DKV_BF16 = 0, SMELT__DKV_FP32 = 1, SMELT__DKV_ADD = 2 };

enum { SMELT__OWN_OPTIONS = 8 };

/* Zero in a field means its default. */
struct smelt__problem_options {
    /* every operator's */
    uint64_t seed;
    int64_t batches; /* default 1 */
    int64_t tokens;  /* of each batch; default 16; the option is called queries */
    int64_t rows;    /* of each batch; the default is the operator's */
    int strided;     /* gaps in every tensor, which hold NaN; tensors begin at the least alignment
                        that is legal; strides of dimensions of extent 1 mean nothing; outputs are
                        transposed */
    int64_t odd;     /* 1 + 2 * i: tensor number i of the table alone begins at the least alignment;
                        2 + 2 * i: it alone has gaps */
    int far;         /* strides of billions, so that every product of an index and a stride passes
                        2^32 elements; on the emulator alone, whose memory exists when touched */
    /* index lists */
    int64_t width;     /* slots of a row */
    int64_t valid;     /* random lists: valid slots of a row, at random places; default all */
    int64_t documents; /* causal and packed lists: documents of a batch; default 4 */
    enum smelt__lists lists;
    int topk_length; /* lists with a count: the true counts; others: any, also out of range */
    /* some operators' */
    enum smelt__query_list query_list;
    int spiky;      /* scores of 100 and more, of both signs; some rise from row to row */
    int max_logits; /* ask for the optional output */
    enum smelt__dkv dkv;
    float scale;             /* default 1 / sqrt(dqk) */
    int64_t workspace_limit; /* of the args struct; default: the operator's choice */
    /* an operator's own, by its table */
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
    const char *help;           /* one line; choices, and who has an own option, are said for it */
    unsigned traits;            /* a set of enum smelt__option_trait */
};

enum smelt__option_trait {
    SMELT__OPTION_INPUTS = 1,  /* what kind of inputs: where it is given check tries no others */
    SMELT__OPTION_EMULATED = 2 /* for the emulator alone */
};
