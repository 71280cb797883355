#!/usr/bin/env bash
# Runs the tests that `make test` omits, in steps. Ends with one line per step and
# `N passed, N failed`, with `, N cut short` for steps that reached the limit.
#
#   scripts/test-full.sh [--at-once N] [--limit SECONDS] [--mutants OPTIONS] [--list] [STEP...]
#
# A step's line has its wall-clock and processor time, the number of tests that passed, and in brackets
# the sum of their counts. Status 0 if every step passed completely.
#
# By default all steps run, one after another, after everything has been built. --limit stops a step
# after this time and names the tests that did not run. --at-once runs several steps in parallel; two per
# eight processors is a good number. A step's output is also in build/test-full/STEP.log.
#
# The mutants are a sample (tests/emu/mutation/mutate.py), about half an hour of one processor. --mutants passes
# options to mutate.py: '--seed N' for another sample, '--sample N' for a larger one.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/nvrtc.sh
. scripts/nvrtc.sh
export_nvrtc

# Name, build folder, title. run_STEP below runs it; build_folder builds.
steps=(
    "gcc|build|gcc, the quick tests"
    "compile|build|compile matrix, whole"
    "sweep|build|emulator: 200 random specs"
    "matrix|build|emulator: the whole GPU matrix"
    "groups|build|emulator: the GPU suite's other groups"
    "mutants|build|emulator: mutants, a sample"
    "asan|build-asan|ASan and UBSan, the quick tests"
    "tsan|build-tsan|ThreadSanitizer, the runtime's threads"
    "clang|build-clang|clang, no warnings, the quick tests"
    "cuda12|build|CUDA 12's NVRTC, what compiles with it"
    "format||clang-format"
)
logs=build/test-full

# ---- the folders -------------------------------------------------------------------------------

build_folder() {
    case $1 in
    build) scripts/build.sh build ;;
    build-asan) scripts/build.sh build-asan -Db_sanitize=address,undefined -Db_lundef=false ;;
    build-tsan) scripts/build.sh build-tsan -Db_sanitize=thread -Db_lundef=false ;;
    build-clang) CC=clang CXX=clang++ scripts/build.sh build-clang -Dwerror=true ;;
    esac || return
    # All folders share the kernels compiled for the emulator.
    if [ "$1" != build ] && [ ! -e "$1/emu-objects" ]; then
        mkdir -p build/emu-objects
        ln -s ../build/emu-objects "$1/emu-objects"
    fi
}

# ---- the steps ---------------------------------------------------------------------------------

# The test names of `meson test --list`, whose lines are `smelt:SUITE / NAME` or, in later versions,
# `SUITE - smelt:NAME`; without a suite `smelt / NAME`, `smelt:NAME`.
names_of_tests() {
    sed -n -E -e 's,^[^ ]+ / ,,p; t' -e 's,^([^ ]+ - )?[^ :]+:([^ ]),\2,p'
}

# meson_test STEP FOLDER ARGUMENT...: with a log and time-outs for steps that run in parallel. Writes the
# names of the tests to STEP.tests, and the name of the log to STEP.results.
meson_test() {
    local step=$1 folder=$2
    shift 2
    meson test -C "$folder" --no-rebuild --list "$@" 2>/dev/null | names_of_tests >"$logs/$step.tests"
    local setup=
    [ "${1:-}" != --setup ] || setup=-$2
    echo "$folder/meson-logs/testlog-$step$setup.json" >"$logs/$step.results"
    ${limit:+timeout --kill-after=60 "$limit"} \
        meson test -C "$folder" --no-rebuild --print-errorlogs --logbase "testlog-$step" \
        --timeout-multiplier 3 "$@"
}

# other_build STEP FOLDER ARGUMENT...: the quick tests of a folder with other compiler options, without
# mutants, coverage and the compile matrix. These test the templates and their tests, not how the library
# and the emulator are compiled (emu/defects has every kind of report), and take longer than all others
# together.
other_build() {
    local step=$1 folder=$2 names
    shift 2
    mapfile -t names < <(meson test -C "$folder" --no-rebuild --list 2>/dev/null |
        names_of_tests | sed -e '/^emu\/mutants, /d' -e '/^emu\/coverage /d' -e '/^compile matrix, /d')
    meson_test "$step" "$folder" "$@" "${names[@]:?no tests in $folder}"
}

# Tests of the suite `full`: sums their counts and prints the end of the log.
long_tests() {
    local step=$1 status=0
    shift
    touch "$logs/$step.sums"
    meson_test "$step" build --setup full "$@" || status=$?
    tail -n 45 "build/meson-logs/testlog-$step-full.txt"
    return $status
}

run_gcc() { meson_test gcc build; }
run_compile() { long_tests compile 'compile matrix, whole'; }
run_sweep() { long_tests sweep --suite full-sweep; }
run_matrix() { long_tests matrix --suite full-matrix; }
run_groups() { long_tests groups --suite full-groups; }
# Starts no mutant after 4/5 of the limit, since one may take minutes.
run_mutants() {
    local options="$mutants ${limit:+--seconds $((limit * 4 / 5))}"
    long_tests mutants 'emu/mutants' --test-args="$options"
}

# tests/lsan.supp suppresses the leaks of NVRTC and the driver. protect_shadow_gap=0: a GPU's driver uses
# addresses that the sanitizer otherwise reserves.
run_asan() {
    ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:protect_shadow_gap=0 \
    UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
    LSAN_OPTIONS=suppressions="$PWD/tests/lsan.supp":print_suppressions=0 \
        other_build asan build-asan --timeout-multiplier 5
}

# The runtime's threads. Not the emulator, whose fibres the sanitizer does not support.
run_tsan() {
    TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1 \
        meson_test tsan build-tsan --timeout-multiplier 5 \
        fault/runtime fault/threads fault/buckets fault/tuning 'torture threads' 'torture contexts' \
        'torture cold' 'cache process' 'cache counters'
}

run_clang() { other_build clang build-clang; }

run_cuda12() {
    local library
    if ! library=$(nvrtc_in build/nvrtc-cu12); then
        echo "test-full: CUDA 12's NVRTC is not in build/nvrtc-cu12; scripts/setup.sh full fetches it" >&2
        return 1
    fi
    # Without the suites that compile no kernels, or use another compiler.
    SMELT_NVRTC=$library meson_test cuda12 build --no-suite emu --no-suite torture --no-suite unit \
        --no-suite golden --no-suite header --no-suite abi --no-suite cache --no-suite docs
}

run_format() {
    scripts/format.sh && echo "$(scripts/format.sh --list | wc -l) files" >"$logs/format.counts"
}

# ---- the command -------------------------------------------------------------------------------

# A step's output: at once if it runs alone, else complete at its end.
keep_log() {
    if [ "$at_once" = 1 ]; then
        tee "$1"
    else
        cat >"$1"
        cat "$1"
    fi
}

# Processor time of this shell's programs so far, seconds.
processor_seconds() {
    times >"$1" # not in a pipe, whose subshell has its own times
    awk -F '[ms ]+' 'NR == 2 { printf "%d", 60 * $1 + $2 + 60 * $3 + $4 }' "$1"
    rm "$1"
}

# count_step NAME: counts the step's tests, "N passed, N failed ...". Status 3 if some did not run; NAME.left
# has their names.
count_step() {
    local status=0
    if [ -f "$logs/$1.results" ]; then
        local sums=
        [ ! -f "$logs/$1.sums" ] || sums=--sums
        python3 scripts/count-tests.py --of "$logs/$1.tests" --left "$logs/$1.left" $sums \
            "$(cat "$logs/$1.results")" >"$logs/$1.counts" || status=$?
    fi
    return $status
}

# run_step NAME FOLDER TITLE: runs the step and writes its line, also if it fails.
run_step() {
    local name=$1 folder=$2 title=$3 begin=$SECONDS verdict=ok
    {
        printf '\n==== %s\n' "$title"
        if [ -n "$folder" ] && [ ! -f "$logs/$folder.built" ]; then
            echo "$folder could not be built" && false
        else
            local status=0
            "run_$name" || status=$?
            processor_seconds "$logs/$name.times" >"$logs/$name.processor"
            (exit $status)
        fi
    } 2>&1 </dev/null | keep_log "$logs/$name.log" || verdict=FAILED
    local counted=0
    count_step "$name" || counted=$?
    case $counted in
    0) ;;
    3) [ -n "$limit" ] && verdict='cut short' ;; # without failures
    *) verdict=FAILED ;;
    esac
    printf '%-42s %-9s %5d s %6d processor s  %s\n' "$title" "$verdict" $((SECONDS - begin)) \
        "$(cat "$logs/$name.processor" 2>/dev/null || echo 0)" \
        "$(cat "$logs/$name.counts" 2>/dev/null || true)" >"$logs/$name.line"
}

list_steps() {
    local step
    for step in "${steps[@]}"; do
        printf '%-8s %s\n' "${step%%|*}" "${step##*|}"
    done
}

# whole WHAT TEXT: checks that TEXT is a number above 0.
whole() {
    case $2 in
    '' | *[!0-9]* | 0*)
        echo "test-full: $1 must be a number above 0, not '$2'" >&2
        exit 2
        ;;
    esac
}

at_once=1 limit='' mutants='' wanted=()
while [ $# -gt 0 ]; do
    case $1 in
    --list) list_steps && exit ;;
    --at-once) at_once=${2:-} && whole --at-once "$at_once" && shift ;;
    --limit) limit=${2:-} && whole --limit "$limit" && shift ;;
    --mutants)
        if [ $# = 1 ]; then
            echo "test-full: --mutants needs options of mutate.py" >&2
            exit 2
        fi
        mutants=$2 && shift
        ;;
    *)
        if ! list_steps | grep -q "^$1 "; then
            echo "test-full: no step is called '$1'; --list names them" >&2
            exit 2
        fi
        wanted+=("$1")
        ;;
    esac
    shift
done

mkdir -p $logs
rm -f $logs/*.{line,built,processor,tests,results,left,counts,sums}
chosen=()
for step in "${steps[@]}"; do
    if [ ${#wanted[@]} = 0 ] || [[ " ${wanted[*]} " == *" ${step%%|*} "* ]]; then
        chosen+=("$step")
        IFS='|' read -r name folder title <<<"$step"
        if [ -n "$folder" ] && [ ! -f "$logs/$folder.built" ]; then
            printf '\n==== building %s\n' "$folder"
            ! build_folder "$folder" || touch "$logs/$folder.built"
        fi
    fi
done

running=0
for step in "${chosen[@]}"; do
    IFS='|' read -r name folder title <<<"$step"
    if [ "$running" -ge "$at_once" ]; then
        wait -n && running=$((running - 1))
    fi
    run_step "$name" "$folder" "$title" &
    running=$((running + 1))
done
wait

printf '\n'
for step in "${chosen[@]}"; do
    cat "$logs/${step%%|*}.line"
done
for step in "${chosen[@]}"; do
    [ ! -s "$logs/${step%%|*}.left" ] ||
        printf 'not run of %s: %s\n' "${step%%|*}" "$(paste -s -d, "$logs/${step%%|*}.left")"
done
passed=$(cat $logs/*.line | grep -c ' ok  ' || true)
cut=$(cat $logs/*.line | grep -c ' cut short ' || true)
printf '%d passed, %d failed%s\n' "$passed" $((${#chosen[@]} - passed - cut)) \
    "$([ "$cut" = 0 ] || echo ", $cut cut short")"
[ "$passed" = ${#chosen[@]} ]
