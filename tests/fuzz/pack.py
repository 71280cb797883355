#!/usr/bin/env python3
"""Packs a folder of fuzz inputs into the one file that the repository keeps, and unpacks it.

    pack.py FOLDER FILE             writes FILE, the smallest input first
    pack.py --unpack FILE FOLDER    an input a file, NUMBER as replay.c counts them

FILE is `smelt corpus 2` and a newline, then for each input its length in decimal, a space, its
bytes and a newline; replay.c reads it. A text parser's corpus so reads as text.
"""

import pathlib
import sys

HEAD = b"smelt corpus 2\n"


def pack(inputs):
    ordered = sorted(set(inputs), key=lambda data: (len(data), data))
    return HEAD + b"".join(b"%d %s\n" % (len(data), data) for data in ordered)


def unpack(packed):
    if not packed.startswith(HEAD):
        raise ValueError("no corpus: it does not begin with " + repr(HEAD))
    inputs, at = [], len(HEAD)
    while at < len(packed):
        end = packed.index(b" ", at)
        data = packed[end + 1:end + 1 + int(packed[at:end])]
        at = end + 1 + len(data)
        if packed[at:at + 1] != b"\n":
            raise ValueError(f"input {len(inputs)} is cut off or has another length")
        at += 1
        inputs.append(data)
    return inputs


def main(arguments):
    if len(arguments) == 3 and arguments[0] == "--unpack":
        folder = pathlib.Path(arguments[2])
        folder.mkdir(parents=True, exist_ok=True)
        for number, data in enumerate(unpack(pathlib.Path(arguments[1]).read_bytes())):
            pathlib.Path(folder, str(number)).write_bytes(data)
        return 0
    if len(arguments) == 2:
        files = [path for path in pathlib.Path(arguments[0]).iterdir() if path.is_file()]
        pathlib.Path(arguments[1]).write_bytes(pack(path.read_bytes() for path in files))
        return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
