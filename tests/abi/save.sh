#!/bin/sh
# save.sh VERSION: saves today's public headers as those of a version, in a folder here. Once a
# version is released its folder never changes: programs built against it are to go on working.
set -eu
cd "$(dirname "$0")"
mkdir -p "$1/smelt"
cp ../../include/smelt/*.h "$1/smelt/"
