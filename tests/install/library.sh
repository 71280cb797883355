#!/bin/sh
# library.sh LIBSMELT.SO INCLUDE_FOLDER: what the shared library asks of a machine and shows to a
# program. It needs libc and the loader alone, every symbol it exports begins with smelt_ and
# stands in a public header, and it is at most 1.25 MB without its debugging information.
set -eu
export LC_ALL=C
library=$1 headers=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0
fail() {
    echo "FAILED: $*"
    status=1
}

needed=$(readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | tr '\n' ' ')
echo "needs: $needed"
for name in $needed; do
    case $name in
    libc.so.* | ld-linux*) ;;
    libdl.so.* | libpthread.so.*) ;; # parts of libc that were files of their own before glibc 2.34
    *) fail "needs $name" ;;
    esac
done
readelf -d "$library" | grep -q 'SONAME.*\[libsmelt\.so\.[0-9]*\]' || fail "no SONAME"

nm -D --defined-only "$library" | awk '{ print $3 }' >"$work/symbols"
[ -s "$work/symbols" ] || fail "exports nothing"
if grep -v '^smelt_[a-z]' "$work/symbols"; then
    fail "exports the above"
fi
while read -r symbol; do
    grep -qrw "$symbol" "$headers" || fail "$symbol is exported but in no public header"
done <"$work/symbols"
# And every declared function is there.
sed -n 's/^SMELT_\(API\|CALL\) .*[ *]\(smelt_[a-z_]*\)(.*/\2/p' "$headers"/smelt/*.h | sort -u >"$work/declared"
sort "$work/symbols" >"$work/sorted"
for symbol in $(comm -23 "$work/declared" "$work/sorted"); do
    fail "$symbol is declared but not exported"
done
echo "exports: $(wc -l <"$work/symbols") symbols"

strip -o "$work/stripped.so" "$library"
bytes=$(wc -c <"$work/stripped.so")
echo "stripped: $bytes bytes"
[ "$bytes" -le 1250000 ] || fail "more than 1.25 MB"
exit $status
