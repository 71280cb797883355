//@use ptx/shared.cuh

/*
 * Four 8 x 8 matrices of 16-bit values; lane i gives the address of row i % 8 of matrix i / 8, and
 * receives row lane / 4, columns 2 * (lane % 4) and the next of each (PTX ISA, "Warp-level matrix
 * load instruction: ldmatrix"). `address` is a 32-bit shared-memory address, 16-byte aligned.
 */
DEVICE void ldmatrix_x4(u32 *r, u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

/* The same, each matrix transposed. */
DEVICE void ldmatrix_x4_trans(u32 *r, u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}
