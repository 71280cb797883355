//@use common/tensor_map.h
//@use ptx/shared.cuh
/*
 * Tensor copies: boxes of a tensor, copied by the async proxy, issued by one thread (PTX ISA, "Data
 * Movement and Conversion Instructions: Tensor copy"). The map is a kernel parameter, addressed in
 * constant memory. x counts elements of the innermost dimension, y, z and w those of the outer
 * ones; elements outside the tensor read as zero. Shared addresses are multiples of 128, with a
 * swizzle of 128, 64 or 32 bytes of 1024, 512 or 256.
 */

/* Prefetches a map (PTX ISA, "prefetch", .tensormap). */
DEVICE void tensor_prefetch(const struct tensor_map *map) {
    asm volatile("prefetch.tensormap [%0];" : : "l"(map) : "memory");
}

/* Copies a box to shared memory; it completes the box's bytes on the barrier, including those
 * outside the tensor (PTX ISA, "cp.async.bulk.tensor"). */
DEVICE void tensor_load_2d(u32 to, const struct tensor_map *map, u32 barrier, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4}], [%2];"
                 :
                 : "r"(to), "l"(map), "r"(barrier), "r"(x), "r"(y)
                 : "memory");
}

/* Three dimensions, with an L2 cache policy (ptx/policy.cuh). */
DEVICE void tensor_load_3d_hint(u32 to, const struct tensor_map *map, u32 barrier, int x, int y,
                                int z, u64 policy) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {%3, %4, %5}], [%2], %6;"
                 :
                 : "r"(to), "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "l"(policy)
                 : "memory");
}

/* Four dimensions. */
DEVICE void tensor_load_4d_hint(u32 to, const struct tensor_map *map, u32 barrier, int x, int y,
                                int z, int w, u64 policy) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {%3, %4, %5, %6}], [%2], %7;"
                 :
                 : "r"(to), "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w), "l"(policy)
                 : "memory");
}

/* The same without a policy. */
DEVICE void tensor_load_4d(u32 to, const struct tensor_map *map, u32 barrier, int x, int y, int z,
                           int w) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6}], [%2];"
                 :
                 : "r"(to), "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w)
                 : "memory");
}
