#!/usr/bin/env bash
# The command with the added operator: `toy.sh SMELT`. Prints TAP.
set -uo pipefail
smelt=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export SMELT_CACHE_DIR=$folder/cache SMELT_CACHE_DISABLE= SMELT_EMULATOR=$SMELT_CUDA
cases=0

# expect TITLE STATUS PATTERN COMMAND...: checks the exit status, and standard output and error against the pattern.
expect() {
    local title=$1 status=$2 pattern=$3 said got=0
    shift 3
    said=$("$@" 2>&1) || got=$?
    cases=$((cases + 1))
    if [ "$got" = "$status" ] && grep -Eq -- "$pattern" <<<"$said"; then
        echo "ok $cases - $title"
    else
        echo "not ok $cases - $title"
        printf '# status %s, expected %s; no match for %s in:\n' "$got" "$status" "$pattern"
        sed 's/^/# /' <<<"$said"
    fi
}

expect 'list has the operator' 0 '^operator toy: rows times a factor' "$smelt" list
expect 'show expands it' 0 'toy_scale:width=96,accumulate=1' "$smelt" show toy:width=96,passes=both --arch sm_80
expect 'emit writes its kernel' 0 'ACCUMULATE = 0' "$smelt" emit toy:width=96 --arch sm_90a
expect 'both passes pass their check, packed and strided' 0 '4 passed, 0 failed' \
    "$smelt" check --emulate toy:width=77,passes=both --seed "$RANDOM"
expect 'a knob for one kernel' 0 'bwd.threads=32' \
    "$smelt" check --emulate toy:width=77,passes=both,bwd.threads=32
expect 'far strides' 0 '0 failed' "$smelt" check --emulate toy:width=9,passes=both --far
expect 'its options are its own' 2 'lists' "$smelt" check --emulate toy:width=77 --lists causal
expect 'help has its own option' 0 '^      --sign KIND +toy: of the rows. elements \(any, positive\)$' "$smelt" check --help
expect 'its own option' 0 'toy:width=77 .* positive .* passed' "$smelt" check --emulate toy:width=77 --sign positive
expect 'a wrong value of it' 2 "\-\-sign: 'odd' is none of any, positive$" \
    "$smelt" check --emulate toy:width=77 --sign odd
expect 'no other operator has it' 2 'topk_select has no option --sign.*toy' \
    "$smelt" check --emulate topk_select:topk=20 --sign positive
expect 'a preset warms it' 0 'toy_scale:width=96,accumulate=1 ' \
    env -u SMELT_CACHE_DISABLE "$smelt" warm --preset glm-5.2 --passes backward --arch sm_80
own_kernels() {
    env -u SMELT_CACHE_DISABLE "$smelt" warm --preset glm-5.2 --passes backward --arch sm_80 | grep -c 'toy_'
}
expect 'one pass alone: no other kernel of its own' 0 '^1$' own_kernels

# Kernels that omit the last element, write after the row, or do not add.
defect() {
    "$smelt" emit toy_scale:width=77"$3" --arch sm_90a | sed "$2" >"$folder/defect.cu"
    SMELT_EMU_SOURCE=$folder/defect.cu expect "caught: $1" 1 "$4" \
        "$smelt" check --emulate toy:width=77,passes="$5"
}
defect 'the last element is not written' 's/i < WIDTH;/i < WIDTH - 1;/' '' 'NaN|not written|error|not 0' forward
defect 'an element behind the row' 's/i < WIDTH;/i < WIDTH + 1;/' '' 'must not|outside|forbidden|written' forward
defect 'nothing is added' 's/ACCUMULATE ? to\[i\] : 0.0f/0.0f/' ,accumulate=1 'error of a row' backward
defect 'the factor is off' 's/params.factor \*/1.001f * params.factor */' '' 'error of a row' forward

echo "1..$cases"
