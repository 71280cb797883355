//@use ptx/shared.cuh

/*
 * Stores four 8 x 8 matrices of 16-bit values; lane i gives the address of row i % 8 of matrix
 * i / 8, and holds row lane / 4, columns 2 * (lane % 4) and the next of each (PTX ISA, "Warp-level
 * matrix store instruction: stmatrix"). `address` is a 32-bit shared-memory address, 16-byte
 * aligned.
 */
DEVICE void stmatrix_x4(u32 address, const u32 *r) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 :
                 : "r"(address), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}

/* The same, each matrix transposed. */
DEVICE void stmatrix_x4_trans(u32 address, const u32 *r) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                 :
                 : "r"(address), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}

/* Two matrices, transposed; lanes 0 to 15 supply the addresses. */
DEVICE void stmatrix_x2_trans(u32 address, const u32 *r) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};"
                 :
                 : "r"(address), "r"(r[0]), "r"(r[1])
                 : "memory");
}
