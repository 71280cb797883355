/*
 * A stand-in for the library's device half: "device" memory is the host's, the forward pass of sparse_attn
 * runs the reference with a chosen defect, and the backward pass computes nothing. It shows what check, bench
 * and tune do with right and wrong results and with times. compared/ tests the comparisons of every
 * operator.
 */
#pragma once

#include "codegen/spec/spec.h"
#include "reference/operators.h"
#include "smelt/sparse_attn.h"
#include "smelt/status.h"

enum stand_in_defect { /* tests/cli/device.sh uses the first ones by number */
                       STAND_IN_CORRECT = 0,
                       STAND_IN_DROPS_LAST_SLOT,
                       STAND_IN_LSE_POSITIVE_WHEN_EMPTY,
                       STAND_IN_NAN_WHEN_EMPTY,
                       STAND_IN_LSE_BASE_2,
                       STAND_IN_COMPUTES_UNLISTED,
                       STAND_IN_SKIPS_LAST_QUERY,
                       STAND_IN_DEFECTS,
                       /* Detected by the emulator's runs, not by the comparison with the reference: */
                       STAND_IN_LAST_BIT, /* of one result, well within the tolerance */
                       STAND_IN_WRITES_INPUT,
};

extern enum stand_in_defect stand_in_defect;

/* A launch's duration by its operator's knobs ("": none); NULL: half a millisecond. Negative: the
 * launch is refused. */
extern double (*stand_in_ms)(const char *knobs);
/* Knobs whose operator has the defect; NULL: every operator has it. */
extern const char *stand_in_defect_knobs;

struct smelt_operator {
    struct smelt__attention_spec attention;
    char knobs[SMELT__SPEC_TEXT];
};

/* Reports a failure with a message. */
smelt_status stand_in_fail(smelt_status status, const char *what);
/* Computes a forward pass (stand_in_sparse_attn.c). */
smelt_status stand_in_forward(const smelt_operator *op, const smelt_sparse_attn_args *args);
