/*
 * Arguments of the topk_select_rows kernels, all passes. Included by the host code and, by the
 * generator, by the CUDA source: plain C types only. Strides count elements.
 *
 * A part of a row leaves its list and its header to the pass `merge`: `lists` holds PART_LIST
 * entries for each part, of which the first ones are there, `headers` one for each part.
 */
struct topk_select_rows_header {
    int above;    /* entries of the part's list; more than PART_LIST: it did not fit */
    int equal;    /* elements at the bound that the list lacks, where they are counted */
    unsigned key; /* the bound, the same in all parts of a row */
    unsigned top; /* hardly a key is above */
    int counted;  /* 1: the list has what is above the bound; 0: also what is equal to it */
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
    int parts;        /* of a row: blocks of the pass `parts` */
    int early;   /* 1: the matrix may still be written when the first kernel begins: it waits */
    int chained; /* 1: what is launched early behind the last kernel may begin: it waits */
};
