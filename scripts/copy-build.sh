#!/bin/sh
# copy-build.sh FROM TO: copies into TO what the libraries, the command and the examples were compiled to in the build
# folder FROM, beside which TO must be. What is then configured in TO compiles only what its options change, since
# ninja compares commands and times; no configuration is copied.
set -eu
mkdir -p "$2"
(cd "$1" && tar -cf - .ninja_deps commit.h operators.list ./*.p ./lib* smelt src templates examples) | tar -xf - -C "$2"
grep -v '	build\.ninja	' "$1/.ninja_log" >"$2/.ninja_log"
