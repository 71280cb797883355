#define XXH_IMPLEMENTATION
#include "runtime/hash.h"
