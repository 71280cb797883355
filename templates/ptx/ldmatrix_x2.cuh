//@use ptx/shared.cuh

/* As ldmatrix_x4_trans (ptx/ldmatrix.cuh), two matrices: the addresses of lanes 0 to 15 count (PTX
 * ISA, "Warp-level matrix load instruction: ldmatrix"). */
DEVICE void ldmatrix_x2_trans(u32 *r, u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(address)
                 : "memory");
}
