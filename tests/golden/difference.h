/*
 * Differences between two emitted sources: what the goldens of further specs hold. A text of
 *
 *     @ WHERE, after N lines, instead of M
 *     +one line of the new source
 *
 * where WHERE is the part of the old source ("banner", "templates/common/work.cuh", with " (2)" for
 * a part that stands there a second time), N the lines that are alike since the part's begin or
 * since the difference before, whichever is later, and M the lines of the old source that the new
 * ones stand for. Counted so, a line more in a shared part changes one number at most.
 *
 * The text is exact: it and the old source give the new one.
 */
#ifndef SMELT_TESTS_GOLDEN_DIFFERENCE_H
#define SMELT_TESTS_GOLDEN_DIFFERENCE_H

#include "codegen/text.h"

/* Appends the differences of two texts whose every line ends with a newline. 0, or -1 with a
 * message printed. */
int difference_write(const char *from, const char *to, struct smelt__text *out);

/* Appends what the differences make of `from`. 0, or -1 with a message printed. */
int difference_apply(const char *from, const char *differences, struct smelt__text *out);

#endif
