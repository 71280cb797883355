"""What a mutant is run in: small kernels and problems that together are sensitive to every line.

Ordered so that most mutants are caught by the first. Each check runs all kinds of index lists
(random, causal, window, adversarial) under several schedules.
"""

import json
import subprocess
from dataclasses import dataclass

ARCH = "sm_90a"


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

    def emit(self, tools):
        return subprocess.run([tools.smelt, "emit", "sparse_attn_fwd:" + self.keys, "--arch", ARCH],
                              capture_output=True, text=True, check=True).stdout

    def command(self, tools):
        return [tools.smelt, "check", "sparse_attn:" + self.keys, "--emulate", "--arch", ARCH,
                "--json", *self.options.split()]

    def environment(self, tools):
        return {"SMELT_EMULATOR": tools.emulator} if tools.emulator else {}

    def judge(self, done):
        """(what caught it or "", in words)."""
        if done.returncode == 0:
            return "", ""
        if done.returncode < 0 or done.returncode in (128 + 9, 128 + 24):
            return ("time", "processor time") if -done.returncode in (9, 24, -137, -152) else (
                "crash", f"signal {-done.returncode}")
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


CHECKS = (
    # Partial blocks, three stages, half-empty rows, several schedules; lse transposed, gaps.
    Check("small", "heads=24,dqk=128,dv=64,topk=100,sink=1",
          "--strided --max-logits --topk-length --queries 3 --rows 150"),
)


def every(tools):
    """All configurations that can be run with these tools."""
    return list(CHECKS)
