/*
 * Compares the emulator's address maps with the PTX ISA's layouts in CuTe's notation, with walks
 * element by element, and with addresses recorded on an H200.
 */

#include "../unit/test.h"
#include "emu/formats/layout.h"

#include "operands_h200.inc"

#define COUNT(array) ((int)(sizeof(array) / sizeof(array)[0]))

static const int spans[] = {0, 32, 64, 128};

/* ---- swizzle ---- */

/* Bit 4 + i exclusive-or bit 7 + i: CuTe's Swizzle<bits, 4, 3>. */
static uint32_t swizzled(uint32_t address, int span) {
    int bits = span == 128 ? 3 : span == 64 ? 2 : span == 32 ? 1 : 0;
    for (int i = 0; i < bits; i++)
        if (address >> (7 + i) & 1)
            address ^= 1U << (4 + i);
    return address;
}

TEST(swizzle) {
    static const struct {
        uint32_t address;
        int span;
        uint32_t to;
    } cases[] = {{0x080, 128, 0x090}, {0x3f4, 128, 0x384}, {0x470, 128, 0x470},
                 {0x080, 64, 0x090},  {0x1b0, 64, 0x180},  {0x240, 64, 0x240},
                 {0x080, 32, 0x090},  {0x100, 32, 0x100},  {0x3f0, 0, 0x3f0}};
    for (int i = 0; i < COUNT(cases); i++)
        assert_int_equal(emu_swizzle(cases[i].address, cases[i].span), cases[i].to);
    for (int i = 0; i < COUNT(spans); i++) {
        uint8_t hit[4096] = {0};
        for (uint32_t address = 0; address < sizeof hit; address++) {
            uint32_t to = emu_swizzle(address, spans[i]);
            assert_int_equal(to, swizzled(address, spans[i]));
            assert_int_equal(emu_swizzle(to, spans[i]), address);
            assert_true(to / 128 == address / 128 && to % 16 == address % 16);
            hit[to]++;
        }
        for (uint32_t address = 0; address < sizeof hit; address++)
            assert_int_equal(hit[address], 1);
    }
}

/* ---- wgmma's operands ---- */

/* One dimension of a CuTe layout: nested shapes and strides, the first fastest, in elements. */
struct mode {
    int shape[3], stride[3];
};

static int offset_in(const struct mode *mode, int index) {
    int offset = 0;
    for (int i = 0; i < 3; i++) {
        offset += index % mode->shape[i] * mode->stride[i];
        index /= mode->shape[i];
    }
    return offset;
}

static uint64_t descriptor(uint32_t address, uint32_t leading, uint32_t stride, int base_offset,
                           int span) {
    uint64_t code = span == 128 ? 1 : span == 64 ? 2 : span == 32 ? 3 : 0;
    return (uint64_t)(address >> 4) | (uint64_t)(leading >> 4) << 16 |
           (uint64_t)(stride >> 4) << 32 | (uint64_t)base_offset << 49 | code << 62;
}

/* The examples of "Strides": exact layouts for 16 rows, with the depth of one instruction. */
TEST(documented_operands) {
    static const struct {
        bool transposed;
        int element_bytes, span, leading, stride; /* offsets in elements */
        struct mode rows, depth;
    } cases[] = {
        {false, 4, 0, 64, 32, {{8, 2, 1}, {4, 32, 0}}, {{4, 2, 1}, {1, 64, 0}}},
        {false, 4, 32, 4, 64, {{8, 2, 1}, {8, 64, 0}}, {{4, 2, 1}, {1, 4, 0}}},
        {true, 2, 0, 128, 64, {{8, 1, 2}, {1, 8, 64}}, {{8, 2, 1}, {8, 128, 0}}},
        {true, 2, 32, 128, 256, {{8, 2, 1}, {1, 8, 0}}, {{8, 2, 1}, {16, 256, 0}}},
        {true, 2, 64, 256, 512, {{8, 2, 1}, {1, 8, 0}}, {{8, 2, 1}, {32, 512, 0}}},
    };
    for (int i = 0; i < COUNT(cases); i++) {
        struct emu_operand operand;
        int bytes = cases[i].element_bytes;
        emu_operand_decode(&operand,
                           descriptor(4096, (uint32_t)(cases[i].leading * bytes),
                                      (uint32_t)(cases[i].stride * bytes), 0, cases[i].span),
                           16, cases[i].transposed, bytes);
        for (int row = 0; row < 16; row++) {
            for (int k = 0; k < 32 / bytes; k++) {
                int offset = offset_in(&cases[i].rows, row) + offset_in(&cases[i].depth, k);
                assert_int_equal(emu_operand_element(&operand, row, k),
                                 4096 + swizzled((uint32_t)(offset * bytes), cases[i].span));
            }
        }
    }
}

/* The table of canonical layouts, T = 16 bytes, s = span / 16; offsets in elements. */
static void canonical_layout(const struct emu_operand *operand, struct mode *rows,
                             struct mode *depth) {
    int t = 16 / operand->element_bytes, s = operand->swizzle / 16;
    int leading = (int)operand->leading / operand->element_bytes;
    int stride = (int)operand->stride / operand->element_bytes;
    if (!operand->transposed && s == 0) {
        *rows = (struct mode){{8, 32, 1}, {t, stride, 0}};
        *depth = (struct mode){{t, 2, 1}, {1, leading, 0}};
    } else if (!operand->transposed) {
        *rows = (struct mode){{8, 32, 1}, {s * t, stride, 0}};
        *depth = (struct mode){{t, 2, 1}, {1, t, 0}};
    } else if (s == 0) {
        *rows = (struct mode){{t, 1, 32}, {1, t, stride}};
        *depth = (struct mode){{8, 2, 1}, {t, leading, 0}};
    } else {
        *rows = (struct mode){{t, s, 32}, {1, t, leading}};
        *depth = (struct mode){{8, 2, 1}, {s * t, stride, 0}};
    }
}

static struct emu_operand random_operand(struct random *random) {
    struct emu_operand operand;
    int span = spans[random_below(random, 4)];
    bool transposed = random_below(random, 2);
    emu_operand_decode(
        &operand,
        descriptor(16 * (uint32_t)(64 + random_below(random, 512)),
                   16 * (uint32_t)random_below(random, 70), 16 * (uint32_t)random_below(random, 70),
                   span && random_below(random, 2) ? random_below(random, 8) : 0, span),
        8 * (1 + random_below(random, 32)), transposed,
        transposed || random_below(random, 2) ? 2 : 1);
    assert_null(emu_operand_problem(&operand));
    return operand;
}

TEST(canonical_operands) {
    struct random random = random_begin("canonical_operands");
    for (int i = 0; i < 400; i++) {
        struct emu_operand operand = random_operand(&random);
        uint32_t moved = 128 * (uint32_t)operand.base_offset;
        struct mode rows, depth;
        canonical_layout(&operand, &rows, &depth);
        for (int row = 0; row < operand.rows; row++) {
            for (int k = 0; k < 32 / operand.element_bytes; k++) {
                int offset = offset_in(&rows, row) + offset_in(&depth, k);
                uint32_t plain = operand.address + (uint32_t)(offset * operand.element_bytes);
                assert_int_equal(emu_operand_element(&operand, row, k),
                                 swizzled(plain - moved, operand.swizzle) + moved);
            }
        }
    }
}

/* Addresses that an H200 read, with descriptors of every kind. */
TEST(recorded_operands) {
    for (int i = 0; i < COUNT(recorded); i++) {
        struct emu_operand operand;
        emu_operand_decode(&operand,
                           descriptor(recorded[i].address, recorded[i].leading, recorded[i].stride,
                                      recorded[i].base_offset, recorded[i].span),
                           256, recorded[i].transposed, 2);
        for (int j = 0; j < 4; j++)
            assert_int_equal(emu_operand_element(&operand, recorded[i].elements[j].row,
                                                 recorded[i].elements[j].k),
                             recorded[i].elements[j].at);
    }
}

/* The pieces cover exactly the elements' bytes, and a load returns them in order. */
TEST(pieces_and_loads) {
    struct random random = random_begin("pieces_and_loads");
    enum { BASE = 1024, MEMORY = 128 * 1024 };
    static uint8_t memory[MEMORY], wanted[MEMORY], named[MEMORY], rows[256][32];
    for (int i = 0; i < MEMORY; i++)
        memory[i] = (uint8_t)random_next(&random);
    for (int i = 0; i < 200; i++) {
        struct emu_operand operand = random_operand(&random);
        int first = 8 * random_below(&random, operand.rows / 8);
        int count = 8 * (1 + random_below(&random, (operand.rows - first) / 8));
        struct emu_piece pieces[EMU_OPERAND_PIECES];
        memset(wanted, 0, sizeof wanted);
        memset(named, 0, sizeof named);
        emu_operand_load(&operand, first, count, memory, BASE, rows);
        for (int row = 0; row < count; row++) {
            for (int k = 0; k < 32 / operand.element_bytes; k++) {
                uint32_t at = emu_operand_element(&operand, first + row, k) - BASE;
                assert_memory_equal(&rows[row][k * operand.element_bytes], memory + at,
                                    (size_t)operand.element_bytes);
                memset(wanted + at, 1, (size_t)operand.element_bytes);
            }
        }
        int number = emu_operand_pieces(&operand, first, count, pieces);
        assert_int_equal(number, 2 * count);
        for (int j = 0; j < number; j++) {
            assert_true(pieces[j].bytes == 16 && pieces[j].address % 16 == 0);
            memset(named + pieces[j].address - BASE, 1, pieces[j].bytes);
        }
        assert_memory_equal(wanted, named, sizeof named);
    }
}

TEST(bad_operands) {
    static const struct {
        uint64_t descriptor;
        int rows;
        bool transposed;
        int element_bytes;
        const char *word; /* NULL: legal */
    } cases[] = {
        {UINT64_C(0x4000004000010040), 64, false, 2, NULL},
        {UINT64_C(0x4000004000010040), 64, true, 1, "16-bit"},
        {UINT64_C(0x4000004000014040), 64, false, 2, "zero"},
        {UINT64_C(0x4000004040010040), 64, false, 2, "zero"},
        {UINT64_C(0x4000404000010040), 64, false, 2, "zero"},
        {UINT64_C(0x5000004000010040), 64, false, 2, "zero"},
        {UINT64_C(0x4002004000010040), 64, false, 2, NULL},
        {UINT64_C(0x0002004000010040), 64, false, 2, "swizzle"},
        {UINT64_C(0x4000004000010040), 60, false, 2, "extent"},
        {UINT64_C(0x4000004000010040), 264, false, 2, "extent"},
    };
    for (int i = 0; i < COUNT(cases); i++) {
        struct emu_operand operand;
        emu_operand_decode(&operand, cases[i].descriptor, cases[i].rows, cases[i].transposed,
                           cases[i].element_bytes);
        const char *problem = emu_operand_problem(&operand);
        assert_int_equal(problem != NULL, cases[i].word != NULL);
        if (problem)
            assert_non_null(strstr(problem, cases[i].word));
    }
}

/* ---- ldmatrix, stmatrix ---- */

/* Every element encodes its matrix, row and column. */
TEST(matrices) {
    for (int shape = 0; shape < 6; shape++) {
        int count = 1 << shape % 3;
        bool transposed = shape >= 3;
        uint8_t memory[32][16], stored[32][16], *stores[32];
        uint32_t values[32][4], *registers[32];
        const uint8_t *rows[32];
        const uint32_t *sources[32];
        memset(values, 0xee, sizeof values);
        memset(stored, 0xee, sizeof stored);
        for (int i = 0; i < 32; i++) {
            /* Rows in any order: lane i names row 5 * i % 32 of memory. */
            rows[i] = memory[5 * i % 32];
            stores[i] = stored[5 * i % 32];
            registers[i] = values[i];
            sources[i] = values[i];
            for (int column = 0; column < 8; column++) {
                uint16_t name = (uint16_t)(i / 8 << 8 | i % 8 << 4 | column);
                memcpy(memory[5 * i % 32] + 2 * column, &name, 2);
            }
        }
        emu_ldmatrix(registers, rows, count, transposed);
        for (int matrix = 0; matrix < 4; matrix++) {
            for (int row = 0; row < 8; row++) {
                for (int column = 0; column < 8; column++) {
                    int lane = transposed ? column * 4 + row / 2 : row * 4 + column / 2;
                    int half = transposed ? row % 2 : column % 2;
                    assert_int_equal(values[lane][matrix] >> 16 * half & 0xffff,
                                     matrix < count ? matrix << 8 | row << 4 | column : 0xeeee);
                }
            }
        }
        emu_stmatrix(stores, sources, count, transposed);
        for (int i = 0; i < 32; i++)
            for (int byte = 0; byte < 16; byte++)
                assert_int_equal(stores[i][byte], i < 8 * count ? rows[i][byte] : 0xee);
    }
}

/* ---- tensor maps ---- */

struct request {
    int type;
    uint32_t rank;
    uint64_t address, dimensions[5], strides[4];
    uint32_t box[5], steps[5];
    int interleave, swizzle, promotion, fill;
};

static bool encode(void *map, const struct request *request, char *why, size_t size) {
    return emu_tensor_map_encode(map, request->type, request->rank, request->address,
                                 request->dimensions, request->strides, request->box,
                                 request->steps, request->interleave, request->swizzle,
                                 request->promotion, request->fill, why, size);
}

/* A change of a legal request, and whether the driver on an H200 accepts it (580.159). Unsupported
 * features are marked. */
TEST(encoding_rules) {
    const struct request good = {
        .type = 9,
        .rank = 2,
        .address = 4096,
        .dimensions = {200, 60, 1, 1, 1},
        .strides = {512, 1 << 15, 1 << 16, 1 << 17},
        .box = {64, 16, 1, 1, 1},
        .steps = {1, 1, 1, 1, 1},
        .swizzle = 3,
    };
    static uint64_t map[EMU_TENSOR_BYTES / 8];
    char why[200];
    assert_true(encode(map, &good, why, sizeof why));
    struct request request;
#define RULE(change, word)                                                                         \
    do {                                                                                           \
        const char *expected = word;                                                               \
        request = good;                                                                            \
        change;                                                                                    \
        memset(map, 0, sizeof map);                                                                \
        assert_int_equal(encode(map, &request, why, sizeof why), expected == NULL);                \
        assert_int_equal(emu_tensor_map_at(map) != NULL, expected == NULL);                        \
        if (expected)                                                                              \
            assert_non_null(strstr(why, expected));                                                \
    } while (0)
    RULE(request.address += 8, "multiple of 16");
    RULE(request.rank = 0, "rank 0");
    RULE(request.rank = 1, NULL);
    RULE(request.rank = 6, "rank 6");
    RULE(request.dimensions[0] = 0, "dimension 0");
    RULE(request.dimensions[1] = UINT64_C(1) << 32, NULL);
    RULE(request.dimensions[1] = (UINT64_C(1) << 32) + 1, "dimension 1");
    RULE(request.dimensions[1] = 4, NULL); /* smaller than the box */
    RULE(request.strides[0] = 520, "stride of dimension 1");
    RULE(request.strides[0] = 16, NULL);
    RULE(request.strides[0] = 0, NULL);
    RULE(request.strides[0] = UINT64_C(1) << 40, "stride of dimension 1");
    RULE(request.strides[0] = (UINT64_C(1) << 40) - 16, NULL);
    RULE(request.strides[1] = 8, NULL); /* beyond this rank */
    RULE(request.box[1] = 256, NULL);
    RULE(request.box[1] = 257, "dimension 1 is 257");
    RULE(request.box[1] = 0, "dimension 1 is 0");
    RULE(request.box[0] = 4, "8 bytes wide");
    RULE(request.box[0] = 12, "24 bytes wide");
    RULE(request.box[0] = 24, NULL);
    RULE(request.box[0] = 72, "swizzle's 128");
    RULE((request.box[0] = 40, request.swizzle = 2), "swizzle's 64");
    RULE((request.box[0] = 24, request.swizzle = 1), "swizzle's 32");
    RULE((request.box[0] = 256, request.swizzle = 0), NULL);
    RULE((request.box[0] = 264, request.swizzle = 0), "dimension 0 is 264");
    RULE((request.box[0] = request.box[1] = 256, request.swizzle = 0), NULL);
    RULE((request.box[1] = 256, request.box[2] = 8, request.rank = 3), "262144 bytes");
    RULE(request.steps[1] = 8, NULL);
    RULE(request.steps[1] = 9, "element stride 1 is 9");
    RULE(request.steps[1] = 0, "element stride 1 is 0");
    RULE(request.steps[0] = 2, NULL);
    RULE(request.steps[0] = 9, "element stride 0 is 9");
    RULE(request.steps[0] = 0, "element stride 0 is 0");
    RULE(request.type = 13, "data type 13");
    RULE(request.type = -1, "data type -1");
    RULE(request.swizzle = 4, "swizzle 4");
    RULE(request.promotion = 3, NULL);
    RULE(request.promotion = 4, "promotion 4");
    RULE(request.interleave = 1, "interleave 1"); /* legal from rank 3, not emulated */
    RULE(request.fill = 1, "fill 1");             /* legal, not emulated */
#undef RULE
}

enum { SHARED_BASE = 2048, SHARED_BYTES = 64 * 1024 };

struct image {
    uint8_t bytes[SHARED_BYTES];
    uint8_t times[SHARED_BYTES]; /* number of visits of each byte */
    const uint8_t *tensor;
    uint64_t tensor_bytes;
};
enum { TENSOR_ADDRESS = 65536 };

static void copy_piece(void *context, const struct emu_tensor_piece *piece) {
    struct image *image = context;
    uint32_t at = piece->shared - SHARED_BASE;
    assert_true(piece->bytes >= 1 && piece->shared % 16 + piece->bytes <= 16);
    assert_true(at + piece->bytes <= SHARED_BYTES);
    for (uint32_t i = 0; i < piece->bytes; i++) {
        image->times[at + i]++;
        image->bytes[at + i] = 0;
    }
    if (!piece->global)
        return;
    uint64_t from = piece->global - TENSOR_ADDRESS;
    assert_true(from + piece->bytes <= image->tensor_bytes);
    memcpy(image->bytes + at, image->tensor + from, piece->bytes);
}

/* The same box, element by element. */
static void expected_image(const struct request *request, int bytes, const int32_t *coordinates,
                           uint32_t shared, struct image *image) {
    int span = spans[request->swizzle];
    uint32_t pitch = span ? (uint32_t)span : request->box[0] * (uint32_t)bytes;
    uint32_t counts[5] = {request->box[0], 1, 1, 1, 1}, rows = 1;
    for (uint32_t i = 1; i < request->rank; i++) {
        counts[i] = request->box[i] / request->steps[i] + (request->box[i] % request->steps[i] > 0);
        rows *= counts[i];
    }
    for (uint32_t row = 0; row < rows; row++) {
        for (uint32_t x = 0; x < counts[0]; x++) {
            int64_t place[5] = {coordinates[0] + (int64_t)x, 0, 0, 0, 0};
            bool inside = place[0] >= 0 && place[0] < (int64_t)request->dimensions[0];
            int64_t from = place[0] * bytes;
            uint32_t rest = row;
            for (uint32_t i = 1; i < request->rank; i++) {
                place[i] = coordinates[i] + (int64_t)(rest % counts[i] * request->steps[i]);
                rest /= counts[i];
                inside = inside && place[i] >= 0 && place[i] < (int64_t)request->dimensions[i];
                from += place[i] * (int64_t)request->strides[i - 1];
            }
            for (int i = 0; i < bytes; i++) {
                uint32_t at = row * pitch + x * (uint32_t)bytes + (uint32_t)i;
                at = swizzled(shared + at, span) - SHARED_BASE;
                image->times[at]++;
                image->bytes[at] = inside ? image->tensor[from + i] : 0;
            }
        }
    }
}

static struct request random_request(struct random *random, int *bytes) {
    static const int type_bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
    struct request request = {.type = random_below(random, COUNT(type_bytes)),
                              .rank = (uint32_t)(1 + random_below(random, 5)),
                              .address = TENSOR_ADDRESS,
                              .swizzle = random_below(random, 4)};
    *bytes = type_bytes[request.type];
    int widest = request.swizzle ? spans[request.swizzle] / 16 : 8;
    uint64_t stride = 1;
    for (uint32_t i = 0; i < request.rank; i++) {
        request.dimensions[i] = (uint64_t)(1 + random_below(random, i == 0 ? 90 : 7));
        request.box[i] = (uint32_t)(1 + random_below(random, 5));
        request.steps[i] = (uint32_t)(1 + random_below(random, 3));
        if (i == 0) {
            request.box[0] = (uint32_t)(16 * (1 + random_below(random, widest)) / *bytes);
            stride = request.dimensions[0] * (uint64_t)*bytes;
        }
        stride = (stride + 15) / 16 * 16 + 16 * (uint64_t)random_below(random, 2);
        if (i + 1 < request.rank)
            request.strides[i] = stride;
        stride *= i == 0 ? 1 : request.dimensions[i];
        if (i > 0 && i + 1 < request.rank)
            request.strides[i] = request.strides[i - 1] * request.dimensions[i];
    }
    return request;
}

TEST(boxes) {
    struct random random = random_begin("boxes");
    enum { TENSOR = 8 * 1024 * 1024 };
    static uint8_t tensor[TENSOR];
    static struct image got, want;
    for (int i = 0; i < TENSOR; i++)
        tensor[i] = (uint8_t)(random_next(&random) | 1);
    for (int i = 0; i < 1500; i++) {
        uint64_t opaque[EMU_TENSOR_BYTES / 8];
        char why[200] = "";
        int bytes;
        struct request request = random_request(&random, &bytes);
        if (!encode(opaque, &request, why, sizeof why))
            fail_msg("%s", why);
        const struct emu_tensor_map *map = emu_tensor_map_at(opaque);
        assert_non_null(map);
        int32_t coordinates[5];
        for (uint32_t j = 0; j < 5; j++)
            coordinates[j] =
                j ? random_below(&random, 12) - 4 : (random_below(&random, 20) - 6) * 16 / bytes;
        uint32_t shared = SHARED_BASE + 128 * (uint32_t)random_below(&random, 20);
        if (emu_tensor_box_extent(map) > SHARED_BYTES - 20 * 128)
            continue;
        memset(&got, 0, sizeof got);
        memset(&want, 0, sizeof want);
        got.tensor = want.tensor = tensor;
        got.tensor_bytes = TENSOR;
        assert_null(emu_tensor_problem(map, coordinates, shared));
        emu_tensor_walk(map, coordinates, shared, copy_piece, &got);
        expected_image(&request, bytes, coordinates, shared, &want);
        assert_memory_equal(got.times, want.times, sizeof got.times);
        assert_memory_equal(got.bytes, want.bytes, sizeof got.bytes);
        uint32_t visited = 0, end = 0;
        for (uint32_t j = 0; j < SHARED_BYTES; j++) {
            assert_true(got.times[j] <= 1);
            visited += got.times[j];
            if (got.times[j])
                end = j + 1 + SHARED_BASE - shared;
        }
        assert_int_equal(visited, emu_tensor_box_bytes(map));
        assert_true(end <= emu_tensor_box_extent(map));
        assert_true(end + (uint32_t)spans[request.swizzle] + !request.swizzle >
                    emu_tensor_box_extent(map));
    }
}

struct seen {
    uint32_t shared[16];
    int count;
};

static void note_piece(void *context, const struct emu_tensor_piece *piece) {
    struct seen *seen = context;
    if (seen->count < COUNT(seen->shared))
        seen->shared[seen->count++] = piece->shared;
}

/* Offsets at which an H200 put the first pieces of boxes narrower than their swizzle, in units of
 * 16 bytes from the shared address, and the coordinates that it refused. */
TEST(recorded_boxes) {
    static const struct {
        uint32_t width; /* bf16 */
        int swizzle;
        uint32_t offset; /* the shared address modulo 1024 */
        uint32_t places[9];
    } cases[] = {
        {8, 3, 0, {0, 9, 18, 27, 36, 45, 54, 63, 64}}, {16, 3, 0, {0, 1, 9, 8, 18, 19, 27, 26, 36}},
        {32, 3, 0, {0, 1, 2, 3, 9, 8, 11, 10, 18}},    {40, 3, 0, {0, 1, 2, 3, 4, 9, 8, 11, 10}},
        {24, 2, 0, {0, 1, 2, 4, 5, 6, 9, 8, 11}},      {16, 2, 384, {3, 2, 7, 6, 8, 9, 12, 13, 17}},
        {8, 1, 128, {1, 3, 5, 7, 8, 10, 12, 14, 17}},  {64, 3, 128, {1, 0, 3, 2, 5, 4, 7, 6, 10}},
    };
    uint64_t opaque[EMU_TENSOR_BYTES / 8];
    char why[200];
    for (int i = 0; i < COUNT(cases); i++) {
        struct request request = {.type = 9,
                                  .rank = 2,
                                  .address = TENSOR_ADDRESS,
                                  .dimensions = {200, 60},
                                  .strides = {512},
                                  .box = {cases[i].width, 16},
                                  .steps = {1, 1},
                                  .swizzle = cases[i].swizzle};
        assert_true(encode(opaque, &request, why, sizeof why));
        const int32_t corner[2] = {0, 0};
        uint32_t shared = 4096 + cases[i].offset;
        struct seen seen = {.count = 0};
        emu_tensor_walk(emu_tensor_map_at(opaque), corner, shared, note_piece, &seen);
        for (int j = 0; j < COUNT(cases[i].places); j++)
            assert_int_equal(seen.shared[j], shared + 16 * cases[i].places[j]);
    }
    const struct emu_tensor_map *map = emu_tensor_map_at(opaque);
    static const struct {
        int32_t x;
        uint32_t shared;
        const char *word;
    } places[] = {{8, 1152, NULL},       {-16, 1024, NULL},      {150, 1024, "16 bytes"},
                  {1, 1152, "16 bytes"}, {-5, 1024, "16 bytes"}, {0, 1088, "128"},
                  {0, 1040, "128"}};
    for (int i = 0; i < COUNT(places); i++) {
        const int32_t coordinates[2] = {places[i].x, -40};
        const char *problem = emu_tensor_problem(map, coordinates, places[i].shared);
        assert_int_equal(problem != NULL, places[i].word != NULL);
        if (problem)
            assert_non_null(strstr(problem, places[i].word));
    }
}

TESTS("layout")
