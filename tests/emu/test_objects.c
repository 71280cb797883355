/* The cache of compiled objects: look-ups by everything that affects the output, and trust. */
#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../unit/files.h"
#include "../unit/test.h"
#include "emu/compiler/objects.h"

static const char *const options[] = {"-O1", "-g", NULL};
static char folder[64];

static struct emu_object_key key_of(const char *compiler, const char *text) {
    struct emu_object_key key;
    assert_int_equal(emu_object_key(compiler, options, text, &key), 0);
    return key;
}

static void assert_different(struct emu_object_key a, struct emu_object_key b) {
    assert_memory_not_equal(&a, &b, sizeof a);
}

TEST(key_names_the_output) {
    char compiler[96], command[128];
    struct emu_object_key key, other;
    snprintf(compiler, sizeof compiler, "%s/cc", folder);
    assert_int_equal(write_text(compiler, "one", 0700), 0);
    key = key_of(compiler, "text");
    other = key_of(compiler, "text");
    assert_memory_equal(&key, &other, sizeof key);
    assert_different(key, key_of(compiler, "texts"));
    assert_int_equal(emu_object_key(compiler, options + 1, "text", &other), 0);
    assert_different(key, other);
    snprintf(command, sizeof command, "%s -m64", compiler);
    assert_different(key, key_of(command, "text"));
    snprintf(command, sizeof command, "/bin/sh %s", compiler);
    assert_different(key, key_of(command, "text"));
    setenv("COMPILER_PATH", "/elsewhere", 1);
    assert_different(key, key_of(compiler, "text"));
    unsetenv("COMPILER_PATH");
    /* Another version with the same length. */
    unlink(compiler);
    assert_int_equal(write_text(compiler, "two", 0700), 0);
    const struct timespec times[2] = {{1, 0}, {1, 0}};
    utimensat(AT_FDCWD, compiler, times, 0);
    assert_different(key, key_of(compiler, "text"));
    unlink(compiler);
    assert_int_equal(emu_object_key(compiler, options, "text", &key), -1);
    assert_int_equal(emu_object_key("no-such-compiler", options, "text", &key), -1);
}

TEST(programs_are_found_in_path) {
    char path[128], compiler[96], *before = strdup(getenv("PATH"));
    snprintf(compiler, sizeof compiler, "%s/own-cc", folder);
    assert_int_equal(write_text(compiler, "one", 0700), 0);
    struct emu_object_key key = key_of(compiler, "text"), other;
    snprintf(path, sizeof path, "/nowhere:%s", folder);
    setenv("PATH", path, 1);
    other = key_of("own-cc", "text");
    assert_memory_equal(&key, &other, sizeof key);
    setenv("PATH", before, 1);
    free(before);
    unlink(compiler);
}

/* ---- keeping --------------------------------------------------------------------------------- */

enum { BYTES = 200, STRANGER = 4321 };

static struct smelt__cache *open_objects(const char *path) {
    char why[512];
    struct smelt__cache *objects = emu_objects_open(path, why, sizeof why);
    if (!objects)
        fail_msg("%s", why);
    return objects;
}

/* A fake shared object: an ELF header, then bytes that depend on the text. */
static void make_object(const char *text, unsigned char object[BYTES]) {
    const Elf64_Ehdr head = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
                             .e_type = ET_DYN,
                             .e_machine = EM_X86_64};
    memset(object, text[strlen(text) - 1], BYTES);
    memcpy(object, &head, sizeof head);
}

static void keep(const char *path, const char *text) {
    const struct emu_object_key key = key_of("/bin/sh", text);
    struct smelt__cache *objects = open_objects(path);
    unsigned char object[BYTES];
    make_object(text, object);
    emu_object_keep(objects, &key, object, BYTES);
    smelt__cache_close(objects);
}

static int finds(const char *path, const char *text) {
    const struct emu_object_key key = key_of("/bin/sh", text);
    struct smelt__cache *objects = open_objects(path);
    unsigned char *object, wanted[BYTES];
    size_t bytes;
    const int found = emu_object_find(objects, &key, &object, &bytes) == 0;
    smelt__cache_close(objects);
    if (found) {
        make_object(text, wanted);
        assert_int_equal(bytes, BYTES);
        assert_memory_equal(object, wanted, BYTES);
    } else {
        assert_null(object);
    }
    free(object);
    return found;
}

/* Runs a shell command on the folder and returns its output as a number. */
static long shell(const char *format, const char *path) {
    char command[512];
    long number = 0;
    snprintf(command, sizeof command, format, path, path, path);
    FILE *pipe = popen(command, "re");
    assert_non_null(pipe);
    (void)!fscanf(pipe, "%ld", &number);
    assert_int_equal(pclose(pipe), 0);
    return number;
}

TEST(stored_objects_are_found) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/kept", folder);
    assert_int_equal(finds(path, "kernel a"), 0);
    keep(path, "kernel a");
    assert_int_equal(finds(path, "kernel a"), 1);
    assert_int_equal(finds(path, "kernel b"), 0);
    keep(path, "kernel b");
    assert_int_equal(finds(path, "kernel a") + finds(path, "kernel b"), 2);
}

/* A user's folder with names like those of earlier objects: no file is removed. */
TEST(a_users_files_stay) {
    char path[PATH_MAX], text[32];
    snprintf(path, sizeof path, "%s/pics", folder);
    shell("for d in 2 f emulated emulated/ab; do mkdir -p %s/$d; for i in $(seq 200); do "
          "echo $d-$i >%s/$d/$i.jpg; done; done; find %s -exec touch -d '3 years ago' {} +; echo 0",
          path);
    const long before = shell("cd %s; cat $(find . -name '*.jpg' | sort) | cksum", path);
    for (int i = 0; i < 40; i++) {
        snprintf(text, sizeof text, "kernel %d", i);
        keep(path, text);
        assert_int_equal(finds(path, text), 1);
    }
    assert_int_equal(shell("cd %s; cat $(find . -name '*.jpg' | sort) | cksum", path), before);
    assert_int_equal(shell("find %s -name '*.jpg' | wc -l", path), 800);
}

/* The object is replaced by: a FIFO, which must not block, a link to a valid object, a damaged one,
 * one that others can write, another user's. */
TEST(strange_objects_are_not_taken) {
    static const char *const commands[] = {
        "f=$(find %s -name '*.smelt'); rm $f && mkfifo $f",
        "f=$(find %s -name '*.smelt'); mv $f %s/aside && ln -s %s/aside $f",
        "f=$(find %s -name '*.smelt'); printf x | dd of=$f bs=1 seek=700 conv=notrunc 2>/dev/null",
        "f=$(find %s -name '*.smelt'); chmod 0666 $f",
        "f=$(find %s -name '*.smelt'); chown 4321 $f",
    };
    char path[PATH_MAX];
    alarm(30);
    for (size_t i = 0; i < sizeof commands / sizeof *commands - (geteuid() != 0); i++) {
        snprintf(path, sizeof path, "%s/strange%zu", folder, i);
        keep(path, "kernel");
        assert_int_equal(finds(path, "kernel"), 1);
        shell(commands[i], path);
        assert_int_equal(finds(path, "kernel"), 0);
        keep(path, "kernel"); /* in its place */
        assert_int_equal(finds(path, "kernel"), 1);
    }
    alarm(0);
}

TEST(bad_folders_are_refused) {
    char path[PATH_MAX], why[512];
    assert_null(emu_objects_open("/dev/null/objects", why, sizeof why));
    assert_non_null(strstr(why, "/dev/null"));
    snprintf(path, sizeof path, "%s/open", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(chmod(path, 0777), 0);
    assert_null(emu_objects_open(path, why, sizeof why));
    assert_non_null(strstr(why, "writable by everyone"));
    if (geteuid() != 0)
        return;
    assert_int_equal(chmod(path, 0755), 0);
    assert_int_equal(chown(path, STRANGER, STRANGER), 0);
    assert_null(emu_objects_open(path, why, sizeof why));
    assert_non_null(strstr(why, "another user"));
}

static int make_folder(void **state) {
    (void)state;
    return make_scratch(folder, sizeof folder);
}

static int remove_folder(void **state) {
    (void)state;
    return remove_tree(folder);
}

TESTS("objects", .group_setup = make_folder, .group_teardown = remove_folder)
