/* templates/ptx/hint.cuh, emulated. */

void emu_reduce_add_global(unsigned *to, unsigned value);
int emu_hint_wait(const unsigned *hint, int polls);

#define hint_add(hint, value) emu_reduce_add_global(hint, value)
#define hint_wait(hint, value, polls) ((void)(value), emu_hint_wait(hint, polls))
