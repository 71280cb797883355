/*
 * Drives a fuzz target without a fuzzer: every file of the corpus folder, each cut off at every
 * byte, and random small changes of them.
 *
 *   fuzz_TARGET CORPUS [CHANGES]
 */
#include <dirent.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "fuzz.h"

enum { MOST_FILES = 4096, MOST_BYTES = 1 << 16, MOST_CUTS = 4096 };

static struct input {
    uint8_t *bytes;
    size_t count;
} inputs[MOST_FILES];
static size_t input_count;

static uint64_t random_state;

/* splitmix64 */
static uint64_t next_random(void) {
    uint64_t mixed = random_state += UINT64_C(0x9e3779b97f4a7c15);
    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94d049bb133111eb);
    return mixed ^ (mixed >> 31);
}

/* From memory of exactly its size, so that sanitizers see a byte too many. */
static void run(const uint8_t *bytes, size_t count) {
    uint8_t *exact = malloc(count ? count : 1);
    FUZZ_REQUIRE(exact);
    memcpy(exact, bytes, count);
    LLVMFuzzerTestOneInput(exact, count);
    free(exact);
}

static void read_corpus(const char *folder) {
    char path[4096];
    DIR *names = opendir(folder);
    struct dirent *item;

    FUZZ_REQUIRE(names);
    while ((item = readdir(names)) != NULL && input_count < MOST_FILES) {
        struct input *input = &inputs[input_count];
        struct stat status;
        snprintf(path, sizeof path, "%.3000s/%s", folder, item->d_name);
        if (stat(path, &status) != 0 || !S_ISREG(status.st_mode))
            continue;
        FILE *file = fopen(path, "rb");
        input->bytes = malloc(MOST_BYTES);
        FUZZ_REQUIRE(file && input->bytes);
        input->count = fread(input->bytes, 1, MOST_BYTES, file);
        fclose(file);
        input_count++;
    }
    closedir(names);
}

static long run_cuts(const struct input *input) {
    size_t step = 1 + input->count / MOST_CUTS;
    long runs = 0;
    for (size_t count = 0; count <= input->count; count += step, runs++)
        run(input->bytes, count);
    return runs;
}

/* One to four changes: a byte, a bit, a piece doubled or left out, another input's end. */
static void run_changed(void) {
    static uint8_t bytes[2 * MOST_BYTES];
    const struct input *input = &inputs[next_random() % input_count];
    size_t count = input->count;

    memcpy(bytes, input->bytes, count);
    for (uint64_t changes = 1 + next_random() % 4; changes > 0 && count > 0; changes--) {
        size_t at = next_random() % count, length = 1 + next_random() % 8;
        if (length > count - at)
            length = count - at;
        switch (next_random() % 5) {
        case 0:
            bytes[at] = (uint8_t)next_random();
            break;
        case 1:
            bytes[at] ^= (uint8_t)(1u << next_random() % 8);
            break;
        case 2:
            memmove(bytes + at + length, bytes + at, count - at);
            count += length;
            break;
        case 3:
            memmove(bytes + at, bytes + at + length, count - at - length);
            count -= length;
            break;
        case 4: {
            const struct input *other = &inputs[next_random() % input_count];
            if (at < other->count) {
                memcpy(bytes + at, other->bytes + at, other->count - at);
                count = other->count;
            }
            break;
        }
        }
    }
    run(bytes, count);
}

int main(int argc, char **argv) {
    const char *given = getenv("SMELT_TEST_SEED");
    long changes = argc > 2 ? strtol(argv[2], NULL, 10) : 20000, runs = 0;

    FUZZ_REQUIRE(argc > 1);
    random_state = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
    printf("SMELT_TEST_SEED=%llu\n", (unsigned long long)random_state);
    fflush(stdout);
    read_corpus(argv[1]);
    FUZZ_REQUIRE(input_count > 0);
    for (size_t i = 0; i < input_count; i++)
        runs += run_cuts(&inputs[i]);
    for (long i = 0; i < changes; i++)
        run_changed();
    printf("figure: %zu files of the corpus, %ld cuts of them, %ld changes\n", input_count, runs,
           changes);
    for (size_t i = 0; i < input_count; i++)
        free(inputs[i].bytes);
    return 0;
}
