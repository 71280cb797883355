//@use common/base.cuh

/* Sum, minimum and maximum over the warp, the same in every lane (PTX ISA, "redux.sync"). */
DEVICE u32 warp_reduce_add(u32 value) {
    u32 all;
    asm volatile("redux.sync.add.u32 %0, %1, 0xffffffff;" : "=r"(all) : "r"(value));
    return all;
}

DEVICE u32 warp_reduce_min(u32 value) {
    u32 all;
    asm volatile("redux.sync.min.u32 %0, %1, 0xffffffff;" : "=r"(all) : "r"(value));
    return all;
}

DEVICE u32 warp_reduce_max(u32 value) {
    u32 all;
    asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(all) : "r"(value));
    return all;
}
