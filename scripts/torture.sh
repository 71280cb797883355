#!/usr/bin/env bash
# Runs all torture tests, the failures that the cache, the loader and the parsers must survive. Prints a
# table with figures for each row and ends with `N passed, N failed`, and the number of skipped rows. Rows
# whose tool does not work here (no FUSE, ptrace or name spaces in this container) are skipped.
#
#   scripts/torture.sh [ROW...]     all rows, or the named ones: cold, kill, "fuzz entry", ...
#
# SMELT_FUZZ_RUNS is the number of the fuzzer's runs of the entry parser (default 100000000, about ten
# minutes on one core); the other parsers have a twentieth of it.
set -euo pipefail
cd "$(dirname "$0")/.."

log=build/meson-logs/testlog-full.json
rm -f "$log"
scripts/build.sh build
status=0
if [ $# -gt 0 ]; then
    rows=("${@/#/torture }")
    meson test -C build --no-rebuild --setup full "${rows[@]/%/, whole}" || status=$?
else
    meson test -C build --no-rebuild --setup full --suite torture-whole || status=$?
fi
echo
scripts/torture-table.py "$log" || status=1
python3 scripts/count-tests.py "$log" || status=1
exit "$status"
