#!/bin/sh
# Machines without a driver, without NVRTC, with a wrong library, without a usable cache folder.
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
        gives 3 'give one: --arch' "$verb" "$kernel"
    done
    gives 3 'give one: --arch' emit "$kernel"
else
    skipped 'no driver' 'a GPU is here'
fi

# ---- the cache folder -----------------------------------------------------------------------------
export SMELT_NVRTC=$3 # the fake one, which is fast
# bypassed TITLE FOLDER: the kernel is compiled nevertheless, with one warning; but warm, which exists to
# store it, fails with the reason.
bypassed() {
    SMELT_CACHE_DIR=$2
    run show --arch sm_90a "$kernel"
    warnings=$(grep -c 'warning' "$work/err")
    [ "$status" -eq 0 ] && [ "$warnings" -eq 1 ] && grep -q compiled "$work/out"
    holds $? "$1" "exit status $status, $warnings warnings"
    unkept "$1"
}
# unkept TITLE
unkept() {
    gives 1 "$kernel on sm_90a is not stored: .+" warm --arch sm_90a "$kernel"
    run warm --arch sm_90a "$kernel" --json
    [ "$status" -eq 1 ] || failed "$1, in JSON" "exit status $status"
    document "$1: warm tells it" not_kept=1 compiled=1 failed=0 kernels.0.kept=false \
        kernels.0.state=compiled kernels.0.error:string
}
touch "$work/file"
bypassed 'a file in place of the cache folder' "$work/file"
bypassed 'a cache folder under a file' "$work/file/cache"
bypassed 'a cache folder nobody can make' /proc/nowhere/cache
mkdir -m 777 "$work/open"
chmod 777 "$work/open"
bypassed 'a cache folder others can write' "$work/open"
SMELT_CACHE_DIR=
XDG_CACHE_HOME='' HOME='' unkept 'no cache folder at all'
SMELT_CACHE_DIR=$work/limited
# Output goes to pipes, because the limit applies to files.
mkfifo "$work/pipe"
cat "$work/pipe" >"$work/err" &
(ulimit -f 1 && exec "$smelt" warm --arch sm_90a "$kernel" --json 2>"$work/pipe" </dev/null) | cat >"$work/out"
wait
grep -q 'is not stored: .*File too large' "$work/err"
holds $? 'a limit on the size of files' 'no message of it'
document 'and its document' not_kept=1 kernels.0.kept=false
(ulimit -f 1 && exec "$smelt" doctor </dev/null) | cat >"$work/out"
prints 'as doctor says, too' 'File too large: .*raise the limit on the size of files'
SMELT_CACHE_DISABLE=1 unkept 'the cache switched off'
SMELT_CACHE_DISABLE=1 SMELT_CACHE_DIR=$work/absent run doctor
prints 'as doctor says' '^cache +.*absent, disabled by SMELT_CACHE_DISABLE$'
[ ! -e "$work/absent" ]
holds $? 'and no folder is made' "$(ls -d "$work/absent")"
if unshare -rm true 2>/dev/null; then
    # For root, who may write everywhere, a read-only file system.
    SMELT_CACHE_DIR=$work/frozen
    gives 0 '' warm --arch sm_90a "$kernel"
    read_only() {
        unshare -rm sh -c 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && shift && exec "$@"' \
            - "$SMELT_CACHE_DIR" "$smelt" "$@" >"$work/out" 2>"$work/err" </dev/null
        status=$?
    }
    read_only warm --arch sm_90a "$kernel" --json
    [ "$status" -eq 0 ]
    holds $? 'what a read-only folder has is kept' "exit status $status"
    document 'and named so' cached=1 not_kept=0 kernels.0.kept=true
    read_only warm --arch sm_80 "$kernel" --json
    [ "$status" -eq 1 ]
    holds $? 'a read-only folder' "exit status $status"
    document 'and its document' not_kept=1 kernels.0.kept=false
    read_only doctor
    prints 'doctor sees it' '^cache +.*, not writable$'
    prints 'says why, and what to do' 'Read-only file system: .*mount it writable, or name another folder in SMELT_CACHE_DIR'
    full() {
        unshare -rm sh -c 'mount -t tmpfs -o size=64k none "$1" && head -c 60000 /dev/zero >"$1/other" && shift && exec "$@"' \
            - "$SMELT_CACHE_DIR" "$smelt" "$@" >"$work/out" 2>"$work/err" </dev/null
        status=$?
    }
    full doctor
    prints 'doctor sees a disk that is full' '^cache +.*, not writable$'
    prints 'and what to do' 'No space left on device: .*free some space there, or name another folder in SMELT_CACHE_DIR'
    full doctor --json
    document 'and its document' 'cache.rights=not writable' cache.problem:string ok=false
else
    skipped 'a read-only folder' 'no name spaces here'
fi

# ---- a folder of the cache that another user made -------------------------------------------------
SMELT_CACHE_DIR=$work/partly
gives 0 '' warm --arch sm_80 "$kernel"
# Root may read everything, so the command runs as the user nobody if the caller is root.
as_another() {
    [ "$(id -u)" != 0 ] || set -- setpriv --reuid 65534 --regid 65534 --clear-groups "$@"
    "$@" >"$work/out" 2>"$work/err" </dev/null
    status=$?
}
chmod 755 "$work" "$SMELT_CACHE_DIR"
if as_another "$smelt" --version && [ "$status" -eq 0 ]; then
    chmod 0 "$SMELT_CACHE_DIR"/??
    for line in 'cache stat' 'cache verify' 'cache prune' 'cache clear' 'list --cache' "cache export $work/partly.tar" \
        "cache verify $SMELT_CACHE_DIR"; do
        # shellcheck disable=SC2086 # words
        as_another "$smelt" $line
        [ "$status" -eq 1 ] && grep -q "$SMELT_CACHE_DIR.* cannot be .*: Permission denied" "$work/err"
        holds $? "$line cannot read it" "exit status $status"
    done
    as_another "$smelt" doctor
    prints 'doctor sees it' '^cache +.*, not completely readable$'
    prints 'and what to do' 'Permission denied: .*correct the permissions, or name another folder in SMELT_CACHE_DIR'
    as_another "$smelt" doctor --json
    document 'and its document' 'cache.rights=not completely readable' cache.problem:string ok=false
    chmod 700 "$SMELT_CACHE_DIR"/??
    # One of two folders cannot be read: the actions count the entry in the other one, and fail.
    SMELT_CACHE_DIR=$work/halves
    mkdir "$SMELT_CACHE_DIR"
    [ "$(id -u)" != 0 ] || chown 65534 "$SMELT_CACHE_DIR"
    as_another "$smelt" warm --arch sm_80 --arch sm_90a "$kernel"
    closed=$(cd "$SMELT_CACHE_DIR" && echo ??)
    closed=${closed%% *}
    cp -a "$SMELT_CACHE_DIR" "$work/layer"
    chmod 0 "$SMELT_CACHE_DIR/$closed"
    export SMELT_CACHE_READONLY_DIR="$work/layer"
    as_another "$smelt" cache verify
    holds "$((status != 1))" 'verify fails' "exit status $status"
    prints 'and verifies the read-only layer' "^$work/layer: 2 sound, 0 damaged"
    unset SMELT_CACHE_READONLY_DIR
    as_another "$smelt" cache verify "$SMELT_CACHE_DIR"
    holds "$((status != 1))" 'as a folder it fails, too' "exit status $status"
    prints 'and its other entry is verified' "^$SMELT_CACHE_DIR: 1 sound, 0 damaged"
    for counted in 'stat=^entries +1$' 'verify=^1 sound, 0 damaged' 'prune=^0 removed .* 1 kept' 'clear=^1 removed$'; do
        as_another "$smelt" cache "${counted%%=*}"
        [ "$status" -eq 1 ] && grep -q "the subfolder $closed of $SMELT_CACHE_DIR cannot be read: Permission denied" "$work/err"
        holds $? "cache ${counted%%=*} says what it cannot read" "exit status $status"
        prints 'and counts the rest' "${counted#*=}"
    done
    chmod 700 "$SMELT_CACHE_DIR/$closed"
else
    skipped 'a folder that cannot be read' 'the user nobody cannot run the command here'
fi
chmod 700 "$work"

# ---- a read-only layer that is not there ----------------------------------------------------------
export SMELT_CACHE_DIR=$work/cache SMELT_CACHE_READONLY_DIR=$work/nowhere
gives 0 'nowhere .*is not used: No such file' warm --arch sm_90a "$kernel"
run doctor
prints 'doctor says so' '^layer +not used'
prints 'and why' 'nowhere: No such file'
[ "$status" -ne 0 ]
holds $? 'and is not content' 'exit status 0'
run doctor --json
document 'in JSON, too' cache.readonly_problem:string "cache.readonly_folder=$work/nowhere" ok=false
SMELT_CACHE_READONLY_DIR=$work/cache SMELT_CACHE_DIR=$work/other run doctor
prints 'doctor counts what is there' '^layer +.*, read-only, 1 entries$'
unset SMELT_CACHE_READONLY_DIR

# ---- values of the cache's variables --------------------------------------------------------------
SMELT_CACHE_DIR=$work/cache
for cap in 1=1 7K=7168 3M=3145728 2G=2147483648 17179869183G=18446744072635809792; do
    SMELT_CACHE_CAP=${cap%=*} gives 0 '' cache stat
    SMELT_CACHE_CAP=${cap%=*} run cache stat --json
    [ "$cap" = 17179869183G=18446744072635809792 ] || document "SMELT_CACHE_CAP=${cap%=*}" "cap_bytes=${cap#*=}"
done
for bad in CAP=0 CAP=-1 CAP=1T CAP=1KB CAP=17179869184G CAP=x LOCK=none LOCK_TIMEOUT=-1 LOCK_TIMEOUT=1s \
    LOCK_TIMEOUT=. LOCK_TIMEOUT=9999999 DISABLE=yes DISABLE=2 RECOMPILE=on; do
    export "SMELT_CACHE_$bad"
    gives 2 "SMELT_CACHE_${bad%%=*} is \"${bad#*=}\"; legal: " cache stat
    unset "SMELT_CACHE_${bad%%=*}"
done

# ---- what the cache verbs count and remove --------------------------------------------------------
SMELT_CACHE_DIR=$work/counted
gives 0 '' warm --arch sm_80 "$kernel"
gives 0 '' warm --arch sm_80 "$kernel"
gives 0 '' cache stat
prints 'a hit of two lookups' '^hits +1 of 2 lookups, 50\.0 %$'
before=$(find "$SMELT_CACHE_DIR" | sort)
run doctor
[ "$(find "$SMELT_CACHE_DIR" | sort)" = "$before" ]
holds $? 'doctor leaves nothing behind' "$(find "$SMELT_CACHE_DIR" | sort)"
for unit in m=60 h=3600 d=86400 w=604800; do
    gives 0 '' warm --arch sm_80 "$kernel"
    find "$SMELT_CACHE_DIR" -name '*.smelt' -exec touch -d "-$((${unit#*=} * 3 / 2)) sec" {} +
    gives 0 '' cache prune --older-than "2${unit%=*}"
    prints "younger than 2${unit%=*}" '^0 removed '
    gives 0 '' cache prune --older-than "1${unit%=*}"
    prints "older than 1${unit%=*}" '^1 removed '
done
gives 0 '' warm --arch sm_80 "$kernel"
printf damage | dd of="$(find "$SMELT_CACHE_DIR" -name '*.smelt')" bs=1 seek=300 conv=notrunc 2>/dev/null
gives 0 '' warm --arch sm_90a "$kernel"
gives 1 '1 damaged entries were skipped' cache export "$work/damaged.tar"
SMELT_CACHE_DIR=$work/imported gives 1 '1 damaged entries were skipped' cache import "$work/counted"

# ---- an image: what passes here hits where it runs --------------------------------------------------
SMELT_CACHE_DIR=$work/image
gives 3 '1 of 1 kernels are not in the cache' warm --offline --arch h100 "$operator"
prints 'what is missing' "^  $kernel +sm_90a +missing "
gives 0 '' warm --arch h100 "$operator"
gives 0 '' warm --offline --arch h100 "$operator"
prints 'nothing is missing' '^1 kernel: 1 cached, 0 missing, 0 failed$'
gives 3 '1 of 2 kernels are not in the cache' warm --offline --arch h100 --arch a100 "$operator" --json
document 'the list in JSON' missing=1 cached=1 compiled=0 failed=0 missing_kernels.0.spec=$kernel \
    missing_kernels.0.arch=sm_80 missing_kernels.0.key:string kernels.0.state=cached
SMELT_OFFLINE=1 gives 3 "$kernel for sm_80 is not in the cache, .*SMELT_OFFLINE=1" warm --arch a100 "$operator"
SMELT_OFFLINE=2 gives 2 'SMELT_OFFLINE is "2"; legal: 0, 1' cache stat
gives 0 '' cache export "$work/image.tar"
tar -xOf "$work/image.tar" contents >"$work/out"
printf '%s\nsm_90a %s\n' "$("$smelt" --version)" "$kernel" | cmp -s - "$work/out" &&
    passed 'an export names its version and its kernels' || failed 'an export names its version and its kernels' 'not so'
mkdir "$work/image.folder"
tar -xf "$work/image.tar" -C "$work/image.folder"
for layer in image.tar image.folder; do
    gives 0 '' cache verify "$work/$layer"
    prints "verify of $layer" "$layer: 1 sound, 0 damaged, 0 of another version$"
    export SMELT_CACHE_READONLY_DIR=$work/$layer SMELT_CACHE_DIR=$work/running
    SMELT_NVRTC=/nonexistent gives 0 '' warm --offline --arch h100 "$operator"
    gives 0 '' cache verify
    prints "verify reads the layer $layer" "$layer: 1 sound, 0 damaged"
    gives 0 '' list --cache
    prints "list --cache has the layer $layer" "^1 cached in .*$layer, read-only$"
    gives 0 '' list --cache --json
    document 'and in JSON' "readonly_folder=$work/$layer" readonly_entries.0.spec=$kernel entries:array
    unset SMELT_CACHE_READONLY_DIR
done
printf damage | dd of="$work/image.tar" bs=1 seek=1836 conv=notrunc 2>/dev/null
printf damage | dd of="$(find "$work/image.folder" -name '*.smelt')" bs=1 seek=300 conv=notrunc 2>/dev/null
for layer in image.tar image.folder; do
    gives 1 'damaged: .*\.smelt: its checksum is wrong' cache verify "$work/$layer"
    gives 1 - cache verify "$work/$layer" --json
    document "damage in $layer" sound=0 foreign=0 damaged.0.file:string damaged.0.error:string
    SMELT_CACHE_READONLY_DIR=$work/$layer gives 1 'in the read-only layer: .*checksum' cache verify --json
    document 'the layer is verified, too' removed=0 readonly_sound=0 readonly_damaged.0.file:string
done
gives 1 'No such file' cache verify "$work/nowhere"
gives 1 'is not a file that .smelt cache export. wrote' cache verify "$0"

# ---- after an upgrade -----------------------------------------------------------------------------
# An edited template acts as another version of smelt.
SMELT_CACHE_DIR=$work/upgraded
mkdir -p "$work/templates/common"
{ cat "$(dirname "$0")/../../templates/common/base.cuh" && echo '// another'; } >"$work/templates/common/base.cuh"
SMELT_TEMPLATES=$work/templates gives 0 '' warm --arch h100 --arch a100 "$operator"
gives 0 '' warm --arch h100 "$operator"
gives 0 '' cache export "$work/upgraded.tar"
echo "$kernel  NVIDIA H200  stages=2  12.50" >"$SMELT_CACHE_DIR/tuning"
gives 0 '' warm --arch h100 --tuned-for 'NVIDIA H200' "$operator"
before=$(find "$SMELT_CACHE_DIR" -type f -exec cksum {} + | sort)
SMELT_CACHE_READONLY_DIR=$work/upgraded.tar run doctor --json
document 'doctor counts what is stale' cache.stale.entries=4 cache.stale.other_source=2 cache.stale.other_nvrtc=0 \
    cache.readonly_stale.entries=3 cache.readonly_stale.other_source=2
[ "$(find "$SMELT_CACHE_DIR" -type f -exec cksum {} + | sort)" = "$before" ] && passed 'and counts no lookup' ||
    failed 'and counts no lookup' 'a file changed'
SMELT_CACHE_READONLY_DIR=$work/upgraded.tar run doctor
prints 'doctor says so' '^ +2 of 4 entries are of another version of smelt'
prints 'of the layer, too' '^ +2 of 3 entries are of another version .*export. with this version$'

# ---- nothing to import ----------------------------------------------------------------------------
SMELT_CACHE_DIR=$work/cache
mkdir -p "$work/pictures/00" "$work/nothing"
echo mine >"$work/pictures/00/index"
SMELT_CACHE_DIR=$work/nothing run cache export "$work/nothing.tar"
for source in pictures nothing.tar; do
    gives 1 "$source holds no kernel" cache import "$work/$source"
    gives 0 '' cache import "$work/$source" --allow-empty
    prints "$source may be empty" '^0 imported \(0 B\), 0 already present$'
    gives 0 '' cache import "$work/$source" --allow-empty --json
    document "$source, in JSON" entries=0 present=0
done
mkdir "$work/tuned"
echo "$kernel  NVIDIA H200  stages=2  12.50" >"$work/tuned/tuning"
gives 0 '' cache import "$work/tuned" # no kernel, but something to import

# ---- another's file in the cache folder -----------------------------------------------------------
SMELT_CACHE_DIR=$work/notes
mkdir "$work/notes"
echo 'rows: 3, columns: 4' | tee "$work/mine" >"$work/notes/counters"
gives 0 'statistics are not kept: .*notes/counters is not smelt' warm --arch sm_80 "$kernel"
gives 0 '' cache clear
cmp -s "$work/mine" "$work/notes/counters"
holds $? "a user's file named counters stays" "$(cat "$work/notes/counters" 2>&1)"

SMELT_CACHE_DIR=$work/file
gives 1 'cannot be used' cache verify
gives 1 'cannot be used' cache clear
gives 1 'cannot be used' list --cache
gives 0 - cache stat --json
document 'cache stat says what is wrong' problem:string entries=0
finish
