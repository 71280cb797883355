/* templates/ptx/wgmma.cuh, emulated. */

void emu_wgmma_fence(void);
void emu_wgmma_commit(void);
void emu_wgmma_wait(int pending);

#define wgmma_fence() emu_wgmma_fence()
#define wgmma_commit() emu_wgmma_commit()
#define wgmma_wait_0() emu_wgmma_wait(0)
#define wgmma_wait_1() emu_wgmma_wait(1)
#define wgmma_wait_2() emu_wgmma_wait(2)
#define wgmma_wait_3() emu_wgmma_wait(3)
