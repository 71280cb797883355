/* templates/ptx/wgmma_ss.cuh, emulated. A line with WIDTH stands for one of each width
 * (compiler/embed_files.c). */

/* a: registers, or NULL and a_descriptor. element 0: bf16, depth 16; 1: e4m3, depth 32. */
void emu_wgmma(float *d, int columns, const unsigned *a, unsigned long long a_descriptor,
               unsigned long long b_descriptor, int a_transposed, int b_transposed, int accumulate,
               int element);

#define emu_wgmma_ss(n, ta, tb, d, a, b, accumulate)                                               \
    emu_wgmma(d, n, (const unsigned *)0, a, b, ta, tb, accumulate, 0)

#define wgmma_ss_nWIDTH_t00(d, a, b, add) emu_wgmma_ss(WIDTH, 0, 0, d, a, b, add)
#define wgmma_ss_nWIDTH_t01(d, a, b, add) emu_wgmma_ss(WIDTH, 0, 1, d, a, b, add)
#define wgmma_ss_nWIDTH_t10(d, a, b, add) emu_wgmma_ss(WIDTH, 1, 0, d, a, b, add)
#define wgmma_ss_nWIDTH_t11(d, a, b, add) emu_wgmma_ss(WIDTH, 1, 1, d, a, b, add)
