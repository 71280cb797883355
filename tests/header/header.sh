#!/bin/sh
# header.sh INCLUDE_FOLDER c|c++ HEADER...: each header alone, twice over (its guard), and the
# initialiser macros it defines used as a user would. $COMPILER is the compiler's command.
set -u
include=$1 language=$2
shift 2
case $language in
c) standard=c11 ;;
c++) standard=c++11 ;;
esac
status=0
for header; do
    name=smelt/${header##*/}
    # STRUCT_INIT macros: `smelt_context_options x = SMELT_CONTEXT_OPTIONS_INIT;`
    macros=$(sed -n 's/^#define SMELT_\([A-Z_]*\)_INIT.*/\1/p' "$header")
    {
        printf '#include <%s>\n#include <%s>\n' "$name" "$name"
        printf 'int smelt_header_compiles(void);\nint smelt_header_compiles(void) {\n'
        for macro in $macros; do
            type=smelt_$(printf '%s' "$macro" | tr 'A-Z' 'a-z')
            printf '    %s made_%s = SMELT_%s_INIT;\n    (void)made_%s;\n' \
                "$type" "$type" "$macro" "$type"
        done
        printf '    return 0;\n}\n'
    } | $COMPILER -x "$language" -std=$standard -pedantic-errors -Wall -Wextra -Wconversion \
        -Wshadow -Werror -I"$include" -fsyntax-only - || {
        echo "FAILED: $name as $language"
        status=1
        continue
    }
    echo "ok: $name as $language"
done
exit $status
