//@use common/descriptor.cuh
//@use ptx/wgmma.cuh
//@takes n ta tb

/*
 * Four wgmma_ss_n${n}_t${ta}${tb} along 64 of depth: the first one sets d or, if `accumulate`, adds
 * to it, the others add (PTX ISA, "wgmma.mma_async"). a and b are 128-byte swizzled: 16 of depth
 * are 32 bytes of a row or, transposed, 16 rows, which is 2 or 128 in a descriptor. One statement,
 * because the compile time grows with statements times operands.
 */
// clang-format off
DEVICE void wgmma_ss_tile_n${n}_t${ta}${tb}(float *d, u64 a, u64 b, int accumulate) {
    asm volatile("{.reg .pred p;\n\t"
                 ".reg .b64 a, b;\n\t"
                 "setp.ne.s32 p, %${n / 2 + 2}, 0;\n\t"
//@for k in 0..4
                 "add.s64 a, %${n / 2}, ${k * (2 + 126 * ta)};\n\t"
                 "add.s64 b, %${n / 2 + 1}, ${k * (2 + 126 * tb)};\n\t"
                 "wgmma.mma_async.sync.aligned.m64n${n}k16.f32.bf16.bf16 {"
//@for i in 0..n / 8 - 1
                 "%${4 * i}, %${4 * i + 1}, %${4 * i + 2}, %${4 * i + 3}, "
//@end
                 "%${n / 2 - 4}, %${n / 2 - 3}, %${n / 2 - 2}, %${n / 2 - 1}}, "
                 "a, b, p, 1, 1, ${ta}, ${tb};\n\t"
                 "setp.eq.s32 p, 0, 0;\n\t"
//@end
                 "}"
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
