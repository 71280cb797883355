//@use common/descriptor.cuh
//@use ptx/wgmma.cuh
//@takes n tb

/* Four wgmma_rs_n${n}_t0${tb} along 64 of depth, as in ptx/wgmma_ss_tile.cuh, with four words of a
 * each (PTX ISA, "wgmma.mma_async"). */
// clang-format off
DEVICE void wgmma_rs_tile_n${n}_t0${tb}(float *d, const u32 *a, u64 b, int accumulate) {
    asm volatile("{.reg .pred p;\n\t"
                 ".reg .b64 b;\n\t"
                 "setp.ne.s32 p, %${n / 2 + 17}, 0;\n\t"
//@for k in 0..4
                 "add.s64 b, %${n / 2 + 16}, ${k * (2 + 126 * tb)};\n\t"
                 "wgmma.mma_async.sync.aligned.m64n${n}k16.f32.bf16.bf16 {"
//@for i in 0..n / 8 - 1
                 "%${4 * i}, %${4 * i + 1}, %${4 * i + 2}, %${4 * i + 3}, "
//@end
                 "%${n / 2 - 4}, %${n / 2 - 3}, %${n / 2 - 2}, %${n / 2 - 1}}, "
                 "{%${n / 2 + 4 * k}, %${n / 2 + 4 * k + 1}, "
                 "%${n / 2 + 4 * k + 2}, %${n / 2 + 4 * k + 3}}, "
                 "b, p, 1, 1, ${tb};\n\t"
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
                 :
//@for k in 0..4
                 "r"(a[${4 * k}]), "r"(a[${4 * k + 1}]), "r"(a[${4 * k + 2}]), "r"(a[${4 * k + 3}]),
//@end
                 "l"(b), "r"(accumulate));
}
// clang-format on
