#!/usr/bin/env bash
# Makes a release's files in build/release: source archive, sdist, wheel, the site, an SBOM, checksums.
#
#   scripts/release.sh VERSION          checks the tree and makes the files
#   scripts/release.sh --tag VERSION    and tags the commit vVERSION
#
# The tree must be clean, meson.build have this version, and NEWS.md a section "## VERSION (YYYY-MM-DD)". Publishing,
# signing and the wheels of other machines (aarch64: run scripts/wheel.sh there) are the maintainer's.
set -euo pipefail
cd "$(dirname "$0")/.."
fail() { printf 'release: %s\n' "$*" >&2; exit 1; }
tag=
[ "${1:-}" != --tag ] || { tag=1; shift; }
version=${1:-}
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || fail "usage: scripts/release.sh [--tag] VERSION, as 0.3.0"
[ -z "$(git status --porcelain)" ] || fail "the tree has uncommitted changes: commit or stash them"
found=$(sed -n "s/^ *version: '\(.*\)',/\1/p" meson.build | head -n 1)
[ "$found" = "$version" ] || fail "meson.build has version $found, not $version"
grep -qE "^## $version \([0-9]{4}-[0-9]{2}-[0-9]{2}\)$" NEWS.md || fail "NEWS.md has no section '## $version (YYYY-MM-DD)'"
! git rev-parse -q --verify "refs/tags/v$version" >/dev/null || fail "the tag v$version exists: choose the next version"

out=build/release/smelt-$version
rm -rf "$out"
mkdir -p "$out"
make --no-print-directory build docs
git archive --format=tar --prefix="smelt-$version/" HEAD | gzip -n >"$out/smelt-$version.tar.gz"
scripts/wheel.sh
cp build/dist/*.whl "$out"
PATH=$PWD/build/wheel-venv/bin:$PATH build/wheel-venv/bin/python -c \
    'import mesonpy, sys; print(mesonpy.build_sdist(sys.argv[1]))' "$out"
tar -C build/docs -czf "$out/smelt-$version-site.tar.gz" html
scripts/sbom.py build >"$out/smelt-$version.spdx.json"
(cd "$out" && sha256sum -- * >SHA256SUMS)
[ -z "$tag" ] || git tag -a "v$version" -m "smelt $version"
ls "$out"
