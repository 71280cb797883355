/* templates/ptx/stmatrix.cuh, emulated. */

void emu_op_stmatrix(const unsigned *registers, unsigned long bytes, unsigned address, int count,
                     int transposed);

#define stmatrix_x4(address, registers)                                                            \
    emu_op_stmatrix(registers, EMU_ROOM(registers), address, 4, 0)
#define stmatrix_x4_trans(address, registers)                                                      \
    emu_op_stmatrix(registers, EMU_ROOM(registers), address, 4, 1)
#define stmatrix_x2_trans(address, registers)                                                      \
    emu_op_stmatrix(registers, EMU_ROOM(registers), address, 2, 1)
