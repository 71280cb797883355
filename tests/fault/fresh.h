/* Tests of the runtime on fakes that are reset before each test: cmocka's set-up, a context, a
 * kernel. */
#pragma once

#include "../unit/test.h"
#include "fakes.h"
#include "runtime/kernel.h"

/* The fakes' states, from the first fresh_fakes on. */
extern struct fake_driver *driver;
extern struct fake_nvrtc *nvrtc;

/* Run before and after each test; at the end no object is alive. */
int fresh_fakes(void **unused);
int end_fakes(void **unused);

/* Checks that all objects of the driver and the compiler were released. */
void assert_nothing_alive(void);

/* Lives until the next one is made, or the test's end. */
smelt_context *make_context(void);
/* The kernel of FAKES_SPEC, loaded. */
const struct smelt__kernel *get_kernel(smelt_context *context);
