#!/usr/bin/env python3
"""Template coverage: every statement of every template must run in one of the configurations that
the mutation test uses, and both branches of every conditional expression.

    coverage.py --smelt build/smelt --templates templates [--emulator SO --program NAME=PATH ...]

Statements are counted by the template's lines, over all emitted kernels: a branch that one configuration removes must
run in another, and text that //@if drops everywhere counts as not run. A compiler's coverage omits code that it
removed, so marks are inserted into the emitted text, and each run writes which were reached.

Configurations run under one schedule: first those in their family's COVERAGE, each only while it contains an item not
reached yet. If those do not reach everything, the other configurations run, too, and the check fails and names those
that reached more, so that the lists stay complete. --suggest runs all and prints a new list.

The wrappers of templates/ptx, which the emulator replaces, count as run if one of these texts or a micro-kernel calls
them, since the replay runs all of those. A branch may never run if survivors.txt has the mutant that drops its
condition.

Exit status: 0 everything ran in the listed configurations; 1 not; 2 wrong use, or a run failed.
"""

import argparse
import collections
import concurrent.futures
import functools
import pathlib
import re
import subprocess
import sys
import tempfile
import threading

import configurations
import survivors
from mutate import Subject
from syntax import parse
from tokens import tokenize

MOST_LINES = 20  # printed for each file
MARKED = ("expression", "return", "jump", "if", "for", "while", "do")

# Marks are bytes of the object itself, which the sanitizer does not check.
PROLOGUE = """
char *getenv(const char *);
int open(const char *, int, ...);
long write(int, const void *, unsigned long);
int close(int);
static unsigned char emu_marks[%d];
__attribute__((noinline, no_sanitize("thread"))) static void emu_mark(int mark) {
    emu_marks[mark] = 1;
}
__attribute__((destructor, no_sanitize("thread"))) static void emu_write_marks(void) {
    const char *path = getenv("SMELT_COVERAGE_MARKS");
    const int file = path ? open(path, 0101, 0600) : -1; /* write, create */
    if (file >= 0) {
        write(file, emu_marks, sizeof emu_marks);
        close(file);
    }
}
"""


class Items:
    """The items of a text that have to run: (file, line, token of the line, kind), with the mark's location."""

    def __init__(self, text, file=""):
        self.syntax = parse(text, file)
        self.tokens = self.syntax.tokens
        self.marks = []  # (key, [(offset, text with {} for the mark's number)])
        self.text = text
        self.folded = {}  # key of a branch: the mutant that, if equivalent, shows that it is not needed
        self.function = ""
        for function in self.syntax.functions:
            if self.wanted(function.body.start):
                self.function = function.name
                self.statement(function.body, None)

    def wanted(self, at):
        file = self.tokens[at].file
        return file.endswith((".cu", ".cuh")) and "/ptx/" not in file

    def add(self, at, kind, places):
        token = self.tokens[at]
        self.marks.append(((token.file, token.line, token.index, kind), places))
        return self.marks[-1][0]

    def statement(self, statement, parent):
        begin, end = self.tokens[statement.start].start, self.tokens[statement.end - 1].end
        runs = statement.kind == "declaration" and statement.expressions
        if parent and (statement.kind in MARKED or runs):
            places = [(begin, "emu_mark({}); ")]
            if parent.kind != "block":
                places = [(begin, "{{ emu_mark({}); "), (end, " }}")]
            self.add(statement.start, "statement", places)
        for expression in statement.expressions:
            self.expression(expression)
        for child in statement.children:
            self.statement(child, statement)

    def expression(self, node):
        if node.kind == "ternary":
            for branch, other in zip(node.children[1:], "01"):
                begin, end = self.tokens[branch.start].start, self.tokens[branch.end - 1].end
                key = self.add(branch.start, "branch", [(begin, "(emu_mark({}), "), (end, ")")])
                self.folded[key] = self.without(node.children[0], other)
        for child in node.children:
            self.expression(child)


    def without(self, condition, value):
        """The name of the mutant that makes the condition this value."""
        first, last = self.tokens[condition.start], self.tokens[condition.end - 1]
        line = self.text[self.text.rfind("\n", 0, first.start) + 1:]
        words = " ".join(self.text[first.start:last.end].split())
        return (first.file, self.function, " ".join(line.split("\n", 1)[0].split()),
                f"bound-dropped: {words} -> {value}")


def insert(text, marks):
    """The text with every mark, numbered in order."""
    places = []
    for number, (_, spots) in enumerate(marks):
        for order, (offset, new) in enumerate(spots):
            # At the same offset, closing insertions come first, innermost first.
            places.append((offset, order == 0, number if order == 0 else -number,
                           new.format(number)))
    for offset, _, _, new in sorted(places, reverse=True):
        text = text[:offset] + new + text[offset:]
    begin = text.index("#define KERNEL_NAME")
    return text[:begin] + PROLOGUE % max(len(marks), 1) + text[begin:]


class Run:
    def __init__(self, subject):
        self.subject = subject
        self.name = subject.configuration.name
        self.ran = False
        self.seconds = 0  # processor time
        self.passed = set()
        self.found = 0  # of these, how many no earlier run had passed
        self.problem = ""

    @functools.cached_property
    def items(self):
        return Items(self.subject.text)

    def reaches(self, keys):
        """Whether this configuration's text has one of the keys."""
        return any(key in keys for key, _ in self.items.marks)

    def run(self, folder):
        """Runs one configuration; its passed items stay in .passed."""
        path = pathlib.Path(folder, self.subject.configuration.name)
        text = insert(self.subject.text, self.items.marks)
        # Configurations of one kernel have one marked text.
        caught, words, self.seconds = self.subject.run(
            text, folder, {"SMELT_COVERAGE_MARKS": str(path)}, 1,
            edited=str(pathlib.Path(folder, "marked")))
        self.ran = True
        if caught or not path.exists():
            self.problem = f"{caught or 'no marks were written'}: {words}"
            return
        marks = path.read_bytes()
        self.passed = {key for (key, _), mark in zip(self.items.marks, marks) if mark}


def run_needed(runs, first, want, jobs, every=False):
    """Runs the configurations in order, those named in `first` first: all, or those with an item of `want` (keys) that
    has not been passed."""
    left, lock = set(want), threading.Lock()

    def run_one(run, folder):
        with lock:
            needed = every or (left and run.reaches(left))
        if needed:
            run.run(folder)
            with lock:
                run.found = len(left & run.passed)
                left.difference_update(run.passed)

    with tempfile.TemporaryDirectory(prefix="smelt-coverage-") as folder, \
            concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for listed in (True, False):
            list(pool.map(lambda run: run_one(run, folder),
                          [run for run in runs if (run.name in first) == listed]))


def suggest(runs, want):
    """Names that together pass everything passed, chosen greedily by new items per second, without those that the
    others make redundant."""
    left, chosen = set(want) & set().union(*(run.passed for run in runs)), []
    while left:
        best = max(runs, key=lambda run: len(run.passed & left) / (1 + run.seconds))
        chosen.append(best)
        left -= best.passed
    for run in sorted(chosen, key=lambda run: -run.seconds):
        others = set().union(*(other.passed for other in chosen if other is not run))
        if run.passed & set(want) <= others:
            chosen.remove(run)
    return chosen


# ---- what there is -----------------------------------------------------------------------------


def expected(templates, prefix):
    """The items of all templates, including those no configuration emits: {file: [keys]}, and the branches' excusing
    mutants."""
    found, folded = collections.OrderedDict(), {}
    for path in sorted(templates.rglob("*.cu*")):
        name = f"{prefix}/{path.relative_to(templates).as_posix()}"
        if path.suffix in (".cu", ".cuh") and "/ptx/" not in name:
            items = Items(path.read_text(encoding="utf-8"), name)
            found[name] = [key for key, _ in items.marks]
            folded.update(items.folded)
    return found, folded


def wrappers(templates):
    """{name: file} of the functions of templates/ptx; names that a directive numbers are patterns."""
    found = {}
    for path in sorted((templates / "ptx").glob("*.cuh")):
        tokens = tokenize(path.read_text(encoding="utf-8"), path.name)
        for before, token, after in zip(tokens, tokens[1:], tokens[2:]):
            if token.kind == "name" and after.text == "(" and before.kind == "name" and \
                    before.text in ("void", "u32", "u64", "bool", "float", "int"):
                found[re.sub(r"\$\{[^}]*\}|\$[a-z]+", r"\\w+", token.text)] = path.name
    return found


def called(texts):
    names = set()
    for text in texts:
        tokens = tokenize(text)
        names |= {t.text for t, after in zip(tokens, tokens[1:])
                  if t.kind == "name" and after.text == "(" and "/ptx/" not in t.file}
        # Wrappers used by another wrapper.
        names |= {t.text for before, t, after in zip(tokens, tokens[1:], tokens[2:])
                  if t.kind == "name" and after.text == "(" and "/ptx/" in t.file and
                  before.kind == "punct"}
    return names


# ---- the command -------------------------------------------------------------------------------


def report(want, folded, passed, templates, known):
    missing = excused = 0
    for file, keys in want.items():
        lines = (templates / file.split("/", 1)[1]).read_text(encoding="utf-8").splitlines()
        in_file = 0
        for key in keys:
            if key not in passed and key in folded and folded[key] in known:
                excused += 1
                print(f"{file}:{key[1]}: a branch never run, and not needed: "
                      f"{survivors.REASONS[known.why(folded[key])]}")
            elif key not in passed:
                missing += 1
                in_file += 1
                if in_file > MOST_LINES:
                    continue
                words = " ".join(lines[key[1] - 1].split())
                print(f"{file}:{key[1]}: {key[3]} never run: {words}")
        if in_file > MOST_LINES:
            print(f"{file}: {in_file - MOST_LINES} more")
    kinds = collections.Counter(key[3] for keys in want.values() for key in keys)
    ran = collections.Counter(key[3] for keys in want.values() for key in keys if key in passed)
    print(f"{ran['statement']} of {kinds['statement']} statements and {ran['branch']} of "
          f"{kinds['branch']} branches of conditional expressions in {len(want)} files, {excused} "
          f"excused")
    return missing


def program_texts(tools):
    """The texts of all kernels that a test program lists."""
    for program in tools.programs.values():
        listed = subprocess.run([program, "--list"], capture_output=True, text=True, check=False)
        if listed.returncode == 0:
            for name in listed.stdout.splitlines():
                yield configurations.output([program, "--emit", name])


def report_wrappers(templates, texts):
    names = called(texts)
    missing = [(name, file) for name, file in wrappers(templates).items()
               if not any(re.fullmatch(name, other) for other in names)]
    for name, file in missing:
        print(f"templates/ptx/{file}: never called: {name}")
    count = len(wrappers(templates))
    print(f"{count - len(missing)} of {count} wrappers of templates/ptx called")
    return len(missing)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    configurations.add_tools(parser)
    parser.add_argument("--templates", required=True, type=pathlib.Path)
    parser.add_argument("--suggest", action="store_true", help="run all, print new COVERAGE lists")
    arguments = parser.parse_args()
    tools = configurations.tools_of(arguments)
    families = configurations.all_families(tools)
    first = {name for family in families for name in family.coverage}
    planned = [c for family in families for c in family.configurations if c.runs_with(tools)]
    runs = [Run(Subject(c, tools)) for c in planned]
    want, folded = expected(arguments.templates, "templates")
    known = survivors.Known()
    keys = [key for keys in want.values() for key in keys
            if key not in folded or folded[key] not in known]
    run_needed(runs, first, keys, arguments.jobs, arguments.suggest)
    problems = [f"{run.name}: {run.problem}" for run in runs if run.problem]
    if problems:
        print("\n".join(problems))
        return 2
    print(f"{sum(run.ran for run in runs)} of {len(runs)} configurations run: "
          f"{', '.join(run.name for run in runs if run.ran)}")
    if arguments.suggest:
        print("COVERAGE of each family:", ", ".join(
            f"{run.subject.configuration.family}: {run.name}" for run in suggest(runs, keys)))
    passed = set().union(*(run.passed for run in runs))
    missing = report(want, folded, passed, arguments.templates, known)
    unlisted = [] if arguments.suggest else \
        [run for run in runs if run.found and run.name not in first]
    for run in unlisted:
        print(f"COVERAGE of families/{run.subject.configuration.family}.py lacks {run.name}, which "
              f"reached {run.found} items that the listed ones did not")
    if tools.programs:
        missing += report_wrappers(arguments.templates, [run.subject.text for run in runs] +
                                   list(program_texts(tools)))
    return 1 if missing or unlisted else 0


if __name__ == "__main__":
    sys.exit(main())
