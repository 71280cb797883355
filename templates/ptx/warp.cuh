//@use common/base.cuh

/* Bitwise or over the warp, the same in every lane. It also tells the compiler that a value which
 * all lanes share is uniform (PTX ISA, "redux.sync"). */
DEVICE u32 warp_reduce_or(u32 value) {
    u32 all;
    asm volatile("redux.sync.or.b32 %0, %1, 0xffffffff;" : "=r"(all) : "r"(value));
    return all;
}
