/*
 * Launches the kernel of the indexer's logits: code that the operators indexer_logits and indexer_topk
 * share.
 */
#pragma once

#include "codegen/families/indexer_logits_fwd.h"
#include "runtime/kernel.h"
#include "smelt/indexer_logits.h"

struct CUstream_st;

/* The kernel, and the numbers of its spec and plan that a launch needs. */
struct smelt__indexer_scorer {
    const smelt_context *context;
    const struct smelt__kernel *kernel; /* the context's */
    int heads, dim, dtype, weights, groups, block_max;
    int weights_bf16;    /* 1: weights are bf16; 0: fp32 */
    int candidate_block; /* above 0: the kernel is of the family indexer_scores_fwd */
    struct smelt__indexer_logits_launch launch;
    const char *q_name, *k_name; /* the operator's names of the tensors, in messages */
};

/* Of an operator's kernel of the family indexer_logits_fwd, or of indexer_scores_fwd for listed keys. */
struct smelt__indexer_scorer smelt__indexer_scorer_of(const smelt_operator *op,
                                                      const struct smelt__kernel *kernel);

/* Options of a launch whose logits another kernel processes; all 0 for the operator
 * indexer_logits. With listed keys all are ignored: every logit is written, and the kernel begins when
 * the kernel before it has ended. */
struct smelt__indexer_chain {
    int least; /* keys that a window must have to be scored; rows of shorter windows are undefined
                */
    int inner_only; /* 1: elements outside windows are undefined, too */
    int pdl; /* 1: launched with PDL (runtime/kernel.h); it waits for the previous kernel. Requires
                inner_only */
    int launch_dependents; /* 1: the next kernel, launched with PDL, may start; it waits itself */
};

/* The number of logits of a query and group of `rows` keys, or of `candidates` listed blocks. */
int64_t smelt__indexer_scorer_columns(const struct smelt__indexer_scorer *scorer, int64_t rows,
                                      int64_t candidates);

/* INVALID_ARGUMENT for what a call's tables do not say: args->scale, and strides that the kernel's
 * tensor maps cannot have. Of args, tokens, rows, scale, q and k are read. */
smelt_status smelt__indexer_scorer_check(const struct smelt__indexer_scorer *scorer,
                                         const smelt_indexer_logits_args *args);

/* Launches on a call's checked arguments, strides packed, tokens and rows above 0. logits has the
 * strides of a query and, with several groups, of a group. Errors: DRIVER. */
smelt_status smelt__indexer_scorer_launch(const struct smelt__indexer_scorer *scorer,
                                          const smelt_indexer_logits_args *args,
                                          const struct smelt__indexer_chain *chain,
                                          struct CUstream_st *stream);
