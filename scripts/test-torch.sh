#!/usr/bin/env bash
# Tests the Python package as a user has it: PyTorch from the package index into build/torch-venv (once),
# a wheel built from this tree and installed there, then python/tests on CPU tensors through the emulator,
# or with SMELT_TORCH_DEVICE=cuda on the GPU. Further arguments are pytest's. Ends with a line of counts.
#
#   scripts/test-torch.sh --install    only installs PyTorch
set -euo pipefail
case ${1:-} in
-h | --help)
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
esac
cd "$(dirname "$0")/.."
venv=$PWD/build/torch-venv python=$PWD/build/torch-venv/bin/python
counts=build/test-torch-counts.txt
rm -f "$counts" build/test-torch.xml

packages=('torch>=2.4' 'transformers>=5.24' numpy pytest pytest-xdist matplotlib mypy basedpyright 'meson-python>=0.18' 'meson>=1.3' ninja)
if [ "$(cat "$venv/complete" 2>/dev/null)" != "${packages[*]}" ]; then
    [ -f "$venv/complete" ] || rm -rf "$venv"
    echo "smelt: PyTorch goes into build/torch-venv: about 5 GB, once"
    python3 -m venv "$venv"
    # Bytecode is compiled on import, because the tests import few of its files.
    "$python" -m pip install --quiet --disable-pip-version-check --no-input --no-compile "${packages[@]}"
    rm -f "$venv/complete" # a copy made of hard links shares this file with another tree
    echo "${packages[*]}" >"$venv/complete"
fi
[ "${1:-}" != --install ] || exit 0

# The bytecode of what the tests import is kept: without it, importing PyTorch takes twice as long.
unset PYTHONDONTWRITEBYTECODE
# What build/ has compiled is not compiled again. Without build/, for tests on CPU tensors the library is compiled
# without optimization, in less than half the time: the tests spend theirs in the emulator, which is optimized.
plain=()
if [ -f build/libsmelt.a ]; then
    [ -d build-python ] || scripts/copy-build.sh build build-python
    NINJA=$(command -v ninja || true) # another version would not read the copied log
    export NINJA
elif [ "${SMELT_TORCH_DEVICE:-cpu}" = cpu ]; then
    plain=(-Csetup-args=-Doptimization=0 -Csetup-args=-Ddebug=false)
fi
# Without isolation, since the venv has the build's requirements.
PATH=$venv/bin:$PATH "$python" -m pip wheel --quiet --disable-pip-version-check --no-build-isolation \
    --no-deps --no-index --wheel-dir build/wheel.new -Cbuild-dir=build-python "${plain[@]}" .
rm -rf build/wheel
mv build/wheel.new build/wheel
"$python" -m pip install --quiet --disable-pip-version-check --no-deps --no-index --force-reinstall \
    build/wheel/smelt_kernels-*.whl

at_once=0 # a single process on a GPU
if [ "${SMELT_TORCH_DEVICE:-cpu}" = cpu ]; then
    at_once=$(nproc)
    [ "$at_once" -le 4 ] || at_once=4
    package=$("$python" -c 'import importlib.util as u; print(u.find_spec("smelt_kernels").submodule_search_locations[0])')
    export SMELT_CUDA=$package/libsmelt_emu.so SMELT_NVRTC=$package/libsmelt_emu.so
    # Emulated kernels are host code and must not go into the user's cache. Kernels that the C library's tests or
    # another process here compiled are not compiled again; kernels that are never launched are not compiled at all.
    folder=$(scripts/trusted-folder.sh "$PWD/build")
    export SMELT_CACHE_DIR=$folder/torch-cache SMELT_EMU_OBJECTS=$folder/emu-objects SMELT_EMU_LAZY=1
fi
export OMP_NUM_THREADS=1 TORCHINDUCTOR_CACHE_DIR=$PWD/build/torch-inductor
unset PYTHONPATH
status=0
"$python" -m pytest -q -p no:cacheprovider -n "$at_once" --dist worksteal --durations=5 --junitxml=build/test-torch.xml python/tests "$@" ||
    status=$?
"$python" - >"$counts" <<'END' || status=1
import xml.etree.ElementTree as tree

try:
    suite = tree.parse("build/test-torch.xml").getroot().find("testsuite")
    number = {name: int(suite.get(name)) for name in ("tests", "failures", "errors", "skipped")}
except OSError:
    number = {"tests": 1, "failures": 1, "errors": 0, "skipped": 0}
failed = number["failures"] + number["errors"]
line = f"{number['tests'] - failed - number['skipped']} passed, {failed} failed"
print(line + (f", {number['skipped']} skipped" if number["skipped"] else ""))
END
cat "$counts"
exit "$status"
