"""Back ends, warming, the command, processes."""

import pathlib
import re
import resource
import subprocess
import sys
import warnings

import pytest
import smelt_kernels as smelt
import torch
from conftest import Problem, check_out, program
from smelt_kernels import _native, _runtime


def test_auto_falls_back_where_no_kernel_is(device):
    """A width that no kernel has; forced, the reason is raised."""
    problem = Problem(device, dqk=104, dv=104)
    with pytest.raises(RuntimeError, match="dqk"):
        problem.run()
    _runtime._warned.clear()
    with pytest.warns(smelt.SmeltWarning, match="dqk"):
        out = problem.run(backend="auto")
    out.backward(problem.grad_out)
    check_out(out, problem.truth()[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(problem.run(backend="torch"), out)


def test_operators_are_made_once(device):
    problem = Problem(device, grad=False)
    problem.run()
    made = dict(_runtime._operators)
    for width in (3, 9):
        problem.indices = problem.indices[:, :width]
        problem.run()
    assert _runtime._operators == made


def test_both_ways_to_look_at_tensors(device):
    """PyTorch before 2.10 has no exchange interface; its methods give the same."""
    problem = Problem(device, sink=True, lengths=True, grad=False)
    want = problem.run()
    had = _native.setup(*_runtime.SETUP)
    try:
        assert _native.setup(*_runtime.SETUP, False) is False
        assert torch.equal(problem.run(), want)
        with pytest.raises(TypeError, match="indices must be torch.int32"):
            smelt.sparse_attention(problem.q, problem.kv, problem.indices.float(), 0.1, backend="smelt")
    finally:
        assert _native.setup(*_runtime.SETUP) is had


def test_presets_and_warm(tmp_path):
    assert "glm-5.2" in smelt.presets()
    with pytest.raises(ValueError, match="no-such-model"):
        smelt.warm("no-such-model")
    with pytest.raises(ValueError, match="tp"):
        smelt.warm("glm-5.2", tp=7)
    with pytest.raises(TypeError, match="preset"):
        smelt.warm(3)
    with pytest.raises(ValueError, match="smelt_specs"):
        smelt.warm(torch.nn.Linear(2, 2))


SPEC = "topk_select:topk=16"


class Named(torch.nn.Module):
    def __init__(self, specs):
        super().__init__()
        self.specs = specs

    def smelt_specs(self):
        return self.specs


@pytest.mark.parametrize(
    "what,named,kind,message",
    [
        ("glm-5.2", {"tp": "2"}, TypeError, "tp must be an int, not str"),
        ("glm-5.2", {"tp": 1 << 40}, ValueError, "tp is out of range"),
        ("glm-5.2", {"passes": ["forward"]}, ValueError, "passes must be one of"),
        (SPEC, {"jobs": "2"}, TypeError, "jobs must be an int, not str"),
        (SPEC, {"jobs": -1}, ValueError, "jobs is -1"),
        (SPEC, {"arch": 90}, TypeError, "arch must be a str or None, not int"),
        (SPEC, {"progress": 3}, TypeError, "progress must be callable, not int"),
        (Named(3), {}, TypeError, "a preset, a spec, a module or a list"),
        (Named([3]), {}, TypeError, "a preset, a spec, a module or a list"),
        (Named("no-such-model"), {}, ValueError, "no-such-model"),
    ],
)
def test_warm_of_what_is_none(what, named, kind, message):
    with pytest.raises(kind, match=message):
        smelt.warm(what, **named)


def test_specs_of_a_module(device):
    """One spec or several; exceptions of progress propagate."""
    one, several = smelt.warm(Named(SPEC)), smelt.warm(Named([SPEC, SPEC]))
    assert one and [each["spec"] for each in one] == [each["spec"] for each in several]

    def stop(*what):
        raise KeyboardInterrupt(*what)

    with pytest.raises(KeyboardInterrupt) as caught:
        smelt.warm(SPEC, progress=stop)
    assert caught.value.args[:2] == (1, len(one))
    assert smelt.warm(SPEC)


def test_warm_compiles_and_reports(device):
    class Layer(torch.nn.Module):
        def smelt_specs(self):
            return ["sparse_attn:heads=2,dqk=64,dv=64,topk=64,passes=both"]

    seen = []
    kernels = smelt.warm(torch.nn.Sequential(Layer()), progress=lambda *what: seen.append(what))
    assert {kernel["state"] for kernel in kernels} <= {"compiled", "cached"}
    assert [done for done, _, _ in seen] == list(range(1, len(kernels) + 1))
    again = smelt.warm(["sparse_attn:heads=2,dqk=64,dv=64,topk=64,passes=both"])
    assert {kernel["state"] for kernel in again} == {"cached"}


def test_the_command():
    run = subprocess.run(
        [
            sys.executable, "-m", "smelt_kernels", "show", "--arch", "sm_90a",
            "sparse_attn_fwd:heads=64,dqk=576,dv=512,topk=2048",
        ],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )  # fmt: skip
    assert run.returncode == 0 and "variant" in run.stdout and "sparse_attn_fwd" in run.stdout, run.stderr


@pytest.mark.emulated
def test_cpu_tensors_without_the_emulator():
    """Without a driver and the emulator: backend="smelt" raises the reason, "auto" computes, compiling works."""
    run = program(
        "import torch, smelt_kernels as smelt, warnings\n"
        "q = torch.randn(2, 3, 64).bfloat16(); kv = torch.randn(4, 64).bfloat16()\n"
        "i = torch.zeros(2, 2, dtype=torch.int32)\n"
        "try: smelt.sparse_attention(q, kv, i, 0.1, backend='smelt')\n"
        "except RuntimeError as error: print('refused:', error)\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    print(smelt.sparse_attention(q, kv, i, 0.1).shape, len(caught))\n"
        "print(torch.compile(lambda q: smelt.sparse_attention(q, kv, i, 0.1), fullgraph=True,\n"
        "                    backend='aot_eager')(q).shape)\n",
        SMELT_CUDA=None,
    )
    assert run.returncode == 0, run.stderr
    assert "refused: smelt: " in run.stdout and "emulator" in run.stdout
    assert "torch.Size([2, 3, 64]) 1\ntorch.Size([2, 3, 64])" in run.stdout


@pytest.mark.emulated
def test_no_driver_at_all():
    run = program(
        "import smelt_kernels as smelt\ntry: smelt.warm('glm-5.2')\nexcept RuntimeError as error: print(error)\n",
        SMELT_CUDA="/nonexistent/libcuda.so.1",
    )
    assert run.returncode == 0 and ("libcuda" in run.stdout or "NVIDIA" in run.stdout), run.stderr


@pytest.mark.emulated
@pytest.mark.parametrize("more,name", [(64 << 20, "(q|kv)"), (560 << 20, "workspace")])
def test_no_address_space_for_the_emulator(device, more, name):
    """The emulator needs 24 times a buffer's size of memory: an error names the buffer and says so. That is kv, or a
    small tensor before it, if no memory is mapped for its surroundings yet."""
    problem = Problem(device, tokens=1, heads=2, dqk=64, grad=False)
    out, lse = problem.run(return_lse=True)

    def backward():
        given = problem.grad_out, problem.q, problem.kv, problem.indices, out, lse, problem.scale
        return smelt.sparse_attention_backward(*given)

    want = backward()
    small, problem.kv = problem.kv, torch.zeros(1 << 16, 64, dtype=torch.bfloat16)  # 8 MiB; the workspace is larger
    used = int(re.search(r"VmSize:\s+(\d+)", pathlib.Path("/proc/self/status").read_text())[1]) << 10
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + more, hard))
    try:
        with pytest.raises(MemoryError, match=f"emulator cannot map memory .* accesses to {name} .*ulimit -v"):
            backward()
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    problem.kv = small
    for one, two in zip(backward()[:2], want):
        torch.testing.assert_close(one, two, rtol=0.02, atol=1e-2)
