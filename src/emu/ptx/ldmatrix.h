/* templates/ptx/ldmatrix.cuh, emulated. */

void emu_op_ldmatrix(unsigned *registers, unsigned long bytes, unsigned address, int count,
                     int transposed);

#define ldmatrix_x4(registers, address)                                                            \
    emu_op_ldmatrix(registers, EMU_ROOM(registers), address, 4, 0)
#define ldmatrix_x4_trans(registers, address)                                                      \
    emu_op_ldmatrix(registers, EMU_ROOM(registers), address, 4, 1)
