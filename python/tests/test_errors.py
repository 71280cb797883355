"""Bad input gives TypeError, ValueError or RuntimeError with a message that names the argument and what is legal."""

import pytest
import smelt_kernels as smelt
import torch
from conftest import Problem
from everything import arguments_of_all, call
from smelt_kernels import _runtime


# A function, the argument, its value (a function of the legal one), and the error. test_arguments.py has every argument's
# other types.
BAD = [
    ("sparse_attention", "q", lambda q: q.half(), TypeError, "bfloat16"),
    ("sparse_attention", "q", lambda q: q[0], ValueError, r"\[T, H, dqk\] or \[B, T, H, dqk\]"),
    ("sparse_attention", "kv", lambda kv: kv.float(), TypeError, "bfloat16"),
    ("sparse_attention", "kv", lambda kv: kv[:, :64], ValueError, r"kv \(dqk\) is 64, but must be 128"),
    ("sparse_attention", "kv", lambda kv: kv.unsqueeze(0), ValueError, r"kv must be \[S, dqk\], not of 3"),
    ("sparse_attention", "kv", lambda kv: kv.to("meta"), ValueError, "some are on meta|must be a CPU|must be on device"),
    ("sparse_attention", "indices", lambda lists: lists.long(), TypeError, "indices must be torch.int32, not torch.int64"),
    ("sparse_attention", "indices", lambda lists: lists[1:], ValueError, "dimension 0 of indices"),
    ("sparse_attention", "sink", lambda _: torch.zeros(2), ValueError, "dimension 0 of sink"),
    ("sparse_attention", "sink", 1.0, TypeError, "sink must be a torch.Tensor or None"),
    ("sparse_attention", "scale", float("nan"), ValueError, "scale"),
    ("sparse_attention", "scale", "0.1", TypeError, "scale must be a number, not str"),
    ("sparse_attention", "scale", torch.ones(2), TypeError, "scale must be a number, not Tensor"),
    ("sparse_attention", "topk", 4, ValueError, "width"),
    ("sparse_attention", "topk", -4, ValueError, "topk must be positive"),
    ("sparse_attention", "topk", "all", TypeError, "topk must be an int"),
    ("sparse_attention", "dv", 100, RuntimeError, "dv"),
    ("sparse_attention", "buckets", "all", ValueError, "buckets must be"),
    ("sparse_attention", "buckets", [5, 3], RuntimeError, "bucket"),
    ("sparse_attention", "buckets", 7, TypeError, "buckets must be None, 'auto' or bounds, not 7"),
    ("sparse_attention", "backend", "cuda", ValueError, "backend must be one of"),
    ("sparse_attention", "dkv_dtype", torch.float16, ValueError, "dkv_dtype must be one of"),
    ("sparse_attention", "free_multiprocessors", -1, ValueError, "free_multiprocessors"),
    ("sparse_attention", "free_multiprocessors", 0.5, TypeError, "free_multiprocessors must be an int, not .*float"),
    ("sparse_attention", "free_multiprocessors", 1 << 70, ValueError, "free_multiprocessors is out of"),
    ("sparse_gqa", "granularity", 3, ValueError, "granularity must be one of"),
    ("sparse_gqa", "indices", lambda lists: lists.expand(-1, 3, -1).contiguous(), ValueError, "1 list or 2"),
    ("sparse_gqa", "v", lambda v: v[:-1], ValueError, r"dimension 0 of v \(S\)"),
    ("indexer_logits", "q", lambda q: q.half(), TypeError, "q must be torch.bfloat16 or torch.float8_e4m3fn, not .*float16"),
    ("indexer_logits", "q", lambda q: q[0], ValueError, r"q must be \[T, H, D\]"),
    ("indexer_logits", "k_scale", lambda _: torch.zeros(4), ValueError, "k_scale goes with"),
    ("indexer_windows", "causal_offset", lambda _: torch.zeros(3).int(), ValueError, "causal_offset"),
    ("topk_select", "topk", 0, ValueError, "topk"),
    ("topk_select", "topk", 20000, RuntimeError, "topk"),
    ("topk_select", "topk", 1 << 31, ValueError, "topk must be positive and below 2.31"),
    ("topk_select", "order", "none", ValueError, "order must be one of"),
    ("topk_select", "window_begin", lambda _: torch.zeros(2).int(), ValueError, "window"),
    ("quantize", "x", lambda x: x.float(), TypeError, "x must be torch.bfloat16, not torch.float32"),
    ("indexer_loss", "target", lambda each: each[:, :2], ValueError, r"dimension 1 of target \(width\) is 2, but must be 3"),
    ("indexer_loss", "target", lambda each: each.double(), TypeError, "target must be torch.float32"),
    ("indexer_dense_loss", "scale", -1.0, ValueError, "scale"),
    ("indexer_dense_loss", "query_weight", 0.0, ValueError, "query_weight"),
    ("indexer_dense_loss", "lse", lambda lse: lse[:, :2], ValueError, "lse"),
    ("indexed_attention", "index_k", lambda k: k[:3], ValueError, "index_k must have as many rows as kv"),
    ("indexed_attention", "q", lambda q: q[:1], ValueError, "index_q must be of as many queries as q|indices"),
    ("indexed_attention", "q", lambda q: q[None], ValueError, r"q must be \[T, H, dqk\]|dimensions"),
    ("indexed_attention", "topk", 0, ValueError, "topk must be positive"),
    ("sparse_attention_backward", "dkv_sum", lambda _: torch.zeros(11, 128).bfloat16(), TypeError, "dkv_sum"),
    ("clean_logits_", "logits", lambda each: each[:1], ValueError, "window|logits"),
]


@pytest.mark.parametrize("name,written", [("clean_logits_", "logits"), ("sparse_attention_backward", "dkv_sum")])
def test_autograd_knows_what_is_written(device, name, written):
    """A backward pass that needs the overwritten values is refused, and so is a tensor whose gradient would be wrong."""
    given = arguments_of_all(device)[name]
    if given[written] is None:
        given[written] = torch.zeros(given["kv"].shape, device=device)
    for backend in ("smelt", "torch") if name == "clean_logits_" else ("smelt",):
        options = {"backend": backend} if name == "clean_logits_" else {}
        factor = torch.ones_like(given[written]).requires_grad_()
        product = given[written] * factor
        getattr(smelt, name)(**given, **options)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            product.sum().backward()
        with pytest.raises(ValueError, match=f"{written} is written.* requires a gradient"):
            getattr(smelt, name)(**{**given, written: factor}, **options)
        with torch.no_grad():
            getattr(smelt, name)(**{**given, written: factor}, **options)
        with torch.inference_mode():
            getattr(smelt, name)(**{**given, written: given[written].clone()}, **options)


SCALED = ("sparse_attention", "sparse_scores", "sparse_gqa", "sparse_gqa_scores", "dense_lse", "indexer_dense_loss")
SAID_BY_BOTH = {"sparse_gqa", "indexer_logits", "indexer_loss", "indexed_attention"}  # kernels and the eager reference


@pytest.mark.parametrize("name,argument,value,kind,message", BAD, ids=[f"{each[0]}, {each[1]}" for each in BAD])
def test_bad_arguments(device, name, argument, value, kind, message):
    given = arguments_of_all(device)[name]
    value = value(given.get(argument)) if callable(value) else value
    value = value.to(device) if isinstance(value, torch.Tensor) and not value.is_meta else value
    for backend in ("smelt", "torch") if name in SAID_BY_BOTH else ("smelt",):
        with pytest.raises(kind, match=message):
            call(name, {**given, **({"backend": backend} if backend == "torch" else {}), argument: value})


@pytest.mark.parametrize("name", SCALED)
@pytest.mark.parametrize("backend", ["smelt", "torch"])
def test_scales_that_no_kernel_takes(device, name, backend):
    """An error with every backend."""
    given = {**arguments_of_all(device)[name], "backend": backend}
    for scale in (0, -1.0, float("nan"), float("inf"), 3e38):
        with pytest.raises(ValueError, match="must be positive and at most 2e"):
            call(name, {**given, "scale": scale})


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
