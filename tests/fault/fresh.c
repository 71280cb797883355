/* See fresh.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fresh.h"
#include "runtime/specs.h"

struct fake_driver *driver;
struct fake_nvrtc *nvrtc;

int fresh_fakes(void **unused) {
    (void)unused;
    driver = fakes_driver();
    nvrtc = fakes_nvrtc();
    driver->calls = driver->fail_at = driver->loads = driver->reject_images = 0;
    driver->context_id = 1;
    driver->devices = 1;
    driver->capability_major = 9;
    /* Clears what a failed test left. */
    driver->modules = driver->retained = driver->allocations = 0;
    driver->streams = driver->events = 0;
    nvrtc->compiles = nvrtc->max_running = nvrtc->programs = 0;
    nvrtc->sleep_ms = 0;
    nvrtc->silent = 0;
    nvrtc->on_compile = NULL;
    nvrtc->fail[0] = '\0';
    return 0;
}

void assert_nothing_alive(void) {
    assert_int_equal(driver->modules, 0);
    assert_int_equal(driver->retained, 0);
    assert_int_equal(driver->allocations, 0);
    assert_int_equal(driver->streams, 0);
    assert_int_equal(driver->events, 0);
    assert_int_equal(nvrtc->programs, 0);
}

static smelt_context *made;

smelt_context *make_context(void) {
    const smelt_context_options options = fakes_options();
    smelt_context_destroy(&made);
    assert_int_equal(smelt_context_create(&made, &options), SMELT_OK);
    return made;
}

int end_fakes(void **unused) {
    (void)unused;
    smelt_context_destroy(&made);
    assert_null(made);
    assert_nothing_alive();
    return 0;
}

const struct smelt__kernel *get_kernel(smelt_context *context) {
    struct smelt__plan plan;
    const struct smelt__kernel *kernel = NULL;
    assert_int_equal(smelt__plan_from_text(FAKES_SPEC, smelt_context_arch(context), &plan),
                     SMELT_OK);
    assert_int_equal(smelt__kernel_get(context, &plan, &kernel), SMELT_OK);
    return kernel;
}
