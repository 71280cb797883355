/* templates/ptx/wgmma_fp8_ss.cuh, emulated. A line with WIDTH stands for one of each width
 * (compiler/embed_files.c). */

/* a: registers, or NULL and a_descriptor. element 0: bf16, depth 16; 1: e4m3, depth 32. */
void emu_wgmma(float *d, int columns, const unsigned *a, unsigned long long a_descriptor,
               unsigned long long b_descriptor, int a_transposed, int b_transposed, int accumulate,
               int element);

#define emu_wgmma_fp8_ss(n, d, a, b, accumulate)                                                   \
    emu_wgmma(d, n, (const unsigned *)0, a, b, 0, 0, accumulate, 1)

#define wgmma_fp8_ss_nWIDTH(d, a, b, add) emu_wgmma_fp8_ss(WIDTH, d, a, b, add)
