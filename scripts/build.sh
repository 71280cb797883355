#!/usr/bin/env bash
# Configures (once) and builds a build folder, by default "build"; only $TARGETS if that is set.
#
#   scripts/build.sh [FOLDER [MESON OPTION...]]
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-build}
shift || true
[ -f "$folder/build.ninja" ] || meson setup "$folder" "$@"
# shellcheck disable=SC2086 # a list of words
ninja -C "$folder" ${TARGETS:-}
