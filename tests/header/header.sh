#!/bin/sh
# header.sh INCLUDE_FOLDER c|c++ HEADER...: compiles each header by itself, included twice, and uses its
# initialiser macros: in an initialiser, for the first element of an array, and in an assignment. No struct
# may have padding, where a later version could add a field. $COMPILER is the compiler's command.
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
            sed "s/TYPE/$type/g; s/MACRO/SMELT_${macro}_INIT/g" <<'END'
    TYPE made_TYPE = MACRO;
    TYPE many_TYPE[2] = {MACRO};
    static TYPE kept_TYPE = MACRO;
    made_TYPE = (TYPE)MACRO;
    if (made_TYPE.size + many_TYPE[0].size + kept_TYPE.size != 3 * sizeof(TYPE) || many_TYPE[1].size)
        return 1;
END
        done
        printf '    return 0;\n}\n'
    } | $COMPILER -x "$language" -std=$standard -pedantic-errors -Wall -Wextra -Wconversion \
        -Wshadow -Wmissing-field-initializers -Wpadded -Werror -I"$include" -fsyntax-only - || {
        echo "FAILED: $name as $language"
        status=1
        continue
    }
    echo "ok: $name as $language"
done
exit $status
