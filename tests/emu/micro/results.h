/*
 * Recorded results: a text file with a line for each case that is compared within a tolerance, and
 * one for each group of cases that are compared bit for bit and have their first two words in common,
 *
 *     NAME: HASH WORD WORD ...
 *     FIRST WORDS: HASH HASH ...
 *
 * HASH: of a case's whole output, of a group in the cases' order. The words are a sample of the
 * output. All numbers are hexadecimal. Lines that begin with # are comments.
 */
#pragma once

#include <stdio.h>

#include "cases.h"

struct results; /* a whole file */

/* Reads a file; a NULL path gives an empty one for recording. NULL with a message printed. */
struct results *results_read(const char *path);
void results_free(struct results *results);

/* A line without a case; NULL: none. */
const char *results_unused(const struct results *results);

/* Adds one case's output; -1: out of memory. */
int results_add(struct results *results, const struct micro_case *one, const void *out);
void results_write(const struct results *results, FILE *file);

enum verdict { SAME_BITS, WITHIN, DIFFERENT };

/* Compares an output with the recorded one and prints differences. */
enum verdict results_compare(struct results *results, const struct micro_case *one,
                             const void *out);
