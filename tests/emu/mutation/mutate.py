#!/usr/bin/env python3
"""The mutation test of the kernels: with one small mistake in a template, at least one check of checks.txt must fail.
docs/developing.md ("Mutants") says when to run it and what to do about a survivor.

    mutate.py [--build build] --changed-since REV | --sample N | --only TEXT | ... [--list]

The checks that compile a mutant's line are run with the mutant until one fails: those of the sections that name its file, or
of all sections if none does; those that have caught the most mutants per time come first. A check does not count if the C
compiler generates the same code with and without the mutant. In a sample, a mutant that passes FEW checks counts as a
survivor. A sample depends only on its seed and the mutants' names, so an edit of a template replaces only the mutants of
changed lines.

Exit status: 0 no mutant survived, or at most a quarter of a sample; 1 more survived; 2 wrong use, or a check fails without
a mutant.
"""

import argparse
import collections
import concurrent.futures
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time

from checks import FOLDER, STILLBORN, TEMPLATES, Runner, read_checks
from operators import find_mutants

SLOWER = 3  # limit of processor time with a mutant, as a multiple of the time without
LONG = 3  # seconds: such a check runs under one schedule first
FEW = 3  # checks after which a mutant of a sample counts as a survivor


class CannotTell(Exception):
    """The mutants cannot be judged."""


class Subject:
    """A check, its time without a mutant, and how many mutants it caught."""

    def __init__(self, check, runner):
        self.check, self.runner = check, runner
        self.cost, self.caught, self.ran = None, 1, 2
        self.lock = threading.Lock()

    def rank(self):
        return 0 if self.cost is None else -self.caught / self.ran / (self.cost + 0.5)

    def measure(self):
        with self.lock:
            if self.cost is None:
                failed, words, self.cost = self.runner.run(self.check, limit=600)
                if failed:
                    raise CannotTell(f"{self.check} fails without a mutant: {failed}: {words}")

    def catches(self, templates):
        """(what failed or "", message)."""
        self.measure()
        for schedules in (1, None) if self.cost > LONG else (None,):
            failed, words, _ = self.runner.run(self.check, templates, schedules, limit=max(5, SLOWER * (self.cost + 1)))
            if failed:
                break
        if failed != STILLBORN:
            self.caught += bool(failed)
            self.ran += 1
        return failed, words


def fate(mutant, subjects, runner, most):
    """(failure, check, message) after at most `most` passed checks. The failure is "" for a survivor, STILLBORN if no check
    compiles the mutant, "same code" if no check compiles its line or the code is the same in all of them."""
    verdict, passed = "same code", 0
    with tempfile.TemporaryDirectory(dir=runner.folder) as folder:
        path = pathlib.Path(folder, mutant.file)
        path.parent.mkdir(exist_ok=True)
        path.write_text(mutant.apply((TEMPLATES / mutant.file).read_text(encoding="utf-8")), encoding="utf-8")
        for subject in sorted(subjects, key=Subject.rank):
            if passed == most:
                break
            if not runner.has(subject.check, mutant.file, mutant.line):
                continue
            failed, words = subject.catches(folder)
            if failed not in ("", STILLBORN):
                return failed, str(subject.check), words
            if failed == STILLBORN:
                verdict = STILLBORN if verdict else ""
            elif not runner.same_code(subject.check, folder):
                verdict, passed = "", passed + 1
    return verdict, "", ""


def own_checks(file, checks):
    """The checks of the sections that name a file, else all."""
    return [check for check in checks if file.startswith(check.files)] or checks


# ---- which mutants -----------------------------------------------------------------------------


def ticket(name, seed):
    return hashlib.sha256(f"{seed} {name}".encode()).digest()


def draw(mutants, count, seed):
    """A sample: one mutant of each file's stem, then a second of each, and so on."""
    stems = collections.defaultdict(list)
    for mutant in sorted(mutants, key=lambda m: ticket(m.name, seed)):
        stems[mutant.file.split(".")[0]].append(mutant)
    rows = sorted(stems.values(), key=lambda own: ticket(own[0].file.split(".")[0], seed))
    turns = [own[turn] for turn in range(max(map(len, rows), default=0)) for own in rows if len(own) > turn]
    return turns[:count]


def changed_lines(diff):
    """{(file, line)} that a `git diff -U0` of the templates adds or changes."""
    found, file = set(), ""
    for line in diff.splitlines():
        hunk = re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line)
        if line.startswith("+++ "):
            file = re.sub("^b/templates/", "", line[4:].strip())
        elif hunk:
            found |= {(file, int(hunk[1]) + i) for i in range(int(hunk[2] or 1))}
    return found


def changed_since(revision):
    command = ["git", "-C", TEMPLATES.parent, "diff", "-U0", revision, "--", "templates"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotTell(f"git diff {revision}: {done.stderr.strip()}")
    return changed_lines(done.stdout)


def template_files():
    names = [path.relative_to(TEMPLATES).as_posix() for path in sorted(TEMPLATES.rglob("*.cu*"))]
    return [name for name in names if name.endswith((".cu", ".cuh")) and not name.startswith("ptx/")]


def choose(arguments):
    lines = changed_since(arguments.changed_since) if arguments.changed_since else None
    mutants = []
    for file in template_files():
        if lines is None or any(file == name for name, _ in lines):
            mutants += find_mutants(file, (TEMPLATES / file).read_text(encoding="utf-8"))
    mutants = [m for m in mutants if (lines is None or (m.file, m.line) in lines) and
               (arguments.only or "") in f"{m.name} templates/{m.file}:{m.line}:"]
    return draw(mutants, arguments.sample, arguments.seed) if arguments.sample else mutants


# ---- the command -------------------------------------------------------------------------------


def run_all(mutants, runner, arguments):
    """{mutant: fate}, of the mutants that begin before the time limit."""
    checks = read_checks((FOLDER / "checks.txt").read_text(encoding="utf-8"))
    subjects = {check: Subject(check, runner) for check in checks}
    end, results = time.monotonic() + (arguments.seconds or float("inf")), {}

    def one(mutant):
        if time.monotonic() < end:
            return fate(mutant, [subjects[check] for check in own_checks(mutant.file, checks)], runner,
                        FEW if arguments.sample else len(checks))
        return None

    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        futures = {pool.submit(one, mutant): mutant for mutant in mutants}
        try:
            for future in concurrent.futures.as_completed(futures):
                mutant, result = futures[future], future.result()
                if result:
                    results[mutant] = result
                    print(f"[{len(results)}/{len(mutants)}] templates/{mutant.file}:{mutant.line}: {mutant.change}: "
                          f"{result[0] or 'SURVIVED'} {result[1]}", flush=True)
        except CannotTell:
            pool.shutdown(cancel_futures=True)
            raise
    return results


def report(results, count, sample):
    """Prints the survivors and the numbers; returns the exit status."""
    kinds = collections.Counter(failed or "survived" for failed, *_ in results.values())
    for mutant, (failed, *_) in results.items():
        if not failed:
            print(f"\nsurvived: templates/{mutant.file}:{mutant.line}: {mutant.change}\n    {mutant.words}")
    alive, unjudged = kinds["survived"], kinds[STILLBORN] + kinds["same code"]
    judged = len(results) - unjudged
    print(f"\n{', '.join(f'{kind}: {number}' for kind, number in kinds.most_common())}\n"
          f"{judged} mutants: {judged - alive} caught, {alive} survived; {unjudged} more did not compile or have the same code")
    if len(results) < count:
        print(f"{count - len(results)} of {count} were not run: the time limit was reached")
    return int(4 * alive > count if sample else alive > 0)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--build", default="build", help="the build folder")
    parser.add_argument("--changed-since", metavar="REV", help="mutants of lines that differ from this commit")
    parser.add_argument("--sample", type=int, metavar="N", help="run N mutants, drawn evenly from the families of templates")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument("--only", metavar="TEXT", help="mutants whose line, change or `templates/FILE:LINE:` contains TEXT")
    parser.add_argument("--seconds", type=float, help="begin no mutant after this time")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--list", action="store_true", help="print the mutants and run none")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    try:
        mutants = choose(arguments)
        print(f"{len(mutants)} mutants{f', seed {arguments.seed}' if arguments.sample else ''}", flush=True)
        if arguments.list:
            print("\n".join(f"templates/{m.file}:{m.line}: {m.change}" for m in mutants))
            return 0
        with tempfile.TemporaryDirectory(prefix="smelt-mutants-") as folder:
            results = run_all(mutants, Runner(arguments.build, folder), arguments)
        return report(results, len(mutants), arguments.sample)
    except CannotTell as failure:
        print(failure)
        return 2


if __name__ == "__main__":
    sys.exit(main())
