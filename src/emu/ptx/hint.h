/* templates/ptx/hint.cuh, emulated. */

void emu_hint_add(unsigned *hint, unsigned value);
int emu_hint_wait(const unsigned *hint, unsigned value, int polls);

#define hint_add(hint, value) emu_hint_add(hint, value)
#define hint_wait(hint, value, polls) emu_hint_wait(hint, value, polls)
