/* The stand-in's operators, shared by its files. */
#pragma once

#include "codegen/spec/spec.h"
#include "reference/operators.h"
#include "smelt/indexer_logits.h"
#include "smelt/sparse_attn.h"
#include "stand_in.h"

enum { STAND_IN_WORKSPACE = 4096 /* of a backward pass, which does not use it */ };

struct smelt_operator {
    int indexer; /* 1: of indexer_logits, 0: of sparse_attn */
    struct smelt__attention_spec attention;
    struct smelt__indexer_logits_spec logits;
    char knobs[SMELT__SPEC_TEXT];
};

smelt_status stand_in_forward(const smelt_operator *op, const smelt_sparse_attn_args *args);
smelt_status stand_in_backward(const smelt_operator *op, const smelt_sparse_attn_grad_args *args);
smelt_status stand_in_logits(const smelt_operator *op, const smelt_indexer_logits_args *args);
