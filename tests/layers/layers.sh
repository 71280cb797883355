#!/bin/sh
# layers.sh PREFIX FOLDER: the object files of FOLDER whose names begin with PREFIX form layers. A file
# stands on another when it uses what that one defines; followed from file to file, that never
# leads back. Prints the files of each circle.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

set -- "$2/$1"*.o

nm -A -P --defined-only "$@" | awk '$3 ~ /^[TDBR]$/ { print "defines", $2, $1 }' >"$work/all"
nm -A -P --undefined-only "$@" | awk '{ print "uses", $2, $1 }' >>"$work/all"
awk '
    { sub(/:$/, "", $3); sub(/.*\//, "", $3); sub(/\.c\.o$/, "", $3) }
    $1 == "defines" { where[$2] = $3 }
    $1 == "uses" && ($2 in where) && where[$2] != $3 { print $3, where[$2] }
' "$work/all" | sort -u >"$work/edges"

echo "$# files, $(wc -l <"$work/edges") uses of one by another"
[ -s "$work/edges" ] # else nothing was checked
if ! tsort "$work/edges" >/dev/null 2>"$work/circles"; then
    sed 's/^tsort: [^ ]*: //; s/^tsort: //' "$work/circles"
    exit 1
fi
