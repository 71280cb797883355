/* The machine report of `smelt doctor`: see smelt/device.h. */
#include <stdlib.h>
#include <string.h>

#include "runtime/abi.h"
#include "runtime/context.h"
#include "smelt/device.h"

/* A report under construction. Its strings go into their final table at once; `failed`: out of
 * memory. */
struct inspection {
    smelt_machine_report report;
    struct smelt__strings *strings;
    int failed;
};

static const char *keep(struct inspection *all, const char *text) {
    const char *kept = smelt__strings_keep(all->strings, text);
    if (!kept)
        all->failed = 1;
    return kept;
}

static const char *keep_last_error(struct inspection *all) {
    return keep(all, smelt_last_error());
}

static void inspect_device(struct inspection *all, const struct smelt__driver *driver, int ordinal,
                           const char **name, const char **arch_name) {
    struct smelt__message message;
    char text[256] = "";
    CUdevice device;
    int major = 0;
    int minor = 0;

    *name = *arch_name = "";
    if (driver->cuDeviceGet(&device, ordinal) != CUDA_SUCCESS ||
        driver->cuDeviceGetName(text, sizeof text, device) != CUDA_SUCCESS ||
        driver->cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                                     device) != CUDA_SUCCESS ||
        driver->cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                                     device) != CUDA_SUCCESS)
        return;
    const struct smelt__arch *arch = smelt__arch_for_capability(major, minor, &message);
    *name = keep(all, text);
    if (arch)
        *arch_name = arch->name;
}

static void inspect_devices(struct inspection *all, const struct smelt__driver *driver, int count) {
    if (count <= 0)
        return;
    const char **texts = calloc(2 * (size_t)count, sizeof *texts);
    if (!texts) {
        all->failed = 1;
        return;
    }
    for (int i = 0; i < count; i++)
        inspect_device(all, driver, i, &texts[i], &texts[count + i]);
    all->report.devices = count;
    all->report.device_names = texts; /* owns both arrays */
    all->report.device_archs = texts + count;
}

static void inspect_driver(struct inspection *all) {
    const struct smelt__driver *driver = smelt__driver_get();
    int devices = 0;

    if (!driver) {
        all->report.driver_problem = keep_last_error(all);
        return;
    }
    all->report.driver_path = keep(all, driver->path);
    all->report.driver_version = driver->version;
    CUresult result = driver->cuInit(0);
    if (result == CUDA_SUCCESS) {
        all->report.driver_found = 1;
        result = driver->cuDeviceGetCount(&devices);
    }
    if (result == CUDA_SUCCESS) {
        inspect_devices(all, driver, devices);
        return;
    }
    smelt__driver_fail(driver, all->report.driver_found ? "cuDeviceGetCount" : "cuInit", result);
    all->report.driver_problem = keep_last_error(all);
}

static void inspect_nvrtc(struct inspection *all, const struct smelt__settings *settings) {
    struct smelt__nvrtc_file file;
    const struct smelt__nvrtc *nvrtc;
    char archs[512];

    smelt_status status =
        smelt__nvrtc_find(settings->nvrtc_path, smelt__driver_version(), &settings->log, &file);
    all->report.nvrtc_path = keep(all, file.path);
    if (!status)
        status = smelt__nvrtc_open(&file, &nvrtc);
    if (status) {
        all->report.nvrtc_problem = keep_last_error(all);
        return;
    }
    all->report.nvrtc_found = 1;
    all->report.nvrtc_major = nvrtc->major;
    all->report.nvrtc_minor = nvrtc->minor;
    smelt__nvrtc_archs(nvrtc, archs, sizeof archs);
    all->report.nvrtc_archs = keep(all, archs);
}

static void inspect_cache(struct inspection *all, const struct smelt__settings *settings) {
    struct smelt__cache *cache = smelt__cache_open(&settings->cache, &settings->log);
    if (!cache) {
        all->failed = 1;
        return;
    }
    all->report.cache_folder = keep(all, smelt__cache_folder(cache));
    all->report.cache_problem = keep(all, smelt__cache_problem(cache));
    smelt__cache_close(cache);
}

static void free_report(const smelt_machine_report *report) {
    free((void *)report->device_names);
    smelt__strings_free(report->memory);
}

static const struct smelt__struct *about_report(void) {
    static const struct smelt__struct about = SMELT__STRUCT_VALUE(
        smelt_machine_report, "report", "SMELT_MACHINE_REPORT_INIT", cache_problem);
    return &about;
}

smelt_status smelt_machine_get_report(const smelt_context_options *given,
                                      smelt_machine_report *report) {
    struct inspection all = {.report = {.driver_path = "",
                                        .driver_problem = "",
                                        .nvrtc_path = "",
                                        .nvrtc_problem = "",
                                        .nvrtc_archs = "",
                                        .cache_folder = "",
                                        .cache_problem = ""}};
    struct smelt__settings settings;
    struct smelt__saved_error saved;

    smelt_status status = smelt__struct_check(about_report(), report);
    if (!status)
        status = smelt__settings_resolve(&settings, given);
    if (status)
        return status;
    all.report.memory = all.strings = smelt__strings_new();
    if (!all.strings)
        return smelt__fail(SMELT_ERROR_OUT_OF_MEMORY, "out of memory");
    smelt__error_save(&saved); /* the report lists missing things; they are no error of this call */
    inspect_driver(&all);
    inspect_nvrtc(&all, &settings);
    inspect_cache(&all, &settings);
    if (all.failed) {
        free_report(&all.report);
        return smelt__fail(SMELT_ERROR_OUT_OF_MEMORY, "out of memory");
    }
    smelt__error_restore(&saved);
    smelt__struct_write(about_report(), &all.report, report);
    return SMELT_OK;
}

void smelt_machine_report_release(smelt_machine_report *report) {
    static const smelt_machine_report nothing = {0};
    struct smelt__saved_error saved;

    smelt__error_save(&saved);
    if (report && smelt__struct_check(about_report(), report) == SMELT_OK) {
        free_report(report);
        smelt__struct_write(about_report(), &nothing, report);
    }
    smelt__error_restore(&saved);
}
