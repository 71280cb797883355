/* The stand-in's indexer_logits: the reference, with a chosen defect. */
#ifndef SMELT_TEST_STAND_IN_INDEXER_LOGITS_H
#define SMELT_TEST_STAND_IN_INDEXER_LOGITS_H

enum stand_in_logits_defect {
    STAND_IN_LOGITS_CORRECT,
    STAND_IN_LOGITS_NO_RELU,       /* fp8 */
    STAND_IN_LOGITS_NO_SCALE,      /* of the keys: fp8 */
    STAND_IN_LOGITS_SKIPS_HEAD,    /* the last */
    STAND_IN_LOGITS_COARSE,        /* one in a thousand off */
    STAND_IN_LOGITS_NO_WINDOW,     /* finite outside */
    STAND_IN_LOGITS_SHORT_WINDOW,  /* its last key is -inf */
    STAND_IN_LOGITS_ZERO_OUTSIDE,  /* instead of -inf */
    STAND_IN_LOGITS_PLUS_INFINITY, /* outside */
    STAND_IN_LOGITS_SKIPS_EMPTY,   /* rows without a key are not written */
    STAND_IN_LOGITS_SKIPS_KEY,     /* a row's last element is not written */
    STAND_IN_LOGITS_MINUS_ZERO,
    STAND_IN_LOGITS_NAN, /* stays NaN */
    STAND_IN_LOGITS_WRITES_GAP,
    STAND_IN_LOGITS_DEFECTS
};

extern enum stand_in_logits_defect stand_in_logits_defect;

#endif
