/*
 * The definitions of docs/operators.md in scalar C, in double precision where results are rounded.
 * The library does not depend on them; checks compare kernels with them. `args` are an operator's
 * arguments with host pointers and all strides set: functions read the inputs and ignore outputs
 * and workspace. All functions are thread-safe. An int status is 0, or -1 if memory runs out.
 */
#pragma once

#include <stdint.h>

#include "reference/bf16.h"
#include "smelt/operators.h"

/* ---- keys --------------------------------------------------------------------------------------
 * The operators' spec keys, without knobs, for the reference and the harness. Named values have the
 * numbers of smelt_spec_get. */

enum smelt__dtype { SMELT__DTYPE_BF16, SMELT__DTYPE_FP8 };
enum smelt__activation { SMELT__ACTIVATION_RELU, SMELT__ACTIVATION_NONE };
enum smelt__weights_dtype { SMELT__WEIGHTS_FP32, SMELT__WEIGHTS_BF16 };
enum smelt__order { SMELT__ORDER_INDEX, SMELT__ORDER_SCORE };
enum smelt__scale { SMELT__SCALE_PLAIN, SMELT__SCALE_POWER_OF_TWO };
enum smelt__gqa_lists { SMELT__LISTS_SHARED, SMELT__LISTS_OF_KV_HEADS };

/* For sparse_attn, sparse_scores, sparse_gqa and sparse_gqa_scores; 0: the operator lacks the key. */
struct smelt__attention_spec {
    int heads, kv_heads; /* kv_heads 0: one, whose values are the first columns of its keys */
    int dqk, dv, topk;
    int granularity; /* 0: 1 */
    int lists;       /* of enum smelt__gqa_lists */
    int sink;
    int buckets; /* 0: none */
    int deterministic, unite;
};

/* The keys of most operators are listed by a macro: KEY(name), or APART(name) if specs that differ only in this key have
 * the same problems. The list defines the struct of an operator's keys, an int each, and the harness's table of keys. */
#define SMELT__KEY_FIELD(name) name
#define SMELT__KEY_STRUCT(stem, KEYS)                                                              \
    struct smelt__##stem##_spec {                                                                  \
        int KEYS(SMELT__KEY_FIELD, SMELT__KEY_FIELD);                                              \
    }

#define SMELT__INDEXER_LOGITS_KEYS(KEY, APART)                                                     \
    KEY(heads), KEY(dim), KEY(dtype), KEY(activation), KEY(weights), KEY(groups), KEY(block_max),  \
        KEY(candidate_block), KEY(weights_dtype)
SMELT__KEY_STRUCT(indexer_logits, SMELT__INDEXER_LOGITS_KEYS);

#define SMELT__INDEXER_TOPK_KEYS(KEY, APART)                                                       \
    KEY(heads), KEY(dim), KEY(dtype), KEY(activation), KEY(weights), KEY(groups), KEY(block_max),  \
        KEY(topk), KEY(order), KEY(pinned), KEY(expand), KEY(tail), KEY(publish),                  \
        KEY(publish_block), KEY(publish_pinned), KEY(candidate_block), KEY(weights_dtype),         \
        KEY(logits)
SMELT__KEY_STRUCT(indexer_topk, SMELT__INDEXER_TOPK_KEYS);

struct smelt__topk_select_spec {
    int topk;
    int order; /* of enum smelt__order */
    int bf16;  /* 1: the matrix is bf16, 0: fp32 */
    int groups, pinned, expand, tail;
};

#define SMELT__INDEXER_LOSS_KEYS(KEY, APART) KEY(topk)
SMELT__KEY_STRUCT(indexer_loss, SMELT__INDEXER_LOSS_KEYS);

#define SMELT__INDEXER_SCORES_KEYS(KEY, APART)                                                     \
    KEY(heads), KEY(dim), KEY(topk), KEY(activation), KEY(granularity), KEY(block_max),            \
        KEY(weights_dtype)
SMELT__KEY_STRUCT(indexer_scores, SMELT__INDEXER_SCORES_KEYS);

#define SMELT__INDEXER_BWD_KEYS(KEY, APART)                                                        \
    KEY(heads), KEY(dim), KEY(topk), KEY(activation), KEY(granularity), KEY(weights_dtype),        \
        APART(deterministic)
SMELT__KEY_STRUCT(indexer_bwd, SMELT__INDEXER_BWD_KEYS);

#define SMELT__DENSE_LSE_KEYS(KEY, APART) KEY(heads), KEY(dqk), KEY(kv_heads)
SMELT__KEY_STRUCT(dense_lse, SMELT__DENSE_LSE_KEYS);

#define SMELT__INDEXER_DENSE_LOSS_KEYS(KEY, APART)                                                 \
    KEY(heads), KEY(dqk), KEY(kv_heads), KEY(index_heads), KEY(index_dim), KEY(activation),        \
        KEY(weights_dtype), KEY(groups), KEY(granularity), KEY(block_max), APART(deterministic)
SMELT__KEY_STRUCT(indexer_dense_loss, SMELT__INDEXER_DENSE_LOSS_KEYS);

#define SMELT__QUANTIZE_KEYS(KEY, APART) KEY(dim), KEY(groups), APART(scale)
SMELT__KEY_STRUCT(quantize, SMELT__QUANTIZE_KEYS);

/* ---- attention over lists ----------------------------------------------------------------------
 * sparse_attn, sparse_scores, sparse_gqa and sparse_gqa_scores have one definition. Numbers: query
 * b * T + t, a query's lists from 0 on, key (b * S + row) * Hkv + KV head. */

/* A call: the inputs of an args struct, with all strides set. */
struct smelt__attention {
    struct smelt__attention_spec spec; /* kv_heads and granularity at least 1 */
    int shared;                        /* 1: values are the first columns of keys */
    int64_t lists;                     /* of a query */
    int64_t batches, tokens, rows, width, query_capacity;
    double scale;
    smelt_const_tensor q, k, v; /* [B, T or S, heads, columns] */
    smelt_const_tensor indices, topk_length, limit, sink;
    smelt_const_tensor lse;           /* of the target and the backward pass */
    smelt_const_tensor out, grad_out; /* of the backward pass */
};

/* `args`: the struct of the pass. */
struct smelt__attention smelt__sparse_attn_attention(const struct smelt__attention_spec *spec,
                                                     const void *args);
struct smelt__attention smelt__sparse_attn_grad_attention(const struct smelt__attention_spec *spec,
                                                          const void *args);
struct smelt__attention smelt__sparse_scores_attention(const struct smelt__attention_spec *spec,
                                                       const void *args);
struct smelt__attention smelt__sparse_gqa_attention(const struct smelt__attention_spec *spec,
                                                    const void *args);
struct smelt__attention smelt__sparse_gqa_grad_attention(const struct smelt__attention_spec *spec,
                                                         const void *args);
struct smelt__attention smelt__sparse_gqa_scores_attention(const struct smelt__attention_spec *spec,
                                                           const void *args);

/* Replaces the zero strides of packed tensors by their actual strides. */
void smelt__sparse_attn_resolve_strides(const struct smelt__attention_spec *spec,
                                        smelt_sparse_attn_args *args);

/* The number of a list's slots that count; its entries; the number of rows that a query may read. */
int64_t smelt__attention_slots(const struct smelt__attention *call, int64_t query, int64_t list);
const int32_t *smelt__attention_list(const struct smelt__attention *call, int64_t query,
                                     int64_t list);
int64_t smelt__attention_limit(const struct smelt__attention *call, int64_t query);

/* The rows of the valid slots of a list, at most spec.topk, in slot order to
 * rows[width * granularity] (may be NULL). Returns their number. */
int64_t smelt__attention_rows(const struct smelt__attention *call, int64_t query, int64_t list,
                              int64_t *rows);

/* ln(exp(lse) + exp(sink)), the logarithm of a head's softmax denominator; without a sink lse. */
double smelt__attention_denominator(const struct smelt__attention *call, int head, double lse);

/* Packed results of `count` queries. Any pointer may be NULL; for lse and max_logits no values
 * are read. */
struct smelt__attention_results {
    double *out;        /* [count, H, dv] */
    double *lse;        /* [count, H], -inf for a query without a valid slot */
    double *max_logits; /* [count, H], likewise */
    double *max_abs;    /* [count]: largest absolute score, 0 without one */
    double *out_terms;  /* [count, H, dv]: out with absolute values of v, to bound the rounding
                           errors of its terms */
};

/* Computes queries[0..query_count), all in range; NULL: the first query_count queries. The call's own
 * query list is not read. */
int smelt__attention_forward(const struct smelt__attention *call, const int64_t *queries,
                             int64_t query_count, const struct smelt__attention_results *results);

/*
 * A gradient's rows, with two scales for their rounding errors under cancellation. A row is a sum
 * of vectors, ds * key or ds * q and p * grad_out:
 *   spread     the root of the sum of their squared norms: the scale of the errors of p and ds,
 *              which are rounded independently. Near the row's norm for random directions, but not
 *              reduced by cancellation
 *   cancelled  the norm of the row if all added numbers, also those of the sums dp and delta, had
 *              the same sign: the scale of fp32's rounding errors, which dominate if dp and delta
 *              are nearly equal
 */
struct smelt__row_grads {
    double *grads;     /* [count, ..., columns] */
    double *spread;    /* [count, ...]; may be NULL */
    double *cancelled; /* [count, ...]; may be NULL */
    double *max_abs;   /* [count]: largest absolute score used, 0 without one; may be NULL */
};

/* The backward pass, whose out and lse are inputs. It takes queries[0..query_count), each as often as it
 * occurs; NULL: the first query_count queries. dq: [query_count, H, dqk]. */
int smelt__attention_dq(const struct smelt__attention *call, const int64_t *queries,
                        int64_t query_count, const struct smelt__row_grads *results);

/* dk [key_count, dqk] and dv [key_count, dv] of keys[0..key_count), from every slot of
 * all lists. If the call's values are shared, dk includes dv, and `dv` is not used. */
int smelt__attention_keys(const struct smelt__attention *call, const int64_t *queries,
                          int64_t query_count, const int64_t *keys, int64_t key_count,
                          const struct smelt__row_grads *dk, const struct smelt__row_grads *dv);

/* dsink of one head, and in *terms (may be NULL) the sum of its terms' absolute values. */
int smelt__attention_dsink(const struct smelt__attention *call, const int64_t *queries,
                           int64_t query_count, int head, double *dsink, double *terms);

/* The target of a list, [width], from the call's lse; and in *max_abs the largest absolute score, 0 without
 * one. */
int smelt__attention_target(const struct smelt__attention *call, int64_t query, int64_t list,
                            double *target, double *max_abs);

/* ---- dense_lse ------------------------------------------------------------------------------- */

/* Dense attention over windows: what of an args struct says its scores. */
struct smelt__dense_attention {
    struct smelt__dense_lse_spec spec;
    int64_t rows;
    double scale;
    smelt_const_tensor q, k, window_begin, window_end;
};

/* A query's window, clipped; an empty one is [0, 0). */
void smelt__dense_window(const struct smelt__dense_attention *attention, int64_t query,
                         int64_t *begin, int64_t *end);

/* The scores of a query's head in its window, scores[end - begin]. */
int smelt__dense_scores(const struct smelt__dense_attention *attention, int64_t query, int head,
                        double *scores);

/* A head's lse, and in *max_abs the largest absolute score, 0 without any. */
int smelt__dense_lse_reference(const struct smelt__dense_lse_spec *spec,
                               const smelt_dense_lse_args *args, int64_t query, int head,
                               double *lse, double *max_abs);

/* ---- indexer_windows ------------------------------------------------------------------------- */

/* The window of query number `query`. */
void smelt__indexer_windows_reference(const smelt_indexer_windows_args *args, int64_t query,
                                      int64_t *begin, int64_t *end);

/* ---- quantize ----------------------------------------------------------------------------------
 * Bit for bit, since the rounding of each step is defined. */

/* One row: y[dim], dequantized[dim], and scale[groups]. */
void smelt__quantize_reference(const struct smelt__quantize_spec *spec, const uint16_t *x,
                               uint8_t *y, uint16_t *dequantized, float *scale);

/* ---- indexer_logits -------------------------------------------------------------------------- */

/* The tensor cores cut sums of e4m3 products off after 13 bits: what that may take, of the sum of
 * the products' sizes. */
#define SMELT__E4M3_SUM_TOLERANCE 5e-4

/* Below 2^-126 fp32 has the multiples of 2^-149 alone: what rounding to the nearest of them may
 * take of a product, however small that is. Sums of such multiples are exact. */
#define SMELT__FP32_UNDERFLOW 0x1p-150

/* What that may take of a logit: of each of its at most 128 heads' products, which are added as
 * they are rounded (an fma a head), and of the product of their sum with a scale of at most 1. */
#define SMELT__LOGIT_UNDERFLOW ((128 + 1) * SMELT__FP32_UNDERFLOW)

/* A query's rows and weights, widened; the keys that it meets. */
struct smelt__indexer_query {
    int heads, dim, dtype; /* dtype: of enum smelt__dtype */
    double *q;             /* [heads, dim] */
    double *key;           /* [dim], scratch */
    double *weights;       /* [heads]; NULL: each is `scale` */
    float scale;
    int activation;   /* of enum smelt__activation */
    int first, count; /* heads that a logit is the sum of */
};

/* A weight of the indexer; dtype: of enum smelt__weights_dtype. */
double smelt__indexer_weight(const smelt_const_tensor *weights, int dtype, int64_t query, int head);

/* Opens query number `query` of tensors of those types, with ReLU and all heads; weights->data may be
 * NULL, and scale is 1. 0, or -1 when memory runs out. Close it in both cases. */
int smelt__indexer_query_open(struct smelt__indexer_query *opened, int heads, int dim, int dtype,
                              int weights_dtype, const smelt_const_tensor *q,
                              const smelt_const_tensor *weights, int64_t query);
void smelt__indexer_query_close(struct smelt__indexer_query *opened);

/*
 * Its logit for row `key` of k, times `scale`; -inf for NaN. *terms: as below; -inf where a sum
 * that may become 0 or of the other sign, by cutting e4m3 products off or as fp32 has no smaller
 * numbers, meets an infinite weight or scale: then any infinity is right.
 */
double smelt__indexer_logit(const struct smelt__indexer_query *query, const smelt_const_tensor *k,
                            int64_t key, double scale, double *terms);

/* Whether `got` is the infinity that such a logit is, either one where terms are -inf; or finite,
 * if it is, whatever its error, or +inf where terms are below 0. */
int smelt__indexer_logit_fits(double got, double logit, double terms);

/* Logits of a query and group of a call: N. */
int64_t smelt__indexer_logits_columns(const struct smelt__indexer_logits_spec *spec,
                                      const smelt_indexer_logits_args *args);

/* The keys of a query's logit number `column` of N: the first one, and their number in *count; 0 where
 * the logit is of no key. */
int64_t smelt__indexer_logits_keys(const struct smelt__indexer_logits_spec *spec,
                                   const smelt_indexer_logits_args *args, int64_t query,
                                   int64_t column, int64_t *count);

/*
 * One query's row: logits[groups * N], -inf outside its window, and in `terms` (may be NULL) the sum
 * of the sizes of what each is made of, |k_scale * weight * q[d] * k[d]| over heads and elements, by
 * which its error is judged; 0 outside, -inf as above. With blocks it is the largest of the keys'
 * terms; where a key may be +inf or -inf and the largest logit of the other keys is finite, that logit
 * with negative terms: it is right as terms of this size allow, and so is +inf.
 */
int smelt__indexer_logits_reference(const struct smelt__indexer_logits_spec *spec,
                                    const smelt_indexer_logits_args *args, int64_t query,
                                    double *logits, double *terms);

/* ---- topk_select -------------------------------------------------------------------------------
 * By sorting. */

/* A row of query `query`, whose logits are logits[rows], fp32 or bf16: its list, with expand
 * [args->width], else [topk], and values[topk], as they are to be. The length, or -1 when memory runs
 * out. */
int64_t smelt__topk_select_reference(const struct smelt__topk_select_spec *spec,
                                     const smelt_topk_select_args *args, int64_t query,
                                     const void *logits, int32_t *indices, float *values);

/* The query's window, clipped. */
void smelt__topk_select_window(const smelt_topk_select_args *args, int64_t query, int64_t *begin,
                               int64_t *end);

/* ---- indexer_topk ------------------------------------------------------------------------------
 * The selection itself depends on rounding, so functions judge a given one. */

/* One query's logits of blocks of `block` keys in double precision, and what their errors are relative
 * to, as smelt__indexer_logits_reference has them. [groups, blocks] each. */
int smelt__indexer_topk_reference(const struct smelt__indexer_topk_spec *spec,
                                  const smelt_indexer_topk_args *args, int64_t query, int block,
                                  double *logits, double *terms);

/*
 * How wrong a choice is. Logits that were computed with an error of at most e * terms, and what
 * fp32 loses near 0 (SMELT__LOGIT_UNDERFLOW), are chosen from rightly only if no key that was left
 * out is better than one that was chosen by more than e times the two's terms and twice that loss:
 * the least such e, of the best left out and the worst chosen. `chosen[s]`: whether key s is among
 * them. Keys whose logits or terms are not finite are not looked at. `bf16`: logits are chosen from after
 * rounding to bf16, which is monotonic: then such an e is the least with which the two may round so.
 */
double smelt__indexer_topk_error(int bf16, const double *logits, const double *terms,
                                 const uint8_t *chosen, int64_t begin, int64_t end);

/*
 * Of a choice among infinite logits, or between them and finite ones, a chosen key that a key left
 * out comes before: +inf comes before all, -inf (also NaN's) behind all, the lower index before
 * the higher of one infinity. -1 when there is none. Where terms are -inf either infinity is right
 * (smelt__indexer_logit): it is taken for the one that suits the choice.
 */
int64_t smelt__indexer_topk_misplaced(const double *logits, const double *terms,
                                      const uint8_t *chosen, int64_t begin, int64_t end);

/* ---- indexer_loss ---------------------------------------------------------------------------- */

struct smelt__indexer_loss_found {
    double weight; /* of the query, 0 where it has no loss */
    double loss;   /* the weight in it */
    double terms;  /* sum of p[i] * |ln p[i] - ln q[i]| */
};

/* One query. q, p and grad (may be NULL): [width], 0 at masked
 * slots and, but for q, where the query has no loss. */
struct smelt__indexer_loss_found smelt__indexer_loss_reference(const smelt_indexer_loss_args *args,
                                                               int64_t query, double *q, double *p,
                                                               double *grad);

/* ---- indexer_scores -------------------------------------------------------------------------- */

/*
 * One query's row of slots: logits[width * granularity], -inf at masked slots, and in `terms` (may be NULL) the
 * sum of the sizes of what each is made of, as smelt__indexer_logits_reference has it; 0 at masked slots. With
 * block_max the call's results are the largest of each block of these.
 */
int smelt__indexer_scores_reference(const struct smelt__indexer_scores_spec *spec,
                                    const smelt_indexer_scores_args *args, int64_t query,
                                    double *logits, double *terms);

/* ---- indexer_bwd ----------------------------------------------------------------------------- */

/*
 * A row of dq or dk is a sum of vectors, grad * weights * key or grad * weights * query. Beside it
 * stands what an error is judged by:
 *   spread    the root of the sum of their squared norms: each vector's factor is rounded for
 *             itself, and this stays where they take each other away
 *   doubtful  the norms, added up, of those vectors whose x has a sign that fp32 may see otherwise:
 *             its size is below SMELT__INDEXER_BWD_DOUBT times that of what it is a sum of
 */
struct smelt__indexer_bwd_row {
    double *grads; /* [dim] */
    double spread, doubtful;
};

#define SMELT__INDEXER_BWD_DOUBT 1e-6

/* One head of a query: its row of dq, and *dweights with, in *terms, the sum of the sizes of the
 * products that it is made of. */
int smelt__indexer_bwd_head(const struct smelt__indexer_bwd_spec *spec,
                            const smelt_indexer_bwd_args *args, int64_t query, int head,
                            struct smelt__indexer_bwd_row *row, double *dweights, double *terms);

/* One key's row of dk: all index rows are gone through. */
int smelt__indexer_bwd_key(const struct smelt__indexer_bwd_spec *spec,
                           const smelt_indexer_bwd_args *args, int64_t key,
                           struct smelt__indexer_bwd_row *row);

/* The key that slot i of a query names, or -1 where it is masked. */
int64_t smelt__indexer_bwd_slot(const struct smelt__indexer_bwd_spec *spec,
                                const smelt_indexer_bwd_args *args, int64_t query, int64_t i);

/* ---- indexer_dense_loss ------------------------------------------------------------------------
 * Out of the definitions of dense_lse, indexer_logits, indexer_loss and indexer_bwd. */

/* One query; arrays of the caller, a number for each of the indexer's keys: 0 outside the window and,
 * with block_max, where a key has not its block's largest logit. */
struct smelt__indexer_dense_loss_query {
    double *q, *p, *grad;
    double *doubt; /* of keys one of which has a block's largest logit, but which one rounding may
                      decide: the block's |grad|, else 0 */
    int32_t *keys; /* the key, or -1 where the others are 0 */
    struct smelt__indexer_loss_found found;
    double terms; /* the largest sum of a logit's terms' sizes */
};

/* Logits of which none is larger for sure differ by no more than this, of the sum of both logits' terms'
 * sizes. */
#define SMELT__INDEXER_DENSE_DOUBT 1e-6

/* The indexer's keys. */
int64_t smelt__indexer_dense_loss_keys(const struct smelt__indexer_dense_loss_spec *spec,
                                       const smelt_indexer_dense_loss_args *args);

/* A group of heads by itself: a call without groups. `losses` and `loss` are none's. */
struct smelt__indexer_dense_loss_group {
    struct smelt__indexer_dense_loss_spec spec;
    smelt_indexer_dense_loss_args args;
};
struct smelt__indexer_dense_loss_group
smelt__indexer_dense_loss_group(const struct smelt__indexer_dense_loss_spec *spec,
                                const smelt_indexer_dense_loss_args *args, int group);

/* Of a spec without groups. */
int smelt__indexer_dense_loss_reference(const struct smelt__indexer_dense_loss_spec *spec,
                                        const smelt_indexer_dense_loss_args *args, int64_t query,
                                        struct smelt__indexer_dense_loss_query *result);

/* The backward pass whose results the gradients are, of a spec without groups: its spec; its arguments
 * but for `indices` and `grad`, of a slot for each of the indexer's keys. */
struct smelt__indexer_bwd_spec
smelt__indexer_dense_loss_indexer(const struct smelt__indexer_dense_loss_spec *spec);
smelt_indexer_bwd_args
smelt__indexer_dense_loss_gradients(const struct smelt__indexer_dense_loss_spec *spec,
                                    const smelt_indexer_dense_loss_args *args);

/* Adds a group's row of a key's gradient to that of the groups before it. */
void smelt__indexer_dense_loss_add(const struct smelt__indexer_bwd_row *more, int dim,
                                   struct smelt__indexer_bwd_row *row);
