#!/usr/bin/env python3
"""wrappers.py ROOT: checks that each wrapper of templates/ptx is called by a micro-kernel, whose result on an H200 is
recorded, and by a template or a known defect. Exit status 1, with the names of the others."""
import pathlib
import re
import sys

DEFINED = re.compile(r"^(?:DEVICE [^;{(]*?|#define )([\w$]+(?:\$\{\w+\}\w*)*)\(", re.MULTILINE)
PLACEHOLDER = re.compile(r"\$\{\w+\}|\$\w")  # wgmma_ss_n${n}_t${ta}${tb}


def called(name, texts):
    parts = [re.escape(part) for part in PLACEHOLDER.split(name)]
    pattern = re.compile(r"(?<!\w)" + r"(?:[\w$]|\$\{[^}]*\})+".join(parts) + r"\(")
    return any(pattern.search(text) for text in texts)


def read(files):
    return [file.read_text(encoding="utf-8") for file in files]


def main():
    root = pathlib.Path(sys.argv[1])
    ptx = sorted(root.glob("templates/ptx/*.cuh"))
    micro = read(root.glob("tests/emu/micro/*.cu"))
    users = read([file for file in root.glob("templates/**/*.cu*") if file not in ptx])
    users += read(root.glob("tests/emu/defects/*.cu"))
    wrappers = [(file, name) for file in ptx
                for name in DEFINED.findall(file.read_text(encoding="utf-8"))]
    failed = 0
    for file, name in wrappers:
        for texts, problem in ((micro, "no micro-kernel calls it"), (users, "nothing uses it")):
            if not called(name, texts):
                print(f"{file.relative_to(root)}: {name}: {problem}")
                failed += 1
    print(f"{len(wrappers)} wrappers, {failed} failed")
    return 1 if failed or not wrappers else 0


if __name__ == "__main__":
    sys.exit(main())
