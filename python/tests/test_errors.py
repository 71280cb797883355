"""Bad input gives TypeError, ValueError or RuntimeError with a message, and never ends the interpreter."""

import random

import pytest
import smelt_kernels as smelt
import torch
from conftest import Problem
from smelt_kernels import _native, _runtime


def call(problem, **changes):
    arguments = {
        "q": problem.q,
        "kv": problem.kv,
        "indices": problem.indices,
        "scale": problem.scale,
        "backend": "smelt",
        **changes,
    }
    return smelt.sparse_attention(**arguments)


BAD = {
    "no tensor": ({"q": 3}, TypeError, "q must be a torch.Tensor, not int"),
    "no indices": ({"indices": None}, TypeError, "indices must be a torch.Tensor"),
    "dtype of q": ({"q": lambda p: p.q.half()}, TypeError, "bfloat16"),
    "dtype of kv": ({"kv": lambda p: p.kv.float()}, TypeError, "bfloat16"),
    "dtype of indices": (
        {"indices": lambda p: p.indices.long()},
        TypeError,
        "indices must be torch.int32, not torch.int64",
    ),
    "width of kv": ({"kv": lambda p: p.kv[:, :64]}, ValueError, r"kv \(dqk\) is 64, but must be 128"),
    "dimensions": ({"q": lambda p: p.q[0]}, ValueError, r"\[T, H, dqk\] or \[B, T, H, dqk\]"),
    "mixed layouts": ({"kv": lambda p: p.kv.unsqueeze(0)}, ValueError, r"kv must be \[S, dqk\], not of 3"),
    "tokens": ({"indices": lambda p: p.indices[1:]}, ValueError, "dimension 0 of indices"),
    "sink": ({"sink": torch.zeros(2)}, ValueError, "dimension 0 of sink"),
    "sink's type": ({"sink": 1.0}, TypeError, "sink must be a torch.Tensor or None"),
    "length": ({"topk_length": torch.zeros(3, dtype=torch.int32)}, ValueError, "topk_length"),
    "length's type": ({"topk_length": torch.zeros(5)}, TypeError, "topk_length must be torch.int32"),
    "scale of 0": ({"scale": 0.0}, ValueError, "scale"),
    "scale of NaN": ({"scale": float("nan")}, ValueError, "scale"),
    "scale that is none": ({"scale": "x"}, TypeError, "scale must be a number, not str"),
    "scale in text": ({"scale": "0.1"}, TypeError, "scale must be a number, not str"),
    "scale of several": ({"scale": torch.ones(2)}, TypeError, "scale must be a number, not Tensor"),
    "topk": ({"topk": 4}, ValueError, "width"),
    "negative topk": ({"topk": -4}, ValueError, "topk must be positive"),
    "topk that is none": ({"topk": "all"}, TypeError, "topk must be an int"),
    "dv": ({"dv": 100}, RuntimeError, "dv"),
    "buckets": ({"buckets": "all"}, ValueError, "buckets must be"),
    "bounds": ({"buckets": [5, 3]}, RuntimeError, "bucket"),
    "bounds that are none": ({"buckets": 7}, TypeError, "buckets must be None, 'auto' or bounds, not 7"),
    "backend": ({"backend": "cuda"}, ValueError, "backend must be one of"),
    "dkv_dtype": ({"dkv_dtype": torch.float16}, ValueError, "dkv_dtype must be one of"),
    "queries": ({"queries": torch.zeros(2)}, TypeError, "queries must be torch.int32"),
    "multiprocessors": ({"free_multiprocessors": -1}, ValueError, "free_multiprocessors"),
    "no whole number": ({"free_multiprocessors": 0.5}, TypeError, "free_multiprocessors must be an int, not .*float"),
    "too many": ({"free_multiprocessors": 1 << 70}, ValueError, "free_multiprocessors is out of"),
}


@pytest.mark.parametrize("changes,kind,message", BAD.values(), ids=BAD.keys())
def test_bad_arguments(device, changes, kind, message):
    problem = Problem(device, grad=False)
    made = {}
    for name, value in changes.items():
        value = value(problem) if callable(value) else value
        made[name] = value.to(device) if isinstance(value, torch.Tensor) else value
    with pytest.raises(kind, match=message):
        call(problem, **made)


@pytest.mark.parametrize("backend", ["smelt", "torch"])
def test_scale_in_a_tensor(device, backend):
    """A number that changes in place is checked in every call."""
    problem = Problem(device, grad=False)
    scale = torch.tensor(0.1, device=device)
    one, two, three = (problem.q, problem.kv, problem.indices), [], []
    for value in (0.1, 0.1, 0.3):
        scale.fill_(value)
        two.append(smelt.sparse_attention(*one, scale, backend=backend))
        three.append(smelt.sparse_attention(*one, float(scale), backend=backend))
    assert all(torch.equal(got, want) for got, want in zip(two, three))
    assert not torch.equal(two[1], two[2])


def test_meta_and_sparse(device):
    problem = Problem(device, grad=False)
    for backend in ("smelt", "auto", "torch"):
        for name in ("q", "kv", "indices"):
            with pytest.raises(ValueError, match="some are on meta|must be a CPU|must be on device"):
                call(problem, **{name: getattr(problem, name).to("meta")}, backend=backend)
    with pytest.raises((TypeError, ValueError, RuntimeError)):
        call(problem, q=problem.q.to_sparse())


@pytest.mark.parametrize("scale", [0, -1.0, float("nan"), float("inf"), 3e38])
@pytest.mark.parametrize("backend", ["smelt", "torch"])
def test_scales_that_no_kernel_takes(device, scale, backend):
    """An error with every backend."""
    problem = Problem(device, grad=False)
    with pytest.raises(ValueError, match="must be positive and at most 2e"):
        call(problem, scale=scale, backend=backend)
    lse = problem.q[..., 0].float()
    with pytest.raises(ValueError, match="must be positive and at most 2e"):
        smelt.sparse_scores(problem.q, problem.kv, problem.indices, lse, scale, dv=problem.dv, backend=backend)


def test_outputs_that_overlap(device):
    """The library's own message."""
    problem = Problem(device, grad=False)
    out, lse = problem.run(return_lse=True)
    total = torch.zeros(1, problem.kv.shape[1], device=device).expand(problem.kv.shape)
    with pytest.raises(ValueError, match="dkv_sum"):
        smelt.sparse_attention_backward(
            problem.grad_out, problem.q, problem.kv, problem.indices, out, lse, problem.scale, dkv_sum=total
        )


def test_type_of_what_backward_hands_out(device):
    """A device that does not exist is an error and not silently replaced."""
    problem = Problem(device, grad=False)
    out, lse = problem.run(return_lse=True)
    given = (problem.grad_out, problem.q, problem.kv, problem.indices, out, lse, problem.scale)
    total = torch.zeros(problem.kv.shape, device=device)
    for kind, dkv_sum in ((torch.float16, None), (torch.bfloat16, total)):
        with pytest.raises(ValueError, match="dkv_dtype"):
            smelt.sparse_attention_backward(*given, dkv_dtype=kind, dkv_sum=dkv_sum)
    made = smelt.sparse_attention_backward(*given, dkv_dtype=torch.float32, dkv_sum=total)
    assert made[1] is total


def test_partition_of_another_call(device):
    problem = Problem(device, grad=False)
    out, lse = problem.run(return_lse=True)
    spec = "sparse_attn:heads=3,dqk=128,dv=128,topk=128,buckets=4,passes=backward"
    backward = _runtime.operator(problem.q.get_device(), spec).backward
    given = {"q": problem.q, "kv": problem.kv, "indices": problem.indices, "scale": problem.scale}
    given.update(out=out, lse=lse, grad_out=problem.grad_out, dq=True, dkv=True)
    dq, dkv, *others = backward(**given)
    assert dq.shape == problem.q.shape and dkv.shape == problem.kv.shape and others[:2] == [None, None]
    for partition in (torch.zeros(3, dtype=torch.uint8), torch.zeros(64)):
        with pytest.raises((TypeError, ValueError)):
            backward(**given, partition=partition.to(device))


def test_random_specs():
    random_ = random.Random(7)
    for _ in range(300):
        text = "sparse_attn:heads=64,dqk=576,dv=512,topk=2048,sink=1,buckets=auto,passes=both"
        for _ in range(random_.randrange(1, 5)):
            at = random_.randrange(len(text))
            text = text[:at] + random_.choice(("", "9", ",", "=", "-", "\u00e9", "\0")) + text[at + 1 :]
        try:
            _native.expand(text)
            _native.canonical(text)
        except ValueError:
            pass
