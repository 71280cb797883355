/* The strings that a context hands out: each text once, from any thread, and a bound for notes. */
#include <pthread.h>

#include "runtime/strings.h"
#include "smelt/status.h"
#include "test.h"

enum { TEXTS = 5000, THREADS = 8 };

static struct smelt__strings *strings;

static int set_up(void **state) {
    (void)state;
    strings = smelt__strings_new();
    return strings ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    smelt__strings_free(strings);
    return 0;
}

TEST(each_text_once) {
    char text[] = "sm_90a";
    const char *kept = smelt__strings_keep(strings, text);
    text[0] = 'x';
    assert_string_equal(kept, "sm_90a");
    assert_ptr_equal(smelt__strings_keep(strings, "sm_90a"), kept);
    assert_ptr_equal(smelt__strings_note(strings, "sm_90a"), kept);
    assert_string_equal(smelt__strings_keep(strings, text), "xm_90a");
    assert_string_equal(smelt__strings_keep(strings, ""), "");
    smelt__strings_free(NULL);
}

static const char *found[THREADS][TEXTS];

static void *keep_all(void *user) {
    const int thread = (int)(intptr_t)user;
    char text[32];
    for (int i = 0; i < TEXTS; i++) {
        const int number = (i + thread * (TEXTS / THREADS / 2)) % TEXTS; /* they meet */
        snprintf(text, sizeof text, "text %d", number);
        found[thread][number] = smelt__strings_keep(strings, text);
    }
    return NULL;
}

TEST(threads_share) {
    pthread_t threads[THREADS];
    char text[32];
    for (intptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, keep_all, (void *)i), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < TEXTS; i++) {
        snprintf(text, sizeof text, "text %d", i);
        assert_string_equal(found[0][i], text);
        for (int k = 1; k < THREADS; k++)
            assert_ptr_equal(found[k][i], found[0][i]);
    }
}

/* A context's memory for messages is bounded. */
TEST(notes_are_bounded) {
    char text[1024];
    size_t held = 0;
    const char *first = NULL, *full = NULL;
    for (int i = 0; i < 3 * SMELT__STRINGS_NOTES / 1000; i++) {
        snprintf(text, sizeof text, "%01000d", i);
        const char *note = smelt__strings_note(strings, text);
        assert_non_null(note);
        if (!first)
            first = note;
        if (strcmp(note, text) == 0) {
            held += strlen(text) + 1;
            continue;
        }
        if (!full)
            full = note;
        assert_ptr_equal(note, full);
    }
    assert_non_null(full);
    assert_true(strlen(full) > 0);
    assert_true(held <= SMELT__STRINGS_NOTES && held > SMELT__STRINGS_NOTES - 2000);
    /* Existing texts are still found, a shorter one still fits, and a kernel's strings have no
     * bound. */
    snprintf(text, sizeof text, "%01000d", 0);
    assert_ptr_equal(smelt__strings_note(strings, text), first);
    assert_string_equal(smelt__strings_note(strings, "short"), "short");
    snprintf(text, sizeof text, "%01000d", -1);
    assert_string_equal(smelt__strings_keep(strings, text), text);
}

TESTS("strings", .setup = set_up, .teardown = tear_down)
