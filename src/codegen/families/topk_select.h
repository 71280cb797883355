/* The operator topk_select, for those who make one. */
#ifndef SMELT_CODEGEN_TOPK_SELECT_H
#define SMELT_CODEGEN_TOPK_SELECT_H

#include "codegen/family.h"

extern const struct smelt__operator_family smelt__topk_select;

#endif
