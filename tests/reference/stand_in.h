/*
 * A stand-in for the library's device half: "device" memory is the host's, the forward pass runs
 * the reference and the backward pass an independent implementation, with a chosen defect. It shows
 * that the harness accepts correct results and detects errors that a kernel may make. compared/
 * tests the comparisons of every operator.
 */
#pragma once

#include "smelt/status.h"

enum stand_in_defect {
    STAND_IN_CORRECT = 0,
    STAND_IN_DROPS_LAST_SLOT,
    STAND_IN_LSE_BASE_2,
    STAND_IN_LSE_WITH_SINK,
    STAND_IN_LSE_POSITIVE_WHEN_EMPTY, /* tests/cli/device.sh uses this and the next one by number */
    STAND_IN_NAN_WHEN_EMPTY,
    STAND_IN_IGNORES_LENGTH,
    STAND_IN_CLAMPS_MASKED, /* takes row 0 with weight 0 for masked slots: 0 * NaN */
    STAND_IN_IGNORES_SINK,
    STAND_IN_COMPUTES_UNLISTED,
    STAND_IN_SKIPS_LAST_QUERY,
    STAND_IN_MAX_LOGITS_BASE_2,
    STAND_IN_DEFECTS,
    /* Not detected by a comparison with the reference, but by the emulator's runs: */
    STAND_IN_LAST_BIT, /* of one result, well within the tolerance */
    STAND_IN_WRITES_INPUT,
    /* Of the backward pass: */
    STAND_IN_GRAD_DEFECTS,
    STAND_IN_GRAD_SKIPS_LAST_SLOT,
    STAND_IN_GRAD_DUPLICATES_ONCE,
    STAND_IN_GRAD_IGNORES_LENGTH,
    STAND_IN_GRAD_CLAMPS_MASKED,
    STAND_IN_GRAD_UNSELECTED_NOT_ZERO,
    STAND_IN_GRAD_UNSELECTED_NOT_WRITTEN,
    STAND_IN_GRAD_OVERWRITES, /* instead of adding */
    STAND_IN_GRAD_OTHER_BATCH,
    STAND_IN_GRAD_COMPUTES_UNLISTED,
    STAND_IN_GRAD_SKIPS_LAST_QUERY,
    STAND_IN_GRAD_REPEATED_ONCE, /* a query that is listed several times adds once */
    STAND_IN_GRAD_NO_SCALE,
    STAND_IN_GRAD_NO_DELTA,
    STAND_IN_GRAD_COARSE_DELTA, /* from out with three bits less than bf16 */
    STAND_IN_GRAD_NO_VALUE,     /* dkv without p times grad_out */
    STAND_IN_GRAD_LSE_BASE_2,
    STAND_IN_GRAD_P_WITHOUT_SINK,
    STAND_IN_GRAD_DSINK_SIGN,
    STAND_IN_GRAD_DSINK_WHOLE, /* as if sinks had all of the weight */
    STAND_IN_GRAD_DSINK_LSE,   /* takes lse as including the sink */
    STAND_IN_GRAD_DSINK_NAN,   /* for a sink of +inf */
    STAND_IN_GRAD_DKV_ROW_OFF, /* the row most selected */
    STAND_IN_GRAD_COARSE_P,    /* three bits less than bf16 */
    STAND_IN_GRAD_ALL_DEFECTS,
    /* Detected only by the emulator's runs: */
    STAND_IN_GRAD_LAST_BIT_DQ,
    STAND_IN_GRAD_LAST_BIT_DKV
};

extern enum stand_in_defect stand_in_defect;

/* A launch's duration by its operator's knobs ("": none); NULL: half a millisecond. Negative: the
 * launch is refused. */
extern double (*stand_in_ms)(const char *knobs);
/* Knobs whose operator has the defect; NULL: every operator has it. */
extern const char *stand_in_defect_knobs;

/* For the stand-in's operators, in stand_in_STEM.c: reports a failure with a message; makes a
 * launch, which takes its time or is refused. */
smelt_status stand_in_fail(smelt_status status, const char *what);
smelt_status stand_in_launch(const char *knobs);
