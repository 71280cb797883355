//@use common/base.cuh

/* A size that counts, or 0: of an infinity and NaN. */
DEVICE float finite(float size) {
    return size <= 3.4028235e38f ? size : 0.0f;
}

/* A sum of such, which may have gone beyond the largest number. */
DEVICE float clamped(float sum) {
    return fminf(sum, 3.4028235e38f);
}
