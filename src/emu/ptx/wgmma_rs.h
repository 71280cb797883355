/* templates/ptx/wgmma_rs.cuh, emulated: a line for each width in use. */
#ifndef EMU_PTX_WGMMA_RS
#define EMU_PTX_WGMMA_RS

/* a: registers, or NULL and a_descriptor. element 0: bf16, depth 16; 1: e4m3, depth 32. */
void emu_wgmma(float *d, int columns, const unsigned *a, unsigned long long a_descriptor,
               unsigned long long b_descriptor, int a_transposed, int b_transposed, int accumulate,
               int element);

#define emu_wgmma_rs(n, tb, d, a, b, accumulate) emu_wgmma(d, n, a, 0, b, 0, tb, accumulate, 0)

#define wgmma_rs_n8_t00(d, a, b, accumulate) emu_wgmma_rs(8, 0, d, a, b, accumulate)
#define wgmma_rs_n16_t00(d, a, b, accumulate) emu_wgmma_rs(16, 0, d, a, b, accumulate)
#define wgmma_rs_n24_t00(d, a, b, accumulate) emu_wgmma_rs(24, 0, d, a, b, accumulate)
#define wgmma_rs_n32_t00(d, a, b, accumulate) emu_wgmma_rs(32, 0, d, a, b, accumulate)
#define wgmma_rs_n40_t00(d, a, b, accumulate) emu_wgmma_rs(40, 0, d, a, b, accumulate)
#define wgmma_rs_n48_t00(d, a, b, accumulate) emu_wgmma_rs(48, 0, d, a, b, accumulate)
#define wgmma_rs_n56_t00(d, a, b, accumulate) emu_wgmma_rs(56, 0, d, a, b, accumulate)
#define wgmma_rs_n64_t00(d, a, b, accumulate) emu_wgmma_rs(64, 0, d, a, b, accumulate)
#define wgmma_rs_n80_t00(d, a, b, accumulate) emu_wgmma_rs(80, 0, d, a, b, accumulate)
#define wgmma_rs_n96_t00(d, a, b, accumulate) emu_wgmma_rs(96, 0, d, a, b, accumulate)
#define wgmma_rs_n112_t00(d, a, b, accumulate) emu_wgmma_rs(112, 0, d, a, b, accumulate)
#define wgmma_rs_n128_t00(d, a, b, accumulate) emu_wgmma_rs(128, 0, d, a, b, accumulate)
#define wgmma_rs_n160_t00(d, a, b, accumulate) emu_wgmma_rs(160, 0, d, a, b, accumulate)
#define wgmma_rs_n192_t00(d, a, b, accumulate) emu_wgmma_rs(192, 0, d, a, b, accumulate)
#define wgmma_rs_n224_t00(d, a, b, accumulate) emu_wgmma_rs(224, 0, d, a, b, accumulate)
#define wgmma_rs_n256_t00(d, a, b, accumulate) emu_wgmma_rs(256, 0, d, a, b, accumulate)

#define wgmma_rs_n8_t01(d, a, b, accumulate) emu_wgmma_rs(8, 1, d, a, b, accumulate)
#define wgmma_rs_n16_t01(d, a, b, accumulate) emu_wgmma_rs(16, 1, d, a, b, accumulate)
#define wgmma_rs_n24_t01(d, a, b, accumulate) emu_wgmma_rs(24, 1, d, a, b, accumulate)
#define wgmma_rs_n32_t01(d, a, b, accumulate) emu_wgmma_rs(32, 1, d, a, b, accumulate)
#define wgmma_rs_n40_t01(d, a, b, accumulate) emu_wgmma_rs(40, 1, d, a, b, accumulate)
#define wgmma_rs_n48_t01(d, a, b, accumulate) emu_wgmma_rs(48, 1, d, a, b, accumulate)
#define wgmma_rs_n56_t01(d, a, b, accumulate) emu_wgmma_rs(56, 1, d, a, b, accumulate)
#define wgmma_rs_n64_t01(d, a, b, accumulate) emu_wgmma_rs(64, 1, d, a, b, accumulate)
#define wgmma_rs_n80_t01(d, a, b, accumulate) emu_wgmma_rs(80, 1, d, a, b, accumulate)
#define wgmma_rs_n96_t01(d, a, b, accumulate) emu_wgmma_rs(96, 1, d, a, b, accumulate)
#define wgmma_rs_n112_t01(d, a, b, accumulate) emu_wgmma_rs(112, 1, d, a, b, accumulate)
#define wgmma_rs_n128_t01(d, a, b, accumulate) emu_wgmma_rs(128, 1, d, a, b, accumulate)
#define wgmma_rs_n160_t01(d, a, b, accumulate) emu_wgmma_rs(160, 1, d, a, b, accumulate)
#define wgmma_rs_n192_t01(d, a, b, accumulate) emu_wgmma_rs(192, 1, d, a, b, accumulate)
#define wgmma_rs_n224_t01(d, a, b, accumulate) emu_wgmma_rs(224, 1, d, a, b, accumulate)
#define wgmma_rs_n256_t01(d, a, b, accumulate) emu_wgmma_rs(256, 1, d, a, b, accumulate)

#endif
