"""Bad input gives TypeError, ValueError or RuntimeError with a message, and never ends the interpreter."""

import random

import pytest
import smelt
import torch
from conftest import Problem
from smelt import _native, _runtime


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
    "mixed layouts": (
        {"kv": lambda p: p.kv.unsqueeze(0)},
        ValueError,
        r"kv must be \[S, dqk\], not of 3",
    ),
    "tokens": ({"indices": lambda p: p.indices[1:]}, ValueError, "dimension 0 of indices"),
    "sink": ({"sink": torch.zeros(2)}, ValueError, "dimension 0 of sink"),
    "sink's type": ({"sink": 1.0}, TypeError, "sink must be a torch.Tensor or None"),
    "length": ({"topk_length": torch.zeros(3, dtype=torch.int32)}, ValueError, "topk_length"),
    "length's type": (
        {"topk_length": torch.zeros(5)},
        TypeError,
        "topk_length must be torch.int32",
    ),
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
    "no whole number": (
        {"free_multiprocessors": 0.5},
        TypeError,
        "free_multiprocessors must be an int, not .*float",
    ),
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
    """A number that changes in place is looked at in every call."""
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
    """An error, whichever computes."""
    problem = Problem(device, grad=False)
    with pytest.raises(ValueError, match="must be positive and at most 2e"):
        call(problem, scale=scale, backend=backend)
    lse = problem.q[..., 0].float()
    with pytest.raises(ValueError, match="must be positive and at most 2e"):
        smelt.sparse_scores(
            problem.q, problem.kv, problem.indices, lse, scale, dv=problem.dv, backend=backend
        )


def test_outputs_that_overlap(device):
    """The library's own message."""
    problem = Problem(device, grad=False)
    out, lse = problem.run(return_lse=True)
    total = torch.zeros(1, problem.kv.shape[1], device=device).expand(problem.kv.shape)
    with pytest.raises(ValueError, match="dkv_sum"):
        smelt.sparse_attention_backward(
            problem.grad_out,
            problem.q,
            problem.kv,
            problem.indices,
            out,
            lse,
            problem.scale,
            dkv_sum=total,
        )


def test_type_of_what_backward_hands_out(device):
    """One that there is not is an error, and not silently another."""
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
    found = _runtime.operator(
        problem.q.get_device(),
        (3, 128, 128, 128, False, (4,), 1),
        smelt._sparse_attention._spec,
    )
    for partition in (
        torch.zeros(3, dtype=torch.uint8, device=device),
        torch.zeros(64, device=device),
    ):
        with pytest.raises((TypeError, ValueError)):
            found.backward(
                problem.q,
                problem.kv,
                problem.indices,
                None,
                None,
                None,
                None,
                out,
                lse,
                problem.grad_out,
                torch.empty_like(problem.q),
                torch.empty_like(problem.kv),
                None,
                None,
                partition,
                None,
                problem.scale,
                0,
                0,
            )


def random_value(random_, problem, device):
    """Something that might be given for an argument, mostly wrong."""
    kinds = (
        torch.bfloat16,
        torch.float32,
        torch.int32,
        torch.int64,
        torch.float8_e4m3fn,
        torch.bool,
        torch.complex64,
        torch.uint8,
    )
    shape = [random_.choice((0, 1, 3, 5, 9, 64, 128)) for _ in range(random_.randrange(7))]
    if torch.Size(shape).numel() > 1 << 20:
        shape = shape[:2]
    tensor = torch.zeros(shape, device=device).to(random_.choice(kinds))  # fp8 has no fill in 2.4
    if random_.random() < 0.3 and tensor.dim() > 1:
        tensor = tensor.transpose(0, 1)
    if random_.random() < 0.2:
        tensor = tensor.expand(2, *tensor.shape)
    choices = (
        None,
        0,
        -1,
        2**70,
        0.5,
        float("nan"),
        "x",
        b"y",
        [],
        (),
        {},
        object(),
        torch.Tensor,
        tensor,
        tensor,
        tensor,
        problem.q,
        problem.kv,
        problem.indices,
        problem.q.to("meta"),
    )
    return random_.choice(choices)


@pytest.mark.parametrize("seed", range(4))
def test_random_arguments(device, seed):
    """The call, and below it the native methods themselves."""
    random_ = random.Random(seed)
    problem = Problem(device, tokens=1, grad=False, masked=1.0)
    names = (
        "q",
        "kv",
        "indices",
        "scale",
        "topk_length",
        "sink",
        "topk",
        "dv",
        "buckets",
        "queries",
        "query_count",
        "dkv_dtype",
        "free_multiprocessors",
        "workspace_limit",
        "deterministic",
    )
    found = _runtime.operator(
        problem.q.get_device(),
        (3, 128, 128, 128, False, (), 0),
        smelt._sparse_attention._spec,
    )
    refused = 0
    for _ in range(150):
        changes = {
            name: random_value(random_, problem, device)
            for name in random_.sample(names, random_.randrange(1, 4))
        }
        values = [
            random_value(random_, problem, device)
            for _ in range(random_.choice((12, 12, 12, 3, 19)))
        ]
        for attempt in (
            lambda: call(problem, **changes),
            lambda: found.forward(*values),
            lambda: _native.Context(*values[:3]) if values[0] != 0 else None,
            lambda: _native.Operator(*values[:2]),
            lambda: _native.expand(*values[:1]),
            lambda: _native.preset(*values[:3]),
        ):
            try:
                attempt()
            except (TypeError, ValueError, RuntimeError, OverflowError, AttributeError):
                refused += 1
    assert refused > 300


def test_random_specs():
    random_ = random.Random(7)
    for _ in range(300):
        text = "sparse_attn:heads=64,dqk=576,dv=512,topk=2048,sink=1,buckets=auto,passes=both"
        for _ in range(random_.randrange(1, 5)):
            at = random_.randrange(len(text))
            text = (
                text[:at]
                + random_.choice(("", "9", ",", "=", "-", "\u00e9", "\0"))
                + text[at + 1 :]
            )
        try:
            _native.expand(text)
            _native.canonical(text)
        except ValueError:
            pass


@pytest.mark.parametrize("seed", range(2))
def test_random_arguments_of_the_training_calls(device, seed):
    """Errors of the three kinds or a result, whatever an argument is; never a crash."""
    random_ = random.Random(seed)
    problem = Problem(device, tokens=1, grad=False, masked=1.0)
    lists = problem.indices
    logits = torch.zeros(lists.shape, device=device)
    q = torch.zeros(1, 2, 64, device=device, dtype=torch.bfloat16)
    k = torch.zeros(4, 64, device=device, dtype=torch.bfloat16)
    weights, lse = torch.zeros(1, 2, device=device), torch.zeros(1, 3, device=device)
    calls = {
        smelt.sparse_scores: {
            "q": problem.q,
            "kv": problem.kv,
            "indices": lists,
            "lse": lse,
            "scale": 0.1,
            "topk_length": None,
            "sink": None,
        },
        smelt.indexer_scores: {"q": q, "k": k, "weights": weights, "indices": lists},
        smelt.indexer_backward: {
            "grad": logits,
            "q": q,
            "k": k,
            "weights": weights,
            "indices": lists,
            "topk_length": None,
        },
        smelt.indexer_loss: {
            "logits": logits,
            "target": logits,
            "indices": lists,
            "rows": 4,
            "weight": None,
            "query_weight": 1.0,
        },
    }
    refused = 0
    for function, arguments in calls.items():
        function(**arguments, backend="smelt")
        for _ in range(60):
            changes = {
                name: random_value(random_, problem, device)
                for name in random_.sample(list(arguments), random_.randrange(1, 3))
            }
            try:
                function(**{**arguments, **changes}, backend="smelt")
            except (TypeError, ValueError, RuntimeError, OverflowError, AttributeError) as error:
                refused += 1
                assert str(error)
    assert refused > 120
