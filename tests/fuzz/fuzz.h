/*
 * A fuzz target is one file with the entry point of libFuzzer. Built by clang with -Dfuzz=true it
 * is a fuzzer (scripts/fuzz.sh); else replay.c drives it over its corpus, and over small changes of
 * it, as a test of `make test`.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Returns 0. An input that shows a defect ends the process. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FUZZ_REQUIRE(condition)                                                                    \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            abort();                                                                               \
        }                                                                                          \
    } while (0)
