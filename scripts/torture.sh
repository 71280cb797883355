#!/usr/bin/env bash
# The whole of the torture tests: what the cache, the loader and the parsers must survive. Prints a
# table with a figure a row and ends with `N passed, N failed`, and the skipped ones. A tool that
# does not work here (no FUSE, no ptrace, no name spaces in this container) skips its rows.
#
#   scripts/torture.sh [ROW...]     all rows, or those of these names: cold, kill, "fuzz entry", ...
#
# SMELT_FUZZ_RUNS sets how often the entry parser is run by the fuzzer (default 100000000, about ten
# minutes on one core), the others a twentieth of that.
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
