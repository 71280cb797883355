/* Architectures: the table's limits, and the architecture of a device. */
#include <limits.h>

#include "codegen/arch.h"
#include "codegen/plan/limits.h"
#include "test.h"

TEST(limits) {
    static const struct {
        const char *name;
        int shared_kb, multiprocessor_kb, threads;
    } cases[] = {
        {"sm_80", 163, 164, 2048},   {"sm_86", 99, 100, 1536},    {"sm_87", 163, 164, 1536},
        {"sm_89", 99, 100, 1536},    {"sm_90", 227, 228, 2048},   {"sm_90a", 227, 228, 2048},
        {"sm_100a", 227, 228, 2048}, {"sm_103a", 227, 228, 2048}, {"sm_110a", 227, 228, 1536},
        {"sm_120a", 99, 100, 1536},  {"sm_121a", 99, 100, 1536},
    };
    struct smelt__message message;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct smelt__arch *arch = smelt__arch_find(cases[i].name, &message);
        assert_non_null(arch);
        assert_string_equal(arch->name, cases[i].name);
        assert_int_equal(arch->shared_per_block, cases[i].shared_kb * 1024);
        assert_int_equal(arch->shared_per_multiprocessor, cases[i].multiprocessor_kb * 1024);
        assert_int_equal(arch->threads_per_multiprocessor, cases[i].threads);
    }
}

/* A block with the maximum of shared memory must fit on a multiprocessor, including the reserved
 * part. */
TEST(table_is_consistent) {
    int count = 0;
    for (const struct smelt__arch *arch; (arch = smelt__arch_at(count)); count++) {
        char name[16];
        snprintf(name, sizeof name, "sm_%d%d", arch->capability_major, arch->capability_minor);
        assert_memory_equal(arch->name, name, strlen(name));
        assert_int_equal(arch->shared_per_block + arch->shared_reserved,
                         arch->shared_per_multiprocessor);
        assert_int_equal(arch->registers_per_multiprocessor, 65536);
    }
    assert_int_equal(count, 16);
    assert_null(smelt__arch_at(-1));
}

/* So many blocks fit, but not with one byte more each. */
TEST(shared_limits_are_exact) {
    for (int i = 0; smelt__arch_at(i); i++)
        for (int blocks = 1; blocks < 5; blocks++) {
            const struct smelt__arch *arch = smelt__arch_at(i);
            struct smelt__excess excess = {.shared_bytes = INT_MAX, .registers = INT_MAX};
            int most = arch->shared_per_multiprocessor;
            while (most > arch->shared_per_block ||
                   blocks * (most + arch->shared_reserved) > arch->shared_per_multiprocessor)
                most--;
            assert_true(smelt__limits_hold(arch, 128, blocks, most, 32, &excess));
            assert_int_equal(excess.shared_bytes, INT_MAX);
            assert_false(smelt__limits_hold(arch, 128, blocks, most + 1, 32, &excess));
            assert_int_equal(excess.shared_bytes, most + 1);
            assert_int_equal(excess.shared_limit, most);
        }
}

TEST(capabilities) {
    static const struct {
        int major, minor;
        const char *name;
    } cases[] = {
        {8, 0, "sm_80"},   {8, 6, "sm_86"},    {8, 7, "sm_87"},    {8, 9, "sm_89"},
        {8, 8, "sm_87"},   {9, 0, "sm_90a"},   {10, 0, "sm_100a"}, {10, 3, "sm_103a"},
        {10, 1, "sm_100"}, {11, 0, "sm_110a"}, {12, 0, "sm_120a"}, {12, 1, "sm_121a"},
        {12, 7, "sm_121"}, {9, 5, "sm_90"},
    };
    struct smelt__message message;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct smelt__arch *arch =
            smelt__arch_for_capability(cases[i].major, cases[i].minor, &message);
        assert_non_null(arch);
        assert_string_equal(arch->name, cases[i].name);
    }
    assert_null(smelt__arch_for_capability(7, 5, &message));
    assert_non_null(strstr(message.text, "compute capability 7.5 is too old"));
    assert_null(smelt__arch_for_capability(13, 0, &message));
    assert_non_null(strstr(message.text, "compute capability 13.0 is not known"));
}

/* A GPU's name means the architecture of its compute capability. */
TEST(gpus) {
    struct smelt__message message;
    const struct smelt__gpu *gpu;
    for (int i = 0; (gpu = smelt__gpu_at(i)); i++) {
        const struct smelt__arch *arch = smelt__arch_find(gpu->name, &message);
        assert_non_null(arch);
        assert_string_equal(arch->name, gpu->arch);
        assert_ptr_equal(arch, smelt__arch_for_capability(arch->capability_major,
                                                          arch->capability_minor, &message));
    }
    assert_string_equal(smelt__arch_find("H100", &message)->name, "sm_90a");
    assert_string_equal(smelt__arch_find("b200", &message)->name, "sm_100a");
    assert_string_equal(smelt__arch_find("a100", &message)->name, "sm_80");
}

TEST(unknown_names) {
    static const struct {
        const char *name, *part;
    } cases[] = {
        {"sm_91", "no architecture or GPU 'sm_91'; known: sm_80, sm_86"},
        {"sm90a", "no architecture or GPU 'sm90a', did you mean sm_90a?"},
        {"", "no architecture or GPU ''; known: sm_80, sm_86"},
        {"hopper", "no architecture or GPU 'hopper'; known:"},
        {"h300", "no architecture or GPU 'h300', did you mean h100?"},
        {"v100", "; by GPU: a30, a100"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct smelt__message message = {0};
        assert_null(smelt__arch_find(cases[i].name, &message));
        assert_says(message.text, cases[i].part, cases[i].name);
    }
}

TESTS("arch")
