/* Shared by the fault tests: the fakes' states, a kernel, and child processes for things that a
 * process does only once. */
#pragma once

#include "codegen/plan/plan.h"
#include "fake_driver.h"
#include "fake_nvrtc.h"
#include "smelt/context.h"

#define FAKES_SPEC "sparse_attn_fwd:heads=64,dqk=576,dv=512,topk=2048"

/* The states of the libraries that SMELT_CUDA and SMELT_NVRTC name; opens them. */
struct fake_driver *fakes_driver(void);
struct fake_nvrtc *fakes_nvrtc(void);
/* A function of the driver, for tests that act as another user of CUDA. */
void *fakes_driver_symbol(const char *name);
/* Whether that NVRTC is loaded in this process. */
int fakes_nvrtc_loaded(void);

/* Options of a context on device 0 without a cache. */
smelt_context_options fakes_options(void);

/* The plan of a spec on the fake device; aborts the test when there is none. */
void fakes_plan(const char *spec, struct smelt__plan *plan);

/* Runs `body` in a forked child; its result is the child's exit status. A child reports a false
 * condition with EXPECT, which ends it. */
int fakes_in_child(void (*body)(void));
#define EXPECT(condition) fakes_expect(!!(condition), #condition, __FILE__, __LINE__)
void fakes_expect(int holds, const char *condition, const char *file, int line);

/* From now on a compilation ends only when so many have run concurrently, or after half a minute,
 * since a busy machine starts threads late. */
void fakes_compile_together(int count);
