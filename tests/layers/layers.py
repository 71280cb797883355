#!/usr/bin/env python3
"""layers.py OBJECTS ROOT PREFIX: checks that the dependencies between a folder's files have no cycles.

A file and its header are one node. A node depends on another if its object uses a symbol that the other
defines, or if its header includes the other's.
OBJECTS: the folder's object files; ROOT: the source folder from which their names are built; PREFIX: the beginning of
their names.
"""
import graphlib
import pathlib
import re
import subprocess
import sys

objects, root, prefix = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve(), sys.argv[3]
project = pathlib.Path(__file__).resolve().parents[2]


def symbols(kind, types):
    """The names of an nm listing of each object, by node."""
    files = sorted(str(file) for file in objects.glob(prefix + "*.o"))
    listing = subprocess.run(["nm", "-A", "-P", kind, *files], check=True, capture_output=True, text=True).stdout
    for line in listing.splitlines():
        place, rest = line.split(": ", 1)
        name, letter = rest.split()[:2]
        if letter in types:
            yield pathlib.Path(place).name.removesuffix(".c.o"), name


def node_of(path):
    return str(path.relative_to(root).with_suffix("")).replace("/", "_")


sources = {
    path: node_of(path)
    for path in root.rglob("*.[ch]")
    if node_of(path).startswith(prefix) and "build" not in path.relative_to(root).parts[0]
}
edges = {}


def add(user, used):
    if user != used:
        edges.setdefault(user, set()).add(used)


where = {name: node for node, name in symbols("--defined-only", "TDBR")}
for node, name in symbols("--undefined-only", "U"):
    if name in where:
        add(node, where[name])
by_object = sum(map(len, edges.values()))
for path, node in sources.items():
    if path.suffix != ".h":
        continue
    for name in re.findall(r'^#include "([^"]+)"', path.read_text(), re.M):
        for folder in (path.parent, project / "src", project):
            if (folder / name).resolve() in sources:
                add(node, sources[(folder / name).resolve()])
                break
count = sum(map(len, edges.values()))
print(f"{len(sources)} files, {by_object} uses by objects, {count} with headers")
if not by_object or count == by_object:
    sys.exit("nothing was checked")
try:
    graphlib.TopologicalSorter(edges).prepare()
except graphlib.CycleError as error:
    sys.exit("a circle: " + " -> ".join(reversed(error.args[1])))
