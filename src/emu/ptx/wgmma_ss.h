/* templates/ptx/wgmma_ss.cuh, emulated: a line for each width in use. */
#ifndef EMU_PTX_WGMMA_SS
#define EMU_PTX_WGMMA_SS

/* a: registers, or NULL and a_descriptor. element 0: bf16, depth 16; 1: e4m3, depth 32. */
void emu_wgmma(float *d, int columns, const unsigned *a, unsigned long long a_descriptor,
               unsigned long long b_descriptor, int a_transposed, int b_transposed, int accumulate,
               int element);

#define emu_wgmma_ss(n, ta, tb, d, a, b, accumulate)                                               \
    emu_wgmma(d, n, (const unsigned *)0, a, b, ta, tb, accumulate, 0)

#define wgmma_ss_n8_t00(d, a, b, accumulate) emu_wgmma_ss(8, 0, 0, d, a, b, accumulate)
#define wgmma_ss_n16_t00(d, a, b, accumulate) emu_wgmma_ss(16, 0, 0, d, a, b, accumulate)
#define wgmma_ss_n24_t00(d, a, b, accumulate) emu_wgmma_ss(24, 0, 0, d, a, b, accumulate)
#define wgmma_ss_n32_t00(d, a, b, accumulate) emu_wgmma_ss(32, 0, 0, d, a, b, accumulate)
#define wgmma_ss_n40_t00(d, a, b, accumulate) emu_wgmma_ss(40, 0, 0, d, a, b, accumulate)
#define wgmma_ss_n48_t00(d, a, b, accumulate) emu_wgmma_ss(48, 0, 0, d, a, b, accumulate)
#define wgmma_ss_n56_t00(d, a, b, accumulate) emu_wgmma_ss(56, 0, 0, d, a, b, accumulate)
#define wgmma_ss_n64_t00(d, a, b, accumulate) emu_wgmma_ss(64, 0, 0, d, a, b, accumulate)
#define wgmma_ss_n80_t00(d, a, b, accumulate) emu_wgmma_ss(80, 0, 0, d, a, b, accumulate)
#define wgmma_ss_n96_t00(d, a, b, accumulate) emu_wgmma_ss(96, 0, 0, d, a, b, accumulate)
#define wgmma_ss_n112_t00(d, a, b, accumulate) emu_wgmma_ss(112, 0, 0, d, a, b, accumulate)
#define wgmma_ss_n128_t00(d, a, b, accumulate) emu_wgmma_ss(128, 0, 0, d, a, b, accumulate)
#define wgmma_ss_n160_t00(d, a, b, accumulate) emu_wgmma_ss(160, 0, 0, d, a, b, accumulate)
#define wgmma_ss_n192_t00(d, a, b, accumulate) emu_wgmma_ss(192, 0, 0, d, a, b, accumulate)
#define wgmma_ss_n224_t00(d, a, b, accumulate) emu_wgmma_ss(224, 0, 0, d, a, b, accumulate)
#define wgmma_ss_n256_t00(d, a, b, accumulate) emu_wgmma_ss(256, 0, 0, d, a, b, accumulate)

#define wgmma_ss_n8_t01(d, a, b, accumulate) emu_wgmma_ss(8, 0, 1, d, a, b, accumulate)
#define wgmma_ss_n16_t01(d, a, b, accumulate) emu_wgmma_ss(16, 0, 1, d, a, b, accumulate)
#define wgmma_ss_n24_t01(d, a, b, accumulate) emu_wgmma_ss(24, 0, 1, d, a, b, accumulate)
#define wgmma_ss_n32_t01(d, a, b, accumulate) emu_wgmma_ss(32, 0, 1, d, a, b, accumulate)
#define wgmma_ss_n40_t01(d, a, b, accumulate) emu_wgmma_ss(40, 0, 1, d, a, b, accumulate)
#define wgmma_ss_n48_t01(d, a, b, accumulate) emu_wgmma_ss(48, 0, 1, d, a, b, accumulate)
#define wgmma_ss_n56_t01(d, a, b, accumulate) emu_wgmma_ss(56, 0, 1, d, a, b, accumulate)
#define wgmma_ss_n64_t01(d, a, b, accumulate) emu_wgmma_ss(64, 0, 1, d, a, b, accumulate)
#define wgmma_ss_n80_t01(d, a, b, accumulate) emu_wgmma_ss(80, 0, 1, d, a, b, accumulate)
#define wgmma_ss_n96_t01(d, a, b, accumulate) emu_wgmma_ss(96, 0, 1, d, a, b, accumulate)
#define wgmma_ss_n112_t01(d, a, b, accumulate) emu_wgmma_ss(112, 0, 1, d, a, b, accumulate)
#define wgmma_ss_n128_t01(d, a, b, accumulate) emu_wgmma_ss(128, 0, 1, d, a, b, accumulate)
#define wgmma_ss_n160_t01(d, a, b, accumulate) emu_wgmma_ss(160, 0, 1, d, a, b, accumulate)
#define wgmma_ss_n192_t01(d, a, b, accumulate) emu_wgmma_ss(192, 0, 1, d, a, b, accumulate)
#define wgmma_ss_n224_t01(d, a, b, accumulate) emu_wgmma_ss(224, 0, 1, d, a, b, accumulate)
#define wgmma_ss_n256_t01(d, a, b, accumulate) emu_wgmma_ss(256, 0, 1, d, a, b, accumulate)

#define wgmma_ss_n8_t10(d, a, b, accumulate) emu_wgmma_ss(8, 1, 0, d, a, b, accumulate)
#define wgmma_ss_n16_t10(d, a, b, accumulate) emu_wgmma_ss(16, 1, 0, d, a, b, accumulate)
#define wgmma_ss_n24_t10(d, a, b, accumulate) emu_wgmma_ss(24, 1, 0, d, a, b, accumulate)
#define wgmma_ss_n32_t10(d, a, b, accumulate) emu_wgmma_ss(32, 1, 0, d, a, b, accumulate)
#define wgmma_ss_n40_t10(d, a, b, accumulate) emu_wgmma_ss(40, 1, 0, d, a, b, accumulate)
#define wgmma_ss_n48_t10(d, a, b, accumulate) emu_wgmma_ss(48, 1, 0, d, a, b, accumulate)
#define wgmma_ss_n56_t10(d, a, b, accumulate) emu_wgmma_ss(56, 1, 0, d, a, b, accumulate)
#define wgmma_ss_n64_t10(d, a, b, accumulate) emu_wgmma_ss(64, 1, 0, d, a, b, accumulate)
#define wgmma_ss_n80_t10(d, a, b, accumulate) emu_wgmma_ss(80, 1, 0, d, a, b, accumulate)
#define wgmma_ss_n96_t10(d, a, b, accumulate) emu_wgmma_ss(96, 1, 0, d, a, b, accumulate)
#define wgmma_ss_n112_t10(d, a, b, accumulate) emu_wgmma_ss(112, 1, 0, d, a, b, accumulate)
#define wgmma_ss_n128_t10(d, a, b, accumulate) emu_wgmma_ss(128, 1, 0, d, a, b, accumulate)
#define wgmma_ss_n160_t10(d, a, b, accumulate) emu_wgmma_ss(160, 1, 0, d, a, b, accumulate)
#define wgmma_ss_n192_t10(d, a, b, accumulate) emu_wgmma_ss(192, 1, 0, d, a, b, accumulate)
#define wgmma_ss_n224_t10(d, a, b, accumulate) emu_wgmma_ss(224, 1, 0, d, a, b, accumulate)
#define wgmma_ss_n256_t10(d, a, b, accumulate) emu_wgmma_ss(256, 1, 0, d, a, b, accumulate)

#define wgmma_ss_n8_t11(d, a, b, accumulate) emu_wgmma_ss(8, 1, 1, d, a, b, accumulate)
#define wgmma_ss_n16_t11(d, a, b, accumulate) emu_wgmma_ss(16, 1, 1, d, a, b, accumulate)
#define wgmma_ss_n24_t11(d, a, b, accumulate) emu_wgmma_ss(24, 1, 1, d, a, b, accumulate)
#define wgmma_ss_n32_t11(d, a, b, accumulate) emu_wgmma_ss(32, 1, 1, d, a, b, accumulate)
#define wgmma_ss_n40_t11(d, a, b, accumulate) emu_wgmma_ss(40, 1, 1, d, a, b, accumulate)
#define wgmma_ss_n48_t11(d, a, b, accumulate) emu_wgmma_ss(48, 1, 1, d, a, b, accumulate)
#define wgmma_ss_n56_t11(d, a, b, accumulate) emu_wgmma_ss(56, 1, 1, d, a, b, accumulate)
#define wgmma_ss_n64_t11(d, a, b, accumulate) emu_wgmma_ss(64, 1, 1, d, a, b, accumulate)
#define wgmma_ss_n80_t11(d, a, b, accumulate) emu_wgmma_ss(80, 1, 1, d, a, b, accumulate)
#define wgmma_ss_n96_t11(d, a, b, accumulate) emu_wgmma_ss(96, 1, 1, d, a, b, accumulate)
#define wgmma_ss_n112_t11(d, a, b, accumulate) emu_wgmma_ss(112, 1, 1, d, a, b, accumulate)
#define wgmma_ss_n128_t11(d, a, b, accumulate) emu_wgmma_ss(128, 1, 1, d, a, b, accumulate)
#define wgmma_ss_n160_t11(d, a, b, accumulate) emu_wgmma_ss(160, 1, 1, d, a, b, accumulate)
#define wgmma_ss_n192_t11(d, a, b, accumulate) emu_wgmma_ss(192, 1, 1, d, a, b, accumulate)
#define wgmma_ss_n224_t11(d, a, b, accumulate) emu_wgmma_ss(224, 1, 1, d, a, b, accumulate)
#define wgmma_ss_n256_t11(d, a, b, accumulate) emu_wgmma_ss(256, 1, 1, d, a, b, accumulate)

#endif
