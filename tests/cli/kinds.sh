#!/bin/sh
# kinds.sh SMELT JSON_HAS FAKE_NVRTC EMULATOR: emulated kernels are never used as a GPU's and are stored
# separately: they are not listed as entries of the cache and are in no export or read-only layer.
. "$(dirname "$0")/cases.sh"
gpu=$3
emulator=$4

${CC:-cc} --version >/dev/null 2>&1 || {
    skipped 'kinds' 'no C compiler'
    finish
}
warm() {
    SMELT_NVRTC=$1 run warm --arch sm_80 "$kernel" --json
}

warm "$emulator"
document 'the emulator compiles' compiled=1 kernels.0.emulated=true kernels.0.kept=true
grep -q 'for the emulator' "$work/err"
holds $? 'and warm says what that is' 'no message'
warm "$emulator"
document 'for the emulator it is cached' cached=1 kernels.0.emulated=true
warm /nonexistent
[ "$status" -eq 3 ]
holds $? 'without a compiler it is no kernel for a GPU' "exit status $status"

# ---- apart ----------------------------------------------------------------------------------------
run cache stat --json
# The miss is of the GPU's kernel.
document 'it is no entry of the cache, and no lookup' entries=0 hits=0 misses=1 stores=0 emulated_entries=1 \
    emulated_bytes:integer
run list --cache --json
document 'nor listed' entries:array
"$has" entries.0:object <"$work/out" 2>/dev/null && failed 'nor listed' 'there is an entry'
gives 1 'nothing to export' cache export "$work/file.tar"
gives 1 'holds no kernel' cache import "$work/file.tar"

# As a read-only layer neither the folder nor its export provides the kernel.
cp -R "$SMELT_CACHE_DIR" "$work/folder"
for layer in folder file.tar; do
    SMELT_CACHE_DIR=$work/other.$layer
    export SMELT_CACHE_READONLY_DIR=$work/$layer
    warm /nonexistent
    [ "$status" -eq 3 ]
    holds $? "nor in a read-only $layer" "exit status $status"
    warm "$emulator"
    document "$layer: the emulator compiles anew" compiled=1 kernels.0.emulated=true
    unset SMELT_CACHE_READONLY_DIR
done

# ---- side by side ---------------------------------------------------------------------------------
SMELT_CACHE_DIR=$work/cache
warm "$gpu"
document "the GPU's is compiled" compiled=1 kernels.0.emulated=false kernels.0.kept=true
warm "$emulator"
document "the emulator's is still there" cached=1 kernels.0.emulated=true
warm /nonexistent
document "without a compiler the GPU's is taken" cached=1 kernels.0.emulated=false
run cache stat --json
document 'the cache has one' entries=1 emulated_entries=1 stores=1 hits=1
gives 0 '' cache export "$work/one.tar" --json
document 'the export, too' entries=1
gives 0 '' cache verify
prints 'verify reads both' '^2 sound, 0 damaged'
gives 0 '' cache prune
prints 'prune counts both' '^0 removed .*, 2 kept'
gives 0 '' cache prune --max-size 1
prints 'and removes both' '^2 removed .*, 0 kept'
warm "$gpu"
warm "$emulator"
# With these variables the compiled kernel does not match its key: it is neither looked up nor stored.
run emit --arch sm_80 "$kernel"
cp "$work/out" "$work/kernel.cu"
for setting in CFLAGS=-g "KEEP=$work" "SOURCE=$work/kernel.cu"; do
    export "SMELT_EMU_$setting"
    warm "$emulator"
    document "${setting%%=*}: compiled anew and not kept" compiled=1 kernels.0.kept=false
    unset "SMELT_EMU_${setting%%=*}"
done
warm "$emulator"
document 'without them it is the one that was kept' cached=1
gives 0 '' cache clear
prints 'clear removes both' '^2 removed$'
run cache stat --json
document 'and nothing is left' entries=0 emulated_entries=0
finish
