/*
 * Arguments of the topk_select_rows kernels, all passes. Included by the host code and, by the
 * generator, by the CUDA source: plain C types only. Strides count elements.
 *
 * Each part of a row leaves a header and a list of up to PART_LIST entries to the pass `merge`.
 */
struct topk_select_rows_header {
    int above;    /* entries of the part's list; above PART_LIST: it overflowed */
    int equal;    /* counted elements at the bound, which are not in the list */
    unsigned key; /* the bound, the same in all parts of a row */
    unsigned top; /* SAMPLE_TOP: almost no key is larger */
    int counted;  /* 1: the list has the elements above the bound; 0: also those equal to it */
};

struct topk_select_rows_params {
    const void *logits;                      /* [queries, GROUPS, columns] fp32 or bf16 */
    const int *window_begin;                 /* [queries] in keys, or null: 0 */
    const int *window_end;                   /* [queries], or null: keys */
    const int *offset;                       /* [queries] added to a row's indices, or null */
    const int *limit;                        /* [queries] rows of lists end here, or null */
    const int *candidates;                   /* [queries, candidate_count] or null */
    int *indices;                            /* [queries, GROUPS, width] */
    float *values;                           /* [queries, GROUPS, TOPK], or null */
    int *lengths;                            /* [queries, GROUPS], or null */
    unsigned long long *lists;               /* [rows, parts, PART_LIST] */
    struct topk_select_rows_header *headers; /* [rows, parts] */
    long long logits_stride, logits_group, indices_stride, indices_group;
    long long values_stride, values_group, lengths_stride, candidates_stride;
    int rows;            /* queries * GROUPS */
    int keys;            /* windows are clipped to [0, keys) */
    int width;           /* slots of a row of indices */
    int all_rows;        /* of a list without limit */
    int most_rows;       /* limits are clipped to [0, most_rows] */
    int candidate_count; /* of a query */
    int index_offset;    /* added to all indices */
    int parts;           /* of a row: thread blocks of the pass `parts` */
    int pdl; /* 1: the first kernel is launched with PDL: waits before it reads the logits */
    int launch_dependents; /* 1: the next kernel, launched with PDL, may start; it waits itself */
};
