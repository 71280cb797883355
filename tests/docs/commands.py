#!/usr/bin/env python3
"""commands.py SMELT ROOT: the command accepts every command line of the documents, and operations.md's manifest.

Runs each line of a fenced block that begins with `smelt` or `build/smelt`, where there is neither a GPU, NVRTC nor a C
compiler: it may fail for the lack of one (3) or of a file (1), but not as a usage error (2).
"""
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

PAGES = ("README.md", "CONTRIBUTING.md", "docs/developing.md", "docs/operations.md", "tools/smelt.1.md")
SPEC = "sparse_attn:heads=8,dqk=64,dv=64,topk=64"
COMMAND = re.compile(r"^(?:\w+=\S* )*(?:docker run IMAGE |build/)?smelt (.*)")


def commands(page):
    """The arguments of each command line of a page, without its variables, comment and redirection."""
    inside = False
    for line in page.replace("\\\n", " ").split("\n"):
        match = COMMAND.match(re.split(r" {3,}| +#| +>", line)[0])
        if line.startswith("```"):
            inside = not inside
        elif inside and match:
            yield [SPEC if word in ("SPEC", "$S") else word for word in shlex.split(match[1])]


def main(smelt, root):
    environment = {**os.environ, "SMELT_CUDA": "/nowhere", "SMELT_NVRTC": "/nowhere", "CC": "/nowhere"}
    count, wrong = 0, []
    with tempfile.TemporaryDirectory() as folder:
        environment["SMELT_CACHE_DIR"] = folder + "/cache"
        operations = pathlib.Path(root, "docs/operations.md").read_text()
        pathlib.Path(folder, "manifest.json").write_text(re.search(r"^```json\n(.*?)^```", operations, re.M | re.S)[1])
        for page in PAGES:
            for words in commands(pathlib.Path(root, page).read_text()):
                done = subprocess.run([smelt, *words], cwd=folder, env=environment, capture_output=True, text=True)
                count += 1
                if done.returncode not in (0, 1, 3):
                    wrong.append(f"{page}: smelt {shlex.join(words)}: {done.stderr.strip()}")
    print("\n".join(wrong) or f"{count} commands")
    return bool(wrong) or count < 25


sys.exit(main(os.path.abspath(sys.argv[1]), sys.argv[2]))
