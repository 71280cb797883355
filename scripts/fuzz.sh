#!/usr/bin/env bash
# Fuzzes one parser with libFuzzer, AddressSanitizer and UBSan (tests/fuzz):
#
#   scripts/fuzz.sh TARGET [RUNS] [SECONDS]     entry, library, manifest, spec, ...
#   scripts/fuzz.sh --merge TARGET [FOLDER]     replaces the corpus by a minimal subset of it and
#                                               FOLDER (default: found inputs) with equal coverage
#
# RUNS defaults to SMELT_FUZZ_RUNS, else 100 million, and a twentieth of that for targets other than
# `entry`; 0 runs for SECONDS. A corpus is one file, tests/fuzz/corpus/TARGET.pack (replay.c has the
# format). New inputs are kept in build-fuzz/found/TARGET, an input that shows a defect in build-fuzz.
# The last line is "figure: N executions ...".
set -euo pipefail
cd "$(dirname "$0")/.."

merge=0
if [ "${1:-}" = --merge ]; then
    merge=1
    shift
fi
targets=$(cd tests/fuzz/corpus && echo *.pack)
target=${1:?a target: ${targets//.pack/}}
pack=tests/fuzz/corpus/$target.pack
[ -f "$pack" ] || { echo "no such target: $target; there are ${targets//.pack/}"; exit 2; }
if ! printf 'int LLVMFuzzerTestOneInput(const char *d, long n) { return n && !d; }\n' |
    clang -fsanitize=fuzzer,address -x c -o /dev/null - 2>/dev/null; then
    echo "skipped: no clang with libFuzzer here"
    exit 77
fi
if [ ! -f build-fuzz/build.ninja ]; then
    # A failed allocation is not a finding; exceeding the memory limit is.
    flags='-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -O2'
    CC=clang CXX=clang++ CFLAGS=$flags LDFLAGS='-fsanitize=address,undefined' \
        meson setup build-fuzz -Dfuzz=true -Dtests=true --buildtype plain >/dev/null
fi
ninja -C build-fuzz "tests/fuzz/fuzz_$target" >build-fuzz/ninja.log 2>&1 ||
    { tail -20 build-fuzz/ninja.log; exit 1; }

options=(-max_len=2048 -timeout=5 -rss_limit_mb=1024 -print_final_stats=1 -artifact_prefix=build-fuzz/)
[ ! -f "tests/fuzz/$target.dict" ] || options+=("-dict=tests/fuzz/$target.dict")
corpus=build-fuzz/corpus/$target found=build-fuzz/found/$target
rm -rf "$corpus"
python3 tests/fuzz/pack.py --unpack "$pack" "$corpus"
mkdir -p "$found"
if [ "$merge" = 1 ]; then
    fewest=build-fuzz/merged/$target
    rm -rf "$fewest"
    mkdir -p "$fewest"
    "build-fuzz/tests/fuzz/fuzz_$target" -set_cover_merge=1 "${options[@]}" -max_len=65536 "$fewest" "$corpus" \
        "${2:-$found}"
    exec python3 tests/fuzz/pack.py "$fewest" "$pack"
fi
runs=${2:-${SMELT_FUZZ_RUNS:-100000000}}
[ -n "${2:-}" ] || [ "$target" = entry ] || runs=$((runs / 20))
[ "$runs" = 0 ] || options+=("-runs=$runs")
[ -z "${3:-}" ] || options+=("-max_total_time=$3")
log=build-fuzz/$target.log begin=$SECONDS status=0
ASAN_OPTIONS=allocator_may_return_null=1 \
    "build-fuzz/tests/fuzz/fuzz_$target" "${options[@]}" "$found" "$corpus" >"$log" 2>&1 || status=$?
runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
if [ "$status" != 0 ]; then
    tail -n 40 "$log"
    exit 1
fi
echo "figure: ${runs:-0} executions of the $target parser in $((SECONDS - begin)) s, no finding;" \
    "$(sed -n 's/.*cov: \([0-9]*\).*/\1/p' "$log" | tail -1) branches reached," \
    "$(find "$corpus" -type f | wc -l) inputs of corpus committed"
