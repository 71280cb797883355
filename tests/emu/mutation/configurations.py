"""Configurations in which mutants run: small kernels and problems that together are sensitive to every line.

A file of families/ defines a family: the configurations of one template (the file's stem) or program. It sets
CONFIGURATIONS, in an order in which the first catches most mutants; FILES: prefixes of the names of the mutated files,
unless a configuration has its own; UNSETTLED: why the samples omit the family, if its survivors have not all been
judged; COVERAGE: the names of a few configurations that reach every statement: coverage.py runs them first, and fails if
they do not. A new family is a new file; no other file lists families. Kernels without a file have the default: `smelt check` of their operator's example
with its standard problems, with gaps in every tensor, and with far strides.
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
        """Changes if any of them, or a library in the command's folder, is rebuilt."""
        libraries = sorted(pathlib.Path(self.smelt).resolve().parent.glob("lib*.so*"))
        paths = [self.smelt, self.emulator, *self.programs.values(), *libraries]
        found = [os.stat(path) if os.path.exists(path) else None for path in paths if path]
        return [s and (s.st_ino, s.st_size, s.st_mtime_ns) for s in found]


def ended_early(done):
    """(what caught it, message) of a process that was killed by a signal, else None."""
    if -done.returncode in (signal.SIGKILL, signal.SIGXCPU):
        return "time", "more processor time than the limit"
    if done.returncode < 0:
        return "crash", f"signal {-done.returncode}"
    return None


def judge_words(words):
    """Classifies a failure without a report by the whole output, since a compiler's messages are long and the status
    precedes them."""
    if "SMELT_ERROR_COMPILE" in words or "CUDA_ERROR_INVALID_IMAGE" in words:
        return STILLBORN, words[-1000:]
    return ("refused" if "SMELT_ERROR" in words else "wrong result"), words[-1000:]


def output(command, statuses=(0,)):
    """What a command prints that needs neither the cache nor, since nothing is compiled, NVRTC."""
    environment = dict(os.environ, SMELT_CACHE_DISABLE="1", SMELT_NVRTC="/nonexistent")
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode not in statuses:
        raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
    return done.stdout


@dataclass(frozen=True)
class Check:
    """`smelt check --emulate` of an operator; `kernel` is its mutated kernel."""

    name: str
    operator: str
    kernel: str
    options: str = ""
    arch: str = "sm_90a"
    schedules: int = 4
    files: tuple = ()  # prefixes of the mutated files' names; (): the family's
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
        """(what caught it or "", message)."""
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
    """A test program that runs on the emulator; `emitted_by` prints the mutated kernel, and `report` matches the
    emulator's reports in the output: (kind, message)."""

    name: str
    program: str
    arguments: tuple
    emitted_by: tuple  # the first word is a tool's name
    report: str
    variables: dict = dataclasses.field(default_factory=dict)  # more of its environment
    files: tuple = ()
    family: str = ""
    schedules: int = None  # 1: it always runs under one

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
    """The module in a file of any name; it can import modules of its folder."""
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
    unsettled: str  # why samples omit it; "": they do not
    coverage: tuple


def as_tuple(files):
    return (files,) if isinstance(files, str) else tuple(files)


def families(folder=FOLDER):
    """The families of all files with CONFIGURATIONS, by name."""
    found = []
    for path in sorted(folder.glob("*.py")):
        module = load(path)
        if not hasattr(module, "CONFIGURATIONS"):
            continue
        files = getattr(module, "FILES", "")
        own = tuple(dataclasses.replace(c, family=path.stem, files=as_tuple(c.files or files))
                    for c in module.CONFIGURATIONS)
        found.append(Family(path.stem, own, getattr(module, "UNSETTLED", ""),
                            getattr(module, "COVERAGE", ())))
    return found


def default_family(name, operator, kernel):
    common = {"files": (f"templates/{name}.",), "family": name, "schedules": 1}
    checks = tuple(Check(name + ending, operator, kernel, options, **common)
                   for ending, options in (("", "--strided"), ("-kinds", ""), ("-far", "--far")))
    return Family(name, checks, "", tuple(check.name for check in checks))


def all_families(tools, folder=FOLDER):
    """The files' families, and the default of every other kernel of an operator's example."""
    found = families(folder)
    files = [file for family in found for c in family.configurations for file in c.files]
    listed = json.loads(output([tools.smelt, "list", "--json"]))["families"]
    for example in (family["example"] for family in listed if family["kind"] == "operator"):
        show = [tools.smelt, "show", example, "--arch", Check.arch, "--json"]
        shown = json.loads(output(show, statuses=(0, 3)))  # 3: the plans only
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
                        help="a test program; configurations whose program is not given are skipped")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))


def tools_of(arguments):
    return Tools(arguments.smelt, arguments.emulator,
                 dict(program.split("=", 1) for program in arguments.program))
