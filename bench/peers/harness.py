"""Shared by all benchmarks: options, alternating timing of contenders, checks, tables."""

import argparse
import concurrent.futures
import importlib
import json
import math
import os
import pathlib
import random
import statistics
import sys
import time
import types

try:
    import torch
except ImportError:  # --help and --list work without it
    torch = None

ROOT = pathlib.Path(__file__).resolve().parents[2]
EMULATED = "SMELT_CUDA" in os.environ
DEVICE = "cpu" if EMULATED else "cuda"
WARM_UPS = 0 if EMULATED else 3
USAGE, NO_GPU = 2, 3  # exit statuses


class Row:
    """A shape, read from its name. A benchmark is a module with a subclass named Row."""

    SETS = {}  # {name: names of rows, separated by commas}; the first is the default of --rows
    BOUNDS = {}  # {check: upper limit}; other checks are only shown
    which = "forward"
    group = None  # rows with a separate mean of ratios in the summary
    flops = bytes = 0  # per launch
    deterministic = False  # the operator has this key
    extra = ""  # keys that the row adds to each contender's spec

    @staticmethod
    def add_options(parser):
        """The benchmark's own."""

    def make(self, options):
        """Makes the inputs."""

    def spec(self):
        raise NotImplementedError

    def arguments(self):
        """{field: tensor, number or None} of a call of the operator, without its outputs."""
        raise NotImplementedError

    def outputs(self):
        """{field: tensor} new tensors for each contender, filled with NaN or -2."""
        raise NotImplementedError

    def peers(self, options):
        """{name: function that returns (run, results)}: `run` launches once, `results` as `outputs`."""
        return {}

    def check(self, contenders, options):
        """{contender: {check: number}}, once each contender has run."""
        return {}

    def operators(self, options):
        """{name: (library, spec)} of smelt's builds and modes."""
        made = {}
        for library in options.libraries:
            for knobs in options.knobs or [""]:
                for mode in ["", "deterministic=1"] if options.deterministic else [""]:
                    build = library.name if len(options.libraries) > 1 else ""
                    name = " ".join(word for word in ("smelt", build, knobs, mode) if word)
                    keys = [word for word in (self.spec(), self.extra, knobs, mode) if word]
                    made[name] = library, ",".join(keys)
        return made

    def contenders(self, options):
        """{name: function that makes the contender}; smelt's first."""
        made = {
            name: lambda name=name, each=each: self.smelt(name, *each) for name, each in self.operators(options).items()
        }
        if not options.smelt_only:
            for name, function in self.peers(options).items():
                made[name] = lambda name=name, function=function: Contender(name, *function())
        return made

    def smelt(self, name, library, spec=""):
        from smelt_library import Call

        results = self.outputs()
        call = Call(library, spec or self.spec(), self.which, {**self.arguments(), **results})
        contender = Contender(name, call.run, results)
        contender.repeats = "deterministic=1" in spec
        contender.workspace_bytes = call.workspace_bytes
        return contender


class Contender:
    def __init__(self, name, run, results):
        self.name, self.run, self.results = name, run, results
        self.repeats = False  # each run must give the same bits

    def changes(self):
        """The number of its results that differ after another run."""
        before = {name: tensor.clone() for name, tensor in self.results.items()}
        self.run()
        return sum(
            not torch.equal(tensor.view(torch.uint8), before[name].view(torch.uint8))
            for name, tensor in self.results.items()
        )


# ---- timing -------------------------------------------------------------------------------------


def memory(contender):
    """The peak memory of a run in addition to what is held, in MB; it clears the results."""
    if EMULATED:
        return 0.0
    contender.results.clear()
    torch.cuda.synchronize()
    held = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    contender.run()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - held) / 1e6


class HostEvent:
    """An event for machines without a GPU."""

    def record(self):
        self.at = time.perf_counter()

    def elapsed_time(self, end):
        return (end.at - self.at) * 1e3


def event():
    return HostEvent() if EMULATED else torch.cuda.Event(enable_timing=True)


def synchronize():
    if not EMULATED:
        torch.cuda.synchronize()


def time_in_turn(contenders, rounds, rest=0.0):
    """{contender: milliseconds of each launch}. In every round each contender runs once, in random order; the host does
    not wait in between, except for `rest` milliseconds of idle time."""
    for contender in contenders * WARM_UPS:
        contender.run()
    events = {contender.name: [] for contender in contenders}
    for _ in range(rounds):
        for contender in random.sample(contenders, len(contenders)):
            begin, end = event(), event()
            begin.record()
            contender.run()
            end.record()
            events[contender.name].append((begin, end))
            if rest:
                synchronize()
                time.sleep(rest / 1e3)
    synchronize()
    return {name: [a.elapsed_time(b) for a, b in pairs] for name, pairs in events.items()}


# ---- a row --------------------------------------------------------------------------------------


def complain(what, error):
    print(f"# {what}: {type(error).__name__}: {str(error)[:1000]}", file=sys.stderr, flush=True)


def reference(name="_reference"):
    """The package's references in PyTorch, loaded from their files, since the package may not be installed."""
    package = sys.modules.setdefault("references", types.ModuleType("references"))
    package.__path__ = [str(ROOT / "python" / "smelt_kernels")]
    return importlib.import_module(f"references.{name}")


def check_gpu():
    """Ends the program if an illegal access made the GPU unusable for this process."""
    try:
        synchronize()
    except Exception as error:  # pylint: disable=broad-except
        complain("the GPU is gone", error)
        raise SystemExit(NO_GPU) from None


def run_once(row, options):
    """The contenders that ran, smelt's first, and the names of the failed ones."""
    found, failed = [], []
    for name, make in row.contenders(options).items():
        try:
            contender = make()
            contender.run()
            synchronize()
            found.append(contender)
        except Exception as error:  # pylint: disable=broad-except
            complain(f"{row.name}: {name}", error)
            failed.append(name)
            check_gpu()
    return sorted(found, key=lambda each: not each.name.startswith("smelt")), failed


def is_wrong(row, checks):
    """Written so that NaN fails."""
    bounds = {**row.BOUNDS, "changed results": 0}
    return any(
        not value <= bounds[check] for each in checks.values() for check, value in each.items() if check in bounds
    )


def measure(row, options, rest):
    """One line of the report, as a dictionary."""
    torch.manual_seed(options.seed)
    random.seed(options.seed)
    row.make(options)
    contenders, failed = run_once(row, options)
    checks = row.check(contenders, options) if contenders else {}
    for contender in contenders:
        if contender.repeats:
            checks.setdefault(contender.name, {})["changed results"] = contender.changes()
    times = time_in_turn(contenders, options.rounds, rest)
    medians = {name: statistics.median(each) for name, each in times.items()}
    result = {"shape": row.name, "ms": {name: round(ms, 4) for name, ms in medians.items()}}
    result["least"] = {name: round(min(each), 4) for name, each in times.items()}
    for unit, amount in (("TFLOP/s", row.flops), ("TB/s", row.bytes)):
        if amount:
            result[unit] = {name: round(amount / ms / 1e9, 2) for name, ms in medians.items()}
    result.update(checks=checks, wrong=is_wrong(row, checks), failed=failed, rounds=options.rounds)
    return {**result, "rest": rest} if rest else result


def measure_rows(rows, options):
    """Prints each result at once as a line of JSON, and all of them as a table. The exit status."""
    results, groups = [], {}
    output = open(options.json, "w", encoding="utf-8") if options.json else sys.stdout
    try:
        for row in rows:
            for rest in options.rest:
                try:
                    result = measure(row, options, rest)
                except Exception as error:  # pylint: disable=broad-except
                    complain(row.name, error)
                    check_gpu()
                    result = {"shape": row.name, "ms": {}, "failed": ["all"], "wrong": False}
                result["shape"] += f" rest {rest:g}" if rest else ""
                groups[result["shape"]] = row.group
                results.append(result)
                print(json.dumps(result), file=output, flush=True)
            vars(row).clear()  # its tensors
            if not EMULATED:
                torch.cuda.empty_cache()
    finally:
        print_table(results)
        print_summary(results, groups)
    return int(any(result["failed"] or result["wrong"] for result in results))


# ---- tables -------------------------------------------------------------------------------------


def names_of(results):
    return list({name: None for result in results for name in result["ms"]})


def print_table(results):
    """Each contender's median, then its ratio to the first one's."""
    names = names_of(results)
    base = names[0] if names else ""
    heads = ["shape", f"{base} ms", "TFLOP/s"]
    for name in names[1:]:
        heads += [f"{name} ms", f"{name} / {base}"]
    print("\n| " + " | ".join([*heads, "checks"]) + " |\n" + "|---" * (len(heads) + 1) + "|")
    for result in results:
        ms = result["ms"]
        cells = [result["shape"], number(ms.get(base)), result.get("TFLOP/s", {}).get(base, "")]
        for name in names[1:]:
            cells += [number(ms.get(name)), number(ratio(ms, name, base))]
        shown = [
            f"{name}: " + ", ".join(f"{check} {value:.3g}" for check, value in checks.items())
            for name, checks in result.get("checks", {}).items()
        ]
        shown += ["WRONG"] * result["wrong"] + [f"{name} FAILED" for name in result["failed"]]
        print("| " + " | ".join(map(str, [*cells, "; ".join(shown)])) + " |")


def number(value):
    return "-" if value is None else f"{value:.4f}"


def ratio(ms, name, base):
    return ms[name] / ms[base] if name in ms and base in ms else None


def print_summary(results, groups):
    """Geometric means of the ratios, over all rows and over each group."""
    names = names_of(results)
    for group in dict.fromkeys([None, *groups.values()]):
        chosen = [each["ms"] for each in results if group in (None, groups[each["shape"]])]
        for name in names[1:]:
            found = [ratio(ms, name, names[0]) for ms in chosen]
            found = [each for each in found if each]
            if len(found) > 1:
                mean = math.exp(statistics.fmean(map(math.log, found)))
                print(
                    f"# {name} / {names[0]}, {group or 'all'} ({len(found)} rows): geometric mean "
                    f"{mean:.4f}, least {min(found):.4f}, greatest {max(found):.4f}"
                )


# ---- the command line ---------------------------------------------------------------------------


def positive(text):
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected a whole number, at least 1")
    return int(text)


def numbers(text):
    try:
        return [float(each) for each in text.split(",") if each]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text}: expected numbers, as 16,32") from None


def add_options(parser, row_class):
    sets = list(row_class.SETS)
    named = "names of rows, or of sets: " + ", ".join(sets)
    parser.add_argument("--rows", default=sets[0], help=named)
    parser.add_argument("--only", default="", metavar="TEXT", help="rows whose names contain this")
    parser.add_argument("--list", action="store_true", help="print the names of the rows only")
    add_contenders(parser)
    rounds = "launches of each contender (24)"
    parser.add_argument("--rounds", type=positive, default=24, help=rounds)
    rest = {"type": numbers, "default": "0", "metavar": "MS,..."}
    parser.add_argument("--rest", help="pauses after each launch (0)", **rest)
    parser.add_argument("--smelt-only", action="store_true", help="without its peers")
    parser.add_argument("--json", metavar="FILE", help="write the lines of JSON there")
    if row_class.deterministic:
        also = "also smelt's deterministic mode"
        parser.add_argument("--deterministic", action="store_true", help=also)
    row_class.add_options(parser)


def add_contenders(parser):
    more = {"action": "append", "default": []}
    builds = "builds of libsmelt, each a contender (build/libsmelt.so)"
    parser.add_argument("--library", metavar="[NAME=]FILE", help=builds, **more)
    parser.add_argument("--knobs", help="keys added to smelt's spec, each set a contender", **more)
    parser.add_argument("--seed", type=int, default=1)


def rows_named(row_class, text, only=""):
    names = []
    for name in text.split(","):
        names += row_class.SETS.get(name, name).split(",")
    return [row_class(name.strip()) for name in names if name.strip() and only in name]


def refuse(message):
    print(f"peers: {message}", file=sys.stderr)
    raise SystemExit(USAGE)


def open_libraries(options):
    """Also makes the device's context current."""
    if not EMULATED and not torch.cuda.is_available():
        print("peers: no GPU", file=sys.stderr)
        raise SystemExit(NO_GPU)
    from smelt_library import Library

    torch.zeros(1, device=DEVICE)
    if not EMULATED:
        torch.backends.cuda.matmul.allow_tf32 = False
    options.libraries = []
    for number_, text in enumerate(options.library or [str(ROOT / "build" / "libsmelt.so")]):
        name, equals, path = text.rpartition("=")
        try:
            path = str(pathlib.Path(path).resolve(strict=True))
            options.libraries.append(Library(path, name if equals else f"build {number_}"))
        except OSError as error:
            refuse(f"--library {text}: {error}; build it, or name another file")
    device = "emulator" if EMULATED else torch.cuda.get_device_name()
    versions = ", ".join(library.version for library in options.libraries)
    print(f"# {device}, torch {torch.__version__}, smelt {versions}", flush=True)


def make_operators(rows, options):
    """Compiles on several threads. A spec that fails is reported where it is used."""

    def make(job):
        try:
            job[0].operator(job[1])
        except Exception:  # pylint: disable=broad-except
            pass

    jobs = {each: None for row in rows for each in row.operators(options).values()}
    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(make, jobs))


def run(row_class, options):
    """A benchmark. The exit status."""
    options.deterministic = getattr(options, "deterministic", False)
    try:
        rows = rows_named(row_class, options.rows, options.only)
    except ValueError as error:
        refuse(error)
    if options.list:
        print("\n".join(row.name for row in rows))
        return 0
    if not rows:
        refuse(f"--only {options.only}: no name of a row of --rows contains this; --list prints the names")
    open_libraries(options)
    make_operators(rows, options)
    return measure_rows(rows, options)
