#!/usr/bin/env bash
# Builds the documents as a site, build/docs/html: guides, the C headers through Doxygen, the Python package, the man
# page. Sphinx comes from the package index into build/docs-venv (once). A warning is an error, and so is a public
# function or a field of a public struct that is on no page.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=build/docs-venv
packages=('sphinx>=8,<10' 'breathe>=5,<6' 'myst-parser>=5,<6' 'sphinx-autoapi>=3.9,<4' sphinx-copybutton furo)
if [ "$(cat "$venv/complete" 2>/dev/null)" != "${packages[*]}" ]; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input "${packages[@]}"
    echo "${packages[*]}" >"$venv/complete"
fi
rm -rf build/docs
mkdir -p build/docs
doxygen docs/site/Doxyfile
TARGETS=smelt scripts/build.sh
tools/man.py tools/smelt.1.md build/smelt >build/docs/smelt.1.md
"$venv/bin/python" -m sphinx -q --fail-on-warning --keep-going -c docs/site -d build/docs/doctrees . build/docs/html
"$venv/bin/python" docs/site/complete.py build/docs
echo '<meta http-equiv="refresh" content="0; url=docs/site/index.html">' >build/docs/html/index.html
echo "build/docs/html/index.html"
