/* What stands around and in outputs before a run: see placed.h. */
#ifndef SMELT_HARNESS_GUARDS_H
#define SMELT_HARNESS_GUARDS_H

enum {
    SMELT__GUARD = 4096, /* bytes before and behind an output, and the workspace */
    SMELT__POISON = 0xff /* bytes of ones are NaN as bf16, fp32 and e4m3, and -1 as int32 */
};

#endif
