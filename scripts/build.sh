#!/usr/bin/env bash
# Configures (once) and builds a build folder, "build" unless named; of it the targets of $TARGETS
# alone, where that is set.
#
#   scripts/build.sh [FOLDER [MESON OPTION...]]
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-build}
shift || true
[ -f "$folder/build.ninja" ] || meson setup "$folder" "$@"
# shellcheck disable=SC2086 # a list of words
ninja -C "$folder" ${TARGETS:-}
