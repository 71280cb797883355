/* See toy.h. */
#include "reference/toy.h"

double smelt__toy_reference(double factor, double from, double before) {
    return factor * from + before;
}
