/* templates/ptx/proxy.cuh, emulated. */
#ifndef EMU_PTX_PROXY
#define EMU_PTX_PROXY

void emu_fence_proxy_async(void);

#define fence_proxy_async() emu_fence_proxy_async()

#endif
