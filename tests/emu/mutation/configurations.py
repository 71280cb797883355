"""What a mutant is run in: small kernels and problems that together are sensitive to every line.

Ordered so that most mutants are caught by the first. Each check runs all kinds of index lists
(random, causal, window, adversarial) under several schedules.
"""

import json
import signal
import subprocess
from dataclasses import dataclass


@dataclass(frozen=True)
class Tools:
    smelt: str
    micro: str = None
    emulator: str = None


@dataclass(frozen=True)
class Check:
    """`smelt check --emulate` of an operator. `keys`: of its spec."""

    name: str
    keys: str
    options: str = ""
    arch: str = "sm_90a"

    def emit(self, tools):
        return subprocess.run(
            [tools.smelt, "emit", "sparse_attn_fwd:" + self.keys, "--arch", self.arch],
            capture_output=True, text=True, check=True).stdout

    def command(self, tools):
        return [tools.smelt, "check", "sparse_attn:" + self.keys, "--emulate", "--arch",
                self.arch, "--json", *self.options.split()]

    def environment(self, tools):
        return {"SMELT_EMULATOR": tools.emulator} if tools.emulator else {}

    def judge(self, done):
        """(what caught it or "", in words)."""
        if done.returncode == 0:
            return "", ""
        if -done.returncode in (signal.SIGKILL, signal.SIGXCPU):
            return "time", "more processor time than the limit"
        if done.returncode < 0:
            return "crash", f"signal {-done.returncode}"
        try:
            failed = [r for r in json.loads(done.stdout)["results"] if not r["passed"]]
        except (json.JSONDecodeError, KeyError):
            return "refused", done.stderr[-1000:]
        for result in failed:
            for report in result.get("reports", []):
                return report["kind"], report["text"]
        words = failed[0]["error"] if failed else done.stderr[-1000:]
        if "SMELT_ERROR_COMPILE" in words or "CUDA_ERROR_INVALID_IMAGE" in words:
            return "does not compile", words
        if "SMELT_ERROR" in words:
            return "refused", words
        return "wrong result", words


# What each is there for stands beside it; the plan's constants are the ones `smelt emit` prints.
CHECKS = (
    # Two blocks, three stages, two depth groups and two groups of heads: most mutants die here.
    Check("small", "heads=24,dqk=128,dv=64,topk=100,sink=1",
          "--strided --max-logits --topk-length --rows 150"),
    # Two head blocks, the second with fewer tiles; seven short key blocks; four partial sums.
    Check("ragged", "heads=72,dqk=128,dv=64,topk=100,block_keys=16,stages=2",
          "--max-logits --spiky"),
    # Every slot gets an entry, masked or not; several batches; a query list that ends early.
    Check("masked", "heads=8,dqk=128,dv=64,topk=100,block_keys=32,stages=4,warps=4,compact=0",
          "--queries 4 --batches 2 --query-list partial --strided --max-logits"),
    # One rope buffer for two stages; the ring goes round; no head past the first tile.
    Check("ring", "heads=16,dqk=128,dv=64,topk=700,block_keys=32,stages=2,blocks=4",
          "--width 700 --rows 900 --queries 2 --topk-length", arch="sm_86"),
    # Several tiles of heads a warp, the query in shared memory.
    Check("tiles", "heads=64,dqk=128,dv=64,topk=100,sink=1,warps=4", "--query-list clamped"),
    # No rope, one head, one slot; neither a sink nor optional arguments.
    Check("one", "heads=1,dqk=64,dv=64,topk=1", "--query-list whole"),
    # The widest rows, long key blocks.
    Check("wide", "heads=16,dqk=576,dv=512,topk=60", "--queries 2 --rows 100 --schedules 2"),
    Check("long", "heads=40,dqk=64,dv=64,topk=300,block_keys=128",
          "--queries 2 --width 300 --spiky --query-list empty"),
    Check("far", "heads=8,dqk=128,dv=64,topk=100", "--far --lists random --schedules 1"),
)


def every(tools):
    """All configurations that can be run with these tools."""
    return list(CHECKS)
