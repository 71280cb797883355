#!/usr/bin/env python3
"""Template coverage: every statement of every template must run in a check of checks.txt.

    coverage.py [--build build]

Compilers omit removed code from their coverage, so this program puts a mark before each statement of the templates. A check
runs, under one schedule, only if it compiles a statement that no check has reached yet. Exit status: 0 if every statement ran
and no check failed, else 1.
"""

import argparse
import concurrent.futures
import os
import pathlib
import sys
import tempfile
import threading

from checks import FOLDER, TEMPLATES, Runner, read_checks
from mutate import own_checks, template_files
from operators import Text

# Marks are bytes in the shared object, whose accesses the emulator does not check. They are appended to a file.
PROLOGUE = """
char *getenv(const char *);
int open(const char *, int, ...);
long write(int, const void *, unsigned long);
int close(int);
static unsigned char emu_marks[%d];
__attribute__((noinline, no_sanitize("thread"))) static void emu_mark(int mark) { emu_marks[mark] = 1; }
__attribute__((destructor, no_sanitize("thread"))) static void emu_write_marks(void) {
    const char *path = getenv("SMELT_COVERAGE_MARKS");
    const int file = path ? open(path, 02101, 0600) : -1; /* write, create, append */
    if (file >= 0) {
        write(file, emu_marks, sizeof emu_marks);
        close(file);
    }
}
"""


def statements(text):
    """Yields (the offsets of a simple statement, whether it is the body of a branch or loop without braces)."""
    for at, token in enumerate(text.tokens):
        end = text.statement(at)
        block = at
        while end and text.tokens[block].outer >= 0:
            block = text.tokens[block].outer
        if end and text.word(block - 1) == ")":
            yield text.span(at, end), text.word(at - 1) not in (";", "{", "}")


def mark(text, first):
    """A template's text with marks, numbered from `first`, and their lines."""
    lines, pieces, done = [], [], 0
    for (begin, end), alone in statements(Text(text)):
        number = first + len(lines)
        lines.append(text.count("\n", 0, begin) + 1)
        pieces += [text[done:begin], f"{{ emu_mark({number}); " if alone else f"emu_mark({number}); ", text[begin:end],
                   " }" if alone else ""]
        done = end
    return "".join(pieces) + text[done:], lines


def mark_all(folder):
    """Writes marked templates; returns the (file, line) of each mark."""
    places, texts = [], {}
    for file in template_files():
        texts[file], lines = mark((TEMPLATES / file).read_text(encoding="utf-8"), len(places))
        places += [(file, line) for line in lines]
    base = "common/base.cuh"  # which every kernel includes
    texts[base] = texts[base].replace("\ntypedef", PROLOGUE % len(places) + "\ntypedef", 1)
    for file, text in texts.items():
        path = pathlib.Path(folder, file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return places


def run_checks(checks, places, runner, jobs):
    """(the marks that no check reaches, how many checks ran, those that failed)."""
    templates = pathlib.Path(runner.folder, "marked")
    left, lock, ran, failures = set(range(len(places))), threading.Lock(), [], []

    def run(number):
        check, path = checks[number], pathlib.Path(runner.folder, f"marks-{number}")
        with lock:
            wanted = {places[i] for i in left}
        if check.program:
            needed = any(check in own_checks(file, checks) for file, _ in wanted)
        else:
            needed = wanted & runner.lines(check)
        if not needed:
            return
        failed, words, _ = runner.run(check, templates, 1, 600, [("SMELT_COVERAGE_MARKS", str(path))])
        marks = path.read_bytes() if path.exists() else b""
        with lock:
            ran.append(check)
            failures.extend([f"{check}: {failed}: {words}"] if failed else [])
            left.difference_update(i % len(places) for i, reached in enumerate(marks) if reached)

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        list(pool.map(run, range(len(checks))))
    return left, len(ran), failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--build", default="build", help="the build folder")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    checks = read_checks((FOLDER / "checks.txt").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory(prefix="smelt-coverage-") as folder:
        places = mark_all(pathlib.Path(folder, "marked"))
        left, ran, failures = run_checks(checks, places, Runner(arguments.build, folder), arguments.jobs)
    for number in sorted(left):
        file, line = places[number]
        words = (TEMPLATES / file).read_text(encoding="utf-8").splitlines()[line - 1].strip()
        print(f"templates/{file}:{line}: never run: {words}")
    print("\n".join([*failures, f"{len(places) - len(left)} of {len(places)} statements run in {ran} of {len(checks)} checks"]))
    return int(bool(left or failures))


if __name__ == "__main__":
    sys.exit(main())
