#!/bin/sh
# check and bench on a stand-in for the GPU that computes on the CPU: their output, failures for wrong
# results, and that the printed command reproduces a failure.
. "$(dirname "$0")/cases.sh"
gives 0 '' check "$operator"
prints 'check tries several kinds of lists' "^  $operator +forward +stand-in +random +16 of 16 .* passed$"
prints 'check counts' '^6 passed, 0 failed on stand-in \(seed 0\)$'
gives 0 '' check --json --seed 7 --lists causal --queries 12 --spiky "$operator"
document 'check --json' results.0.spec=$operator results.0.arch=stand-in results.0.where=gpu \
    results.0.seed=7 results.0.lists=causal results.0.passed=true results.0.queries=12 \
    results.0.max_abs_error.out:number results.0.max_abs_error.lse:number \
    results.0.tolerance.out:number results.0.tolerance.lse:number results.0.schedules=0 \
    results.0.reports:array passed=1 failed=0
# (The stand-in has a single operator, so presets do not work.)
gives 0 '' check --json --lists window "$operator" "$operator,buckets=auto"
document 'check of two specs' results.1.passed=true passed=2

# An impossible problem gives one message, and nothing runs.
refuses 'on stand-in: width is out of range: refused by the stand-in$' check "$operator" --width 65
refuses 'valid = 65 is out of range; legal: 1\.\.64' check "$operator" --valid 65
gives 2 'valid = 65 is out of range' bench --queries 8 --rows 64 --repeat 3 --valid 65 "$operator"

# Defect 1 drops the last slot; 2 makes the lse of an empty query infinite, which JSON cannot write.
export STAND_IN_DEFECT=1
gives 1 'reproduce: smelt check|smelt check sparse_attn' check --seed 11 --lists random "$operator"
prints 'a wrong result is FAILED' ' FAILED$'
command=$(grep -o 'smelt check .*' "$work/err" | tail -1)
cp "$work/out" "$work/first"
eval "run ${command#smelt }"
[ "$status" -eq 1 ] && [ "$(sed 's/ [0-9.]* *FAILED//' "$work/out")" = "$(sed 's/ [0-9.]* *FAILED//' "$work/first")" ]
holds $? 'the command of a failure reproduces it' "exit status $status: $command"
for defect in 1 2 3; do
    STAND_IN_DEFECT=$defect
    gives 1 - check --json --lists adversarial "$operator"
    document "defect $defect is a document" results.0.passed=false results.0.error:string \
        results.0.command:string failed=1
done
unset STAND_IN_DEFECT

gives 0 '' bench --queries 8 --rows 64 --repeat 3 "$operator"
prints 'bench has a row' "^  $operator +forward +8 +64 +random +0\.500 "
gives 0 '' bench --queries 8 --rows 64 --repeat 3 --json "$operator"
document 'bench --json' device.name:string results.0.spec=$operator results.0.queries=8 \
    results.0.rows=64 results.0.lists=random results.0.ms.median:number results.0.ms.min:number \
    results.0.ms.max:number results.0.tflops:number results.0.gather_tbs:number \
    results.0.launch_us:number
finish
