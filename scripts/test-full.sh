#!/usr/bin/env bash
# Everything `make test` leaves out. One line a step at the end, then `N passed, N failed`.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/nvrtc.sh
. scripts/nvrtc.sh
export_nvrtc

passed=0 failed=0 report=""

# step NAME COMMAND...: runs it, goes on whatever happens.
step() {
    local name=$1 begin=$SECONDS verdict
    shift
    printf '\n==== %s\n' "$name"
    if "$@"; then
        verdict=ok passed=$((passed + 1))
    else
        verdict=FAILED failed=$((failed + 1))
    fi
    report+=$(printf '%-42s %-6s %5d s' "$name" "$verdict" $((SECONDS - begin)))$'\n'
}

with_gcc() { scripts/build.sh build && meson test -C build --no-rebuild --print-errorlogs; }

# One test of the suite `full`, and the end of what it printed.
long_test() {
    local status=0
    meson test -C build --no-rebuild --print-errorlogs --setup full "$@" || status=$?
    tail -n 45 build/meson-logs/testlog-full.txt
    return $status
}

# The leaks of NVRTC and of the driver are theirs: tests/lsan.supp names them.
with_sanitizers() {
    scripts/build.sh build-asan -Db_sanitize=address,undefined -Db_lundef=false &&
        ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1 \
        UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
        LSAN_OPTIONS=suppressions="$PWD/tests/lsan.supp":print_suppressions=0 \
            meson test -C build-asan --no-rebuild --print-errorlogs --timeout-multiplier 5
}

# The runtime's threads. Not the emulator, whose fibres the sanitizer does not know.
with_thread_sanitizer() {
    scripts/build.sh build-tsan -Db_sanitize=thread -Db_lundef=false &&
        TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1 \
            meson test -C build-tsan --no-rebuild --print-errorlogs --timeout-multiplier 5 \
            fault/runtime fault/threads fault/buckets fault/tuning 'torture threads' 'torture contexts' \
            'torture cold' 'cache process' 'cache counters'
}

with_clang() {
    local folder=build-clang
    if [ ! -f $folder/build.ninja ]; then
        CC=clang CXX=clang++ meson setup $folder -Dwerror=true || return
    fi
    ninja -C $folder && meson test -C $folder --no-rebuild --print-errorlogs --no-suite compile
}

with_cuda_12() {
    local library
    library=$(nvrtc_in build/nvrtc-cu12) || return
    SMELT_NVRTC=$library meson test -C build --no-rebuild --print-errorlogs --no-suite emu
}

step 'gcc, the quick tests' with_gcc
step 'compile matrix, whole' long_test 'compile matrix, whole'
step 'emulator: 200 random specs' long_test 'emu/sweep of 200 specs'
step 'emulator: the whole GPU matrix' long_test 'emu/matrix, all of it, part 0/2' \
    'emu/matrix, all of it, part 1/2'
step "emulator: the GPU suite's other groups" long_test 'emu/groups, all of them, part 0/2' \
    'emu/groups, all of them, part 1/2'
step 'emulator: mutants, each family' long_test 'emu/mutants'
step 'ASan and UBSan, the quick tests' with_sanitizers
step "ThreadSanitizer, the runtime's threads" with_thread_sanitizer
step 'clang, no warnings, the quick tests' with_clang
step "CUDA 12's NVRTC, the quick tests" with_cuda_12
step 'clang-format' scripts/format.sh

printf '\n%s%d passed, %d failed\n' "$report" "$passed" "$failed"
[ "$failed" = 0 ]
