"""What a mutant is run in: small kernels and problems that together are sensitive to every line.

A file of families/ holds those of one template (its stem) or program, in CONFIGURATIONS, ordered so
that most mutants are caught by the first; FILES there: beginnings of the names of the files that are
mutated in them, unless a configuration names its own; SAMPLE: how many of the family's mutants a
full run tries in place of FULL (mutate.py); UNSETTLED: why the sample of `make test` leaves the
family out, where its survivors were not yet settled one by one; COVERAGE: the names of the few that reach every
statement, which coverage.py runs first, and fails without. A new family is a new file: nothing here names one.
A family of kernels that no file is about has the default: `smelt check` of its operator's example, on the problems that
it tries by itself, with gaps in every tensor, and with far strides.
"""

import dataclasses
import importlib.util
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
from dataclasses import dataclass

FOLDER = pathlib.Path(__file__).resolve().parent / "families"

STILLBORN = "does not compile"


@dataclass(frozen=True)
class Tools:
    smelt: str
    emulator: str = None  # libsmelt_emu.so; the programs need it, smelt finds it
    programs: dict = dataclasses.field(default_factory=dict)  # name: path

    def path(self, name):
        return self.smelt if name == "smelt" else self.programs.get(name)

    def state(self):
        """Another one when any of them, or a library beside the command, was built anew."""
        libraries = sorted(pathlib.Path(self.smelt).resolve().parent.glob("lib*.so*"))
        paths = [self.smelt, self.emulator, *self.programs.values(), *libraries]
        found = [os.stat(path) if os.path.exists(path) else None for path in paths if path]
        return [s and (s.st_ino, s.st_size, s.st_mtime_ns) for s in found]


def ended_early(done):
    """(what caught it, in words) of a process that a signal ended, else None."""
    if -done.returncode in (signal.SIGKILL, signal.SIGXCPU):
        return "time", "more processor time than the limit"
    if done.returncode < 0:
        return "crash", f"signal {-done.returncode}"
    return None


def judge_words(words):
    """What a failure without a report is. words: all of them, since a compiler's are long and what
    they are stands ahead of them."""
    if "SMELT_ERROR_COMPILE" in words or "CUDA_ERROR_INVALID_IMAGE" in words:
        return STILLBORN, words[-1000:]
    return ("refused" if "SMELT_ERROR" in words else "wrong result"), words[-1000:]


def output(command):
    environment = dict(os.environ, SMELT_CACHE_DISABLE="1")  # what is emitted needs no cache
    return subprocess.run(command, capture_output=True, text=True, check=True,
                          env=environment).stdout


@dataclass(frozen=True)
class Check:
    """`smelt check --emulate` of an operator; `kernel` is the one of its kernels that is mutated."""

    name: str
    operator: str
    kernel: str
    options: str = ""
    arch: str = "sm_90a"
    schedules: int = 4
    files: tuple = ()  # beginnings of the names of the files that are mutated; (): the family's
    family: str = ""
    variables: dict = dataclasses.field(default_factory=dict)  # more of its environment

    def runs_with(self, tools):
        return True

    def emit(self, tools):
        return output([tools.smelt, "emit", self.kernel, "--arch", self.arch])

    def command(self, tools, schedules=None):
        return [tools.smelt, "check", self.operator, "--emulate", "--arch", self.arch, "--json",
                "--schedules", str(schedules or self.schedules), *self.options.split()]

    def environment(self, tools, schedules=None):
        emulator = {"SMELT_EMULATOR": tools.emulator} if tools.emulator else {}
        return {**emulator, **self.variables}

    def judge(self, done):
        """(what caught it or "", in words)."""
        if done.returncode == 0:
            return "", ""
        if ended_early(done):
            return ended_early(done)
        try:
            failed = [r for r in json.loads(done.stdout)["results"] if not r["passed"]]
        except (json.JSONDecodeError, KeyError):
            return "refused", done.stderr[-1000:]
        for result in failed:
            for report in result.get("reports", []):
                return report["kind"], report["text"]
        return judge_words(failed[0]["error"] if failed else done.stderr)


@dataclass(frozen=True)
class Program:
    """A test program that runs on the emulator; `emitted_by` prints the kernel that is mutated, and
    `report` matches what it prints of the emulator's reports: (kind, words)."""

    name: str
    program: str
    arguments: tuple
    emitted_by: tuple  # its first is a tool's name
    report: str
    variables: dict = dataclasses.field(default_factory=dict)  # more of its environment
    files: tuple = ()
    family: str = ""
    schedules: int = None  # 1: it runs under one, and cannot be asked for fewer

    def runs_with(self, tools):
        return tools.path(self.program) and tools.path(self.emitted_by[0])

    def emit(self, tools):
        return output([tools.path(self.emitted_by[0]), *self.emitted_by[1:]])

    def command(self, tools, schedules=None):
        return [tools.path(self.program), *self.arguments]

    def environment(self, tools, schedules=None):
        fewer = {"SMELT_TEST_SCHEDULES": str(schedules)} if schedules else {}
        return {"SMELT_CUDA": tools.emulator, "SMELT_NVRTC": tools.emulator,
                "SMELT_CACHE_DISABLE": "1", **self.variables, **fewer}

    def judge(self, done):
        if done.returncode == 0:
            return "", ""
        if ended_early(done):
            return ended_early(done)
        words = done.stdout + done.stderr
        if re.search(r"^0 cases\b", words, re.MULTILINE):
            return "no case", f"none of the cases of {self.program} is named by {self.arguments}"
        reported = re.search(self.report, words, re.MULTILINE)
        return reported.groups() if reported else judge_words(words)


# ---- the families ------------------------------------------------------------------------------


def load(path):
    """The module of a file, whatever its name; its neighbours can be imported."""
    if str(FOLDER) not in sys.path:
        sys.path.append(str(FOLDER))
    name = re.sub(r"\W", "_", path.stem)
    specification = importlib.util.spec_from_file_location("family_" + name, path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@dataclass(frozen=True)
class Family:
    name: str
    configurations: tuple
    sample: int  # of its mutants in a full run; None: FULL of mutate.py
    unsettled: str  # why the sample has none of it; "": it has
    coverage: tuple


def as_tuple(files):
    return (files,) if isinstance(files, str) else tuple(files)


def families(folder=FOLDER):
    """Every file's that has CONFIGURATIONS, by name."""
    found = []
    for path in sorted(folder.glob("*.py")):
        module = load(path)
        if not hasattr(module, "CONFIGURATIONS"):
            continue
        files = getattr(module, "FILES", "")
        own = tuple(dataclasses.replace(c, family=path.stem, files=as_tuple(c.files or files))
                    for c in module.CONFIGURATIONS)
        found.append(Family(path.stem, own, getattr(module, "SAMPLE", None),
                            getattr(module, "UNSETTLED", ""), getattr(module, "COVERAGE", ())))
    return found


def default_family(name, operator, kernel):
    common = {"files": (f"templates/{name}.",), "family": name, "schedules": 1}
    checks = tuple(Check(name + ending, operator, kernel, options, **common)
                   for ending, options in (("", "--strided"), ("-kinds", ""), ("-far", "--far")))
    return Family(name, checks, None, "", tuple(check.name for check in checks))


def all_families(tools, folder=FOLDER):
    """Those of files, and the default of every other family of kernels that an operator's example has."""
    found = families(folder)
    files = [file for family in found for c in family.configurations for file in c.files]
    listed = json.loads(output([tools.smelt, "list", "--json"]))["families"]
    for example in (family["example"] for family in listed if family["kind"] == "operator"):
        shown = json.loads(output([tools.smelt, "show", example, "--arch", Check.arch, "--json"]))
        for kernel in (shown.get("kernels") or [shown]):
            spec = kernel["plan"]["spec"]
            name = spec.split(":")[0]
            if not any(file.startswith(f"templates/{name}") for file in files):
                found.append(default_family(name, example, spec))
                files.append(f"templates/{name}")
    return found


# ---- the tools on the command line -------------------------------------------------------------


def add_tools(parser):
    parser.add_argument("--smelt", required=True, help="the command")
    parser.add_argument("--emulator", help="libsmelt_emu.so, for the programs")
    parser.add_argument("--program", action="append", default=[], metavar="NAME=PATH",
                        help="a test program; what needs one that is not given is left out")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))


def tools_of(arguments):
    return Tools(arguments.smelt, arguments.emulator,
                 dict(program.split("=", 1) for program in arguments.program))
