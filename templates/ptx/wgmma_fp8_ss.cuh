//@use common/descriptor.cuh
//@use ptx/wgmma.cuh
//@takes n

/* d = a * b, or d += a * b if `accumulate`: 64 x ${n}, depth 32, e4m3 in, fp32 accumulation, by one
 * warpgroup; a, b: K-major descriptors (common/descriptor.cuh); d as in ptx/wgmma_ss.cuh (PTX ISA,
 * "wgmma.mma_async"). */
// clang-format off
DEVICE void wgmma_fp8_ss_n${n}(float *d, u64 a, u64 b, int accumulate) {
    asm volatile("{.reg .pred p;\n\t"
                 "setp.ne.s32 p, %${n / 2 + 2}, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n${n}k32.f32.e4m3.e4m3 {"
//@for i in 0..n / 8 - 1
                 "%${4 * i}, %${4 * i + 1}, %${4 * i + 2}, %${4 * i + 3}, "
//@end
                 "%${n / 2 - 4}, %${n / 2 - 3}, %${n / 2 - 2}, %${n / 2 - 1}}, "
                 "%${n / 2}, %${n / 2 + 1}, p, 1, 1;}"
                 :
//@for i in 0..n / 8 - 1
                 "+f"(d[${4 * i}]), "+f"(d[${4 * i + 1}]),
                 "+f"(d[${4 * i + 2}]), "+f"(d[${4 * i + 3}]),
//@end
                 "+f"(d[${n / 2 - 4}]), "+f"(d[${n / 2 - 3}]),
                 "+f"(d[${n / 2 - 2}]), "+f"(d[${n / 2 - 1}])
                 : "l"(a), "l"(b), "r"(accumulate));
}
// clang-format on
