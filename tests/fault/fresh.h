/* Tests of the runtime on fakes that are as new before each: cmocka's set-up, a context, a kernel.
 */
#pragma once

#include "../unit/test.h"
#include "fakes.h"
#include "runtime/kernel.h"

/* The fakes' states, from the first fresh_fakes on. */
extern struct fake_driver *driver;
extern struct fake_nvrtc *nvrtc;

/* Before and after each test; at the end nothing is alive. */
int fresh_fakes(void **unused);
int end_fakes(void **unused);

/* What the driver and the compiler handed out was given back. */
void assert_nothing_alive(void);

/* Lives until the next one is made, or the test's end. */
smelt_context *make_context(void);
/* The kernel of FAKES_SPEC, loaded. */
const struct smelt__kernel *get_kernel(smelt_context *context);
