//@use common/base.cuh

/* The 32-bit shared-space address of an arena offset, as the wrappers take it (PTX ISA, "State
 * Spaces", .shared). */
DEVICE u32 shared_address(u32 offset) {
    return (u32)__cvta_generic_to_shared(arena) + offset;
}
