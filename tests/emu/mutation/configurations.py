"""What a mutant is run in: small kernels and problems that together are sensitive to every line.

Ordered so that most mutants are caught by the first. Each runs under four schedules unless it says
otherwise.
"""

import dataclasses
import json
import pathlib
import re
import signal
import subprocess
from dataclasses import dataclass

RECORDED = pathlib.Path(__file__).resolve().parent.parent / "micro" / "sm_90a.results"

STILLBORN = "does not compile"


@dataclass(frozen=True)
class Tools:
    smelt: str
    micro: str = None  # the micro-kernels' program
    emulator: str = None  # libsmelt_emu.so; needed by micro and partition, found by smelt
    partition: str = None  # gpu_partition


def ended_early(done):
    """(what caught it, in words) of a process that a signal ended, else None."""
    if -done.returncode in (signal.SIGKILL, signal.SIGXCPU):
        return "time", "more processor time than the limit"
    if done.returncode < 0:
        return "crash", f"signal {-done.returncode}"
    return None


def judge_words(words):
    """What a failure without a report is."""
    if "SMELT_ERROR_COMPILE" in words or "CUDA_ERROR_INVALID_IMAGE" in words:
        return STILLBORN, words
    return ("refused" if "SMELT_ERROR" in words else "wrong result"), words


@dataclass(frozen=True)
class Check:
    """`smelt check --emulate` of an operator. `keys`: of its spec; `buckets`: its list, of which the
    kernel of `bound`, else of topk, is mutated, or the partition's pass."""

    name: str
    keys: str
    options: str = ""
    buckets: str = ""
    bound: str = ""
    partition: str = ""
    arch: str = "sm_90a"
    files: str = ""  # beginnings of the names of the files that are mutated: one or a tuple
    set: str = "main"

    def emit(self, tools):
        keys = re.sub("topk=[0-9]+", "topk=" + self.bound, self.keys) if self.bound else self.keys
        kernel = "sparse_attn_fwd:" + keys
        if self.partition:
            kernel = "sparse_attn_partition:pass=" + self.partition
        return subprocess.run([tools.smelt, "emit", kernel, "--arch", self.arch],
                              capture_output=True, text=True, check=True).stdout

    def command(self, tools):
        keys = self.keys + (",buckets=" + self.buckets if self.buckets else "")
        return [tools.smelt, "check", "sparse_attn:" + keys, "--emulate", "--arch",
                self.arch, "--json", *self.options.split()]

    def environment(self, tools):
        return {"SMELT_EMULATOR": tools.emulator} if tools.emulator else {}

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
        return judge_words(failed[0]["error"] if failed else done.stderr[-1000:])


@dataclass(frozen=True)
class Micro:
    """A case of the micro-kernels, compared with what an H200 computed. files: what it is for."""

    name: str
    case: str
    files: str = ""
    set: str = "main"
    schedules: int = 6  # more find a warp that lags

    def emit(self, tools):
        return subprocess.run([tools.micro, "--emit", self.case], capture_output=True, text=True,
                              check=True).stdout

    def command(self, tools):
        return [tools.micro, "--replay", str(RECORDED), "--case", self.case, "--schedules",
                str(self.schedules)]

    def environment(self, tools):
        return {"SMELT_CUDA": tools.emulator, "SMELT_NVRTC": tools.emulator}

    def judge(self, done):
        if done.returncode == 0:
            return "", ""
        if ended_early(done):
            return ended_early(done)
        reported = re.search(r": schedule \d+: ([a-z]+): (.*)", done.stderr)
        if reported:
            return reported.groups()
        return judge_words(done.stderr[-1000:])


@dataclass(frozen=True)
class Lists:
    """A pass of the partition, its lists compared with the reference. The seed's random cases are
    few: the listed ones find most."""

    name: str
    which: str
    files: str = ""
    set: str = "partition"

    def emit(self, tools):
        return subprocess.run([tools.smelt, "emit", "sparse_attn_partition:pass=" + self.which,
                               "--arch", "sm_90a"],
                              capture_output=True, text=True, check=True).stdout

    def command(self, tools):
        return [tools.partition, "4", "sm_90a"]

    def environment(self, tools):
        return {"SMELT_CUDA": tools.emulator, "SMELT_NVRTC": tools.emulator,
                "SMELT_TEST_SEED": "70", "SMELT_CACHE_DISABLE": "1"}

    def judge(self, done):
        if done.returncode == 0:
            return "", ""
        if ended_early(done):
            return ended_early(done)
        reported = re.search(r"^    report ([a-z]+): (.*)", done.stdout, re.MULTILINE)
        return reported.groups() if reported else judge_words(done.stdout[-1000:])


# What is mutated in the set sm90; other files it shares with the set main.
SM90_FILES = ("templates/sparse_attn_fwd.sm90",
              *(f"templates/common/{name}.cuh"
                for name in ("gather_slots", "key_ring", "quad", "warp_arrival", "warp_slots")))

# What each is there for stands beside it; the plan's constants are the ones `smelt emit` prints.
CHECKS = (
    # Two blocks, three stages, two depth groups and two groups of heads: most mutants die here.
    # The seed is one whose topk_length are 95, 107 (past the width), -3 and 54.
    Check("small", "heads=24,dqk=128,dv=64,topk=100,sink=1",
          "--strided --max-logits --topk-length --rows 150 --queries 4 --seed 70 "
          "--lists adversarial"),
    # Two head blocks, the second with fewer tiles; seven key blocks, shorter than what the block's
    # threads copy at once; four partial sums.
    Check("ragged", "heads=112,dqk=128,dv=64,topk=100,block_keys=16,stages=2,warps=8",
          "--max-logits --spiky --lists window"),
    # Every slot gets an entry, masked or not, over three scans; several batches; a query list that
    # ends early.
    Check("masked", "heads=8,dqk=128,dv=64,topk=300,block_keys=32,stages=4,warps=4,compact=0",
          "--width 300 --queries 4 --batches 2 --query-list partial --strided --max-logits "
          "--lists adversarial"),
    # The same with whole key blocks before the first valid slot, which names row 0.
    Check("first-row", "heads=8,dqk=64,dv=64,topk=100,block_keys=16,stages=2,warps=4,compact=0",
          "--rows 101 --lists window"),
    # One rope buffer for two stages; the ring goes round; no head past the first tile.
    Check("ring", "heads=16,dqk=128,dv=64,topk=700,block_keys=32,stages=2,blocks=4",
          "--width 700 --rows 900 --queries 2 --lists random", arch="sm_86"),
    # Several tiles of heads a warp, the query in shared memory.
    Check("tiles", "heads=64,dqk=128,dv=64,topk=100,sink=1,warps=4",
          "--query-list clamped --lists window"),
    # No rope, one head, one slot; neither a sink nor optional arguments.
    Check("one", "heads=1,dqk=64,dv=64,topk=1", "--query-list whole --lists random"),
    # The widest rows, long key blocks.
    Check("wide", "heads=16,dqk=576,dv=512,topk=60,variant=mma", "--queries 2 --rows 100 --lists causal"),
    Check("long", "heads=40,dqk=64,dv=64,topk=300,block_keys=128",
          "--queries 2 --width 300 --spiky --lists window"),
    Check("empty", "heads=1,dqk=64,dv=64,topk=1", "--query-list empty --lists random --schedules 1"),
    # Every tensor's every dimension reaches past 2^32 elements.
    Check("far", "heads=8,dqk=128,dv=64,topk=100",
          "--far --topk-length --max-logits --batches 2 --queries 2 --seed 70 --lists random "
          "--schedules 1"),
    # Buckets. The largest one's kernel waits for the partition; some 45 queries a block, more than a
    # warp holds entries of the list. A smaller one's runs beside it; and one whose rows are wider.
    Check("bucket-first", "heads=1,dqk=64,dv=64,topk=20,blocks=1",
          "--width 24 --rows 60 --queries 90 --batches 2 --valid 12 --topk-length --lists random "
          "--schedules 2", buckets="5"),
    Check("bucket-last", "heads=24,dqk=128,dv=64,topk=40,blocks=1",
          "--width 50 --rows 90 --queries 9 --batches 2 --lists adversarial", buckets="9/20", bound="9"),
    Check("bucket-wide", "heads=8,dqk=64,dv=64,topk=20,blocks=1,compact=0,block_keys=16,warps=4",
          "--width 330 --rows 200 --queries 9 --valid 50 --lists random", buckets="9"),
    # The set partition: aligned rows and others, lists and lengths, short rows and long.
    Check("count-list", "heads=1,dqk=64,dv=64,topk=20,blocks=1",
          "--width 37 --rows 60 --queries 40 --batches 2 --strided --topk-length --query-list partial "
          "--lists adversarial", buckets="5", partition="count", set="partition"),
    Check("count-long", "heads=1,dqk=64,dv=64,topk=600,blocks=1",
          "--width 1600 --rows 2000 --queries 20 --valid 700 --lists random --schedules 2",
          buckets="5", partition="count", set="partition"),
    Check("place-list", "heads=1,dqk=64,dv=64,topk=20,blocks=1",
          "--width 37 --rows 60 --queries 40 --batches 2 --strided --topk-length --query-list partial "
          "--lists adversarial", buckets="5", partition="place", set="partition"),
    Check("place-many", "heads=1,dqk=64,dv=64,topk=4,blocks=1",
          "--width 8 --rows 20 --queries 1500 --lists adversarial --schedules 1", buckets="1/2/3",
          partition="place", set="partition"),
    # One block, of the bucket that ends last.
    Check("bucket-one", "heads=8,dqk=64,dv=64,topk=100",
          "--queries 1 --lists random --schedules 1", buckets="40", bound="40"),
    # A query list in a kernel that loads an entry each turn.
    Check("list", "heads=128,dqk=512,dv=512,topk=64,variant=sm90",
          "--batches 2 --queries 8 --query-list partial --lists random --schedules 1",
          files="templates/common/work.cuh"),
)

# Maxima that fall slowly, by more than fp32's exponents reach: whole lists in the table's order, and
# scores by their place in it alone.
FALL = "dqk=512,dv=512,topk=1536,variant=sm90,heads="
FALL_OPTIONS = ("--spiky --scale 0.001 --width 1536 --rows 2048 --queries 4 --lists window "
                "--schedules 1")

# Of the kernels with wgmma. Heads as rows: five queries on two multiprocessors; rope and none, a
# sink and none; several head blocks, a query list that ends early.
SM90_CHECKS = (
    Check("sm90", "heads=64,dqk=576,dv=512,topk=300,variant=sm90",
          "--strided --max-logits --topk-length --queries 5 --rows 310 --width 300 --seed 70 "
          "--lists adversarial"),
    # Of the second head block eight heads are there.
    Check("sm90-sink", "heads=72,dqk=512,dv=512,topk=100,sink=1,variant=sm90,orientation=heads",
          "--max-logits --spiky --batches 2 --queries 3 --query-list partial --rows 301 --lists window"),
    # 65 entries at a row's end.
    Check("sm90-random", "heads=64,dqk=576,dv=512,topk=600,variant=sm90",
          "--width 577 --rows 700 --lists random"),
    # Two buffers of P; maxima that move after the first block; the third query's valid slots stand so
    # that 65 entries wait when the next 64 slots are all valid; the fourth has none.
    Check("sm90-spiky", "heads=64,dqk=512,dv=512,topk=381,sink=1,variant=sm90",
          "--spiky --queries 4 --rows 400 --width 381 --seed 7 --lists adversarial --schedules 2"),
    Check("sm90-far", "heads=64,dqk=576,dv=512,topk=100,variant=sm90",
          "--far --topk-length --max-logits --batches 2 --queries 2 --seed 70 --lists random "
          "--schedules 1"),
    Check("sm90-racecheck", "heads=64,dqk=512,dv=512,topk=100,variant=sm90,racecheck=1",
          "--queries 2 --rows 150 --lists random --schedules 1"),
    Check("sm90-fall", FALL + "64", FALL_OPTIONS),
    # Keys as rows, two queries under way; more queries than the emulated GPU takes at once.
    Check("few", "heads=13,dqk=576,dv=512,topk=300,sink=1,variant=sm90,orientation=keys",
          "--strided --max-logits --topk-length --queries 7 --rows 310 --width 300 --seed 70 "
          "--lists adversarial"),
    # Query 0 follows another one.
    Check("few-parts", "heads=24,dqk=576,dv=512,topk=100,variant=sm90,part_tiles=4,stages=2",
          "--spiky --batches 2 --queries 5 --query-list partial --rows 301 --seed 1 --lists window"),
    Check("few-random", "heads=16,dqk=576,dv=512,topk=600,variant=sm90",
          "--width 577 --rows 700 --queries 3 --lists random --schedules 2"),
    Check("few-spiky", "heads=8,dqk=576,dv=512,topk=381,sink=1,variant=sm90",
          "--spiky --queries 5 --rows 400 --width 381 --seed 7 --lists adversarial --schedules 2"),
    Check("few-racecheck", "heads=8,dqk=576,dv=512,topk=100,variant=sm90,racecheck=1",
          "--queries 5 --rows 150 --lists random --schedules 1"),
    # Query 0 alone, in a ring of one tile more than three blocks.
    Check("few-one", "heads=1,dqk=512,dv=512,topk=600,variant=sm90",
          "--queries 1 --lists random --schedules 2"),
    Check("few-32", "heads=32,dqk=512,dv=512,topk=300,variant=sm90,orientation=keys",
          "--width 300 --lists causal --max-logits --spiky --queries 6"),
    # Query 0 is the longer one of the two that are left.
    Check("few-far", "heads=8,dqk=576,dv=512,topk=100,variant=sm90",
          "--far --topk-length --max-logits --batches 2 --queries 3 --query-list partial --seed 77 "
          "--lists random --schedules 1"),
    Check("few-fall", FALL + "4", FALL_OPTIONS),
    # A bucket's kernel that runs beside the largest one's.
    Check("few-bucket", "heads=8,dqk=576,dv=512,topk=40,variant=sm90",
          "--width 50 --rows 90 --queries 9 --lists adversarial --schedules 1", buckets="9",
          bound="9"),
)


MICRO = (
    Micro("gather", "pipeline gather 7 blocks 3 stages"),
    Micro("gather-short", "pipeline gather 1 blocks 2 stages"),
    Micro("gather-late", "pipeline gather 5 blocks 2 stages", schedules=24),
    Micro("tensor", "pipeline tensor 256 x 128 x 192 on 2 blocks"),
    Micro("tensor-tall", "pipeline tensor 384 x 64 x 64 on 1 blocks"),
    Micro("exchange", "pipeline exchange 9 rounds"),
    # Descriptors of the other swizzles.
    Micro("swizzle-32", "wgmma n8 ss_t00 swizzle 32 integers", "templates/common/"),
    Micro("swizzle-64", "wgmma n8 ss_t00 swizzle 64 integers", "templates/common/"),
    Micro("swizzle-0", "wgmma n8 ss_t00 swizzle 0 integers", "templates/common/"),
)


PARTITION = (Lists("count-lists", "count"), Lists("place-lists", "place"))


def every(tools):
    """All configurations that can be run with these tools."""
    sm90 = [dataclasses.replace(c, set="sm90", files=SM90_FILES) for c in SM90_CHECKS]
    return [*CHECKS, *sm90, *(MICRO if tools.micro else ()),
            *(PARTITION if tools.partition else ())]
