/* Objects that are kept: found again by all that decides what is made, and never another's. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "emu/compiler/objects.h"

static const char *const options[] = {"-O1", "-g"};
static char folder[] = "/tmp/smelt-objects-XXXXXX";

static struct emu_object_key key_of(const char *compiler, const char *text) {
    struct emu_object_key key;
    assert_int_equal(emu_object_key(compiler, options, 2, text, &key), 0);
    return key;
}

static void assert_different(struct emu_object_key a, struct emu_object_key b) {
    assert_memory_not_equal(&a, &b, sizeof a);
}

static void write_file(const char *path, const char *text) {
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, 0700), 0);
}

static void key_says_what_is_made(void **state) {
    (void)state;
    char compiler[64], command[128];
    struct emu_object_key key, other;
    snprintf(compiler, sizeof compiler, "%s/cc", folder);
    write_file(compiler, "one");
    key = key_of(compiler, "text");
    other = key_of(compiler, "text");
    assert_memory_equal(&key, &other, sizeof key);
    assert_different(key, key_of(compiler, "texts"));
    assert_int_equal(emu_object_key(compiler, options, 1, "text", &other), 0);
    assert_different(key, other);
    snprintf(command, sizeof command, "%s -m64", compiler);
    assert_different(key, key_of(command, "text"));
    snprintf(command, sizeof command, "/bin/sh %s", compiler);
    assert_different(key, key_of(command, "text"));
    setenv("COMPILER_PATH", "/elsewhere", 1);
    assert_different(key, key_of(compiler, "text"));
    unsetenv("COMPILER_PATH");
    /* Another version in its place, as long as the first. */
    unlink(compiler);
    write_file(compiler, "two");
    const struct timespec times[2] = {{1, 0}, {1, 0}};
    utimensat(AT_FDCWD, compiler, times, 0);
    assert_different(key, key_of(compiler, "text"));
    unlink(compiler);
    assert_int_equal(emu_object_key(compiler, options, 2, "text", &key), -1);
    assert_int_equal(emu_object_key("no-such-compiler", options, 2, "text", &key), -1);
}

static void programs_are_found_in_path(void **state) {
    (void)state;
    char path[128], compiler[64], *before = strdup(getenv("PATH"));
    snprintf(compiler, sizeof compiler, "%s/own-cc", folder);
    write_file(compiler, "one");
    struct emu_object_key key = key_of(compiler, "text"), other;
    snprintf(path, sizeof path, "/nowhere:%s", folder);
    setenv("PATH", path, 1);
    other = key_of("own-cc", "text");
    assert_memory_equal(&key, &other, sizeof key);
    setenv("PATH", before, 1);
    free(before);
    unlink(compiler);
}

static int find(const char *text, unsigned char **object, size_t *bytes) {
    const struct emu_object_key key = key_of("/bin/sh", text);
    return emu_object_find(folder, &key, object, bytes);
}

static void keep(const char *text, const void *object, size_t bytes) {
    const struct emu_object_key key = key_of("/bin/sh", text);
    emu_object_keep(folder, &key, object, bytes);
}

static void what_is_kept_is_found(void **state) {
    (void)state;
    unsigned char *object = NULL;
    size_t bytes = 0;
    assert_int_equal(find("kernel", &object, &bytes), -1);
    keep("kernel", "machine code", 12);
    assert_int_equal(find("kernel", &object, &bytes), 0);
    assert_int_equal(bytes, 12);
    assert_memory_equal(object, "machine code", 12);
    free(object);
    assert_int_equal(find("kernels", &object, &bytes), -1);
}

/* The file of the one object there is. */
static void path_of(const char *text, char path[128]) {
    const struct emu_object_key key = key_of("/bin/sh", text);
    int length = snprintf(path, 128, "%s/%x/", folder, key.bytes[0] >> 4);
    for (size_t i = 0; i < sizeof key.bytes; i++)
        length += snprintf(path + length, 128 - (size_t)length, "%02x", key.bytes[i]);
}

/* A byte changed anywhere, a file cut anywhere, another's file in its place: as good as none. */
static void damage_is_seen(void **state) {
    (void)state;
    char path[128], other[128];
    unsigned char *object = NULL, file_bytes[128];
    size_t bytes = 0;
    keep("kernel", "machine code", 12);
    path_of("kernel", path);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t length = read(file, file_bytes, sizeof file_bytes);
    close(file);
    assert_in_range(length, 13, sizeof file_bytes);
    for (ssize_t i = 0; i < 2 * length; i++) {
        file = open(path, O_RDWR | O_TRUNC | O_CLOEXEC);
        file_bytes[i % length] ^= 0x10;
        const ssize_t written = i < length ? length : i - length;
        assert_int_equal(write(file, file_bytes, (size_t)written), written);
        file_bytes[i % length] ^= 0x10;
        close(file);
        assert_int_equal(find("kernel", &object, &bytes), -1);
        assert_null(object);
    }
    keep("other", "other code", 10);
    path_of("other", other);
    assert_int_equal(rename(other, path), 0);
    assert_int_equal(find("kernel", &object, &bytes), -1);
}

static size_t count_files(void) {
    char command[128];
    size_t count = 0;
    snprintf(command, sizeof command, "find %s -type f | wc -l", folder);
    FILE *pipe = popen(command, "re");
    assert_non_null(pipe);
    assert_int_equal(fscanf(pipe, "%zu", &count), 1);
    pclose(pipe);
    return count;
}

/* What is asked for stays; the rest goes when there is too much. */
static void old_ones_go(void **state) {
    (void)state;
    unsigned char *object = NULL;
    size_t bytes = 0;
    char text[32];
    keep("used", "code", 4);
    for (int i = 0; i < 3500; i++) {
        snprintf(text, sizeof text, "kernel %d", i);
        keep(text, text, strlen(text));
        assert_int_equal(find("used", &object, &bytes), 0);
        free(object);
    }
    assert_in_range(count_files(), 16 * 80, 16 * 128);
}

/* Processes that keep and find the same objects at once: whole or not there. */
static void processes_share(void **state) {
    (void)state;
    enum { PROCESSES = 6, ROUNDS = 300, BYTES = 50000 };
    unsigned char *data = malloc(BYTES);
    for (int p = 0; p < PROCESSES; p++) {
        if (fork() != 0)
            continue;
        for (int i = 0; i < ROUNDS; i++) {
            unsigned char *object;
            size_t bytes;
            char text[32];
            snprintf(text, sizeof text, "shared %d", (i * 7 + p) % 20);
            memset(data, (i * 7 + p) % 20, BYTES);
            if (find(text, &object, &bytes) != 0)
                keep(text, data, BYTES);
            else if (bytes != BYTES || memcmp(object, data, BYTES) != 0)
                _exit(1);
            else
                free(object);
            if (i % 50 == p)
                keep(text, data, BYTES);
        }
        _exit(0);
    }
    for (int p = 0, status; p < PROCESSES; p++) {
        wait(&status);
        assert_int_equal(status, 0);
    }
    free(data);
}

static void nowhere_to_keep_it(void **state) {
    (void)state;
    unsigned char *object = NULL;
    size_t bytes = 0;
    const struct emu_object_key key = key_of("/bin/sh", "kernel");
    emu_object_keep("/dev/null/objects", &key, (const unsigned char *)"code", 4);
    assert_int_equal(emu_object_find("/dev/null/objects", &key, &object, &bytes), -1);
}

static int make_folder(void **state) {
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(key_says_what_is_made), cmocka_unit_test(programs_are_found_in_path),
        cmocka_unit_test(what_is_kept_is_found), cmocka_unit_test(damage_is_seen),
        cmocka_unit_test(old_ones_go),           cmocka_unit_test(processes_share),
        cmocka_unit_test(nowhere_to_keep_it),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
