#!/bin/sh
# The verbs' output, as text and JSON, and the kernels that warm stores in the cache.
. "$(dirname "$0")/cases.sh"
fake=$3 nvcc=${4:-}

# ---- what needs nothing ---------------------------------------------------------------------------
gives 0 '' list
prints 'list has the presets' '^  deepseek-v4-pro +sparse_attn:heads=128,dqk=512,dv=512,topk=1152,sink=1,passes=both$'
prints 'list has the operators' '^operator sparse_attn:'
prints 'list has the kernels' '^kernel sparse_attn_fwd:'
prints 'list: a family without keys says so' '^  it has no keys: its spec is its name$'
prints 'list: which variants have a knob, and with what' '^  part_tiles +knob +auto, 2, 4 +sm90, orientation=keys +tiles'
prints 'list: a value that a variant alone has' '^  fwd.block_keys +knob +auto, 16, 32, 64, 128; sm90: 64 +KV'
prints 'list has the architectures' '^architectures: sm_80 .*sm_90a.*; .smelt list gpus. has the GPUs$'
gives 0 '' list --json
document 'list --json' presets.0.name:string presets.0.specs.0:string families.0.name:string \
    families.0.kind=operator families.0.summary:string families.0.keys.0.name=heads \
    families.0.keys.0.legal:string families.0.keys.0.meaning:string \
    families.0.keys.0.required=true families.0.keys.0.knob=false families.0.keys.0.variants:string \
    families.0.keys.0.only_with:string families.0.keys.0.kernel:string archs.0=sm_80

gives 0 '' emit --arch sm_90a "$kernel"
cp "$work/out" "$work/first.cu"
gives 0 '' emit --arch sm_90a "$kernel"
same 'emit twice: the same bytes' "$work/first.cu" "$work/out"
gives 0 '' emit --arch sm_90a sparse_attn_fwd:topk=64,sink=0,dv=64,heads=8,dqk=64
same 'emit by any order of keys: the same bytes' "$work/first.cu" "$work/out"
prints 'the source names its spec' "$kernel"
gives 0 '' emit --arch sm_90a --json "$kernel"
document 'emit --json' spec=$kernel arch=sm_90a source:string kernels.0.spec=$kernel

# Constants and parts: the source up to the kernel's own template.
gives 0 '' emit --arch sm_90a --constants "$kernel"
prints 'emit --constants has the constants' '^    HEADS = 8, '
prints 'emit --constants has the parts' '^#line 1 "templates/common/base.cuh"'
if grep -q 'KERNEL_NAME(' "$work/out" || ! head -c "$(wc -c <"$work/out")" "$work/first.cu" | cmp -s - "$work/out"; then
    failed 'emit --constants: the source up to its own template' 'it is something else'
else
    passed 'emit --constants: the source up to its own template'
fi

# Templates of a folder, one of them edited, replace the library's.
mkdir -p "$work/templates/common"
export SMELT_TEMPLATES=$work/templates
gives 2 'SMELT_TEMPLATES: .*/templates has no template' emit --arch sm_90a "$kernel"
templates=$(dirname "$0")/../../templates
cp "$templates/common/base.cuh" "$work/templates/common/"
echo '// edited' >>"$work/templates/common/base.cuh"
gives 0 '' emit --arch sm_90a "$kernel"
prints 'SMELT_TEMPLATES: the edit is in the source' '^// edited$'
grep -v '^// edited$' "$work/out" >"$work/edited.cu"
same 'SMELT_TEMPLATES: and nothing else' "$work/first.cu" "$work/edited.cu"
echo '//@use ptx/new.cuh' >"$work/templates/common/lanes.cuh"
gives 2 'common/lanes.cuh: line 1: .*ptx/new.cuh, which does not exist' emit --arch sm_90a "$kernel"
mkdir "$work/templates/ptx"
echo '// new' >"$work/templates/ptx/new.cuh"
gives 0 '' emit --arch sm_90a "$kernel"
echo '//@what' >"$work/templates/common/lanes.cuh"
gives 2 'common/lanes.cuh: line 1: unknown directive' emit --arch sm_90a "$kernel"
rm "$work/templates/common/lanes.cuh"
sed 's/int/long/' "$templates/common/work.params.h" >"$work/templates/common/work.params.h"
gives 2 'work.params.h: differs from the header that this library was compiled with' emit --arch sm_90a \
    "$kernel"
rm "$work/templates/common/work.params.h"
mkdir "$work/templates/common/queries.cuh"
gives 2 'common/queries.cuh: is not a regular file' emit --arch sm_90a "$kernel"
rmdir "$work/templates/common/queries.cuh"
echo '// a root that no plan names' >"$work/templates/sparse_attn_fwd_mma.cu"
gives 2 'sparse_attn_fwd_mma.cu: no kernel has a template of this name' emit --arch sm_90a "$kernel"
rm "$work/templates/sparse_attn_fwd_mma.cu"
if [ "$(id -u)" = 0 ]; then
    chmod o+w "$work/templates/common/base.cuh"
    gives 2 'common/base.cuh: is writable by everyone' emit --arch sm_90a "$kernel"
fi
SMELT_TEMPLATES=$work/none
gives 2 'SMELT_TEMPLATES: .*/none/: No such file' emit --arch sm_90a "$kernel"
unset SMELT_TEMPLATES
SMELT_NVRTC_DEBUG=line
export SMELT_NVRTC_DEBUG
gives 2 'SMELT_NVRTC_DEBUG is "line"; legal: lines, full' emit --arch sm_90a "$kernel"
unset SMELT_NVRTC_DEBUG

# For an operator with one kernel, that kernel's source; with several, each source below a line that names it,
# or a selected one.
gives 0 '' emit --arch sm_90a "$operator"
same "emit of an operator with one kernel: that kernel's bytes" "$work/first.cu" "$work/out"
gives 0 '' emit --arch sm_90a --json "$operator"
document 'emit --json of an operator' spec=$operator source:string kernels.0.spec=$kernel
gives 0 '' emit --arch sm_90a "$operator,buckets=32"
cp "$work/out" "$work/all.cu"
: >"$work/joined.cu"
number_of=0
for part in sparse_attn_partition:pass=count sparse_attn_partition:pass=place "$kernel" \
    sparse_attn_fwd:heads=8,dqk=64,dv=64,topk=32; do
    number_of=$((number_of + 1))
    [ $number_of = 1 ] || echo >>"$work/joined.cu"
    printf '/* ======== kernel %d of 4 (alone: --kernel %d): %s ======== */\n\n' $number_of \
        $number_of "$part" >>"$work/joined.cu"
    gives 0 '' emit --arch sm_90a "$part"
    cat "$work/out" >>"$work/joined.cu"
    cp "$work/out" "$work/part.cu"
    gives 0 '' emit --arch sm_90a --kernel $number_of "$operator,buckets=32"
    same "emit --kernel $number_of" "$work/part.cu" "$work/out"
done
same 'emit of an operator: all its kernels, in order' "$work/joined.cu" "$work/all.cu"
gives 0 '' emit --arch sm_90a --json "$operator,buckets=32"
document 'emit --json of several kernels' spec=$operator,buckets=32 kernels.3.source:string \
    kernels.2.spec=$kernel
gives 0 '' emit --arch sm_90a --json --kernel 3 "$operator,buckets=32"
document 'emit --json --kernel' spec=$kernel source:string
for knobs in '' ,passes=both ,passes=both,stages=2; do
    gives 0 '' emit --arch sm_90a --json --passes forward "$operator$knobs"
    document 'emit --passes' spec=$operator${knobs#,passes=both} source:string
done

# A knob without a prefix applies to the kernels of the requested passes.
gives 0 '' emit --arch sm_80 "$operator,stages=4"
prints 'a knob that the forward pass alone takes' 'sparse_attn_fwd:.*,stages=4'
gives 0 '' emit --arch sm_80 "$operator,passes=backward,stages=1"
prints 'a knob that the backward pass alone takes' 'sparse_attn_bwd:.*,stages=1'
gives 0 '' emit --arch sm_80 --passes backward "$operator,stages=1"
prints 'and with --passes' 'sparse_attn_bwd:.*,stages=1'
gives 2 'stages=9 is not legal; legal: auto, 1\.\.3' emit --arch sm_80 --passes backward "$operator,stages=9"
gives 2 'only bwd accepts it, as bwd\.stages=1' emit --arch sm_80 "$operator,passes=both,stages=1"
run list
prints 'list says what the forward pass takes' '^  fwd\.stages +knob +auto, 2\.\.4 +key'
prints 'list says what the backward pass takes' '^  bwd\.stages +knob +auto, 1\.\.3 +mma +key'

# ---- tuning, as far as it needs no GPU ------------------------------------------------------------
wide=sparse_attn_fwd:heads=64,dqk=576,dv=512,topk=2048
gives 0 '' tune --dry-run --arch sm_90a sparse_attn:heads=64,dqk=576,dv=512,topk=2048
prints 'tune --dry-run has the rule' "^  \(the rule's\)$"
prints 'tune --dry-run has candidates' '^  pv_overlap=4$'
gives 0 '' tune --dry-run --json --arch sm_90a --limit 3 --knobs pv_overlap "$wide,stages=2" "$kernel"
document 'tune --dry-run --json' results.0.spec=$wide results.0.arch=sm_90a \
    results.0.candidates.0.knobs= results.0.candidates.1.knobs=stages=2 \
    results.0.candidates.2.knobs=stages=2,pv_overlap=4 results.1.spec=$kernel
gives 0 '' tune --dry-run --json --arch sm_90a --limit 2 --knobs stages "$operator,passes=both,fwd.stages=3"
document 'tune --dry-run, each pass with its own knobs' results.0.spec=$kernel \
    results.0.candidates.1.knobs=stages=3 results.1.spec=sparse_attn_bwd:heads=8,dqk=64,dv=64 \
    results.1.candidates.1.knobs=stages=1
gqa=sparse_gqa:heads=16,kv_heads=1,dqk=64,dv=64,topk=4,granularity=64,passes=backward
gives 0 '' tune --dry-run --arch sm_80 --limit 1 "$gqa"
prints 'tune has the kernels of the architecture' '^sparse_gqa_bwd:'
gives 0 '' tune --dry-run --arch sm_90a --limit 1 "$gqa"
! grep -q '^sparse_gqa_bwd:' "$work/out"
holds $? 'tune has only kernels that calls launch' 'sparse_gqa_bwd is listed'
cat >"$work/tuned" <<END
# found on a H200
$wide  NVIDIA H200  stages=2,pv_overlap=4  2104.5
bad line
$wide  Another GPU  pv_overlap=16  2000
END
export SMELT_TUNING=$work/tuned
gives 0 'tuned:3: ignored: ' emit --arch sm_90a --tuned-for 'NVIDIA H200' "$wide"
prints 'a tuned plan' '^ \* +STAGES +2 +tuned '
prints 'what the rule chose of it' '^ \* +GATHER_REGISTERS +24 +rule '
prints 'the command names the tuned knobs' "smelt emit $wide,stages=2,pv_overlap=4 --arch sm_90a$"
gives 0 - emit --arch sm_90a --tuned-for 'NVIDIA H200' "$wide,stages=3"
prints 'what the spec names wins' '^ \* +STAGES +3 +knob '
gives 0 - emit --arch sm_90a "$wide"
prints 'no device, no tuning' '^ \* +STAGES +3 +rule '
SMELT_TUNING_DISABLE=1 gives 0 '' emit --arch sm_90a --tuned-for 'NVIDIA H200' "$wide"
prints 'tuning can be disabled' '^ \* +STAGES +3 +rule '
gives 0 - list --tuned
prints 'list --tuned' "^  $wide +NVIDIA H200 +stages=2,pv_overlap=4 +2104\.5$"
gives 0 - list --tuned --json
document 'list --tuned --json' file=$work/tuned entries.0.spec=$wide 'entries.0.device=Another GPU' \
    entries.1.knobs=stages=2,pv_overlap=4 entries.1.us:number
SMELT_CACHE_DIR=$work/untuned SMELT_NVRTC=/nonexistent \
    gives 3 'are not used: --tuned-for "Another GPU"' warm --arch sm_90a "$wide"
SMELT_NVRTC=/nonexistent run warm --arch sm_80 "$wide"
! grep -q 'are not used' "$work/err"
holds $? 'another architecture has nothing to leave out' 'it says so'
unset SMELT_TUNING
if [ -n "$nvcc" ]; then
    for arch in sm_80 sm_90a; do
        run emit --arch $arch sparse_attn_fwd:heads=8,dqk=576,dv=512,topk=2048
        "$nvcc" -arch=$arch -cubin -x cu -o "$work/kernel.cubin" "$work/out" 2>"$work/err"
        holds $? "nvcc compiles what emit prints for $arch" 'it does not'
    done
else
    skipped 'nvcc compiles what emit prints' 'no nvcc'
fi
if [ -w /dev/full ]; then
    "$smelt" list >/dev/full 2>"$work/err"
    [ $? -eq 1 ] && grep -q 'could not be written' "$work/err"
    holds $? 'a full disk is an error' 'it is not'
fi
run doctor --json
document 'doctor --json' version:string driver.found:boolean devices:array nvrtc.found:boolean \
    nvrtc.path:string cache.folder=$SMELT_CACHE_DIR cache.rights:string ok:boolean
run doctor
prints 'doctor names the cache' "^cache +$SMELT_CACHE_DIR, writable"
if ! grep -Eq '^NVRTC +[0-9]' "$work/out"; then
    skipped 'compiling' 'NVRTC is not here'
    finish
fi

# ---- warm, and what it leaves ---------------------------------------------------------------------
fields="kernels.0.spec=$kernel kernels.0.arch=sm_90a kernels.0.kernel:string \
    kernels.0.seconds:number kernels.0.registers:integer kernels.0.spill_bytes=0 \
    kernels.0.shared_bytes:integer kernels.0.cubin_bytes:integer kernels.0.key:string \
    seconds:number failed=0"
gives 0 '' warm --arch sm_90a --json "$kernel"
document 'warm compiles' $fields kernels.0.state=compiled compiled=1 cached=0
gives 0 '' warm --arch sm_90a --json "$operator" "$kernel" "$operator"
document 'warm again takes it from the cache, once' $fields kernels.0.state=cached compiled=0 cached=1
SMELT_NVRTC=/nonexistent gives 0 '' warm --arch sm_90a "$kernel"
prints 'what is cached needs no NVRTC' '1 kernel: 0 compiled, 1 cached, 0 failed'
gives 0 '' show --arch sm_90a --json "$kernel"
document 'show --json' spec=$kernel arch=sm_90a variant=mma plan.knobs:object plan.derived:object \
    plan.shared_memory.0.offset:integer kernels.0.state=cached kernels.0.registers:integer
gives 0 '' show --arch sm_90a "$kernel"
prints 'show has registers' '^ +registers +[0-9]+ per thread'
prints 'show has spills' '^ +spills +0 B'
prints 'show has the key' '^ +cache key +[0-9a-f]{32}$'
gives 0 '' show --arch sm_90a "$operator"
prints 'show of an operator with one kernel' "^operator $operator on sm_90a is one kernel$"
prints 'has its plan' '^ +SHARED_BYTES +[0-9]+'
prints 'and what compiling gave' '^ +registers +[0-9]+ per thread'
gives 0 '' show --arch sm_90a --json "$operator"
document 'show --json of an operator' spec=$operator variant=mma plan:object \
    kernels.0.spec=$kernel kernels.0.variant=mma kernels.0.plan:object
gives 0 '' cache stat --json
document 'cache stat --json' folder=$SMELT_CACHE_DIR entries=1 bytes:integer cap_bytes:integer \
    hits:integer readonly_hits=0 misses:integer stores=1 errors=0 saved_seconds:number problem=
gives 0 '' cache stat
prints 'cache stat counts over processes' '^hits +[1-9][0-9]* of [0-9]+ lookups, [0-9.]+ %$'
prints 'cache stat' '^entries +1$'
gives 0 '' list --cache
prints 'list --cache' "^  $kernel +sm_90a"
gives 0 '' list --cache --json
document 'list --cache --json' folder=$SMELT_CACHE_DIR entries.0.spec=$kernel entries.0.sound=true \
    entries.0.file:string

# ---- an operator of several kernels: a cache of its own, for what the others count -------------------
SMELT_CACHE_DIR=$work/several gives 0 '' show --arch sm_90a "$operator,buckets=32"
prints 'show of several kernels numbers them' "^  3 +$kernel +mma "
SMELT_CACHE_DIR=$work/several gives 0 '' show --arch sm_90a --json "$operator,buckets=32"
document 'show --json of several kernels' spec=$operator,buckets=32 kernels.3.plan:object \
    kernels.2.spec=$kernel
SMELT_CACHE_DIR=$work/several gives 0 '' show --arch sm_90a --kernel 3 "$operator,buckets=32"
prints 'show --kernel' "^spec +$kernel$"

# ---- a manifest, several architectures ------------------------------------------------------------
# The fake NVRTC, which is fast, serves the tests from here on.
export SMELT_NVRTC=$fake SMELT_CACHE_DIR=$work/many
gives 0 '' warm --arch sm_90a "$kernel"
cat >"$work/manifest.json" <<END
{"specs": ["$operator", {"preset": "deepseek-v4-flash", "tp": 8}],
 "archs": ["sm_80", "sm_90a"]}
END
gives 0 '' warm --manifest "$work/manifest.json" --json -j 2
kernels=$(grep -c '"spec":' "$work/out") # however many the preset has, half for each architecture
document 'warm by manifest' "kernels.$((kernels - 1)).arch=sm_90a" "compiled=$((kernels - 1))" cached=1 failed=0
gives 0 '' warm --manifest "$work/manifest.json" --arch sm_80 --json
document '--arch replaces those of the manifest' compiled=0 "cached=$((kernels / 2))"

# ---- stopping -------------------------------------------------------------------------------------
export SMELT_CACHE_DIR=$work/stopped
FAKE_NVRTC_MS=200 "$smelt" warm --preset glm-5.2 -j 1 --arch sm_80 --arch sm_90a --json >"$work/out" 2>"$work/err" &
process=$!
waited=0
while [ -z "$(find "$SMELT_CACHE_DIR" -name '*.smelt' 2>/dev/null)" ] && [ $waited -lt 200 ]; do
    sleep 0.1
    waited=$((waited + 1))
done
kill -TERM $process
wait $process
status=$?
[ $status -eq 1 ] && grep -q 'stopped: [0-9]* of [0-9]* kernels are not done' "$work/err"
holds $? 'warm stops when it is asked to' "exit status $status"
document 'a stopped warm is a document' kernels.0.state=compiled kernels.0.spill_bytes:integer failed=0
run cache stat --json
! "$has" entries=0 <"$work/out" 2>/dev/null
holds $? 'what is done stays done' 'the cache is empty'

# ---- damage and clearing --------------------------------------------------------------------------
export SMELT_CACHE_DIR=$work/many
gives 0 '' cache verify --json
document 'cache verify of a sound cache' "sound=$kernels" removed=0 damaged:array
entry=$(find "$SMELT_CACHE_DIR" -name '*.smelt' | head -1)
printf 'damage' | dd of="$entry" bs=1 seek=300 conv=notrunc 2>/dev/null
gives 1 'removed ' cache verify
prints 'cache verify counts' "^$((kernels - 1)) sound, 1 damaged and removed$"
"$smelt" warm --arch sm_80 "$kernel" >/dev/null 2>&1 # in case it is the removed one
entries=$(find "$SMELT_CACHE_DIR" -name '*.smelt' | wc -l)
echo "$kernel  NVIDIA H200  stages=2  12.50" >"$SMELT_CACHE_DIR/tuning"
gives 0 '' cache export "$work/kernels.tar" --json
document 'cache export --json' "file=$work/kernels.tar" "entries=$entries" bytes:integer foreign=0 damaged=0 \
    tuning=1
(
    # Another machine: no compiler, an empty cache.
    export SMELT_CACHE_DIR=$work/image SMELT_NVRTC=/nonexistent
    SMELT_CACHE_READONLY_DIR=$work/kernels.tar gives 0 'are not used: --tuned-for "NVIDIA H200"' warm --arch sm_80 "$kernel" --json
    document 'an exported file serves as the read-only layer, without NVRTC' compiled=0 cached=1
    SMELT_CACHE_READONLY_DIR=$work/kernels.tar gives 0 '' cache stat --json
    document 'its hits are counted' readonly_hits=1 hits=0 "readonly_folder=$work/kernels.tar" \
        "readonly_entries=$entries" readonly_bytes:integer readonly_problem=
    SMELT_CACHE_READONLY_DIR=$0 gives 0 - cache stat
    prints 'cache stat says what is wrong with the read-only layer' '^read-only +not used: .*export. wrote$'
    mkdir "$work/unpacked" && tar -xf "$work/kernels.tar" -C "$work/unpacked"
    SMELT_CACHE_READONLY_DIR=$work/unpacked gives 0 'are not used: --tuned-for "NVIDIA H200"' warm --arch sm_80 "$kernel" --json
    document 'so does what tar unpacks' compiled=0 cached=1
    gives 3 - warm --arch sm_80 "$kernel"
    gives 0 '' cache import "$work/kernels.tar" --json
    document 'cache import --json' "entries=$entries" present=0 foreign=0 damaged=0 tuning=1
    same 'tuning entries travel with the kernels' "$SMELT_CACHE_DIR/tuning" "$work/unpacked/tuning"
    gives 0 '' cache import "$work/kernels.tar"
    prints 'cache import again' "^0 imported \(0 B\), $entries already present\$"
    gives 0 'are not used: --tuned-for "NVIDIA H200"' warm --arch sm_80 "$kernel" --json
    document 'what was imported is there' compiled=0 cached=1
    printf x >>"$work/kernels.tar"
    gives 1 'kernels.tar: its size differs from the size in its head' cache import "$work/kernels.tar"
    gives 1 'is not a file that .smelt cache export. wrote' cache import "$0"
    gives 1 'No such file' cache import "$work/nothing.tar"
    echo "$number $failures" >"$work/numbers"
    trap - EXIT
)
read -r number failures <"$work/numbers"
SMELT_CACHE_DIR=$work/empty gives 1 'nothing to export' cache export "$work/empty.tar"
gives 1 'cannot be written: No such file' cache export "$work/nowhere/kernels.tar"
gives 0 '' cache prune --json
document 'cache prune to the cap removes nothing' removed=0 removed_bytes=0 temporaries=0 "kept=$entries" \
    kept_bytes:integer
find "$SMELT_CACHE_DIR" -name '*.smelt' | head -1 | xargs touch -d '3 days ago'
gives 0 '' cache prune --older-than 2d
prints 'cache prune by age' "^1 removed \(.*\), $((entries - 1)) kept \("
gives 0 '' cache prune --max-size 1 --older-than 52w
prints 'cache prune to a size' "^$((entries - 1)) removed \(.*\), 0 kept \(0 B\)\$"
"$smelt" warm --arch sm_80 "$kernel" >/dev/null 2>&1
gives 0 '' cache clear
prints 'cache clear counts' '^1 removed$'
gives 0 '' cache stat
prints 'nothing is left' '^entries +0$'
gives 0 '' cache clear --json
document 'cache clear --json' removed=0
finish
