//@use common/base.cuh

/* An absolute value, or 0 instead of infinity and NaN. */
DEVICE float finite(float size) {
    return size <= 3.4028235e38f ? size : 0.0f;
}

/* A sum of finite values, clamped to the largest finite one. */
DEVICE float clamped(float sum) {
    return fminf(sum, 3.4028235e38f);
}
