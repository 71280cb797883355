#!/bin/sh
# kinds.sh SMELT JSON_HAS FAKE_NVRTC EMULATOR: what the emulator compiled is never taken for a GPU's
# kernel, whichever way it comes: in the same cache, an export, a read-only layer, without a compiler.
. "$(dirname "$0")/cases.sh"
gpu=$3
emulator=$4

command -v "${CC:-cc}" >/dev/null || {
    skipped 'kinds' 'no C compiler'
    finish
}
warm() {
    SMELT_NVRTC=$1 run warm --arch sm_80 "$kernel" --json
}

warm "$emulator"
document 'the emulator compiles' compiled=1 kernels.0.emulated=true kernels.0.kept=true
grep -q 'for the emulator' "$work/err" && passed 'and warm says what that is' ||
    failed 'and warm says what that is' 'no message'
warm "$emulator"
document 'for the emulator it is cached' cached=1 kernels.0.emulated=true
warm /nonexistent
[ "$status" -eq 3 ] && passed 'without a compiler it is no kernel for a GPU' ||
    failed 'without a compiler it is no kernel for a GPU' "exit status $status"

# A cache of the emulator's alone, as a folder, as a file and imported.
cp -R "$SMELT_CACHE_DIR" "$work/folder"
gives 0 '' cache export "$work/file.tar"
for layer in folder file.tar; do
    SMELT_CACHE_DIR=$work/other.$layer
    export SMELT_CACHE_READONLY_DIR=$work/$layer
    warm /nonexistent
    [ "$status" -eq 3 ] && passed "nor in a read-only $layer" || failed "nor in a read-only $layer" "exit status $status"
    warm "$gpu"
    document "$layer: the GPU's is compiled" compiled=1 kernels.0.emulated=false kernels.0.kept=true
    warm "$emulator"
    document "$layer: the emulator's is found" cached=1 kernels.0.emulated=true
    unset SMELT_CACHE_READONLY_DIR
    SMELT_CACHE_DIR=$work/imported.$layer
    gives 0 '' cache import "$work/$layer"
    warm "$gpu"
    document "$layer, imported: the GPU's is compiled" compiled=1 kernels.0.emulated=false
done

# And the reverse: the emulator is given no cubin.
export SMELT_CACHE_DIR=$work/gpu
warm "$gpu"
warm "$emulator"
document 'a cubin is no kernel for the emulator' compiled=1 kernels.0.emulated=true
warm /nonexistent
document 'without a compiler the cubin is taken' cached=1 kernels.0.emulated=false
run list --cache --json
document 'both lie side by side' entries.0.emulated:boolean entries.1.emulated:boolean
run list --cache
prints 'and are told apart' 'sm_80, emulated'
finish
