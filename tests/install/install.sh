#!/bin/sh
# install.sh BUILD_FOLDER EMBED.C: installs into an empty folder, looks for what must be there, and
# builds programs against it with pkg-config alone: the example, and one that runs here, each with
# the shared library and with the static one.
set -eu
build=$1 example=$2
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
fail() {
    echo "FAILED: $*"
    exit 1
}

DESTDIR=$root meson install -C "$build" --no-rebuild --quiet >"$root/log" 2>&1 || {
    cat "$root/log"
    fail "meson install"
}
rm "$root/log"
(cd "$root" && find . -type f -o -type l) | sort

# found NAME: the one installed file of that name
found() {
    find "$root" -name "$1" | grep . || fail "$1 is not installed"
}
for name in cache context device kernels smelt sparse_attn status; do
    found "$name.h" >/dev/null
done
found libsmelt.so >/dev/null
found libsmelt.so.0 >/dev/null
found libsmelt.a >/dev/null
package=$(dirname "$(found smelt.pc)")
if [ "${TOOLS:-1}" = 1 ]; then
    found 'smelt.1*' >/dev/null
    find "$root" -path '*bash-completion/completions/smelt' | grep -q . ||
        fail "bash completion is not installed"
    command=$(find "$root" -path '*/bin/smelt')
    [ -x "$command" ] || fail "the command is not installed"
fi

library=$(dirname "$(found libsmelt.so)")
export PKG_CONFIG_PATH="$package" PKG_CONFIG_SYSROOT_DIR="$root" LD_LIBRARY_PATH="$library"
cat >"$root/try.c" <<'END'
#include <smelt/smelt.h>
#include <stdio.h>
int main(void) {
    char *text = NULL;
    if (smelt_spec_canonical("sparse_attn:heads=64,dqk=576,dv=512,topk=2048", &text) != SMELT_OK)
        return 1;
    printf("smelt %s: %s\n", smelt_version(), text);
    smelt_free(text);
    return 0;
}
END
compiler=${COMPILER:-cc}
# What follows is meant to be split into words: flags.
# shellcheck disable=SC2046,SC2086
{
    $compiler -std=c11 -o "$root/try" "$root/try.c" $(pkg-config --cflags --libs smelt)
    "$root/try" || fail "a program with the shared library"
    $compiler -std=c11 -o "$root/try-static" "$root/try.c" $(pkg-config --cflags smelt) \
        -Wl,-Bstatic -lsmelt -Wl,-Bdynamic -L"$library" $(pkg-config --static --libs smelt |
            tr ' ' '\n' | grep -v '^-lsmelt$')
    env -u LD_LIBRARY_PATH "$root/try-static" || fail "a program with the static library"
    $compiler -std=c11 -o "$root/embed" "$example" $(pkg-config --cflags --libs smelt) -lm
}
if [ "${TOOLS:-1}" = 1 ]; then
    "$command" --version || fail "the installed command does not run"
    # The emulator that was installed with it, though the folder is not the prefix that was configured.
    (
        unset SMELT_EMULATOR SMELT_CUDA SMELT_NVRTC
        export SMELT_CACHE_DIR="$root/cache" SMELT_CACHE_DISABLE=1
        "$command" check --emulate --lists random sparse_attn:heads=16,dqk=64,dv=64,topk=64
    ) || fail "the installed command does not find its emulator"
fi
