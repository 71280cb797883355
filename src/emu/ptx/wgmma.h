/* templates/ptx/wgmma.cuh, emulated. */

void emu_wgmma_fence(void);
void emu_wgmma_commit(void);
void emu_wgmma_wait(int pending);

#define wgmma_fence() emu_wgmma_fence()
#define wgmma_commit() emu_wgmma_commit()
#define wgmma_wait(pending) emu_wgmma_wait(pending)
