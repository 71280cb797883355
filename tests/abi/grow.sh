#!/bin/sh
# grow.sh HEADER GROWN: the header as a later version might have it, each struct that grows
# (smelt/struct.h) with two fields more at its end.
set -eu
awk '
    /^    size_t size;/ { grows = 1 }
    /^} smelt_[a-z_]*;/ {
        if (grows) print "    uint64_t later_number;\n    const char *later_text;"
        grows = 0
    }
    { print }
' "$1" >"$2"
