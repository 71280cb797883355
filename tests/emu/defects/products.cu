/* Warpgroups: products, their registers, setmaxnreg. ../defects.c describes the format. */
//@use common/descriptor.cuh
//@use ptx/ldmatrix.cuh
//@use ptx/proxy.cuh
//@use ptx/registers.cuh
//@use ptx/shared.cuh
//@use ptx/wgmma_rs.cuh n = 8, tb = 0
//@use ptx/wgmma_ss.cuh n = 8, ta = 0, tb = 0

/* A has 64 rows, B has 8, of 128 bytes. */
#define A shared_descriptor(shared_address(0), 16, 1024, 128)
#define B shared_descriptor(shared_address(8192), 16, 1024, 128)

DEVICE void zero_operands() {
    for (int i = (int)threadIdx.x; i < 3072; i += 128) {
        ((int *)arena)[i] = 0;
    }
}

DEVICE void begin_products() {
    zero_operands();
    fence_proxy_async();
    __syncthreads();
}

DEVICE void finish(int *data, const float *d) {
    wgmma_commit();
    wgmma_wait(0);
    data[threadIdx.x] = (int)d[0];
}

//! a product: none, 128 threads
float d[4];
begin_products();
wgmma_fence();
wgmma_ss_n8_t00(d, A, B, 0);
finish(data, d);

//! rows of A from the warpgroup's other warps: race/proxy, 128 threads
float d[4];
begin_products();
/* Each warp fills the 16 rows that its own part of the product needs. */
for (int i = (int)threadIdx.x % 32; i < 512; i += 32) {
    ((int *)arena)[threadIdx.x / 32 * 512 + i] = 0;
}
fence_proxy_async();
__syncwarp(0xffffffffu);
wgmma_fence();
wgmma_ss_n8_t00(d, A, B, 0); /* HERE */
finish(data, d);

//! a product of what no proxy fence covers: proxy, 128 threads; no fence.proxy.async
float d[4];
zero_operands();
__syncthreads();
wgmma_fence();
wgmma_ss_n8_t00(d, A, B, 0); /* HERE */
finish(data, d);

//! accumulators read before the wait: registers, 128 threads; a read of the accumulators
float d[4];
begin_products();
wgmma_fence();
wgmma_ss_n8_t00(d, A, B, 0);
wgmma_commit();
data[threadIdx.x] = (int)d[0]; /* HERE */
wgmma_wait(0);

//! accumulators set without a fence: registers, 128 threads; after the last wgmma.fence
float d[4];
begin_products();
wgmma_fence();
for (int i = 0; i < 4; ++i) {
    d[i] = (float)data[i];
}
wgmma_ss_n8_t00(d, A, B, 1); /* HERE */
wgmma_commit();
wgmma_wait(0);
data[threadIdx.x + 64] = (int)d[0];

//! no fence at all: registers, 128 threads; without any wgmma.fence
float d[4];
begin_products();
wgmma_ss_n8_t00(d, A, B, 0); /* HERE */
finish(data, d);

//! A's registers changed before the wait: registers, 128 threads; a write of A's registers
float d[4];
u32 a[4] = {0, 0, 0, 0};
begin_products();
wgmma_fence();
wgmma_rs_n8_t00(d, a, B, 0);
wgmma_commit();
a[0] = (u32)data[1]; /* HERE */
wgmma_wait(0);
data[threadIdx.x + 64] = (int)d[0] + (int)a[0];

//! A's registers in a scope that ends before the wait: none, 128 threads
float d[4];
int sum;
begin_products();
{
    u32 a[4] = {0, 0, 0, 0};
    wgmma_fence();
    wgmma_rs_n8_t00(d, a, B, 0);
    wgmma_commit();
}
{ /* where the compiler may place this array in a's memory */
    int others[4] = {1, 2, 3, 4};
    others[data[1] & 3] = data[2];
    sum = others[data[3] & 3];
}
wgmma_wait(0);
data[threadIdx.x + 64] = (int)d[0] + sum;

//! more matrices than the array has registers: bounds, 32 threads; of which the array has 2
u32 a[6];
((int *)arena)[threadIdx.x] = 0;
__syncwarp(0xffffffffu);
#pragma unroll
for (int i = 0; i < 2; ++i) {
    ldmatrix_x4(&a[4 * i], shared_address(threadIdx.x % 8 * 16)); /* HERE */
}
data[threadIdx.x] = (int)a[0];

//! A's registers loaded after the fence: registers, 128 threads; after the last wgmma.fence
float d[4];
u32 a[4];
begin_products();
wgmma_fence();
ldmatrix_x4(a, shared_address(threadIdx.x % 32 * 16));
wgmma_rs_n8_t00(d, a, B, 0); /* HERE */
finish(data, d);

//! an operand overwritten before the wait: overwritten, 128 threads; may still be reading
float d[4];
begin_products();
wgmma_fence();
wgmma_ss_n8_t00(d, A, B, 0);
wgmma_commit();
if (threadIdx.x == 0) {
    ((int *)arena)[0] = 1; /* HERE */
}
wgmma_wait(0);
data[threadIdx.x] = (int)d[0];

//! an operand overwritten when only one warp has waited: race/overwritten, 128 threads
float d[4];
begin_products();
wgmma_fence();
wgmma_ss_n8_t00(d, A, B, 0);
wgmma_commit();
wgmma_wait(0);
if (threadIdx.x >= 96) {
    __syncwarp(0xffffffffu);
    ((int *)(arena + 8192))[threadIdx.x - 96] = 1;
}
data[threadIdx.x] = (int)d[0];

//! a product without its commit: registers, 128 threads
float d[4];
begin_products();
wgmma_fence();
wgmma_ss_n8_t00(d, A, B, 0);
wgmma_wait(0);
data[threadIdx.x] = (int)d[0]; /* HERE */

//! a warp with another descriptor: convergence, 128 threads; differs from its warpgroup
float d[4];
begin_products();
const u64 b = shared_descriptor(shared_address(8192 + threadIdx.x / 96 * 1024), 16, 1024, 128);
wgmma_fence();
wgmma_ss_n8_t00(d, A, b, 0); /* HERE */
finish(data, d);

//! registers beyond the pool: deadlock, 512 threads
registers_increase(160); /* HERE */
data[threadIdx.x] = 1;

//! registers moved: none, 512 threads
if (threadIdx.x < 128) {
    registers_decrease(24);
} else {
    registers_increase(160);
}
data[threadIdx.x] = 1;

//! registers that fit the multiprocessor, but not the block's share: deadlock, 384 threads
if (threadIdx.x < 128) {
    registers_decrease(32);
} else {
    registers_increase(240); /* HERE */
}
data[threadIdx.x] = 1;

//! a warp without its warpgroup's registers: convergence, 512 threads; by setmaxnreg
if (threadIdx.x < 96) {
    registers_decrease(24);
}
data[threadIdx.x] = 1;

//! an increase that is a decrease: illegal, 512 threads; setmaxnreg.inc to 64
registers_increase(64); /* HERE */
data[threadIdx.x] = 1;
