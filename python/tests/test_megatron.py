"""smelt.compat.install("megatron"): the hooks of Megatron-LM's DSAttention, against a definition of what Megatron's PyTorch
computes without them (dsa.py), with heads divided over ranks (tensor parallel) and queries divided (context parallel)."""

import importlib
import importlib.util
import inspect
import socket
import types

import pytest
import smelt_kernels as smelt
import smelt_kernels.compat
import torch
from compat_definitions import attention, at_slots, best, index_logits, probabilities, windowed
from conftest import check_grad
from smelt_kernels.compat import _megatron_dsa as hooks
from torch import distributed

DSA = "megatron.core.transformer.experimental_attention_variant"
PLACE = (
    "use_relu=True use_local_indexer_varlen=False single_packed_thd_sequence=False local_packed_cp_rank=0 "
    "local_packed_cp_query_start=0 local_packed_cp_query_len=None"
)
# As dsa_kernels declares them (d98e8a64dd, and 0.19.2).
SIGNATURES = {
    "use_fused_dsa_kernels": "config",
    "run_fused_qk_topk": "config q k weights index_topk starts ends block_size "
    f"{PLACE} packed_seq_params=None cp_size=1",
    "run_fused_qk_topk_with_loss": "config q k weights index_topk starts ends block_size query key softmax_scale "
    f"loss_coeff pg_collection query_valid_rows=None calculate_per_token_loss=False {PLACE} packed_seq_params=None "
    "cp_size=1",
    "run_fused_absorbed_sparse_attention": "config query key topk_indices softmax_scale v_channels topk_length=None",
    "run_fused_dsa_attention": "config query key value up_v_weight q_indexer k_indexer indexer_weights indexer_topk "
    "softmax_scale loss_coeff sparse_loss calculate_per_token_loss absorbed_mla cp_size attn_mask_type "
    "packed_seq_params varlen_starts varlen_ends key_positions query_valid_rows varlen_is_plain_causal=False "
    f"{PLACE.replace('=True', '', 1)} pg_collection=None",
}
SCALE, COEFFICIENT, TOPK, RANK = 0.3, 0.5, 6, 64
LEAVES = ("query", "key", "up_v_weight", "q_indexer", "k_indexer", "indexer_weights")


class Layer:
    """Random inputs of DSAttention's core: [sq, b, ...] queries, [skv, b, ...] keys. `exact`: attention's are fp32 and have
    rotary columns; else all are bf16, and the kernels those of test_indexed_attention.py."""

    def __init__(self, exact, queries=9, batches=2, heads=2, starts=None, seed=0):
        made = torch.Generator().manual_seed(seed)

        def normal(*shape, scale=1.0, dtype=torch.bfloat16):
            return (scale * torch.randn(*shape, generator=made)).to(dtype).requires_grad_()

        width, dtype = (RANK + 64, torch.float32) if exact else (RANK, torch.bfloat16)
        self.query = normal(queries, batches, heads, width, dtype=dtype)
        self.key = normal(queries, batches, 1, width, scale=0.3, dtype=dtype)
        self.up_v_weight = normal(heads, 24, RANK, scale=0.1, dtype=dtype)
        self.q_indexer = normal(queries, batches, 2, 64)
        self.k_indexer = normal(queries, batches, 64, scale=0.3)
        self.indexer_weights = normal(queries, batches, 2)
        self.grad = normal(queries, batches, heads * 24).detach()
        self.starts = torch.zeros(queries, dtype=torch.int64) if starts is None else starts
        self.ends = torch.arange(1, queries + 1)
        self.valid = None

    def leaves(self):
        return [getattr(self, name) for name in LEAVES]

    def part(self, queries=slice(None), heads=slice(None)):
        """The same layer with some of its queries or heads; its leaves are this one's."""
        part = Layer.__new__(Layer)
        part.__dict__.update(self.__dict__)
        part.query = self.query[queries, :, heads]
        part.up_v_weight = self.up_v_weight[heads]
        part.q_indexer, part.indexer_weights = self.q_indexer[queries], self.indexer_weights[queries]
        part.starts, part.ends = self.starts[queries], self.ends[queries]
        return part

    def on(self, device):
        """The same layer with its tensors on a device; its leaves are this one's."""
        layer = Layer.__new__(Layer)
        for name, value in self.__dict__.items():
            setattr(layer, name, None if value is None else value.to(device))
        return layer

    def call(self, sparse=True, per_token=False, relu=True, tp=None, **changes):
        """out and loss of the one hook."""
        named = {
            **{name: getattr(self, name) for name in LEAVES}, "config": types.SimpleNamespace(kv_lora_rank=RANK),
            "value": None, "indexer_topk": TOPK, "softmax_scale": SCALE, "loss_coeff": COEFFICIENT,
            "sparse_loss": sparse, "calculate_per_token_loss": per_token, "absorbed_mla": True, "cp_size": 1,
            "attn_mask_type": None, "packed_seq_params": None, "varlen_starts": self.starts, "varlen_ends": self.ends,
            "key_positions": None, "query_valid_rows": self.valid, "use_relu": relu,
            "pg_collection": types.SimpleNamespace(tp=tp),
        }  # fmt: skip
        return hooks.run_fused_dsa_attention(**{**named, **changes})

    def hooks(self, per_token=False, relu=True, tp=None):
        """out and loss of the hooks that index sharing calls one after another."""
        config = types.SimpleNamespace(kv_lora_rank=RANK)
        rows = self.q_indexer, self.k_indexer, self.indexer_weights, TOPK, self.starts.int(), self.ends.int(), 8192
        lists, lengths, loss = hooks.run_fused_qk_topk_with_loss(
            config, *rows, query=self.query.detach(), key=self.key.detach(), softmax_scale=SCALE,
            loss_coeff=COEFFICIENT, pg_collection=types.SimpleNamespace(tp=tp), query_valid_rows=self.valid,
            calculate_per_token_loss=per_token, use_relu=relu,
        )  # fmt: skip
        alone, _ = hooks.run_fused_qk_topk(config, *rows, use_relu=relu)
        assert torch.equal(lists, alone)
        out = hooks.run_fused_absorbed_sparse_attention(
            config, self.query, self.key, lists.long(), SCALE, RANK, lengths
        )
        return torch.einsum("sbhc,hdc->sbhd", out, self.up_v_weight).flatten(2), loss

    def definition(self, sparse=True, per_token=False, relu=True):
        """In double precision, batch by batch."""
        queries, batches = self.query.shape[:2]
        valid = torch.ones(batches, queries) if self.valid is None else self.valid.double().expand(batches, queries)
        outs, total = [], 0.0
        for b in range(batches):
            q, k, iq = self.query[:, b].double(), self.key[:, b, 0].double(), self.q_indexer[:, b]
            logits = index_logits(iq, self.k_indexer[:, b], self.indexer_weights[:, b], relu)
            logits = windowed(logits, self.starts, self.ends)
            lists, _ = best(logits, min(TOPK, len(k)), ascending=True)
            out, lse, _ = attention(q, k, lists, SCALE, RANK)
            outs.append(torch.einsum("thc,hdc->thd", out, self.up_v_weight.double()).flatten(1))
            if not sparse:
                lists = torch.arange(len(k)).expand(queries, -1)
                lists = lists.masked_fill((lists < self.starts[:, None]) | (lists >= self.ends[:, None]), -1)
                lse = attention(q, k, lists, SCALE, RANK)[1]
            target = probabilities(q.detach(), k.detach(), lists, lse, SCALE)
            target = target / target.sum(-1, keepdim=True).clamp(min=1e-10)
            predict = at_slots(logits, lists).log_softmax(-1)
            terms = target * (target.clamp(min=1e-10).log() - predict)
            total = total + (torch.where(target > 0, terms, 0.0).sum(-1) * valid[b]).sum()
        rows = 1.0 if per_token else valid.sum()
        return torch.stack(outs, 1), COEFFICIENT * total / rows

    def check(self, got, want, exact):
        gradients = [
            torch.autograd.grad((out, loss), self.leaves(), (self.grad.to(out), torch.ones_like(loss)))
            for out, loss in (got, want)
        ]
        for one, two in zip((*got, *gradients[0]), (*want, *gradients[1]), strict=True):
            compare(one.cpu(), two, exact)


def compare(one, two, exact):
    """Of the eager reference in fp32, all but what is rounded to bf16 is equal."""
    if exact and one.dtype is not torch.bfloat16:
        torch.testing.assert_close(one.double(), two.double(), rtol=1e-4, atol=1e-6)
    else:
        check_grad(one.detach(), two.detach())


@pytest.fixture
def backend(request):
    before = smelt.set_backend(getattr(request, "param", "torch"))
    yield
    smelt.set_backend(before)


with_kernels = pytest.mark.parametrize("backend,exact", [("smelt", False), ("torch", True)], indirect=["backend"])


def check_one_hook(exact, device="cpu", **options):
    """Two batches, two packed documents; a query that does not count."""
    layer = Layer(exact, starts=torch.tensor([0] * 5 + [5] * 4))
    layer.valid = torch.tensor([[True] * 8 + [False], [True] * 9])
    layer.check(layer.on(device).call(**options), layer.definition(**options), exact)
    with torch.no_grad():
        assert float(layer.on(device).call(**options)[1]) == 0.0


@with_kernels
def test_one_hook(backend, exact, device):
    check_one_hook(exact, device)


def test_dense_loss(backend):
    check_one_hook(True, sparse=False, per_token=True)
    check_one_hook(True, sparse=False, relu=False)


def test_without_relu(backend):
    check_one_hook(True, relu=False)


@with_kernels
def test_hooks_of_shared_lists(backend, exact, device):
    layer = Layer(exact, batches=1, seed=1)
    for options in ({}, {"per_token": True}):
        layer.check(layer.on(device).hooks(**options), layer.definition(**options), exact)


def test_what_is_declined():
    """Megatron's PyTorch computes it, with a warning; the back end "smelt" refuses."""
    layer = Layer(False, batches=1)
    wide = {"q_indexer": layer.q_indexer.float()}
    for change in ({"absorbed_mla": False}, {"varlen_starts": None}, {"key_positions": layer.ends}, wide):
        with pytest.raises(RuntimeError, match="smelt: Megatron's PyTorch computes"):
            layer.call(**change)
        before = smelt.set_backend("auto")
        smelt._runtime._warned.clear()
        try:
            with pytest.warns(smelt.SmeltWarning, match="Megatron's PyTorch computes"):
                assert layer.call(**change) is None
        finally:
            smelt.set_backend(before)
    assert hooks.use_fused_dsa_kernels(types.SimpleNamespace(attention_backend="auto"))
    for unfused in ("unfused", types.SimpleNamespace(name="unfused")):
        assert not hooks.use_fused_dsa_kernels(types.SimpleNamespace(attention_backend=unfused))


def test_windows_and_sizes(backend):
    """Bounds beyond int32 are clamped, not wrapped; unequal numbers of batches, queries or keys are refused."""
    layer = Layer(True, starts=torch.full((9,), -(1 << 32)))
    layer.ends = torch.full((9,), (1 << 32) + 2)
    far = layer.call()
    layer.starts, layer.ends = torch.zeros(9).int(), torch.full((9,), 9).int()
    assert all(torch.equal(*pair) for pair in zip(far, layer.call()))
    config, lists = types.SimpleNamespace(kv_lora_rank=RANK), torch.arange(9).expand(2, 9, -1)
    lengths = torch.tensor([4, 1 << 32]).repeat_interleave(9).view(2, 9)
    one, two = (
        hooks.run_fused_absorbed_sparse_attention(config, layer.query, layer.key, lists, SCALE, RANK, each)
        for each in (lengths, lengths.clamp(max=9).int())
    )
    assert torch.equal(one, two) and bool(one[:, 1].any())
    for name, change in (
        ("k_indexer", layer.k_indexer[:, :1]), ("indexer_weights", layer.indexer_weights.transpose(0, 1)),
        ("varlen_ends", layer.ends[:8]), ("key", layer.key[:8]), ("query", layer.query[:, :1]),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"smelt: dimension . of {name} "):
            layer.call(**{name: change})


def text_of(function):
    words = []
    for parameter in inspect.signature(function).parameters.values():
        default = "" if parameter.default is parameter.empty else f"={parameter.default}"
        words.append(parameter.name + default)
    return " ".join(words)


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures(name):
    """Of smelt's hooks, and of Megatron's own where it is installed (0.19 or later)."""
    assert text_of(getattr(hooks, name)) == SIGNATURES[name]
    if importlib.util.find_spec("megatron") and importlib.util.find_spec(f"{DSA}.dsa_kernels"):
        assert text_of(inspect.unwrap(getattr(importlib.import_module(f"{DSA}.dsa_kernels"), name))) == SIGNATURES[name]


# ---- two ranks --------------------------------------------------------------------------------------


def parallel_results(rank):
    """Compares a rank's results with the whole layer's."""
    whole = Layer(True, queries=8, batches=1, heads=4)
    group = distributed.group.WORLD
    for sparse in (True, False):
        out, loss = whole.definition(sparse)
        want = torch.autograd.grad((out, loss), whole.leaves(), (whole.grad.double(), torch.ones_like(loss)))
        # Tensor parallel: each rank has half of the heads, and all of the indexer.
        columns = slice(48 * rank, 48 * rank + 48)
        got = whole.part(heads=slice(2 * rank, 2 * rank + 2)).call(sparse, tp=group)
        compare(got[0], out[..., columns], True)
        compare(got[1], loss, True)
        ours = torch.autograd.grad(got, whole.leaves(), (whole.grad[..., columns].to(got[0]), torch.ones_like(got[1])))
        for place, (one, two) in enumerate(zip(ours, want, strict=True)):
            compare(summed(one) if place < 3 else one, two, True)  # attention's are sums over ranks
        # Context parallel: each rank has the first and the last, or the middle quarters of queries.
        mine = torch.tensor([[0, 1, 6, 7], [2, 3, 4, 5]][rank])
        got = whole.part(queries=mine).call(sparse)
        compare(got[0], out[mine], True)
        compare(summed(got[1]) / 2, loss, True)
        ours = torch.autograd.grad(got, whole.leaves(), (whole.grad[mine].to(got[0]), torch.full_like(got[1], 0.5)))
        for one, two in zip(ours, want, strict=True):
            compare(summed(one), two, True)


def summed(x):
    """Over the ranks; of a gradient in bf16 still one in bf16."""
    total = x.detach().float().clone()
    distributed.all_reduce(total)
    return total.to(x.dtype)


def run_rank(rank, port, answers):
    try:
        where = f"tcp://127.0.0.1:{port}"
        distributed.init_process_group("gloo", init_method=where, rank=rank, world_size=2)
        parallel_results(rank)
        answers.put("")
    except BaseException as error:
        answers.put(f"rank {rank}: {type(error).__name__}: {error}")
        raise


@pytest.mark.emulated
def test_two_ranks(backend):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    fork = torch.multiprocessing.get_context("fork")
    answers = fork.Queue()
    ranks = [fork.Process(target=run_rank, args=(rank, port, answers), daemon=True) for rank in range(2)]
    for each in ranks:
        each.start()
    said = [answers.get(timeout=120) for _ in ranks]
    for each in ranks:
        each.join(timeout=60)
    assert said == ["", ""], said
    assert [each.exitcode for each in ranks] == [0, 0]
