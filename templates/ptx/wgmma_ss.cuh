//@use common/descriptor.cuh
//@use ptx/wgmma.cuh
//@takes n ta tb

/*
 * d = a * b, or d += a * b if `accumulate`: 64 x ${n}, depth 16, bf16 in, fp32 accumulation, by one
 * warpgroup (PTX ISA, "wgmma.mma_async"). a, b: descriptors (common/descriptor.cuh); ta, tb: 1 if
 * the operand is transposed. d[i] of lane 4 * g + t, warp w, is in row 16 * w + g (odd pairs: + 8)
 * and column 8 * (i / 4) + 2 * t + i % 2.
 */
// clang-format off
DEVICE void wgmma_ss_n${n}_t${ta}${tb}(float *d, u64 a, u64 b, int accumulate) {
    asm volatile("{.reg .pred p;\n\t"
                 "setp.ne.s32 p, %${n / 2 + 2}, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n${n}k16.f32.bf16.bf16 {"
//@for i in 0..n / 8 - 1
                 "%${4 * i}, %${4 * i + 1}, %${4 * i + 2}, %${4 * i + 3}, "
//@end
                 "%${n / 2 - 4}, %${n / 2 - 3}, %${n / 2 - 2}, %${n / 2 - 1}}, "
                 "%${n / 2}, %${n / 2 + 1}, p, 1, 1, ${ta}, ${tb};}"
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
