#!/bin/sh
# imports.sh SOURCE_FOLDER: checks every #include against ARCHITECTURE.md's rules of import: each folder may
# include headers of the listed folders only. Headers without a folder are in the same folder, or are parts of
# templates/ that host code shares (params structs).
set -eu
cd "$1"
status=0
folders=0

# folder FOLDER PATTERN: the headers that its files may include, as a pattern of whole names.
folder() {
    uses=$(grep -rn --include='*.[ch]' '^#include "[^"]*/' "$1" | sed 's/#include "\([^"]*\)".*/\1/')
    [ -n "$uses" ] || [ "$1" = src/reference ] || {
        echo "$1: no file there includes anything"
        status=1
    }
    if printf '%s\n' "$uses" | grep -v '^$' | grep -Ev ":($2)$"; then
        echo "the above: $1 may include $2"
        status=1
    fi
    folders=$((folders + 1))
}

folder src/codegen 'codegen/.*'
folder src/runtime 'runtime/.*|codegen/.*|smelt/.*|common/[a-z_]*\.h'
folder src/ops 'ops/.*|runtime/.*|codegen/.*|smelt/.*|common/[a-z_.]*\.h'
folder src/reference 'reference/.*|smelt/.*'
folder src/harness 'harness/.*|reference/.*|smelt/.*|emu/emulator\.h|ops/[a-z_]*table\.h'
# The emulator's folders, lowest first. From the library it includes the driver's types, the identification of
# a library's build, the cache, which stores compiled kernels, and the hash of its keys.
folder src/emu/formats 'emu/formats/.*'
folder src/emu/machine 'emu/(machine/.*|emulator\.h|export\.h)'
folder src/emu/memory 'emu/(memory|machine)/.*'
folder src/emu/instructions 'emu/(instructions|memory|machine|formats)/.*|emu/callbacks\.h'
folder src/emu/launch 'emu/(launch|instructions|memory|machine)/.*'
folder src/emu/driver 'emu/(driver|compiler|launch|memory|machine|formats)/.*|runtime/driver/cuda_abi\.h'
folder src/emu/compiler 'emu/(compiler/.*|export\.h|callbacks\.h)|runtime/(driver/cuda_abi|compiler/library_id|cache/cache|files|hash)\.h'
# embed.c checks templates and computes their digests at build time; it is not part of the command.
folder tools '\.\./tool\.h|harness/.*|smelt/.*|codegen/template/engine\.h|runtime/(digest|hash)\.h'
folder include 'smelt/.*'
if grep -rlnE --include='*.[ch]' '"(codegen|runtime)/' tools | grep -v '^tools/embed\.c$'; then
    echo "the above: of tools/, embed.c alone may include codegen/ and runtime/"
    status=1
fi
# No CUDA headers in code that is built without CUDA.
if grep -rnE --include='*.[ch]' '^#include [<"](cuda|nvrtc|driver_types)' src include tools examples; then
    echo "the above: no CUDA header is needed"
    status=1
fi
echo "$folders folders"
exit $status
