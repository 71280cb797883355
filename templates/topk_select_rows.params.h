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
    const float *logits;                     /* [rows, columns] */
    const int *window_begin;                 /* [rows], or null: 0 */
    const int *window_end;                   /* [rows], or null: columns */
    const int *offset;                       /* [rows] added to a row's indices, or null */
    int *indices;                            /* [rows, TOPK] */
    float *values;                           /* [rows, TOPK], or null */
    int *lengths;                            /* [rows], or null */
    unsigned long long *lists;               /* [rows, parts, PART_LIST] */
    struct topk_select_rows_header *headers; /* [rows, parts] */
    long long logits_stride, indices_stride, values_stride;
    int rows, columns;
    int index_offset; /* added to all indices */
    int parts;        /* of a row: thread blocks of the pass `parts` */
    int pdl; /* 1: the first kernel is launched with PDL: waits before it reads the logits */
    int launch_dependents; /* 1: the next kernel, launched with PDL, may start; it waits itself */
};
