#!/bin/sh
# What a machine lacks: no driver, no NVRTC, a wrong library in its place, no usable cache folder.
. "$(dirname "$0")/cases.sh"

# ---- no NVRTC -------------------------------------------------------------------------------------
export SMELT_NVRTC=/nonexistent
gives 3 '/nonexistent' warm --arch sm_90a "$kernel"
gives 3 '/nonexistent' warm --arch sm_90a --arch sm_80 --json "$operator"
document 'warm without NVRTC is a document' kernels.0.spec=$kernel kernels.0.state=failed \
    kernels.0.error:string kernels.1.arch=sm_80 compiled=0 cached=0 failed=2 seconds:number
gives 3 '/nonexistent' show --arch sm_90a "$kernel"
prints 'show without NVRTC has the plan' 'mma'
gives 3 '/nonexistent' show --arch sm_90a --json "$kernel"
document 'show without NVRTC has the plan as JSON' spec=$kernel arch=sm_90a variant=mma \
    plan:object plan.shared_bytes:integer kernels.0.state=failed
gives 3 - doctor
prints 'doctor says that NVRTC is not there' '^NVRTC +not found'
gives 3 - doctor --json
document 'doctor says so in JSON' nvrtc.found=false nvrtc.problem:string ok=false
gives 0 '' emit --arch sm_90a "$kernel"
gives 0 '' list

# ---- a wrong library in its place -----------------------------------------------------------------
libc=$(ldd "$smelt" | sed -n 's/.*libc\.so\.6 => \([^ ]*\).*/\1/p')
SMELT_NVRTC=$libc
gives 3 'libc' warm --arch sm_90a "$kernel"
echo 'no library' >"$work/libnvrtc.so"
SMELT_NVRTC=$work/libnvrtc.so
gives 3 'libnvrtc.so' warm --arch sm_90a "$kernel"
SMELT_NVRTC=$work
gives 3 - warm --arch sm_90a "$kernel"
unset SMELT_NVRTC

# ---- no driver, no GPU ----------------------------------------------------------------------------
run doctor
if grep -Eq '^(driver +not found|GPU +none)' "$work/out"; then
    for verb in check bench tune; do
        gives 3 'needs a GPU' "$verb" "$operator"
        gives 3 'needs a GPU' "$verb" --json "$operator"
        document "$verb without a GPU is a document" error:string exit_status=3
        gives 3 'needs a GPU' "$verb" "$kernel"
    done
    for verb in warm show; do
        gives 3 'name one: --arch' "$verb" "$kernel"
    done
    gives 3 'name one: --arch' emit "$kernel"
else
    skipped 'no driver' 'a GPU is here'
fi

# ---- the cache folder -----------------------------------------------------------------------------
run doctor
if ! grep -Eq '^NVRTC +[0-9]' "$work/out"; then
    skipped 'an unusable cache folder' 'NVRTC is not here'
    finish
fi
# bypassed TITLE FOLDER: the kernel is compiled all the same, with one warning.
bypassed() {
    SMELT_CACHE_DIR=$2
    run warm --arch sm_90a "$kernel"
    warnings=$(grep -c 'warning' "$work/err")
    if [ "$status" -eq 0 ] && [ "$warnings" -eq 1 ] && grep -q compiled "$work/out"; then
        passed "$1"
    else
        failed "$1" "exit status $status, $warnings warnings"
    fi
}
touch "$work/file"
bypassed 'a file in place of the cache folder' "$work/file"
bypassed 'a cache folder under a file' "$work/file/cache"
bypassed 'a cache folder nobody can make' /proc/nowhere/cache
mkdir -m 777 "$work/open"
chmod 777 "$work/open"
bypassed 'a cache folder others can write' "$work/open"
SMELT_CACHE_DIR=$work/file
gives 1 'cannot be used' cache verify
gives 1 'cannot be used' cache clear
gives 1 'cannot be used' list --cache
gives 0 - cache stat --json
document 'cache stat says what is wrong' problem:string entries=0
finish
