/* templates/ptx/wgmma_fp8_rs.cuh, emulated: a line for each width in use. */
#ifndef EMU_PTX_WGMMA_FP8_RS
#define EMU_PTX_WGMMA_FP8_RS

/* a: registers, or NULL and a_descriptor. element 0: bf16, depth 16; 1: e4m3, depth 32. */
void emu_wgmma(float *d, int columns, const unsigned *a, unsigned long long a_descriptor,
               unsigned long long b_descriptor, int a_transposed, int b_transposed, int accumulate,
               int element);

#define emu_wgmma_fp8_rs(n, d, a, b, accumulate) emu_wgmma(d, n, a, 0, b, 0, 0, accumulate, 1)

#define wgmma_fp8_rs_n8(d, a, b, accumulate) emu_wgmma_fp8_rs(8, d, a, b, accumulate)
#define wgmma_fp8_rs_n16(d, a, b, accumulate) emu_wgmma_fp8_rs(16, d, a, b, accumulate)
#define wgmma_fp8_rs_n24(d, a, b, accumulate) emu_wgmma_fp8_rs(24, d, a, b, accumulate)
#define wgmma_fp8_rs_n32(d, a, b, accumulate) emu_wgmma_fp8_rs(32, d, a, b, accumulate)
#define wgmma_fp8_rs_n40(d, a, b, accumulate) emu_wgmma_fp8_rs(40, d, a, b, accumulate)
#define wgmma_fp8_rs_n48(d, a, b, accumulate) emu_wgmma_fp8_rs(48, d, a, b, accumulate)
#define wgmma_fp8_rs_n56(d, a, b, accumulate) emu_wgmma_fp8_rs(56, d, a, b, accumulate)
#define wgmma_fp8_rs_n64(d, a, b, accumulate) emu_wgmma_fp8_rs(64, d, a, b, accumulate)
#define wgmma_fp8_rs_n80(d, a, b, accumulate) emu_wgmma_fp8_rs(80, d, a, b, accumulate)
#define wgmma_fp8_rs_n96(d, a, b, accumulate) emu_wgmma_fp8_rs(96, d, a, b, accumulate)
#define wgmma_fp8_rs_n112(d, a, b, accumulate) emu_wgmma_fp8_rs(112, d, a, b, accumulate)
#define wgmma_fp8_rs_n128(d, a, b, accumulate) emu_wgmma_fp8_rs(128, d, a, b, accumulate)
#define wgmma_fp8_rs_n160(d, a, b, accumulate) emu_wgmma_fp8_rs(160, d, a, b, accumulate)
#define wgmma_fp8_rs_n192(d, a, b, accumulate) emu_wgmma_fp8_rs(192, d, a, b, accumulate)
#define wgmma_fp8_rs_n224(d, a, b, accumulate) emu_wgmma_fp8_rs(224, d, a, b, accumulate)
#define wgmma_fp8_rs_n256(d, a, b, accumulate) emu_wgmma_fp8_rs(256, d, a, b, accumulate)

#endif
