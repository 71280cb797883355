#!/usr/bin/env bash
# Builds, runs the tests but for those of the suite `full`, and ends with a line of counts:
# `N passed, N failed`. Status 0 when none failed.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/nvrtc.sh
. scripts/nvrtc.sh
export_nvrtc

log=build/meson-logs/testlog.json
rm -f "$log" # a build that fails must not be counted by an older run's results
status=0
scripts/build.sh build && meson test -C build --no-rebuild --print-errorlogs || status=$?
mkdir -p build
python3 scripts/count-tests.py "$log" | tee build/test-counts.txt || status=1
exit "$status"
