//@use common/base.cuh
/*
 * Moves registers between the warpgroups of a block (PTX ISA, "setmaxnreg"): the count per thread,
 * 24 to 256, a multiple of 8, the same for all warps of a warpgroup, which execute it together. An
 * increase waits until the pool has enough. Macros, because the count is an immediate operand.
 */
#define registers_increase(count)                                                                  \
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"((int)(count)) : "memory")
#define registers_decrease(count)                                                                  \
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"((int)(count)) : "memory")
