/* templates/ptx/wgmma_rs_tile.cuh, emulated: a line for each width in use. */
#ifndef EMU_PTX_WGMMA_RS_TILE
#define EMU_PTX_WGMMA_RS_TILE

/* a: registers, or NULL and a_descriptor. */
void emu_wgmma_tile(float *d, int columns, const unsigned *a, unsigned long long a_descriptor,
                    unsigned long long b_descriptor, int a_transposed, int b_transposed,
                    int accumulate);

#define emu_wgmma_rs_tile(n, tb, d, a, b, accumulate)                                              \
    emu_wgmma_tile(d, n, a, 0, b, 0, tb, accumulate)

#define wgmma_rs_tile_n8_t00(d, a, b, accumulate) emu_wgmma_rs_tile(8, 0, d, a, b, accumulate)
#define wgmma_rs_tile_n16_t00(d, a, b, accumulate) emu_wgmma_rs_tile(16, 0, d, a, b, accumulate)
#define wgmma_rs_tile_n24_t00(d, a, b, accumulate) emu_wgmma_rs_tile(24, 0, d, a, b, accumulate)
#define wgmma_rs_tile_n32_t00(d, a, b, accumulate) emu_wgmma_rs_tile(32, 0, d, a, b, accumulate)
#define wgmma_rs_tile_n40_t00(d, a, b, accumulate) emu_wgmma_rs_tile(40, 0, d, a, b, accumulate)
#define wgmma_rs_tile_n48_t00(d, a, b, accumulate) emu_wgmma_rs_tile(48, 0, d, a, b, accumulate)
#define wgmma_rs_tile_n56_t00(d, a, b, accumulate) emu_wgmma_rs_tile(56, 0, d, a, b, accumulate)
#define wgmma_rs_tile_n64_t00(d, a, b, accumulate) emu_wgmma_rs_tile(64, 0, d, a, b, accumulate)
#define wgmma_rs_tile_n80_t00(d, a, b, accumulate) emu_wgmma_rs_tile(80, 0, d, a, b, accumulate)
#define wgmma_rs_tile_n96_t00(d, a, b, accumulate) emu_wgmma_rs_tile(96, 0, d, a, b, accumulate)
#define wgmma_rs_tile_n112_t00(d, a, b, accumulate) emu_wgmma_rs_tile(112, 0, d, a, b, accumulate)
#define wgmma_rs_tile_n128_t00(d, a, b, accumulate) emu_wgmma_rs_tile(128, 0, d, a, b, accumulate)
#define wgmma_rs_tile_n160_t00(d, a, b, accumulate) emu_wgmma_rs_tile(160, 0, d, a, b, accumulate)
#define wgmma_rs_tile_n192_t00(d, a, b, accumulate) emu_wgmma_rs_tile(192, 0, d, a, b, accumulate)
#define wgmma_rs_tile_n224_t00(d, a, b, accumulate) emu_wgmma_rs_tile(224, 0, d, a, b, accumulate)
#define wgmma_rs_tile_n256_t00(d, a, b, accumulate) emu_wgmma_rs_tile(256, 0, d, a, b, accumulate)

#define wgmma_rs_tile_n8_t01(d, a, b, accumulate) emu_wgmma_rs_tile(8, 1, d, a, b, accumulate)
#define wgmma_rs_tile_n16_t01(d, a, b, accumulate) emu_wgmma_rs_tile(16, 1, d, a, b, accumulate)
#define wgmma_rs_tile_n24_t01(d, a, b, accumulate) emu_wgmma_rs_tile(24, 1, d, a, b, accumulate)
#define wgmma_rs_tile_n32_t01(d, a, b, accumulate) emu_wgmma_rs_tile(32, 1, d, a, b, accumulate)
#define wgmma_rs_tile_n40_t01(d, a, b, accumulate) emu_wgmma_rs_tile(40, 1, d, a, b, accumulate)
#define wgmma_rs_tile_n48_t01(d, a, b, accumulate) emu_wgmma_rs_tile(48, 1, d, a, b, accumulate)
#define wgmma_rs_tile_n56_t01(d, a, b, accumulate) emu_wgmma_rs_tile(56, 1, d, a, b, accumulate)
#define wgmma_rs_tile_n64_t01(d, a, b, accumulate) emu_wgmma_rs_tile(64, 1, d, a, b, accumulate)
#define wgmma_rs_tile_n80_t01(d, a, b, accumulate) emu_wgmma_rs_tile(80, 1, d, a, b, accumulate)
#define wgmma_rs_tile_n96_t01(d, a, b, accumulate) emu_wgmma_rs_tile(96, 1, d, a, b, accumulate)
#define wgmma_rs_tile_n112_t01(d, a, b, accumulate) emu_wgmma_rs_tile(112, 1, d, a, b, accumulate)
#define wgmma_rs_tile_n128_t01(d, a, b, accumulate) emu_wgmma_rs_tile(128, 1, d, a, b, accumulate)
#define wgmma_rs_tile_n160_t01(d, a, b, accumulate) emu_wgmma_rs_tile(160, 1, d, a, b, accumulate)
#define wgmma_rs_tile_n192_t01(d, a, b, accumulate) emu_wgmma_rs_tile(192, 1, d, a, b, accumulate)
#define wgmma_rs_tile_n224_t01(d, a, b, accumulate) emu_wgmma_rs_tile(224, 1, d, a, b, accumulate)
#define wgmma_rs_tile_n256_t01(d, a, b, accumulate) emu_wgmma_rs_tile(256, 1, d, a, b, accumulate)

#endif
