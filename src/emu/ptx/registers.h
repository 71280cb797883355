/* templates/ptx/registers.cuh, emulated. */
#ifndef EMU_PTX_REGISTERS
#define EMU_PTX_REGISTERS

void emu_registers(int count, int increases);

#define registers_increase(count) emu_registers(count, 1)
#define registers_decrease(count) emu_registers(count, 0)

#endif
