/* templates/ptx/wgmma_ss_tile.cuh, emulated: a line for each width in use. */
#ifndef EMU_PTX_WGMMA_SS_TILE
#define EMU_PTX_WGMMA_SS_TILE

/* a: registers, or NULL and a_descriptor. */
void emu_wgmma_tile(float *d, int columns, const unsigned *a, unsigned long long a_descriptor,
                    unsigned long long b_descriptor, int a_transposed, int b_transposed,
                    int accumulate);

#define emu_wgmma_ss_tile(n, ta, tb, d, a, b, accumulate)                                          \
    emu_wgmma_tile(d, n, (const unsigned *)0, a, b, ta, tb, accumulate)

#define wgmma_ss_tile_n8_t00(d, a, b, accumulate) emu_wgmma_ss_tile(8, 0, 0, d, a, b, accumulate)
#define wgmma_ss_tile_n16_t00(d, a, b, accumulate) emu_wgmma_ss_tile(16, 0, 0, d, a, b, accumulate)
#define wgmma_ss_tile_n24_t00(d, a, b, accumulate) emu_wgmma_ss_tile(24, 0, 0, d, a, b, accumulate)
#define wgmma_ss_tile_n32_t00(d, a, b, accumulate) emu_wgmma_ss_tile(32, 0, 0, d, a, b, accumulate)
#define wgmma_ss_tile_n40_t00(d, a, b, accumulate) emu_wgmma_ss_tile(40, 0, 0, d, a, b, accumulate)
#define wgmma_ss_tile_n48_t00(d, a, b, accumulate) emu_wgmma_ss_tile(48, 0, 0, d, a, b, accumulate)
#define wgmma_ss_tile_n56_t00(d, a, b, accumulate) emu_wgmma_ss_tile(56, 0, 0, d, a, b, accumulate)
#define wgmma_ss_tile_n64_t00(d, a, b, accumulate) emu_wgmma_ss_tile(64, 0, 0, d, a, b, accumulate)
#define wgmma_ss_tile_n80_t00(d, a, b, accumulate) emu_wgmma_ss_tile(80, 0, 0, d, a, b, accumulate)
#define wgmma_ss_tile_n96_t00(d, a, b, accumulate) emu_wgmma_ss_tile(96, 0, 0, d, a, b, accumulate)
#define wgmma_ss_tile_n112_t00(d, a, b, accumulate)                                                \
    emu_wgmma_ss_tile(112, 0, 0, d, a, b, accumulate)
#define wgmma_ss_tile_n128_t00(d, a, b, accumulate)                                                \
    emu_wgmma_ss_tile(128, 0, 0, d, a, b, accumulate)
#define wgmma_ss_tile_n160_t00(d, a, b, accumulate)                                                \
    emu_wgmma_ss_tile(160, 0, 0, d, a, b, accumulate)
#define wgmma_ss_tile_n192_t00(d, a, b, accumulate)                                                \
    emu_wgmma_ss_tile(192, 0, 0, d, a, b, accumulate)
#define wgmma_ss_tile_n224_t00(d, a, b, accumulate)                                                \
    emu_wgmma_ss_tile(224, 0, 0, d, a, b, accumulate)
#define wgmma_ss_tile_n256_t00(d, a, b, accumulate)                                                \
    emu_wgmma_ss_tile(256, 0, 0, d, a, b, accumulate)

#define wgmma_ss_tile_n8_t01(d, a, b, accumulate) emu_wgmma_ss_tile(8, 0, 1, d, a, b, accumulate)
#define wgmma_ss_tile_n16_t01(d, a, b, accumulate) emu_wgmma_ss_tile(16, 0, 1, d, a, b, accumulate)
#define wgmma_ss_tile_n24_t01(d, a, b, accumulate) emu_wgmma_ss_tile(24, 0, 1, d, a, b, accumulate)
#define wgmma_ss_tile_n32_t01(d, a, b, accumulate) emu_wgmma_ss_tile(32, 0, 1, d, a, b, accumulate)
#define wgmma_ss_tile_n40_t01(d, a, b, accumulate) emu_wgmma_ss_tile(40, 0, 1, d, a, b, accumulate)
#define wgmma_ss_tile_n48_t01(d, a, b, accumulate) emu_wgmma_ss_tile(48, 0, 1, d, a, b, accumulate)
#define wgmma_ss_tile_n56_t01(d, a, b, accumulate) emu_wgmma_ss_tile(56, 0, 1, d, a, b, accumulate)
#define wgmma_ss_tile_n64_t01(d, a, b, accumulate) emu_wgmma_ss_tile(64, 0, 1, d, a, b, accumulate)
#define wgmma_ss_tile_n80_t01(d, a, b, accumulate) emu_wgmma_ss_tile(80, 0, 1, d, a, b, accumulate)
#define wgmma_ss_tile_n96_t01(d, a, b, accumulate) emu_wgmma_ss_tile(96, 0, 1, d, a, b, accumulate)
#define wgmma_ss_tile_n112_t01(d, a, b, accumulate)                                                \
    emu_wgmma_ss_tile(112, 0, 1, d, a, b, accumulate)
#define wgmma_ss_tile_n128_t01(d, a, b, accumulate)                                                \
    emu_wgmma_ss_tile(128, 0, 1, d, a, b, accumulate)
#define wgmma_ss_tile_n160_t01(d, a, b, accumulate)                                                \
    emu_wgmma_ss_tile(160, 0, 1, d, a, b, accumulate)
#define wgmma_ss_tile_n192_t01(d, a, b, accumulate)                                                \
    emu_wgmma_ss_tile(192, 0, 1, d, a, b, accumulate)
#define wgmma_ss_tile_n224_t01(d, a, b, accumulate)                                                \
    emu_wgmma_ss_tile(224, 0, 1, d, a, b, accumulate)
#define wgmma_ss_tile_n256_t01(d, a, b, accumulate)                                                \
    emu_wgmma_ss_tile(256, 0, 1, d, a, b, accumulate)

#define wgmma_ss_tile_n8_t10(d, a, b, accumulate) emu_wgmma_ss_tile(8, 1, 0, d, a, b, accumulate)
#define wgmma_ss_tile_n16_t10(d, a, b, accumulate) emu_wgmma_ss_tile(16, 1, 0, d, a, b, accumulate)
#define wgmma_ss_tile_n24_t10(d, a, b, accumulate) emu_wgmma_ss_tile(24, 1, 0, d, a, b, accumulate)
#define wgmma_ss_tile_n32_t10(d, a, b, accumulate) emu_wgmma_ss_tile(32, 1, 0, d, a, b, accumulate)
#define wgmma_ss_tile_n40_t10(d, a, b, accumulate) emu_wgmma_ss_tile(40, 1, 0, d, a, b, accumulate)
#define wgmma_ss_tile_n48_t10(d, a, b, accumulate) emu_wgmma_ss_tile(48, 1, 0, d, a, b, accumulate)
#define wgmma_ss_tile_n56_t10(d, a, b, accumulate) emu_wgmma_ss_tile(56, 1, 0, d, a, b, accumulate)
#define wgmma_ss_tile_n64_t10(d, a, b, accumulate) emu_wgmma_ss_tile(64, 1, 0, d, a, b, accumulate)
#define wgmma_ss_tile_n80_t10(d, a, b, accumulate) emu_wgmma_ss_tile(80, 1, 0, d, a, b, accumulate)
#define wgmma_ss_tile_n96_t10(d, a, b, accumulate) emu_wgmma_ss_tile(96, 1, 0, d, a, b, accumulate)
#define wgmma_ss_tile_n112_t10(d, a, b, accumulate)                                                \
    emu_wgmma_ss_tile(112, 1, 0, d, a, b, accumulate)
#define wgmma_ss_tile_n128_t10(d, a, b, accumulate)                                                \
    emu_wgmma_ss_tile(128, 1, 0, d, a, b, accumulate)
#define wgmma_ss_tile_n160_t10(d, a, b, accumulate)                                                \
    emu_wgmma_ss_tile(160, 1, 0, d, a, b, accumulate)
#define wgmma_ss_tile_n192_t10(d, a, b, accumulate)                                                \
    emu_wgmma_ss_tile(192, 1, 0, d, a, b, accumulate)
#define wgmma_ss_tile_n224_t10(d, a, b, accumulate)                                                \
    emu_wgmma_ss_tile(224, 1, 0, d, a, b, accumulate)
#define wgmma_ss_tile_n256_t10(d, a, b, accumulate)                                                \
    emu_wgmma_ss_tile(256, 1, 0, d, a, b, accumulate)

#define wgmma_ss_tile_n8_t11(d, a, b, accumulate) emu_wgmma_ss_tile(8, 1, 1, d, a, b, accumulate)
#define wgmma_ss_tile_n16_t11(d, a, b, accumulate) emu_wgmma_ss_tile(16, 1, 1, d, a, b, accumulate)
#define wgmma_ss_tile_n24_t11(d, a, b, accumulate) emu_wgmma_ss_tile(24, 1, 1, d, a, b, accumulate)
#define wgmma_ss_tile_n32_t11(d, a, b, accumulate) emu_wgmma_ss_tile(32, 1, 1, d, a, b, accumulate)
#define wgmma_ss_tile_n40_t11(d, a, b, accumulate) emu_wgmma_ss_tile(40, 1, 1, d, a, b, accumulate)
#define wgmma_ss_tile_n48_t11(d, a, b, accumulate) emu_wgmma_ss_tile(48, 1, 1, d, a, b, accumulate)
#define wgmma_ss_tile_n56_t11(d, a, b, accumulate) emu_wgmma_ss_tile(56, 1, 1, d, a, b, accumulate)
#define wgmma_ss_tile_n64_t11(d, a, b, accumulate) emu_wgmma_ss_tile(64, 1, 1, d, a, b, accumulate)
#define wgmma_ss_tile_n80_t11(d, a, b, accumulate) emu_wgmma_ss_tile(80, 1, 1, d, a, b, accumulate)
#define wgmma_ss_tile_n96_t11(d, a, b, accumulate) emu_wgmma_ss_tile(96, 1, 1, d, a, b, accumulate)
#define wgmma_ss_tile_n112_t11(d, a, b, accumulate)                                                \
    emu_wgmma_ss_tile(112, 1, 1, d, a, b, accumulate)
#define wgmma_ss_tile_n128_t11(d, a, b, accumulate)                                                \
    emu_wgmma_ss_tile(128, 1, 1, d, a, b, accumulate)
#define wgmma_ss_tile_n160_t11(d, a, b, accumulate)                                                \
    emu_wgmma_ss_tile(160, 1, 1, d, a, b, accumulate)
#define wgmma_ss_tile_n192_t11(d, a, b, accumulate)                                                \
    emu_wgmma_ss_tile(192, 1, 1, d, a, b, accumulate)
#define wgmma_ss_tile_n224_t11(d, a, b, accumulate)                                                \
    emu_wgmma_ss_tile(224, 1, 1, d, a, b, accumulate)
#define wgmma_ss_tile_n256_t11(d, a, b, accumulate)                                                \
    emu_wgmma_ss_tile(256, 1, 1, d, a, b, accumulate)

#endif
