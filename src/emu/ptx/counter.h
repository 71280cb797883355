/* templates/ptx/counter.cuh, emulated. */
#ifndef EMU_PTX_COUNTER
#define EMU_PTX_COUNTER

void emu_counter_add(unsigned *counter, unsigned value);
unsigned emu_counter_read(const unsigned *counter);

#define counter_add(counter, value) emu_counter_add(counter, value)
#define counter_read(counter) emu_counter_read(counter)

#endif
