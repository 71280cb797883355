/* Full disks: a tmpfs of 64 KB, and one without free inodes, mounted in a name space of this
 * process. Kernels are still made, stored entries stay valid, no partial file remains, and the
 * cache works again after space is freed. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "torture.h"

enum { CUBIN_BYTES = 5000, KERNELS = 40 };

static void write_map(const char *path, unsigned id) {
    FILE *file = fopen(path, "w");
    REQUIRE(file);
    fprintf(file, "0 %u 1", id);
    REQUIRE(fclose(file) == 0);
}

/* Becomes root of a new name space unless it is root already. */
static void enter_namespace(void) {
    unsigned user = geteuid(), group = getegid();
    if (unshare(user == 0 ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS) != 0)
        skip("no name spaces here: unshare: %s", strerror(errno));
    if (user != 0) {
        FILE *file = fopen("/proc/self/setgroups", "w");
        if (file) {
            fputs("deny", file);
            fclose(file);
        }
        write_map("/proc/self/uid_map", user);
        write_map("/proc/self/gid_map", group);
    }
    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        skip("mounts cannot be made private here: %s", strerror(errno));
}

static void mount_small(const char *place, const char *options) {
    REQUIRE(mkdir(place, 0700) == 0);
    if (mount("tmpfs", place, "tmpfs", 0, options) != 0)
        skip("no tmpfs can be mounted here: %s", strerror(errno));
}

static int require_sound(void *user, const char *file, const smelt_kernel_info *info) {
    if (info->state == SMELT_KERNEL_FAILED)
        fprintf(stderr, "%s: %s\n", file, info->error);
    REQUIRE(info->state == SMELT_KERNEL_CACHED);
    ++*(long *)user;
    return 0;
}

/* Returns how many of KERNELS kernels were stored. */
static long fill_disk(const char *place) {
    char folder[TORTURE_PATH];
    struct notes notes = {0};
    long kept = 0;
    snprintf(folder, sizeof folder, "%.4000s/cache", place);
    smelt_context_options options = torture_options(folder, &notes);
    smelt_context *context = torture_context(&options);
    for (int round = 0; round < 2; round++)
        for (int n = 0; n < KERNELS; n++)
            REQUIRE(obtain(context, n) == RIGHT);
    REQUIRE(notes.warnings == 1); /* one, not one per kernel */
    printf("warned of: %s\n", notes.last);
    REQUIRE(strstr(notes.last, "No space left"));
    REQUIRE(count_files(folder, ".tmp-") <= 0);
    if (smelt_cache_walk(context, NULL, require_sound, &kept) == SMELT_OK && kept > 0) {
        /* Space is freed and used by the same context. */
        for (int n = 0; n < KERNELS; n++)
            forget(folder, n);
        REQUIRE(obtain(context, KERNELS) == RIGHT);
        long again = 0;
        REQUIRE(smelt_cache_walk(context, NULL, require_sound, &again) == SMELT_OK);
        REQUIRE(again == 1);
    }
    smelt_context_destroy(&context);
    return kept;
}

int row_disk(const struct arguments *arguments) {
    const char *scratch = scratch_folder(false);
    char bytes[TORTURE_PATH], inodes[TORTURE_PATH], none[TORTURE_PATH];
    (void)arguments;
    fakes_nvrtc()->cubin_bytes = CUBIN_BYTES;
    enter_namespace();
    snprintf(bytes, sizeof bytes, "%.4000s/bytes", scratch);
    snprintf(inodes, sizeof inodes, "%.4000s/inodes", scratch);
    snprintf(none, sizeof none, "%.4000s/none", scratch);
    mount_small(bytes, "size=64k,mode=700");
    mount_small(inodes, "nr_inodes=12,mode=700");
    mount_small(none, "nr_inodes=1,mode=700"); /* in a folder of its own */
    long by_bytes = fill_disk(bytes), by_inodes = fill_disk(inodes), by_none = fill_disk(none);
    umount(bytes);
    umount(inodes);
    umount(none);
    figure(
        "a tmpfs of 64 KB kept %ld of %d kernels, one of 12 inodes %ld, one without any %ld: all "
        "were right, one warning each, nothing half-written, and the cache goes on when there is "
        "room",
        by_bytes, KERNELS, by_inodes, by_none);
    REQUIRE(by_bytes > 0 && by_bytes < KERNELS && by_inodes > 0 && by_none == 0);
    return 0;
}
