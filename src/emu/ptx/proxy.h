/* templates/ptx/proxy.cuh, emulated. */

void emu_fence_proxy_async(void);

#define fence_proxy_async() emu_fence_proxy_async()
