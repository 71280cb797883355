//@use common/base.cuh

/* Orders this thread's plain accesses to shared memory, and those ordered before them, before its
 * later async-proxy operations (wgmma, bulk and tensor copies), and vice versa (PTX ISA, "membar /
 * fence", fence.proxy.async). */
DEVICE void fence_proxy_async(void) {
    asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
}
