//@use common/base.cuh
/*
 * Registers a thread may use from here on, moved between the warpgroups of a block (PTX ISA,
 * "setmaxnreg"): 24 to 256, a multiple of 8, the same for all of a warpgroup, which runs it
 * together. Increasing waits until the pool has them. Macros, because the number is part of the
 * instruction.
 */
#define registers_increase(count)                                                                  \
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"((int)(count)) : "memory")
#define registers_decrease(count)                                                                  \
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"((int)(count)) : "memory")
