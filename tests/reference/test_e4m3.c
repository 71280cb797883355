/* e4m3 in the references: every code to a float and back, rounding between neighbours, and equality
 * with the emulator's independent implementation. */
#include <math.h>

#include "../unit/test.h"
#include "emu/formats/numbers.h"
#include "reference/bf16.h"
#include "reference/e4m3.h"

TEST(known_values) {
    static const struct {
        uint8_t code;
        float value;
    } known[] = {{0x00, 0},      {0x01, 0x1p-9F}, {0x07, 7 * 0x1p-9F}, {0x08, 0x1p-6F}, {0x38, 1},
                 {0x39, 1.125F}, {0x7e, 448},     {0xfe, -448},        {0x80, -0.0F},   {0xb8, -1}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        assert_true(smelt__e4m3_to_float(known[i].code) == known[i].value);
        assert_int_equal(smelt__e4m3_from_float(known[i].value), known[i].code);
    }
    assert_true(isnan(smelt__e4m3_to_float(0x7f)) && isnan(smelt__e4m3_to_float(0xff)));
}

TEST(rounds_and_saturates) {
    assert_int_equal(smelt__e4m3_from_float(1.0625F), 0x38); /* ties to even */
    assert_int_equal(smelt__e4m3_from_float(1.1875F), 0x3a);
    assert_int_equal(smelt__e4m3_from_float(nextafterf(1.0625F, 2)), 0x39);
    assert_int_equal(smelt__e4m3_from_float(0x1p-10F), 0x00);
    assert_int_equal(smelt__e4m3_from_float(3 * 0x1p-10F), 0x02);
    assert_int_equal(smelt__e4m3_from_float(-1e-30F), 0x80);
    assert_int_equal(smelt__e4m3_from_float(464), 0x7e);
    assert_int_equal(smelt__e4m3_from_float(1e30F), 0x7e);
    assert_int_equal(smelt__e4m3_from_float(-INFINITY), 0xfe);
    assert_int_equal(smelt__e4m3_from_float(NAN), 0x7f);
    assert_int_equal(smelt__e4m3_from_float(-NAN), 0x7f);
}

/* Every bf16 number, and floats close to each. */
TEST(as_the_emulator) {
    for (uint32_t bits = 0; bits < 0x10000; bits++)
        for (uint32_t beside = 0; beside < 0x10000; beside += 0x5555) {
            const uint32_t single = bits << 16 | beside;
            float value;
            memcpy(&value, &single, sizeof value);
            assert_int_equal(smelt__e4m3_from_float(value), emu_e4m3_from_float(value));
        }
    for (int code = 0; code < 256; code++) {
        const float value = smelt__e4m3_to_float((uint8_t)code);
        if (!isnan(value))
            assert_true(value == emu_float_from_e4m3((uint8_t)code) &&
                        smelt__e4m3_from_float(value) == code);
    }
}

TESTS("e4m3")
