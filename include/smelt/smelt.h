/* smelt: all public headers. Each also works alone. */
#ifndef SMELT_SMELT_H
#define SMELT_SMELT_H

#include "smelt/cache.h"
#include "smelt/context.h"
#include "smelt/device.h"
#include "smelt/kernels.h"
#include "smelt/operator.h"
#include "smelt/operators.h"
#include "smelt/status.h"
#include "smelt/struct.h"
#include "smelt/tensor.h"
#include "smelt/tuning.h"

#endif
