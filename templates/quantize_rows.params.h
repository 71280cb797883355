/*
 * Arguments of the quantize_rows kernel. Included by the host code and, by the generator,
 * by the CUDA source: plain C types only. Strides count elements.
 */
struct quantize_rows_params {
    const void *x;       /* [rows, DIM] bf16 */
    void *y;             /* [rows, DIM] e4m3, or NULL */
    void *dequantized;   /* [rows, DIM] bf16, or NULL */
    float *scale;        /* [rows, GROUPS], or NULL */
    const float *factor; /* [rows] that the scales are multiplied by, or NULL */
    long long x_row_stride, y_row_stride, dequantized_row_stride, scale_row_stride;
    int rows; /* above 0 */
};
