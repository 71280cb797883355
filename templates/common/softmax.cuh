//@use common/base.cuh
/*
 * Constants of the online softmax (Milakov and Gimelshein, arXiv 1805.02867), in powers of two,
 * whose exponential is one instruction. The running maximum starts as the exact one of the first
 * scores, so that the largest P is 1 and rounding it is exact.
 */

#define LOG2_E 1.4426950408889634f
#define LN_2 0.6931471805599453f
#define MINUS_INFINITY (-__int_as_float(0x7f800000))

/* Sums and outputs are rescaled only when the running maximum lags this many powers of two behind
 * the true one: P stays below 2^8, and most blocks rescale nothing. */
#define RESCALE_THRESHOLD 8.0f
