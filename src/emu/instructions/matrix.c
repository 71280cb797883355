/* The warp's matrix instructions: ldmatrix, stmatrix, mma. */
#include <string.h>

#include "emu/formats/layout.h"
#include "emu/formats/numbers.h"
#include "emu/machine/collective.h"
#include "emu/machine/report.h"
#include "emu/memory/registers.h"
#include "emu/memory/shared.h"

enum { ROW_BYTES = 16 }; /* of an 8 x 8 matrix of 16-bit elements */

struct moved { /* one lane's arguments of ldmatrix or stmatrix */
    u32 *registers;
    u32 address;
    int count;
    bool transposed;
};

/* The first 8 * count lanes supply the rows' addresses; all lanes must use the same form. */
static void find_rows(struct warp *warp, void **arguments, const char *name, u8 **rows, bool write,
                      site at) {
    const struct moved *first = arguments[0];
    struct thread *self = emu.self;
    for (int lane = 0; lane < WARP; lane++) {
        const struct moved *moved = arguments[lane];
        if (moved->count != first->count || moved->transposed != first->transposed)
            emu_fatal(EMU_CONVERGENCE, at, 0, "lanes of warp %d execute different forms of %s {1}",
                      warp->index, name);
        if (lane >= 8 * first->count)
            continue;
        emu.self = warp->threads[lane];
        struct shared_location location =
            emu_own_location(moved->address, ROW_BYTES, ROW_BYTES, name, at);
        if (write)
            emu_shared_write(location.cta, location.offset, ROW_BYTES, at);
        else
            emu_shared_read(location.cta, location.offset, ROW_BYTES, at);
        rows[lane] = location.cta->arena + location.offset;
        emu.self = self;
    }
}

static void execute_ldmatrix(struct warp *warp, u32 mask, void **arguments, site at) {
    u8 *rows[WARP];
    u32 *registers[WARP];
    (void)mask;
    find_rows(warp, arguments, "ldmatrix", rows, false, at);
    const struct moved *first = arguments[0];
    for (int lane = 0; lane < WARP; lane++) {
        registers[lane] = ((struct moved *)arguments[lane])->registers;
        emu_registers_used(warp->threads[lane], registers[lane], 4 * (size_t)first->count, true,
                           at);
    }
    emu_ldmatrix(registers, (const u8 *const *)rows, first->count, first->transposed);
}

static void execute_stmatrix(struct warp *warp, u32 mask, void **arguments, site at) {
    u8 *rows[WARP];
    const u32 *registers[WARP];
    (void)mask;
    find_rows(warp, arguments, "stmatrix", rows, true, at);
    const struct moved *first = arguments[0];
    for (int lane = 0; lane < WARP; lane++) {
        registers[lane] = ((struct moved *)arguments[lane])->registers;
        emu_registers_used(warp->threads[lane], registers[lane], 4 * (size_t)first->count, false,
                           at);
    }
    emu_stmatrix(rows, registers, first->count, first->transposed);
}

struct multiplied { /* one lane's arguments of mma */
    float *d;
    const u32 *a, *b;
    enum emu_element element;
};

static void execute_mma(struct warp *warp, u32 mask, void **arguments, site at) {
    float *d[WARP];
    const u32 *a[WARP], *b[WARP];
    const enum emu_element element = ((const struct multiplied *)arguments[0])->element;
    (void)mask;
    for (int lane = 0; lane < WARP; lane++) {
        const struct multiplied *one = arguments[lane];
        struct thread *thread = warp->threads[lane];
        if (one->element != element)
            emu_fatal(EMU_CONVERGENCE, at, 0, "lanes of warp %d execute different forms of mma {1}",
                      warp->index);
        emu_registers_used(thread, one->d, 16, true, at);
        emu_registers_used(thread, one->a, 16, false, at);
        emu_registers_used(thread, one->b, 8, false, at);
        d[lane] = one->d;
        a[lane] = one->a;
        b[lane] = one->b;
    }
    emu_mma(d, element, a, b);
}

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

/* Checks that a lane's array has a register for each matrix; `bytes`: its size as known to the
 * compiler. */
static void check_registers(unsigned long bytes, int count, const char *name, site at) {
    if (bytes < 4 * (unsigned long)count)
        emu_fatal(EMU_BOUNDS, at, 0, "%s: %s of %d registers, of which the array has %lu {1}",
                  emu_thread_name(emu.self), name, count, bytes / 4);
}

EMU_EXPORT void emu_op_ldmatrix(unsigned *registers, unsigned long bytes, unsigned address,
                                int count, int transposed) {
    check_registers(bytes, count, "ldmatrix", EMU_SITE);
    struct moved moved = {registers, address, count, transposed != 0};
    emu_collective_whole("ldmatrix", execute_ldmatrix, &moved, EMU_SITE);
}

EMU_EXPORT void emu_op_stmatrix(const unsigned *registers, unsigned long bytes, unsigned address,
                                int count, int transposed) {
    check_registers(bytes, count, "stmatrix", EMU_SITE);
    struct moved moved = {(unsigned *)(uintptr_t)registers, address, count, transposed != 0};
    emu_collective_whole("stmatrix", execute_stmatrix, &moved, EMU_SITE);
}

EMU_EXPORT void emu_op_mma_m16n8k16_bf16(float *d, const unsigned *a, const unsigned *b) {
    struct multiplied one = {d, a, b, EMU_BF16};
    emu_collective_whole("mma", execute_mma, &one, EMU_SITE);
}

EMU_EXPORT void emu_op_mma_m16n8k32_e4m3(float *d, const unsigned *a, const unsigned *b) {
    struct multiplied one = {d, a, b, EMU_E4M3};
    emu_collective_whole("mma", execute_mma, &one, EMU_SITE);
}
