#!/bin/sh
# imports.sh SOURCE_FOLDER: ARCHITECTURE.md's rules of import, held against every #include: each room
# names headers of these rooms alone. Headers without a folder are a file's neighbours or parts of
# templates/ that the host shares (params structs).
set -eu
cd "$1"
status=0
rooms=0

# room FOLDER PATTERN: what its files may include, as a pattern of whole names.
room() {
    uses=$(grep -rn --include='*.[ch]' '^#include "[^"]*/' "$1" | sed 's/#include "\([^"]*\)".*/\1/')
    [ -n "$uses" ] || [ "$1" = src/reference ] || {
        echo "$1: no file there includes anything"
        status=1
    }
    if printf '%s\n' "$uses" | grep -v '^$' | grep -Ev ":($2)$"; then
        echo "the above: $1 may include $2"
        status=1
    fi
    rooms=$((rooms + 1))
}

room src/codegen 'codegen/.*'
room src/runtime 'runtime/.*|codegen/.*|smelt/.*|common/[a-z_]*\.h'
room src/ops 'ops/.*|runtime/.*|codegen/.*|smelt/.*|common/[a-z_.]*\.h'
room src/reference 'reference/.*|smelt/.*'
room src/harness 'harness/.*|reference/.*|smelt/.*|emu/emulator\.h|ops/[a-z_]*table\.h'
# The emulator's rooms, from the ground up. Of the library it knows the driver's types, how a
# library's build is told, and the cache, in which it keeps what it compiled.
room src/emu/formats 'emu/formats/.*'
room src/emu/machine 'emu/(machine/.*|emulator\.h|export\.h)'
room src/emu/memory 'emu/(memory|machine)/.*'
room src/emu/instructions 'emu/(instructions|memory|machine|formats)/.*'
room src/emu/launch 'emu/(launch|instructions|memory|machine)/.*'
room src/emu/driver 'emu/(driver|launch|memory|machine|formats)/.*|runtime/driver/cuda_abi\.h'
room src/emu/compiler 'emu/(compiler/.*|export\.h)|runtime/(driver/cuda_abi|compiler/library_id|cache/cache)\.h'
# embed.c checks templates at build time; it is no part of the command.
room tools '\.\./tool\.h|harness/.*|smelt/.*|codegen/template/engine\.h'
room include 'smelt/.*'
if grep -rln --include='*.[ch]' 'codegen/' tools | grep -v '^tools/embed\.c$'; then
    echo "the above: of tools/, embed.c alone may include codegen/"
    status=1
fi
# No CUDA header, anywhere that is built without one.
if grep -rnE --include='*.[ch]' '^#include [<"](cuda|nvrtc|driver_types)' src include tools examples; then
    echo "the above: no CUDA header is needed"
    status=1
fi
echo "$rooms rooms"
exit $status
