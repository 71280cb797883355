//@use common/work.params.h
//@use sparse_gqa.params.h
//@use sparse_gqa_bwd.params.h
/*
 * Arguments of variant sm90 of sparse_gqa_bwd_keys with granularity 1, 4 or 16. Included by the host
 * code (behind the headers above) and, by the generator, by the CUDA source: plain C types only.
 *
 * A launch takes a range of the query list, which the passes of the reverse index have as a range of
 * chunks; the next launch adds to its sums.
 */
struct sparse_gqa_bwd_few_params {
    struct work_params work; /* the items, which have the place of queries: (batch * KV_HEADS + KV
                                head) * blocks + block. No lists */
    struct sparse_gqa_bwd_params pass; /* dk and dv, not dq */
    const int *begin;                  /* [lists] pairs of each list before the range */
    const int *end;                    /* [lists] pairs before the range's end; null: all */
};
