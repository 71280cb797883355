//@use common/base.cuh
/*
 * wgmma operands in shared memory (PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory
 * Layout" and "Matrix Descriptor Format"). Rows are A's rows or B's columns. Operands consist of
 * atoms: K-major (depth contiguous) 8 rows of `swizzle` bytes, transposed 8 depths of `swizzle`
 * bytes of rows. An atom is contiguous; the swizzle permutes its 16-byte chunks. Without a swizzle
 * an atom is 8 x 16 bytes.
 *
 *   K-major:    stride = bytes from 8 rows to the next 8; leading is ignored with a swizzle, else
 *               the bytes from 16 bytes of depth to the next 16
 *   transposed: stride = bytes from 8 depths to the next 8; leading = bytes from one atom's rows
 *               (swizzle / 2 of them) to the next atom's; without a swizzle the two are exchanged
 *
 * Atoms are aligned to their size. A k-step inside a swizzled K-major atom adds its bytes to the
 * address: the hardware swizzles the sum.
 */

/* swizzle: 0, 32, 64 or 128 bytes; address, leading and stride in bytes, multiples of 16. */
DEVICE u64 shared_descriptor(u32 address, u32 leading, u32 stride, int swizzle) {
    const u64 mode = swizzle == 128 ? 1u : swizzle == 64 ? 2u : swizzle == 32 ? 3u : 0u;
    return (u64)((address & 0x3ffffu) >> 4) | (u64)(leading >> 4) << 16 | (u64)(stride >> 4) << 32 |
           mode << 62;
}

/* The same operand `bytes` further on. */
DEVICE u64 descriptor_advance(u64 descriptor, u32 bytes) {
    return descriptor + (bytes >> 4);
}
