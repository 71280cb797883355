//@use common/base.cuh
/*
 * Numbers of a streaming softmax (Milakov and Gimelshein, arXiv 1805.02867) in powers of two, whose
 * exponentials are one instruction. P is relative to a maximum, which begins as the true one of the
 * first scores, so that the largest P is 1 and loses nothing when it is rounded.
 */

#define LOG2_E 1.4426950408889634f
#define LN_2 0.6931471805599453f
#define MINUS_INFINITY (-__int_as_float(0x7f800000))

/* The maximum may lag behind the true one by so many powers of two before sums and outputs are
 * rescaled: P then stays below 2^8, and most blocks rescale nothing. */
#define RESCALE_THRESHOLD 8.0f
