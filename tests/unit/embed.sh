#!/bin/sh
# embed.sh EMBED FOLDER: runs the embedder on malformed templates and compares its messages.
set -u
embed=$1
folder=$2
output=$(mktemp)
depfile=$(mktemp)
trap 'rm -f "$output" "$depfile"' EXIT
failures=0

# refuses "the message" case template...
refuses() {
    expected=$1
    case=$2
    shift 2
    rm -f "$output"
    message=$(cd "$folder/$case" && "$embed" "$output" "$depfile" "$@" 2>&1)
    status=$?
    if [ $status -ne 1 ] || [ "$message" != "$expected" ] || [ -e "$output" ]; then
        echo "$case: status $status, said: $message"
        echo "$case: expected: $expected"
        failures=$((failures + 1))
    fi
}

# Meson may pass a relative path.
embed=$(realpath "$embed")

refuses 'templates/bad.cu:3: error: unknown directive //@fro; known: use, takes, for, if, else, end' \
    directive templates/bad.cu
refuses 'templates/bad.cu:1: error: //@if has no //@end' nested templates/bad.cu
refuses 'templates/bad.cu:2: error: byte 0xc3: templates are plain ASCII' bytes templates/bad.cu
refuses 'templates/a.cu:2: error: a.cu uses part/gone.cuh, which does not exist' \
    missing templates/part/there.cuh templates/a.cu
refuses 'templates/part/b.cuh:2: error: part/b.cuh uses a.cu, which uses it in turn' \
    cycle templates/a.cu templates/part/b.cuh
refuses 'templates/absent.cu: error: No such file or directory' directive templates/absent.cu
# A folder's files, including those of its subfolders.
refuses 'templates/a.cu:2: error: a.cu uses part/gone.cuh, which does not exist' missing templates

# A valid set is accepted through any path.
part=$folder/missing/templates/part
if ! "$embed" "$output" "$depfile" "$part" || ! grep -q '"part/there.cuh"' "$output" ||
    [ "$(cat "$depfile")" != "$output: $part $part/there.cuh" ]; then
    echo 'a good template was refused'
    failures=$((failures + 1))
fi
# The engine's digest follows from its files' text alone.
engine_digest() {
    "$embed" "$output" "$depfile" "$part" -- "$1" && grep smelt__engine_digest "$output"
}
copy=$(mktemp)
trap 'rm -f "$output" "$depfile" "$copy"' EXIT
cp "$0" "$copy"
first=$(engine_digest "$0")
[ "$first" = "$(engine_digest "$copy")" ] || failures=$((failures + 1))
echo >>"$copy"
second=$(engine_digest "$copy")
if [ -z "$first" ] || [ "$first" = "$second" ]; then
    echo "an edited file of the engine: $first, then $second"
    failures=$((failures + 1))
fi
[ $failures -eq 0 ]
