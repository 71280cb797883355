"""smelt.compat.install and uninstall, with stand-ins for trainers and libraries (compat_layouts.py)."""

import functools
import importlib
import logging
import pickle
import sys
import types

import compat_layouts as layouts
import pytest
import smelt_kernels as smelt
import smelt_kernels.compat
import torch
from conftest import Problem, check_grad, check_out, check_sums
from smelt_kernels.compat import _install
from smelt_kernels.compat._trainers import TRAINERS

TILELANG = {"tilelang": "from . import language\n", "tilelang.language": ""}


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Writes modules to a folder from which Python imports; removes them afterwards."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(modules):
        packages = {path.rpartition(".")[0] for path in modules} | {""}
        for path, source in {**dict.fromkeys(packages, ""), **modules}.items():
            parts = path.split(".") if path else []
            for count in range(1, len(parts)):
                folder = tmp_path.joinpath(*parts[:count])
                folder.mkdir(exist_ok=True)
                (folder / "__init__.py").touch()
            if path in packages or any(other.startswith(path + ".") for other in modules):
                tmp_path.joinpath(*parts).mkdir(exist_ok=True)
                (tmp_path.joinpath(*parts) / "__init__.py").write_text(source)
            else:
                tmp_path.joinpath(*parts).with_suffix(".py").write_text(source)
        importlib.invalidate_caches()

    yield write
    smelt.compat.uninstall()
    for name in set(sys.modules) - before:
        if not name.startswith(("smelt_kernels", "torch", "sympy")):  # sympy: PyTorch holds its classes
            del sys.modules[name]


def found(path):
    """The object at a path of modules, names and attributes."""
    parts = path.split(".")
    for count in range(len(parts) - 1, 0, -1):
        try:
            holder = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError as error:
            if not ".".join(parts).startswith(error.name or " "):
                raise
            continue
        return functools.reduce(getattr, parts[count:], holder)
    raise ModuleNotFoundError(path)


def ours(path):
    return functools.reduce(getattr, path.split("."), smelt.compat)


def is_ours(value, path):
    original = ours(path)
    return original in value.__mro__[1:] if isinstance(value, type) else getattr(value, "__wrapped__", None) is original


def is_smelts(value):
    """Whether a value is smelt's."""
    return hasattr(value, "__wrapped__") or any(
        each.__module__.startswith("smelt_kernels.") for each in getattr(value, "__mro__", ())
    )


def libraries(needs=""):
    return {path: source.replace("{0}", needs) for path, source in layouts.LIBRARIES.items()}


@pytest.mark.parametrize("trainer", layouts.TRAINERS)
@pytest.mark.parametrize("order", ["before", "after"])
@pytest.mark.parametrize("there", [True, False], ids=["with TileLang", "without"])
def test_trainers(written, trainer, order, there):
    """install before or after the trainer's import, with the kernels' requirements or without; twice; then
    uninstall."""
    written({**layouts.TRAINERS[trainer], **(TILELANG | libraries() if there else {})})
    wanted = layouts.OURS[trainer]
    if order == "after":
        for path in wanted:
            try:
                found(path)
            except (ModuleNotFoundError, AttributeError):  # without the kernels' requirements
                assert not there
    first = smelt.compat.install(trainer)
    for path, ours_path in wanted.items():
        assert is_ours(found(path), ours_path), path
    for path in layouts.THEIRS_STILL[trainer]:
        assert not is_smelts(found(path)), path
    again = smelt.compat.install(trainer)
    assert {*first.replaced} <= {*again.replaced} and not again.held
    values = {path: found(path) for path in wanted}
    assert smelt.compat.install(trainer) == again and values == {path: found(path) for path in wanted}
    assert not there or not again.without

    kept = smelt.compat.uninstall(trainer)
    assert _install._finder not in sys.meta_path and not _install._sites and not _install._without
    if there:
        assert not kept
        for path in wanted:
            assert not is_smelts(found(path)), path
    for path in {path for path in TRAINERS[trainer].kernels} & set(layouts.TRAINERS[trainer]):
        if not there and "import tilelang" in layouts.TRAINERS[trainer][path]:
            with pytest.raises(ModuleNotFoundError, match="tilelang"):
                importlib.import_module(path)


@pytest.mark.parametrize("order", ["before", "after"])
def test_flags(written, order):
    """Flags that trainers set during their import."""
    written({**layouts.TRAINERS["nemo"], **layouts.TRAINERS["megatron"]})
    nemo = f"{layouts.NEMO}.glm_moe_dsa"

    def state():
        """Flags of TileLang, and whether cuDNN is available."""
        kernels = found(f"{nemo}.optimized_kernels.is_dsa_kernel_available"), found(f"{nemo}.kernels._tilelang")
        v4 = found(f"{layouts.NEMO}.deepseek_v4.optimized_kernels.HAS_TILELANG")
        dsa = [importlib.import_module(f"{layouts.MEGATRON}.{name}") for name in ("indexer", "sparse_mla")]
        have = dsa[0].HAVE_TILELANG_INDEXER, dsa[1].HAVE_TILELANG_SPARSE_MLA
        flags = {kernels[0]("indexer"), kernels[1].HAS_TILELANG, v4, *have}
        cudnn = [f"{layouts.NEMO}.common.cudnn_sparse_attention.is_cudnn_sparse_attention_available"]
        cudnn = [found(each)() for each in (*cudnn, f"{nemo}.optimized_kernels.is_cudnn_dsa_available")]
        assert cudnn[0] is cudnn[1]
        return flags, cudnn[0]

    if order == "after":
        assert state() == ({False}, False)
    smelt.compat.install("nemo")
    smelt.compat.install("megatron")
    assert state() == ({True}, True)
    attention = found(f"{nemo}.optimized_kernels.cudnn_sparse_attention")()
    choice = found(f"{nemo}.optimized_kernels.cudnn_indexer_topk")()
    assert is_ours(attention[0], "flash_mla.flash_mla_sparse_fwd")
    dsa = smelt.compat.cudnn
    assert (attention[1], *choice) == (
        dsa.sparse_attention_backward_wrapper,
        dsa.indexer_forward_wrapper,
        dsa.indexer_top_k_wrapper,
    )
    kept = smelt.compat.uninstall()
    if order == "after":
        assert state() == ({False}, False) and not kept
    else:  # it imported smelt's FlashMLA, which Megatron's install includes
        both = f"{layouts.NEMO}.common.cudnn_sparse_attention", f"{nemo}.kernels.cudnn_dsa"
        assert state() == ({False}, True) and sorted(kept) == [f"{each}._FLASH_MLA_SPARSE_FWD" for each in both]


# ---- libraries -------------------------------------------------------------------------------------------


def test_libraries_that_are_not_installed(written):
    report = smelt.compat.install("flash_mla", "cudnn", "deep_gemm")
    assert not report.replaced and {"flash_mla", "cudnn", "deep_gemm"} < {*report.waiting}
    from cudnn.deepseek_sparse_attention.sparse_attention_backward import sparse_attention_backward_wrapper
    from deep_gemm import fp8_fp4_mqa_logits
    from flash_mla import flash_mla_sparse_fwd

    assert is_ours(flash_mla_sparse_fwd, "flash_mla.flash_mla_sparse_fwd")
    assert is_ours(fp8_fp4_mqa_logits, "deep_gemm.fp8_fp4_mqa_logits")
    assert is_ours(sparse_attention_backward_wrapper, "cudnn.sparse_attention_backward_wrapper")
    from cudnn import DSA, aligned_hca_backward_wrapper

    assert is_ours(aligned_hca_backward_wrapper, "cudnn.aligned_hca_backward_wrapper")
    for name in smelt.compat.cudnn.__all__:
        assert is_ours(getattr(DSA, name), f"cudnn.{name}")
        assert is_ours(found(f"{layouts.CUDNN}.{name}"), f"cudnn.{name}")
    with pytest.raises(AttributeError, match="no replacement for its SparseAttentionBackward"):
        DSA.SparseAttentionBackward  # noqa: B018
    with pytest.raises(ImportError, match="flash_mla_with_kvcache"):
        from flash_mla import flash_mla_with_kvcache  # noqa: F401
    with pytest.raises(AttributeError, match="flash_mla has no get_mla_metadata.*not installed"):
        sys.modules["flash_mla"].get_mla_metadata  # noqa: B018
    with pytest.raises(ModuleNotFoundError, match="cudnn.sdpa"):
        import cudnn.sdpa  # noqa: F401
    assert "flash_mla" in smelt.compat.install("flash_mla").without
    smelt.compat.uninstall()
    for name in ("flash_mla", "cudnn", "deep_gemm", layouts.CUDNN):
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(name)


@pytest.mark.parametrize("order", ["before", "after"])
@pytest.mark.parametrize("needs", ["", "import cutlass\n"], ids=["whole", "without CuTe DSL"])
def test_libraries_that_are_installed(written, order, needs):
    """Other attributes do not change; modules imported later are replaced, too, and restored."""
    written(libraries(needs))
    backward = f"{layouts.CUDNN}.sparse_attention_backward"
    if order == "after":
        namespace = importlib.import_module("cudnn").DSA
        if not needs:
            original = importlib.import_module(backward).sparse_attention_backward_wrapper
            assert namespace.sparse_attention_backward_wrapper is original
    smelt.compat.install("cudnn", "flash_mla", "deep_gemm")
    cudnn, module = importlib.import_module("cudnn"), importlib.import_module(backward)
    assert cudnn.graph() == "cudnn" and type(cudnn.DSA).__name__ == "DSANamespace"
    assert order == "before" or cudnn.DSA is namespace
    assert is_ours(module.sparse_attention_backward_wrapper, "cudnn.sparse_attention_backward_wrapper")
    for name in smelt.compat.cudnn.__all__:
        assert is_ours(getattr(cudnn.DSA, name), f"cudnn.{name}"), name
    assert is_ours(cudnn.aligned_hca_backward_wrapper, "cudnn.aligned_hca_backward_wrapper")
    for path in ("flash_mla.flash_mla_interface", "flash_mla"):
        assert is_ours(found(f"{path}.flash_mla_sparse_fwd"), "flash_mla.flash_mla_sparse_fwd")
    assert is_ours(found("deep_gemm.fp8_mqa_logits"), "deep_gemm.fp8_mqa_logits")
    if not needs:
        assert cudnn.DSA.SparseAttentionBackward.__module__ == f"{backward}.api"
        assert is_ours(
            found(f"{backward}.api.sparse_attention_backward_wrapper"), "cudnn.sparse_attention_backward_wrapper"
        )
        assert found("flash_mla.get_mla_metadata")() == "flash_mla.flash_mla_interface"
        assert found("deep_gemm.fp8_gemm_nt")() == "deep_gemm"
    assert not smelt.compat.uninstall()
    if needs:
        with pytest.raises(ModuleNotFoundError, match="cutlass"):
            cudnn.DSA.sparse_attention_backward_wrapper  # noqa: B018
        return
    assert cudnn.DSA.sparse_attention_backward_wrapper() == f"{backward}.api"
    assert cudnn.DSA.indexer_forward_wrapper() == f"{layouts.CUDNN}.indexer_forward"
    assert found("flash_mla.flash_mla_sparse_fwd")() == "flash_mla.flash_mla_interface"
    assert found("deep_gemm.fp8_mqa_logits")() == "deep_gemm"
    with pytest.raises(AttributeError):
        cudnn.DSA.compactify_wrapper  # noqa: B018


def test_a_library_from_before_it_had_these_calls(written):
    """cuDNN Frontend without DSA."""
    written({"cudnn": layouts.plain("graph"), "cudnn.ops": ""})
    smelt.compat.install("cudnn")
    assert is_ours(found("cudnn.DSA.indexer_top_k_wrapper"), "cudnn.indexer_top_k_wrapper")
    assert is_ours(found(f"{layouts.CUDNN}.indexer_top_k.compactify_wrapper"), "cudnn.compactify_wrapper")
    smelt.compat.uninstall()
    assert found("cudnn.graph")() == "cudnn" and not hasattr(sys.modules["cudnn"], "DSA")


# ---- who else has the functions --------------------------------------------------------------------------


def test_imported_by_name(written, caplog):
    """References that were imported before, by any name; references that cannot be replaced are reported."""
    kernels = f"{layouts.SLIME}.ops"
    script = f"""
import functools
from {kernels}.tilelang_sparse_mla_bwd import sparse_mla_bwd as backward
from {kernels}.tilelang_indexer_fwd import indexer_fwd_interface as forward
from {kernels}.tilelang_indexer_fwd import clean_logits_
from {kernels}.sparse_mla import SparseMLA
"""
    holders = """
from script import backward, forward

later = functools.partial(forward, 1) if (functools := __import__("functools")) else None
REGISTRY = {"tilelang": backward}
EVERY = [backward]


class Layer:
    attend = staticmethod(backward)
    backward = backward


def decorated(call=backward):
    def inner():
        return call()

    return inner


inner = decorated()
"""
    written({**layouts.TRAINERS["slime"], **TILELANG, "script": script, "holders": holders})
    found("script.backward")
    report = smelt.compat.install("slime")
    assert "script.backward" in report.replaced and "script.forward" in report.replaced and not report.held
    assert is_ours(found("script.backward"), "slime.sparse_mla_bwd")
    assert is_ours(found("script.forward"), "slime.indexer_fwd_interface")
    assert not is_smelts(found("script.clean_logits_"))
    found("holders.REGISTRY")  # gets ours
    assert not smelt.compat.uninstall()
    assert found("script.backward")() == f"{kernels}.tilelang_sparse_mla_bwd"
    assert found("holders.backward") is found("script.backward")

    del sys.modules["holders"]  # gets theirs
    found("holders.REGISTRY")
    with caplog.at_level(logging.WARNING, "smelt_kernels.compat"):
        report = smelt.compat.install("slime")
    assert is_ours(found("holders.backward"), "slime.sparse_mla_bwd")
    for where in (
        "a dict, under the key 'tilelang',",
        "a list",
        "holders.Layer.backward",
        "a closure",
        "a staticmethod",
    ):
        assert any(
            held.startswith(where + " still holds the original") and "sparse_mla_bwd" in held for held in report.held
        )
    assert any(held.startswith("a partial") and "indexer_fwd_interface" in held for held in report.held)
    assert {record.getMessage() for record in caplog.records} == {f"smelt: {held}" for held in report.held}
    assert "not replaced: a list still holds" in str(report)


def test_later_imports_are_logged(written, caplog):
    written({**layouts.TRAINERS["slime"], **TILELANG})
    report = smelt.compat.install("slime")
    path = f"{layouts.SLIME}.ops.tilelang_sparse_mla_bwd"
    assert path in report.waiting and f"replaced when it is imported: {path}" in str(report)
    with caplog.at_level(logging.INFO, "smelt_kernels.compat"):
        importlib.import_module(path)
    assert [record.getMessage() for record in caplog.records] == [f"smelt: replaced {path}.sparse_mla_bwd"]
    report = smelt.compat.install("slime")
    assert path not in report.waiting and f"{path}.sparse_mla_bwd" in report.replaced
    spec = sys.modules[path].__spec__
    assert type(spec.loader).__name__ == "SourceFileLoader" and sys.modules[path].__loader__ is spec.loader


def test_each_has_its_own(written):
    """Trainers that vendor the same kernels are restored one by one; functions pickle by their modules' names."""
    written({**layouts.TRAINERS["slime"], **layouts.TRAINERS["miles"], **TILELANG, **libraries()})
    smelt.compat.install("miles", "slime", "xtuner", "cudnn")
    names = [f"{package}.ops.sparse_mla.sparse_mla_bwd" for package in (layouts.SLIME, f"{layouts.MILES}.glm5")]
    for name in names:
        assert is_ours(found(name), "slime.sparse_mla_bwd")
        assert pickle.loads(pickle.dumps(found(name))) is found(name)
    smelt.compat.uninstall("miles")
    assert is_ours(found(names[0]), "slime.sparse_mla_bwd") and not is_smelts(found(names[1]))
    smelt.compat.uninstall("xtuner")
    assert is_ours(found("cudnn.DSA.indexer_forward_wrapper"), "cudnn.indexer_forward_wrapper")
    smelt.compat.uninstall("cudnn")
    assert not is_smelts(found("cudnn.DSA.indexer_forward_wrapper"))
    smelt.compat.uninstall("cudnn")  # once more: nothing


def test_what_another_still_wants_stays(written):
    """NeMo's name for FlashMLA's function, which "flash_mla" replaces."""
    written({**layouts.TRAINERS["nemo"], **libraries()})
    smelt.compat.install("flash_mla")
    name = f"{layouts.NEMO}.glm_moe_dsa.kernels.cudnn_dsa._FLASH_MLA_SPARSE_FWD"
    assert is_ours(found(name), "flash_mla.flash_mla_sparse_fwd")
    smelt.compat.install("nemo")
    smelt.compat.uninstall("flash_mla")
    assert is_ours(found(name), "flash_mla.flash_mla_sparse_fwd")
    assert found("flash_mla.flash_mla_sparse_fwd")() == "flash_mla.flash_mla_interface"
    smelt.compat.uninstall("nemo")
    assert found(name)() == "flash_mla.flash_mla_interface"


def test_reload(written):
    written({**layouts.TRAINERS["slime"], **TILELANG})
    path = f"{layouts.SLIME}.ops.tilelang_sparse_mla_bwd"
    smelt.compat.install("slime")
    user = types.ModuleType("user")
    user.backward = found(f"{path}.sparse_mla_bwd")
    sys.modules["user"] = user
    module = importlib.reload(sys.modules[path])
    assert is_ours(module.sparse_mla_bwd, "slime.sparse_mla_bwd")
    smelt.compat.uninstall()
    assert module.sparse_mla_bwd() == user.backward() == path


# ---- bad input -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", [smelt.compat.install, smelt.compat.uninstall])
def test_unknown_names(written, call):
    with pytest.raises(
        ValueError, match="'flash_attn' is not a known trainer or library.*cudnn, deep_gemm, flash_mla, flash_msa, megatron"
    ) as why:
        call("flash_mla", "flash_attn")
    assert all(name in str(why.value) for name in TRAINERS)
    assert not _install._active
    with pytest.raises(ValueError, match="install needs at least one name: cudnn, "):
        smelt.compat.install()


def test_other_errors_of_imports_stay(written):
    """A kernel's module that cannot be imported gets a stand-in; other modules and other errors do not."""
    modules = {**layouts.TRAINERS["slime"], **TILELANG}
    modules[f"{layouts.SLIME}.ops.sparse_mla"] = "import nothing_of_this_name\n"
    modules[f"{layouts.SLIME}.ops.tilelang_indexer_fwd"] = "1 / 0\n"
    modules[f"{layouts.SLIME}.ops.tilelang_indexer_bwd"] = "raise OSError('libcuda.so.1')\n"
    written(modules)
    smelt.compat.install("slime")
    with pytest.raises(ModuleNotFoundError, match="nothing_of_this_name"):
        importlib.import_module(f"{layouts.SLIME}.ops.sparse_mla")
    with pytest.raises(ZeroDivisionError):
        importlib.import_module(f"{layouts.SLIME}.ops.tilelang_indexer_fwd")
    assert is_ours(
        found(f"{layouts.SLIME}.ops.tilelang_indexer_bwd.indexer_bwd_interface"), "slime.indexer_bwd_interface"
    )
    report = smelt.compat.install("slime")
    assert report.without == {f"{layouts.SLIME}.ops.tilelang_indexer_bwd": "OSError: libcuda.so.1"}
    assert "tilelang_indexer_bwd cannot be imported (OSError: libcuda.so.1)" in str(report)


def test_every_reference_is_there():
    """Of the table."""
    for trainer in TRAINERS.values():
        assert set(trainer.libraries) <= set(TRAINERS)
        for names in (*trainer.kernels.values(), *trainer.others.values()):
            for name, entry in names.items():
                entries = entry.names if isinstance(entry, _install.Namespace) else {name: entry}
                assert all(entry is True or ours(entry) for entry in entries.values())
    assert {*_install._modules(["cudnn"])["cudnn"]["DSA"].names} == {*smelt.compat.cudnn.__all__}


# ---- values ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["SparseMLA", "SGLangSparseMLA"])
def test_slimes_functions_compute(written, device, name):
    """The original autograd.Function on smelt's kernels, and smelt's: the log-sum-exp has the same base."""
    written({**layouts.TRAINERS["slime"]})
    smelt.compat.install("slime")
    problem = Problem(device, tokens=3, rows=7, heads=2, dqk=576, width=5)
    problem.indices[:, 0] = 3  # no row is empty
    true, true_lse, _, grads = problem.truth()
    call = found(f"{layouts.SLIME}.glm5.{name}").apply
    out, lse = call(problem.q, problem.kv.unsqueeze(1), problem.indices.unsqueeze(1), problem.scale)
    check_out(out, true)
    if name == "SparseMLA":
        check_sums(lse, true_lse * torch.tensor(2.0).log().reciprocal())
    for got, want in zip(torch.autograd.grad(out, problem.leaves(), problem.grad_out), grads, strict=True):
        check_grad(got, want)
