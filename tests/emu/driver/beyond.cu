#define KERNEL_NAME beyond
#line 3 "beyond.cu"
extern __shared__ __align__(1024) unsigned char arena[];
/* Word 31 of shared memory, written and read. */
__global__ void KERNEL_NAME(int *data) {
    volatile int *const words = (int *)arena;
    if (threadIdx.x == 0) {
        words[31] = 5;
        data[0] = words[31];
    }
}
