"""Every drop-in of smelt.compat, by the tables in compat_cases_*.py: arithmetic compared with the original's
definition, the effect of each parameter, integers beyond int32, output tensors, shapes."""

import contextlib
import inspect
import itertools
import re
import sys

import pytest
import smelt_kernels as smelt
import smelt_kernels.compat
import torch
from compat_cases import cotangent
from compat_cases_attention import ATTENTION
from compat_cases_indexer import IK, INDEXER
from smelt_kernels.compat import _conventions, _cudnn_dense, _cudnn_hca

CASES = ATTENTION | INDEXER
ERRORS = (TypeError, ValueError, NotImplementedError, RuntimeError)  # raised by smelt's checks
NASTY = (-(2**63), 2**63 - 1, 2**32, 2**40, -(2**33) + 2, 2**32 + 1, 2**31, -(2**31) - 1)


@pytest.fixture(autouse=True)
def eager_where_there_is_no_kernel(request):
    before = smelt.set_backend("auto" if "that the kernels lack" in request.node.name else "smelt")
    yield
    smelt.set_backend(before)


every_case = pytest.mark.parametrize("name", CASES)
# Results whose type differs from `result_type`.
TYPES = {
    "slime.indexer_bwd_interface": {"dk": torch.float32}, "slime.SGLangSparseMLA.apply": {"lse": torch.bfloat16},
    "miles.batched_indexer_bwd": {"dk": torch.float32}, "slime.generate_varlen_mask_params": {"ends": torch.int64},
    "cudnn.compress_topk_cand_buffer_size_thd": {"begin": torch.int64},
    "cudnn.dense_attn_score_recompute_wrapper": {"out": torch.float32},
    "cudnn.dense_indexer_score_recompute_wrapper": {"out": torch.float32},
}  # fmt: skip
ALIKE = {"d_index_q": "index_q", "d_weights": "weights", "d_index_k": "index_k", "values": "input_values"}


def of(name):
    return CASES[name]


def module_of(case):
    return sys.modules[case.call.__module__] if inspect.isfunction(case.call) else None


def moved(value, device):
    if isinstance(value, tuple):
        return tuple(moved(each, device) for each in value)
    if not isinstance(value, torch.Tensor):
        return value
    return value.clone() if value.device.type == device.type else value.to(device)


def run(case, device, **changes):
    """Results by name, on the CPU, with gradients of leaves. Arguments must not change."""
    given = {key: moved(value, device) for key, value in {**case.given, **changes}.items()}
    leaves = [given[leaf].requires_grad_() for leaf in case.leaves]
    made = case.call(**given)
    if isinstance(made, dict):
        results = {key: value for key, value in made.items() if value is not None}
    else:
        names = names_of(case)
        made = made if isinstance(made, tuple) else (made,)
        results = dict(itertools.zip_longest(names if len(made) <= len(names) else MORE[case.call], made))
    if leaves:
        first = next(iter(results.values()))
        finite = first.isfinite()
        grad = cotangent(first).to(first) * finite
        grads = torch.autograd.grad(first.where(finite, 0.0), leaves, grad)
        results |= {f"grad_{leaf}": grad for leaf, grad in zip(case.leaves, grads)}
    for key, value in {**case.given, **changes}.items():
        if isinstance(value, torch.Tensor) and not key.endswith("_out"):
            assert torch.equal(given[key].detach().cpu(), value), f"{key} was written into"
    return {
        key: (value.detach() if isinstance(value, torch.Tensor) else torch.tensor(value)).cpu()
        for key, value in results.items()
    }


# Names of results, for calls whose tuples are longer with some arguments.
MORE = {
    smelt.compat.flash_mla.flash_mla_sparse_fwd: ("out", "max_logits", "lse", "lse_indexer"),
    smelt.compat.miles.sparse_attn_tilelang: ("out", "lse"),
}


KEPT = {}  # expected and actual results of a case of the table


def wanted(case, **changes):
    if changes:
        return case.want(case.arguments(**changes))
    if (id(case), "want") not in KEPT:
        KEPT[id(case), "want"] = case.want(case.arguments())
    return KEPT[id(case), "want"]


def names_of(case):
    return [key for key in wanted(case) if not key.startswith("grad_")]


def usual(case, device):
    """Results with the table's arguments."""
    if (id(case), "got") not in KEPT:
        KEPT[id(case), "got"] = run(case, device)
    return KEPT[id(case), "got"]


def result_type(name, key, case):
    named = TYPES.get(name.split(",")[0], {})
    if key in named:
        return named[key]
    if key.startswith("grad_"):
        return case.given[key[5:]].dtype
    if key in ALIKE:
        return case.given[ALIKE[key]].dtype
    if key in ("out", "dq", "dkv", "dk"):
        return torch.bfloat16
    return torch.int32 if key in ("indices", "topk_length", "starts", "ends") else torch.float32


def check(got, want, key):
    assert got.shape == want.shape, f"{key}: {tuple(got.shape)}, not {tuple(want.shape)}"
    if not got.is_floating_point():
        assert torch.equal(got.long(), want.long()), f"{key}: {got.tolist()}, not {want.tolist()}"
        return
    rounded = got.dtype is torch.bfloat16 or key.startswith(("grad_", "d_")) or key in ("dq", "dkv", "dk", "dw")
    got, want = got.double(), want.double()
    finite = want.isfinite()
    assert torch.equal(got[~finite], want[~finite]), f"{key}: infinite elsewhere"
    got, want = got[finite], want[finite]
    largest = float(want.abs().max()) if len(want) else 0.0
    error = (got - want).abs()
    if rounded:
        share = 0.03 if "sink" in key else 0.012  # a sum in which products of rounded outputs cancel each other
        assert float(error.norm()) <= share * float(want.norm()) + 1e-9, f"{key}: {got} {want}"
        assert bool((error <= 0.04 * largest + 1e-9).all()), key
        assert key != "out" or bool((error <= 5e-3 * largest + 3.01 / 128 * want.abs()).all()), key
    elif key in ("lse", "max_logits", "lse_indexer"):
        assert bool((error <= (2.01 / 65536 * want.abs()).clamp(min=2e-6)).all()), f"{key}: {got} {want}"
    else:
        assert bool((error <= 1e-3 * want.abs() + 1e-5 * max(1.0, largest)).all()), f"{key}: {got} {want}"


def check_all(got, want):
    assert set(got) == set(want)
    for key in want:
        check(got[key], want[key], key)


def same(one, two):
    return set(one) == set(two) and all(
        one[key].dtype is two[key].dtype and torch.equal(one[key], two[key]) for key in one
    )


def tensors_of(case):
    return [key for key, value in case.given.items() if isinstance(value, torch.Tensor)]


# ---- the table has everything -----------------------------------------------------------------------


NO_KERNEL = {
    "nemo.is_dsa_kernel_available", "nemo.should_use_tilelang", "prime_rl.fp8_indexer_full",
    "xtuner.ensure_tilelang_runtime_available",
}  # fmt: skip


def drop_ins():
    for module_name in sorted({*smelt.compat._MODULES} - {"flash_msa"}):  # which test_flash_msa.py compares
        module = getattr(smelt.compat, module_name)
        ours = getattr(module, "__all__", None) or [
            key for key, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__
        ]
        for key in ours:
            value = getattr(module, key)
            name = f"{module_name}.{key}" + (".apply" if isinstance(value, type) else "")
            if not key.startswith("_") and name not in NO_KERNEL:
                yield name, value.apply if isinstance(value, type) else value


def test_every_drop_in_and_every_parameter_is_in_the_table():
    """A parameter is a tensor that is read, or one of whose effects the table says something. None is a page or a block
    of rows: lists name rows."""
    known = {}
    for name, case in CASES.items():
        said = {*case.given, *case.outputs, *case.changes, *case.tuning}
        known.setdefault(name.split(",")[0], set()).update(said)
    for name, call in drop_ins():
        parameters = set(inspect.signature(call).parameters) - {"stream"}
        assert parameters <= known.get(name, set()), f"{name}: {parameters - known.get(name, set())}"
        assert not parameters & {"block_size", "page_size", "block_table", "granularity"}
    for name, case in CASES.items():
        integers = [key for key in tensors_of(case) if case.given[key].dtype is torch.int32]
        assert (
            name.endswith("mask_params")
            or "buffer" in name
            or set(integers) == {*case.lists, *case.bounds}
            or (name.endswith(", delta"))
        ), name


# ---- arithmetic --------------------------------------------------------------------------------------


@every_case
def test_definition(name, device):
    """Values and types equal the original's, and no argument is changed."""
    case = of(name)
    got = usual(case, device)
    check_all(got, wanted(case))
    for key, value in got.items():
        assert key in ("elements",) or value.dtype is result_type(name, key, case), f"{key}: {value.dtype}"


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if hasattr(module_of(case), "CHUNK_BYTES")])
def test_in_chunks(name, device, monkeypatch):
    """Small chunks of queries give the same results."""
    case = of(name)
    changes = {"max_seqlen_k": 3} if "max_seqlen_k" in case.changes else {}
    base = outcome(case, device, **changes)
    monkeypatch.setattr(module_of(case), "CHUNK_BYTES", 2 * 4 * len(IK[0]))
    got = outcome(case, device, **changes)
    assert got == base if isinstance(base, str) else same(got, base)


@every_case
def test_parameters(name, device):
    """Another value of an argument gives the original's result, which differs, or is refused."""
    case = of(name)
    base = usual(case, device)
    for parameter, value in case.changes.items():
        try:
            got = run(case, device, **{parameter: value})
        except ERRORS as error:
            assert "smelt: " in str(error), f"{parameter}: {error}"
            continue
        assert not same(got, base), f"{parameter}={value} is passed over"
        check_all(got, wanted(case, **{parameter: value}))
    if case.tuning:
        check_all(run(case, device, **case.tuning), wanted(case))


def otherwise(value, key, case):
    """A changed tensor that should give different results."""
    if isinstance(value, tuple):
        return tuple(otherwise(each, key, case) if each is not None else None for each in value)
    if value.dtype is torch.bool:
        return ~value
    if key in case.lists:
        return torch.where(value < 0, value, (value + 1) % (int(value.max()) + 1))
    if value.is_floating_point():
        return (value.float() * -1.5).to(value.dtype)
    first = value.flatten()[0] == 0 and key.startswith("cu_")  # of these differences count
    return value - torch.arange(value.numel()).clamp(max=1).view(value.shape).int() if first else value - 1


def outcome(case, device, **changes):
    try:
        return run(case, device, **changes)
    except ERRORS as error:
        return str(error)


def differs(one, two):
    """Different by more than test_definition's tolerance."""
    try:
        check_all({key: value.float() for key, value in one.items()}, two)
    except AssertionError:
        return True
    return False


@every_case
def test_every_tensor_is_read(name, device):
    """The definition depends on each tensor, so that test_definition detects one that is ignored; or the results do."""
    case = of(name)
    for key, value in case.given.items():
        if not isinstance(value, (torch.Tensor, tuple)) or key == "bucket_sizes":
            continue
        other = {key: otherwise(value, key, case)}
        try:
            if differs(wanted(case, **other), wanted(case)):
                continue
        except (IndexError, RuntimeError):  # of shapes, say, that the definition does not look at
            pass
        got = outcome(case, device, **other)
        assert isinstance(got, str) or same(got, usual(case, device)) == (key in case.unread), f"{key} is passed over"


# ---- integers ----------------------------------------------------------------------------------------


@every_case
def test_lists_of_int64(name, device):
    """An int64 slot beyond int32 is masked, not truncated."""
    case = of(name)
    for key in case.lists:
        given = case.given[key]
        lists, masked = given.long(), (given < 0) | (given >= case.rows)
        assert bool(masked.any()), key
        lists = lists.masked_scatter(masked, torch.tensor(NASTY * 8)[: int(masked.sum())])
        got = outcome(case, device, **{key: lists})
        if isinstance(got, str):
            assert f"smelt: {key} must be torch.int32, not torch.int64" in got
            continue
        for result, value in got.items():
            if value.dtype is torch.int64:  # the lists themselves
                assert torch.equal(value, lists)
            else:
                assert torch.equal(value, usual(case, device)[result]), result


@every_case
def test_bounds_of_int64(name, device):
    """A length or a bound beyond int32 is clamped."""
    case = of(name)
    for key in case.bounds:
        given = case.given[key]
        for index, value in ((-1, 2**32 + 1), (0, 3 - 2**32)):
            wide, narrow = given.long(), given.clone()
            wide.view(-1)[index] = value
            narrow.view(-1)[index] = 2**31 - 1 if value > 0 else -(2**31)
            one = outcome(case, device, **{key: wide})
            if isinstance(one, str) and "must be torch.int32, not torch.int64" in one:
                break
            two = outcome(case, device, **{key: narrow})
            assert isinstance(one, str) == isinstance(two, str), f"{key} {value}: {one}, {two}"
            if isinstance(one, str):
                assert "smelt: " in one
            else:
                assert same(one, two), f"{key} {value}"
                if not key.startswith("cu_seqlens"):  # of so many queries the definition makes a tensor
                    check_all(two, wanted(case, **{key: narrow}))


@every_case
def test_lists_of_floats(name, device):
    case = of(name)
    for key in case.lists + case.bounds:
        with pytest.raises(ERRORS, match="smelt: "):
            run(case, device, **{key: case.given[key].float()})


def test_conversion(device):
    given = torch.tensor([*NASTY, -1, 5, 2**31 - 1], device=device)
    whole = _conventions.slots("x", given)
    assert whole.tolist() == [-1] * 9 + [5, 2**31 - 1] and whole.dtype is torch.int32
    whole = _conventions.bounds("x", given)
    assert whole.tolist() == [max(-(2**31), min(2**31 - 1, each)) for each in given.tolist()]
    for kind in (torch.int64, torch.int32):  # which has nothing for a host to wait for
        assert _conventions.slots("x", given.to("meta", kind)).dtype is torch.int32
    small = torch.tensor([-1, 7], dtype=torch.int8)
    assert _conventions.slots("x", small).tolist() == [-1, 7]
    with pytest.raises(TypeError, match="x must be of an integer type, not torch.float32"):
        _conventions.slots("x", small.float())


# ---- tensors to write into ---------------------------------------------------------------------------


OUTPUTS = [(name, key) for name, case in CASES.items() for key in case.outputs]


def one_memory(case, shape, dtype, device):
    """All tensors of a call in one buffer, with an output at its beginning."""
    size = torch.empty(shape, dtype=dtype).nbytes
    offsets, end = {}, 0
    for key in tensors_of(case):
        offsets[key] = end
        end += -(-case.given[key].nbytes // 64) * 64
    memory = torch.empty(max(end, size), dtype=torch.uint8, device=device)
    given = {}
    for key, offset in offsets.items():
        like = case.given[key]
        given[key] = memory[offset : offset + like.nbytes].view(like.dtype).view(like.shape).copy_(like)
    return given, memory[:size].view(dtype).view(shape)


@pytest.mark.parametrize(("name", "key"), OUTPUTS)
def test_outputs(name, key, device):
    """An output tensor of the right shape, type and device gets the complete result; others are refused by name before
    anything is written."""
    case = of(name)
    result, *types = case.outputs[key]
    base = usual(case, device)
    shape, dtype = base[result].shape, base[result].dtype

    def call(given, **others):
        arguments = {each: moved(value, device) for each, value in case.given.items()}
        return case.call(**{**arguments, **others, key: given})

    def as_usual(found):
        """The usual call's bits or, for gradients with an unspecified order of summation on a GPU, correct values."""
        if not torch.equal(found, base[result]):
            assert device.type == "cuda" and result in ("dkv", "d_kv")
            check(found, wanted(case)[result], result)

    for good in (dtype, *types):
        memory = torch.full(shape, 77, dtype=good, device=device)
        assert call(memory).get(result, memory) is memory, "another tensor is handed out"
        check(memory.cpu(), wanted(case)[result], result)
    memory = torch.full((*shape, 2), 77, dtype=dtype, device=device)
    call(memory[..., 0])
    as_usual(memory[..., 0].cpu())
    assert bool((memory[..., 1] == 77).all())
    others, memory = one_memory(case, shape, dtype, device)
    call(memory, **others)
    as_usual(memory.cpu())  # also where inputs lie in the memory that is written
    other = torch.float16 if dtype is torch.bfloat16 else torch.bfloat16
    wrong = [torch.full((3, *shape), 77, dtype=dtype, device=device)]
    wrong += [torch.full((*shape[:-1], shape[-1] + more), 77, dtype=dtype, device=device) for more in (1, -1)]
    wrong += [torch.full((*shape, 1), 77, dtype=dtype, device=device), torch.full((1,), 77, dtype=dtype, device=device)]
    wrong += [torch.full(shape, 77, dtype=each, device=device) for each in (torch.int64, torch.int16, other)]
    wrong += [torch.full(shape, 77, dtype=torch.float64, device=device)]
    wrong += [torch.full((*shape[:-1], 1), 77, dtype=dtype, device=device).expand(shape)]
    for bad in wrong:
        with pytest.raises((ValueError, TypeError), match=f"smelt: {key} (must be|is expanded)") as error:
            call(bad)
        assert bool((bad == 77).all()), "a tensor that is refused was written into"
        assert "expanded" in str(error.value) or str(list(shape)) in str(error.value)
    with pytest.raises(ValueError, match=f"smelt: {key} must be .* on {device.type}.* on meta"):
        call(torch.empty(shape, dtype=dtype, device="meta"))
    with pytest.raises(TypeError, match=f"smelt: {key} must be a torch.Tensor, not list"):
        call([1.0])


def test_outputs_share_no_memory(device):
    case = of("cudnn.indexer_forward_top_k_wrapper")
    memory = torch.empty(usual(case, device)["logits"].shape, device=device)
    given = {key: moved(value, device) for key, value in case.given.items()}
    with pytest.raises(ValueError, match="smelt: softmax_out and out_logits share memory"):
        case.call(**given, out_logits=memory, softmax_out=memory)


# ---- shapes ------------------------------------------------------------------------------------------


def reshaped(case, key, dimensions):
    """Arguments where one tensor has so many dimensions, in all possible forms."""
    given = case.given[key]
    if dimensions == given.dim() + 1:
        yield {key: given.unsqueeze(-2)}
        yield {key: given.unsqueeze(-1)}
        yield {each: case.given[each].unsqueeze(0) for each in tensors_of(case)}
    elif dimensions == given.dim() - 1:
        yield {key: given.squeeze(-2)}
        yield {key: given.squeeze(-1)}
        yield {each: case.given[each][0] for each in tensors_of(case)}


@every_case
def test_dimensions(name, device):
    """A tensor with too many or too few dimensions is refused; the numbers in the message are legal."""
    case = of(name)
    for key in tensors_of(case):
        given = case.given[key]
        wrong = [given[None, None, None], given.flatten()[0]]
        tried_before = set()
        of_any_rows = ("cudnn.compactify", "cudnn.local_to_global")
        if given.dim() > 1 and given.shape[0] != given.shape[1] and not name.startswith(of_any_rows):
            wrong.append(given.transpose(0, 1))
        for bad in wrong:
            found = outcome(case, device, **{key: bad})
            if not isinstance(found, str):
                assert given.numel() == 1 or key in ("query_indices", *case.unread), f"{key} {bad.shape}"
                continue
            assert "smelt: " in found, f"{key}: {found}"
            stated = re.search(r"(\w+) must have (\d(?: or \d)*) dimensions, not (\d)", found)
            if not stated or stated[1] != key or bad.dim() == given.dim():
                continue
            legal = [int(each) for each in stated[2].split(" or ")]
            assert given.dim() in legal and bad.dim() == int(stated[3]) not in legal
            for dimensions in set(legal) - {given.dim()} - tried_before:
                tried_before.add(dimensions)
                tried = [outcome(case, device, **each) for each in reshaped(case, key, dimensions)]
                assert any(not isinstance(each, str) for each in tried), f"{key}: {found}; {tried}"


# ---- what the emulator cannot show -------------------------------------------------------------------


@every_case
def test_work_goes_onto_the_stream(name, device, monkeypatch):
    """Work runs on a given stream, and the previous stream is restored."""
    case = of(name)
    parameter = {"stream", "current_stream"} & {*inspect.signature(case.call).parameters}
    if not parameter:
        return
    entered = []

    @contextlib.contextmanager
    def on_stream(stream):
        entered.append(stream)
        yield
        entered.append("left")

    for module in (smelt.compat.cudnn, _cudnn_dense, _cudnn_hca):
        monkeypatch.setattr(module, "on_stream", on_stream)
    run(case, device, **{parameter.pop(): 17})
    assert entered == [17, "left"]


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "deterministic" in case.tuning])
def test_deterministic_reaches_the_kernels(name, device, monkeypatch):
    """The same bits in every run (on the emulator always)."""
    case, seen = of(name), []
    for module, call in itertools.product(
        (smelt.compat.cudnn, _cudnn_dense), ("indexer_backward", "sparse_attention_backward")
    ):
        original = getattr(module, call, None)

        def spy(*given, original=original, **named):
            seen.append(named["deterministic"])
            return original(*given, **named)

        if original is not None:
            monkeypatch.setattr(module, call, spy)
    run(case, device, deterministic=True)
    assert all(seen) and (bool(seen) or "top_k" in name)  # whose choice always has the same bits
    del seen[:]
    run(case, device)
    assert not any(seen)
