#!/bin/sh
# library.sh LIBSMELT.SO INCLUDE_FOLDER: checks the shared library's imports and exports. It needs only
# libc, the loader and zlib; every exported symbol begins with smelt_ and is in a public header; its stripped size
# is at most 1.1 MB.
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
    libc.so.* | ld-linux* | libz.so.1) ;;
    libdl.so.* | libpthread.so.*) ;; # parts of libc, separate files before glibc 2.34
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
# Every declared function is exported.
sed -n 's/^SMELT_\(API\|CALL\) .*[ *]\(smelt_[a-z_]*\)(.*/\2/p' "$headers"/smelt/*.h | sort -u >"$work/declared"
sort "$work/symbols" >"$work/sorted"
for symbol in $(comm -23 "$work/declared" "$work/sorted"); do
    fail "$symbol is declared but not exported"
done
echo "exports: $(wc -l <"$work/symbols") symbols"

strip -o "$work/stripped.so" "$library"
bytes=$(wc -c <"$work/stripped.so")
echo "stripped: $bytes bytes"
[ "$bytes" -le 1100000 ] || fail "more than 1.1 MB"
exit $status
