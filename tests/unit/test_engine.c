/* The template engine: every directive, expressions, #line, parts, malformed templates, and the embedded ones. */

#include <pthread.h>

#include "codegen/family.h"
#include "codegen/template/engine.h"
#include "codegen/template/expression.h"
#include "test.h"

static int lookup(const void *user, const char *name, int *found) {
    (void)user;
    *found = 1;
    if (strcmp(name, "THREE") == 0)
        return 3;
    if (strcmp(name, "ZERO") == 0)
        return 0;
    if (strcmp(name, "BIG") == 0)
        return INT32_MAX;
    *found = 0;
    return 0;
}

static const struct smelt__scope scope = {lookup, NULL};

/* ---- the embedded templates ------------------------------------------------------------------- */

static void *unpack(void *unused) {
    struct smelt__message message;
    (void)unused;
    return (void *)smelt__templates_embedded(&message);
}

/* The first test, so that several threads need the texts at once. */
TEST(unpacked_by_threads) {
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, unpack, NULL), 0);
    for (int i = 0; i < THREADS; i++) {
        void *table;
        assert_int_equal(pthread_join(threads[i], &table), 0);
        assert_non_null(table);
        assert_ptr_equal(table, unpack(NULL));
    }
    const struct smelt__template *const table = unpack(NULL);
    for (int i = 0; i < smelt__template_count; i++) {
        assert_string_equal(table[i].name, smelt__templates[i].name);
        assert_int_equal(strlen(table[i].text), smelt__templates[i].length);
    }
}

static void refuse_packed(const unsigned char *packed, size_t size) {
    struct smelt__message message;
    assert_null(smelt__templates_unpack(packed, size, &message));
    assert_string_equal(message.text,
                        "the templates in this libsmelt are damaged: install it again");
    assert_false(message.out_of_memory);
}

TEST(damaged_texts) {
    struct random random = random_begin("damaged texts");
    const int size = (int)smelt__templates_packed_size;
    unsigned char *const packed = malloc((size_t)size);
    assert_non_null(packed);
    memcpy(packed, smelt__templates_packed, (size_t)size);
    for (int i = 0; i < 80; i++) {
        const int at = i < 2 ? i : i < 6 ? size - i + 1 : random_below(&random, size);
        for (int bit = i % 4; bit < 8; bit += 4) {
            packed[at] ^= (unsigned char)(1U << bit);
            refuse_packed(packed, (size_t)size);
            packed[at] = smelt__templates_packed[at];
        }
    }
    for (int i = 0; i < 20; i++)
        refuse_packed(packed, (size_t)(i < 4   ? i
                                       : i < 8 ? size - i + 3
                                               : random_below(&random, size)));
    memset(packed, 0, (size_t)size);
    refuse_packed(packed, (size_t)size);
    free(packed);
}

/* ---- expressions ----------------------------------------------------------------------------- */

TEST(expressions) {
    static const struct {
        const char *text;
        int value;
    } cases[] = {
        {"1", 1},
        {" 2 ", 2},
        {"1+2*3", 7},
        {"(1+2)*3", 9},
        {"10-3-2", 5},
        {"100/7/2", 7},
        {"17%5*2", 4},
        {"-3+5", 2},
        {"--3", 3},
        {"- -3", 3},
        {"!0", 1},
        {"!5", 0},
        {"!!5", 1},
        {"!0+1", 2},
        {"-7/2", -3},
        {"-7%2", -1},
        {"1<2", 1},
        {"2<=1", 0},
        {"3>2==1", 1},
        {"1==1!=1", 0},
        {"1+1==2&&2*2==4", 1},
        {"1||0&&0", 1},
        {"(1||0)&&0", 0},
        {"0||0", 0},
        {"5&&7", 1},
        {"THREE", 3},
        {"THREE*THREE-1", 8},
        {"ZERO && 1/ZERO", 0},
        {"1 || 1/ZERO", 1},
        {"ZERO && unknown", 0},
        {"2147483647", INT32_MAX},
        {"-BIG-1", INT32_MIN},
        {"((((1))))", 1},
        {"THREE >= 3", 1},
        {"THREE\t> 3", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct smelt__message message = {0};
        int value = -12345;
        if (smelt__expression_evaluate(cases[i].text, strlen(cases[i].text), &scope, &value,
                                       &message))
            fail_msg("'%s': %s", cases[i].text, message.text);
        if (value != cases[i].value)
            fail_msg("'%s' is %d, not %d", cases[i].text, value, cases[i].value);
        assert_int_equal(smelt__expression_check(cases[i].text, strlen(cases[i].text), &message),
                         0);
    }
}

TEST(bad_expressions) {
    static const struct {
        const char *text, *part;
        int syntax; /* the check by itself refuses it, too */
    } cases[] = {
        {"", "operand is missing", 1},    {"1+", "operand is missing", 1},
        {"(1", "')' is missing", 1},      {"1)", "unexpected ')'", 1},
        {"1 2", "unexpected '2'", 1},     {"*1", "unexpected '*'", 1},
        {"1=2", "unexpected '='", 1},     {"1&2", "unexpected '&'", 1},
        {"THREE$b", "unexpected '$'", 1}, {"2147483648", "too large", 1},
        {"12ab", "runs into a name", 1},  {"nope", "is called 'nope'", 0},
        {"1/ZERO", "divides 1 by 0", 0},  {"1%ZERO", "divides 1 by 0", 0},
        {"BIG+1", "overflows", 0},        {"BIG*2", "overflows", 0},
        {"-BIG-2", "overflows", 0},       {"-(-BIG-1)", "overflows", 0},
        {"(-BIG-1)/-1", "divides", 0},    {"1 || 2 +", "operand is missing", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct smelt__message message = {0};
        int value;
        size_t length = strlen(cases[i].text);
        assert_int_equal(
            smelt__expression_evaluate(cases[i].text, length, &scope, &value, &message), -1);
        assert_says(message.text, cases[i].part, cases[i].text);
        assert_int_equal(smelt__expression_check(cases[i].text, length, &message),
                         cases[i].syntax ? -1 : 0);
    }
    char deep[1001];
    struct smelt__message message;
    memset(deep, '(', sizeof deep - 1);
    deep[sizeof deep - 1] = '\0';
    assert_int_equal(smelt__expression_check(deep, sizeof deep - 1, &message), -1);
    assert_non_null(strstr(message.text, "too deeply"));
}

/* ---- expansion ------------------------------------------------------------------------------- */

static char *expand(const char *text) {
    struct smelt__template template_ = {.name = "t.cu", .text = text, .length = strlen(text)};
    struct smelt__text out = {0};
    struct smelt__message message = {0};
    if (smelt__template_expand(&template_, &scope, &out, &message))
        fail_msg("'%s': %s", text, message.text);
    return smelt__text_release(&out);
}

TEST(directives) {
    static const struct {
        const char *text, *expanded;
    } cases[] = {
        {"", ""},
        {"a\nb\n", "#line 1 \"templates/t.cu\"\na\nb\n"},
        {"a", "#line 1 \"templates/t.cu\"\na\n"},
        {"//@use x.cuh\na\n", "#line 2 \"templates/t.cu\"\na\n"},
        {"//@if THREE == 3\na\n//@end\n", "#line 2 \"templates/t.cu\"\na\n"},
        {"//@if ZERO\na\n//@end\n", ""},
        {"//@if ZERO\na\n//@else\nb\n//@end\nc\n",
         "#line 4 \"templates/t.cu\"\nb\n#line 6 \"templates/t.cu\"\nc\n"},
        {"//@if 1\na\n//@else\nb\n//@end\nc\n",
         "#line 2 \"templates/t.cu\"\na\n#line 6 \"templates/t.cu\"\nc\n"},
        {"  //@for i in 0..2\n  x$i;\n  //@end\n",
         "#line 2 \"templates/t.cu\"\n  x0;\n#line 2 \"templates/t.cu\"\n  x1;\n"},
        {"//@for i in 0..2\na${i}b\n${i*2+THREE}$i\n//@end\n",
         "#line 2 \"templates/t.cu\"\na0b\n30\n#line 2 \"templates/t.cu\"\na1b\n51\n"},
        /* A constant needs no loop. */
        {"wait_${THREE - 2}(${THREE}${ZERO});\n", "#line 1 \"templates/t.cu\"\nwait_1(30);\n"},
        {"//@for i in 2..2\n$i\n//@end\n", ""},
        {"//@for i in 2..0\n$i\n//@end\n", ""},
        {"//@for i in 0 - 1..1\n$i\n//@end\n",
         "#line 2 \"templates/t.cu\"\n-1\n#line 2 \"templates/t.cu\"\n0\n"},
        /* Nested: an inner bound and condition that depend on the outer variable. */
        {"//@for i in 1..THREE\n//@for j in 0..i\n//@if i != j + 1\n$i$j\n//@end\n//@end\n//@end\n",
         "#line 4 \"templates/t.cu\"\n20\n"},
        /* A dropped branch is not evaluated. */
        {"//@if ZERO\n//@if unknown\na\n//@end\n//@else\nb\n//@end\n",
         "#line 6 \"templates/t.cu\"\nb\n"},
        /* One variable in two loops, one after the other. */
        {"//@for i in 0..1\n$i\n//@end\n//@for i in 4..5\n$i\n//@end\n",
         "#line 2 \"templates/t.cu\"\n0\n#line 5 \"templates/t.cu\"\n4\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *expanded = expand(cases[i].text);
        assert_string_equal(expanded, cases[i].expanded);
        free(expanded);
    }
}

TEST(expansion_errors) {
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"a\n//@if nope\n//@end\n",
         "templates/t.cu:2: no constant or loop variable is called 'nope'"},
        {"//@for i in 0..2\n\n${1/(i-1)}\n//@end\n",
         "templates/t.cu:3: the expression divides 1 by 0"},
        {"a\n${unknown}\n", "templates/t.cu:2: no constant or loop variable is called 'unknown'"},
        {"//@for i in 0..BIG\n//@end\n", "templates/t.cu:1: the loop 0..2147483647 is longer"},
        {"a\n//@end\n", "templates/t.cu:2: //@end without an open"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct smelt__template template_ = {
            .name = "t.cu", .text = cases[i].text, .length = strlen(cases[i].text)};
        struct smelt__text out = {0};
        struct smelt__message message = {0};
        assert_int_equal(smelt__template_expand(&template_, &scope, &out, &message), -1);
        smelt__text_free(&out);
        assert_says(message.text, cases[i].message, cases[i].text);
    }
}

/* Templates whose check fails, the line in the message and a part of its text. */
TEST(malformed) {
    static const struct {
        const char *text;
        int line;
        const char *part;
    } cases[] = {
        {"a\n//@fro i in 0..1\n//@end\n", 2, "unknown directive //@fro"},
        {"//@\n", 1, "unknown directive //@"},
        {"//@ if 1\n", 1, "unknown directive"},
        {"//@end\n", 1, "//@end without an open //@if or //@for"},
        {"a\n//@else\n", 2, "//@else without an open //@if"},
        {"//@for i in 0..1\n//@else\n//@end\n", 2, "//@else inside //@for"},
        {"//@if 1\n//@else\n//@else\n//@end\n", 3, "a second //@else"},
        {"a\n\n//@if 1\nb\n", 3, "//@if has no //@end"},
        {"//@if 1\n//@else\nb\n", 2, "//@else has no //@end"},
        {"//@if 1\n//@for i in 0..1\n//@end\n", 1, "//@if has no //@end"},
        {"//@if\n//@end\n", 1, "//@if lacks its argument"},
        {"//@use\n", 1, "//@use lacks its argument"},
        {"//@if 1\n//@end x\n", 2, "//@end takes no argument"},
        {"//@if 1 +\n//@end\n", 1, "operand is missing"},
        {"//@for i 0..1\n//@end\n", 1, "write //@for NAME in EXPR..EXPR"},
        {"//@for 3 in 0..1\n//@end\n", 1, "write //@for"},
        {"//@for i in 0\n//@end\n", 1, "write //@for"},
        {"//@for i in ..\n//@end\n", 1, "operand is missing"},
        {"//@for i in\n//@end\n", 1, "write //@for"},
        {"//@for ..\n//@end\n", 1, "write //@for"},
        {"//@for i in 0..\n//@end\n", 1, "operand is missing"},
        {"//@for i in 0..1..2\n//@end\n", 1, "unexpected '.'"},
        {"//@for i in 0..1\n//@for i in 0..1\n//@end\n//@end\n", 2, "is in use by an outer"},
        {"a $i\n", 1, "$i: no loop variable or parameter of that name here; a constant is ${i}"},
        {"//@for i in 0..1\n$j\n//@end\n", 2, "$j: no loop variable"},
        {"//@for i in 0..1\nx$i_y\n//@end\n", 2, "$i_y: no loop variable"},
        {"//@for i in 0..1\n$\n//@end\n", 2, "'$' is not followed by"},
        {"//@for i in 0..1\n${i\n//@end\n", 2, "'$' is not followed by"},
        {"//@for i in 0..1\n${}\n//@end\n", 2, "operand is missing"},
        {"//@for i in 0..1\n//@end\n$i\n", 3, "$i: no loop variable"},
        {"a\n${THREE\n", 2, "'$' is not followed by"},
        {"${THREE +}\n", 1, "operand is missing"},
        {"int a; //@if 1\n", 1, "stands alone on its line"},
        {"//@if 1 //@end\n", 1, "stands alone on its line"},
        {"a\n//@use b\n", 2, "//@use comes before any other text"},
        {"//@if 1\n//@use b\n//@end\n", 2, "//@use comes before any other text"},
        {"//@use a b\n", 1, "write //@use PART NAME = EXPR"},
        {"//@use a = 1\n", 1, "write //@use PART NAME = EXPR"},
        {"//@use a b = 1,\n", 1, "write //@use PART NAME = EXPR"},
        {"//@use a b = 1 c = 2\n", 1, "unexpected 'c'"},
        {"//@use a b =\n", 1, "operand is missing"},
        {"//@use a b=1,c=1,d=1,e=1,f=1,g=1,h=1,i=1,j=1\n", 1, "more than 8 arguments"},
        {"//@takes\n", 1, "//@takes lacks its argument"},
        {"//@takes 3\n", 1, "unexpected '3'"},
        {"//@takes n, k\n", 1, "unexpected ','"},
        {"//@takes n k n\n", 1, "names 'n' twice"},
        {"//@takes a b c d e f g h i\n", 1, "more than 8 parameters"},
        {"//@takes n\n//@takes k\n", 2, "a second //@takes"},
        {"a\n//@takes n\n", 2, "//@takes comes before any other text"},
        {"//@takes n\n$k\n", 2, "$k: no loop variable"},
        {"//@takes n\n//@for n in 0..1\n//@end\n", 2, "'n' is in use by"},
        {"#define A \\\n//@if 1\nb\n//@end\n", 2, "cannot follow a line that ends in '\\'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct smelt__message message = {0};
        int line = -1;
        if (!smelt__template_check(cases[i].text, &line, &message))
            fail_msg("'%s' was accepted", cases[i].text);
        if (line != cases[i].line || !strstr(message.text, cases[i].part))
            fail_msg("'%s' gave line %d: '%s'", cases[i].text, line, message.text);
    }
}

/* Any bytes: no crash; accepted templates expand or give a reason. */
TEST(random_templates) {
    static const char *const pieces[] = {"//@if 1",    "//@else",
                                         "//@end",     "//@for i in 0..3",
                                         "//@use a",   "$i",
                                         "${i+1}",     "\n",
                                         "\n",         "\n",
                                         " ",          "x",
                                         "\\",         "//@for j in 0..ZERO",
                                         "//@",        "..",
                                         "//@takes i", "//@use p i = 1, k=2",
                                         "(",          "{",
                                         "$"};
    struct random random = random_begin("random_templates");
    for (int i = 0; i < 20000; i++) {
        char text[600] = "";
        size_t used = 0;
        for (int n = random_below(&random, 20); n; n--) {
            const char *piece =
                pieces[random_below(&random, (int)(sizeof pieces / sizeof pieces[0]))];
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", piece,
                                     random_below(&random, 3) ? "\n" : "");
        }
        struct smelt__message message = {0};
        struct smelt__text out = {0};
        struct smelt__template template_ = {.name = "t.cu", .text = text, .length = used};
        int line;
        int bad = smelt__template_check(text, &line, &message);
        int failed = smelt__template_expand(&template_, &scope, &out, &message);
        if (bad)
            assert_int_equal(failed, -1);
        if (bad || failed)
            assert_true(message.text[0] != '\0');
        smelt__text_free(&out);
    }
}

/* ---- parts ----------------------------------------------------------------------------------- */

#define TEMPLATE(name_, text_)                                                                     \
    { .name = name_, .text = text_, .length = sizeof(text_) - 1 }

TEST(parts) {
    static const struct smelt__template templates[] = {
        TEMPLATE("k.cu", "//@use b.cuh\n//@use c.cuh\nkernel\n"),
        TEMPLATE("c.cuh", "//@use a.cuh\nc\n"),
        TEMPLATE("b.cuh", "//@use a.cuh\nb\n"),
        TEMPLATE("a.cuh", "a\n"),
        TEMPLATE("unused.cuh", "unused\n"),
    };
    struct smelt__message message = {0};
    struct smelt__text out = {0};
    int index, line;
    assert_int_equal(smelt__parts_check(templates, 5, &index, &line, &message), 0);
    assert_int_equal(smelt__parts_emit(templates, 5, "k.cu", &scope, &out, &message), 0);
    assert_string_equal(out.data,
                        "#line 1 \"templates/a.cuh\"\na\n\n#line 2 \"templates/b.cuh\"\nb\n"
                        "\n#line 2 \"templates/c.cuh\"\nc\n\n#line 3 \"templates/k.cu\"\n"
                        "kernel\n");
    smelt__text_free(&out);
    assert_int_equal(smelt__parts_emit(templates, 5, "z.cu", &scope, &out, &message), -1);
    assert_non_null(strstr(message.text, "no template 'z.cu'"));
}

/* Parts with parameters: once for each set of values, in the order of their use. */
TEST(part_parameters) {
    static const struct smelt__template templates[] = {
        TEMPLATE("k.cu", "//@use p.cuh n = THREE - 1, m=THREE\n//@use q.cuh n = 5\n"
                         "//@use p.cuh m = 3, n = 2\n//@use p.cuh n = 3, m = 2\nkernel\n"),
        TEMPLATE("p.cuh", "//@use a.cuh\n//@takes n m\n//@if n < m\nless$n\n//@end\nf$n$m ${n*m}\n"
                          "//@for i in 0..n\n$i,$n\n//@end\n"),
        TEMPLATE("q.cuh", "//@takes n\n//@use p.cuh n = 0, m = n + 1\nq$n\n"),
        TEMPLATE("a.cuh", "a\n"),
    };
    struct smelt__message message = {0};
    struct smelt__text out = {0};
    int index, line;
    assert_int_equal(smelt__parts_check(templates, 4, &index, &line, &message), 0);
    assert_int_equal(smelt__parts_emit(templates, 4, "k.cu", &scope, &out, &message), 0);
    assert_string_equal(out.data,
                        "#line 1 \"templates/a.cuh\"\na\n\n#line 4 \"templates/p.cuh\"\nless2\n"
                        "#line 6 \"templates/p.cuh\"\nf23 6\n#line 8 \"templates/p.cuh\"\n0,2\n"
                        "#line 8 \"templates/p.cuh\"\n1,2\n\n#line 4 \"templates/p.cuh\"\nless0\n"
                        "#line 6 \"templates/p.cuh\"\nf06 0\n\n#line 3 \"templates/q.cuh\"\nq5\n"
                        "\n#line 6 \"templates/p.cuh\"\nf32 6\n#line 8 \"templates/p.cuh\"\n0,3\n"
                        "#line 8 \"templates/p.cuh\"\n1,3\n#line 8 \"templates/p.cuh\"\n2,3\n"
                        "\n#line 5 \"templates/k.cu\"\nkernel\n");
    smelt__text_free(&out);
}

/* Wrong arguments: the message and its line. */
TEST(wrong_arguments) {
    static const struct {
        const char *user;
        int line;
        const char *part;
        int emitted_only; /* the check of the whole table cannot detect it */
    } cases[] = {
        {"//@use p\n", 1, "p takes 'n', which is given no value", 0},
        {"\n//@use p n = 1, k = 2\n", 2, "p takes no 'k'", 0},
        {"//@use p n = 1, n = 1\n", 1, "p takes 'n', which is given twice", 0},
        {"//@use b n = 1\n", 1, "b takes no 'n'", 0},
        {"//@use p n = 1\n//@use p n = gone\n", 2, "is called 'gone'", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct smelt__template templates[] = {
            TEMPLATE("p", "//@takes n\n$n\n"),
            TEMPLATE("b", "b\n"),
            {.name = "k", .text = cases[i].user, .length = strlen(cases[i].user)},
        };
        struct smelt__message message = {0};
        struct smelt__text out = {0};
        int index = -1, line = -1;
        assert_int_equal(smelt__parts_check(templates, 3, &index, &line, &message),
                         cases[i].emitted_only ? 0 : -1);
        if (!cases[i].emitted_only) {
            assert_non_null(strstr(message.text, cases[i].part));
            assert_int_equal(index, 2);
            assert_int_equal(line, cases[i].line);
        }
        assert_int_equal(smelt__parts_emit(templates, 3, "k", &scope, &out, &message), -1);
        assert_non_null(strstr(message.text, cases[i].part));
        char place[40];
        snprintf(place, sizeof place, "templates/k:%d: ", cases[i].line);
        assert_non_null(strstr(message.text, place));
        assert_int_equal(smelt__parts_emit(templates, 3, "p", &scope, &out, &message), -1);
        assert_non_null(strstr(message.text, "p takes 'n', which is given no value"));
        smelt__text_free(&out);
    }
}

TEST(wrong_parts) {
    static const struct smelt__template cycle[] = {
        TEMPLATE("a", "//@use b\n"),
        TEMPLATE("b", "//@use c\n"),
        TEMPLATE("c", "\n//@use a\n"),
    };
    static const struct smelt__template itself[] = {TEMPLATE("a", "//@use a\n")};
    static const struct smelt__template missing[] = {TEMPLATE("a", "\n//@use gone\n")};
    struct smelt__message message = {0};
    struct smelt__text out = {0};
    int index, line;
    assert_int_equal(smelt__parts_emit(cycle, 3, "a", &scope, &out, &message), -1);
    assert_non_null(strstr(message.text, "c uses a, which uses it in turn"));
    assert_int_equal(smelt__parts_check(cycle, 3, &index, &line, &message), -1);
    assert_int_equal(index, 2);
    assert_int_equal(line, 2);
    assert_int_equal(smelt__parts_check(itself, 1, &index, &line, &message), -1);
    assert_int_equal(smelt__parts_emit(missing, 1, "a", &scope, &out, &message), -1);
    assert_non_null(strstr(message.text, "a uses gone, which does not exist"));
    assert_int_equal(smelt__parts_check(missing, 1, &index, &line, &message), -1);
    assert_int_equal(line, 2);
    smelt__text_free(&out);
}

/* ---- #line ----------------------------------------------------------------------------------- */

static const struct smelt__template *find_template(const char *name, size_t length) {
    struct smelt__message message;
    const struct smelt__template *const all = smelt__templates_embedded(&message);
    assert_non_null(all);
    for (int i = 0; i < smelt__template_count; i++)
        if (strlen(all[i].name) == length && memcmp(all[i].name, name, length) == 0)
            return &all[i];
    return NULL;
}

static const char *line_at(const char *text, int number) {
    for (; number > 1; number--)
        text = strchr(text, '\n') + 1;
    return text;
}

/* Every emitted line without a substitution equals, byte for byte, the template's line that the
 * markers name. */
TEST(line_markers) {
    struct smelt__spec spec;
    struct smelt__plan plan;
    struct smelt__text out = {0};
    struct smelt__message message = {0};
    assert_int_equal(smelt__spec_parse("sparse_attn_fwd:heads=24,dqk=576,dv=512,topk=2048,sink=1",
                                       &spec, &message),
                     0);
    assert_int_equal(smelt__plan_make(&spec, smelt__arch_find("sm_90a", &message), &plan, &message),
                     0);
    assert_int_equal(smelt__source_emit(&plan, NULL, &out, &message), 0);
    const struct smelt__template *template_ = NULL;
    int number = 0, compared = 0;
    for (const char *at = out.data; *at;) {
        size_t length = (size_t)(strchr(at, '\n') - at);
        if (strncmp(at, "#line ", 6) == 0) {
            const char *name = strstr(at, "\"templates/") + strlen("\"templates/");
            number = atoi(at + 6);
            template_ = find_template(name, (size_t)(strchr(name, '"') - name));
            assert_non_null(template_);
        } else if (template_) {
            const char *expected = line_at(template_->text, number++);
            size_t expected_length = (size_t)(strchr(expected, '\n') - expected);
            int separator = length == 0 && at[1] == '#';
            if (!separator && !memchr(expected, '$', expected_length)) {
                assert_int_equal(length, expected_length);
                assert_memory_equal(at, expected, length);
                compared++;
            }
        }
        at += length + 1;
    }
    smelt__text_free(&out);
    assert_true(compared > 100);
}

TESTS("engine")
