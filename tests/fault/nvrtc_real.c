/* Tests this machine's NVRTC: search, loading, and compilation of a small kernel for every
 * architecture that it supports. Skipped (77) with a message without NVRTC. */

#include "../unit/test.h"
#include "codegen/arch.h"
#include "runtime/compiler/compile.h"
#include "runtime/cubin.h"

static struct smelt__nvrtc_file file;
static const struct smelt__nvrtc *nvrtc;

static const char plain[] = "extern \"C\" __global__ void scale(float *x) {\n"
                            "    __shared__ float tile[32];\n"
                            "    tile[threadIdx.x] = x[threadIdx.x];\n"
                            "    __syncthreads();\n"
                            "    x[threadIdx.x] = 2.0f * tile[31 - threadIdx.x];\n"
                            "}\n";

/* 100 live floats in 32 registers, the limit with 2048 threads per multiprocessor. */
static const char spilling[] =
    "extern \"C\" __global__ void __launch_bounds__(1024, 2) crowd(float *x) {\n"
    "    float a[100];\n"
    "    for (int i = 0; i < 100; i++) a[i] = x[i * threadIdx.x];\n"
    "    __syncthreads();\n"
    "    for (int i = 0; i < 100; i++) x[i * 7 * threadIdx.x] = a[i];\n"
    "}\n";

static void compile(const char *source, const char *kernel, const char *arch,
                    struct smelt__compiled *compiled) {
    struct smelt__compile_options options;
    memset(compiled, 0, sizeof *compiled);
    smelt__compile_options(&options, arch, NULL);
    if (smelt__compile_source(nvrtc, source, "test.cu", kernel, arch, &options, compiled))
        fail_msg("%s", smelt_last_error());
    assert_memory_equal(compiled->cubin, "\177ELF", 4);
    assert_in_range(compiled->registers, 4, 255);
    assert_true(compiled->compile_seconds > 0);
    /* The cubin has the same figures. */
    struct smelt__cubin_figures figures = {-1, -1};
    assert_int_equal(smelt__cubin_read(compiled->cubin, compiled->cubin_bytes, kernel, &figures),
                     1);
    assert_int_equal(figures.registers, compiled->registers);
    assert_int_equal(figures.frame_bytes > 0, compiled->spill_bytes > 0);
    assert_int_equal(smelt__cubin_read(compiled->cubin, compiled->cubin_bytes, "other", &figures),
                     0);
}

static void compile_for(const char *arch) {
    struct smelt__compiled compiled;
    compile(plain, "scale", arch, &compiled);
    assert_int_equal(compiled.static_shared_bytes, 128);
    assert_int_equal(compiled.spill_bytes, 0);
    print_message("%-8s %3d registers, %6zu bytes, %.3f s\n", arch, compiled.registers,
                  compiled.cubin_bytes, compiled.compile_seconds);
    free(compiled.cubin);
}

TEST(every_architecture_compiles) {
    for (int i = 0; i < nvrtc->arch_count; i++) {
        char arch[16];
        snprintf(arch, sizeof arch, "sm_%d", nvrtc->archs[i]);
        compile_for(arch);
    }
    for (int i = 0; smelt__arch_at(i); i++) {
        const char *arch = smelt__arch_at(i)->name;
        if (!smelt__nvrtc_supports(nvrtc, arch))
            print_message("%-8s not supported by NVRTC %d.%d\n", arch, nvrtc->major, nvrtc->minor);
        else if (arch[strlen(arch) - 1] == 'a')
            compile_for(arch);
    }
}

TEST(spills_are_read) {
    struct smelt__compiled compiled;
    compile(spilling, "crowd", "sm_90", &compiled);
    assert_int_equal(compiled.registers, 32);
    assert_true(compiled.spill_bytes > 0);
    free(compiled.cubin);
}

/* Truncated and damaged cubins give the figures or none, and no read outside (checked by ASan). */
TEST(damaged_cubins) {
    struct smelt__compiled compiled;
    struct smelt__cubin_figures figures;
    compile(plain, "scale", "sm_90", &compiled);
    for (size_t count = 0; count < compiled.cubin_bytes; count += 7) {
        unsigned char *part = malloc(count ? count : 1);
        memcpy(part, compiled.cubin, count);
        smelt__cubin_read(part, count, "scale", &figures);
        free(part);
    }
    for (size_t i = 0; i < compiled.cubin_bytes; i++) {
        const unsigned char before = compiled.cubin[i];
        compiled.cubin[i] = (unsigned char)(i % 2 ? 0xff : before ^ 0x80);
        if (smelt__cubin_read(compiled.cubin, compiled.cubin_bytes, "scale", &figures))
            assert_true(figures.registers >= 0 && figures.frame_bytes >= 0);
        compiled.cubin[i] = before;
    }
    free(compiled.cubin);
}

TEST(errors_hold_the_log) {
    struct smelt__compile_options options;
    struct smelt__compiled compiled = {0};
    smelt__compile_options(&options, "sm_90", NULL);
    assert_refused(smelt__compile_source(nvrtc, "\nint broken = ;\n", "test.cu", "broken", "sm_90",
                                         &options, &compiled),
                   SMELT_ERROR_COMPILE, "test.cu(2)");
    assert_null(compiled.cubin);
    smelt__compile_options(&options, "sm_35", NULL);
    assert_refused(
        smelt__compile_source(nvrtc, plain, "test.cu", "scale", "sm_35", &options, &compiled),
        SMELT_ERROR_NO_COMPILER, "sm_35");
}

/* The version from the file names equals the version that the loaded library reports. */
TEST(version_was_foretold) {
    assert_int_equal(file.id.major, nvrtc->major);
    assert_int_equal(file.id.minor, nvrtc->minor);
}

int main(void) {
    if (smelt__nvrtc_find(getenv("SMELT_NVRTC"), 0, NULL, &file)) {
        fprintf(stderr, "skipped: %s\n", smelt_last_error());
        return 77;
    }
    if (smelt__nvrtc_open(&file, &nvrtc)) {
        fprintf(stderr, "%s\n", smelt_last_error());
        return 1;
    }
    print_message("NVRTC %d.%d, %s\n", nvrtc->major, nvrtc->minor, nvrtc->path);
    return RUN_TESTS("real NVRTC");
}
