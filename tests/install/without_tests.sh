#!/bin/sh
# without_tests.sh SOURCE: what is built with -Dtests=false can do `check --emulate`, from the build
# folder and from where it is installed, on a machine where no cmocka is to be found.
set -eu
source=$1
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
fail() {
    [ ! -f "$root/log" ] || cat "$root/log"
    echo "FAILED: $*"
    exit 1
}

# pkg-config as it is, but for one package.
real=$(command -v pkg-config) || fail "no pkg-config"
mkdir "$root/bin"
cat >"$root/bin/pkg-config" <<END
#!/bin/sh
case " \$* " in *cmocka*) exit 1 ;; esac
exec $real "\$@"
END
chmod +x "$root/bin/pkg-config"
PATH=$root/bin:$PATH
export PATH

meson setup "$root/build" "$source" -Dtests=false --prefix "$root/prefix" >"$root/log" 2>&1 ||
    fail "meson setup -Dtests=false"
ninja -C "$root/build" >"$root/log" 2>&1 || fail "ninja"
meson install -C "$root/build" --no-rebuild --quiet >"$root/log" 2>&1 || fail "meson install"

unset SMELT_EMULATOR SMELT_CUDA SMELT_NVRTC
SMELT_CACHE_DIR=$root/cache
LD_LIBRARY_PATH=$(dirname "$(find "$root/prefix" -name libsmelt.so)")
export SMELT_CACHE_DIR LD_LIBRARY_PATH
spec=sparse_attn:heads=16,dqk=64,dv=64,topk=64
for command in "$root/build/smelt" "$root/prefix/bin/smelt"; do
    "$command" check --emulate --lists random "$spec" >"$root/log" 2>&1 || fail "$command"
done
mv "$root/build" "$root/elsewhere" # no way back from the installed command
"$root/prefix/bin/smelt" check --emulate --lists random "$spec" >"$root/log" 2>&1 ||
    fail "the installed command, when the build folder is gone"
tail -1 "$root/log"
