"""The suite runs on a GPU, or on CPU tensors through the emulator (named by SMELT_CUDA)."""

import os
import subprocess
import sys

import pytest
import smelt_kernels as smelt
import torch
from smelt_kernels import _native, _runtime
from torch.utils._python_dispatch import TorchDispatchMode

if _runtime.EMULATED:
    _native.emulate(8, 9)  # the oldest with fp8, with `mma` kernels: Hopper's take seconds per query on the emulator

torch.set_num_threads(1)
smelt.set_backend("smelt")  # tests use the eager reference only explicitly

# In a process of test_devices.py the driver has two GPUs, and CPU tensors pretend to be on them.
DRIVER = None
if os.environ.get("SMELT_TEST_TWO_GPUS"):
    import two_gpus

    DRIVER = two_gpus.Driver()
    two_gpus.pretend(DRIVER)


def pytest_collection_modifyitems(items):
    for item in items:
        if "cuda" in item.keywords and _runtime.EMULATED:
            item.add_marker(pytest.mark.skip(reason="needs a GPU"))
        if "emulated" in item.keywords and not _runtime.EMULATED:
            item.add_marker(pytest.mark.skip(reason="is about CPU tensors"))


def pytest_configure(config):
    config.addinivalue_line("markers", "cuda: needs a GPU")
    config.addinivalue_line("markers", "emulated: needs the emulator")


@pytest.fixture(scope="session")
def device():
    return torch.device("cpu" if _runtime.EMULATED or DRIVER else "cuda")


def program(text, **environment):
    """Runs a program with the package, with changes of the environment; None removes a variable."""
    changed = {name: value for name, value in {**os.environ, **environment}.items() if value is not None}
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=300, env=changed)


class Operators(TorchDispatchMode):
    """Under a mode, calls go through their custom operators."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.seen.append(str(function))
        return function(*args, **(kwargs or {}))


class Problem:
    """Random inputs of sparse_attention; sizes are small on the emulator."""

    def __init__(
        self,
        device,
        tokens=5,
        rows=11,
        heads=3,
        dqk=128,
        dv=None,
        width=9,
        batches=None,
        masked=0.3,
        sink=False,
        lengths=False,
        seed=0,
        grad=True,
    ):
        made = torch.Generator().manual_seed(seed)
        lead = () if batches is None else (batches,)
        self.scale = 10 * dqk**-0.5
        self.dv = dv or smelt._sparse_attention.value_width(dqk)

        def normal(*shape):
            return torch.randn(*lead, *shape, generator=made).to(device, torch.bfloat16)

        self.q = normal(tokens, heads, dqk).requires_grad_(grad)
        self.kv = (normal(rows, dqk) / 10).requires_grad_(grad)
        indices = torch.randint(0, max(rows, 1), (*lead, tokens, width), generator=made)
        gone = torch.rand(indices.shape, generator=made) < masked
        masked = torch.where(indices % 2 == 0, -1, rows)  # a negative row, and the first row past the end
        self.indices = torch.where(gone, masked, indices).to(device, torch.int32)
        self.sink = None
        if sink:
            self.sink = torch.randn(heads, generator=made).to(device).requires_grad_(grad)
        self.topk_length = None
        if lengths:
            count = torch.randint(-1, width + 3, (*lead, tokens), generator=made)
            self.topk_length = count.to(device, torch.int32)
        self.grad_out = normal(tokens, heads, self.dv)

    def leaves(self):
        return [tensor for tensor in (self.q, self.kv, self.sink) if tensor is not None]

    def run(self, **options):
        options = {"dv": self.dv, "backend": "smelt", **options}
        return smelt.sparse_attention(
            self.q, self.kv, self.indices, self.scale, sink=self.sink, topk_length=self.topk_length, **options
        )

    def truth(self, topk=None, grad_out=None):
        """out, lse, max_logits and gradients by autograd in double precision."""
        leaves = [t.detach().double().requires_grad_() for t in self.leaves()]
        sink = leaves[2] if self.sink is not None else None
        out, lse, highest = smelt._reference.sparse_attention(
            leaves[0], leaves[1], self.indices, self.scale, self.dv, topk_length=self.topk_length, sink=sink, topk=topk
        )
        grad_out = self.grad_out if grad_out is None else grad_out
        grads = torch.autograd.grad(out, leaves, grad_out.double())
        return out, lse, highest, grads


def check_out(got, true):
    """FlashMLA's own tolerance, for every element."""
    assert got.shape == true.shape
    error = (got.double() - true.double()).abs()
    assert bool((error <= 8e-4 + 3.01 / 128 * true.double().abs()).all()), error.max()


def check_sums(got, true):
    """lse and max_logits: 1e-6 or 2.01/65536; -inf for empty rows."""
    assert got.shape == true.shape and got.dtype is torch.float32
    got, true = got.double(), true.double()
    none = true == float("-inf")
    assert bool((got[none] == float("-inf")).all())
    error = (got - true)[~none].abs()
    assert bool((error <= torch.clamp(2.01 / 65536 * true[~none].abs(), min=2e-6)).all())


def check_grad(got, true):
    """p and ds are rounded to bf16: 1 % of the norm, and for each element 4 % of the largest."""
    assert got.shape == true.shape
    got, true = got.double(), true.double()
    if true.numel() == 0:
        return
    assert bool(got.isfinite().all())
    scale = true.abs().max()
    assert float((got - true).norm()) <= 0.01 * float(true.norm()) + 1e-12
    assert float((got - true).abs().max()) <= 0.04 * float(scale) + 1e-12
