#!/bin/sh
# check --emulate: its output, missing parts of the machine, and reports for each kind of memory that a kernel
# must not access, by copies of a kernel with one changed line, which replace it on the emulator
# (SMELT_EMU_SOURCE).
. "$(dirname "$0")/cases.sh"

operator=sparse_attn:heads=9,dqk=128,dv=64,topk=70,sink=1
kernel=sparse_attn_fwd:heads=9,dqk=128,dv=64,topk=70,sink=1
backward=sparse_attn_bwd:heads=9,dqk=128,dv=64
everything='--batches 2 --queries 4 --topk-length --strided --max-logits'

# ---- what it prints -------------------------------------------------------------------------------
gives 0 '' check --emulate "$operator"
prints 'every kind of lists' "^  $operator +forward +sm_90a +adversarial +10 of 10 .* passed$"
prints 'the options that a kind of inputs adds' ' +sm_90a +causal, topk-length, max-logits +[0-9]'
prints 'the count' '^6 passed, 0 failed on sm_90a, emulated, 4 schedules each \(seed 0\)$'
prints 'what was compared' \
    '^compared: out [0-9]+, lse [0-9]+, max_logits [0-9]+ elements; rules: empty_query [0-9]+, finite [0-9]+$'
gives 0 '' check --emulate --arch sm_80 --arch sm_120a --schedules 7 --seed 5 --lists causal "$kernel"
prints 'the architectures' '^2 passed, 0 failed on sm_80, sm_120a, emulated, 7 schedules each \(seed 5\)$'
# shellcheck disable=SC2086 # words
gives 0 '' check --emulate --json --lists adversarial --query-list partial $everything "$operator"
document 'check --emulate --json' results.0.spec=$operator results.0.arch=sm_90a \
    results.0.lists=adversarial results.0.inputs=adversarial results.0.where=emulator results.0.seed=0 results.0.passed=true results.0.schedules=4 \
    results.0.reports:array results.0.outputs.out:number results.0.outputs.max_logits:number \
    results.0.rules.empty_query:number results.0.rules.single_slot=0 passed=1
gives 0 '' check --emulate --json --schedules 1 --lists random "$operator"
document 'check --emulate --json, errors of what was compared alone' results.0.max_abs_error.lse:number \
    results.0.max_abs_error.max_logits:none results.0.outputs.max_logits:none
gives 0 '' check --emulate --schedule random,shuffled,12 --schedule late,descending "$operator"
prints 'the schedules named' 'emulated, 2 schedules each'
# shellcheck disable=SC2086
gives 0 '' check --emulate --far --lists random --query-list partial $everything "$operator"
# Rows shorter than a vector, with data that depend on the samples' positions.
gives 0 '' check --emulate --queries 2 --rows 3 --data plateau topk_select:topk=20
# A sample's memory is limited by the number of units.
gives 0 '' check --emulate --queries 2 --rows 3 --schedules 1 --data plateau --sample 2147483647 topk_select:topk=20
prints 'all units' ' 2 of 2 '
! [ -e "$SMELT_CACHE_DIR" ]
holds $? 'the cache is left alone' 'there is a cache folder'
mkdir "$work/made"
SMELT_EMU_KEEP=$work/made
export SMELT_EMU_KEEP
gives 0 '' check --emulate --lists random "$operator"
unset SMELT_EMU_KEEP
# The library reads the emulator's assembler report; without one it would compile again.
[ "$(find "$work/made" -name kernel.so | wc -l)" -eq 1 ]
holds $? 'a kernel is compiled once' "$(ls "$work/made")"

# ---- what cannot be -------------------------------------------------------------------------------
# One message, before gigabytes of memory are filled.
refuses 'topk_select:topk=20 on sm_90a: rows = 2000000000 is out of range; legal: 0\.\.1073741824$' \
    check --emulate topk_select:topk=20 --rows 2000000000 --queries 1 --schedules 1
refuses 'width = 4096 is out of range; this operator was made for topk=70' \
    check --emulate "$operator" --width 4096
refuses 'rows = 2000000 is out of range; legal: 0\.\.1048576$' \
    check --emulate indexer_topk:heads=8,dim=64,dtype=bf16,topk=20 --rows 2000000
refuses 'fp8.* on sm_80: .*fp8' check --emulate --arch sm_80 indexer_logits:heads=8,dim=64,dtype=fp8
refuses 'valid = 4096 is out of range; legal: 1\.\.70, what 70 slots \(--width\) can name of [0-9]+ rows' \
    check --emulate "$operator" --lists random --valid 4096
refuses 'valid = 9 is out of range; legal: 1\.\.8, what 70 slots .* of 8 rows' \
    check --emulate "$operator" --rows 8 --valid 9
# shellcheck disable=SC2046
for any in "$operator,passes=both" "$operator,buckets=auto" $("$smelt" list | sed -n 's/^  example: //p'); do
    SMELT_EMU_LAZY=1 gives 2 'tokens = |tokens exceed|rows = ' check --emulate "$any" --batches 65536 \
        --queries 2147483647 --rows 2147483647
done
# Nothing else is refused: passes whose calls would report missing tensors.
for any in "$operator,passes=both" indexer_bwd:heads=8,dim=64,topk=20; do
    gives 0 '' check --emulate "$any" --queries 2 --rows 40 --lists random --schedules 1
done

# A compile error is said once, not for each kind of lists.
CC=false SMELT_EMU_OBJECTS=$work/none gives 1 SMELT_ERROR_COMPILE check --emulate "$operator"
[ "$(grep -c SMELT_ERROR_COMPILE "$work/err")" -eq 1 ]
holds $? 'a compile error is said once' 'it is repeated'

# A call of an undefined function, and of one that is declared only, is one error that names the function.
mkdir "$work/templates"
for declared in '' 'extern float absent(float x, float y);'; do
    sed "s/fmaxf(__uint_as_float(logit)/absent(__uint_as_float(logit)/; s|^/\* Stores a slot.*|$declared|" \
        "$(dirname "$0")/../../templates/indexer_loss_rows.cu" >"$work/templates/indexer_loss_rows.cu"
    expected='indexer_loss_rows.cu:[0-9]+:[0-9]+: error: .*absent'
    [ -z "$declared" ] || expected='the kernel smelt_indexer_loss_rows_.* uses absent, which is declared but not defined'
    SMELT_TEMPLATES=$work/templates gives 1 "$expected" check --emulate indexer_loss:topk=64 --schedules 1
    [ "$(grep -c absent "$work/err")" -eq 1 ] || [ -z "$declared" ]
    holds $? 'one error for an undefined function' 'it is repeated'
done

# With clang, if installed, as the emulator's compiler: a kernel that copies structs in shared memory.
if command -v clang >/dev/null; then
    CC=clang
    export CC
    gives 0 '' check --emulate sparse_attn:heads=64,dqk=512,dv=512,topk=64,passes=backward --queries 3 --rows 60 \
        --lists random --schedules 1
    unset CC
fi

# ---- what the machine lacks -----------------------------------------------------------------------
gives 2 'say --arch sm_90a' check --emulate --arch sm_90 "$operator"
SMELT_EMULATOR=$work/nothing.so
export SMELT_EMULATOR
gives 3 'SMELT_EMULATOR names .*nothing.so' check --emulate "$operator"
SMELT_EMULATOR=$smelt
gives 3 'is not smelt.s emulator' check --emulate "$operator"
unset SMELT_EMULATOR
cp "$smelt" "$work/smelt"
(
    smelt=$work/smelt
    LD_LIBRARY_PATH=$(dirname "$1"):${LD_LIBRARY_PATH:-}
    export LD_LIBRARY_PATH
    run check --emulate "$operator"
    # The emulator is found in the folder of an earlier installation.
    [ "$status" -eq 0 ] || { [ "$status" -eq 3 ] && grep -q 'the emulator was not found' "$work/err"; }
)
holds $? 'a command away from its build folder' 'neither found nor refused'
(
    PATH=$work CC=
    export PATH CC
    "$smelt" check --emulate "$operator" >"$work/out" 2>"$work/err"
    [ $? -eq 3 ]
)
[ $? -eq 0 ] && grep -q 'install gcc or clang' "$work/err"
holds $? 'no C compiler' 'not said, or another exit status'
for named in /nope nope "$work" 'nope -m64'; do
    CC=$named
    export CC
    gives 3 "CC names the C compiler \"$named\"" check --emulate --lists causal --schedules 1 "$operator"
    unset CC
done
CC=' ' gives 0 '' check --emulate --lists causal --schedules 1 "$operator"
unset CC

# ---- objects that are kept ------------------------------------------------------------------------
printf '#!/bin/sh\ncase " $* " in *" -c "*) echo . >>"%s" ;; esac\nexec cc "$@"\n' "$work/compiled" \
    >"$work/own-cc"
chmod +x "$work/own-cc"

# compiled COUNT NAME: runs a check with a compiler that counts, and expects COUNT compilations so far.
compiled() {
    CC=$work/own-cc SMELT_EMU_OBJECTS=$work/objects "$smelt" check --emulate --lists causal \
        --schedules 1 "$operator" >"$work/out" 2>"$work/err"
    [ $? -eq 0 ] && [ "$(wc -l <"$work/compiled")" -eq "$1" ]
    holds $? "kept objects: $2" "$(wc -l <"$work/compiled") compilations, not $1"
}

compiled 1 'the first time it is compiled'
compiled 1 'the second time it is not'
echo '# another compiler' >>"$work/own-cc"
compiled 2 'another compiler compiles it'
run emit --arch sm_90a "$kernel"
SMELT_EMU_SOURCE=$work/out.cu
export SMELT_EMU_SOURCE
cp "$work/out" "$SMELT_EMU_SOURCE"
compiled 3 'an edited copy is compiled'
unset SMELT_EMU_SOURCE
SMELT_EMU_CFLAGS=-g
export SMELT_EMU_CFLAGS
compiled 4 'with options added it is compiled'
unset SMELT_EMU_CFLAGS
compiled 4 'and found again without'
# With SMELT_EMU_LAZY=1 only kernels that are launched are compiled; their keys are the same as without.
export SMELT_EMU_LAZY=1
compiled 4 'lazily, the same kernel is found'
CC=$work/own-cc SMELT_EMU_OBJECTS=$work/objects gives 2 'tokens = ' check --emulate "$operator,passes=both" \
    --batches 65536 --queries 2147483647 --rows 2147483647
compiled 4 'lazily, what is not launched is not compiled'
SMELT_EMU_SOURCE=$work/out.cu compiled 5 'lazily, an edited copy is compiled'
SMELT_EMU_SOURCE=$work/out.cu compiled 6 'lazily, an edited copy is not kept'
CC=false SMELT_EMU_OBJECTS=$work/none gives 1 \
    'SMELT_ERROR_DRIVER: cuLaunchKernelEx.* \(the emulator: the kernel smelt_sparse_attn_fwd_.* does not compile:$' \
    check --emulate --lists causal "$operator"
SMELT_EMU_CFLAGS=--no-such-option gives 1 'no-such-option' check --emulate --lists causal "$operator"
unset SMELT_EMU_LAZY

# ---- a program on the emulator --------------------------------------------------------------------
gives 7 '' emulate -- sh -c 'echo "$SMELT_CUDA $SMELT_NVRTC" "$@"; exit 7' sh --json -v
prints 'the program gets the emulator and its own options' '^/.*/libsmelt_emu.so /.*/libsmelt_emu.so --json -v$'
gives 0 '' emulate sh -c 'exit 0'
gives 1 'nowhere cannot be run: No such file' emulate -- "$work/nowhere"
# The command occupies standard descriptors that the caller closed, so that no other file gets their numbers.
for closed in 0 1 2; do
    eval "\"\$smelt\" emulate -- sh -c 'at=\$(readlink /proc/\$\$/fd/$closed); echo \$at >&3' $closed>&-" 3>"$work/out"
    prints "closed descriptor $closed" '^/dev/null$'
done
# A parent that ignores SIGCHLD would hide the C compiler's exit status.
(trap '' CHLD && SMELT_EMU_OBJECTS=$work/child "$smelt" check --emulate --lists causal --schedules 1 "$kernel") \
    >"$work/out" 2>"$work/err"
holds $? 'a parent that ignores SIGCHLD' 'the check fails'
"$smelt" --version >&- 2>"$work/err"
[ $? -eq 1 ] && grep -q 'standard output could not be written' "$work/err"
holds $? 'closed standard output is an error' 'it is not'
SMELT_LOG=info gives 0 "^smelt: info: compiling sparse_attn_fwd.* for sm_90a$" emulate -- \
    "$(dirname "$smelt")/examples/embed"
grep -q '^smelt: info: compiled sparse_attn_fwd.* in [0-9.]* s with NVRTC' "$work/err" &&
    passed 'SMELT_LOG: a compilation starts and ends' || failed 'SMELT_LOG: a compilation starts and ends' 'no end'
run cache stat --json
"$has" entries=0 <"$work/out" && passed 'none of it is an entry for a GPU' || failed 'none of it is an entry for a GPU' ''

# ---- variables that cannot be what they are set to ------------------------------------------------
# with VARIABLE VALUE PATTERN: a check fails with this message.
with() {
    export "$1=$2"
    gives 1 "$3" check --emulate --lists causal --schedules 1 "$operator"
    unset "$1"
}
mkfifo "$work/pipe"
echo 'int x;' >"$work/no-kernel.cu"
with SMELT_EMU_SOURCE "$work/none.cu" 'SMELT_EMU_SOURCE names .*none.cu, which cannot be read: No such file'
with SMELT_EMU_SOURCE "$work/pipe" 'SMELT_EMU_SOURCE names .*pipe, which cannot be read'
with SMELT_EMU_SOURCE "$work" 'SMELT_EMU_SOURCE names .*, which cannot be read'
with SMELT_EMU_SOURCE "$work/no-kernel.cu" 'SMELT_EMU_SOURCE names .*, which holds no kernel'
run emit --arch sm_90a sparse_attn_fwd:heads=8,dqk=64,dv=64,topk=128
cp "$work/out" "$work/other.cu"
with SMELT_EMU_SOURCE "$work/other.cu" \
    'names .*other.cu, which holds the kernel .*_k128, but only smelt_sparse_attn_fwd_.* was compiled$'
many=$(seq -f '-DX%g' 70 | tr '\n' ' ')
with SMELT_EMU_CFLAGS "$many" 'SMELT_EMU_CFLAGS is longer than .* or has more than 64 words'
with SMELT_EMU_CFLAGS --no-such-option 'no-such-option'
with SMELT_EMU_KEEP "$work/nowhere" "cannot create a temporary folder .*/nowhere/.*: No such file"
with SMELT_EMU_OBJECTS "$work/other.cu" 'SMELT_EMU_OBJECTS names a folder that cannot be used: .*other.cu: Not a directory'
mkdir -m 777 "$work/shared"
chmod 777 "$work/shared"
with SMELT_EMU_OBJECTS "$work/shared/objects" 'SMELT_EMU_OBJECTS names a folder that cannot be used: .*writable by everyone'
# It may hold any of an operator's kernels.
run emit --arch sm_90a attention_lists:pass=group
cp "$work/out" "$work/lists.cu"
SMELT_EMU_SOURCE=$work/lists.cu gives 0 '' check --emulate --lists causal --schedules 1 "$operator,passes=both"

# ---- kernels with a defect ------------------------------------------------------------------------
run emit --arch sm_90a "$kernel"
cp "$work/out" "$work/kernel.cu"
SMELT_EMU_SOURCE=$work/edited.cu
export SMELT_EMU_SOURCE

# edit FROM TO: replaces all occurrences of a text in the kernel.
edit() {
    awk -v from="$1" -v to="$2" '{
        while ((at = index($0, from)) > 0) {
            printf "%s%s", substr($0, 1, at - 1), to
            $0 = substr($0, at + length(from))
            found = 1
        }
        print
    } END { exit !found }' "$work/kernel.cu" >"$SMELT_EMU_SOURCE" ||
        failed "edit: $1" 'the kernel has no such text any more: change this test'
}

# reported KIND NAME FROM TO OPTION...: the edited kernel is reported, with kind and buffer.
reported() {
    kind=$1 name=$2
    edit "$3" "$4"
    title="$name: $4"
    shift 4
    # shellcheck disable=SC2086
    run check --emulate --json $everything "$@" "$operator"
    [ "$status" -eq 1 ] && "$has" results.0.passed=false "results.0.reports.0.kind=$kind" \
        results.0.reports.0.text:string failed=1 <"$work/out" 2>"$work/why" &&
        grep -q "\"text\": .* of $name[, ]" "$work/out"
    holds $? "$title" "exit status $status; $(cat "$work/why")"
}

cp "$work/kernel.cu" "$SMELT_EMU_SOURCE"
# shellcheck disable=SC2086
gives 0 '' check --emulate $everything --query-list partial "$operator"
# A row that no slot names: adversarial lists avoid row 0.
reported forbidden kv '+ (u64)(u32)row * row_bytes : kv, present ? CHUNK_BYTES : 0' \
    '+ (u64)(u32)row * row_bytes : kv, CHUNK_BYTES' --lists adversarial
reported forbidden kv 'present ? source + (u64)(u32)row * row_bytes' \
    'present ? source + (u64)(u32)(row + 1) * row_bytes' --lists window --query-list partial
# A query that is not listed, and the list's end.
reported forbidden topk_length '(int)warp_reduce_or(mine ? (u32)listed : 0)' \
    '(int)warp_reduce_or(mine ? (u32)listed : 0) ^ 1' --lists random --query-list partial
reported forbidden queries 'minimum((int)load_l2_32(params->query_count), range.queries)' 'range.queries' \
    --lists random --query-list partial
reported forbidden queries 'params->queries[work_entry(lane_item)]' \
    'params->queries[work_entry(lane_item) + 1]' --lists random --query-list whole
# Slots from topk_length on, and past the row.
reported forbidden indices 'return minimum(maximum(length, 0), params->width);' \
    'return params->width;' --lists causal
reported forbidden indices 'return minimum(maximum(length, 0), params->width);' \
    'return minimum(maximum(length, 0), params->width) + 1;' --lists causal
# Gaps between heads, tokens and batches.
reported forbidden q '2 * (head * head_stride) + chunk * CHUNK_BYTES' \
    '2 * (head * head_stride) + (chunk + 1) * CHUNK_BYTES' --lists random
reported forbidden kv '(skip + chunk) * CHUNK_BYTES' '(skip + chunk + 1) * CHUNK_BYTES' --lists random
reported forbidden out '(head * params->out_head_stride) + chunk * CHUNK_BYTES' \
    '(head * params->out_head_stride) + (chunk + 1) * CHUNK_BYTES' --lists random
reported forbidden topk_length 'token * params->topk_length_token_stride]' \
    'token * params->topk_length_token_stride + 1]' --lists random
# Guard zones.
reported forbidden lse 'params->lse[task->batch' 'params->lse[-1 + task->batch' \
    --lists random --queries 1 --batches 1
reported forbidden max_logits 'params->max_logits[task->batch' 'params->max_logits[1 + task->batch' \
    --lists random --queries 1 --batches 1
# Beyond the end of an allocation.
reported bounds sink 'params->sink[head]' 'params->sink[head + HEADS]' --lists random
# Offsets: if they are narrowed to 32 bits, they address other memory.
reported forbidden indices 'batch * params->indices_batch_stride' \
    '(int)(batch * params->indices_batch_stride)' --lists random --far

# ---- results that must be the reference's own ------------------------------------------------------ exact
# RULE OPERATOR KERNEL FROM TO OPTION...: wrong numbers in an output that must be exact are refused, with the
# rule's name.
exact() {
    rule=$1
    shift
    exactly=$1 title="$1: $4"
    run emit --arch sm_80 "$2"
    cp "$work/out" "$work/kernel.cu"
    edit "$3" "$4"
    shift 4
    run check --emulate --arch sm_80 --schedules 1 --json "$@" "$exactly"
    [ "$status" -eq 1 ] && "$has" results.0.culprit="$rule" <"$work/out" 2>/dev/null
    holds $? "$title" "exit status $status; $(cat "$work/out" "$work/err")"
}

exact codes quantize:dim=64 quantize_rows:dim=64 '24 & 0x80u)' '24 & 0x7fu)' \
    --lists adversarial --queries 32
exact indices topk_select:topk=16 topk_select_rows:topk=16,pass=warps 'element) + target->offset)' \
    'element) + target->offset + 1)' --queries 20 --rows 301
exact window_end indexer_windows indexer_windows_build 'window_end[token] = window.end' \
    'window_end[token] = window.end + 1' --lists random --queries 20

# ---- what an overlapped launch wrote -------------------------------------------------------------- The
# bucket of bound 9 runs concurrently with the largest one and does not wait for the lists; it reads them
# bypassing L1. It has all queries.
plain=$kernel whole=$operator
operator=sparse_attn:heads=9,dqk=128,dv=64,topk=70,sink=1,buckets=9
kernel=sparse_attn_fwd:heads=9,dqk=128,dv=64,topk=9,sink=1
run emit --arch sm_90a "$kernel"
cp "$work/out" "$work/kernel.cu"
reported stale workspace '(int)load_l2_32(&params->queries[work_entry(lane_item)])' \
    'params->queries[work_entry(lane_item)]' --lists random --valid 7 --schedules 1
reported stale workspace '(int)load_l2_32(&params->extents[entry])' \
    'params->extents[entry]' --lists random --valid 7 --schedules 1
reported stale workspace '(int)load_l2_32(&params->query_range[1])' 'params->query_range[1]' \
    --lists random --valid 7 --schedules 1
kernel=$plain operator=$whole
run emit --arch sm_90a "$kernel"
cp "$work/out" "$work/kernel.cu"

# ---- a failure, and the command that reproduces it ------------------------------------------------
edit 'log2_approximate(sum)) * LN_2' 'log2_approximate(sum))'
gives 1 'error of lse' check --emulate --lists random "$operator"
edit '__syncthreads();' ';'
# shellcheck disable=SC2086
gives 1 'race: ' check --emulate --seed 3 --lists causal $everything "$operator"
command=$(grep -o 'smelt check .*' "$work/err" | tail -1)
sed 's/^smelt check: //' "$work/err" | grep -o '^[a-z]*: ' | head -1 >"$work/first"
eval "run ${command#smelt }"
[ "$status" -eq 1 ] && grep -q "$(cat "$work/first")" "$work/err" &&
    echo "$command" | grep -q -- '--emulate --arch sm_90a --schedule '
holds $? 'the command of a failure reproduces it' "exit status $status: $command"
edit 'struct block_scan scan;' 'struct block_scan scan = nothing;'
gives 1 "nothing" check --emulate --lists random "$operator"

# ---- tune, with the emulator as the GPU -----------------------------------------------------------
# Times on the emulator mean little, but their processing must work.
edit 'log2_approximate(sum)) * LN_2' 'log2_approximate(sum))'
SMELT_CUDA=$(dirname "$smelt")/src/emu/libsmelt_emu.so
SMELT_NVRTC=$SMELT_CUDA
export SMELT_CUDA SMELT_NVRTC
shape='--queries 1 --rows 64 --width 40 --repeat 2 --limit 2'
# shellcheck disable=SC2086
gives 1 "the rule's plan: check: .*error of lse" tune $shape --knobs stages "$operator"
unset SMELT_EMU_SOURCE
export SMELT_CACHE_RECOMPILE=1 # not the kernel from the edited text
# shellcheck disable=SC2086
gives 0 '' tune $shape --knobs stages --json "$operator"
document 'tune --json' device:string file="$SMELT_CACHE_DIR/tuning" results.0.spec=$kernel \
    results.0.queries=1 results.0.rows=64 results.0.width=40 results.0.rule_us:number \
    results.0.noise_us:number results.0.us:number results.0.knobs:string \
    results.0.candidates.0.knobs= results.0.candidates.1.us:number
if "$has" results.0.stored=true <"$work/out" 2>"$work/why"; then
    grep -q "^$kernel  .*  [a-z_=0-9,]*  [0-9.]*$" "$SMELT_CACHE_DIR/tuning"
else
    ! grep -q "^$kernel" "$SMELT_CACHE_DIR/tuning" 2>"$work/why"
fi
holds $? 'the tuning file holds what was kept' "$(cat "$SMELT_CACHE_DIR/tuning")"
unset SMELT_CACHE_RECOMPILE
# shellcheck disable=SC2086
gives 0 '' tune $shape --knobs stages "$operator"
prints 'tune has a table' "^  \(the rule's\) +[0-9]+ +[0-9.]+ +[0-9.]+ +1\.000x +rule"
prints 'tune has the noise' "^the rule's plan: [0-9.]+ us, noise [0-9.]+ us$"
# A pass that needs the named operator, because no kernel's keys describe it. One knob value exists in the
# backward pass only. shellcheck disable=SC2086
gives 0 '' tune $shape --knobs stages --json "$operator,passes=both"
document 'tune races every pass' results.0.spec=$kernel results.1.spec=$backward \
    results.1.rule_us:number results.1.candidates.1.knobs=stages=1 results.1.candidates.1.us:number
# shellcheck disable=SC2086
gives 2 "$backward: no operator runs this kernel alone" tune $shape --knobs stages $backward
finish
