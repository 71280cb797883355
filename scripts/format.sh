#!/usr/bin/env bash
# Checks that every C and CUDA file is as clang-format lays it out; with --fix, makes it so. The
# goldens are what the generator writes, and stay that.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=(--dry-run -Werror)
[ "${1:-}" != --fix ] || mode=(-i)
git ls-files -z --cached --others --exclude-standard '*.c' '*.h' '*.cu' '*.cuh' \
    ':!tests/golden/*.cu' |
    xargs -0 clang-format "${mode[@]}"
