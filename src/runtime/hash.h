/* xxHash, compiled once, in hash.c: its header in every file that hashes would take seconds each. */
#pragma once

#define XXH_NAMESPACE smelt__
#define XXH_STATIC_LINKING_ONLY /* the states' definitions */
#include <xxhash.h>
