//@use common/descriptor.cuh
//@use ptx/wgmma.cuh
//@takes n tb

/* As wgmma_ss_n${n}, with a in registers: of the warp's 16 x 16, row and depth as in
 * mma_m16n8k16_bf16 (PTX ISA, "wgmma.mma_async"). */
// clang-format off
DEVICE void wgmma_rs_n${n}_t0${tb}(float *d, const u32 *a, u64 b, int accumulate) {
    asm volatile("{.reg .pred p;\n\t"
                 "setp.ne.s32 p, %${n / 2 + 5}, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n${n}k16.f32.bf16.bf16 {"
//@for i in 0..n / 8 - 1
                 "%${4 * i}, %${4 * i + 1}, %${4 * i + 2}, %${4 * i + 3}, "
//@end
                 "%${n / 2 - 4}, %${n / 2 - 3}, %${n / 2 - 2}, %${n / 2 - 1}}, "
                 "{%${n / 2}, %${n / 2 + 1}, %${n / 2 + 2}, %${n / 2 + 3}}, "
                 "%${n / 2 + 4}, p, 1, 1, ${tb};}"
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
