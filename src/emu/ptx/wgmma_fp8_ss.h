/* templates/ptx/wgmma_fp8_ss.cuh, emulated: a line for each width in use. */
#ifndef EMU_PTX_WGMMA_FP8_SS
#define EMU_PTX_WGMMA_FP8_SS

/* a: registers, or NULL and a_descriptor. element 0: bf16, depth 16; 1: e4m3, depth 32. */
void emu_wgmma(float *d, int columns, const unsigned *a, unsigned long long a_descriptor,
               unsigned long long b_descriptor, int a_transposed, int b_transposed, int accumulate,
               int element);

#define emu_wgmma_fp8_ss(n, d, a, b, accumulate)                                                   \
    emu_wgmma(d, n, (const unsigned *)0, a, b, 0, 0, accumulate, 1)

#define wgmma_fp8_ss_n8(d, a, b, accumulate) emu_wgmma_fp8_ss(8, d, a, b, accumulate)
#define wgmma_fp8_ss_n16(d, a, b, accumulate) emu_wgmma_fp8_ss(16, d, a, b, accumulate)
#define wgmma_fp8_ss_n24(d, a, b, accumulate) emu_wgmma_fp8_ss(24, d, a, b, accumulate)
#define wgmma_fp8_ss_n32(d, a, b, accumulate) emu_wgmma_fp8_ss(32, d, a, b, accumulate)
#define wgmma_fp8_ss_n40(d, a, b, accumulate) emu_wgmma_fp8_ss(40, d, a, b, accumulate)
#define wgmma_fp8_ss_n48(d, a, b, accumulate) emu_wgmma_fp8_ss(48, d, a, b, accumulate)
#define wgmma_fp8_ss_n56(d, a, b, accumulate) emu_wgmma_fp8_ss(56, d, a, b, accumulate)
#define wgmma_fp8_ss_n64(d, a, b, accumulate) emu_wgmma_fp8_ss(64, d, a, b, accumulate)
#define wgmma_fp8_ss_n80(d, a, b, accumulate) emu_wgmma_fp8_ss(80, d, a, b, accumulate)
#define wgmma_fp8_ss_n96(d, a, b, accumulate) emu_wgmma_fp8_ss(96, d, a, b, accumulate)
#define wgmma_fp8_ss_n112(d, a, b, accumulate) emu_wgmma_fp8_ss(112, d, a, b, accumulate)
#define wgmma_fp8_ss_n128(d, a, b, accumulate) emu_wgmma_fp8_ss(128, d, a, b, accumulate)
#define wgmma_fp8_ss_n160(d, a, b, accumulate) emu_wgmma_fp8_ss(160, d, a, b, accumulate)
#define wgmma_fp8_ss_n192(d, a, b, accumulate) emu_wgmma_fp8_ss(192, d, a, b, accumulate)
#define wgmma_fp8_ss_n224(d, a, b, accumulate) emu_wgmma_fp8_ss(224, d, a, b, accumulate)
#define wgmma_fp8_ss_n256(d, a, b, accumulate) emu_wgmma_fp8_ss(256, d, a, b, accumulate)

#endif
