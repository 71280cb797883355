//@use common/tensor_map.h
//@use ptx/shared.cuh
/*
 * Copies of a box of a tensor by the async proxy, issued by one thread (PTX ISA, "Data Movement and
 * Conversion Instructions: Tensor copy"). The map is a parameter of the kernel (in constant memory,
 * its address taken there). x counts elements of the innermost dimension, y, z and w the outer
 * ones; what lies outside of the tensor is zero. Shared
 * addresses are multiples of 128, for a swizzle of 128 bytes of 1024, of 64 of 512, of 32 of 256.
 */

/* Fetches a map ahead of its first use (PTX ISA, "prefetch", .tensormap). */
DEVICE void tensor_prefetch(const struct tensor_map *map) {
    asm volatile("prefetch.tensormap [%0];" : : "l"(map) : "memory");
}

/* A box to shared memory; the barrier expects its bytes, those outside of the tensor included (PTX
 * ISA, "cp.async.bulk.tensor"). */
DEVICE void tensor_load_2d(u32 to, const struct tensor_map *map, u32 barrier, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4}], [%2];"
                 :
                 : "r"(to), "l"(map), "r"(barrier), "r"(x), "r"(y)
                 : "memory");
}

/* The same with a policy of ptx/policy.cuh for the L2 cache. */
DEVICE void tensor_load_2d_hint(u32 to, const struct tensor_map *map, u32 barrier, int x, int y,
                                u64 policy) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5;"
                 :
                 : "r"(to), "l"(map), "r"(barrier), "r"(x), "r"(y), "l"(policy)
                 : "memory");
}

/* For tensors of three dimensions. */
DEVICE void tensor_load_3d_hint(u32 to, const struct tensor_map *map, u32 barrier, int x, int y,
                                int z, u64 policy) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {%3, %4, %5}], [%2], %6;"
                 :
                 : "r"(to), "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "l"(policy)
                 : "memory");
}

/* For tensors of four dimensions. */
DEVICE void tensor_load_4d_hint(u32 to, const struct tensor_map *map, u32 barrier, int x, int y,
                                int z, int w, u64 policy) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {%3, %4, %5, %6}], [%2], %7;"
                 :
                 : "r"(to), "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w), "l"(policy)
                 : "memory");
}
