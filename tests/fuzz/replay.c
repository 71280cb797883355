/*
 * Runs a fuzz target without a fuzzer: on every input of the corpus, on every prefix of each, and
 * on random small changes of them.
 *
 *   fuzz_TARGET CORPUS.pack [CHANGES]
 *   fuzz_TARGET FILE                     one input: a finding of libFuzzer, or of this program
 *
 * A corpus is one file: the line `smelt corpus 2`, then for each input its length in decimal, a
 * space, its bytes, and a newline. scripts/fuzz.sh packs and unpacks it. An input that ends the
 * process is written to fuzz_TARGET.failed in the working folder. The message has its number in the
 * corpus (pack.py --unpack writes files with these numbers) and the change.
 */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "../unit/random.h"
#include "fuzz.h"

enum { MOST_INPUTS = 4096, MOST_BYTES = 1 << 16, MOST_CUTS = 4096 };

static const char head[] = "smelt corpus 2\n";
static char failed_name[128]; /* in the working folder */

static struct input {
    uint8_t *bytes;
    size_t count;
} inputs[MOST_INPUTS];
static size_t input_count;

static uint64_t random_state;

/* The current input, for the message if the process ends. */
static struct {
    const uint8_t *bytes;
    size_t count;
    char what[128];
} now;

static void put(int file, const void *bytes, size_t count) {
    ssize_t written = write(file, bytes, count);
    (void)written; /* the process is ending for another reason */
}

/* Async-signal-safe. */
static void tell_what_failed(void) {
    static const char words[] = "failed: ", kept[] = "; its bytes are in ";
    int file = open(failed_name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    put(2, words, sizeof words - 1);
    put(2, now.what, strlen(now.what));
    if (file >= 0) {
        put(file, now.bytes, now.count);
        close(file);
        put(2, kept, sizeof kept - 1);
        put(2, failed_name, strlen(failed_name));
    }
    put(2, "\n", 1);
}

static void end_by_signal(int number) {
    tell_what_failed();
    signal(number, SIG_DFL);
    raise(number);
}

/* The sanitizers' run-time library, where the program is built with one. */
__attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)(void));

static void watch_for_the_end(void) {
    static const int numbers[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTERM, SIGXCPU};
    if (__sanitizer_set_death_callback)
        __sanitizer_set_death_callback(tell_what_failed);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (!__sanitizer_set_death_callback || numbers[i] == SIGABRT || numbers[i] == SIGTERM)
            signal(numbers[i], end_by_signal);
}

/* Runs the input from memory of exactly its size, so that sanitizers detect reads beyond it. */
static void run(const uint8_t *bytes, size_t count) {
    uint8_t *exact = malloc(count ? count : 1);
    FUZZ_REQUIRE(exact);
    memcpy(exact, bytes, count);
    now.bytes = bytes;
    now.count = count;
    LLVMFuzzerTestOneInput(exact, count);
    free(exact);
}

/* The whole file, its length in *count; freed by the caller. */
static uint8_t *read_file(const char *path, size_t *count) {
    FILE *file = fopen(path, "rb");
    size_t room = MOST_BYTES, got;
    uint8_t *bytes = malloc(room);
    *count = 0;
    if (!file || !bytes) {
        perror(path);
        exit(2);
    }
    while ((got = fread(bytes + *count, 1, room - *count, file)) > 0) {
        *count += got;
        if (*count == room) {
            bytes = realloc(bytes, room *= 2);
            FUZZ_REQUIRE(bytes);
        }
    }
    fclose(file);
    return bytes;
}

/* Reads a length and the space after it at `at`, and moves `at` past them; SIZE_MAX: there is
 * none. */
static size_t read_length(const uint8_t *bytes, size_t count, size_t *at) {
    size_t length = 0, begin = *at;
    while (*at < count && bytes[*at] >= '0' && bytes[*at] <= '9' && length < MOST_BYTES)
        length = 10 * length + (size_t)(bytes[(*at)++] - '0');
    if (*at == begin || *at >= count || bytes[(*at)++] != ' ')
        return SIZE_MAX;
    return length;
}

static void read_corpus(const char *path, const uint8_t *bytes, size_t count) {
    for (size_t at = sizeof head - 1; at < count;) {
        size_t length = read_length(bytes, count, &at);
        if (input_count == MOST_INPUTS || length > MOST_BYTES || at >= count ||
            length >= count - at || bytes[at + length] != '\n') {
            fprintf(stderr,
                    "%s: input %zu has no length, is cut off, or is one of more than %d inputs or "
                    "of more than %d bytes\n",
                    path, input_count, MOST_INPUTS, MOST_BYTES);
            exit(2);
        }
        struct input *input = &inputs[input_count++];
        input->bytes = malloc(length ? length : 1);
        FUZZ_REQUIRE(input->bytes);
        memcpy(input->bytes, bytes + at, length);
        input->count = length;
        at += length + 1;
    }
}

static long run_cuts(size_t number) {
    const struct input *input = &inputs[number];
    size_t step = 1 + input->count / MOST_CUTS;
    long runs = 0;
    for (size_t count = 0; count < input->count; count += step, runs++) {
        snprintf(now.what, sizeof now.what,
                 "input %zu of the corpus, cut off after %zu of %zu bytes", number, count,
                 input->count);
        run(input->bytes, count);
    }
    snprintf(now.what, sizeof now.what, "input %zu of the corpus", number);
    run(input->bytes, input->count);
    return runs + 1;
}

/* Makes one to four changes: a byte, a bit, a piece repeated or removed, another input's end. */
static void run_changed(long change) {
    static uint8_t bytes[2 * MOST_BYTES];
    size_t number = next_random(&random_state) % input_count;
    const struct input *input = &inputs[number];
    size_t count = input->count;
    memcpy(bytes, input->bytes, count);
    for (uint64_t changes = 1 + next_random(&random_state) % 4; changes > 0 && count > 0;
         changes--) {
        size_t at = next_random(&random_state) % count, length = 1 + next_random(&random_state) % 8;
        if (length > count - at)
            length = count - at;
        switch (next_random(&random_state) % 5) {
        case 0:
            bytes[at] = (uint8_t)next_random(&random_state);
            break;
        case 1:
            bytes[at] ^= (uint8_t)(1u << next_random(&random_state) % 8);
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
            const struct input *other = &inputs[next_random(&random_state) % input_count];
            if (at < other->count) {
                memcpy(bytes + at, other->bytes + at, other->count - at);
                count = other->count;
            }
            break;
        }
        }
    }
    snprintf(now.what, sizeof now.what, "change %ld, of input %zu of the corpus", change, number);
    run(bytes, count);
}

int main(int argc, char **argv) {
    long changes = argc > 2 ? strtol(argv[2], NULL, 10) : 20000, runs = 0;
    size_t count;
    if (argc < 2) {
        fprintf(stderr, "usage: %s CORPUS.pack [CHANGES] | FILE\n", argv[0]);
        return 2;
    }
    uint8_t *bytes = read_file(argv[1], &count);
    const char *slash = strrchr(argv[0], '/');
    snprintf(failed_name, sizeof failed_name, "%s.failed", slash ? slash + 1 : argv[0]);
    watch_for_the_end();
    if (count < sizeof head - 1 || memcmp(bytes, head, sizeof head - 1) != 0) {
        snprintf(now.what, sizeof now.what, "the given input");
        run(bytes, count);
        free(bytes);
        printf("one input of %zu bytes: no defect shown\n", count);
        return 0;
    }
    random_state = test_seed("fuzz");
    fflush(stdout);
    read_corpus(argv[1], bytes, count);
    free(bytes);
    if (input_count == 0) {
        fprintf(stderr, "%s: no input\n", argv[1]);
        return 2;
    }
    for (size_t i = 0; i < input_count; i++)
        runs += run_cuts(i);
    for (long i = 0; i < changes; i++)
        run_changed(i);
    printf("figure: %zu inputs of the corpus, %ld cuts of them, %ld changes\n", input_count, runs,
           changes);
    for (size_t i = 0; i < input_count; i++)
        free(inputs[i].bytes);
    return 0;
}
