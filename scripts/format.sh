#!/usr/bin/env bash
# Checks that every C and CUDA file has clang-format's layout; --fix applies it; --list lists the files.
set -euo pipefail
cd "$(dirname "$0")/.."
files() {
    git ls-files -z --cached --others --exclude-standard '*.c' '*.h' '*.cu' '*.cuh'
}
case ${1:-} in
--list) files | tr '\0' '\n' ;;
--fix) files | xargs -0 clang-format -i ;;
*) files | xargs -0 clang-format --dry-run -Werror ;;
esac
