#!/bin/sh
# copy-build.sh FROM TO: copies the object files of the libraries, the command and the examples from the build folder
# FROM into TO, a folder beside it. The configuration is not copied. A build that is then configured in TO compiles only
# what its options change, since ninja compares commands and times.
set -eu
mkdir -p "$2"
(cd "$1" && tar -cf - .ninja_deps commit.h operators.list ./*.p ./lib* smelt src templates examples) | tar -xf - -C "$2"
grep -v '	build\.ninja	' "$1/.ninja_log" >"$2/.ninja_log"
