"""Shared by the benchmarks of attention: a row's name, index lists, inputs, the exact result."""

import math
import re

import harness
from harness import DEVICE, reference, torch

NAMES = """\
h64-8192 is 64 heads, 8192 queries and as many KV rows. Then, in any order: s131072 (KV rows), k640 (topk, else
2048), d512 (Dqk, else 576), sink, buckets (smelt's buckets=auto), and the kind of lists, random unless named:
  random, ascending       distinct rows of the whole table, in random or ascending order
  drift, drift-ascending  each query keeps 90 % of the list of the query before it
  causal                  random rows up to the query's own, then -1; with topk_length
  causal-padded           the same without topk_length
  half                    random, half of the slots -1
  documents               causal within documents of 512 tokens, then -1; with topk_length"""
DOCUMENT = 512  # tokens
RENEWED = 10  # drift: one slot in so many changes per query


class Row(harness.Row):
    """A shape and the kind of its lists, from the row's name."""

    DQK, NUMBERS, FLAGS = 576, {"s": "rows", "k": "topk", "d": "dqk"}, ("sink", "buckets", "padded")
    LISTS = ("random", "drift", "causal", "half", "documents")

    def __init__(self, name):
        self.name = name
        match = re.fullmatch(r"h(\d+)-(\d+)((?:-[a-z0-9]+)*)", name)
        if not match:
            raise ValueError(f"row {name}: expected hHEADS-TOKENS[-...], as h64-8192-causal")
        self.heads, self.tokens = int(match[1]), int(match[2])
        self.rows, self.topk, self.dqk, self.dv = self.tokens, 2048, self.DQK, 512
        self.sink = self.buckets = self.padded = self.sort = False
        self.lists = "random"
        for word in match[3].split("-")[1:]:
            self._take(word)
        self.extra = "buckets=auto" if self.buckets else ""

    def _take(self, word):
        number = re.fullmatch(r"([a-z])(\d+)", word)
        if number and number[1] in self.NUMBERS:
            setattr(self, self.NUMBERS[number[1]], int(number[2]))
        elif word in self.FLAGS:
            setattr(self, word, True)
        elif word == "ascending":
            self.sort = True
        elif word in self.LISTS:
            self.lists = word
        else:
            legal = [f"{letter}N" for letter in self.NUMBERS] + [*self.FLAGS, "ascending", *self.LISTS]
            raise ValueError(f"row {self.name}: {word} is none of {', '.join(legal)}")

    def spec(self):
        """The operator's spec without passes."""
        text = f"sparse_attn:heads={self.heads},dqk={self.dqk},dv={self.dv},topk={self.topk}"
        return text + (",sink=1" if self.sink else "")

    def arguments(self):
        named = {"tokens": self.tokens, "rows": self.rows, "width": self.topk, "scale": self.scale}
        tensors = {"q": self.q, "kv": self.kv, "indices": self.indices, "topk_length": self.length}
        return {**named, **tensors, **({"sink": self.sinks} if self.sink else {})}

    def make_inputs(self, options, heads=0):
        """Normal values; q has at least so many heads, of which the row uses its number."""
        generator = torch.Generator(DEVICE).manual_seed(options.seed)
        heads = max(heads, self.heads)

        def normal(*shape, dtype=torch.bfloat16):
            return torch.empty(shape, dtype=dtype, device=DEVICE).normal_(generator=generator)

        self.scale = 1 / math.sqrt(self.dqk)
        self.padded_q = normal(self.tokens, heads, self.dqk)
        self.q = self.padded_q[:, : self.heads].contiguous()
        self.kv = normal(self.rows, self.dqk)
        self.padded_sinks = normal(heads, dtype=torch.float32) if self.sink else None
        self.sinks = self.padded_sinks[: self.heads] if self.sink else None
        self.indices, self.length = make_lists(self, generator)
        self.pairs = int((self.indices >= 0).sum(dtype=torch.int64))


# ---- lists --------------------------------------------------------------------------------------


def random_lists(row, generator):
    """[T, topk] int32: distinct rows that the query may see, in random order, then -1."""
    result = torch.full((row.tokens, row.topk), -1, dtype=torch.int32, device=DEVICE)
    reach = min(row.topk, row.rows)
    columns = torch.arange(row.rows, device=DEVICE)
    step = max(1, (1 << 27) // row.rows)
    for begin in range(0, row.tokens, step):
        query = torch.arange(begin, min(begin + step, row.tokens), device=DEVICE)[:, None]
        chance = torch.rand(len(query), row.rows, device=DEVICE, generator=generator)
        if row.lists == "causal":
            chance.masked_fill_(columns > query, -1)
        elif row.lists == "documents":
            first = query - query % DOCUMENT
            chance.masked_fill_((columns > query) | (columns < first), -1)
        best, where = chance.topk(reach, dim=1)
        where = where.to(torch.int32).masked_fill_(best < 0, -1)
        result[begin : begin + len(query), :reach] = where
    return result


def drift_lists(row, generator):
    """A window sliding over a random order of the table: `smelt bench`'s lists=drift. An entry keeps its slot
    as long as it stays."""
    order = torch.randperm(row.rows, device=DEVICE, generator=generator).to(torch.int32)
    count = min(row.topk, row.rows)
    result = torch.full((row.tokens, row.topk), -1, dtype=torch.int32, device=DEVICE)
    first = (torch.arange(row.tokens, device=DEVICE) * count // RENEWED)[:, None]
    slots = torch.arange(count, device=DEVICE)
    result[:, :count] = order[(first + (slots - first) % count) % row.rows]
    return result


def make_lists(row, generator):
    """indices, and topk_length or None."""
    indices = (drift_lists if row.lists == "drift" else random_lists)(row, generator)
    if row.lists == "half":
        chance = torch.rand(indices.shape, device=DEVICE, generator=generator)
        indices.masked_fill_(chance < 0.5, -1)
    if row.sort:  # masked slots go to the end
        indices = torch.where(indices < 0, row.rows, indices).sort(dim=1).values
        indices = torch.where(indices == row.rows, -1, indices).to(torch.int32)
    if row.lists in ("causal", "documents") and not row.padded:
        return indices.contiguous(), (indices >= 0).sum(dim=1, dtype=torch.int32)
    return indices.contiguous(), None


# ---- the exact result ---------------------------------------------------------------------------


def forward(data, queries, dtype):
    """{"out", "lse", "max_logits"} of these queries; `data` has a row's tensors."""
    length = None if data.length is None else data.length[queries]
    tensors = data.q[queries].to(dtype), data.kv.to(dtype), data.indices[queries]
    with torch.no_grad():
        found = reference().sparse_attention(*tensors, data.scale, data.dv, topk_length=length, sink=data.sinks)
    return dict(zip(("out", "lse", "max_logits"), found))


def apart(got, want):
    """|got - want| / |want|; NaN counts."""
    got, want = got.double(), want.double()
    return float((got - want).norm() / want.norm())


def beside_smelts(contenders):
    """{contender: {result: its difference from the first contender's, "memory MB": of a run}}"""
    smelts = dict(contenders[0].results)
    found = {
        each.name: {name: apart(smelts[name], got) for name, got in each.results.items()} for each in contenders[1:]
    }
    del smelts
    for each in contenders:
        found.setdefault(each.name, {})["memory MB"] = harness.memory(each)
    return found


def worst_row(got, want):
    """The same of the worst row, among rows above 1e-3 of the largest."""
    error, norm = (got.float() - want.float()).norm(dim=-1), want.float().norm(dim=-1)
    found = (error / norm)[norm > 1e-3 * norm.max()]
    return float(found.max()) if len(found) else math.nan


def uninitialised(**shapes):
    """{name: tensor of NaN}: fp32, or bf16 where the shape ends with "bf16"."""
    made = {}
    for name, shape in shapes.items():
        dtype = torch.float32
        if shape[-1] == "bf16":
            shape, dtype = shape[:-1], torch.bfloat16
        made[name] = torch.full(shape, math.nan, dtype=dtype, device=DEVICE)
    return made


def forward_outputs(tokens, heads, dv):
    shape = tokens, heads
    return uninitialised(out=(*shape, dv, "bf16"), lse=shape, max_logits=shape)
