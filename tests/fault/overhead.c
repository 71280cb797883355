/* Figures, not a test: what the host side costs with the fake driver. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fakes.h"
#include "runtime/kernel.h"
#include "smelt/status.h"

enum { LAUNCHES = 1000000, PROCESSES = 11 };

static char folder[] = "/tmp/smelt-overhead-XXXXXX";

static double microseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e6 * (double)now.tv_sec + 1e-3 * (double)now.tv_nsec;
}

static const struct smelt__kernel *make(smelt_context **context, double *create, double *ready) {
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    const struct smelt__kernel *kernel = NULL;
    struct smelt__plan plan;

    options.kind = SMELT_CONTEXT_DEVICE;
    options.cache_dir = folder;
    double begin = microseconds();
    EXPECT(smelt_context_create(context, &options) == SMELT_OK);
    *create = microseconds() - begin;
    begin = microseconds();
    fakes_plan(FAKES_SPEC, &plan);
    EXPECT(smelt__kernel_get(*context, &plan, &kernel) == SMELT_OK);
    *ready = microseconds() - begin;
    return kernel;
}

static void one_process(void) {
    double create, ready;
    smelt_context *context;
    const struct smelt__kernel *kernel = make(&context, &create, &ready);
    printf("%s: context %.0f us, spec to ready %.0f us\n",
           kernel->info.state == SMELT_KERNEL_CACHED ? "cached  " : "compiled", create, ready);
    smelt_context_destroy(&context);
}

static double time_launches(const smelt_context *context, const struct smelt__kernel *kernel) {
    unsigned char params[512] = {0};
    const struct smelt__launch launch = {.blocks = {1}, .params = params};
    double begin = microseconds();
    for (int i = 0; i < LAUNCHES; i++)
        EXPECT(smelt__kernel_launch(context, kernel, &launch, NULL) == SMELT_OK);
    return 1e3 * (microseconds() - begin) / LAUNCHES;
}

static double time_bare(const struct smelt__kernel *kernel) {
    CUresult (*launch)(const CUlaunchConfig *, CUfunction, void **, void **);
    void *symbol = fakes_driver_symbol("cuLaunchKernelEx");
    memcpy(&launch, &symbol, sizeof symbol);
    unsigned char params[512] = {0};
    void *parameters[1] = {params};
    CUlaunchConfig config = {.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 128};
    double begin = microseconds();
    for (int i = 0; i < LAUNCHES; i++)
        EXPECT(launch(&config, (CUfunction)kernel->function, parameters, NULL) == CUDA_SUCCESS);
    return 1e3 * (microseconds() - begin) / LAUNCHES;
}

static void launches(void) {
    double create, ready;
    smelt_context *context;
    CUresult (*push)(CUcontext);
    void *symbol = fakes_driver_symbol("cuCtxPushCurrent_v2");
    memcpy(&push, &symbol, sizeof symbol);

    const struct smelt__kernel *kernel = make(&context, &create, &ready);
    double foreign = time_launches(context, kernel);
    EXPECT(push(fakes_driver()->launch_context) == CUDA_SUCCESS);
    double current = time_launches(context, kernel);
    double bare = time_bare(kernel);
    printf("launch: bare %.0f ns, context current %.0f ns, context pushed and popped %.0f ns\n",
           bare, current, foreign);
    smelt_context_destroy(&context);
}

int main(void) {
    char command[128];
    int result = 0;
    if (!mkdtemp(folder))
        return 1;
    for (int i = 0; i < PROCESSES && !result; i++)
        result = fakes_in_child(one_process);
    if (!result)
        result = fakes_in_child(launches);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command) || result;
}
