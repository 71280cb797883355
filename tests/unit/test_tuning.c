/* Valid, invalid and hostile lines of the tuning file. */

#include "runtime/tuning/file.h"
#include "test.h"

#define SPEC "sparse_attn_fwd:heads=64,dqk=576,dv=512,topk=2048"

static int parse(const char *text, struct smelt__tuning_line *line,
                 struct smelt__message *message) {
    return smelt__tuning_line_parse(text, strlen(text), line, message);
}

TEST(good_lines) {
    static const struct {
        const char *text, *device, *knobs;
        double microseconds;
    } cases[] = {
        {SPEC "  NVIDIA H200  stages=2,pv_overlap=4  2104.5", "NVIDIA H200",
         "stages=2,pv_overlap=4", 2104.5},
        {"\t" SPEC "\tNVIDIA  RTX 4090 \t variant=mma   7 \r", "NVIDIA  RTX 4090", "variant=mma",
         7},
        {SPEC " H200 stages=3 0.25", "H200", "stages=3", 0.25},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct smelt__tuning_line line, again;
        struct smelt__message message = {0};
        struct smelt__text text = {0};
        if (parse(cases[i].text, &line, &message) != 1)
            fail_msg("%s: %s", cases[i].text, message.text);
        assert_string_equal(line.spec, SPEC);
        assert_string_equal(line.device, cases[i].device);
        assert_string_equal(line.knobs, cases[i].knobs);
        assert_true(line.microseconds > cases[i].microseconds * (1 - 1e-9) &&
                    line.microseconds < cases[i].microseconds * (1 + 1e-9));
        smelt__tuning_line_print(&line, &text);
        assert_int_equal(smelt__tuning_line_parse(text.data, text.length - 1, &again, &message), 1);
        assert_string_equal(again.device, line.device);
        assert_string_equal(again.knobs, line.knobs);
        smelt__text_free(&text);
    }
    static const char *const nothing[] = {"", "   \t\r", "# a comment \x01", "   # another"};
    for (size_t i = 0; i < sizeof nothing / sizeof nothing[0]; i++) {
        struct smelt__tuning_line line;
        struct smelt__message message = {0};
        assert_int_equal(parse(nothing[i], &line, &message), 0);
    }
}

TEST(bad_lines) {
    static const struct {
        const char *text, *part;
    } cases[] = {
        {SPEC, "time is missing"},
        {SPEC "  5", "list of knobs is missing"},
        {SPEC "  stages=2  5", "device is missing"},
        {SPEC "  H200  stages=2  5us", "'5us'; legal: a number of at least"},
        {SPEC "  H200  stages=2  -5", "legal: a number of at least"},
        {SPEC "  H200  stages=2  0", "legal: a number of at least"},
        {SPEC "  H200  stages=2  nan", "legal: a number of at least"},
        {SPEC "  H200  stages=2  .", "legal: a number of at least"},
        {SPEC "  H200  stages=2  1.2.3", "legal: a number of at least"},
        {SPEC "  H200  stages=2  1e3", "legal: a number of at least"},
        {SPEC "  H200  stages=2  99999999999999999999", "legal: a number of at least"},
        {SPEC "  H200  stages=9  5", "stages=9 is not legal"},
        {SPEC "  H200  stage=2  5", "did you mean stages?"},
        {SPEC "  H200  heads=2  5", "is not a knob"},
        {SPEC "  H200  stages=2,stages=2  5", "given twice"},
        {SPEC ",stages=2  H200  stages=2  5", "not in canonical form without knobs, " SPEC},
        {"sparse_attn_fwd:dqk=576,heads=64,dv=512,topk=2048  H200  stages=2  5", "canonical"},
        {"sparse_attn:heads=64,dqk=576,dv=512,topk=2048  H200  stages=2  5", "is an operator"},
        {"sparse_fwd:heads=64  H200  stages=2  5", "unknown operator or kernel"},
        {SPEC "  H\x01  stages=2  5", "byte 0x01"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct smelt__tuning_line line;
        struct smelt__message message = {0};
        assert_int_equal(parse(cases[i].text, &line, &message), -1);
        assert_says(message.text, cases[i].part, cases[i].text);
    }
}

/* Too long in each part, and in total. */
TEST(long_lines) {
    static char text[16384];
    struct smelt__tuning_line line;
    struct smelt__message message = {0};
    for (int part = 0; part < 5; part++) {
        static char filler[2048];
        memset(filler, 'x', sizeof filler);
        filler[part == 4 ? 1500 : 300] = '\0';
        snprintf(text, sizeof text, "%s  %s  %s  %s%s", part == 0 ? filler : SPEC,
                 part == 1 ? filler : "H200", part == 2 ? filler : "stages=2",
                 part == 3 ? filler : "5", part == 4 ? filler : "");
        assert_int_equal(parse(text, &line, &message), -1);
        assert_non_null(strstr(message.text, "longer than"));
    }
}

/* Any bytes give an entry that can be written and read again, or a reason. The text is not
 * terminated and ends where its memory ends. */
TEST(random_lines) {
    static const char model[] = SPEC "  NVIDIA H200  stages=2,pv_overlap=4  2104.5";
    struct random random = random_begin("random_lines");
    int entries = 0;
    for (int i = 0; i < 100000; i++) {
        size_t length = sizeof model - 1;
        char *text = malloc(length);
        memcpy(text, model, length);
        for (int change = random_below(&random, 4); change > 0; change--)
            text[random_below(&random, (int)length)] = (char)random_below(&random, 256);
        if (random_below(&random, 4) == 0)
            length = (size_t)random_below(&random, (int)length);
        char *exact = malloc(length ? length : 1);
        memcpy(exact, text, length);
        struct smelt__tuning_line line, again;
        struct smelt__message message = {0};
        int kind = smelt__tuning_line_parse(exact, length, &line, &message);
        assert_in_range(kind + 1, 0, 2);
        assert_true(kind >= 0 || strlen(message.text) > 10);
        if (kind == 1) {
            struct smelt__text printed = {0};
            smelt__tuning_line_print(&line, &printed);
            kind = smelt__tuning_line_parse(printed.data, printed.length - 1, &again, &message);
            /* Less than half a hundredth of a microsecond is written as 0.00. */
            assert_true(kind == 1 || line.microseconds < 0.005);
            smelt__text_free(&printed);
            entries++;
        }
        free(exact);
        free(text);
    }
    assert_true(entries > 1000);
}

TESTS("tuning")
