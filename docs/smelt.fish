# fish completion for smelt(1): verbs, options and values as the command's own help and messages name them.

function __smelt_verb
    set -l words (commandline -opc)
    test (count $words) -gt 1; and echo $words[2]
end

# The options of the verb, with what they mean.
function __smelt_options
    smelt (__smelt_verb) --help 2>/dev/null | string replace -rf '^  (?:-\w,|   ) (--[a-z-]+)(?: [A-Z]\S*)? +(.*)' '$1\t$2'
end

# The values of the option before the cursor: those that a wrong value is refused with.
function __smelt_values
    set -l option (commandline -opc)[-1]
    switch $option
        case --preset
            smelt list 2>/dev/null | string replace -rf '^  ([a-z][a-z0-9.]*-[a-z0-9.-]*) .*' '$1'
        case --arch
            smelt list gpus 2>/dev/null | string replace -rf '^  (sm_\S+) +(.*)' '$1 $2' | string replace -a , '' | string split ' '
        case --knobs
            smelt list 2>/dev/null | string replace -rf '^  ([a-z_]+) +knob .*' '$1' | sort -u
        case '--*'
            smelt (__smelt_verb) $option '?' 2>&1 >/dev/null |
                string replace -rf ".*(?:is none of|legal:) (.*)" '$1' | string replace -a , '' | string split ' '
    end
end

complete -c smelt -n __fish_use_subcommand -f -a "(smelt --help 2>/dev/null | string replace -rf '^  ([a-z]+) +(.*)' '\$1\t\$2') help"
complete -c smelt -n "string match -q -- '-*' (commandline -ct)" -f -a "(__smelt_options)"
complete -c smelt -n "string match -q -- '--*' (commandline -opc)[-1]" -f -a "(__smelt_values)"
complete -c smelt -n "test (__smelt_verb) = cache 2>/dev/null" -f -a "stat verify prune clear export import"
complete -c smelt -n "test (__smelt_verb) = list 2>/dev/null" -f -a "gpus (smelt list 2>/dev/null | string replace -rf '^(?:operator|kernel) ([a-z_]+): .*|^  ([a-z][a-z0-9.]*-[a-z0-9.-]*) .*' '\$1\$2')"
