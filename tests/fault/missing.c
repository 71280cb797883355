/* The runtime's messages if the machine lacks something, and its behaviour without NVRTC if the
 * cache has the kernel. Each case runs in a child, because a process opens its driver once. */
#include <sys/stat.h>
#include <unistd.h>

#include "../unit/files.h"
#include "../unit/test.h"
#include "fakes.h"
#include "runtime/compiler/nvrtc.h"
#include "runtime/kernel.h"
#include "smelt/device.h"
#include "smelt/kernels.h"

static char folder[64], cache[96];
static const char *other_library; /* argv[1]: a shared library that is neither driver nor NVRTC */
static const char *emulator;      /* argv[2]: its library */

/* Runs a test in a child process. */
#define CHILD_TEST(name)                                                                           \
    static void name(void);                                                                        \
    TEST(test_##name) {                                                                            \
        assert_int_equal(fakes_in_child(name), 0);                                                 \
    }                                                                                              \
    static void name(void)

static int says(const char *text) {
    return strstr(smelt_last_error(), text) != NULL;
}

static smelt_status get(smelt_context *context, const struct smelt__kernel **kernel) {
    struct smelt__plan plan;
    fakes_plan(FAKES_SPEC, &plan);
    return smelt__kernel_get(context, &plan, kernel);
}

/* A context works without NVRTC; getting a kernel fails. */
static void expect_no_compiler(const char *path, const char *why) {
    smelt_context_options options = fakes_options();
    smelt_context *context = NULL;
    const struct smelt__kernel *kernel;
    setenv("SMELT_NVRTC", path, 1);
    EXPECT(smelt_context_create(&context, &options) == SMELT_OK);
    EXPECT(get(context, &kernel) == SMELT_ERROR_NO_COMPILER);
    EXPECT(says(path));
    EXPECT(says(why));
    smelt_context_destroy(&context);
}

/* ---- the driver ---- */

CHILD_TEST(no_driver) {
    smelt_context_options options = fakes_options();
    smelt_context *context = NULL;
    smelt_machine_report report = SMELT_MACHINE_REPORT_INIT;
    setenv("SMELT_CUDA", "/nowhere/libcuda.so.1", 1);
    EXPECT(smelt_context_create(&context, &options) == SMELT_ERROR_NO_DRIVER);
    EXPECT(!context && says("/nowhere/libcuda.so.1") && says("install"));
    options.kind = SMELT_CONTEXT_COMPILE_ONLY;
    options.arch = "sm_90a";
    EXPECT(smelt_context_create(&context, &options) == SMELT_OK);
    EXPECT(smelt_machine_get_report(&options, &report) == SMELT_OK);
    EXPECT(!report.driver_found && strstr(report.driver_problem, "/nowhere/libcuda.so.1"));
    EXPECT(report.nvrtc_found && report.nvrtc_major == 13);
    EXPECT(!report.devices && !report.device_names && !report.device_archs);
    EXPECT(smelt__context_need_device(context) == SMELT_ERROR_NO_DEVICE);
    smelt_machine_report_release(&report);
    smelt_context_destroy(&context);
}

CHILD_TEST(driver_too_old) {
    smelt_context_options options = fakes_options();
    smelt_context *context = NULL;
    setenv("SMELT_CUDA", other_library, 1);
    EXPECT(smelt_context_create(&context, &options) == SMELT_ERROR_NO_DRIVER);
    EXPECT(says("cuInit") && says("CUDA 12.0"));
}

CHILD_TEST(machine_report) {
    smelt_context_options options = fakes_options();
    smelt_machine_report report = SMELT_MACHINE_REPORT_INIT;
    options.cache_dir = cache;
    EXPECT(smelt_machine_get_report(&options, &report) == SMELT_OK);
    EXPECT(report.driver_found && report.driver_version == 13000 && report.devices == 1);
    EXPECT(strcmp(report.driver_path, getenv("SMELT_CUDA")) == 0);
    EXPECT(strcmp(report.device_names[0], "Fake GPU 0") == 0);
    EXPECT(strcmp(report.device_archs[0], "sm_90a") == 0);
    EXPECT(strcmp(report.nvrtc_path, getenv("SMELT_NVRTC")) == 0);
    EXPECT(strcmp(report.nvrtc_archs, "sm_75 sm_80 sm_86 sm_90 sm_100") == 0);
    EXPECT(strcmp(report.cache_folder, cache) == 0);
    EXPECT(!*report.driver_problem && !*report.nvrtc_problem && !*report.cache_problem);
    smelt_machine_report_release(&report);
    EXPECT(!report.memory && !report.driver_path && report.size == sizeof report);
    smelt_machine_report_release(&report);
    smelt_machine_report_release(NULL);
}

/* Every device is in the report; one that smelt has no kernels for has no architecture. */
CHILD_TEST(many_devices) {
    enum { DEVICES = 40 };
    smelt_context_options options = fakes_options();
    smelt_machine_report report = SMELT_MACHINE_REPORT_INIT;
    char name[32];
    fakes_driver()->devices = DEVICES;
    fakes_driver()->capability_major = 7;
    EXPECT(smelt_machine_get_report(&options, &report) == SMELT_OK);
    EXPECT(report.devices == DEVICES);
    for (int i = 0; i < DEVICES; i++) {
        snprintf(name, sizeof name, "Fake GPU %d", i);
        EXPECT(strcmp(report.device_names[i], name) == 0);
        EXPECT(strcmp(report.device_archs[i], "") == 0);
    }
    smelt_machine_report_release(&report);
    fakes_driver()->devices = 0;
    EXPECT(smelt_machine_get_report(&options, &report) == SMELT_OK);
    EXPECT(report.driver_found && report.devices == 0 && !report.device_names);
    smelt_machine_report_release(&report);
}

/* ---- NVRTC ---- */

CHILD_TEST(nvrtc_not_there) {
    expect_no_compiler("/nowhere/libnvrtc.so.13", "No such file");
}

CHILD_TEST(nvrtc_is_another_library) {
    expect_no_compiler(other_library, "nvrtcVersion");
}

CHILD_TEST(nvrtc_is_a_text) {
    expect_no_compiler("/etc/passwd", "not a shared library");
}

CHILD_TEST(nvrtc_is_an_empty_folder) {
    expect_no_compiler("/proc/self/task", "holds no libnvrtc");
}

CHILD_TEST(nvrtc_fails_to_open) {
    static const char *const names[] = {"nvrtcVersion", "nvrtcGetNumSupportedArchs",
                                        "nvrtcGetSupportedArchs"};
    struct fake_nvrtc *nvrtc = fakes_nvrtc();
    smelt_context_options options = fakes_options();
    smelt_context *context = NULL;
    const struct smelt__kernel *kernel;
    EXPECT(smelt_context_create(&context, &options) == SMELT_OK);
    nvrtc->fail_with = 11;
    for (int i = 0; i < 3; i++) {
        snprintf(nvrtc->fail, sizeof nvrtc->fail, "%s", names[i]);
        EXPECT(get(context, &kernel) == SMELT_ERROR_NO_COMPILER);
        EXPECT(says(names[i]));
    }
    nvrtc->fail[0] = '\0';
    EXPECT(get(context, &kernel) == SMELT_OK);
    smelt_context_destroy(&context);
}

/* ---- the search ---- */

static void copy_file(const char *from, const char *name) {
    char command[9000];
    snprintf(command, sizeof command, "cp '%s' '%s/lib64/%s'", from, folder, name);
    EXPECT(system(command) == 0);
}

CHILD_TEST(newest_that_the_driver_runs) {
    struct smelt__nvrtc_file file;
    char lib[96], list[128];
    const char *fake = getenv("SMELT_NVRTC");
    snprintf(lib, sizeof lib, "%s/lib64", folder);
    EXPECT(mkdir(lib, 0700) == 0);
    copy_file(fake, "libnvrtc.so.12");
    copy_file(other_library, "libnvrtc-builtins.so.12.12");
    copy_file(fake, "libnvrtc.so.19");
    setenv("CUDA_HOME", folder, 1);
    EXPECT(smelt__nvrtc_find(NULL, 0, NULL, &file) == SMELT_OK);
    EXPECT(file.id.major == 19 && strstr(file.path, "libnvrtc.so.19"));
    EXPECT(file.builtins[0] == '\0');
    EXPECT(smelt__nvrtc_find(NULL, 12040, NULL, &file) == SMELT_OK);
    EXPECT(file.id.major == 12 && file.id.minor == 12 && strstr(file.path, folder));
    EXPECT(strstr(file.builtins, "libnvrtc-builtins.so.12.12"));
    unsetenv("CUDA_HOME");
    setenv("LD_LIBRARY_PATH", "/nowhere::", 1);
    EXPECT(smelt__nvrtc_find(NULL, 0, NULL, &file) != SMELT_OK || file.id.major < 19);
    snprintf(list, sizeof list, "/nowhere::%s", lib);
    setenv("LD_LIBRARY_PATH", list, 1);
    EXPECT(smelt__nvrtc_find(NULL, 0, NULL, &file) == SMELT_OK && file.id.major == 19);
    EXPECT(smelt__nvrtc_find(NULL, 11080, NULL, &file) == SMELT_ERROR_NO_COMPILER);
    EXPECT(says("newer than the driver") && says("CUDA 11"));
    EXPECT(smelt__nvrtc_find(lib, 11080, NULL, &file) == SMELT_OK);
    EXPECT(!fakes_nvrtc_loaded());
}

/* Two builds of one version are different compilers. */
CHILD_TEST(identity_follows_the_files) {
    struct smelt__nvrtc_file a;
    struct smelt__nvrtc_file b;
    EXPECT(smelt__nvrtc_find(getenv("SMELT_NVRTC"), 0, NULL, &a) == SMELT_OK);
    EXPECT(smelt__nvrtc_find(getenv("SMELT_NVRTC"), 0, NULL, &b) == SMELT_OK);
    EXPECT(memcmp(&a.id, &b.id, sizeof a.id) == 0);
    EXPECT(smelt__nvrtc_find(other_library, 0, NULL, &b) == SMELT_OK);
    EXPECT(memcmp(a.id.build_ids, b.id.build_ids, sizeof a.id.build_ids) != 0);
}

/* ---- the cache in place of NVRTC ---- */

static smelt_context *cached_context(void) {
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    smelt_context *context = NULL;
    options.kind = SMELT_CONTEXT_DEVICE;
    options.cache_dir = cache;
    EXPECT(smelt_context_create(&context, &options) == SMELT_OK);
    return context;
}

static void expect_state(smelt_kernel_state state) {
    const struct smelt__kernel *kernel;
    smelt_context *context = cached_context();
    EXPECT(get(context, &kernel) == SMELT_OK);
    EXPECT(kernel->info.state == state);
    EXPECT(kernel->info.registers == 168 && kernel->info.spill_bytes == 12);
    EXPECT(smelt_last_error()[0] == '\0');
    smelt_context_destroy(&context);
}

CHILD_TEST(cache_is_filled) {
    expect_state(SMELT_KERNEL_COMPILED);
    EXPECT(fakes_nvrtc_loaded());
}

CHILD_TEST(cached_kernel_leaves_nvrtc_closed) {
    expect_state(SMELT_KERNEL_CACHED);
    EXPECT(!fakes_nvrtc_loaded());
}

CHILD_TEST(cached_kernel_needs_no_nvrtc) {
    setenv("SMELT_NVRTC", "/nowhere/libnvrtc.so.13", 1);
    expect_state(SMELT_KERNEL_CACHED);
}

CHILD_TEST(refused_entry_is_compiled_again) {
    struct fake_driver *driver = fakes_driver();
    driver->reject_images = 1;
    expect_state(SMELT_KERNEL_COMPILED);
    EXPECT(fakes_nvrtc()->compiles == 1);
    EXPECT(driver->loads == 2 && driver->modules == 0);
    expect_state(SMELT_KERNEL_CACHED);
    driver->reject_images = 2; /* and only once */
    const struct smelt__kernel *kernel;
    smelt_context *context = cached_context();
    EXPECT(get(context, &kernel) == SMELT_ERROR_DRIVER);
    EXPECT(says("cuModuleLoadData"));
    smelt_context_destroy(&context);
    EXPECT(driver->modules == 0);
}

/* ---- the emulator on one side, a GPU's driver or compiler on the other ---- */

/* The cache's GPU kernels are used; missing ones cannot be compiled. */
CHILD_TEST(emulator_beside_a_driver) {
    const struct smelt__kernel *kernel;
    struct smelt__plan plan;
    setenv("SMELT_NVRTC", emulator, 1);
    expect_state(SMELT_KERNEL_CACHED);
    smelt_context *context = cached_context();
    fakes_plan("sparse_attn_fwd:heads=16,dqk=128,dv=128,topk=64", &plan);
    EXPECT(smelt__kernel_get(context, &plan, &kernel) == SMELT_ERROR_NO_COMPILER);
    EXPECT(says(emulator) && says("emulator") && fakes_driver()->loads == 1);
    smelt_context_destroy(&context);
}

CHILD_TEST(nvrtc_beside_the_emulator) {
    const struct smelt__kernel *kernel;
    setenv("SMELT_CUDA", emulator, 1);
    smelt_context *context = cached_context();
    EXPECT(get(context, &kernel) == SMELT_ERROR_NO_COMPILER); /* the cubin is there */
    EXPECT(says("emulator") && says(getenv("SMELT_NVRTC")));
    smelt_context_destroy(&context);
}

static int make_folder(void **unused) {
    (void)unused;
    if (make_scratch(folder, sizeof folder))
        return -1;
    snprintf(cache, sizeof cache, "%s/cache", folder);
    return 0;
}

static int remove_folder(void **unused) {
    (void)unused;
    return remove_tree(folder);
}

int main(int count, char **arguments) {
    if (count != 3) {
        fprintf(stderr, "usage: %s LIBRARY EMULATOR\n", arguments[0]);
        return 2;
    }
    other_library = arguments[1];
    emulator = arguments[2];
    return RUN_TESTS("missing parts", .group_setup = make_folder, .group_teardown = remove_folder);
}
