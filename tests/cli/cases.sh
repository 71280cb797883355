# Shared by the command-line tests: sourced, not run. Prints TAP: "ok" or "not ok" for each case.
# $smelt: the command; $has: the JSON checker; $work: an empty folder that is removed at the end.
set -u

smelt=$1
has=$2
number=0
failures=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The caller's settings do not reach the command, and no case uses the caller's cache.
unset SMELT_CACHE_READONLY_DIR SMELT_CACHE_CAP SMELT_CACHE_LOCK SMELT_CACHE_LOCK_TIMEOUT \
    SMELT_CACHE_DISABLE SMELT_CACHE_RECOMPILE SMELT_OFFLINE SMELT_TUNING SMELT_TUNING_DISABLE SMELT_LOG SMELT_CUDA SMELT_EMULATOR \
    SMELT_TEMPLATES SMELT_NVRTC_DEBUG SMELT_EMU_SOURCE SMELT_EMU_CFLAGS SMELT_EMU_KEEP \
    SMELT_EMU_LAZY
export SMELT_CACHE_DIR=$work/cache

kernel=sparse_attn_fwd:heads=8,dqk=64,dv=64,topk=64
operator=sparse_attn:heads=8,dqk=64,dv=64,topk=64

passed() {
    number=$((number + 1))
    echo "ok $number - $1"
}

failed() {
    number=$((number + 1))
    failures=$((failures + 1))
    echo "not ok $number - $1"
    echo "# $2"
    [ -s "$work/out" ] && sed 's/^/# stdout: /' "$work/out" | head -5
    [ -s "$work/err" ] && sed 's/^/# stderr: /' "$work/err" | head -5
}

# holds STATUS TITLE WHY: passed if STATUS is 0, usually $? of the previous line's condition; WHY: the reason
# if not.
holds() {
    if [ "$1" -eq 0 ]; then passed "$2"; else failed "$2" "$3"; fi
}

# same TITLE FILE FILE: the files have equal bytes.
same() {
    cmp -s "$2" "$3"
    holds $? "$1" 'they differ'
}

skipped() {
    number=$((number + 1))
    echo "ok $number - $1 # SKIP $2"
}

# Runs the command; the results are in $status, $work/out and $work/err.
run() {
    "$smelt" "$@" >"$work/out" 2>"$work/err" </dev/null
    status=$?
}

# gives STATUS PATTERN ARGUMENT...: checks the exit status, and standard error against an extended regular
# expression ('': it must be empty; -: any).
gives() {
    expected=$1 pattern=$2
    shift 2
    run "$@"
    title="smelt $*"
    if [ "$status" -ne "$expected" ]; then
        failed "$title" "exit status $status, expected $expected"
    elif [ -z "$pattern" ] && [ -s "$work/err" ]; then
        failed "$title" 'standard error is not empty'
    elif [ -n "$pattern" ] && [ "$pattern" != - ] && ! grep -Eq -- "$pattern" "$work/err"; then
        failed "$title" "standard error does not match: $pattern"
    else
        passed "$title"
    fi
}

# refuses PATTERN ARGUMENT...: a usage error (2), with output on standard error only; with --json it is one
# document that contains the error.
refuses() {
    pattern=$1
    shift
    gives 2 "$pattern" "$@"
    if [ -s "$work/out" ]; then
        failed "smelt $* (standard output)" 'a usage error wrote to standard output'
    fi
    run "$@" --json
    if [ "$status" -eq 2 ] && "$has" error:string exit_status:integer <"$work/out" 2>"$work/why"; then
        passed "smelt $* --json"
    else
        failed "smelt $* --json" "exit status $status; $(cat "$work/why" 2>/dev/null)"
    fi
}

# prints TITLE PATTERN: the last run's standard output matches.
prints() {
    if grep -Eq -- "$2" "$work/out"; then
        passed "$1"
    else
        failed "$1" "standard output does not match: $2"
    fi
}

# document TITLE FIELD...: the last run's standard output is one JSON document with these fields.
document() {
    title=$1
    shift
    if "$has" "$@" <"$work/out" 2>"$work/why"; then
        "$has" --keys <"$work/out" >>"$work/keys"
        passed "$title"
    else
        failed "$title" "$(cat "$work/why")"
    fi
}

# Last: every member of the documents is in smelt(1), "JSON".
finish() {
    sed -n '/^# JSON/,/^# Exit/p' "$(dirname "$0")/../../tools/smelt.1.md" >"$work/manual"
    for key in $(sort -u "$work/keys" 2>/dev/null); do
        grep -qw -- "$key" "$work/manual" || failed "smelt.1.md documents the member $key" 'not in its section JSON'
    done
    echo "1..$number"
    exit $((failures > 0))
}
