#!/bin/sh
# untouched.sh HOME: fails with its name if a cache or a tuning file was made in the stand-in for the user's
# folders, and removes it, so that the next run starts clean.
set -eu
home=$1
# Without the setups this would check nothing.
if [ "${HOME:-}" != "$home" ] || [ "${SMELT_CACHE_DIR:-}" != "$home/cache" ]; then
    echo "not run by meson test with its setups: HOME is ${HOME:-unset}"
    exit 1
fi
found=
for folder in "$home/cache" "$home/xdg/smelt" "$home/.cache/smelt"; do
    if [ -e "$folder" ]; then
        found=yes
        find "$folder"
        rm -rf "$folder"
    fi
done
if [ -n "$found" ]; then
    echo 'a test set no cache folder of its own, or left the one it had'
    exit 1
fi
echo "nothing in $home"
