#!/usr/bin/env python3
"""complete.py BUILD: every public C function, type and field, and every public Python name, is on a page."""
import pathlib
import re
import sys

from sphinx.util.inventory import InventoryFile

build = pathlib.Path(sys.argv[1])
with open(build / "html/objects.inv", "rb") as file:
    pages = InventoryFile.load(file, "", lambda base, name: name)
shown = {name for kind in pages.values() for name in kind}
wanted = set()
for header in pathlib.Path("include/smelt").glob("*.h"):
    text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.S)
    wanted |= set(re.findall(r"SMELT_(?:API|CALL) [^;(]*?\b(smelt_\w+)\(", text))
    for kind, name, body in re.findall(r"\b(struct|enum) (smelt_\w+) \{([^}]*)\}", text, flags=re.S):
        inside = re.findall(r"(\w+)(?:\[[^]]*\])?(?=[,;])", body) if kind == "struct" else \
            re.findall(r"(SMELT_\w+)(?=[ ,\n]|$)", body)
        wanted |= {name} | {f"{name}.{each}" for each in inside}
package = pathlib.Path("python/smelt_kernels/__init__.py").read_text()
wanted |= {f"smelt_kernels.{name}" for name in re.findall(r'^    "(\w+)",$', package, flags=re.M)}
missing = sorted(wanted - shown)
print(*(f"on no page: {name}" for name in missing), sep="\n", end="\n" if missing else "")
print(f"{len(wanted)} names, {len(missing)} on no page")
sys.exit(bool(missing) or len(wanted) < 500)
