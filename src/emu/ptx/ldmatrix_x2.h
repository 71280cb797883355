/* templates/ptx/ldmatrix_x2.cuh, emulated. */

void emu_op_ldmatrix(unsigned *registers, unsigned long bytes, unsigned address, int count,
                     int transposed);

#define ldmatrix_x2_trans(registers, address)                                                      \
    emu_op_ldmatrix(registers, EMU_ROOM(registers), address, 2, 1)
