/* templates/ptx/shared.cuh, emulated. */

unsigned emu_generic_to_shared(const void *pointer);

#define shared_address(offset) (emu_generic_to_shared(arena) + (unsigned)(offset))
