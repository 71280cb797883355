#!/usr/bin/env bash
# Builds, runs all tests except the suite `full`, and ends with a line of counts: `N passed, N failed`.
# Status 0 if none failed.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/nvrtc.sh
. scripts/nvrtc.sh
export_nvrtc

log=build/meson-logs/testlog.json
rm -f "$log" # after a failed build, do not count an earlier run's results
status=0
scripts/build.sh build && meson test -C build --no-rebuild --print-errorlogs || status=$?
mkdir -p build
python3 scripts/count-tests.py "$log" | tee build/test-counts.txt || status=1
exit "$status"
