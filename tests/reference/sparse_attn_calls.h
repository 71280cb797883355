/* The reference of sparse_attn by its args structs. */
#pragma once

#include "reference/operators.h"

static inline int sparse_attn_reference(const struct smelt__attention_spec *spec,
                                        const smelt_sparse_attn_args *args, const int64_t *queries,
                                        int64_t count,
                                        const struct smelt__attention_results *results) {
    const struct smelt__attention call = smelt__sparse_attn_attention(spec, args);
    return smelt__attention_forward(&call, queries, count, results);
}

static inline int64_t sparse_attn_valid_rows(const struct smelt__attention_spec *spec,
                                             const smelt_sparse_attn_args *args, int64_t query,
                                             int64_t *rows) {
    const struct smelt__attention call = smelt__sparse_attn_attention(spec, args);
    return smelt__attention_rows(&call, query, 0, rows);
}
