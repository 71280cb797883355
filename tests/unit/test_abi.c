/* Reading and filling callers' structs (runtime/abi.h), with a struct of three versions. tests/abi
 * tests the public structs with whole programs. */

#include "runtime/abi.h"
#include "test.h"

struct first {
    size_t size;
    uint64_t a;
};

struct second { /* this library's */
    size_t size;
    uint64_t a, b;
};

struct third {
    size_t size;
    uint64_t a, b, c;
};

static const struct smelt__struct about =
    SMELT__STRUCT_VALUE(struct second, "given", "GIVEN_INIT", a);

TEST(missing_fields_are_0) {
    const struct first given = {sizeof given, 7};
    struct second read;
    memset(&read, 0xEE, sizeof read);
    assert_int_equal(smelt__struct_read(&about, &given, &read), SMELT_OK);
    assert_int_equal(read.size, sizeof read);
    assert_int_equal(read.a, 7);
    assert_int_equal(read.b, 0);
}

TEST(fields_to_come) {
    struct third given = {sizeof given, 7, 8, 0};
    struct second read;
    memset(&read, 0xEE, sizeof read);
    assert_int_equal(smelt__struct_read(&about, &given, &read), SMELT_OK);
    assert_int_equal(read.size, sizeof read);
    assert_int_equal(read.a, 7);
    assert_int_equal(read.b, 8);
    given.c = 1;
    assert_refused(smelt__struct_read(&about, &given, &read), SMELT_ERROR_INVALID_ARGUMENT,
                   "given.size is 32");
    assert_non_null(strstr(smelt_last_error(), "knows the first 24 bytes; byte 24"));
}

TEST(filled_as_far_as_it_goes) {
    const struct second from = {0, 7, 8};
    struct third shorter = {sizeof(struct first), 1, 2, 3}, longer = {sizeof longer, 1, 2, 3};
    assert_int_equal(smelt__struct_check(&about, &shorter), SMELT_OK);
    smelt__struct_write(&about, &from, &shorter);
    assert_int_equal(shorter.size, sizeof(struct first));
    assert_int_equal(shorter.a, 7);
    assert_int_equal(shorter.b, 2);
    assert_int_equal(smelt__struct_check(&about, &longer), SMELT_OK);
    smelt__struct_write(&about, &from, &longer);
    assert_int_equal(longer.size, sizeof longer);
    assert_int_equal(longer.b, 8);
    assert_int_equal(longer.c, 0);
}

TEST(arrays) {
    const struct first given[3] = {{sizeof given[0], 1}, {99, 2}, {0, 3}};
    const struct second from = {0, 7, 8};
    struct second read[3];
    struct first filled[3] = {{sizeof filled[0], 0}, {99, 0}, {0, 5}};
    memset(read, 0xEE, sizeof read);
    assert_int_equal(smelt__structs_read(&about, given, 3, read), SMELT_OK);
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(read[i].size, sizeof read[i]);
        assert_int_equal(read[i].a, i + 1);
        assert_int_equal(read[i].b, 0);
    }
    smelt__structs_write(&about, &from, filled, 1);
    assert_int_equal(filled[0].a, 0);
    assert_int_equal(filled[1].size, sizeof filled[1]);
    assert_int_equal(filled[1].a, 7);
    assert_int_equal(filled[2].size, 0);
    assert_int_equal(filled[2].a, 5);
    assert_int_equal(smelt__structs_read(&about, NULL, 0, read), SMELT_OK);
    assert_int_equal(smelt__structs_read(&about, NULL, 1, read), SMELT_ERROR_INVALID_ARGUMENT);
}

TEST(sizes_that_none_has) {
    static const size_t sizes[] = {0, 8, 15, 17, 65544, SIZE_MAX};
    struct second given = {0}, read;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        given.size = sizes[i];
        assert_int_equal(smelt__struct_check(&about, &given), SMELT_ERROR_INVALID_ARGUMENT);
        assert_refused(smelt__struct_read(&about, &given, &read), SMELT_ERROR_INVALID_ARGUMENT,
                       "given.size is ");
        assert_non_null(strstr(smelt_last_error(), "legal: 16"));
        assert_non_null(strstr(smelt_last_error(), "GIVEN_INIT"));
    }
    assert_refused(smelt__struct_check(&about, NULL), SMELT_ERROR_INVALID_ARGUMENT,
                   "given is NULL");
}

TESTS("structs that grow")
