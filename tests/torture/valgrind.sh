#!/usr/bin/env bash
# Runs programs under valgrind: no invalid access, no leak.
#
#   valgrind.sh COMMAND...     each a program with its arguments, separated by a lone `--`
set -euo pipefail
if ! command -v valgrind >/dev/null; then
    echo "skipped: there is no valgrind"
    exit 77
fi
programs=0
check() {
    local name=$1
    if ! valgrind -q --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite,indirect \
        "$@" >valgrind.log.$$ 2>&1; then
        tail -n 60 valgrind.log.$$
        rm -f valgrind.log.$$
        echo "${name##*/} $2 failed under valgrind"
        exit 1
    fi
    rm -f valgrind.log.$$
    programs=$((programs + 1))
}
# A program that valgrind cannot run (one with a sanitizer) does not count.
command=()
for word in "$@" --; do
    if [ "$word" != -- ]; then
        command+=("$word")
        continue
    fi
    [ ${#command[@]} = 0 ] || check "${command[@]}"
    command=()
done
echo "figure: $programs programs under valgrind: no error, nothing lost"
