/* templates/ptx/wgmma_rs_tile.cuh, emulated. A line with WIDTH stands for one of each width
 * (compiler/embed_files.c). */

/* a: registers, or NULL and a_descriptor. */
void emu_wgmma_tile(float *d, int columns, const unsigned *a, unsigned long long a_descriptor,
                    unsigned long long b_descriptor, int a_transposed, int b_transposed,
                    int accumulate);

#define emu_wgmma_rs_tile(n, tb, d, a, b, accumulate)                                              \
    emu_wgmma_tile(d, n, a, 0, b, 0, tb, accumulate)

#define wgmma_rs_tile_nWIDTH_t00(d, a, b, add) emu_wgmma_rs_tile(WIDTH, 0, d, a, b, add)
#define wgmma_rs_tile_nWIDTH_t01(d, a, b, add) emu_wgmma_rs_tile(WIDTH, 1, d, a, b, add)
