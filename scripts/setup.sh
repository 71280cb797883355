#!/usr/bin/env bash
# Finds the packages and the NVRTC that `make WHAT` needs, and installs them where allowed.
#
#   scripts/setup.sh build|test|python|full|torture|docs|format
#
# On Debian and Ubuntu, root, or a user with sudo without a password, installs missing packages with
# apt-get: with SETUP=1, in CI (CI=true), as root of a container, or after confirmation at a terminal
# (SETUP=0: never). Otherwise the script names them and stops with status 3. For test and full it also
# tries to install faketime, bindfs and strace; without these a few tests are skipped. NVRTC is the CUDA
# toolkit's, else that of NVIDIA's Python wheel, unpacked into build/nvrtc. Nothing else on the machine
# is changed. If everything is there, the script takes well under a second.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/nvrtc.sh
. scripts/nvrtc.sh

what=${1:-build}

say() { printf '%s\n' "$*" >&2; }

have_library() { command -v pkg-config >/dev/null && pkg-config --exists "$1"; }

# gcc without libc6-dev lacks the C library's headers. CC may have several words, such as "ccache gcc".
have_c_headers() {
    local compiler
    read -ra compiler <<<"${CC:-cc}"
    printf '#include <stdio.h>\n' | "${compiler[@]}" -E - >/dev/null 2>&1
}

have_cxx() {
    local compiler
    read -ra compiler <<<"${CXX:-c++}"
    "${compiler[@]}" --version >/dev/null 2>&1
}

# Python's headers.
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

# Prints the missing packages, by Debian's names.
missing_packages() {
    if [[ $what != format ]]; then
        have_c_headers || echo gcc libc6-dev
        command -v make >/dev/null || echo make
        command -v meson >/dev/null || echo meson
        command -v ninja >/dev/null || echo ninja-build
        command -v pkg-config >/dev/null || echo pkg-config
        command -v python3 >/dev/null || echo python3
        have_library cmocka || echo libcmocka-dev
        have_library jansson || echo libjansson-dev
        have_library libxxhash || echo libxxhash-dev
        have_library zlib || echo zlib1g-dev
    fi
    case $what in
    test | full | torture)
        have_cxx || echo g++ # the headers are also compiled as C++
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
    docs)
        command -v doxygen >/dev/null || echo doxygen
        have_venv || echo python3-venv
        ;;
    format) command -v clang-format >/dev/null || echo clang-format ;;
    esac
}

# Packages without which a few tests are skipped; a failed installation is not an error.
optional_packages() {
    case $what in
    test | full)
        command -v faketime >/dev/null || echo faketime
        command -v bindfs >/dev/null || echo bindfs
        command -v strace >/dev/null || echo strace
        ;;
    esac
}

# The command prefix to install packages ("" or "sudo -n"), or status 1.
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

# Whether packages may be installed: by the rules above, or the answer at a terminal.
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
        say "smelt: install them with the package manager, then run make again."
        exit 3
    fi
    if ! may_install "$@"; then
        say "smelt: these packages are missing:"
        say "    apt-get install $*"
        say "smelt: install them, or let make install them: SETUP=1 make ..."
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

# One at a time, since one may be available and another not. If a package is not available, each run
# tries again, which takes apt-get about a second.
try_packages() {
    local prefix package
    command -v apt-get >/dev/null && prefix=$(as_root) && may_install "$@" || return 0
    for package in "$@"; do
        say "smelt: installing $package, which some tests use"
        $prefix env DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends \
            "$package" >build/apt.log 2>&1 </dev/null ||
            say "smelt: $package is not available: the tests that use it are skipped"
    done
}

check_meson() {
    local version
    version=$(meson --version)
    if [ "${version%%.*}" -lt 1 ]; then
        say "smelt: Meson 1.0 or newer is required, this is $version."
        say "smelt: to install a newer one: python3 -m venv ~/meson && ~/meson/bin/pip install meson," \
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

# fetch_nvrtc FOLDER REQUIREMENT: unpacks a wheel and records its version.
fetch_nvrtc() {
    local folder=$1 requirement=$2 python
    nvrtc_in "$folder" >/dev/null && return
    python_with_pip >/dev/null || install_packages python3-pip
    python=$(python_with_pip)
    say "smelt: no CUDA toolkit found, downloading NVRTC ($requirement) into $folder"
    rm -rf "$folder.new" "$folder"
    if ! PIP_ROOT_USER_ACTION=ignore "$python" -m pip install --quiet --disable-pip-version-check --no-input --no-deps \
        --only-binary :all: --target "$folder.new" "$requirement" </dev/null; then
        say "smelt: the wheel could not be downloaded. Install a CUDA toolkit (12 or 13), or set"
        say "smelt: SMELT_NVRTC to a libnvrtc.so, then run make again."
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
[[ $what != docs && $what != format ]] || exit 0
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
