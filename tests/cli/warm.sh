#!/bin/sh
# Warming by many processes, which are killed and stopped, with a fake NVRTC that records each compilation.
. "$(dirname "$0")/cases.sh"

export SMELT_NVRTC=$3 FAKE_NVRTC_COMPILES=$work/compiles FAKE_NVRTC_MS=60
manifest=$work/manifest.json
{
    printf '{"archs": ["sm_80", "sm_90a"], "specs": ["%s"' "$kernel"
    for topk in 128 192 256 320 384 448 512 576 640 704 768 832 896 960 1024 2048; do
        printf ', "sparse_attn_fwd:heads=8,dqk=64,dv=64,topk=%s"' $topk
        printf ', "sparse_attn_fwd:heads=64,dqk=576,dv=512,topk=%s"' $topk
    done
    printf ']}\n'
} >"$manifest"
kernels=66

compiles() {
    if [ -f "$FAKE_NVRTC_COMPILES" ]; then wc -l <"$FAKE_NVRTC_COMPILES"; else echo 0; fi
}

# field FILE NAME: the number after "NAME": at the document's top level.
field() {
    sed -n "s/^  \"$2\": \([0-9.]*\),\{0,1\}\$/\1/p" "$1"
}

# ---- 16 warmers -----------------------------------------------------------------------------------
# Together they compile each kernel once; each process compiles some.
warmers=16
i=0
while [ $i -lt $warmers ]; do
    "$smelt" warm --manifest "$manifest" -j 1 --json >"$work/warmer$i" 2>"$work/warmer$i.err" &
    i=$((i + 1))
done
wait
i=0 compiled=0 idle=0 unhappy=0 longest=0
while [ $i -lt $warmers ]; do
    own=$(field "$work/warmer$i" compiled)
    own_cached=$(field "$work/warmer$i" cached)
    compiled=$((compiled + ${own:-0}))
    [ "${own:-0}" -gt 0 ] || idle=$((idle + 1))
    count=$((${own:-0} + ${own_cached:-0}))
    [ -s "$work/warmer$i.err" ] && unhappy=$((unhappy + 1))
    [ $count -eq $kernels ] || unhappy=$((unhappy + 1))
    seconds=$(field "$work/warmer$i" seconds)
    longest=$(printf '%s\n%s\n' "$longest" "$seconds" | sort -n | tail -1)
    i=$((i + 1))
done
run cache stat --json
entries=$(field "$work/out" entries)
if [ "$(compiles)" -eq $kernels ] && [ $compiled -eq $kernels ] && [ "$entries" -eq $kernels ] &&
    [ $unhappy -eq 0 ] && [ $idle -lt $warmers ]; then
    passed "$warmers warmers compile each of $kernels kernels once"
    echo "# $idle had nothing to compile; the slowest took $longest s, one alone would $((kernels * 60)) ms"
else
    failed "$warmers warmers compile each kernel once" \
        "$(compiles) compilations, $compiled reported, $entries entries, $kernels kernels, $unhappy unhappy"
fi

hits=$(field "$work/out" hits) misses=$(field "$work/out" misses) asked=$((warmers * kernels))
if [ "$misses" -eq $kernels ] && [ $((hits + misses)) -eq $asked ]; then
    passed "each of $asked requests is counted once, however often it was polled for"
else
    failed 'each request is counted once' "$hits hits and $misses misses of $asked requests"
fi

# ---- without locks --------------------------------------------------------------------------------
# As on nodes that share a folder but no locks: a kernel is seldom compiled twice at the same time.
export SMELT_CACHE_DIR=$work/unlocked FAKE_NVRTC_COMPILES=$work/compiles.unlocked
for i in 1 2 3 4; do
    SMELT_CACHE_LOCK=off "$smelt" warm --manifest "$manifest" -j 1 >/dev/null 2>&1 &
done
wait
if [ "$(compiles)" -ge $kernels ] && [ "$(compiles)" -le $((2 * kernels)) ]; then
    passed '4 warmers without locks share most of the work'
    echo "# $(compiles) compilations of $kernels kernels"
else
    failed '4 warmers without locks share most of the work' "$(compiles) compilations of $kernels kernels"
fi

# ---- a warmer that is killed ----------------------------------------------------------------------
# The next process continues: stored kernels are not compiled again.
export SMELT_CACHE_DIR=$work/killed FAKE_NVRTC_COMPILES=$work/compiles.killed
rounds=0
while [ $rounds -lt 6 ]; do
    "$smelt" warm --manifest "$manifest" -j 2 --json >/dev/null 2>&1 &
    process=$!
    sleep 0.3
    kill -KILL $process 2>/dev/null
    wait $process 2>/dev/null
    rounds=$((rounds + 1))
done
stored=$(find "$SMELT_CACHE_DIR" -name '*.smelt' | wc -l)
before=$(compiles)
gives 0 '' warm --manifest "$manifest" -j 2 --json
cached=$(field "$work/out" cached)
if [ "$cached" -eq "$stored" ] && [ $(($(compiles) - before)) -eq $((kernels - stored)) ] &&
    [ $((before - stored)) -le 12 ]; then # at most what was being compiled when it was killed
    passed "after $rounds kills $stored of $kernels kernels are kept, the rest is compiled once"
else
    failed 'a killed warmer is gone on from' \
        "$stored stored, $cached cached, $before compilations before, $(compiles) after"
fi

# ---- one that is stopped while it waits for another -----------------------------------------------
export SMELT_CACHE_DIR=$work/waiting FAKE_NVRTC_COMPILES=$work/compiles.waiting
FAKE_NVRTC_MS=20000 "$smelt" warm --arch sm_80 "$kernel" >/dev/null 2>&1 &
holder=$!
while [ "$(compiles)" -eq 0 ]; do sleep 0.05; done
"$smelt" warm --arch sm_80 "$kernel" --json >"$work/out" 2>"$work/err" &
process=$!
sleep 0.5
begin=$(date +%s)
kill -INT $process
kill -TERM $process # where a background process ignores SIGINT
wait $process
status=$?
took=$(($(date +%s) - begin))
[ $status -eq 1 ] && [ $took -le 5 ] && grep -q 'stopped: 1 of 1 kernels are not done' "$work/err"
holds $? 'a warmer that only waits stops when it is asked to' "exit status $status after $took s"
document 'what is not done is named' undone=1 compiled=0 failed=0 \
    "undone_kernels.0.spec=$kernel" undone_kernels.0.arch=sm_80
# After the time-out it no longer waits for a stopped holder.
SMELT_CACHE_LOCK_TIMEOUT=0.5 FAKE_NVRTC_MS=0 gives 0 '' warm --arch sm_80 "$kernel" --json
document 'and a time-out has it compiled here' compiled=1 cached=0
kill -KILL $holder
wait $holder 2>/dev/null

# ---- the progress bar: on a terminal alone ----------------------------------------------------------
export SMELT_CACHE_DIR=$work/bar FAKE_NVRTC_MS=0
if command -v script >/dev/null; then
    TERM=vt100 script -qec "'$smelt' warm --arch sm_80 $kernel" /dev/null >"$work/out" 2>&1
    prints 'a terminal has a bar' '\[#{24}\] +1/1 sm_80 sparse_attn_fwd'
else
    skipped 'a terminal has a bar' 'no script(1)'
fi
gives 0 '' warm --arch sm_90a "$kernel"

# ---- the report -----------------------------------------------------------------------------------
export SMELT_CACHE_DIR=$work/report FAKE_NVRTC_MS=20
gives 0 '' warm --arch sm_80 "$kernel"
prints 'kernels a second' '^1 kernel: 1 compiled, 0 cached, 0 failed, in [0-9.]+ s \([0-9.]+ a second\)$'
prints 'seconds are wall time' '^  kernel +arch +state +wall seconds +registers'
prints 'where the time went' "^wall time of the threads: [0-9]+ % NVRTC's front end and optimiser, [0-9]+ % its assembler, [0-9.]+ % the cache$"
SMELT_CACHE_RECOMPILE=1 gives 0 '' warm --arch sm_80 "$kernel" --json
document 'the same in JSON' kernels_per_second:number thread_seconds.front_end:number \
    thread_seconds.assembler:number thread_seconds.cache:number undone=0 undone_kernels:array
finish
