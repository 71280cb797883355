/*
 * Numbers in files: little-endian, at any alignment.
 */
#pragma once

#include <stdint.h>

static inline void smelt__put_u32(unsigned char *at, uint32_t number) {
    for (int i = 0; i < 4; i++)
        at[i] = (unsigned char)(number >> (8 * i));
}

static inline void smelt__put_u64(unsigned char *at, uint64_t number) {
    for (int i = 0; i < 8; i++)
        at[i] = (unsigned char)(number >> (8 * i));
}

static inline uint32_t smelt__get_u32(const unsigned char *at) {
    uint32_t number = 0;
    for (int i = 0; i < 4; i++)
        number |= (uint32_t)at[i] << (8 * i);
    return number;
}

static inline uint64_t smelt__get_u64(const unsigned char *at) {
    return smelt__get_u32(at) | (uint64_t)smelt__get_u32(at + 4) << 32;
}
