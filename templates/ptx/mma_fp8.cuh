//@use common/base.cuh

/*
 * d += a * b for one 16 x 8 tile, depth 32, e4m3 in, fp32 accumulation (PTX ISA, "Matrix
 * Multiply-Accumulate Instruction: mma", m16n8k32), compute capability 8.9 and up. In bytes the
 * fragments are those of mma_m16n8k16_bf16 (ptx/mma.cuh), by lane = 4 * g + t:
 *   a[0..3]: rows g, g + 8, g, g + 8; columns 4t..4t + 3 (+ 16 in a[2], a[3])
 *   b[0..1]: rows 4t..4t + 3 (+ 16 in b[1]); column g
 *   d[0..3]: rows g, g, g + 8, g + 8; columns 2t, 2t + 1, 2t, 2t + 1
 */
DEVICE void mma_m16n8k32_e4m3(float *d, const u32 *a, const u32 *b) {
    asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
