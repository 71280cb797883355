#!/usr/bin/env bash
# Runs mutants of the templates with the programs of the build folder ($BUILD, default build):
# scripts/mutants.sh OPTIONS, the options of tests/emu/mutation/mutate.py.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${BUILD:-build}
programs=()
for path in emu/emu_chunked emu/micro/micro gpu/gpu_suite; do
    programs+=(--program "$(basename "$path")=$build/tests/$path")
done
exec python3 tests/emu/mutation/mutate.py --smelt "$build/smelt" \
    --emulator "$PWD/$build/src/emu/libsmelt_emu.so" "${programs[@]}" "$@"
