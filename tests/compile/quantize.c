/* The compile matrix's cells of quantize: widths with and without idle lanes, groups, both scales. */
#include <stddef.h>

#include "cells.h"

static const char *const operators[] = {"quantize:dim=128",
                                        "quantize:dim=64",
                                        "quantize:dim=128,scale=power_of_two",
                                        "quantize:dim=64,scale=power_of_two",
                                        "quantize:dim=16",
                                        "quantize:dim=576",
                                        "quantize:dim=1024,scale=power_of_two",
                                        "quantize:dim=512,groups=8",
                                        "quantize:dim=960,groups=60",
                                        NULL};

const struct compile_cells compile_cells_quantize = {.operators = operators};
