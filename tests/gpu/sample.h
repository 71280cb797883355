/* A sample of the suite's cases. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct sample;

/* A name's ticket in a draw, a hash. */
uint64_t sample_ticket(const char *name, uint64_t seed);

struct sample *sample_create(size_t size, uint64_t seed);
void sample_destroy(struct sample *sample); /* may be NULL */

/* Adds a case of an operator; all are added before some are drawn. 0; -1: out of memory. */
int sample_add(struct sample *sample, int op, const char *name);
void sample_draw(struct sample *sample);

/* Whether the sample was drawn; whether it contains a case. */
int sample_is_complete(const struct sample *sample);
int sample_has(const struct sample *sample, int op, const char *name);
