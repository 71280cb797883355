/* The state of the launch under way. See machine.h. */
#include "emu/machine/machine.h"

struct machine emu;

bool emu_kernel_holds(const void *pointer) {
    return emu.kernel &&
           (size_t)((const u8 *)pointer - emu.kernel->image) < emu.kernel->image_bytes;
}
