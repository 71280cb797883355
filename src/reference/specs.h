/*
 * The keys of the operators' specs that say what is computed, as numbers: what the reference and the
 * harness know of an operator. Values of keys with names are as smelt_spec_get numbers them.
 */
#ifndef SMELT_REFERENCE_SPECS_H
#define SMELT_REFERENCE_SPECS_H

enum smelt__dtype { SMELT__DTYPE_BF16, SMELT__DTYPE_FP8 };
enum smelt__order { SMELT__ORDER_INDEX, SMELT__ORDER_SCORE };
enum smelt__scale { SMELT__SCALE_PLAIN, SMELT__SCALE_POWER_OF_TWO };

struct smelt__sparse_attn_spec {
    int heads, dqk, dv, topk, sink;
    int buckets; /* 0: none */
    int deterministic;
};

struct smelt__sparse_scores_spec {
    int heads, dqk, dv, topk, sink;
};

struct smelt__indexer_logits_spec {
    int heads, dim;
    int dtype; /* of enum smelt__dtype */
};

struct smelt__indexer_topk_spec {
    int heads, dim, topk;
    int dtype; /* of enum smelt__dtype */
    int order; /* of enum smelt__order */
};

struct smelt__topk_select_spec {
    int topk;
    int order; /* of enum smelt__order */
};

struct smelt__indexer_loss_spec {
    int topk;
};

struct smelt__indexer_scores_spec {
    int heads, dim, topk;
};

struct smelt__indexer_bwd_spec {
    int heads, dim, topk, deterministic;
};

struct smelt__indexer_quantize_spec {
    int dim;
    int scale; /* of enum smelt__scale */
};

#endif
