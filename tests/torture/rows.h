/* The rows of one torture program, ended by one without a name. */
#ifndef SMELT_TESTS_TORTURE_ROWS_H
#define SMELT_TESTS_TORTURE_ROWS_H

#include "torture.h"

struct row {
    const char *name;
    int (*run)(const struct arguments *arguments);
    const char *summary;
};

extern const struct row rows[];

#endif
