/* What is on this machine, for `smelt doctor` and its like: see smelt/device.h. */
#include <stdio.h>
#include <string.h>

#include "runtime/context.h"
#include "smelt/device.h"

enum { LISTED_DEVICES = 8 };

static void copy(char *to, size_t bytes, const char *from) {
    snprintf(to, bytes, "%s", from);
}

static void inspect_device(const struct smelt__driver *driver, int ordinal,
                           smelt_machine_report *report) {
    struct smelt__message message;
    CUdevice device;
    int major = 0;
    int minor = 0;

    if (driver->cuDeviceGet(&device, ordinal) != CUDA_SUCCESS ||
        driver->cuDeviceGetName(report->device_names[ordinal], sizeof report->device_names[ordinal],
                                device) != CUDA_SUCCESS ||
        driver->cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                                     device) != CUDA_SUCCESS ||
        driver->cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                                     device) != CUDA_SUCCESS)
        return;
    const struct smelt__arch *arch = smelt__arch_for_capability(major, minor, &message);
    char name[16];
    snprintf(name, sizeof name, "sm_%d%d", major, minor);
    copy(report->device_archs[ordinal], sizeof report->device_archs[ordinal],
         arch ? arch->name : name);
}

static void inspect_driver(smelt_machine_report *report) {
    const struct smelt__driver *driver = smelt__driver_get();
    if (!driver) {
        copy(report->driver_problem, sizeof report->driver_problem, smelt_last_error());
        return;
    }
    copy(report->driver_path, sizeof report->driver_path, driver->path);
    report->driver_version = driver->version;
    CUresult result = driver->cuInit(0);
    if (result == CUDA_SUCCESS) {
        report->driver_found = 1;
        result = driver->cuDeviceGetCount(&report->devices);
    }
    if (result != CUDA_SUCCESS) {
        smelt__driver_fail(driver, report->driver_found ? "cuDeviceGetCount" : "cuInit", result);
        copy(report->driver_problem, sizeof report->driver_problem, smelt_last_error());
        return;
    }
    for (int i = 0; i < report->devices && i < LISTED_DEVICES; i++)
        inspect_device(driver, i, report);
}

static void inspect_nvrtc(const struct smelt__settings *settings, smelt_machine_report *report) {
    struct smelt__nvrtc_file file;
    const struct smelt__nvrtc *nvrtc;

    smelt_status status =
        smelt__nvrtc_find(settings->nvrtc_path, smelt__driver_version(), &settings->log, &file);
    copy(report->nvrtc_path, sizeof report->nvrtc_path, file.path);
    if (!status)
        status = smelt__nvrtc_open(&file, &nvrtc);
    if (status) {
        copy(report->nvrtc_problem, sizeof report->nvrtc_problem, smelt_last_error());
        return;
    }
    report->nvrtc_found = 1;
    report->nvrtc_major = nvrtc->major;
    report->nvrtc_minor = nvrtc->minor;
    smelt__nvrtc_archs(nvrtc, report->nvrtc_archs, sizeof report->nvrtc_archs);
}

static void inspect_cache(const struct smelt__settings *settings, smelt_machine_report *report) {
    struct smelt__cache *cache = smelt__cache_open(&settings->cache, &settings->log);
    if (!cache) {
        copy(report->cache_problem, sizeof report->cache_problem, "out of memory");
        return;
    }
    copy(report->cache_folder, sizeof report->cache_folder, smelt__cache_folder(cache));
    copy(report->cache_problem, sizeof report->cache_problem, smelt__cache_problem(cache));
    smelt__cache_close(cache);
}

smelt_status smelt_machine_get_report(const smelt_context_options *given,
                                      smelt_machine_report *report) {
    struct smelt__settings settings;
    struct smelt__saved_error saved;

    if (!report || report->size < sizeof *report)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "report is NULL or its size is not set (%zu expected)", sizeof *report);
    smelt_status status = smelt__settings_resolve(&settings, given);
    if (status)
        return status;
    size_t size = report->size;
    memset(report, 0, sizeof *report);
    report->size = size;
    smelt__error_save(&saved); /* what is missing is in the report, not an error of this call */
    inspect_driver(report);
    inspect_nvrtc(&settings, report);
    inspect_cache(&settings, report);
    smelt__error_restore(&saved);
    return SMELT_OK;
}
