/* The meaning of the tests' toy operator. */
#ifndef SMELT_REFERENCE_TOY_H
#define SMELT_REFERENCE_TOY_H

/* One element: factor * from, and what was there before if it is added to. */
double smelt__toy_reference(double factor, double from, double before);

#endif
