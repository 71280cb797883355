#!/usr/bin/env bash
# Builds contenders for bench/peers into a folder.
#
#   build.sh flash_mla OUT FLASH_MLA [CUTLASS]   OUT/flash_mla.so from a FlashMLA checkout; CUTLASS: a
#                                                checkout of it, if not the submodule csrc/cutlass
#   build.sh smelt OUT CHECKOUT [SOURCE]         OUT/smelt.so from a checkout of smelt that is built in
#                                                CHECKOUT/build; SOURCE: its contender's source, if the
#                                                checkout is older than bench/peers
#
# flash_mla needs nvcc (NVCC, CUDA_HOME/bin/nvcc or the one in the PATH) and takes one to two minutes.
# It is compiled with FlashMLA's own optimisation flags: without --use_fast_math it is 7 to 10 % slower.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

usage() {
    sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2
    exit 2
}

build_flash_mla() {
    local out=$1 source=$2 cutlass=${3:-$2/csrc/cutlass} nvcc
    nvcc=${NVCC:-${CUDA_HOME:+$CUDA_HOME/bin/nvcc}}
    nvcc=${nvcc:-nvcc}
    local kernels=$source/csrc/sm90/prefill/sparse objects file
    [ -f "$kernels/fwd.cu" ] || { echo "$source: no FlashMLA checkout (csrc/sm90/prefill/sparse)" >&2; exit 2; }
    [ -d "$cutlass/include/cute" ] || { echo "$cutlass: no CUTLASS (include/cute); git submodule update --init" >&2; exit 2; }
    objects=$(mktemp -d)
    # shellcheck disable=SC2064 # expanded now: the variable is gone when the shell ends
    trap "rm -rf '$objects'" EXIT
    local flags=(-O3 -std=c++20 -DNDEBUG -D_USE_MATH_DEFINES --expt-relaxed-constexpr
        --expt-extended-lambda --use_fast_math -Xptxas --register-usage-level=10
        -gencode arch=compute_90a,code=sm_90a -Xcompiler -fPIC -Xcompiler -fvisibility=hidden
        -I"$source/csrc" -I"$source/csrc/kerutils/include" -I"$source/csrc/sm90"
        -I"$cutlass/include" -I"$here")
    for file in "$here/contender_flash_mla.cu" "$kernels/fwd.cu" "$kernels"/instantiations/*.cu; do
        printf '%s\0' "$file"
    done | xargs -0 -P "$(nproc)" -I{} sh -c \
        'file=$1 objects=$2; shift 2; exec "$@" -c "$file" -o "$objects/$(basename "$file" .cu).o"' \
        sh {} "$objects" "$nvcc" "${flags[@]}"
    # The C++ runtime goes inside: the object may run where another one is installed.
    "$nvcc" -shared -Xcompiler -static-libstdc++,-static-libgcc -Xlinker --exclude-libs,ALL "$objects"/*.o -o "$out/flash_mla.so"
}

build_smelt() {
    local out=$1 checkout=$2 source=${3:-$2/bench/peers/contender_smelt.c}
    [ -f "$checkout/build/libsmelt.a" ] || { echo "$checkout: not built (build/libsmelt.a)" >&2; exit 2; }
    "${CC:-cc}" -O2 -std=c11 -D_GNU_SOURCE -DSMELT_STATIC -fPIC -shared -fvisibility=hidden \
        -I"$checkout/include" -I"$here" "$source" "$checkout/build/libsmelt.a" \
        -Wl,--exclude-libs,ALL -pthread -ldl -lm -o "$out/smelt.so"
}

[ $# -ge 3 ] && [ $# -le 4 ] || usage
mkdir -p "$2"
case $1 in
flash_mla) build_flash_mla "${@:2}" ;;
smelt) build_smelt "${@:2}" ;;
*) usage ;;
esac
