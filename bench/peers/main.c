/*
 * Times and checks smelt's forward pass beside FlashMLA's, or beside an older smelt's, in one
 * process. README.md says how to build the contenders.
 *
 *   peers time     --with NAME=FILE[:OPTIONS]... [--rounds N] [--only TEXT] [--seed N]
 *   peers accuracy --with NAME=FILE[:OPTIONS]... [--heads N,N,...] [--sample N] [--seed N]
 * [--verbose]
 *
 * `--list` prints the rows or cases instead, without a GPU or a contender.
 * `time`: exit status 0 when every row was timed; a contender whose result is wrong is not timed.
 * `accuracy`: 0 when no case misses, 1 else. 2: usage; 3: no GPU.
 */
#include <stdlib.h>
#include <string.h>

#include "rig.h"

enum { FAILED = 1, USAGE = 2, NO_GPU = 3, DEFAULT_ROUNDS = 40, DEFAULT_SAMPLE = 4096 };

static int usage(const char *what) {
    fprintf(stderr,
            "%s\n"
            "usage: peers time     --with NAME=FILE[:OPTIONS]... [--rounds N] [--only TEXT]\n"
            "                      [--seed N]\n"
            "       peers accuracy --with NAME=FILE[:OPTIONS]... [--heads N,N,...] [--sample N]\n"
            "                      [--seed N] [--verbose]\n"
            "       peers time|accuracy --list\n",
            what);
    return USAGE;
}

static int number(const char *text, long least, long most, long *value) {
    char *end;
    *value = strtol(text, &end, 10);
    return end != text && *end == '\0' && *value >= least && *value <= most;
}

static int read_heads(const char *text, struct peers_options *options) {
    char copy[256], *rest = copy, *word;
    snprintf(copy, sizeof copy, "%s", text);
    while ((word = strsep(&rest, ","))) {
        long heads;
        if (options->head_count == (int)(sizeof options->heads / sizeof *options->heads) ||
            !number(word, 1, 1024, &heads))
            return 0;
        options->heads[options->head_count++] = (int)heads;
    }
    return 1;
}

/* 0, or an exit status. */
static int read_option(const char *name, const char *value, struct peers_options *options) {
    long given = 0;
    if (!value)
        return usage(name);
    if (strcmp(name, "--with") == 0) {
        if (options->contender_count == MAX_CONTENDERS)
            return usage("--with: too many");
        if (peers_contender_open(&options->contenders[options->contender_count++], value) == 0)
            return 0;
        fprintf(stderr, "peers: %s\n", peers_problem());
        return USAGE;
    }
    if (strcmp(name, "--only") == 0) {
        options->only = value;
        return 0;
    }
    if (strcmp(name, "--heads") == 0)
        return read_heads(value, options) ? 0 : usage("--heads: expected N,N,...");
    if (strcmp(name, "--rounds") == 0 && number(value, 1, 400, &given))
        options->rounds = (int)given;
    else if (strcmp(name, "--sample") == 0 && number(value, 1, 1 << 20, &given))
        options->sample = (int)given;
    else if (strcmp(name, "--seed") == 0 && number(value, 0, 1L << 62, &given))
        options->seed = (uint64_t)given;
    else
        return usage(name);
    return 0;
}

int main(int argc, char **argv) {
    struct peers_options options = {.rounds = DEFAULT_ROUNDS, .sample = DEFAULT_SAMPLE, .seed = 1};
    struct peers_rig *rig = NULL;
    const char *command = argc > 1 ? argv[1] : "";
    if (strcmp(command, "time") != 0 && strcmp(command, "accuracy") != 0)
        return usage("which: time or accuracy?");
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "--verbose") == 0) {
            options.verbose = 1;
            continue;
        }
        if (strcmp(argv[i], "--list") == 0) {
            options.list = 1;
            continue;
        }
        int status = read_option(argv[i], i + 1 < argc ? argv[i + 1] : NULL, &options);
        if (status)
            return status;
        i++;
    }
    if (!options.contender_count && !options.list)
        return usage("nobody to run: --with");
    if (!options.list && peers_open(&rig) != 0) {
        fprintf(stderr, "peers: %s\n", peers_problem());
        peers_close(rig);
        return NO_GPU;
    }
    int result =
        strcmp(command, "time") == 0 ? peers_time(rig, &options) : peers_accuracy(rig, &options);
    if (result < 0)
        fprintf(stderr, "peers: %s\n", peers_problem());
    peers_close(rig);
    return result ? FAILED : 0;
}
