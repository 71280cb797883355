/* See launch.h. */
#include "emu/launch/launch.h"

#include <stdlib.h>

#include "emu/launch/gang.h"
#include "emu/launch/watch.h"
#include "emu/machine/report.h"
#include "emu/machine/schedule.h"
#include "emu/machine/stack.h"
#include "emu/memory/pdl.h"

enum { ARENA_ALIGNMENT = 4096 };

/* At most 2^30, which exceeds every limit here. */
static u64 product(const unsigned sizes[3]) {
    u64 all = 1;
    for (int i = 0; i < 3; i++) {
        all *= sizes[i];
        all = all > 1u << 30 ? 1u << 30 : all;
    }
    return all;
}

bool emu_launch_is_legal(void) {
    for (int i = 0; i < 3; i++)
        if (emu.cluster[i] == 0)
            emu.cluster[i] = 1;
    u64 ctas = product(emu.cluster), threads = product(emu.block);
    if (ctas > MAX_CLUSTER || threads == 0 || threads > MAX_BLOCK_THREADS ||
        emu.shared_bytes > ARENA_SPAN - SHARED_BASE) {
        emu_report(
            EMU_ILLEGAL, 0, 0,
            "a launch with %llu blocks per cluster, %llu threads per block and %u bytes of shared "
            "memory is not possible",
            (unsigned long long)ctas, (unsigned long long)threads, emu.shared_bytes);
        return false;
    }
    if (emu.grid[0] == 0 || emu.grid[0] > INT32_MAX || emu.grid[1] == 0 || emu.grid[1] > 65535 ||
        emu.grid[2] == 0 || emu.grid[2] > 65535 || emu.block[2] > 64) {
        emu_report(EMU_ILLEGAL, 0, 0,
                   "a launch of %u x %u x %u blocks of %u x %u x %u threads; legal: 1 to 2^31 - 1 "
                   "blocks along x, 1 to 65535 along y and z, at most 64 threads along z",
                   emu.grid[0], emu.grid[1], emu.grid[2], emu.block[0], emu.block[1], emu.block[2]);
        return false;
    }
    for (int i = 0; i < 3; i++)
        if (emu.grid[i] % emu.cluster[i] != 0) {
            emu_report(EMU_ILLEGAL, 0, 0, "a grid of %u blocks is not a multiple of a cluster's %u",
                       emu.grid[i], emu.cluster[i]);
            return false;
        }
    emu.ctas = (int)ctas;
    emu.cta_threads = (int)threads;
    return true;
}

/* Shared memory and its shadow for every block of a gang; kept between launches. */
static bool make_arenas(void) {
    for (int i = 0; i < emu.ctas; i++) {
        struct cta *cta = &emu.cta[i];
        if (!cta->arena && posix_memalign((void **)&cta->arena, ARENA_ALIGNMENT, ARENA_SPAN))
            return false;
        if (!cta->cells)
            cta->cells = malloc(ARENA_SPAN * sizeof *cta->cells);
        if (!cta->cells)
            return false;
    }
    return true;
}

static void run_all(void) {
    for (unsigned z = 0; z < emu.grid[2]; z += emu.cluster[2])
        for (unsigned y = 0; y < emu.grid[1]; y += emu.cluster[1])
            for (unsigned x = 0; x < emu.grid[0]; x += emu.cluster[0]) {
                emu_run_gang(x, y, z);
                if (emu.ended)
                    return;
            }
}

bool emu_launch(struct kernel *kernel, void **parameters) {
    emu.kernel = kernel;
    emu.parameters = parameters;
    emu_schedule_begin_launch();
    emu.ended = false;
    emu.statistics.launches++;
    emu.first_gang = emu.gang + 1;
    emu_pdl_begin(emu.pdl, emu.stream);
    emu_reports_begin();
    int threads = emu.ctas * emu.cta_threads;
    if (!make_arenas() || !emu_stacks_make(threads)) {
        emu_report(EMU_ILLEGAL, 0, 0, "out of memory for %d threads", threads);
    } else {
        emu.inside = true;
        emu_watch_begin(emu.settings.seconds);
        run_all();
        emu_watch_end();
        emu.inside = false;
    }
    emu_pdl_end();
    return emu_reports_end() == 0;
}
