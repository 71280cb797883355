#!/bin/sh
# Names that are not UTF-8: the command's JSON is always one document, in which each invalid byte is U+FFFD.
# Such names do not change the exit status.
. "$(dirname "$0")/cases.sh"

stray=$(printf 'caf\351')           # Latin-1
shown=$(printf 'caf\357\277\275')   # the same with U+FFFD
halves=$(printf '\342\202')         # two of the three bytes of a euro sign
halves_shown=$(printf '\357\277\275\357\277\275')
euro=$(printf '\342\202\254 \360\237\230\200')

# a_document TITLE FIELD...: like document, and the exit status is 0 or 1.
a_document() {
    if [ "$status" -le 3 ]; then
        document "$@"
    else
        failed "$1" "exit status $status"
    fi
}

SMELT_CACHE_DIR="$work/$stray/$halves"
run cache stat --json
a_document 'the cache folder' "folder=$work/$shown/$halves_shown"
run doctor --json
a_document 'the cache folder, by doctor' "cache.folder=$work/$shown/$halves_shown"
SMELT_CACHE_DIR="$work/$euro"
run cache stat --json
a_document 'what is UTF-8 stays as it is' "folder=$work/$euro"
touch "$work/$stray.file"
SMELT_CACHE_DIR="$work/$stray.file"
run cache stat --json
a_document 'what is wrong with the cache folder' problem:string
run cache verify --json
a_document 'a failure for that reason' error:string exit_status=1
SMELT_CACHE_DIR=$work/cache
SMELT_CACHE_READONLY_DIR="$work/$stray" run cache stat --json
a_document 'the read-only layer' "readonly_folder=$work/$shown"
run cache import "$work/no-$stray" --json
a_document 'a file to import that is not there' error:string
run cache export "$work/nowhere/$stray" --json
a_document 'a file that cannot be written' error:string
run warm --manifest "$work/$stray" --json
a_document 'a manifest that is not there' error:string exit_status=2
printf '{"specs": ["sparse_attn:heads=\351"]}' >"$work/$stray.json"
run warm --manifest "$work/$stray.json" --json
a_document 'a manifest that is not UTF-8' error:string exit_status=2
printf '{"specs": ["sparse_attn:caf=1"]}' >"$work/$stray.json"
run warm --manifest "$work/$stray.json" --json
a_document 'an error in a manifest of such a name' error:string exit_status=2
SMELT_NVRTC="$work/$stray" run warm --arch sm_80 "$kernel" --json
a_document 'an NVRTC that is not there' kernels.0.error:string failed=1
SMELT_NVRTC="$work/$stray" run doctor --json
a_document 'the same, by doctor' nvrtc.problem:string
SMELT_CUDA="$work/$stray" run doctor --json
a_document 'a driver that is not there' driver.problem:string
SMELT_EMULATOR="$work/$stray" run check --emulate "$operator" --json
a_document 'an emulator that is not there' error:string
for verb in warm show emit check bench tune; do
    run $verb "sparse_attn:$stray=1" --json
    a_document "a spec, $verb" error:string
done
run "$stray" --json
a_document 'a verb' error:string exit_status=2
run list "--$stray" --json
a_document 'an option' error:string exit_status=2
run warm --preset "$stray" --json
a_document 'a preset' error:string exit_status=2
run cache "$stray" --json
a_document 'an action' error:string exit_status=2
SMELT_CACHE_CAP=$stray run cache stat --json
a_document 'a variable' error:string
printf '%s  GPU %s  stages=2  12.5\n' "$kernel" "$stray" >"$work/tuning"
SMELT_TUNING=$work/tuning run list --tuned --json
a_document 'a device in the tuning file' "entries.0.device=GPU $shown"
SMELT_TUNING=$work/$stray run list --tuned --json
a_document 'a tuning file that is not there'
finish
