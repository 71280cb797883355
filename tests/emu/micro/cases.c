/* The list of cases: see cases.h. Forms are the enumerators of each kernel's own text. */
#include "cases.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct micro_case *cases;
static size_t case_count, case_capacity;

/* A new case; fields that are not set are 0. */
__attribute__((format(printf, 2, 3))) static struct micro_case *add(const char *kernel,
                                                                    const char *format, ...) {
    if (case_count == case_capacity) {
        case_capacity = 2 * case_capacity + 64;
        cases = realloc(cases, case_capacity * sizeof *cases);
        if (!cases) {
            fprintf(stderr, "micro: out of memory\n");
            exit(1);
        }
    }
    struct micro_case *one = &cases[case_count++];
    va_list list;
    memset(one, 0, sizeof *one);
    va_start(list, format);
    vsnprintf(one->name, sizeof one->name, format, list);
    va_end(list);
    one->kernel = kernel;
    one->blocks = 1;
    one->cluster = 1;
    one->out = FILL_POISON;
    return one;
}

static void set_region(struct micro_case *one, int index, const char *name, int bytes) {
    one->regions[index].name = name;
    one->regions[index].bytes = bytes;
}

/* ---- arithmetic.cu, fragments.cu ------------------------------------------------------------- */

static void add_arithmetic(void) {
    enum { COUNT = 4096 };
    static const struct {
        const char *name;
        size_t in, out; /* words of one input and one result */
        enum comparison comparison;
    } forms[] = {
        {"exp2_approximate", 1, 1, ULPS},   {"log2_approximate", 1, 1, ULPS},
        {"pack_bf16x2", 2, 1, BIT_FOR_BIT}, {"pack_e4m3x2", 2, 1, BIT_FOR_BIT},
        {"built-ins", 2, 8, BIT_FOR_BIT},   {"maximum_nan", 2, 1, BIT_FOR_BIT},
        {"minimum_nan", 2, 1, BIT_FOR_BIT}, {"push_greater", 1, 1, BIT_FOR_BIT},
    };
    for (int form = 0; form < (int)(sizeof forms / sizeof forms[0]); form++) {
        struct micro_case *one = add("arithmetic", "math %s", forms[form].name);
        one->params.form = form;
        one->params.count = COUNT;
        one->threads = 128;
        one->blocks = COUNT / 128;
        one->a = FILL_WIDE_FLOAT;
        one->a_bytes = 4 * forms[form].in * COUNT;
        one->out_bytes = 4 * forms[form].out * COUNT;
        one->comparison = forms[form].comparison;
        if (form == 1) /* near 1 the logarithm's error is absolute (PTX ISA, "lg2") */
            one->tolerance = 0x1p-22f;
    }
}

static void add_fragments(void) {
    static const char *const moves[] = {"ldmatrix_x4", "ldmatrix_x4_trans", "ldmatrix_x2_trans",
                                        "stmatrix_x4", "stmatrix_x4_trans", "stmatrix_x2_trans"};
    static const struct {
        const char *name;
        enum fill factors, before;
        enum comparison comparison;
    } products[] = {
        {"integers", FILL_INTEGER_BF16, FILL_INTEGER_FLOAT, BIT_FOR_BIT},
        {"random", FILL_RANDOM_BF16, FILL_RANDOM_FLOAT, ROUNDED},
        {"extremes", FILL_EXTREME_BF16, FILL_ZERO, ROUNDED},
        {"e4m3 integers", FILL_INTEGER_E4M3, FILL_INTEGER_FLOAT, BIT_FOR_BIT},
        {"e4m3 random", FILL_RANDOM_E4M3, FILL_RANDOM_FLOAT, ROUNDED},
        {"e4m3 extremes", FILL_EXTREME_E4M3, FILL_ZERO, ROUNDED},
    };
    enum { MMA = sizeof moves / sizeof moves[0], KINDS = 6, PRODUCTS = 16 };
    for (int form = 0; form < MMA; form++) {
        struct micro_case *one = add("fragments", "fragment %s", moves[form]);
        one->params.form = form;
        one->a = FILL_WORDS;
        one->b = FILL_LANE_ROWS;
        one->a_bytes = one->out_bytes = 512;
        one->b_bytes = 128;
    }
    for (int i = 0; i < KINDS; i++) {
        struct micro_case *one = add("fragments", "mma %s", products[i].name);
        one->params.form = MMA + i / 3; /* bf16, e4m3 */
        one->params.count = PRODUCTS;
        one->a = products[i].factors;
        one->b = products[i].before;
        one->a_bytes = PRODUCTS * 192 * 4;
        one->b_bytes = one->out_bytes = PRODUCTS * 128 * 4;
        one->comparison = products[i].comparison;
        one->scale = 1;
        /* 17 terms of at most 1, aligned and truncated at 2^-25 or finer; for e4m3, 33 terms at
         * 2^-13. */
        one->tolerance = i < 3 ? 0x1p-20f : 33 * 0x1p-13f;
    }
    for (size_t i = case_count - MMA - KINDS; i < case_count; i++) {
        cases[i].threads = 32;
        set_region(&cases[i], 0, "TILE", 512);
    }
}

/* ---- products.cu ----------------------------------------------------------------------------- */

/* The tiles' forms come last; they use one swizzle. */
enum form {
    SS_00,
    SS_01,
    SS_10,
    SS_11,
    RS_00,
    RS_01,
    FP8_SS,
    FORMS,
    SS_TILE_00 = FORMS,
    SS_TILE_01,
    SS_TILE_10,
    SS_TILE_11,
    RS_TILE_00,
    RS_TILE_01,
    ALL_FORMS
};

static const char *const form_names[ALL_FORMS] = {
    "ss_t00",      "ss_t01",      "ss_t10",      "ss_t11",      "rs_t00",
    "rs_t01",      "fp8_ss",      "ss_tile_t00", "ss_tile_t01", "ss_tile_t10",
    "ss_tile_t11", "rs_tile_t00", "rs_tile_t01"};

enum numbers { INTEGERS, RANDOM, EXTREMES };

static void add_product(int columns, int form, int swizzle, enum numbers numbers) {
    static const char *const names[] = {"integers", "random", "extremes"};
    static const enum fill fills[][2] = {{FILL_INTEGER_BF16, FILL_INTEGER_E4M3},
                                         {FILL_RANDOM_BF16, FILL_RANDOM_E4M3},
                                         {FILL_EXTREME_BF16, FILL_EXTREME_E4M3}};
    int fp8 = form == FP8_SS;
    int b_transposed = form == SS_01 || form == SS_11 || form == RS_01 || form == SS_TILE_01 ||
                       form == SS_TILE_11 || form == RS_TILE_01;
    /* A swizzled line of a transposed B has swizzle / 2 columns. All of them exist, except in a
     * tile's last line, which products may use in part. */
    if (form < FORMS && b_transposed && 2 * columns % (swizzle ? swizzle : 16) != 0)
        return;
    struct micro_case *one = add("products", "wgmma n%d %s swizzle %d %s", columns,
                                 form_names[form], swizzle, names[numbers]);
    one->constants[0].name = "N";
    one->constants[0].value = columns;
    set_region(one, 0, "A", 8192);
    set_region(one, 1, "B", 128 * ((columns + 63) / 64 * 64));
    one->threads = 128;
    one->params.form = form;
    one->params.swizzle = swizzle;
    /* About every second case starts with accumulator values; the choice depends on its name only,
     * so that adding cases does not change results. */
    one->params.count = (int)(micro_seed(one->name, 'd') >> 32 & 1);
    one->a = one->b = fills[numbers][fp8];
    one->a_bytes = 8192;
    one->b_bytes = (size_t)(128 * columns);
    one->out_bytes = (size_t)(64 * columns) * 4;
    one->comparison = numbers == INTEGERS ? BIT_FOR_BIT : ROUNDED;
    /* bf16: four sums of 17 terms, truncated 25 bits below the largest one, which is at most 2 (or
     * 127 for D's); e4m3: 33 terms, 13 bits. */
    one->scale = one->params.count ? 128 : 2;
    one->tolerance = fp8 ? 4 * 33 * 0x1p-13f : 4 * 17 * 0x1p-24f;
}

static void add_products(void) {
    static const int columns[] = {8, 16, 24, 32, 48, 64, 96, 128, 192, 256};
    static const int more[] = {40, 56, 80, 112, 160, 224}; /* the other widths, one swizzle */
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++)
        for (int form = 0; form < FORMS; form++)
            add_product(more[i], form, i % 2 ? 32 : 0, INTEGERS);
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
        int n = columns[i], varied = n == 8 || n == 64 || n == 192;
        for (int form = 0; form < FORMS; form++) {
            add_product(n, form, 0, INTEGERS);
            for (int swizzle = 32; swizzle <= 128; swizzle *= 2)
                add_product(n, form, swizzle, INTEGERS);
            if (varied)
                add_product(n, form, n == 64 ? 128 : 0, RANDOM);
            if (n == 64)
                add_product(n, form, 128, EXTREMES);
        }
    }
    for (int form = FORMS; form < ALL_FORMS; form++) {
        for (size_t i = 0; i < sizeof more / sizeof more[0]; i++)
            add_product(more[i], form, 128, INTEGERS);
        for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++)
            add_product(columns[i], form, 128, INTEGERS);
        add_product(64, form, 128, RANDOM);
    }
}

/* ---- copies.cu ------------------------------------------------------------------------------- */

static void add_copies(void) {
    enum { THREADS = 64, TILE = THREADS * 16, RED_F32 = 5, RED_F32X4 = 6 };
    static const struct {
        const char *name;
        enum fill a, b, out;
        size_t out_bytes;
        int count;
    } forms[] = {
        {"cp_async bytes", FILL_WORDS, FILL_BYTE_COUNTS, FILL_POISON, TILE, 0},
        {"cp_async groups", FILL_WORDS, FILL_BYTE_COUNTS, FILL_POISON, TILE, 0},
        {"cp_async arrive_noinc", FILL_WORDS, FILL_BYTE_COUNTS, FILL_POISON, TILE, 0},
        {"cp_async wait_all", FILL_WORDS, FILL_BYTE_COUNTS, FILL_POISON, TILE, 0},
        {"bulk copy", FILL_WORDS, FILL_NOTHING, FILL_POISON, TILE, 0},
        {"red f32", FILL_INTEGER_FLOAT, FILL_NOTHING, FILL_INTEGER_FLOAT, 64, 16},
        {"red f32x4", FILL_INTEGER_FLOAT, FILL_NOTHING, FILL_INTEGER_FLOAT, 256, 16},
        {"memory streaming", FILL_WORDS, FILL_NOTHING, FILL_POISON, TILE, 0},
        {"memory streaming in", FILL_WORDS, FILL_NOTHING, FILL_POISON, TILE, 0},
        {"memory once", FILL_WORDS, FILL_NOTHING, FILL_POISON, TILE, 0},
        {"memory prefetched", FILL_WORDS, FILL_NOTHING, FILL_POISON, TILE, 0},
        {"memory through l2", FILL_WORDS, FILL_NOTHING, FILL_POISON, TILE, 0},
        {"memory shared 16", FILL_WORDS, FILL_NOTHING, FILL_POISON, TILE, 0},
        {"append to shared memory", FILL_WORDS, FILL_NOTHING, FILL_POISON, TILE, 0},
        {"atomics", FILL_WORDS, FILL_ZERO, FILL_POISON, TILE, 0},
        {"hint", FILL_NOTHING, FILL_NOTHING, FILL_ZERO, 12, THREADS * (THREADS - 1) / 2},
    };
    for (int form = 0; form < (int)(sizeof forms / sizeof forms[0]); form++) {
        struct micro_case *one = add("copies", "%s", forms[form].name);
        set_region(one, 0, "TILE", TILE);
        set_region(one, 1, "SECOND", TILE);
        set_region(one, 2, "BARRIER", 8);
        one->threads = THREADS;
        one->params.form = form;
        one->params.count = forms[form].count;
        one->params.bytes = TILE;
        one->a = forms[form].a;
        one->b = forms[form].b;
        one->out = forms[form].out;
        one->a_bytes = one->a == FILL_NOTHING ? 0 : TILE;
        one->b_bytes = one->b == FILL_NOTHING ? 0 : 4 * THREADS;
        one->out_bytes = forms[form].out_bytes;
        one->blocks = form >= RED_F32 && form <= RED_F32X4 ? 4 : 1;
    }
}

/* ---- tensors.cu ------------------------------------------------------------------------------ */

/* A box of 8 rows (2 layers of 4 in three dimensions, 2 x 2 layers of 2 in four) whose inner bytes
 * are the swizzle's span. The fourth coordinate equals the third. */
static void add_tensor(int form, int swizzle, int element_bytes, const int at[3]) {
    static const char *const names[] = {"2d", "3d hint", "4d hint"};
    static const int ranks[] = {2, 3, 4}, boxes[][3] = {{8, 1, 1}, {4, 2, 1}, {2, 2, 2}};
    enum { ROWS = 20, LAYERS = 3, VOLUMES = 2, PITCH = 288 };
    struct micro_case *one = add("tensors", "tensor %s swizzle %d of %d at %d,%d,%d", names[form],
                                 swizzle, element_bytes, at[0], at[1], at[2]);
    int inner = swizzle ? swizzle : 48;
    struct case_map map = {
        .buffer = IN_A,
        .rank = ranks[form],
        .element_bytes = element_bytes,
        .swizzle = swizzle,
        /* 16 bytes of each row are outside */
        .dimensions = {272 / element_bytes, ROWS, LAYERS, VOLUMES},
        .box = {inner / element_bytes, boxes[form][0], boxes[form][1], boxes[form][2]},
        .strides = {0, PITCH, ROWS * PITCH, LAYERS * ROWS * PITCH},
    };
    size_t tensor_bytes = (size_t)PITCH * ROWS * LAYERS * VOLUMES, box_bytes = (size_t)(8 * inner);
    one->params.form = form;
    one->params.x = at[0];
    one->params.y = at[1];
    one->params.z = one->params.w = at[2];
    one->params.bytes = (int)box_bytes;
    one->threads = 32;
    one->a = FILL_WORDS;
    one->a_bytes = tensor_bytes;
    one->out_bytes = box_bytes;
    set_region(one, 0, "BOX", (int)box_bytes);
    set_region(one, 1, "BARRIER", 8);
    one->maps[0] = map;
    one->map_count = 1;
}

static void add_tensors(void) {
    /* Inside, across each edge, completely outside; in elements. */
    static const int places[][3] = {
        {0, 0, 0}, {8, 3, 1}, {-8, -2, -1}, {104, 15, 2}, {128, 18, 1}, {200, 4, 0}, {8, -8, 0},
    };
    for (int swizzle = 0; swizzle <= 128; swizzle = swizzle ? 2 * swizzle : 32)
        for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
            add_tensor(0, swizzle, 2, places[i]);
            add_tensor(1, swizzle, 2, places[i]);
            add_tensor(2, swizzle, 2, places[i]);
        }
    add_tensor(0, 128, 4, places[1]);
    add_tensor(0, 64, 1, (const int[3]){-16, 2, 0});
}

/* ---- barriers.cu, registers.cu, clusters.cu -------------------------------------------------- */

static void add_barriers(void) {
    static const char *const names[] = {"mbarrier phases",
                                        "mbarrier counts",
                                        "named hand-over",
                                        "named or",
                                        "block-wide votes",
                                        "lanes",
                                        "bits",
                                        "redux",
                                        "griddepcontrol"};
    for (int form = 0; form < 9; form++) {
        struct micro_case *one = add("barriers", "block %s", names[form]);
        set_region(one, 0, "WORDS", 1024);
        set_region(one, 1, "BARRIER", 16);
        one->params.form = form;
        one->threads = 256;
        one->b = FILL_WORDS;
        one->b_bytes = one->out_bytes = 1024;
    }
    struct micro_case *one = add("registers", "setmaxnreg");
    one->threads = 384;
    one->params.count = 20;
    one->b = FILL_WORDS;
    one->b_bytes = one->out_bytes = 384 * 4;
}

static void add_clusters(void) {
    static const char *const names[] = {"st.async 16", "given back"};
    for (int blocks = 2; blocks <= 4; blocks *= 2)
        for (int form = 0; form < 2; form++) {
            struct micro_case *one = add("clusters", "cluster of %d %s", blocks, names[form]);
            set_region(one, 0, "THEIRS", 1024);
            set_region(one, 1, "BARRIER", 16);
            one->params.form = form;
            one->params.count = blocks;
            one->cluster = blocks;
            one->blocks = 2 * blocks;
            one->threads = 64;
            one->a = FILL_WORDS;
            one->a_bytes = one->out_bytes = (size_t)(2 * blocks) * 1024;
        }
}

/* ---- the pipelines --------------------------------------------------------------------------- */

static struct case_map bf16_map(enum buffer buffer, int columns, int rows) {
    return (struct case_map){
        .buffer = buffer,
        .rank = 2,
        .element_bytes = 2,
        .swizzle = 128,
        .dimensions = {columns, rows, 1},
        .box = {64, 64, 1},
        .strides = {0, 2 * columns, 0},
    };
}

/* Q follows the rows in a. */
static void add_gather(int blocks, int stages) {
    enum { ROWS = 256, TILE = 8192 };
    struct micro_case *one =
        add("pipeline_gather", "pipeline gather %d blocks %d stages", blocks, stages);
    one->constants[0].name = "STAGES";
    one->constants[0].value = stages;
    set_region(one, 0, "QUERY", TILE);
    set_region(one, 1, "SCORES", TILE);
    set_region(one, 2, "KEYS", stages * TILE);
    set_region(one, 3, "WORDS", 4 * stages);
    set_region(one, 4, "BARRIERS", 8 * (2 * stages + 3));
    one->threads = 384;
    one->params.count = blocks;
    one->a = FILL_TERNARY_BF16;
    one->a_bytes = ROWS * 128 + TILE;
    one->b = FILL_ROW_NUMBERS;
    one->b_bytes = (size_t)(64 * blocks) * 4;
    one->out_bytes = 64 * 64 * 4;
    one->maps[0] = bf16_map(IN_A, 64, 64);
    one->maps[0].offset = ROWS * 128;
    one->map_count = 1;
}

static void add_tensor_product(int rows, int columns, int steps, int blocks) {
    enum { STAGES = 2, TILE = 8192 };
    struct micro_case *one = add("pipeline_tensor", "pipeline tensor %d x %d x %d on %d blocks",
                                 rows, columns, 64 * steps, blocks);
    one->constants[0].name = "STAGES";
    one->constants[0].value = STAGES;
    set_region(one, 0, "LEFT", 2 * STAGES * TILE);
    set_region(one, 1, "RIGHT", STAGES * TILE);
    set_region(one, 2, "STAGED", 2 * TILE);
    set_region(one, 3, "BARRIERS", 8 * 2 * STAGES);
    one->threads = 384;
    one->blocks = blocks;
    one->params.count = rows / 128 * (columns / 64);
    one->params.x = columns / 64;
    one->params.y = steps;
    one->a = one->b = FILL_TERNARY_BF16;
    one->a_bytes = (size_t)(rows * steps) * 128;
    one->b_bytes = (size_t)(columns * steps) * 128;
    one->out_bytes = (size_t)(rows * columns) * 2;
    one->maps[0] = bf16_map(IN_A, 64 * steps, rows);
    one->maps[1] = bf16_map(IN_B, 64 * steps, columns);
    one->map_count = 2;
}

const struct micro_case *micro_cases(size_t *count) {
    if (!cases) {
        add_arithmetic();
        add_fragments();
        add_products();
        add_copies();
        add_tensors();
        add_barriers();
        add_clusters();
        add_gather(7, 3);
        add_gather(1, 2);
        add_gather(5, 2);
        add_tensor_product(256, 128, 3, 2);
        add_tensor_product(384, 64, 1, 1);
    }
    *count = case_count;
    return cases;
}
