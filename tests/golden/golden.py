#!/usr/bin/env python3
"""Goldens: the generator's output for chosen specs.

    golden.py SMELT ROOT            compare; print the first line that differs
    golden.py SMELT ROOT --renew    write today's text

SMELT is the command, ROOT the repository. tests/golden/<family>.txt holds a family's tables. A table
begins with a line `@ ARCHITECTURE SPEC KERNEL` for each of its goldens, which are its columns in that
order. Each row is a line of their sources: of the banner or of the prologue, less the enumerators that
repeat a row of the banner, less the lines that every source has (FRAME), and without the comments, which
layout.txt has for one source. What all columns have in common comes first (`all:`), then the list of parts, with
their arguments, that all have. A row has the numbers that stand for # in each column: - where the golden lacks the
line, + where the line has no number, a number with k where the spec gives the knob. Similar columns make a table
short, so put specs of one variant into one table. To add a golden, write its `@ ARCHITECTURE SPEC` and renew.

Tables write runs of spaces as one space and leave out lines without a word; layout.txt has the head
of one source as it is.

Goldens do not contain the parts' text. Instead, this file implements the template directives
independently (src/codegen/template/engine.h has the rules), and the emitted source must contain
exactly the text that results. So a golden changes with the generator, a plan or the list of parts,
but not with a template's text.

Every kernel family has goldens, and every template is a part of at least one.
"""
import difflib
import json
import os
import pathlib
import re
import subprocess
import sys
import textwrap

MARK = re.compile(r"\s*//@(\w+)\s*(.*?)\s*$")
ENUMERATOR = re.compile(r"^    (\w+) = (-?\d+), +/\* (.*) \*/$", re.MULTILINE)
BANNER_ROW = re.compile(r"^ \*   ([A-Z]\w*) +(-?\d+) +\S+ +(.*)$", re.MULTILINE)
PART = re.compile(r'^#line \d+ "templates/(.+)"$', re.MULTILINE)
KERNEL = re.compile(r"^#define KERNEL_NAME (\w+)$", re.MULTILINE)
FRAME = [
    "* Written by smelt; do not edit. To write it again:",
    "* smelt emit SPEC --arch ARCH",
    "* spec SPEC",
    "* arch ARCH",
    "* kernel KERNEL",
    "* knobs (by the spec, or by rule)",
    "* launch",
    "#define KERNEL_NAME KERNEL",
]
HEADINGS = {"* shared memory (offset, bytes)", "enum {", "/* Shared memory, in bytes from the arena's start. */"}
KNOB = re.compile(r"\* ([A-Z]\w*) (-?\d+) (rule|knob) .*")
PLACE = re.compile(r"\* ([A-Z]\w*) (-?\d+) (\d+) .*")
SHARED = re.compile(r"\* (SHARED_BYTES) (\d+) of (\d+) .*")
CONSTANT = re.compile(r"([A-Z]\w*) = (-?\d+), /\*.*\*/")
PARTS = "parts:"
WIDTH = 110  # of a line of parts
NUMBER = re.compile(r"(?<![\w.])-?\d+(?![\w.:])")


class Failure(Exception):
    """An error in one golden."""


# ---- templates -----------------------------------------------------------------------------------


def evaluate(expression, names):
    """C's value of an expression, whose divisions have no negative operand."""
    text = re.sub(r"!(?!=)\s*(\w+|\([^()]*\))", r"(not \1)", expression)
    text = text.replace("&&", " and ").replace("||", " or ").replace("/", "//")
    return int(eval(text.strip(), {"__builtins__": {}}, names))  # the repository's own templates


def substitute(line, names):
    return re.sub(r"\$(?:\{([^}]*)\}|([A-Za-z_]\w*))",
                  lambda match: str(evaluate(match[1] or match[2], names)), line)


def block_end(lines, at):
    """The indices of the //@else, or None, and of the //@end of the block that begins at `at`."""
    depth, middle = 0, None
    for i in range(at, len(lines)):
        mark = MARK.match(lines[i])
        kind = mark[1] if mark else ""
        depth += (kind in ("for", "if")) - (kind == "end")
        if kind == "else" and depth == 1:
            middle = i
        if depth == 0:
            return middle, i
    raise Failure(f"line {at + 1}: no //@end")


def expand(lines, first, last, names):
    """Yields the lines that stay, each with its number, with the directives carried out."""
    i = first
    while i < last:
        mark = MARK.match(lines[i])
        if not mark:
            yield i + 1, substitute(lines[i], names)
        elif mark[1] == "if":
            middle, end = block_end(lines, i)
            if evaluate(mark[2], names):
                yield from expand(lines, i + 1, end if middle is None else middle, names)
            elif middle is not None:
                yield from expand(lines, middle + 1, end, names)
            i = end
        elif mark[1] == "for":
            end = block_end(lines, i)[1]
            variable, bounds = re.split(r"\s+in\s+", mark[2], maxsplit=1)
            low, high = (evaluate(bound, names) for bound in bounds.split(".."))
            for value in range(low, high):
                yield from expand(lines, i + 1, end, {**names, variable: value})
            i = end
        i += 1


class Parts:
    """A template and the parts it uses, as text and as a list."""

    def __init__(self, templates, root, constants):
        self.templates = templates
        self.constants = constants
        self.text = ""
        self.list = []
        self.add(root, {})

    def add(self, name, arguments):
        """The parts that this one uses come first, and each comes once for each set of arguments."""
        entry = name + "".join(f"{',' if i else ''} {key} = {value}"
                               for i, (key, value) in enumerate(arguments.items()))
        if entry in self.list:
            return
        if name not in self.templates:
            raise Failure(f"templates/{name} does not exist")
        lines = self.templates[name].split("\n")
        names = {**self.constants, **arguments}
        for mark in filter(None, map(MARK.match, lines)):
            if mark[1] == "use":
                used, _, given = mark[2].partition(" ")
                values = dict(re.split(r"\s*=\s*", one.strip(), maxsplit=1)
                              for one in given.split(",") if one.strip())
                takes = re.search(r"^//@takes (.*)$", self.templates[used], re.MULTILINE)
                self.add(used, {key: evaluate(values[key], names)
                                for key in (takes[1].split() if takes else [])})
        self.list.append(entry)
        if self.text and not self.text.endswith("\n\n"):
            self.text += "\n"
        expected = None
        for number, line in expand(lines, 0, len(lines) - 1, names):
            if number != expected:
                self.text += f'#line {number} "templates/{name}"\n'
            self.text += line + "\n"
            expected = number + 1


# ---- goldens -------------------------------------------------------------------------------------


def first_difference(expected, found, what):
    """A message with the first line that differs."""
    old, new = expected.split("\n"), found.split("\n")
    for number in range(max(len(old), len(new))):
        a = old[number] if number < len(old) else "(its end)"
        b = new[number] if number < len(new) else "(its end)"
        if a != b:
            return f"line {number + 1} differs\n  {what}: {a}\n  emitted: {b}"
    return "no difference"


def shorten(head):
    """The head without the enumerators that say what a row of the banner says. Every row must have
    its enumerator."""
    enumerators = {name: (value, meaning) for name, value, meaning in ENUMERATOR.findall(head)}
    for name, value, meaning in BANNER_ROW.findall(head):
        if enumerators.get(name, ("none",))[0] != value:
            raise Failure(f"{name} is {value} in the banner, {enumerators.get(name)} in the prologue")
        if enumerators[name][1] == meaning:
            head = re.sub(rf"^    {name} = .*\n", "", head, flags=re.MULTILINE)
    return head


def split_source(source, templates):
    """The source's head and its list of parts; the rest must be the parts' text."""
    roots = PART.findall(source)
    if not roots:
        raise Failure("no part in the source")
    head = source[:source.index("#line ")]
    parts = Parts(templates, roots[-1], {name: int(value)
                                         for name, value, _ in ENUMERATOR.findall(head)})
    body = source[len(head):]
    if body != parts.text:
        raise Failure("the parts' text: " + first_difference(parts.text, body, "templates"))
    return shorten(head), parts.list


class Golden:
    """One emitted source: its head as it is, and its rows as a table has them."""

    def __init__(self, arch, spec, source, templates):
        self.head, self.parts = split_source(source, templates)
        self.kernel = KERNEL.search(self.head)[1]
        self.title = f"@ {arch} {spec} {self.kernel}"
        own = {self.kernel: "KERNEL", spec: "SPEC", arch: "ARCH"}
        text = re.sub("|".join(rf"(?<!\\w){re.escape(name)}(?![\\w,])" for name in own),
                      lambda match: own[match[0]], self.head)
        lines = [re.sub(" +", " ", line).strip() for line in text.split("\n")]
        lines = [line for line in lines if re.search(r"\w", line)]
        if [line for line in lines if line in FRAME] != FRAME:
            raise Failure(f"{spec}: not every line that each source has, once: " + ", ".join(FRAME))
        self.knobs = {match[1] for match in map(KNOB.fullmatch, lines) if match and match[3] == "knob"}
        lines = [self.row(line) for line in lines if line not in FRAME and line not in HEADINGS]
        self.lines = [line for line in lines if line] + [PARTS] + self.parts
        numbers = len(self.lines) - len(self.parts)
        self.rows = [NUMBER.sub("#", line) if i < numbers else line
                     for i, line in enumerate(self.lines)]

    def row(self, line):
        """A line without its comment; "" for one that says nothing more."""
        for form in (KNOB, PLACE, SHARED, CONSTANT):
            match = form.fullmatch(line)
            if match and form is CONSTANT:
                return "" if match[1] == "SHARED_BYTES" else f"{match[1]} = {match[2]}"
            if match:
                return " ".join(match.groups()[:2 if form is KNOB else 3])
        return line.removeprefix("* ")

    def cells(self, rows):
        """Of each of a table's rows: None, or (the numbers, the line)."""
        at, found = 0, []
        for row in rows:
            if at < len(self.rows) and self.rows[at] == row:
                line = self.lines[at]
                knob = "k" if row.split(" ")[0] in self.knobs and row.endswith(" #") else ""
                found.append((",".join(NUMBER.findall(line)) + knob if "#" in row else "", line))
                at += 1
            else:
                found.append(None)
        assert at == len(self.rows), "a row is lost"
        return found


def merge(rows, more):
    """The shortest list of rows, nearly, that has both lists in their orders."""
    merged = []
    for _, i, j, k, l in difflib.SequenceMatcher(None, rows, more, autojunk=False).get_opcodes():
        merged += rows[i:j] + (more[k:l] if rows[i:j] != more[k:l] else [])
    return merged


def fill(title, rows):
    text = f"{title} " + "; ".join(rows).replace(" ", "\0").replace(";\0", "; ")
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False).replace("\0", " ") + "\n"


def table_text(goldens):
    rows = []
    for golden in goldens:
        rows = merge(rows, golden.rows)
    columns = [golden.cells(rows) for golden in goldens]
    text = "".join(golden.title + "\n" for golden in goldens)
    cells = []
    for row, found in zip(rows, zip(*columns)):
        if None not in found and len(set(found)) == 1:
            cells.append((["="], found[0][1]))
        else:
            cells.append((["-" if one is None else one[0] or "+" for one in found], row))
    at = rows.index(PARTS)
    alike = [row for own, row in cells[:at] if own == ["="]]
    shared = [row for own, row in cells[at + 1:] if own == ["="]]
    cells = [cell for cell in cells if cell[0] != ["="]]
    widths = [max([1] + [len(own[i]) for own, _ in cells]) for i in range(len(goldens))]
    text += fill("all:", alike) + fill(PARTS, shared)
    for own, row in cells:
        text += " ".join(cell.rjust(width) for cell, width in zip(own, widths)) + f"  {row}\n"
    return text


def split_tables(text):
    """[[its @ lines], its text] of each table of a file."""
    pieces = re.split(r"^((?:@ .*\n)+)", text, flags=re.MULTILINE)
    if pieces[0]:
        raise Failure("its first line does not begin with @")
    return [(titles.splitlines(), titles + rows)
            for titles, rows in zip(pieces[1::2], pieces[2::2])]


class Check:
    def __init__(self, smelt, root, renew):
        self.smelt, self.renew = smelt, renew
        self.folder = root / "tests/golden"
        self.templates = {str(file.relative_to(root / "templates")): file.read_text("ascii")
                          for suffix in ("cu", "cuh", "h")
                          for file in sorted((root / "templates").glob(f"**/*.{suffix}"))}
        self.used = set()
        self.count = self.failures = 0

    def fail(self, where, message):
        print(f"{where}: {message}", file=sys.stderr)
        self.failures += 1

    def run_smelt(self, *arguments):
        done = subprocess.run([self.smelt, *arguments], capture_output=True, text=True, check=False,
                              env={**os.environ, "SMELT_TUNING_DISABLE": "1", "SMELT_CACHE_DISABLE": "1"})
        if done.returncode:
            raise Failure(done.stderr.strip())
        return done.stdout

    def emit(self, title):
        fields = title.split()
        if len(fields) not in (3, 4):
            raise Failure("write @ ARCHITECTURE SPEC")
        self.count += 1
        arch, spec = fields[1:3]
        golden = Golden(arch, spec, self.run_smelt("emit", spec, "--arch", arch), self.templates)
        self.used.update(part.split(" ")[0] for part in golden.parts)
        return golden

    def compare(self, path, where, old, new):
        """The text to keep."""
        if new.rstrip() != old.rstrip() and not self.renew:
            self.fail(f"{path}: {where}", first_difference(old, new, "golden"))
        return new

    def check_file(self, path):
        """The families of the file's goldens."""
        today, families = "", set()
        for titles, text in split_tables(path.read_text("ascii")):
            families |= {re.split("[ :]", title)[2] for title in titles}
            try:
                text = self.compare(path, titles[0], text,
                                    table_text([self.emit(title) for title in titles]) + "\n")
            except Failure as failure:
                self.fail(f"{path}: {titles[0]}", failure)
            today += text
        if self.renew:
            path.write_text(today.rstrip() + "\n", "ascii")
        return families

    def check_layout(self, path):
        """The head of one source, spaces and all."""
        title, _, text = path.read_text("ascii").partition("\n")
        golden = self.emit(title)
        text = self.compare(path, title, text, golden.head)
        if self.renew:
            path.write_text(f"{golden.title}\n{text.rstrip()}\n", "ascii")

    def check_all(self):
        for path in sorted(self.folder.glob("*.txt")):
            if path.stem == "layout":
                self.check_layout(path)
            elif self.check_file(path) != {path.stem}:
                self.fail(path, f"a file of goldens holds those of one family, {path.stem}")
        for family in json.loads(self.run_smelt("list", "--json"))["families"]:
            if family["kind"] == "kernel" and not (self.folder / f"{family['name']}.txt").exists():
                self.fail(family["name"], f"a family without goldens: write {family['name']}.txt")
        known = not self.failures  # what each golden uses
        for name in sorted(set(self.templates) - self.used) if known else ():
            self.fail(f"templates/{name}", "a part of no golden: remove it, or add a spec that has it")
        print(f"{self.count} goldens, {len(self.templates)} templates, {self.failures} failures")
        if self.failures and not self.renew:
            print("If the change is meant: ninja -C build renew-goldens, and review it.")
        return 1 if self.failures else 0


if __name__ == "__main__":
    sys.exit(Check(sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:] == ["--renew"]).check_all())
