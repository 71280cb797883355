/* templates/ptx/shared.cuh, emulated. */
#ifndef EMU_PTX_SHARED
#define EMU_PTX_SHARED

unsigned emu_generic_to_shared(const void *pointer);

#define shared_address(offset) (emu_generic_to_shared(arena) + (unsigned)(offset))

#endif
