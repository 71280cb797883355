/* What the indexer's operators must refuse, naming the argument. */
#include "indexer_arguments.h"

#include <limits.h>

#include "refusals.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))
#define SET(field, value) REFUSED(ARGS, field, value)
#define SET_AS(field, part, value) REFUSED_AS(ARGS, field, part, value)

/* What every operator asks of its pointers, extents and strides. */
#define ARGS smelt_indexer_logits_args
static const struct refused_change logits_changes[] = {
    SET(size, 3),
    SET(tokens, -1),
    SET(tokens, (int64_t)INT_MAX + 1),
    SET(rows, -1),
    SET(rows, (int64_t)INT_MAX + 1),
    SET(free_multiprocessors, -1),
    SET(reserved, 1),
    SET_AS(q.data, "q is NULL", 0),
    SET_AS(q.data, "16 bytes", 0x1008),
    SET(q.strides[0], -8),
    SET(q.strides[1], 60),
    SET(q.strides[0], 12),
    SET_AS(k.data, "k is NULL", 0),
    SET_AS(k.data, "16 bytes", 0x1004),
    SET(k.strides[0], 56),
    SET(k.strides[0], 76),
    SET_AS(weights.data, "weights is NULL", 0),
    SET_AS(weights.data, "4 bytes", 0x1002),
    SET(weights.strides[0], 2),
    SET_AS(k_scale.data, "dtype=bf16", 0x1000),
    SET_AS(window_begin.data, "window_begin is NULL", 0),
    SET_AS(window_end.data, "window_end is NULL", 0),
    SET_AS(window_end.data, "4 bytes", 0x1001),
    SET_AS(logits.data, "logits is NULL", 0),
    SET_AS(logits.data, "4 bytes", 0x1002),
    SET(logits.strides[0], 99),
    SET(logits.strides[0], INT64_MAX / 2),
};
static const size_t logits_inputs[] = {offsetof(ARGS, q), offsetof(ARGS, k),
                                       offsetof(ARGS, weights), offsetof(ARGS, window_begin),
                                       offsetof(ARGS, window_end)};
static const struct refused_change fp8_changes[] = {
    SET_AS(k_scale.data, "dtype=fp8", 0),
    SET_AS(k_scale.data, "4 bytes", 0x1002),
    SET(q.strides[1], 72),
    SET(k.strides[0], 72),
};
static const size_t fp8_inputs[] = {offsetof(ARGS, k_scale)};
#undef ARGS

#define ARGS smelt_indexer_clean_args
static const struct refused_change clean_changes[] = {
    SET(size, 0),
    SET(tokens, -1),
    SET(rows, (int64_t)INT_MAX + 1),
    SET(free_multiprocessors, -1),
    SET(reserved, -1),
    SET_AS(window_begin.data, "window_begin is NULL", 0),
    SET_AS(window_end.data, "window_end is NULL", 0),
    SET_AS(window_begin.data, "4 bytes", 0x1002),
    SET_AS(logits.data, "logits is NULL", 0),
    SET(logits.strides[0], 99),
};
static const size_t clean_inputs[] = {offsetof(ARGS, window_begin), offsetof(ARGS, window_end)};
#undef ARGS

#define ARGS smelt_indexer_quantize_args
static const struct refused_change quantize_changes[] = {
    SET(size, 1),
    SET(rows, -1),
    SET(rows, (int64_t)INT_MAX + 1),
    SET(free_multiprocessors, -1),
    SET(reserved, 2),
    SET_AS(x.data, "x is NULL", 0),
    SET_AS(x.data, "16 bytes", 0x1008),
    SET(x.strides[0], 56),
    SET(x.strides[0], 68),
    SET_AS(y.data, "y is NULL", 0),
    SET_AS(y.data, "16 bytes", 0x1008),
    SET(y.strides[0], 72),
    SET_AS(scale.data, "scale is NULL", 0),
    SET_AS(scale.data, "4 bytes", 0x1001),
};
static const size_t quantize_inputs[] = {offsetof(ARGS, x), offsetof(ARGS, scale)};
#undef ARGS

#define CHANGES(table) .changes = (table), .count = COUNT(table)
#define INPUTS(table) .inputs = (table), .input_count = COUNT(table)

void run_indexer_arguments(struct suite *suite) {
    static const struct refusals all[] = {
        {.name = "arguments: indexer_logits, bf16",
         .spec = "indexer_logits:heads=3,dim=64,dtype=bf16",
         .problem = {.tokens = 9, .rows = 100},
         CHANGES(logits_changes),
         .output = offsetof(smelt_indexer_logits_args, logits),
         INPUTS(logits_inputs)},
        {.name = "arguments: indexer_logits, fp8",
         .spec = "indexer_logits:heads=3,dim=64,dtype=fp8",
         .problem = {.tokens = 9, .rows = 100},
         CHANGES(fp8_changes),
         .output = offsetof(smelt_indexer_logits_args, logits),
         INPUTS(fp8_inputs)},
        {.name = "arguments: indexer_clean",
         .spec = "indexer_clean",
         .problem = {.tokens = 9, .rows = 100},
         CHANGES(clean_changes),
         .output = offsetof(smelt_indexer_clean_args, logits),
         INPUTS(clean_inputs)},
        {.name = "arguments: indexer_quantize",
         .spec = "indexer_quantize:dim=64",
         .problem = {.tokens = 20},
         CHANGES(quantize_changes),
         .output = offsetof(smelt_indexer_quantize_args, y),
         INPUTS(quantize_inputs)},
    };
    for (int i = 0; i < COUNT(all); i++)
        run_refusals(suite, &all[i]);
}
