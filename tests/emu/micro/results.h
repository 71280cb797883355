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

/* A path of NULL: an empty one, to be recorded. NULL with a message printed. */
struct results *results_read(const char *path);
void results_free(struct results *results);

/* A line that no case was compared with; NULL: there is none. */
const char *results_unused(const struct results *results);

/* Adds one case's output; -1: out of memory. */
int results_add(struct results *results, const struct micro_case *one, const void *out);
void results_write(const struct results *results, FILE *file);

enum verdict { SAME_BITS, WITHIN, DIFFERENT };

/* Holds an output against the recorded one; what differs is printed. */
enum verdict results_compare(struct results *results, const struct micro_case *one,
                             const void *out);
