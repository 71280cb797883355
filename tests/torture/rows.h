/* The rows of one torture program, ended by a row without a name. */
#pragma once

#include "torture.h"

struct row {
    const char *name;
    int (*run)(const struct arguments *arguments);
    const char *summary;
};

extern const struct row rows[];
