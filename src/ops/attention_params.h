/* The params structs of the kernels that several operators of attention over lists use. The structs' own headers,
 * being templates' parts too, have no guard. */
#pragma once

#include "common/work.params.h" /* part of the others */

#include "attention_bwd_rows.params.h"
#include "attention_lists.params.h"
