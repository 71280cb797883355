/* The version, in a file of its own: it alone is compiled anew for each commit. */
#include "smelt/status.h"

#ifndef SMELT__COMMIT
#include "commit.h" /* made by Meson; "" outside a git checkout */
#endif

const char *smelt_version(void) {
    return sizeof SMELT__COMMIT > 1 ? SMELT_VERSION "+" SMELT__COMMIT : SMELT_VERSION;
}
