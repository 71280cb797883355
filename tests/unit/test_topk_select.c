/* The kernels of a call of topk_select, its workspace, and its specs. */
#include "codegen/families/topk_select_rows.h"
#include "ops/topk_select_rows.h"
#include "smelt/topk_select.h"
#include "spec_cases.h"
#include "test.h"

enum { LARGEST = 64 << 20 /* bytes of workspace */ };

/* The kernels of a topk on a GPU that holds so many blocks. */
static struct smelt__topk_kernels kernels_of(int topk, int64_t resident,
                                             struct smelt__kernel *parts) {
    memset(parts, 0, sizeof *parts);
    parts->resident_blocks = resident;
    return (struct smelt__topk_kernels){.parts = parts, .topk = topk};
}

TEST(workspace_is_bounded) {
    static const int topk[] = {1, 512, 513, 2048, 2049, 4096, 16384};
    struct random random = random_begin("workspace");
    struct smelt__kernel parts;
    for (int i = 0; i < 20000; i++) {
        /* Up to 200 multiprocessors of four blocks. */
        const struct smelt__topk_kernels kernels =
            kernels_of(topk[random_below(&random, 7)], 4 + random_below(&random, 797), &parts);
        const int64_t rows = 1 + random_below(&random, 1 << random_below(&random, 20));
        const int64_t columns = random_below(&random, 1 << random_below(&random, 31));
        const size_t bytes = smelt__topk_workspace(&kernels, rows, columns);
        assert_true(bytes <= LARGEST);
        if (rows > parts.resident_blocks / 2 || columns < 32768)
            assert_int_equal(bytes, 0);
    }
}

/* One long row uses the whole GPU. */
TEST(long_rows_are_shared) {
    struct smelt__kernel parts;
    const struct smelt__topk_kernels kernels = kernels_of(2048, 528, &parts);
    const size_t each = (size_t)smelt__topk_select_part_list(2048) * sizeof(unsigned long long) +
                        sizeof(struct topk_select_rows_header);
    assert_int_equal(smelt__topk_workspace(&kernels, 0, 1 << 20), 0);
    assert_int_equal(smelt__topk_workspace(&kernels, 1, 1 << 20), 256 * each);
    assert_int_equal(smelt__topk_workspace(&kernels, 1, 1 << 24), 512 * each);
    assert_int_equal(smelt__topk_workspace(&kernels, 128, 1 << 18), 128 * 4 * each);
    assert_int_equal(smelt__topk_workspace(&kernels, 264, 1 << 18), 264 * 2 * each);
    assert_int_equal(smelt__topk_workspace(&kernels, 265, 1 << 18), 0);
    assert_int_equal(smelt__topk_workspace(&kernels, 3, 32768), 3 * 8 * each);
    assert_int_equal(smelt__topk_workspace(&kernels, 3, 32767), 0);
}

TEST(specs) {
    static const struct spec_case cases[] = {
        {"topk_select:topk=2048", "topk_select:topk=2048", NULL},
        {"topk_select:topk=1,order=index", "topk_select:topk=1", NULL},
        {"topk_select:order=score,topk=4096", "topk_select:topk=4096,order=score", NULL},
        {"topk_select:topk=5,blocks=2", "topk_select:topk=5,blocks=2", NULL},
        {"topk_select:topk=0", NULL, "legal: 1..16384"},
        {"topk_select:topk=16385", NULL, "legal: 1..16384"},
        {"topk_select:topk=8,dtype=fp32,groups=1,pinned=0,expand=1,tail=0", "topk_select:topk=8",
         NULL},
        {"topk_select:topk=8,dtype=bf16,groups=4,pinned=8,expand=128,tail=1",
         "topk_select:topk=8,dtype=bf16,groups=4,pinned=8,expand=128,tail=1", NULL},
        {"topk_select:topk=8,pinned=9", NULL,
         "pinned=9 exceeds topk=8; pinned entries count among topk, so at most 8 can be"},
        {"topk_select:topk=8,expand=3", NULL, "legal: 1, 2, 4, 8, 16, 32, 64, 128"},
        {"topk_select:topk=8,expand=256", NULL, "legal: 1, 2, 4, 8, 16, 32, 64, 128"},
        {"topk_select:topk=8,tail=1", NULL, "tail=1 needs expand above 1"},
        {"topk_select:topk=8,order=score,expand=2", NULL, "order=score does not go with expand"},
        {"topk_select:topk=8,order=score,pinned=2", NULL, "order=score does not go with pinned"},
        {"topk_select:topk=8,dtype=fp8", NULL, "fp32, bf16"},
        {"topk_select:topk=8,groups=0", NULL, "legal: 1..128"},
        {"topk_select:order=score", NULL, "topk"},
        {"topk_select:topk=5,order=both", NULL, "index, score"},
        {"topk_select:topk=5,threads=192", NULL, "128, 256, 512"},
        {"topk_select:topk=5,samples=300", NULL, "256, 512, 1024, 2048"},
        {"topk_select:topk=5,heads=3", NULL, "heads"},
    };
    check_specs(cases, sizeof cases / sizeof *cases);
}

TESTS("topk_select")
