#!/usr/bin/env python3
"""paths.py ROOT: every path that a page, a comment or a script names exists.

Checks relative links of Markdown pages and their headings; names of files in backquotes on such pages, which may omit
leading folders (`cache/entry.c`); and in every text file words that begin with one of the root's folders and end in a
known extension or a slash (src/emu/emulator.h, tests/gpu/). A name in capitals or angle brackets matches any; * is a
pattern. Exit status 1, with file and line, if something is missing.
"""
import fnmatch
import os
import re
import sys

FOLDERS = "src tests tools templates include bench docs scripts examples python".split()
TEXT = "c h cu cuh md sh py build txt bash-completion".split()
NAMED = "c|h|cu|cuh|md|sh|py|txt|results|build|diff|dict|inc"
# Folders that tests create, and recorded texts.
FOREIGN = ("tests/unit/embed", "tests/fuzz/corpus", "tests/abi/", "tests/emu/mutation/", "tests/docs/")
ELSEWHERE = ("tests/test_flash_mla_sparse_prefill.py",)  # FlashMLA's
IN_TEXT = re.compile(r"(?<![\w./$\"'-])((?:%s)/[\w./*<>-]*)" % "|".join(FOLDERS))
IN_QUOTES = re.compile(r"`(\w[\w./*<>-]*\.(?:%s))`" % NAMED)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def project_files(root):
    """Paths of all files, relative to the root, without build folders and .git."""
    paths = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith((".", "build"))
                      and name != "__pycache__"]
        paths += [os.path.relpath(os.path.join(folder, name), root) for name in names]
    return paths


def slug(heading):
    """The anchor that Markdown viewers give a heading."""
    return re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", "-")


def is_placeholder(name):
    return "<" in name or re.search(r"\b[A-Z]{2,}\b", os.path.splitext(name)[0]) is not None


class Check:
    def __init__(self, root):
        self.root = root
        self.paths = project_files(root)
        self.folders = {os.path.dirname(path) for path in self.paths}
        for folder in list(self.folders):
            while folder := os.path.dirname(folder):
                self.folders.add(folder)
        self.problems = []
        self.checked = 0

    def is_there(self, name, suffix):
        """Whether a path exists; with `suffix` its first folders may be missing."""
        name = name.rstrip("/")
        if "*" in name:
            return any(fnmatch.fnmatch(path, name) or suffix and fnmatch.fnmatch(path, "*/" + name)
                       for path in self.paths)
        if name in self.folders or os.path.exists(os.path.join(self.root, name)):
            return True
        return suffix and any(path.endswith("/" + name) for path in self.paths)

    def name(self, path, line, name, suffix=False):
        if is_placeholder(name) or name in ELSEWHERE:
            return
        self.checked += 1
        if not self.is_there(name, suffix):
            self.problems.append(f"{path}:{line}: {name} is not there")

    def link(self, path, line, target):
        if re.match(r"[a-z]+:", target):
            return
        file, _, anchor = target.partition("#")
        file = os.path.normpath(os.path.join(os.path.dirname(path), file)) if file else path
        self.checked += 1
        if file not in self.paths and file not in self.folders:
            self.problems.append(f"{path}:{line}: link to {file}, which is not there")
        elif anchor:
            with open(os.path.join(self.root, file), encoding="utf-8") as page:
                headings = {slug(text.lstrip("#")) for text in page if text.startswith("#")}
            if anchor not in headings:
                self.problems.append(f"{path}:{line}: {file} has no heading {anchor}")

    def file(self, path):
        with open(os.path.join(self.root, path), encoding="utf-8") as text:
            lines = text.read().split("\n")
        for number, line in enumerate(lines, 1):
            for match in IN_TEXT.finditer(line):
                name = match.group(1).rstrip(".,-")
                if re.search(r"\.(%s)$|/$" % NAMED, name):
                    self.name(path, number, name)
            if path.endswith(".md"):
                for match in IN_QUOTES.finditer(line):
                    self.name(path, number, match.group(1), suffix=True)
                for match in LINK.finditer(line):
                    self.link(path, number, match.group(1))


def main():
    check = Check(sys.argv[1])
    for path in sorted(check.paths):
        extension = path.rpartition(".")[2]
        if not path.startswith(FOREIGN) and (extension in TEXT or path == "Makefile"):
            check.file(path)
    for problem in check.problems:
        print(problem)
    print(f"{check.checked} names and links, {len(check.problems)} of nothing")
    return 1 if check.problems or check.checked < 100 else 0


if __name__ == "__main__":
    sys.exit(main())
