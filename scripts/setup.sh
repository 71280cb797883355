#!/usr/bin/env bash
# Makes sure that what `make WHAT` needs is there: distribution packages, and NVRTC.
#
#   scripts/setup.sh build|test|python|full|torture|format
#
# What only a few tests use (faketime, bindfs, strace) is installed for test and full where that works;
# elsewhere those tests are skipped.
# On Debian and Ubuntu missing packages are installed with apt-get, by root or where sudo asks for no
# password: with SETUP=1, in CI (CI=true), as root of a container, or when the user says yes at a
# terminal (SETUP=0: never). Elsewhere they are named and the script stops with status 3. NVRTC comes from the CUDA
# toolkit; where none is found, from NVIDIA's Python wheel, unpacked into build/nvrtc. Nothing else
# on the machine is touched. Repeated, it only looks, which takes well under a second.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/nvrtc.sh
. scripts/nvrtc.sh

what=${1:-build}

say() { printf '%s\n' "$*" >&2; }

have_library() { command -v pkg-config >/dev/null && pkg-config --exists "$1"; }

# A C compiler without the C library's headers (gcc without libc6-dev) is as good as none.
have_c_headers() {
    command -v "${CC:-cc}" >/dev/null &&
        printf '#include <stdio.h>\n' | "${CC:-cc}" -E - >/dev/null 2>&1
}

# Python's headers, and what makes virtual environments.
have_python_headers() {
    python3 -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(sysconfig.get_paths()["include"] + "/Python.h"))' 2>/dev/null
}

have_venv() { python3 -c 'import ensurepip, venv' 2>/dev/null; }

# clang, with libFuzzer and the sanitizers.
have_fuzzer() {
    command -v clang >/dev/null &&
        printf 'int LLVMFuzzerTestOneInput(const char *d, long n) { return n && !d; }\n' |
        clang -fsanitize=fuzzer,address -x c -o /dev/null - 2>/dev/null
}

# Prints the packages that are missing, by Debian's names.
missing_packages() {
    if [ "$what" != format ]; then
        have_c_headers || echo gcc libc6-dev
        command -v make >/dev/null || echo make
        command -v meson >/dev/null || echo meson
        command -v ninja >/dev/null || echo ninja-build
        command -v pkg-config >/dev/null || echo pkg-config
        command -v python3 >/dev/null || echo python3
        have_library cmocka || echo libcmocka-dev
        have_library jansson || echo libjansson-dev
        have_library libxxhash || echo libxxhash-dev
    fi
    case $what in
    test | full | torture)
        command -v "${CXX:-c++}" >/dev/null || echo g++ # the headers are also compiled as C++
        command -v readelf >/dev/null || echo binutils
        ;;
    esac
    case $what in
    python)
        have_python_headers || echo python3-dev
        have_venv || echo python3-venv
        command -v strip >/dev/null || echo binutils
        ;;
    full)
        command -v clang >/dev/null || echo clang
        command -v clang-format >/dev/null || echo clang-format
        ;;
    torture)
        command -v strace >/dev/null || echo strace
        command -v faketime >/dev/null || echo faketime
        command -v bindfs >/dev/null || echo bindfs
        command -v valgrind >/dev/null || echo valgrind
        command -v unshare >/dev/null || echo util-linux
        have_fuzzer || echo clang libclang-rt-dev
        ;;
    format) command -v clang-format >/dev/null || echo clang-format ;;
    esac
}

# Packages without which a few tests are skipped: worth an attempt, not a failure.
optional_packages() {
    case $what in
    test | full)
        command -v faketime >/dev/null || echo faketime
        command -v bindfs >/dev/null || echo bindfs
        command -v strace >/dev/null || echo strace
        ;;
    esac
}

# The prefix a command needs to install packages ("" or "sudo -n"), or status 1.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        echo ""
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        echo "sudo -n"
    else
        return 1
    fi
}

in_container() {
    [ -e /.dockerenv ] || [ -e /run/.containerenv ] || [ -n "${container:-}" ] ||
        grep -qE 'docker|containerd|kubepods|lxc' /proc/1/cgroup 2>/dev/null
}

# Whether packages may be installed: said, or asked for at a terminal.
may_install() {
    local answer
    case ${SETUP:-} in
    1) return 0 ;;
    0) return 1 ;;
    esac
    [ "${CI:-}" != true ] || return 0
    if [ "$(id -u)" = 0 ] && in_container; then
        return 0
    fi
    [ -t 0 ] && [ -t 2 ] || return 1
    printf 'smelt: install %s with apt-get? [y/N] ' "$*" >&2
    read -r answer && [[ $answer == [yY]* ]]
}

install_packages() {
    local prefix
    if ! command -v apt-get >/dev/null; then
        say "smelt: this machine lacks (names as on Debian): $*"
        say "smelt: install them with the machine's package manager, then repeat."
        exit 3
    fi
    if ! may_install "$@"; then
        say "smelt: these packages are missing:"
        say "    apt-get install $*"
        say "smelt: install them, or let make do it: SETUP=1 make ..."
        exit 3
    fi
    if ! prefix=$(as_root); then
        say "smelt: these packages are missing, and installing them needs root:"
        say "    apt-get install $*"
        exit 3
    fi
    say "smelt: installing $*"
    local get="$prefix env DEBIAN_FRONTEND=noninteractive apt-get -q -y"
    # The lists on a fresh image are empty or stale: refresh them when the first attempt fails.
    $get install --no-install-recommends "$@" >build/apt.log 2>&1 </dev/null ||
        { $get update >>build/apt.log 2>&1 </dev/null &&
            $get install --no-install-recommends "$@" >>build/apt.log 2>&1 </dev/null; } ||
        { tail -n 20 build/apt.log >&2; say "smelt: apt-get failed, see build/apt.log"; exit 3; }
}

# One at a time, since one may be had where another is not; a machine that has none of them to give is
# asked again by the next run, which its package manager answers in a second.
try_packages() {
    local prefix package
    command -v apt-get >/dev/null && prefix=$(as_root) && may_install "$@" || return 0
    for package in "$@"; do
        say "smelt: installing $package, which a test uses"
        $prefix env DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends \
            "$package" >build/apt.log 2>&1 </dev/null ||
            say "smelt: $package cannot be had here: the tests that use it are skipped"
    done
}

check_meson() {
    local version
    version=$(meson --version)
    if [ "${version%%.*}" -lt 1 ]; then
        say "smelt: Meson 1.0 or newer is needed, this is $version."
        say "smelt: a newer one: python3 -m venv ~/meson && ~/meson/bin/pip install meson," \
            "then put ~/meson/bin first in PATH."
        exit 3
    fi
}

# A python3 with pip: the first in PATH, else the distribution's.
python_with_pip() {
    local python
    for python in python3 /usr/bin/python3; do
        if "$python" -m pip --version >/dev/null 2>&1; then
            echo "$python"
            return
        fi
    done
    return 1
}

# fetch_nvrtc FOLDER REQUIREMENT: unpacks a wheel and records what it was.
fetch_nvrtc() {
    local folder=$1 requirement=$2 python
    nvrtc_in "$folder" >/dev/null && return
    python_with_pip >/dev/null || install_packages python3-pip
    python=$(python_with_pip)
    say "smelt: no CUDA toolkit here, fetching NVRTC ($requirement) into $folder"
    rm -rf "$folder.new" "$folder"
    if ! PIP_ROOT_USER_ACTION=ignore "$python" -m pip install --quiet --disable-pip-version-check --no-input --no-deps \
        --only-binary :all: --target "$folder.new" "$requirement" </dev/null; then
        say "smelt: the wheel could not be fetched. Install a CUDA toolkit (12 or 13), or set"
        say "smelt: SMELT_NVRTC to a libnvrtc.so, then repeat."
        exit 3
    fi
    (cd "$folder.new" && ls -d ./*.dist-info) | sed 's,^\./,,; s,\.dist-info$,,' \
        >"$folder.new/VERSION"
    mv "$folder.new" "$folder"
    say "smelt: $(cat "$folder/VERSION")"
}

mkdir -p build
missing=$(missing_packages | tr '\n' ' ')
# shellcheck disable=SC2086 # a list of words
[ -z "$missing" ] || install_packages $missing
[ "$what" = format ] && exit 0
optional=$(optional_packages | tr '\n' ' ')
# shellcheck disable=SC2086 # a list of words
[ -z "$optional" ] || try_packages $optional
check_meson
if ! installed_nvrtc >/dev/null; then
    fetch_nvrtc build/nvrtc "$(nvrtc_requirement)"
fi
if [ "$what" = full ]; then
    fetch_nvrtc build/nvrtc-cu12 'nvidia-cuda-nvrtc-cu12>=12.4,<13'
fi
