#!/usr/bin/env python3
"""The mutation test of the kernels: every small mistake that fits into a template is made, one at a
time, and each must be caught by the emulator or by the comparison with the reference.

    mutate.py --smelt build/smelt [--emulator SO --program NAME=PATH ...] [--changed-since REV]

A mutant is one change of the emitted text (operators.py) that can matter (harmless.py), at a line from templates/
(except templates/ptx, which the emulator replaces) or from the micro-kernels. It is compiled and run in the
configurations that have its line (configurations.py) until one catches it, first in those that caught most mutants per
time. Known survivors (survivors.py) run only with --known.

Selection: --changed-since REV takes the mutants of lines that differ from a commit; authors of template changes use
this. --full takes FULL of each family. --sample N draws N families, and of each a mutant of one of its configurations.
Without these, all mutants run, which takes hours. Samples depend only on names and seed, so an edit affects only mutants
that it changes; they omit families with UNSETTLED unless --family asks for one.

A new survivor shows a gap in the tests, or no test can catch it. Add a test or a filter, or accept it: --accept REASON
adds this run's survivors to survivors.txt, and removes known survivors that were caught or no longer exist. A survivor
fails the run, except with --sample, which changes of any template must pass: for each survivor RETRIES more mutants of
its family run, and the family fails if most of these survive, too.

Exit status: 0 no new survivors (or few, of a sample); 1 some; 2 wrong use, or the kernels fail unchanged.
"""

import argparse
import collections
import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time

import configurations
import survivors
from configurations import STILLBORN
from operators import find_all, find_mutants

FULL = 60  # mutants of a family in a full run
SLOWER = 3  # a mutant's limit of processor time, as a multiple of the unchanged kernel's time
LEAST_SECONDS = 4
WALL = 20  # the limit of elapsed time, as a multiple of that, since others run concurrently
COMPILATION = 0.5  # seconds for the compilation, added to the unchanged kernel's time, which has none
LONG = 3  # seconds: if the unchanged kernel takes more, a mutant runs under one schedule first
RETRIES = 3  # further mutants of a family for each survivor of a sample


class CannotTell(Exception):
    """The mutants cannot be judged."""


class UnchangedFails(CannotTell):
    """A configuration fails without any change."""


class ToolsChanged(CannotTell):
    """A tool was rebuilt during the run, which may be why mutants fail."""


class Subject:
    """A configuration with its text and mutants."""

    def __init__(self, configuration, tools):
        self.configuration = configuration
        self.tools = tools
        self.limit = 60
        self.cost = None  # the unchanged text's seconds of processor time; None: not measured yet
        self.lock = threading.Lock()
        self.problem = None  # the unchanged text's, "" for none; None: not measured yet
        self.state = tools.state()

    @functools.cached_property
    def text(self):
        return self.configuration.emit(self.tools)

    def has(self, name):
        """Whether the text has this mutant. Parses only a text that has its line."""
        return name[2] in self.text and name in self.mutants

    @functools.cached_property
    def mutants(self):
        return {mutant.name: mutant
                for mutant in find_mutants(self.text, files=self.configuration.files)}

    def run(self, text, folder, variables=(), schedules=None, edited=None):
        """Runs a text: (what caught it or "", message, seconds of processor time). variables: additions to the
        environment; schedules: their number in place of the configuration's; edited: a folder for its compiled
        objects, which other configurations of the same kernel use."""
        with tempfile.TemporaryDirectory(dir=folder) as own:
            source = pathlib.Path(own, "mutant.cu")
            source.write_text(text, encoding="utf-8")
            limit = self.limit
            if schedules == 1 and self.cost:
                limit = min(limit, int(max(LEAST_SECONDS, self.cost)) + 1)
            command = ["/bin/sh", "-c", f'ulimit -t {limit}; exec "$@"', "sh"]
            command += self.configuration.command(self.tools, schedules)
            environment = dict(os.environ, SMELT_EMU_SOURCE=str(source), TMPDIR=own)
            # So that the operator's other kernels are compiled once.
            environment["SMELT_EMU_OBJECTS"] = objects_in(folder)
            if edited:
                environment["SMELT_EMU_EDITED_OBJECTS"] = edited
            environment.update(self.configuration.environment(self.tools, schedules))
            environment.update(variables)
            done, seconds = run_timed(command, environment, own, WALL * limit)
        if self.tools.state() != self.state:
            raise ToolsChanged("the command, the emulator or a program was rebuilt during the run")
        return (*self.configuration.judge(done), seconds)

    def measure(self, folder):
        """Runs the unchanged text, on the first call, and sets the time limit."""
        with self.lock:
            if self.problem is None:
                # The unchanged text: its objects serve other tests and configurations, too.
                caught, words, self.cost = self.run(self.text, folder, edited=objects_in(folder))
                self.limit = int(max(LEAST_SECONDS, SLOWER * (self.cost + COMPILATION))) + 1
                self.problem = f"{self.configuration.name}: {caught}: {words}" if caught else ""
        if self.problem:
            raise UnchangedFails(f"the unchanged kernels fail:\n{self.problem}")


def objects_in(folder):
    """The folder of compiled kernels: the environment's, or one in `folder`."""
    return os.environ.get("SMELT_EMU_OBJECTS") or str(pathlib.Path(folder, "objects"))


def run_timed(command, environment, folder, wall):
    """Runs a command for at most so many seconds, with its output in files of the folder: (a CompletedProcess, the
    processor time of the command and its compilers)."""
    paths = [pathlib.Path(folder, name) for name in ("stdout", "stderr")]
    with open(paths[0], "wb") as out, open(paths[1], "wb") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, env=environment)
        timer = threading.Timer(wall, process.kill)
        timer.start()
        _, status, usage = os.wait4(process.pid, 0)
        timer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in paths]
    return (subprocess.CompletedProcess(command, process.returncode, *texts),
            usage.ru_utime + usage.ru_stime)


class Order:
    """Chooses the configuration that a mutant runs in next: the one that caught most of its runs' mutants per time."""

    def __init__(self):
        self.counts = collections.defaultdict(lambda: [1, 2])  # caught, run

    def note(self, subject, caught):
        self.counts[subject][0] += bool(caught)
        self.counts[subject][1] += 1

    def rank(self, subject):
        """In the given order while a configuration has no results."""
        caught, run = self.counts[subject]
        return 0 if subject.cost is None else -caught / run / (subject.cost + COMPILATION)


def fate(name, subjects, order, folder):
    """Runs a mutant until it is caught: (caught by, configuration, message, seconds). "Caught by" is "" if it
    survives all, STILLBORN if it compiles nowhere."""
    compiled, words, spent = False, "", 0.0
    with tempfile.TemporaryDirectory(dir=folder) as edited:
        for subject in sorted(subjects, key=order.rank):
            if not subject.has(name):
                continue
            subject.measure(folder)
            text = subject.mutants[name].apply(subject.text)
            # What takes long runs under one schedule first.
            for count in (1, None) if subject.cost > LONG else (None,):
                caught, words, seconds = subject.run(text, folder, schedules=count, edited=edited)
                spent += seconds
                if caught:
                    break
            if caught == STILLBORN:
                continue
            order.note(subject, caught)
            if caught:
                return caught, subject.configuration.name, words, spent
            compiled = True
    return "" if compiled else STILLBORN, "", words, spent


def collect(subjects):
    """One mutant of each name, in the configurations' order."""
    found = {}
    for subject in subjects:
        for name, mutant in subject.mutants.items():
            found.setdefault(name, mutant)
    return found


def ticket(name, seed):
    return hashlib.sha256(f"{seed} {name}".encode()).digest()


def draw(names, count, seed):
    """Draws `count` names, in their order. Depends only on the seed and each name: after an edit the sample keeps the
    unchanged mutants, and a smaller sample is part of a larger one."""
    chosen = set(sorted(names, key=lambda name: ticket(name, seed))[:count])
    return [name for name in names if name in chosen]


def run_all(names, subjects, jobs, show, end=float("inf")):
    """fate() of each name, several concurrently; those not begun at the time `end` are omitted."""
    results = {}
    order = Order()

    def one(name):
        return fate(name, subjects, order, folder) if time.monotonic() < end else None

    with tempfile.TemporaryDirectory(prefix="smelt-mutants-") as folder, \
            concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        futures = {pool.submit(one, name): name for name in names}
        try:
            for future in concurrent.futures.as_completed(futures):
                result = future.result()
                if result:
                    results[futures[future]] = result
                    show(futures[future], result)
        except CannotTell:
            pool.shutdown(cancel_futures=True)
            raise
    return results


# ---- the report --------------------------------------------------------------------------------


def place(mutant):
    return f"{mutant.file}:{mutant.line}:{mutant.column} in {mutant.function}"


def survivors_of(results):
    return [name for name, result in results.items() if not result[0]]


def write_json(path, results, mutants):
    document = {
        "mutants": [{
            "file": mutants[n].file, "line": mutants[n].line, "column": mutants[n].column,
            "function": mutants[n].function, "text": mutants[n].line_text,
            "operator": mutants[n].operator, "change": n[3].split(": ", 1)[1],
            "caught_by": r[0], "configuration": r[1], "words": r[2], "seconds": round(r[3], 2),
        } for n, r in results.items()],
    }
    pathlib.Path(path).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def weak_families(again, homes):
    """{family: (survivors, run)} of the families most of whose further mutants survived."""
    counts = collections.defaultdict(lambda: [0, 0])
    for name, result in again.items():
        counts[homes[name]][0] += not result[0]
        counts[homes[name]][1] += result[0] != STILLBORN
    return {family: (alive, run) for family, (alive, run) in counts.items() if 2 * alive > run}


def report(results, mutants, known):
    alive = survivors_of(results)
    caught_by = collections.Counter(caught or "SURVIVED" for caught, *_ in results.values())
    print(", ".join(f"{caught}: {count}" for caught, count in caught_by.most_common()))
    for name in alive:
        if name not in known:
            print(f"\nsurvived: {place(mutants[name])}\n  {mutants[name].line_text}\n  {name[3]}")
    caught_now = [n for n, r in results.items() if n in known and r[0] not in ("", STILLBORN)]
    for name in caught_now:
        print(f"\nknown as a survivor, yet {results[name][0]} ({results[name][1]}): "
              f"{place(mutants[name])}: {name[3]}")
    born = [r for r in results.values() if r[0] != STILLBORN]
    new = [name for name in alive if name not in known]
    print(f"\n{len(born)} mutants: {len(born) - len(alive)} caught, {len(alive) - len(new)} known "
          f"survivors, {len(new)} new survivors; {len(results) - len(born)} more did not compile")
    return new


def gone_survivors(known, subjects):
    """Keys that match no change of any text."""
    keys = {survivors.key_of(mutant.name) for subject in subjects for mutant in
            find_all(subject.text, "", subject.configuration.files)}
    return [key for key in known.found if key not in keys]


def accept(results, known, gone, why):
    """survivors.txt with these results' survivors added, and without caught or vanished mutants."""
    found = {key: words for key, words in known.found.items() if key not in gone}
    for name, result in results.items():
        if not result[0]:
            found.setdefault(survivors.key_of(name), why)
        elif result[0] != STILLBORN:
            found.pop(survivors.key_of(name), None)
    return survivors.write(found)


# ---- the command -------------------------------------------------------------------------------


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    configurations.add_tools(parser)
    parser.add_argument("--sample", type=int, default=0, help="this many mutants, drawn by --seed")
    parser.add_argument("--full", action="store_true", help=f"{FULL} of each settled family")
    parser.add_argument("--all", action="store_true", help="all mutants of all families, despite --sample and --full")
    parser.add_argument("--changed-since", metavar="REV",
                        help="the mutants of lines of templates that differ from this commit")
    parser.add_argument("--known", action="store_true", help="only the known survivors")
    parser.add_argument("--accept", choices=survivors.REASONS, metavar="REASON",
                        help="write survivors.txt anew: one of " + ", ".join(survivors.REASONS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shard", metavar="I/N", help="part I of N of the mutants, from 0")
    parser.add_argument("--seconds", type=float, help="begin no mutant later than this")
    parser.add_argument("--only", help="only mutants whose file, function, line or change contains this text")
    parser.add_argument("--family", action="append", help="a family, or a prefix of several; may be repeated")
    parser.add_argument("--configuration", action="append", help="only this configuration; may be repeated")
    parser.add_argument("--json", help="write every mutant's result to this file")
    parser.add_argument("--list", action="store_true", help="print the mutants and run none")
    return parser.parse_args()


HUNK = re.compile(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@")


def changed_lines(diff):
    """{(file, line)} that a `git diff -U0` adds or changes; for micro-kernels, the template's name."""
    found, file = set(), ""
    for line in diff.splitlines():
        if line.startswith("+++ "):
            file = re.sub(r"^b/(tests/emu/micro/)?", lambda m: "templates/micro/" if m[1] else "",
                          line[4:].strip())
        elif HUNK.match(line):
            first, count = HUNK.match(line).groups()
            found |= {(file, int(first) + i) for i in range(int(count or 1))}
    return found


@functools.lru_cache(maxsize=None)
def changed_since(revision):
    root = pathlib.Path(__file__).resolve().parents[3]
    done = subprocess.run(["git", "-C", root, "diff", "-U0", revision, "--", "*.cu", "*.cuh"],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotTell(f"git diff {revision}: {done.stderr.strip()}")
    return changed_lines(done.stdout)


def choose(homes, known, mutants, arguments):
    """The names to run. homes: {name: family}."""
    names = [n for n in homes if (n in known) == arguments.known]
    if arguments.only:
        names = [n for n in names if arguments.only in " | ".join(n)]
    if arguments.changed_since:
        lines = changed_since(arguments.changed_since)
        names = [n for n in names if (mutants[n].file, mutants[n].line) in lines]
    if drawn(arguments):
        of_each = FULL if arguments.full else 1
        names = [n for family in dict.fromkeys(homes.values())
                 for n in draw([n for n in names if homes[n] == family], of_each, arguments.seed)]
    index, count = map(int, (arguments.shard or "0/1").split("/"))
    return names[index::count]


def draw_again(results, homes, known, seed):
    """For each new survivor, RETRIES more mutants of its family, drawn with the seed."""
    counts = collections.Counter(homes[name] for name in survivors_of(results))
    return [name for family, count in counts.items() for name in draw(
        [n for n, home in homes.items() if home == family and n not in results and n not in known],
        RETRIES * count, seed)]


def draw_subjects(subjects, families, count, seed):
    """For a sample of `count` mutants, which parses no text of which it draws none: a configuration of each of `count`
    families."""
    own = collections.defaultdict(list)
    for subject in subjects:
        own[subject.configuration.family].append(subject)
    chosen = draw([family for family in families if family in own], count, seed)
    return [min(own[family], key=lambda s: ticket(s.configuration.name, seed)) for family in chosen]


def drawn(arguments):
    """Whether a sample is run, over all families or of each."""
    return (arguments.sample or arguments.full) and not arguments.all


def homes_of(subjects):
    """{name: the first family that has it}, in the order of the configurations."""
    homes = {}
    for subject in subjects:
        for name in subject.mutants:
            homes.setdefault(name, subject.configuration.family)
    return homes


def subjects_of(families, tools, arguments):
    """The configurations that can run and have a requested mutant."""
    every = [Subject(c, tools) for family in families for c in family.configurations if c.runs_with(tools)]
    if arguments.changed_since:
        files = {f'"{file}"' for file, _ in changed_since(arguments.changed_since)}
        every = [s for s in every if any(file in s.text for file in files)]
    return every


def finish(arguments, results, again, homes, mutants, known, every, complete):
    """Prints the report; returns the exit status."""
    new = report({**results, **again}, mutants, known)
    weak = weak_families(again, homes)
    for family, (alive, count) in weak.items():
        print(f"{family}: {alive} of {count} more mutants survive: its tests are weak")
    gone = gone_survivors(known, every) if complete else []
    if gone:
        print(f"{len(gone)} known survivors no longer exist (--accept removes them)")
    if arguments.accept:
        survivors.FILE.write_text(accept(results, known, gone, arguments.accept), encoding="utf-8")
    return int(bool(weak if arguments.sample and drawn(arguments) else new and not arguments.accept))


def run(arguments, tools, families):
    """Returns the exit status."""
    begin = time.monotonic()
    asked = tuple(arguments.family or [""])
    left_out = {f.name: f.unsettled for f in families if f.unsettled and drawn(arguments) and not arguments.family}
    named = [f.name for f in families if f.name.startswith(asked) and f.name not in left_out]
    every = subjects_of(families, tools, arguments)
    sample = arguments.sample and drawn(arguments)
    parsed = draw_subjects(every, named, arguments.sample, arguments.seed) if sample else every
    # A mutant of several families counts for the first, but also runs in the others' configurations.
    homes = {name: family for name, family in homes_of(parsed).items() if family in named}
    subjects = [s for s in every if s.configuration.name in (arguments.configuration or [s.configuration.name]) and
                (sample or not homes.keys().isdisjoint(s.mutants))]
    mutants = {name: mutant for name, mutant in collect([s for s in subjects if s in parsed]).items() if name in homes}
    homes = {name: homes[name] for name in mutants}
    known = survivors.Known()
    chosen = choose(homes, known, mutants, arguments)
    if arguments.list:
        for name in chosen:
            print(f"{place(mutants[name])}: {name[3]}{': ' + known.why(name) if name in known else ''}")
        return 0
    print(f"{len(mutants)} mutants in {len(subjects)} configurations; {len(chosen)} run, "
          f"seed {arguments.seed}, {arguments.jobs} at a time", flush=True)
    shown = {}

    def show(name, result):
        shown[name] = result
        if arguments.json:
            write_json(arguments.json, shown, mutants)
        if sys.stderr.isatty() or len(shown) % 100 == 0 or (not result[0] and name not in known):
            print(f"[{len(shown)}/{len(chosen)}] {place(mutants[name])}: {name[3]}: "
                  f"{result[0] or 'not caught'}", file=sys.stderr, flush=True)

    def run_some(names):
        # With a time limit in the drawn order, so that each family has its share of those that run.
        in_turn = sorted(names, key=lambda n: ticket(n, arguments.seed)) if arguments.seconds else names
        return run_all(in_turn, subjects, arguments.jobs, show, begin + (arguments.seconds or float("inf")))

    results = run_some(chosen)
    more = draw_again(results, homes, known, arguments.seed) if sample else []
    again = run_some(more)
    status = finish(arguments, results, again, homes, mutants, known, every,
                    not sample and not arguments.changed_since)
    if len(shown) < len(chosen) + len(more):
        print(f"{len(chosen) + len(more) - len(shown)} were not run: out of time")
    for family, why in left_out.items():
        print(f"omitted, not settled yet: {family}: {why}")
    print(f"{time.monotonic() - begin:.0f} s")
    return status


def main():
    arguments = parse_arguments()
    tools = configurations.tools_of(arguments)
    families = configurations.all_families(tools)
    configured = {c.name for family in families for c in family.configurations}
    unknown = [n for n in arguments.family or [] if not any(f.name.startswith(n) for f in families)] + \
        [n for n in arguments.configuration or [] if n not in configured]
    if unknown:  # an empty run must not succeed
        print(f"no family or configuration: {', '.join(unknown)}")
        return 2
    try:
        return run(arguments, tools, families)
    except CannotTell as failure:
        print(failure)
        return 2


if __name__ == "__main__":
    sys.exit(main())
