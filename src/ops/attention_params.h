/* The params structs of the kernels that several operators of attention over lists use. The headers of the
 * structs have no guard, since they are also parts of templates. */
#pragma once

#include "common/work.params.h" /* part of the others */

#include "attention_bwd_rows.params.h"
#include "attention_lists.params.h"
