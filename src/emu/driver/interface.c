/* The control interface (emulator.h). */
#include <string.h>

#include "emu/driver/driver.h"
#include "emu/machine/report.h"
#include "emu/memory/global.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

static void configure(const struct emu_settings *settings) {
    struct emu_settings taken = {.size = sizeof taken};
    memcpy(&taken, settings, settings->size < sizeof taken ? settings->size : sizeof taken);
    emu.settings = taken;
    emu_default_settings();
}

static u64 reserve_on(int device, size_t bytes) {
    pthread_mutex_lock(&emu_driver_lock);
    const u64 pointer = emu_memory_allocate(device, bytes, true);
    pthread_mutex_unlock(&emu_driver_lock);
    return pointer;
}

static u64 reserve(size_t bytes) {
    return reserve_on(emu_device_current(), bytes);
}

static int lend_on(int device, u64 pointer, size_t bytes, const char *name) {
    pthread_mutex_lock(&emu_driver_lock);
    const int lent = emu_memory_lend(device, pointer, bytes, name);
    pthread_mutex_unlock(&emu_driver_lock);
    return lent;
}

static int lend(u64 pointer, size_t bytes, const char *name) {
    return lend_on(emu_device_current(), pointer, bytes, name);
}

static void produce(u64 pointer, void *stream) {
    pthread_mutex_lock(&emu_driver_lock);
    const int device = emu_memory_device(pointer);
    if (device >= 0)
        emu_memory_produce(pointer, emu_stream_of(stream, device));
    pthread_mutex_unlock(&emu_driver_lock);
}

static void take_back(void) {
    pthread_mutex_lock(&emu_driver_lock);
    emu_memory_take_back();
    pthread_mutex_unlock(&emu_driver_lock);
}

static void get_statistics(struct emu_statistics *statistics) {
    *statistics = emu.statistics;
}

static const struct emu_interface interface = {
    .size = sizeof interface,
    .configure = configure,
    .report_count = emu_report_count,
    .report = emu_report_at,
    .clear = emu_reports_clear,
    .kind_name = emu_kind_name,
    .name = emu_memory_name,
    .forbid = emu_memory_forbid,
    .reserve = reserve,
    .statistics = get_statistics,
    .lend = lend,
    .take_back = take_back,
    .rewritable = emu_memory_rewritable,
    .reserve_on = reserve_on,
    .lend_on = lend_on,
    .produce = produce,
};

EMU_EXPORT const struct emu_interface *emu_get(void) {
    return &interface;
}
