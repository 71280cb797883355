/* A sample of the suite's cases. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct sample;

/* What stands for a name in a draw: all of its bits differ. */
uint64_t sample_ticket(const char *name, uint64_t seed);

struct sample *sample_create(size_t size, uint64_t seed);
void sample_destroy(struct sample *sample); /* NULL is none */

/* A case of an operator; all are added first, then some are drawn. 0, or -1 without memory. */
int sample_add(struct sample *sample, int op, const char *name);
void sample_draw(struct sample *sample);

/* Whether it was drawn yet, and whether a case is among those drawn. */
int sample_is_complete(const struct sample *sample);
int sample_has(const struct sample *sample, int op, const char *name);
