/* Arguments of the toy_scale kernels. Plain C types only; strides count elements. */
struct toy_scale_params {
    const float *from; /* [rows, WIDTH] */
    float *to;         /* likewise */
    long long from_row_stride, to_row_stride;
    int rows;
    float factor;
};
