#!/bin/sh
# snippet.sh SOURCE_FOLDER LIBRARY: the program in README.md compiles without a warning, and without a driver
# exits with a message and status 1.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck disable=SC2016 # a pattern
{
    printf '#include <math.h>\n#include <stdio.h>\n#include <stdlib.h>\n'
    sed -n '/^```c$/,/^```$/{/^```/d; /^#include/p}' "$1/README.md"
    printf 'void readme(int tokens, int rows, const void *q, const void *kv, const void *indices,\n'
    printf '            void *out, void *lse, struct CUstream_st *stream);\n'
    printf 'void readme(int tokens, int rows, const void *q, const void *kv, const void *indices,\n'
    printf '            void *out, void *lse, struct CUstream_st *stream) {\n'
    sed -n '/^```c$/,/^```$/{/^```/d; /^#include/d; p}' "$1/README.md"
    printf '}\nint main(void) {\n    readme(0, 0, 0, 0, 0, 0, 0, 0);\n    return 0;\n}\n'
} >"$work/readme.c"
grep -q 'smelt_sparse_attn_forward(' "$work/readme.c" # else the page has another form
# shellcheck disable=SC2086 # a command and its options
${COMPILER:-cc} -std=c11 -Wall -Wextra -Wpedantic -Wconversion -Werror -I "$1/include" \
    -o "$work/readme" "$work/readme.c" "$2" -lm
status=0
LD_LIBRARY_PATH=$(dirname "$2") SMELT_CUDA=/nowhere "$work/readme" 2>"$work/err" || status=$?
cat "$work/err"
[ $status = 1 ] && grep -q '/nowhere' "$work/err"
