#!/usr/bin/env bash
# Configures (once) and builds a build folder, "build" unless named.
#
#   scripts/build.sh [FOLDER [MESON OPTION...]]
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-build}
shift || true
[ -f "$folder/build.ninja" ] || meson setup "$folder" "$@"
ninja -C "$folder"
