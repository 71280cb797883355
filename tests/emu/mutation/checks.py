"""The checks of checks.txt, at least one of which must fail for each mutant: reading and running them, and the lines of the
templates that each of them compiles."""

import functools
import itertools
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import tempfile
import threading
from dataclasses import dataclass

FOLDER = pathlib.Path(__file__).resolve().parent
TEMPLATES = FOLDER.parents[2] / "templates"
REPORT = re.compile(r"^FAILED [^\n]*: (forbidden|bounds|race|uninitialized|deadlock): (.*)", re.MULTILINE)
MARKER = re.compile(r'#line (\d+) "templates/([^"]*)"')
KERNEL = re.compile(r"^(?=/\*\n \* Written by smelt)", re.MULTILINE)
PROGRAMS = {"gpu_suite": "tests/gpu/gpu_suite", "emu_chunked": "tests/emu/emu_chunked"}
STILLBORN = "does not compile"


@dataclass(frozen=True)
class Check:
    """A line of checks.txt."""

    files: tuple  # the section's
    subject: str  # a spec, or a program's name
    options: tuple
    variables: tuple = ()

    def __str__(self):
        return shlex.join([f"{name}={value}" for name, value in self.variables] + [self.subject, *self.options])

    @property
    def program(self):
        return PROGRAMS.get(self.subject)


def read_checks(text):
    """The checks of a text in the form that the head of checks.txt describes."""
    files, prefix, common, checks = (), "", [], []
    for line in re.sub(r"\n +", " ", text).splitlines():
        if line.startswith("["):
            files, prefix, common = tuple(line.strip("[]").split()), "", []
        elif line.startswith("all "):
            words = line.split()[1:]
            prefix, common = ("", words) if words[0].startswith("-") else (words[0], words[1:])
        elif line and not line.startswith("#"):
            words = line.split()
            variables = [word.split("=", 1) for word in words if word.startswith("SMELT_")]
            subject, *options = words[len(variables):]
            if ":" not in subject and subject not in PROGRAMS:
                subject, options = prefix + subject, common + options
            checks.append(Check(files, subject, tuple(options), tuple(map(tuple, variables))))
    return checks


class Runner:
    """Runs checks with the programs of a build folder, under templates that replace the built-in ones."""

    def __init__(self, build, folder):
        self.build = pathlib.Path(build).resolve()
        self.emulator = self.build / "src/emu/libsmelt_emu.so"
        self.folder = folder  # for temporary files
        self.environment = dict(os.environ, SMELT_CACHE_DISABLE="1", SMELT_EMULATOR=str(self.emulator), SMELT_EMU_LAZY="1")
        self.environment.setdefault("SMELT_EMU_OBJECTS", str(pathlib.Path(folder, "objects")))

    def emit(self, check, templates=None):
        """The sources of a check's kernels."""
        arch = check.options[check.options.index("--arch") + 1] if "--arch" in check.options else "sm_90a"
        command = [self.build / "smelt", "emit", check.subject, "--arch", arch]
        environment = dict(os.environ, SMELT_CACHE_DISABLE="1", **({"SMELT_TEMPLATES": templates} if templates else {}))
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        return KERNEL.split(done.stdout)[1:] if done.returncode == 0 else []

    @functools.lru_cache(maxsize=None)
    def lines(self, check):
        """{(file, line)} of the templates in a check's kernels; empty for a program, whose kernels are not known."""
        found = set()
        for text in [] if check.program else self.emit(check):
            file, number = "", 0
            for line in text.splitlines():
                marker = MARKER.match(line)
                if marker:
                    file, number = marker[2], int(marker[1])
                else:
                    found.add((file, number))
                    number += 1
        return found

    def has(self, check, file, line):
        return bool(check.program) or (file, line) in self.lines(check)

    def run(self, check, templates=None, schedules=None, limit=120, variables=()):
        """(failure or "", message, seconds of processor time). limit: of processor time; the limit of wall-clock time is twenty
        times as long, since other checks run in parallel."""
        with tempfile.TemporaryDirectory(dir=self.folder) as own:
            environment = dict(self.environment, TMPDIR=own, **dict(check.variables), **dict(variables))
            if templates:
                environment["SMELT_TEMPLATES"] = str(templates)
            if check.program:
                command = [self.build / check.program, *check.options]
                environment.update(SMELT_CUDA=str(self.emulator), SMELT_NVRTC=str(self.emulator))
            else:
                command = [self.build / "smelt", "check", "--emulate", "--json", "--arch", "sm_90a", check.subject,
                           *check.options, *(["--schedules", str(schedules)] if schedules else [])]
            command = ["/bin/sh", "-c", f'ulimit -t {int(limit)}; exec "$@"', "sh", *map(str, command)]
            with open(f"{own}/out", "w+b") as out, subprocess.Popen(
                    command, stdout=out, stderr=subprocess.STDOUT, env=environment, cwd=own) as process:
                timer = threading.Timer(20 * limit, process.kill)
                timer.start()
                _, status, usage = os.wait4(process.pid, 0)
                timer.cancel()
                process.returncode = os.waitstatus_to_exitcode(status)
                out.seek(0)
                words = out.read().decode(errors="replace")
        return (*judge(process.returncode, words), usage.ru_utime + usage.ru_stime)

    def same_code(self, check, templates):
        """Whether the compiler generates the same code for a check's kernels from these templates."""
        pairs = zip(self.emit(check), self.emit(check, templates))
        return not check.program and all(one == other or self.assembly(one) == self.assembly(other) for one, other in pairs)

    @functools.lru_cache(maxsize=64)
    def assembly(self, text):
        command = [*os.environ.get("CC", "cc").split(), "-xc", "-std=gnu11", "-O2", "-w", "-S", "-o", "-", "-include",
                   TEMPLATES.parent / "src/emu/device.h", "-I", TEMPLATES.parent / "src", "-"]
        done = subprocess.run(command, input=opaque(text), capture_output=True, text=True, check=False)
        return done.stdout if done.returncode == 0 else object()  # code that does not compile equals no other


def opaque(text):
    """A kernel's source for a C compiler: the functions of templates/ptx are only declared."""
    text = text.replace("extern __shared__ __align__(1024) unsigned char arena[];", "")
    pieces = re.split('^(?=#line )', text, flags=re.MULTILINE)
    parts = [(file, "".join(own)) for file, own in itertools.groupby(pieces, lambda piece: piece.split("\n")[0].split()[-1:])]
    return "".join(re.sub(r"^DEVICE ([^{;]*?\)) \{.*?^\}", r"\1;", part, flags=re.MULTILINE | re.DOTALL)
                   if file and file[0].startswith('"templates/ptx/') else part for file, part in parts)


def judge(status, words):
    """(failure or "", message) of a run."""
    if -status in (signal.SIGKILL, signal.SIGXCPU):
        return "time", "more processor time than the limit"
    if status < 0:
        return "crash", f"signal {-status}"
    if status == 0 and not re.search(r"^0 cases\b", words, re.MULTILINE):
        return "", ""
    if "SMELT_ERROR_COMPILE" in words or "CUDA_ERROR_INVALID_IMAGE" in words:
        return STILLBORN, words[-1000:]
    try:
        for result in json.loads(words)["results"]:
            for report in [] if result["passed"] else result.get("reports", []):
                return report["kind"], report["text"]
    except (json.JSONDecodeError, KeyError):
        pass
    report = REPORT.search(words)
    return report.groups() if report else ("refused" if "SMELT_ERROR" in words else "wrong result", words[-1000:])
