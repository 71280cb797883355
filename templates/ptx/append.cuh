//@use ptx/shared.cuh

/* If `wanted` is not 0, stores two words at an 8-byte-aligned address in shared memory; returns the
 * address after what was stored. Predicated, without a branch (PTX ISA, "st", .shared). */
DEVICE u32 append_shared_8(u32 address, u32 wanted, u32 low, u32 high) {
    asm volatile("{.reg .pred wanted;\n\t"
                 "setp.ne.u32 wanted, %1, 0;\n\t"
                 "@wanted st.shared.v2.u32 [%0], {%2, %3};\n\t"
                 "@wanted add.u32 %0, %0, 8;}"
                 : "+r"(address)
                 : "r"(wanted), "r"(low), "r"(high)
                 : "memory");
    return address;
}
