/*
 * A fuzz target is one file with libFuzzer's entry point. With clang and -Dfuzz=true it is a fuzzer
 * (scripts/fuzz.sh); otherwise replay.c runs it on its corpus and on small changes of it, as a test
 * of `make test`.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Returns 0. A defect ends the process. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FUZZ_REQUIRE(condition)                                                                    \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            abort();                                                                               \
        }                                                                                          \
    } while (0)
