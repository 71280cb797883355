#!/bin/sh
# grow.sh HEADER GROWN: makes a later version of a header: each struct that grows (smelt/struct.h) gets two
# more fields at its end.
set -eu
awk '
    /^    size_t size;/ { grows = 1 }
    /^} smelt_[a-z_]*;/ {
        if (grows) print "    uint64_t later_number;\n    const char *later_text;"
        grows = 0
    }
    { print }
' "$1" >"$2"
