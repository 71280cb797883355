#!/bin/sh
# Help, and invalid input for every verb: exit status 2 and a message with the value.
. "$(dirname "$0")/cases.sh"
documents=$3 # the folder of the completions
man_page=$4  # that the build made

# completes WORD...: bash's completions of the last word, one per line, with this command in the path.
completes() {
    PATH=$(cd "$(dirname "$smelt")" && pwd):$PATH bash -c '. "$0"; COMP_WORDS=("$@")
        COMP_CWORD=$(($# - 1)); _smelt; printf "%s\n" "${COMPREPLY[@]}"' \
        "$documents/smelt.bash-completion" smelt "$@" >"$work/out" 2>"$work/err"
}

# manual OPTION: the man page's text about it, with <> around what is bold.
manual() {
    sed 's/\\-/-/g; s/\\fB\([^\\]*\)\\fR/<\1>/g' "$man_page" |
        awk -v option="<$1>" '/^\.S[HS]/ { on = 0 } /^\.TP/ { getline; on = index($0, option) } on'
}

# same_values VERB OPTION: the choices in the error for a wrong value (from the table) equal those in the man
# page, the help and the completion.
same_values() {
    run "$1" "$2" '?'
    values=$(sed -n "s/.*\('?' is none of\|legal:\) //p" "$work/err" | tr -d ,)
    manual "$2" >"$work/manual"
    "$smelt" "$1" --help | tr -s ' \n,:;' ' ' | sed "s/.* $2 [A-Z]* //; s/ --.*//" >"$work/said"
    wrong=$([ -n "$values" ] || echo ' no values')
    for value in $values; do
        grep -qw -- "$value" "$work/manual" || wrong="$wrong, no $value in smelt.1"
        grep -qw -- "$value" "$work/said" || wrong="$wrong, no $value in --help"
    done
    # Words in bold in the man page other than values: options, verbs, and operators, which have an underscore.
    for bold in $(grep -oE '<[a-z][a-z0-9-]*>' "$work/manual" | tr -d '<>'); do
        case " $values check bench tune show emit warm " in
        *" $bold "*) ;;
        *) wrong="$wrong, $bold in smelt.1 is none" ;;
        esac
    done
    completes "$1" "$2" ''
    [ "$(echo $values)" = "$(echo $(cat "$work/out"))" ] || wrong="$wrong, others complete"
    [ -z "$wrong" ]
    holds $? "values of $2" "$wrong"
}

# ---- help -----------------------------------------------------------------------------------------
run
[ "$status" -eq 2 ] && grep -q '^usage: smelt' "$work/err"
holds $? 'smelt alone prints short help' "exit status $status"
gives 0 '' --version
prints 'the version, with the commit of a checkout' '^smelt [0-9]+\.[0-9]+\.[0-9]+(\+[0-9a-f]{10})?$'
gives 0 '' --help
prints 'general help has the exit statuses' '^  3  the machine lacks'
cp "$work/out" "$work/help"
compared=
for verb in warm list show emit check bench tune emulate cache doctor; do
    gives 0 '' "$verb" --help
    prints "$verb has a usage line" "^usage: smelt $verb"
    prints "$verb takes --json" '^ +--json'
    for option in $(grep -Eo -- '--[a-z-]+' "$work/out" | sort -u); do
        manual "$option" | grep -q .
        holds $? "smelt.1 knows $option ($verb)" 'not in the man page'
    done
    for option in $(sed -n 's/^ .* \(--[a-z-]*\) \(KIND\|SET\|TABLE\) .*/\1/p' "$work/out"); do
        case " $compared " in
        *" $option "*) ;;
        *) same_values "$verb" "$option" ;;
        esac
        compared="$compared $option"
    done
    grep -q "^  $verb " "$work/help" || failed "$verb in --help" 'not there'
    grep -q "^\.SS .fB$verb" "$man_page" || failed "$verb in smelt.1" 'not there'
    completes "$verb"
    prints "$verb completes" "^$verb\$"
done
gives 0 '' help --json
document 'help --json' version:string verbs.0.name=warm verbs.0.options.0.help:string environment.0.help:string
gives 0 '' help warm
prints 'help VERB is VERB --help' '^usage: smelt warm'
for line in 'help warm --json' 'help --json warm' 'warm --help --json' 'warm --json -h'; do
    # shellcheck disable=SC2086 # words
    gives 0 '' $line
    document "$line" name=warm options.0.help:string
done
gives 0 '' --version --json
document '--version --json' version:string
for verb in prune export import; do
    ! grep -Eq "^  $verb|\<$verb\>" "$work/help"
    holds $? "$verb is not advertised" 'it is in --help'
done
# Environment variables: those that the sources read.
for variable in $(grep -rhoE '"SMELT_[A-Z_]+"' "$documents/../src/runtime" "$documents/../src/emu" \
    "$documents/../tools" | tr -d '"' | sort -u); do
    case $variable in
    SMELT_ERROR_* | SMELT_OK | *_INIT) ;; # of the interface
    *)
        manual "$variable" | grep -q .
        holds $? "smelt.1 knows $variable" 'not in the man page'
        ;;
    esac
done
# The other shells' completions agree with bash's on every kind of word.
in_fish() {
    fish --no-config -c 'source $argv[1]; complete -C "$argv[2..]"' "$documents/smelt.fish" "$@" | cut -f 1
}
in_zsh() {
    zsh -fc 'compadd() { shift; print -l -- $@ }; file=$1; shift; words=("$@"); CURRENT=$#; source $file' \
        zsh "$documents/smelt.zsh-completion" "$@"
}
for shell in fish zsh; do
    command -v $shell >/dev/null || continue
    for line in 'show' 'doctor' 'warm --preset glm-5.2' 'emit --arch sm_90a' 'show --passes backward' 'check --queries' \
        'tune --knobs stages' 'cache verify'; do
        # shellcheck disable=SC2086 # words
        if PATH=$(cd "$(dirname "$smelt")" && pwd):$PATH in_$shell smelt ${line%"${line##* }"} "$(printf %.4s "${line##* }")" 2>"$work/err" |
            grep -qxF -- "${line##* }"; then
            passed "$shell completes $line"
        else
            failed "$shell completes $line" "$(cat "$work/err")"
        fi
    done
done
completes tune --knobs ''
knobs=$(cat "$work/out")
prints 'knobs complete' '^pv_overlap$'
for knob in $knobs; do
    # The first verb that has the option.
    for tuned in "$operator" "$operator,passes=backward" indexer_logits:heads=8,dim=64,dtype=fp8 \
        topk_select:topk=64 indexer_loss:topk=64 indexer_scores:heads=8,dim=64,topk=64 \
        indexer_bwd:heads=8,dim=64,topk=64,deterministic=1 \
        sparse_scores:heads=8,dqk=128,dv=64,topk=64 \
        sparse_gqa:heads=8,kv_heads=2,dqk=64,dv=64,topk=8,granularity=16 \
        sparse_gqa:heads=8,kv_heads=2,dqk=64,dv=64,topk=8,granularity=16,passes=backward \
        sparse_gqa_scores:heads=8,kv_heads=2,dqk=64,topk=8,granularity=16 \
        sparse_gqa_bwd_keys:heads=8,kv_heads=2,dqk=64,dv=64,granularity=16 \
        dense_lse:heads=8,dqk=64 dense_scores_fwd:heads=8,dqk=64; do
        "$smelt" tune --dry-run --arch sm_90a --limit 1 --knobs "$knob" "$tuned" >"$work/out" 2>&1 && break
    done
    gives 0 '' tune --dry-run --arch sm_90a --limit 1 --knobs "$knob" "$tuned"
done
# Also operators with a single pass, forward or backward.
gives 0 '' tune --dry-run --arch sm_90a --limit 1 --preset glm-5.2
prints 'a preset is tuned' '^indexer_bwd_main:'
gives 0 '' show --arch sm_90a --passes backward indexer_bwd:heads=8,dim=64,topk=64
completes sh
prints 'verbs complete' '^show$'
completes emit --k
prints 'options complete' '^--kernel$'
completes warm --preset glm-5.2
prints 'presets complete' '^glm-5.2$'
completes emit --arch sm_90
prints 'architectures complete' '^sm_90a$'
completes show --passes b
prints 'passes complete' '^backward$'
completes check --rows ''
[ -z "$(cat "$work/out")" ]
holds $? 'a number does not complete' 'it does'
completes check --strided --que
prints 'options complete behind a flag' '^--queries$'
for option in --lists --query-list --dkv --data --windows --scores --outputs --passes --shapes; do
    case " $compared " in
    *" $option "*) passed "$option was compared" ;;
    *) failed "$option was compared" 'no' ;;
    esac
done
bash -n "$documents/smelt.bash-completion" 2>"$work/err"
holds $? 'the completion is bash' 'it does not parse'

# ---- verbs and options ----------------------------------------------------------------------------
refuses "unknown verb 'wram', did you mean warm" wram
refuses "unknown verb 'frobnicate'; .smelt --help. lists them" frobnicate
refuses "unknown option '--frobnicate'" --frobnicate
refuses "unknown option '--hlep', did you mean --help" --hlep
refuses "unknown verb 'nothing'" help nothing
refuses "help takes one verb, not also 'cache'" help warm cache
refuses "no preset, operator or kernel 'gpus'" list gpus archs
refuses 'sparse_attn has no option --data; operators that have it: topk_select$' check --emulate --data equal "$operator"
refuses 'no option --pre, did you mean|no option --prest, did you mean --preset' warm --prest x
refuses 'no option --frobnicate; .smelt list --help. lists' list --frobnicate
refuses 'no option -x' list -x
refuses '--preset needs a value' warm --arch sm_90a --preset
refuses '--json takes no value' list --json=yes
refuses "no preset, operator or kernel 'x'; .smelt list. lists them" list x
refuses "no preset, operator or kernel 'glm-52', did you mean glm-5.2" list glm-52
refuses "no preset, operator or kernel 'sparse_atn', did you mean sparse_attn" list glm-5.2 sparse_atn
refuses "takes no argument, not 'x'" doctor x
refuses "--jobs takes a number, not 'many'" warm --jobs many
refuses '--jobs 0 is out of range; legal: 1\.\.1024' warm --jobs 0
refuses '--jobs 99999999999999999999 is out of range' warm -j 99999999999999999999
refuses "no 'sta', did you mean stat|no 'sta'; did you mean stat" cache sta
refuses "no 'frobnicate'; legal: stat, verify, prune, clear, export, import" cache frobnicate
refuses 'name one of stat, verify, prune, clear, export, import' cache
refuses "stat takes no argument, not 'clear'" cache stat clear
refuses 'export takes one file' cache export
refuses 'import takes one file' cache import one two
refuses '--max-size belongs to prune, not to stat' cache stat --max-size 1G
refuses '--older-than belongs to prune, not to clear' cache clear --older-than 1d
refuses '--allow-empty belongs to import, not to export' cache export x --allow-empty
for bad in 0 -1 1T 1GB G '' 1.5G 99999999999999999999 17179869184G; do
    refuses "--max-size $bad is not legal; legal: a number of bytes above 0" cache prune --max-size "$bad"
done
for bad in 0d 30 -1d d 1y 1dd '' 99999999999999999999s 99999999999999999w; do
    refuses "--older-than $bad is not legal; legal: a number above 0 with a unit" cache prune --older-than "$bad"
done

# ---- specs ----------------------------------------------------------------------------------------
for verb in warm show emit; do
    refuses 'name a spec' "$verb" --arch sm_90a
    refuses "topk_select: topk is missing; legal: 1" "$verb" --arch sm_90a topk_select
    refuses "sparse_atn.*sparse_attn" "$verb" --arch sm_90a sparse_atn:heads=64,dqk=576,dv=512,topk=8
    refuses "heads=0" "$verb" --arch sm_90a sparse_attn:heads=0,dqk=576,dv=512,topk=8
    refuses "heads=-1" "$verb" --arch sm_90a sparse_attn:heads=-1,dqk=576,dv=512,topk=8
    refuses "heads=129" "$verb" --arch sm_90a sparse_attn:heads=129,dqk=576,dv=512,topk=8
    refuses "heads=4096" "$verb" --arch sm_90a sparse_attn:heads=4096,dqk=576,dv=512,topk=8
    refuses "dqk=500" "$verb" --arch sm_90a sparse_attn:heads=64,dqk=500,dv=512,topk=8
    refuses "dv=90" "$verb" --arch sm_90a sparse_attn:heads=64,dqk=96,dv=90,topk=8
    refuses "topk=0" "$verb" --arch sm_90a sparse_attn:heads=64,dqk=576,dv=512,topk=0
    refuses "topk" "$verb" --arch sm_90a sparse_attn:heads=64,dqk=576,dv=512
    refuses "haeds.*heads" "$verb" --arch sm_90a sparse_attn:haeds=64,dqk=576,dv=512,topk=8
    refuses "heads" "$verb" --arch sm_90a sparse_attn:heads=64,heads=64,dqk=576,dv=512,topk=8
    refuses "sink=2" "$verb" --arch sm_90a sparse_attn:heads=64,dqk=576,dv=512,topk=8,sink=2
    refuses "variant" "$verb" --arch sm_90a sparse_attn:heads=64,dqk=576,dv=512,topk=8,variant=x
    refuses "no architecture or GPU 'sm_91'; known: sm_80, .*sm_90a.*; by GPU: a30, .*h100" "$verb" \
        --arch sm_91 "$kernel"
    refuses "no architecture or GPU 'h300', did you mean h100\?; known: .*b200" "$verb" --arch h300 "$kernel"
done
refuses "'glm-5.2' is a preset, not a spec: write --preset glm-5.2" warm --arch sm_90a glm-5.2
refuses "'glm-5.2' is a preset, not a spec: .smelt list. has its specs" show --arch sm_90a glm-5.2
refuses "unknown preset 'glm-5.1'.*glm-5.2" warm --arch sm_90a --preset glm-5.1
refuses "tp=3" warm --arch sm_90a --preset glm-5.2 --tp 3
refuses "tp=0" warm --arch sm_90a --preset glm-5.2 --tp 0
refuses "tp=-1" warm --arch sm_90a --preset glm-5.2 --tp -1
refuses "--tp divides the heads of a --preset" warm --arch sm_90a --tp 2 "$operator"
big=sparse_attn_fwd:heads=64,dqk=576,dv=512,topk=2048
refuses 'stages=0' show --arch sm_90a $big,stages=0
refuses 'stages=99' show --arch sm_90a $big,stages=99
refuses 'block_keys=17' show --arch sm_90a $big,block_keys=17
refuses 'shared memory' show --arch sm_86 $big,block_keys=128,stages=4
refuses 'shared memory' emit --arch sm_86 $big,block_keys=128,stages=4
refuses 'takes one spec' show --arch sm_90a "$kernel" "$big"
refuses 'takes one spec' show --arch sm_90a --arch sm_80 "$kernel"
refuses 'takes one spec' emit --arch sm_90a "$kernel" "$big"
refuses "'h100,a100' is no architecture or GPU: give several one by one" warm --arch h100,a100 "$kernel"
# An architecture whose kernels no GPU uses: a warning, or an error with --strict.
gives 0 '^smelt emit: no GPU uses kernels for sm_90: .*h100, .* use those for sm_90a$' emit --arch sm_90 "$kernel"
gives 0 'b200, gb200 use those for sm_100a$' emit --arch sm_100 "$kernel"
for named in sm_80 sm_89 sm_90a A100 h200 b300 gb10; do
    gives 0 '' emit --arch $named "$kernel"
done
prints 'a GPU stands for its architecture' 'for sm_121a|sm_121a'
refuses 'no GPU uses kernels for sm_120: .* use those for sm_120a' warm --strict --arch sm_120 "$kernel"
gives 0 '' list gpus
prints 'list gpus' '^  sm_90a +h20, h100, h200'
gives 0 '' list gpus --json
document 'list gpus --json' gpus.0.name=a30 gpus.0.arch=sm_80
gives 0 '' list quantize glm-5.2
prints 'the preset' '^  glm-5.2 +sparse_attn:heads=64'
prints 'the operator' '^operator quantize: '
[ "$(grep -c '^operator\|^kernel\|^architectures' "$work/out")" -eq 1 ]
holds $? 'list NAME lists nothing else' 'it does'
gives 0 '' list quantize --json
document 'list NAME --json' families.0.name=quantize presets:array archs:array
for verb in show emit; do
    refuses "--kernel 2: $operator has 1 kernel$" "$verb" --arch sm_90a --kernel 2 "$operator"
    refuses "--kernel 5: $operator,buckets=32 has 4 kernels" "$verb" --arch sm_90a --kernel 5 \
        "$operator,buckets=32"
    refuses "--kernel 9: $operator,passes=backward has 4 kernels" "$verb" --arch sm_90a \
        --passes backward --kernel 9 "$operator"
    refuses "--passes forward: sparse_attn_fwd: unknown key 'passes'" "$verb" --arch sm_90a \
        --passes forward "$kernel"
    refuses "--passes: unknown 'inward'.*legal: forward, backward, both" "$verb" --arch sm_90a \
        --passes inward "$operator"
    refuses '--kernel 0 is out of range' "$verb" --arch sm_90a --kernel 0 "$operator"
    refuses 'no option --preset' "$verb" --arch sm_90a --preset glm-5.2
done
refuses '--arch goes with --emulate' check --arch sm_80 "$operator"
refuses '--schedules goes with --emulate' check --schedules 2 "$operator"
refuses '--schedule goes with --emulate' check --schedule late,ascending "$operator"
refuses '--far goes with --emulate' check --far "$operator"
refuses '--device selects a GPU' check --emulate --device 0 "$operator"
refuses 'not both' check --emulate --schedules 2 --schedule late,ascending "$operator"
for schedule in '' late late, ,ascending soon,ascending late,first late,ascending,x \
    late,ascending, random,shuffled,-1 random,shuffled,1,2; do
    refuses "--schedule: '$schedule' is none of late, early or random" check --emulate \
        --schedule "$schedule" "$operator"
done
refuses '--schedules 0 is out of range' check --emulate --schedules 0 "$operator"
refuses "--lists: 'sorted' is none of random, causal, window, adversarial, packed, log" check --lists sorted x
refuses "--rows: '0' is not a number" check --rows 0 "$operator"
refuses "--seed: 'x' is not a number" check --seed x "$operator"
refuses "--sample takes a number, not 'x'" check --sample x "$operator"
refuses "--shapes: unknown 'peer', did you mean peers" bench --shapes peer
refuses '--shapes replaces specs' bench --shapes peers "$operator"
refuses '--repeat 0 is out of range' bench --repeat 0 "$operator"
refuses 'name a spec' check
refuses 'name a program: smelt emulate -- ./program' emulate
refuses 'name a spec' bench
refuses 'name a spec' tune
refuses '--arch needs --dry-run' tune --arch sm_90a "$operator"
refuses 'takes one --arch' tune --dry-run --arch sm_90a --arch sm_80 "$operator"
refuses "--scale: '3e38' is not a number above 0, at most 1e30" check --scale 3e38 "$operator"
refuses "--scale: 'nan' is not a number" check --scale nan "$operator"
refuses "unknown knob 'turn'" tune --dry-run --arch sm_90a --knobs turn "$operator"
refuses 'heads defines what is computed' tune --dry-run --arch sm_90a --knobs stages,heads "$operator"
refuses '--limit 0 is out of range' tune --dry-run --arch sm_90a --limit 0 "$operator"
refuses 'stages=9 is not legal' tune --dry-run --arch sm_90a "$operator,stages=9"
refuses 'give a single --arch' warm --arch sm_90a --arch sm_80 --tuned-for 'NVIDIA H200' "$operator"
refuses '--cache, --tuned, gpus or names, not several' list --cache --tuned
refuses '--cache, --tuned, gpus or names, not several' list gpus --cache
refuses '--cache, --tuned, gpus or names, not several' list sparse_attn --tuned

# ---- manifests ------------------------------------------------------------------------------------
# manifest TEXT PATTERN: refused at that line.
manifest() {
    printf '%b' "$1" >"$work/manifest.json"
    refuses "manifest.json:$2" warm --arch sm_90a --manifest "$work/manifest.json"
}
manifest '{"specs": [\n  "sparse_attn"\n' '[0-9]+: not JSON'
manifest 'heads = 64\n' '1: not JSON'
manifest '' '1: not JSON'
manifest '[]\n' '1: a manifest is an object .*, not \[\]'
manifest '{\n  "spec": []}\n' '2: no key "spec" here; did you mean "specs"'
manifest '{}\n' '1: "specs" must be an array, but is missing'
manifest '{"specs": 7}\n' '1: "specs" must be an array, not 7'
manifest '{"specs": "x"}\n' '1: "specs" must be an array, not "x"'
manifest '{"specs": [],\n "archs": {"sm_90a": 1}}\n' '2: "archs" must be an array, not \{"sm_90a":1\}'
manifest '{"specs": [{"preset": 5}]}\n' '1: "preset" must be a name, not 5'
manifest '{"specs": [{"tp": 5}]}\n' '1: "preset" must be a name, but is missing'
manifest '{"specs": [{"preset": "glm-5.2", "passes": "back"}]}\n' '1: "passes" must be .*, not "back"'
manifest '{"specs": [[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27]]}\n' \
    '1: a spec is a string, .* not \[1,2,3,.*\.\.\.$'
manifest '{\n "specs": [\n  7]}\n' '3: a spec is a string, .*, not 7'
manifest '{\n "specs": [\n  "'$operator'",\n  "sparse_attn:heads=0"]}\n' '4: .*heads=0'
manifest '{"specs": [\n {"preset": "glm-5.2"},\n {"preset": "glm"}]}\n' "3: unknown preset 'glm'"
manifest '{"specs": [{"preset": "glm-5.2",\n "tp": 3}]}\n' '1: .*tp=3'
manifest '{"specs": [{"preset": "glm-5.2", "tp": "8"}]}\n' '1: "tp" must be a whole number, 1 or more, not "8"'
manifest '{"specs": [{"preste": "glm-5.2"}]}\n' '1: no key "preste" here; did you mean "preset"'
manifest '{"specs": [], "specs": []}\n' '1: not JSON: duplicate'
printf '{"specs": ["%s"],\n "archs": [\n  "sm_90a",\n  "sm_9"]}\n' "$operator" >"$work/archs.json"
refuses "archs.json:4: no architecture or GPU 'sm_9'" warm --manifest "$work/archs.json"
refuses 'nowhere.json: No such file' warm --arch sm_90a --manifest "$work/nowhere.json"
refuses 'Is a directory' warm --arch sm_90a --manifest "$work"
printf '{"specs": []}' >"$work/empty.json"
refuses 'empty.json: "specs" is empty, and no spec is given in addition' warm --arch sm_90a --manifest "$work/empty.json"
refuses 'empty.json: "specs" is empty' warm --manifest "$work/empty.json"

finish
