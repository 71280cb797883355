#include "harness/emulated.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/random.h"

enum { STREAM_SCHEDULE = 301, TIMINGS = EMU_RANDOM + 1, ORDERS = EMU_SHUFFLED + 1 };

static const char *const timing_names[TIMINGS] = {"late", "early", "random"};
static const char *const order_names[ORDERS] = {"ascending", "descending", "shuffled"};

/* ---- the library ----------------------------------------------------------------------------- */

static const struct emu_interface *emulator;
static emu_source_problem_function source_problem;
static pthread_once_t emulator_once = PTHREAD_ONCE_INIT;

/* The library is never closed: kernels in it may be loaded until the process ends. */
static void look_for_emulator(void) {
    const char *path = secure_getenv("SMELT_CUDA");
    void *library = path && *path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    void *symbol = library ? dlsym(library, "emu_get") : NULL;
    emu_get_function get;
    if (!symbol)
        return;
    memcpy(&get, &symbol,
           sizeof get); /* POSIX: a function's address, for which ISO C has no cast */
    emulator = get();
    symbol = dlsym(library, "emu_source_problem");
    memcpy(&source_problem, &symbol, sizeof source_problem);
}

const struct emu_interface *smelt__emulator(void) {
    pthread_once(&emulator_once, look_for_emulator);
    return emulator;
}

const char *smelt__emulator_source_problem(void) {
    return smelt__emulator() && source_problem ? source_problem() : NULL;
}

void smelt__emulator_use(const struct emu_interface *interface) {
    pthread_once(&emulator_once, look_for_emulator);
    emulator = interface;
}

void smelt__emulator_configure(const char *arch, struct smelt__schedule schedule, double seconds) {
    const struct emu_interface *interface = smelt__emulator();
    struct emu_settings settings = {.size = sizeof settings};
    int capability = 0; /* 90 for sm_90a */
    if (!interface)
        return;
    if (sscanf(arch, "sm_%d", &capability) == 1) {
        settings.major = capability / 10;
        settings.minor = capability % 10;
    }
    settings.timing = schedule.timing;
    settings.order = schedule.order;
    settings.seed = schedule.seed;
    settings.seconds = seconds;
    interface->configure(&settings);
}

/* ---- schedules ------------------------------------------------------------------------------- */

static int is_random(struct smelt__schedule schedule) {
    return schedule.timing == EMU_RANDOM || schedule.order == EMU_SHUFFLED;
}

struct smelt__schedule smelt__schedule_at(uint64_t seed, int number) {
    static const struct smelt__schedule first[] = {
        {EMU_LATE, EMU_ASCENDING, 0},
        {EMU_EARLY, EMU_DESCENDING, 0},
        {EMU_RANDOM, EMU_SHUFFLED, 0},
        {EMU_LATE, EMU_SHUFFLED, 0},
    };
    struct smelt__schedule schedule = {EMU_RANDOM, EMU_SHUFFLED, 0};
    struct smelt__random random = smelt__random_at(seed, STREAM_SCHEDULE, (uint64_t)number);
    if (number < (int)(sizeof first / sizeof first[0]))
        schedule = first[number];
    if (is_random(schedule)) /* 32 bits, to keep the printed command short */
        schedule.seed = smelt__random_next(&random) >> 32;
    return schedule;
}

void smelt__schedule_print(struct smelt__schedule schedule, char text[SMELT__SCHEDULE_TEXT]) {
    int length = snprintf(text, SMELT__SCHEDULE_TEXT, "%s,%s", timing_names[schedule.timing],
                          order_names[schedule.order]);
    if (is_random(schedule))
        snprintf(text + length, SMELT__SCHEDULE_TEXT - (size_t)length, ",%llu",
                 (unsigned long long)schedule.seed);
}

/* The number of the name at *text, which ends at a comma or the text's end; moves *text past it.
 * -1: no such name. */
static int take_name(const char **text, const char *const *names, int count) {
    size_t length = strcspn(*text, ",");
    for (int i = 0; i < count; i++)
        if (strlen(names[i]) == length && strncmp(names[i], *text, length) == 0) {
            *text += length;
            return i;
        }
    return -1;
}

static int take_seed(const char *text, uint64_t *seed) {
    char *end;
    if (*text == '\0')
        return 0;
    if (text[0] != ',' || text[1] < '0' || text[1] > '9')
        return -1;
    errno = 0;
    *seed = strtoull(text + 1, &end, 0);
    return errno || *end ? -1 : 0;
}

int smelt__schedule_parse(const char *text, struct smelt__schedule *schedule, char *message,
                          size_t size) {
    const char *at = text;
    int timing = take_name(&at, timing_names, TIMINGS), order = -1;
    uint64_t seed = 0;
    if (timing >= 0 && *at == ',') {
        at++;
        order = take_name(&at, order_names, ORDERS);
    }
    if (order < 0 || take_seed(at, &seed) != 0) {
        snprintf(message, size,
                 "--schedule: '%s' is none of late, early or random, a comma, and ascending, "
                 "descending or shuffled; where something is random, a comma and a seed may follow",
                 text);
        return -1;
    }
    *schedule = (struct smelt__schedule){(enum emu_timing)timing, (enum emu_order)order, seed};
    return 0;
}
