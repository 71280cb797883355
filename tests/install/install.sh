#!/bin/bash
# install.sh SOURCE_FOLDER BUILD_FOLDER: configures, builds and installs smelt under a new prefix, as a user does, and
# checks the installed files. What BUILD_FOLDER has compiled with the same commands is not compiled again. Builds the
# example with every command of README.md and docs/embedding.md, and runs it and the command from that prefix on the
# emulator, without LD_LIBRARY_PATH. Repeats this with the static library only.
set -euo pipefail
export LC_ALL=C
source=$1
work=$(mktemp -d)
build=$(mktemp -d "$2-install.XXXXXX")
trap 'rm -rf "$work" "$build" "$build-moved"' EXIT
"$source/scripts/copy-build.sh" "$2" "$build"
unset LD_LIBRARY_PATH SMELT_EMULATOR SMELT_CUDA SMELT_NVRTC
prefix=$work/prefix
fail() {
    echo "FAILED: $*"
    exit 1
}

# A pkg-config that does not find cmocka, which only tests need.
mkdir "$work/bin"
cat >"$work/bin/pkg-config" <<END
#!/bin/sh
case " \$* " in *cmocka*) exit 1 ;; esac
exec $(command -v pkg-config) "\$@"
END
chmod +x "$work/bin/pkg-config"
PATH=$work/bin:$PATH

# install OPTION...: builds with these options and installs.
install() {
    rm -rf "$prefix"
    if [ -f "$build/build.ninja" ]; then
        set -- meson configure "$build" "$@"
    else
        set -- meson setup "$build" "$source" --prefix="$prefix" -Dtests=false -Dtools="${TOOLS:-true}" "$@"
    fi
    if ! { "$@" && ninja -C "$build" kit && meson install -C "$build" --no-rebuild --quiet; } \
        >"$work/log" 2>&1; then
        tail -n 40 "$work/log"
        fail "$* and install"
    fi
}

# found NAME: the installed file of that name.
found() {
    find "$prefix" -name "$1" | grep . || fail "$1 is not installed"
}

# needs_smelt FILE: whether the loader must find libsmelt for it.
needs_smelt() {
    readelf -d "$1" | grep -q 'NEEDED.*libsmelt\.so'
}

# compile TEXT: runs a documented command on the example; `cc` is the compiler that is tested.
compile() {
    cc() { command ${COMPILER:-gcc} -std=c11 -Wall -Werror "$@"; }
    (cd "$work/program" && rm -f a.out && eval "$1") || fail "$1"
}

# run PROGRAM...: the emulator serves as driver and compiler; the example checks its results.
run() {
    env SMELT_CUDA="$emulator" SMELT_NVRTC="$emulator" SMELT_CACHE_DIR="$work/cache" \
        SMELT_CACHE_DISABLE=1 "$@"
}

# starts PROGRAM: it finds the library, and reports that there is no driver.
starts() {
    local status=0
    SMELT_CUDA=/nowhere SMELT_CACHE_DIR=$work/cache "$1" || status=$?
    [ $status = 3 ]
}

# A file's commands, one per line: those that begin with `cc`, where program.c is the reader's program.
commands() {
    sed -n 's/^[ *`]*\(cc [a-z]*\.c .*pkg-config.*\)$/\1/p' "$source/$1" |
        sed 's/`.*//; s/ *#.*//; s/program\.c/embed.c/; s, *&& \./a\.out,,'
}

install -Ddefault_library=both
(cd "$prefix" && find . -type f -o -type l) | sort
for header in "$source"/include/smelt/*.h; do
    found "$(basename "$header")" >/dev/null
done
for name in libsmelt.so libsmelt.so.2 libsmelt.a LICENSE NOTICE operators.md glossary.md \
    embedding.md embed.c example.h; do
    found "$name" >/dev/null
done
# Links of installed pages: to installed files, and to headings that they have.
cat >"$work/links.py" <<'END'
import pathlib
import sys

from paths import LINK, slug

for page in pathlib.Path(sys.argv[1]).glob("*.md"):
    for link in LINK.findall(page.read_text()):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        headings = [line.lstrip("#") for line in target.read_text().splitlines() if line.startswith("#")]
        assert not anchor or anchor in map(slug, headings), f"{page.name}: {link}"
END
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$source/tests/docs python3 "$work/links.py" "$prefix/share/doc/smelt" ||
    fail "a link of an installed page leads nowhere"
! grep -n '\.\./' "$prefix"/share/doc/smelt/*.md || fail "an installed page has a path of the source's folders"
cmp "$(found LICENSE)" "$source/LICENSE" || fail "LICENSE differs"
PKG_CONFIG_PATH=$(dirname "$(found smelt.pc)")
emulator=$(found libsmelt_emu.so)
export PKG_CONFIG_PATH
[ "$(pkg-config --modversion smelt)" = "$(sed -n "s/^ *version: '\(.*\)',/\1/p" "$source/meson.build" |
    head -n 1)" ] || fail "smelt.pc has another version"

# Every documented command must link. Commands without an rpath assume a folder in the loader's path, which
# LD_RUN_PATH replaces here. The last one, for the static library only, is tested below.
mkdir "$work/program"
cp "$source/examples/embed.c" "$source/examples/example.h" "$work/program"
for file in README.md docs/embedding.md examples/embed.c; do
    [ -n "$(commands $file)" ] || fail "$file has no command that builds a program"
done

# CMake's package: the shared library, later only the static one.
cmake_program() {
    command -v cmake >/dev/null || return 0
    rm -rf "$work/cmake"
    mkdir "$work/cmake"
    printf '%s\n' 'cmake_minimum_required(VERSION 3.12)' 'project(program C)' "find_package(smelt $1 REQUIRED)" \
        "add_executable(program $work/program/embed.c)" 'target_link_libraries(program smelt::smelt m)' \
        >"$work/cmake/CMakeLists.txt"
    if [ "${2:-}" = refused ]; then
        ! cmake -S "$work/cmake" -B "$work/cmake/build" -DCMAKE_PREFIX_PATH="$prefix" >"$work/log" 2>&1 ||
            fail "CMake takes smelt $1"
        return
    fi
    cmake -S "$work/cmake" -B "$work/cmake/build" -DCMAKE_PREFIX_PATH="$prefix" >"$work/log" 2>&1 &&
        cmake --build "$work/cmake/build" >>"$work/log" 2>&1 || { cat "$work/log" && fail "CMake"; }
    starts "$work/cmake/build/program" || fail "the program that CMake builds does not start"
}
version=$(pkg-config --modversion smelt)
cmake_program "${version%.*}"
cmake_program 99.0 refused

ways=0
while read -r text; do
    echo "documented: $text"
    case $text in
    *-static*) continue ;;
    *rpath* | *libsmelt.a*) compile "$text" ;;
    *) LD_RUN_PATH=$(dirname "$(found libsmelt.so)") compile "$text" ;;
    esac
    case $text in
    *libsmelt.a*)
        ! needs_smelt "$work/program/a.out" || fail "needs the shared library"
        cp "$work/program/a.out" "$work/static"
        ;;
    *) needs_smelt "$work/program/a.out" || fail "does not use the shared library" ;;
    esac
    starts "$work/program/a.out" || fail "the program does not start"
    ways=$((ways + 1))
done < <(for file in README.md docs/embedding.md examples/embed.c; do commands $file; done | sort -u)
[ "$ways" = 3 ] || fail "3 ways to link were expected, $ways are documented"
run "$work/program/a.out" || fail "the program is wrong"

# The installed command finds its library and the emulator, also after the prefix is moved.
if [ "${TOOLS:-true}" = true ]; then
    "$prefix/bin/smelt" --version || fail "the installed command does not run"
    found 'smelt.1*' >/dev/null
    for completion in bash-completion/completions/smelt zsh/site-functions/_smelt fish/vendor_completions.d/smelt.fish; do
        find "$prefix" -path "*$completion" | grep -q . || fail "$completion is not installed"
    done
    mv "$prefix" "$work/moved"
    mv "$build" "$build-moved" # so that the build folder cannot be found
    SMELT_CACHE_DIR=$work/cache "$work/moved/bin/smelt" check --emulate --queries 1 --schedules 1 \
        --lists random sparse_attn:heads=8,dqk=64,dv=64,topk=32 ||
        fail "the installed command does not find the emulator"
    SMELT_CACHE_DIR=$work/cache "$work/moved/bin/smelt" emulate -- "$work/static" ||
        fail "the installed command does not run a program on the emulator"
    mv "$build-moved" "$build"
fi

# Only the static library: pkg-config --static gives all flags.
install -Ddefault_library=static
[ -z "$(find "$prefix" -name 'libsmelt.so*')" ] || fail "the shared library is installed, too"
text=$(commands docs/embedding.md | grep -e '--static' || fail "no command for --static")
echo "static: $text"
compile "$text"
! needs_smelt "$work/program/a.out" || fail "needs the shared library"
starts "$work/program/a.out" || fail "the program does not start"
cmake_program "$version"
if [ "${TOOLS:-true}" = true ]; then
    ! needs_smelt "$prefix/bin/smelt" || fail "the command needs the shared library"
    "$prefix/bin/smelt" --version || fail "the installed command does not run"
fi

# A subproject builds the library, but neither tests nor bench nor examples.
mkdir -p "$work/parent/subprojects"
ln -s "$(cd "$source" && pwd)" "$work/parent/subprojects/smelt"
printf '%s\n' "project('parent', 'c')" "executable('p', 'p.c', dependencies: dependency('smelt', fallback: 'smelt'))" \
    >"$work/parent/meson.build"
echo 'int main(void) { return 0; }' >"$work/parent/p.c"
PKG_CONFIG_PATH='' meson setup "$work/parent/build" "$work/parent" -Dsmelt:tools=false >"$work/log" 2>&1 ||
    { tail -n 20 "$work/log" && fail "smelt as a subproject"; }
! grep -Eq '^build subprojects/smelt/(tests|bench|examples)/' "$work/parent/build/build.ninja" ||
    fail "a subproject brings tests, bench or examples"
