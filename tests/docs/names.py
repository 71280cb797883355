#!/usr/bin/env python3
"""names.py ROOT: no page, comment or script installs, imports or runs the package index's unrelated `smelt`.

The Python package is smelt-kernels, its import smelt_kernels. Exit status 1, with file and line, for the old name.
"""
import pathlib
import re
import subprocess
import sys

OLD = re.compile(
    r"(pip|uv|pipx)\b.*\binstall\b.*\s[\"']?smelt(?![-\w./])"
    r"|^\s*(>>> )?(import|from) smelt(?!_kernels)\b(?! *[:=])"
    r"|`(import|from) smelt(?!_kernels)\b"
    r"|(?<![\w-])-m smelt(?!_kernels)\b"
)
EXAMPLES = {  # tests of the pattern: line -> whether it is refused
    "pip install smelt": True, "pip install -U 'smelt[report]'": True, "uv pip install smelt": True,
    "import smelt": True, "from smelt.compat import cudnn": True, "    python -m smelt doctor": True,
    "pip install smelt-kernels": False, "pip install .": False, "import smelt_kernels as smelt": False,
    "python3 -m pip install build/smelt_kernels-1.whl": False, "python -m smelt_kernels doctor": False,
}


def main(root):
    wrong = [f"the pattern is wrong about {line!r}" for line, bad in EXAMPLES.items() if bool(OLD.search(line)) != bad]
    listed = subprocess.run(["git", "-C", root, "ls-files"], capture_output=True, text=True).stdout.split("\n")
    names = [name for name in listed if name] or [
        str(path.relative_to(root)) for folder in ("docs", "python", "examples", "bench", "scripts")
        for path in pathlib.Path(root, folder).rglob("*") if path.is_file()]
    for name in names:
        path = pathlib.Path(root, name)
        if name == "tests/docs/names.py" or path.suffix not in (".md", ".py", ".sh", ".toml", ".h", ".c", ".yml"):
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if OLD.search(line):
                wrong.append(f"{name}:{number}: the old name of the package: {line.strip()}")
    print("\n".join(wrong) or f"{len(names)} files")
    return bool(wrong)


sys.exit(main(sys.argv[1]))
