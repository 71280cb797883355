"""Every public function with all of its arguments, for tests of the whole package. test_every_argument_is_here fails if
a function or an argument is missing."""

import inspect

import smelt_kernels as smelt
import torch
from conftest import Problem

REFUSALS = (TypeError, ValueError, RuntimeError, OverflowError, AttributeError, MemoryError)
# Without tensors among their arguments.
NOT_CALLS = {"SmeltWarning", "get_backend", "kernels", "presets", "set_backend", "stats", "warm"}


DIFFERENTIABLE = {
    "sparse_attention": ("q", "kv"), "indexer_scores": ("q", "k", "weights"), "indexer_topk": ("q", "k", "weights"),
    "indexer_loss": ("logits",), "indexer_dense_loss": ("index_q", "index_k", "index_weights"),
    "project_values": ("out", "weight"), "fake_quantize": ("x",), "sparse_gqa": ("q", "k", "v"),
}  # fmt: skip


def arguments_of_all(device):
    """{function: its arguments}, small ones; every function that takes tensors."""
    made = torch.Generator().manual_seed(3)

    def normal(*shape, dtype=torch.bfloat16):
        return torch.randn(*shape, generator=made).to(device, dtype)

    def numbers(*values):
        return torch.tensor(values, dtype=torch.int32, device=device)

    problem = Problem(device, tokens=2, grad=False)
    out, lse = problem.run(return_lse=True)
    attention = {"q": problem.q, "kv": problem.kv, "indices": problem.indices, "scale": problem.scale}
    optional = {"topk_length": None, "sink": None, "topk": None, "queries": None, "dv": 128}
    q, k, weights = normal(2, 2, 64), normal(4, 64), normal(2, 2, dtype=torch.float32)
    lists = numbers([0, 1, -1], [3, 2, 1])
    logits, window = normal(2, 4, dtype=torch.float32), (numbers(0, 0), numbers(2, 4))
    scored = {"q": q, "k": k, "weights": weights, "window_begin": window[0], "window_end": window[1]}
    target = normal(2, 3, dtype=torch.float32).softmax(1)
    windows = {"window_begin": window[0], "window_end": window[1]}
    dense = {"q": normal(2, 4, 64), "k": normal(4, 2, 64), **windows, "scale": 0.1}
    indexer = {"index_q": q, "index_k": k, "index_weights": weights}
    return {
        "sparse_attention": {**attention, **optional, "buckets": None, "query_count": None},
        "sparse_attention_backward": {
            "grad_out": problem.grad_out, "out": out, "lse": lse, **attention, "dkv_sum": None, "sink": None,
        },
        "sparse_scores": {**attention, **optional, "lse": lse},
        "indexer_windows": {"cu_seqlens": numbers(0, 1, 2), "tokens": 2, "rows": 4, "ratio": 1},
        "quantize": {"x": k, "factor": None},
        "fake_quantize": {"x": normal(4, 64)},
        "indexer_logits": scored,
        "clean_logits_": {"logits": logits, "window_begin": window[0], "window_end": window[1]},
        "topk_select": {"logits": logits, "topk": 2, "window_begin": None, "offset": None},
        "indexer_topk": {**scored, "topk": 2, "k_scale": None, "offset": None, "index_offset": 0},
        "indexer_scores": {"q": q, "k": k, "weights": weights, "indices": lists},
        "indexer_backward": {
            "grad": normal(2, 3, dtype=torch.float32), "q": q, "k": k, "weights": weights, "indices": lists,
            "topk_length": None, "limit": None,
        },
        "indexer_loss": {
            "logits": normal(2, 3, dtype=torch.float32), "target": target, "indices": lists, "rows": 4, "weight": None,
            "query_weight": 1.0,
        },
        "dense_lse": dense,
        "indexer_dense_loss": {
            **dense, "lse": normal(2, 4, dtype=torch.float32), **indexer, "weight": None, "query_weight": 1.0,
        },
        "project_values": {"out": normal(2, 3, 64), "weight": normal(3, 32, 64)},
        "indexed_attention": {
            "q": problem.q, "kv": problem.kv[:4], "index_q": q, "index_k": k, "index_weights": weights,
            "window_begin": window[0], "window_end": window[1], "topk": 2, "scale": problem.scale, "sink": None,
        },
        "selection_difference": {"a": lists, "b": lists.flip(1)},
        "sparse_gqa": {
            **{"q": normal(2, 4, 64), "k": normal(4, 2, 64), "v": normal(4, 2, 64), "indices": lists.unsqueeze(1)},
            **{"scale": 0.1, "granularity": 1, "topk_length": None, "limit": None, "sink": None, "queries": None},
        },
        "sparse_gqa_scores": {
            **{"q": normal(2, 4, 64), "k": normal(4, 2, 64), "indices": lists.unsqueeze(1), "scale": 0.1},
            **{"lse": normal(2, 4, dtype=torch.float32), "granularity": 1, "topk_length": None, "limit": None},
        },
    }  # fmt: skip


WITHOUT_BACKEND = {"project_values", "selection_difference", "sparse_attention_backward"}


def call(name, arguments):
    if name not in WITHOUT_BACKEND:
        arguments = {"backend": "smelt", **arguments}
    return getattr(smelt, name)(**arguments)


def tensors_of(result):
    return [each for each in (result if isinstance(result, tuple) else (result,)) if isinstance(each, torch.Tensor)]


def fresh(arguments):
    """Copies, so that a call's writes do not affect the next one."""
    return {name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in arguments.items()}


def with_leaves(name, arguments):
    given = fresh(arguments)
    for each in DIFFERENTIABLE[name]:
        given[each].requires_grad_()
    return given


def floats_of(result):
    return next(each for each in tensors_of(result) if each.requires_grad)


# Another legal value of each argument that is not a tensor, by name.
OTHER_VALUES = {
    "activation": "none", "ascending": True, "backend": "torch", "block_max": 2, "buckets": "auto",
    "candidate_block": 4, "causal_limit": 4, "deterministic": True, "dk_dtype": torch.float32,
    "dkv_dtype": torch.float32, "dv": 64, "dv_dtype": torch.float32, "expand": 2, "free_multiprocessors": 1,
    "granularity": 4, "group_size": 16, "groups": 2, "index_offset": 5, "logits_dtype": torch.bfloat16, "lse": "base2",
    "order": "score", "pinned": 1, "publish": 2, "publish_block": 2, "publish_pinned": 1, "query_weight": 0.5,
    "ratio": 2, "return_losses": True, "return_lse": True, "return_max_logits": True, "rows": 3, "scale": 0.3,
    "tail": False, "tokens": 1, "topk": 3, "unite": False, "width": 9, "workspace_limit": 1 << 20,
}  # fmt: skip
# Exceptions for functions where that value is not legal.
OTHER_VALUES_OF = {
    ("sparse_attention", "topk"): 64, ("sparse_attention_backward", "topk"): 64, ("sparse_scores", "topk"): 64,
    ("quantize", "scale"): "power_of_two", ("fake_quantize", "scale"): "power_of_two",
}  # fmt: skip


def functions():
    return sorted(set(smelt.__all__) - NOT_CALLS)


def parameters(name):
    """{argument: whether it is a tensor}."""
    signature = inspect.signature(getattr(smelt, name))
    return {
        each.name: str(each.annotation).removeprefix("torch.").split(" |")[0] == "Tensor"
        for each in signature.parameters.values()
    }


def bases(device):
    """{label: (function, its arguments)}: with required tensors only, and with all."""
    plain = arguments_of_all(device)
    found = {
        name: (name, {each: value for each, value in given.items() if value is not None})
        for name, given in plain.items()
    }

    def numbers(*values):
        return torch.tensor(values, dtype=torch.int32, device=device)

    def add(label, name, **more):
        found[label] = name, {**found[name][1], **more}

    attention = {
        "topk_length": numbers(7, 4), "sink": torch.tensor([0.5, -1.0, 2.0], device=device),
        "queries": numbers(1, 0, 1), "query_count": numbers(2),
    }  # fmt: skip
    add("sparse_attention, all", "sparse_attention", **attention, return_lse=True, return_max_logits=True)
    add("sparse_attention, buckets", "sparse_attention", buckets=(4,), return_lse=True)
    kv = plain["sparse_attention"]["kv"]
    total = torch.ones(kv.shape, device=device)
    add("sparse_attention_backward, all", "sparse_attention_backward", **attention)
    add("sparse_attention_backward, sum", "sparse_attention_backward", **attention, dkv_sum=total)
    add("sparse_scores, all", "sparse_scores", **attention)
    bounds = plain["indexer_windows"]["cu_seqlens"]
    add(
        "indexer_windows, all", "indexer_windows", cu_seqlens_padded=bounds + 0, cu_seqlens_keys=bounds * 2,
        causal_offset=numbers(1, 0), query_indices=numbers(1, 0),
    )  # fmt: skip
    add("quantize, all", "quantize", factor=torch.tensor([0.5, 1.0, 2.0, 3.0], device=device))
    add("fake_quantize, all", "fake_quantize", group_size=32)
    pools = {"expand": 2, "limit": numbers(5, 9), "tail": True}
    for name in ("indexer_logits", "indexer_topk"):
        given = plain[name]
        eight = {each: given[each].to(torch.float8_e4m3fn) for each in ("q", "k")}
        scales = torch.tensor([0.5, 1.0, 2.0, 3.0], device=device)
        more = {"offset": numbers(3, 8)} if name == "indexer_topk" else {}
        add(f"{name}, all", name, **eight, k_scale=scales, **more)
        if more:
            add(f"{name}, offset", name, **more, index_offset=2)
            add(f"{name}, pools", name, **pools, **more, pinned=1, publish=2, publish_block=2, publish_pinned=1)
        add(f"{name}, candidates", name, candidates=numbers([0, -1], [0, 1]), candidate_block=2)
        blocks = {"activation": "none", "scale": 0.5, "groups": 2, "block_max": 2}
        add(f"{name}, blocks", name, **{**blocks, "weights": None})
    window = plain["indexer_logits"]
    add(
        "topk_select, all", "topk_select", window_begin=window["window_begin"], window_end=window["window_end"],
        offset=numbers(3, 8),
    )  # fmt: skip
    logits = plain["topk_select"]["logits"].unsqueeze(1).expand(-1, 2, -1).bfloat16()
    add("topk_select, pools", "topk_select", **{**pools, "groups": 2, "logits": logits})
    grouped = {**attention, "sink": torch.tensor([0.5, -1.0, 2.0, 0.0], device=device), "limit": numbers(3, 4)}
    grouped["topk_length"] = numbers([2], [3])
    add("sparse_gqa, all", "sparse_gqa", **grouped, unite=True, return_lse=True)
    add("sparse_gqa_scores, all", "sparse_gqa_scores", **grouped)
    weight = torch.tensor([0.5, 2.0], device=device)
    more = {"sink": attention["sink"], "weight": weight}
    add("indexed_attention, all", "indexed_attention", **more, **pools, offset=numbers(0, 0))
    add("indexed_attention, candidates", "indexed_attention", candidates=numbers([0, -1], [0, 1]), candidate_block=2)
    lengths = numbers(2, 3)
    add("indexer_scores, all", "indexer_scores", topk_length=lengths, limit=numbers(3, 4))
    add("indexer_backward, all", "indexer_backward", topk_length=lengths, limit=numbers(3, 4))
    add("indexer_loss, all", "indexer_loss", topk_length=lengths, weight=weight, return_losses=True)
    add("indexer_dense_loss, all", "indexer_dense_loss", weight=weight, return_losses=True, groups=2, block_max=2)
    return found


def fullest(found, name):
    """(label, arguments) of the function's set with the most tensors."""

    def tensors(item):
        return sum(isinstance(value, torch.Tensor) for value in item[1].values())

    return max(((label, given) for label, (of, given) in found.items() if of == name), key=tensors)


def other_value(name, parameter):
    return OTHER_VALUES_OF.get((name, parameter), OTHER_VALUES[parameter])


def gradient_of(given, result):
    """Gradients by autograd with respect to the differentiable arguments that require one."""
    out = next(each for each in (result if isinstance(result, tuple) else (result,)) if each.requires_grad)
    leaves = [value for value in given.values() if isinstance(value, torch.Tensor) and value.requires_grad]
    made = torch.Generator().manual_seed(5)
    grad = torch.randn(out.shape, generator=made).to(out.device, out.dtype)
    return torch.autograd.grad(out, leaves, grad)


def has_fp8(arguments):
    return any(isinstance(value, torch.Tensor) and value.dtype is torch.float8_e4m3fn for value in arguments.values())


def differentiable(name, arguments):
    """The arguments that may have gradients."""
    if has_fp8(arguments):
        return ()
    if "block_max" in arguments:
        return ()  # the values of such a choice have no gradients
    return tuple(
        each for each in (*DIFFERENTIABLE.get(name, ()), "sink") if each in arguments and name in DIFFERENTIABLE
    )
