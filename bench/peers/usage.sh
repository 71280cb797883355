#!/usr/bin/env bash
# The peers' program without a GPU: its lists, its refusals, a contender opened.
#   usage.sh PEERS CONTENDER
set -euo pipefail
peers=$1 contender=$2 failed=0
export SMELT_CUDA=/nonexistent/libcuda.so.1

# expect STATUS TEXT COMMAND...: the exit status, and a text among what it says
expect() {
    local want=$1 text=$2 status=0 said
    shift 2
    said=$("$@" 2>&1) || status=$?
    if [ "$status" != "$want" ] || [[ "$said" != *"$text"* ]]; then
        echo "$*: status $status (want $want), said: $said"
        failed=1
    fi
}

# lines N TEXT COMMAND...: so many lines with the text
lines() {
    local want=$1 text=$2 got
    shift 2
    got=$("$@" | grep -c -- "$text" || true)
    [ "$got" = "$want" ] || { echo "$*: $got lines with '$text', want $want"; failed=1; }
}

lines 41 '^5' "$peers" time --list
lines 4 '^512' "$peers" time --list --only sink
# For two widths and numbers of heads: 30 plain cases, 112 with features, 9 corners, 14 of ours; 13 large.
lines 673 '^Dqk' "$peers" accuracy --list
lines 56 'few slots' "$peers" accuracy --list
lines 330 'H 3,' "$peers" accuracy --list --heads 3
expect 2 'which: time or accuracy' "$peers"
expect 2 'nobody to run' "$peers" time
expect 2 'expected NAME=FILE' "$peers" time --with nothing
expect 2 'nonexistent.so' "$peers" time --with a=/nonexistent.so
expect 2 'peers_contender' "$peers" time --with a="$(ldd "$peers" | awk '/libc[.]so/ { print $3 }')"
expect 2 '--heads' "$peers" accuracy --with a="$contender" --heads 0
expect 2 '--rounds' "$peers" time --with a="$contender" --rounds 0
expect 3 'no GPU' "$peers" time --with a="$contender" --with b="$contender:buckets=auto"
exit "$failed"
