"""sparse_attention: the call, its autograd, and the operators `torch.ops.smelt.sparse_attn*`.

Three ways lead to the same kernels. An eager call on plain tensors that was made before is the module's, which
launches it by itself, through _Node where gradients are wanted. Another goes to the kernels from here, through
_SparseAttention. Whatever looks into a program (torch.compile, export, FakeTensor, functorch, dispatch modes,
tensor subclasses, the profiler) meets the custom operators.

Between the functions here a call is two things: its seven input tensors, a tuple in the order of INPUTS,
and its Options.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from . import _native, _reference, _runtime
from ._checks import (
    BACKENDS,
    attended,
    choose,
    floating,
    integer,
    legal_scale,
    number,
    one_masked,
    optional_tensors,
    tensors,
    whole,
)
from ._eager import (
    autocast_type,
    for_operator,
    is_plain,
    last,
    launched,
    refuse_tangents,
    table,
    wants_gradients,
)
from ._library import define, library, refuse_derivatives

LOG2E = math.log2(math.e)
NEVER = float("-inf")
TOPK_STEP = 128  # a row's width is rounded up to it for topk, so that few kernels serve many widths
VALUE_WIDTHS = (64, 128, 256, 512)
FORWARD, BACKWARD, DETERMINISTIC = range(3)  # operators of a configuration
MOST_READY = 4096  # what _runtime.ready keeps

INPUTS = (
    "Tensor q, Tensor kv, Tensor indices, Tensor? topk_length, Tensor? sink, Tensor? queries, "
    "Tensor? query_count"
)
INPUT_NAMES = tuple(part.split()[-1] for part in INPUTS.split(","))
REQUIRED = INPUT_NAMES[:3]
INPUT_COUNT = len(INPUT_NAMES)
QUERIES = INPUT_NAMES.index("queries")


class Options(NamedTuple):
    """What a call says beside its tensors; the operators' schemas have the same order."""

    scale: float
    dv: int
    topk: int  # 0: by the width of the lists, which may be symbolic
    buckets: Sequence[int]  # (-1,): auto
    deterministic: bool | None
    dkv_dtype: torch.dtype | None
    free_multiprocessors: int
    workspace_limit: int
    backend: str


OPTIONS = (
    "float scale, int dv, int topk, int[] buckets, bool? deterministic, ScalarType? dkv_dtype, "
    "int free_multiprocessors, int workspace_limit, str backend"
)


def _spec(heads, dqk, dv, topk, sink, buckets, which):
    text = f"sparse_attn:heads={heads},dqk={dqk},dv={dv},topk={topk}"
    if sink:
        text += ",sink=1"
    if buckets:
        text += f",buckets={'auto' if buckets == (-1,) else '/'.join(map(str, buckets))}"
    if which != FORWARD:
        text += ",passes=backward"
    return text + (",deterministic=1" if which == DETERMINISTIC else "")


def value_width(dqk: int) -> int:
    """dv where it is not said: dqk, or dqk less the 64 columns of a rotary position."""
    return dqk if dqk in VALUE_WIDTHS else dqk - 64


def topk_for(width: int) -> int:
    """topk where it is not said: few kernels serve many widths."""
    return -(-width // TOPK_STEP) * TOPK_STEP if width else TOPK_STEP


def _buckets(buckets) -> tuple:
    if buckets is None:
        return ()
    if isinstance(buckets, str):
        if buckets != "auto":
            raise ValueError(f"smelt: buckets must be None, 'auto' or bounds, not {buckets!r}")
        return (-1,)
    if not isinstance(buckets, Iterable):
        raise TypeError(f"smelt: buckets must be None, 'auto' or bounds, not {buckets!r}")
    return tuple(whole(bound, "a bound of buckets") for bound in buckets)


def is_deterministic(asked) -> bool:
    return torch.are_deterministic_algorithms_enabled() if asked is None else bool(asked)


def _backward_pass(options) -> int:
    return DETERMINISTIC if is_deterministic(options.deterministic) else BACKWARD


def _operator(inputs, options, which, backend):
    """The operator, or None where the eager reference computes."""
    if backend == "torch":
        return None
    return _operators_of(inputs, options)[which] or _find(inputs, options, which, backend)


def _operators_of(inputs, options) -> list:
    """A configuration's operators, None where one was not called for yet."""
    q, kv, indices, _, sink, _, _ = inputs
    shape = _native.configuration(q, kv, indices)
    if shape is None:
        return [None, None, None]
    key = (shape, options.dv, options.topk, tuple(options.buckets), sink is None)
    found = _runtime.ready.get(key)
    if found is None:
        if len(_runtime.ready) >= MOST_READY:
            _runtime.ready.clear()
        found = _runtime.ready.setdefault(key, [None, None, None])
    return found


def _find(inputs, options, which, backend):
    q, kv, indices, _, sink, _, _ = inputs
    if q.dtype is not torch.bfloat16 or kv.dtype is not torch.bfloat16:
        reason = f"q and kv must be torch.bfloat16, not {q.dtype} and {kv.dtype}"
        return _runtime.refuse(reason, backend, TypeError)
    *_, heads, dqk = q.shape
    topk = options.topk or topk_for(indices.shape[-1])
    key = (heads, dqk, options.dv, topk, sink is not None, tuple(options.buckets), which)
    found = _runtime.find(q.get_device(), key, _spec, backend)
    if found is not None:
        _operators_of(inputs, options)[which] = found
    return found


# ---- the two passes, on plain tensors ---------------------------------------------------------------


def _results_made(inputs, want_max):
    """What a forward pass makes: out, lse and max_logits, filled where a list of queries leaves some out."""
    out, lse = (True, True) if inputs[QUERIES] is None else (0.0, NEVER)
    return out, lse, lse if want_max else None


def _forward(found, inputs, options, want_max):
    """out, lse, max_logits (or None) and the partition (or None)."""
    made = launched(
        found.forward,
        inputs,
        _results_made(inputs, want_max),
        (options.scale, options.free_multiprocessors),
    )
    return made[0], made[1], made[2] if want_max else None, made[-1]


def _backward(found, inputs, options, out, lse, grad_out, partition=None, dkv_sum=None):
    """dq, dkv and dsink (None without a sink)."""
    dq, dkv, dkv_fp32, _, dsink = _gradients_made(inputs, options)
    if dkv_sum is not None:
        dkv = dkv_fp32 = None
    grad_out = grad_out.to(torch.bfloat16)
    made = launched(
        found.backward,
        (*inputs, out, lse, grad_out),
        (dq, dkv, dkv_fp32, dkv_sum, partition, dsink),
        _backward_scalars(options),
    )
    if dkv_sum is None:
        return made[0], made[1], made[2] if dsink else None
    return made[0], dkv_sum, made[1] if dsink else None


def _gradients_made(inputs, options):
    """What a backward pass makes: dq, dkv of two types, dkv_sum, and dsink."""
    dq = True if inputs[QUERIES] is None else 0.0  # of queries that a list leaves out
    wide = options.dkv_dtype is torch.float32
    return dq, None if wide else True, True if wide else None, None, None if inputs[4] is None else True


def _backward_scalars(options):
    return options.scale, options.free_multiprocessors, options.workspace_limit


def _known(inputs, options, want_max):
    """What a call says beside its tensors, for the module, whose node does as _SparseAttention's."""
    results = INPUT_COUNT + 2 + bool(want_max)  # where what it returned last is: the partition
    return _native.Known(
        _operators_of(inputs, options),
        FORWARD,
        _results_made(inputs, want_max),
        (options.scale, options.free_multiprocessors),
        options,
        result=0,
        saved=(*range(INPUT_COUNT + 2), results),
        gradients=_gradients_made(inputs, options),
        backward_scalars=_backward_scalars(options),
        deterministic=-1 if options.deterministic is None else bool(options.deterministic),
    )


class _Call:
    """What a call with gradients brings beside q, kv and sink, and takes home beside out: neither passes
    through autograd, whose work grows with every argument and result. Its kv is what the kernels read."""

    __slots__ = ("inputs", "known", "lse", "max_logits", "want_max")


class _SparseAttention(torch.autograd.Function):
    """Of the calls that the module does not run by itself."""

    @staticmethod
    def forward(ctx, q, kv, sink, call):
        inputs, known = call.inputs, call.known
        out, call.lse, call.max_logits, partition = _forward(
            known.operators[FORWARD], inputs, known.options, call.want_max
        )
        ctx.save_for_backward(*inputs, out, call.lse, partition)
        ctx.known = known
        ctx.set_materialize_grads(False)
        return out

    @staticmethod
    def backward(ctx, grad_out):
        if not torch.is_grad_enabled():
            return _gradients(ctx, grad_out)
        with torch.no_grad():  # create_graph
            made = _gradients(ctx, grad_out)
        return last(made, *ctx.saved_tensors[:INPUT_COUNT], grad_out)


def _gradients(ctx, grad_out):
    if grad_out is None:
        return None, None, None, None
    *inputs, out, lse, partition = ctx.saved_tensors
    known, options = ctx.known, ctx.known.options
    if for_operator(grad_out):
        dq, dkv, dsink = _call_backward(grad_out, out, lse, *inputs, *options)
        return dq, dkv, None if inputs[4] is None else dsink, None
    which = _backward_pass(options)
    found = known.operators[which]
    if found is None:
        found = known.operators[which] = _find(inputs, options, which, "smelt")
    return *_backward(found, inputs, options, out, lse, grad_out, partition), None


# Function.apply without what it does for functorch: calls that functorch watches do not come here.
_apply = super(torch.autograd.Function, _SparseAttention).apply


class _Node(_SparseAttention):
    """Of those that it does; backward is what its backward function does not do."""

    forward = staticmethod(_native.node_forward)


# PyTorch's engine calls apply of a node's class; in Python that leads to backward.
if hasattr(getattr(_Node, "_backward_cls", None), "apply"):
    _native.take_backward(_Node._backward_cls)


# ---- the custom operators ---------------------------------------------------------------------------


def _split(arguments):
    """The inputs and the Options of an operator's arguments."""
    return arguments[:INPUT_COUNT], Options(*arguments[INPUT_COUNT:])


def listed(queries, query_count, tokens):
    """Which queries a query list names, of so many: bool."""
    count = queries.shape[0] if query_count is None else query_count.clamp(0, queries.shape[0])
    good = (
        (queries >= 0)
        & (queries < tokens)
        & (torch.arange(queries.shape[0], device=queries.device) < count)
    )
    named = torch.zeros(tokens + 1, dtype=torch.bool, device=queries.device)
    named[torch.where(good, queries.long(), tokens)] = True
    return named[:tokens]


def _reference_arguments(inputs, options):
    """Positional and by name."""
    q, kv, indices, topk_length, sink, _, _ = inputs
    topk = options.topk or topk_for(indices.shape[-1])
    return (q, kv, indices, options.scale, options.dv), {
        "topk_length": topk_length,
        "sink": sink,
        "topk": topk,
    }


def _reference_forward(inputs, options):
    attended(*inputs)
    legal_scale(options.scale)
    positional, named = _reference_arguments(inputs, options)
    out, lse, max_logits = _reference.sparse_attention(*positional, **named)
    *_, queries, query_count = inputs
    if queries is not None:
        named = listed(queries, query_count, lse[..., 0].numel())
        named = named.view(lse.shape[:-1]).unsqueeze(-1)
        out = torch.where(named.unsqueeze(-1), out, torch.zeros_like(out))
        lse = lse.masked_fill(~named, NEVER)
        max_logits = max_logits.masked_fill(~named, NEVER)
    return out, lse, max_logits


def _narrow(inputs, options):
    """The inputs as kernels read them: kv comes in fp32 where its gradient shall be (see _kv_of_autograd)."""
    q, kv, *others = inputs
    if options.dkv_dtype is torch.float32 and kv.dtype is torch.float32:
        kv = kv.to(q.dtype)
    return (q, kv, *others)


def _op_forward(*arguments):
    inputs, options = _split(arguments)
    inputs = _narrow(inputs, options)
    found = _operator(inputs, options, FORWARD, options.backend)
    if found is None:
        with torch.no_grad():
            return _reference_forward(inputs, options)
    return _forward(found, inputs, options, True)[:3]


def _fake_forward(*arguments):
    (q, *_), options = _split(arguments)
    rows = q.shape[:-1]
    return (
        q.new_empty((*rows, options.dv)),
        q.new_empty(rows, dtype=torch.float32),
        q.new_empty(rows, dtype=torch.float32),
    )


def _op_backward(grad_out, out, lse, *arguments):
    inputs, options = _split(arguments)
    inputs = _narrow(inputs, options)
    found = _operator(inputs, options, _backward_pass(options), options.backend)
    if found is not None:
        dq, dkv, dsink = _backward(found, inputs, options, out, lse, grad_out)
    else:
        *_, queries, query_count = inputs
        if queries is not None:
            named = listed(queries, query_count, lse[..., 0].numel())
            grad_out = grad_out * named.view(lse.shape[:-1])[..., None, None]
        positional, named = _reference_arguments(inputs, options)
        dq, dkv, dsink = _reference.sparse_attention_backward(grad_out, *positional, **named)
        dkv = dkv.to(options.dkv_dtype or inputs[1].dtype)
    return dq, dkv, dq.new_empty((0,), dtype=torch.float32) if dsink is None else dsink


def _fake_backward(grad_out, out, lse, *arguments):
    (q, kv, _, _, sink, _, _), options = _split(arguments)
    return (
        q.new_empty(q.shape),
        kv.new_empty(kv.shape, dtype=options.dkv_dtype or kv.dtype),
        q.new_empty((0,) if sink is None else sink.shape, dtype=torch.float32),
    )


def _op_backward_sum(grad_out, out, lse, dkv_sum, *arguments):
    inputs, options = _split(arguments)
    found = _operator(inputs, options, _backward_pass(options), options.backend)
    dq, _, dsink = _backward(found, inputs, options, out, lse, grad_out, dkv_sum=dkv_sum)
    return dq, dq.new_empty((0,), dtype=torch.float32) if dsink is None else dsink


def _fake_backward_sum(grad_out, out, lse, dkv_sum, *arguments):
    dq, _, dsink = _fake_backward(grad_out, out, lse, *arguments)
    return dq, dsink


def _keep(ctx, inputs, output):
    given, ctx.options = _split(inputs)
    out, lse, max_logits = output
    ctx.mark_non_differentiable(lse, max_logits)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*given, out, lse)


def _op_gradients(ctx, grad_out, _lse, _max_logits):
    none = (None,) * (INPUT_COUNT + len(Options._fields))
    if grad_out is None:
        return none
    *inputs, out, lse = ctx.saved_tensors
    dq, dkv, dsink = _call_backward(grad_out, out, lse, *inputs, *ctx.options)
    return dq, dkv, None, None, None if inputs[4] is None else dsink, *none[5:]


_call = define(
    f"sparse_attn({INPUTS}, {OPTIONS}) -> (Tensor out, Tensor lse, Tensor max_logits)",
    _op_forward,
    _fake_forward,
)
_call_backward = define(
    f"sparse_attn_backward(Tensor grad_out, Tensor out, Tensor lse, {INPUTS}, {OPTIONS}) -> "
    "(Tensor dq, Tensor dkv, Tensor dsink)",
    _op_backward,
    _fake_backward,
)
_call_backward_sum = define(
    "sparse_attn_backward_sum(Tensor grad_out, Tensor out, Tensor lse, Tensor(a!) dkv_sum, "
    f"{INPUTS}, {OPTIONS}) -> (Tensor dq, Tensor dsink)",
    _op_backward_sum,
    _fake_backward_sum,
)
torch.library.register_autograd(
    "smelt::sparse_attn", _op_gradients, setup_context=_keep, lib=library
)
refuse_derivatives("sparse_attn_backward", "sparse_attention")


# ---- the call ---------------------------------------------------------------------------------------


def _check_shapes(inputs, dv):
    """What the kernels' own checks do not see, because others compute."""
    q, kv, indices, topk_length, sink, _, _ = inputs
    if q.dim() not in (3, 4) or indices.dim() != q.dim() - 1 or kv.dim() != q.dim() - 1:
        raise ValueError(
            f"smelt: q must be [T, H, dqk] or [B, T, H, dqk], kv and indices of one dimension less, "
            f"not of {q.dim()}, {kv.dim()} and {indices.dim()}"
        )
    if indices.dtype is not torch.int32:
        raise TypeError(f"smelt: indices must be torch.int32, not {indices.dtype}")
    if kv.shape[-1] != q.shape[-1]:
        raise ValueError(f"smelt: kv has rows of {kv.shape[-1]}, q of {q.shape[-1]}")
    if q.shape[:-2] != indices.shape[:-1] or q.shape[:-3] != kv.shape[:-2]:
        raise ValueError(
            f"smelt: shapes do not fit: q {tuple(q.shape)}, kv {tuple(kv.shape)}, indices "
            f"{tuple(indices.shape)}"
        )
    if topk_length is not None and topk_length.shape != indices.shape[:-1]:
        raise ValueError(
            f"smelt: topk_length must be {tuple(indices.shape[:-1])}, not "
            f"{tuple(topk_length.shape)}"
        )
    if sink is not None and sink.shape != q.shape[-2:-1]:
        raise ValueError(f"smelt: sink must be [{q.shape[-2]}], not {tuple(sink.shape)}")
    if not 0 < dv <= q.shape[-1]:
        raise ValueError(f"smelt: dv must be 1 to {q.shape[-1]}, not {dv}")


def _refuse_types(inputs):
    for name, value in zip(INPUT_NAMES, inputs):
        if not isinstance(value, Tensor) and (value is not None or name in REQUIRED):
            kind = "torch.Tensor" if name in REQUIRED else "torch.Tensor or None"
            raise TypeError(f"smelt: {name} must be a {kind}, not {type(value).__name__}")


def _prepared(inputs, autocast=True):
    """The inputs checked, and as kernels want them: of autocast's type, the sink in fp32, a masked slot
    where a list has none."""
    q, kv, indices, topk_length, sink, queries, query_count = inputs
    if not (
        isinstance(q, Tensor)
        and isinstance(kv, Tensor)
        and isinstance(indices, Tensor)
        and (topk_length is None or isinstance(topk_length, Tensor))
        and (sink is None or isinstance(sink, Tensor))
        and (queries is None or isinstance(queries, Tensor))
        and (query_count is None or isinstance(query_count, Tensor))
    ):
        _refuse_types(inputs)
    kind = autocast_type(q) if autocast else None
    if kind is not None:
        q, kv = q.to(kind), kv.to(kind)
    if q.dim() not in (3, 4) or not indices.dim():
        raise ValueError(
            f"smelt: q must be [T, H, dqk] or [B, T, H, dqk], not of {q.dim()} dimensions, indices [T, width] "
            f"or [B, T, width], not of {indices.dim()}"
        )
    if sink is not None:
        floating(sink=sink)
        sink = sink.float()
    if indices.shape[-1] == 0:
        indices = one_masked(indices)
    return q, kv, indices, topk_length, sink, queries, query_count


_calls = table((2, 0, 1, 0, 0, 0, 0), (0, 1, 4), _Node, casts=True)


def _kv_of_autograd(given, inputs, options):
    """What autograd takes for kv. PyTorch rounds a gradient to the type of what it is the gradient of: one in
    fp32 is there alone where it is that of kv in fp32, before autocast."""
    kv = given[1]
    wide = options.dkv_dtype is torch.float32 and kv.dtype is torch.float32
    return kv if wide else inputs[1]


def _run(known, inputs, want_max, kv):
    """out, lse and max_logits (or None) of plain tensors; `kv`: _kv_of_autograd."""
    q, read, *others = inputs
    sink = inputs[4]
    if kv is not read:
        inputs = (q, read.detach(), *others)
    if not wants_gradients(q, kv, sink):
        return _forward(known.operators[FORWARD], inputs, known.options, want_max)[:3]
    call = _Call()
    call.known, call.inputs, call.want_max = known, inputs, want_max
    out = _apply(q, kv, sink, call)
    return out, call.lse, call.max_logits


def _run_operator(inputs, options):
    _check_shapes(inputs, options.dv)
    return _call(*inputs, *options)


def _look_through(given, said):
    """A call that the module does not run by itself: not made before, or of no common kind."""
    inputs = _prepared(given)
    scale, dv, topk, buckets, deterministic, dkv_dtype, free, limit, backend, want_max = said
    scale = number(scale, "scale")
    choose(backend, "backend", BACKENDS)
    if dkv_dtype is not None:
        choose(dkv_dtype, "dkv_dtype", (torch.bfloat16, torch.float32))
    q, _, _, _, sink, _, _ = inputs
    refuse_tangents(q, inputs[1], sink)
    dv = value_width(q.shape[-1]) if dv is None else whole(dv, "dv")
    topk = 0 if topk is None else whole(topk, "topk")
    bounds = _buckets(buckets)
    integer(limit, "workspace_limit", 64)  # which the backward pass alone looks at
    options = Options(scale, dv, topk, bounds, deterministic, dkv_dtype, free, limit, backend)
    kv = _kv_of_autograd(given, inputs, options)
    if not is_plain(*inputs):
        return _run_operator((q, kv, *inputs[2:]), options)
    found = _operator(inputs, options, FORWARD, options.backend)
    if found is None:
        _check_shapes(inputs, options.dv)
        return _reference_forward(inputs, options)
    known = _known(inputs, options, want_max)
    known.operators[FORWARD] = found  # which is not kept of tensors that have no address, say
    if all(one is two for one, two in zip(given, inputs)):
        _calls.remember(*given, said, known)
    return _run(known, inputs, want_max, kv)


def sparse_attention(
    q: Tensor,
    kv: Tensor,
    indices: Tensor,
    scale: float,
    *,
    dv: int | None = None,
    topk: int | None = None,
    topk_length: Tensor | None = None,
    sink: Tensor | None = None,
    buckets: str | Sequence[int] | None = None,
    deterministic: bool | None = None,
    return_lse: bool = False,
    return_max_logits: bool = False,
    lse: str = "natural",
    dkv_dtype: torch.dtype | None = None,
    queries: Tensor | None = None,
    query_count: Tensor | None = None,
    free_multiprocessors: int = 0,
    workspace_limit: int = 0,
    backend: str = "auto",
) -> Tensor | tuple[Tensor, ...]:
    """Attention of each query to its own list of KV rows: `out`, or a tuple of it and what was asked for.

    ::

        q        [T, H, dqk] or [B, T, H, dqk]   bf16
        kv       [S, dqk]    or [B, S, dqk]      bf16, a row is key and, in its first dv columns, value
        indices  [T, width]  or [B, T, width]    int32; slots outside 0..S-1 (-1, say) are masked
        out      [.., T, H, dv]                  bf16
        lse      [.., T, H]                      fp32, ln sum exp(scale * q.k), without the sink;
                                                 -inf for a query without a valid slot, whose out is 0

    A packed batch of documents is the form without B: indices are row numbers of the whole batch.
    Strides are passed on; a tensor is copied only where its last dimension is not contiguous or its
    rows do not begin at multiples of 16 bytes.

    dv: width of a value (default: dqk if that is 64, 128, 256 or 512, else dqk - 64).
    topk: the most valid slots of a query (default: the width rounded up to a multiple of 128). With
        buckets rows may be wider: of more valid slots the first `topk` count.
    topk_length: [.., T] int32, slots of a query that count. sink: [H], a logit in the denominator.
    buckets: None, "auto" or bounds; see docs/operators.md.
    deterministic: dkv's sums in a fixed order; None: as torch.use_deterministic_algorithms says. All
        else has the same bits in every run anyway.
    return_lse, return_max_logits: also return these; `lse` "natural" or "base2" (log2 sum 2^..). They
        take no gradient.
    dkv_dtype: in what the backward pass hands out kv's gradient: torch.bfloat16 or torch.float32. PyTorch
        rounds it to kv's type: fp32 is worth its memory where kv is in fp32 and autocast casts it, or
        where kv's gradient is declared to be in fp32 (kv.grad_dtype, or ctx.set_output_grad_dtype of the
        Function that made kv, in the PyTorch versions that have them).
    queries, query_count: compute only these queries (b * T + t); the others' out is 0, lse -inf.
    free_multiprocessors, workspace_limit: see smelt/sparse_attn.h.
    backend: "smelt" raises where no kernel can be had, "torch" is the eager reference, "auto" takes it
        where there is no kernel, with one warning that says why.

    Under torch.autocast fp32 and fp16 inputs are cast. Raises TypeError, ValueError, RuntimeError.
    """
    if type(buckets) is list:  # a call is known by what has a hash
        buckets = tuple(buckets)
    inputs = (q, kv, indices, topk_length, sink, queries, query_count)
    said = (
        scale,
        dv,
        topk,
        buckets,
        deterministic,
        dkv_dtype,
        free_multiprocessors,
        workspace_limit,
        backend,
        return_max_logits,
    )
    found = None if torch.compiler.is_compiling() else _calls.run(*inputs, said)
    out, sums, highest, *_ = _look_through(inputs, said) if found is None else found
    if not return_lse and not return_max_logits:
        return out
    results = [out]
    if return_lse:
        choose(lse, "lse", ("natural", "base2"))
        results.append(sums if lse == "natural" else sums * LOG2E)
    if return_max_logits:
        results.append(highest)
    return tuple(results)


_backward_calls = table((2, 0, 1, 0, 0, 0, 0, 1, 0, 0))


def sparse_attention_backward(
    grad_out: Tensor,
    q: Tensor,
    kv: Tensor,
    indices: Tensor,
    out: Tensor,
    lse: Tensor,
    scale: float,
    *,
    topk: int | None = None,
    topk_length: Tensor | None = None,
    sink: Tensor | None = None,
    buckets: str | Sequence[int] | None = None,
    deterministic: bool | None = None,
    dkv_dtype: torch.dtype | None = None,
    dkv_sum: Tensor | None = None,
    queries: Tensor | None = None,
    query_count: Tensor | None = None,
    free_multiprocessors: int = 0,
    workspace_limit: int = 0,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The gradients dq, dkv and dsink (None without a sink), for programs that do without autograd.

    dq [.., T, H, dqk] bf16, dkv [.., S, dqk] in dkv_dtype (bf16 where it is None), dsink [H] fp32.
    grad_out [.., T, H, dv] is out's gradient, `out` and `lse` (natural, without the sink) are the
    forward's, the rest is as sparse_attention has it. `dkv_sum`: fp32 [.., S, dqk] that is added to, and
    returned as dkv. Runs where sparse_attention's backend is "smelt", and raises what that does.
    """
    if type(buckets) is list:  # a call is known by what has a hash
        buckets = tuple(buckets)
    inputs = (q, kv, indices, topk_length, sink, queries, query_count)
    mode = is_deterministic(deterministic)
    said = (scale, topk, buckets, mode, dkv_dtype, free_multiprocessors, workspace_limit)
    if dkv_sum is None and not torch.compiler.is_compiling():
        found = _backward_calls.run(*inputs, out, lse, grad_out, said)
        if found is not None:
            return found[0], found[1], None if sink is None else found[2]
    given, inputs = inputs, _prepared(inputs, False)
    tensors(grad_out=grad_out, out=out, lse=lse)
    optional_tensors(dkv_sum=dkv_sum)
    if dkv_dtype is not None:
        legal = (torch.bfloat16, torch.float32) if dkv_sum is None else (torch.float32,)
        choose(dkv_dtype, "dkv_dtype" if dkv_sum is None else "dkv_dtype with dkv_sum", legal)
    if out.dim() != q.dim():
        raise ValueError(f"smelt: out must be of {q.dim()} dimensions as q is, not {out.dim()}")
    floating(grad_out=grad_out)
    options = Options(
        number(scale, "scale"),
        out.shape[-1],
        0 if topk is None else whole(topk, "topk"),
        _buckets(buckets),
        deterministic,
        dkv_dtype,
        free_multiprocessors,
        workspace_limit,
        "smelt",
    )
    if not is_plain(*inputs, grad_out, out, lse, dkv_sum):
        given = (grad_out, out, lse, *(() if dkv_sum is None else (dkv_sum,)), *inputs, *options)
        if dkv_sum is None:
            dq, dkv, dsink = _call_backward(*given)
        else:
            (dq, dsink), dkv = _call_backward_sum(*given), dkv_sum
        return dq, dkv, None if sink is None else dsink
    which = _backward_pass(options)
    found = _operator(inputs, options, which, "smelt")
    if dkv_sum is None and all(one is two for one, two in zip(given, inputs)):
        *made, dsink = _gradients_made(inputs, options)
        known = _native.Known(
            _operators_of(inputs, options),
            which,
            (*made, None, dsink),  # without a partition
            _backward_scalars(options),
            pass_number=1,
        )
        grad_out = grad_out.to(torch.bfloat16)
        _backward_calls.remember(*given, out, lse, grad_out, said, known)
    with torch.no_grad():
        return _backward(found, inputs, options, out, lse, grad_out, dkv_sum=dkv_sum)
