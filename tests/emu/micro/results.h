/*
 * Recorded results: a text file with a line for each case,
 *
 *     NAME: HASH BYTES STRIDE WORD WORD ...
 *
 * HASH, BYTES: of the whole output. The words are every STRIDE-th of it. Hash and words are
 * hexadecimal. Lines that begin with # are comments.
 */
#ifndef SMELT_MICRO_RESULTS_H
#define SMELT_MICRO_RESULTS_H

#include <stdio.h>

#include "cases.h"

struct results; /* a whole file */

/* NULL with a message printed. */
struct results *results_read(const char *path);
void results_free(struct results *results);
size_t results_count(const struct results *results);

/* Appends one case's output to a file being written. */
void results_write(FILE *file, const struct micro_case *one, const void *out);

enum verdict { SAME_BITS, WITHIN, DIFFERENT };

/* Holds an output against the recorded one; what differs is printed. */
enum verdict results_compare(const struct results *results, const struct micro_case *one,
                             const void *out);

#endif
