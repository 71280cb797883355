//@use common/descriptor.cuh
//@use ptx/wgmma.cuh
//@takes n

/* As wgmma_fp8_ss_n${n}, a in registers: rows g, g + 8, g, g + 8 of the warp's 16, depths
 * 4t .. 4t + 3, in a[2] and a[3] 16 more; lane = 4 * g + t (PTX ISA, "wgmma.mma_async"). */
// clang-format off
DEVICE void wgmma_fp8_rs_n${n}(float *d, const u32 *a, u64 b, int accumulate) {
    asm volatile("{.reg .pred p;\n\t"
                 "setp.ne.s32 p, %${n / 2 + 5}, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n${n}k32.f32.e4m3.e4m3 {"
//@for i in 0..n / 8 - 1
                 "%${4 * i}, %${4 * i + 1}, %${4 * i + 2}, %${4 * i + 3}, "
//@end
                 "%${n / 2 - 4}, %${n / 2 - 3}, %${n / 2 - 2}, %${n / 2 - 1}}, "
                 "{%${n / 2}, %${n / 2 + 1}, %${n / 2 + 2}, %${n / 2 + 3}}, "
                 "%${n / 2 + 4}, p, 1, 1;}"
                 :
//@for i in 0..n / 8 - 1
                 "+f"(d[${4 * i}]), "+f"(d[${4 * i + 1}]),
                 "+f"(d[${4 * i + 2}]), "+f"(d[${4 * i + 3}]),
//@end
                 "+f"(d[${n / 2 - 4}]), "+f"(d[${n / 2 - 3}]),
                 "+f"(d[${n / 2 - 2}]), "+f"(d[${n / 2 - 1}])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}
// clang-format on
