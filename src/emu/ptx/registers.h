/* templates/ptx/registers.cuh, emulated. */

void emu_registers(int count, int increases);

#define registers_increase(count) emu_registers(count, 1)
#define registers_decrease(count) emu_registers(count, 0)
