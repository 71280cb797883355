"""FlashMLA's own prefill tests (its tests/test_flash_mla_sparse_prefill.py: shapes, value ranges, invalid slots,
lengths, sinks, strides) with random inputs made here, and further cases with few valid slots: compares results with
double precision and counts the elements that miss FlashMLA's tolerances. Outputs are NaN before each launch. Exit
status 1 if a case misses."""

import argparse
import dataclasses
import math
import statistics

import attention
import flash_mla
import harness
from harness import DEVICE, torch

GAP = 128  # elements between rows and heads, as in FlashMLA's tests
EMPTY_IN = 44  # one query in so many has no valid slot: a normal value below -2
SHAPES = (  # rows, topk; irregular ones from the fourth on
    (128, 128), (256, 256), (512, 512), (592, 128), (1840, 256),
    (1592, 384), (1521, 512), (95, 128), (153, 256), (114, 384),
)  # fmt: skip
# Absolute and relative tolerance (an element that misses exceeds both), and the maximum cosine difference.
TOLERANCES = {
    "out": (8e-4, 3.01 / 128, 7e-6),
    "lse": (1e-6, 2.01 / 65536, 1e-7),
    "max_logits": (1e-6, 2.01 / 65536, 1e-7),
}


@dataclasses.dataclass
class Case(harness.Row):
    dqk: int
    heads: int
    tokens: int
    rows: int
    topk: int
    sink: bool = False
    lengths: str = ""  # "random", or "few": at most four
    empty: bool = False  # some queries have no valid slot
    dv, scale = 512, 0.5

    @property
    def name(self):
        words = {"sink": self.sink, "few slots": self.lengths == "few", "empty queries": self.empty}
        words["topk_length"] = self.lengths == "random"
        shape = f"Dqk {self.dqk}, H {self.heads}, T {self.tokens}, S {self.rows}, topk {self.topk}"
        return ", ".join([shape, *(word for word, said in words.items() if said)])

    spec = attention.Row.spec
    arguments = attention.Row.arguments

    def outputs(self):
        return attention.forward_outputs(self.tokens, self.heads, self.dv)

    def peers(self, options):
        return flash_mla.peers(options, self, self.q, self.sinks, self.outputs)

    def make(self, seed):
        random = torch.Generator(DEVICE).manual_seed(seed)

        def normal(*shape, dtype=torch.float32):
            return torch.empty(shape, dtype=dtype, device=DEVICE).normal_(generator=random)

        def strided(rows, heads):
            """Normal values / 10 + a shift, as [rows, heads, dqk] with NaN in the gaps."""
            space = (rows, heads + 1, self.dqk + GAP)
            space = torch.full(space, math.nan, dtype=torch.bfloat16, device=DEVICE)
            shift = 0.1 * float(torch.rand(1, device=DEVICE, generator=random)) - 0.05
            values = normal(rows, heads, self.dqk, dtype=torch.bfloat16).div_(10).add_(shift)
            space[:, :heads, : self.dqk] = values
            return space[:, :heads, : self.dqk]

        self.q, self.kv = strided(self.tokens, self.heads), strided(self.rows, 1)[:, 0]
        self.indices, self.length, self.sinks = self._lists(random), None, None
        if self.lengths:
            most = max(self.topk, 63) if self.lengths == "random" else 4
            length = torch.randint(most + 1, (self.tokens,), device=DEVICE, generator=random)
            self.length = length.clamp(max=self.topk).int()
        if self.sink:  # some are infinite
            other, sinks = normal(self.heads), normal(self.heads)
            self.sinks = torch.where(other.abs() > 0.5, other * math.inf, sinks)

    def _lists(self, random):
        """Gaps name row 0, so a contender that reads them as slots has a wrong result."""
        shape = argparse.Namespace(tokens=self.tokens, topk=self.topk, rows=self.rows, lists="random")
        lists = attention.random_lists(shape, random)
        fillers = [-(2**31), -123456, -1, self.rows, 114514, 1919810, 2147480000, 2**31 - 1]
        fillers = torch.tensor(fillers, dtype=torch.int32, device=DEVICE)
        chosen = fillers[torch.randint(8, lists.shape, device=DEVICE, generator=random)]
        lists = torch.where(lists < 0, chosen, lists)
        if self.empty:
            empty = torch.randint(EMPTY_IN, (self.tokens, 1), device=DEVICE, generator=random) == 0
            lists = torch.where(empty, chosen[:, :1], lists)
        space = torch.zeros(self.tokens, 2, self.topk + GAP, dtype=torch.int32, device=DEVICE)
        space[:, 0, : self.topk] = lists
        return space[:, 0, : self.topk]


def cases_of(dqk, heads):
    found = [Case(dqk, heads, tokens, *shape) for shape in SHAPES for tokens in (1, 62, 213)]
    found += [  # FlashMLA's list has each of these twice, with different seeds
        Case(dqk, heads, tokens, *shape, sink, lengths)
        for shape in SHAPES[3:]
        for tokens in (62, 213)
        for _ in range(2)
        for sink in (False, True)
        for lengths in ("", "random")
    ]
    for shape in ((1, 128, 128), (1, 256, 256), (1234, 4321, 4096), (4096, 2048, 2048)):
        found.append(Case(dqk, heads, *shape, True, "random", empty=True))
    for shape in ((1, 32, 2048), (1024, 32, 2048), (1, 64, 8192), (1024, 64, 8192), (70000, 256, 256)):
        found.append(Case(dqk, heads, *shape, True, "random"))
    return found + [Case(dqk, heads, 213, *shape, sink, "few") for shape in SHAPES[3:] for sink in (False, True)]


def large_cases():
    """Cases that FlashMLA's tests also time."""
    rows = (8192, 32768, 65536, 98304, 131072), (8192, 32768, 49152, 65536)
    found = [Case(576, 128, 4096, each, 2048, True) for each in rows[0]]
    for heads, topk in ((64, 512), (128, 1024)):
        found += [Case(512, heads, 4096, each, topk, True) for each in rows[1]]
    return found


# ---- comparison ---------------------------------------------------------------------------------


@dataclasses.dataclass
class Distance:
    elements: int
    misses: int
    strange: int  # of the misses, those at an infinity or a NaN
    relative: float  # |got - want| / |want|
    cosine: float  # 1 - 2 <got, want> / (<got, got> + <want, want>)
    worst: float  # the largest error as a share of the tolerance
    where: tuple  # that element

    def __init__(self, got, want, absolute, relative):
        got, want = got.double(), want.double()
        finite = torch.isfinite(got) & torch.isfinite(want)
        same = (got == want) | (got.isnan() & want.isnan())
        error = (got - want).abs()
        share = torch.minimum(error / absolute, error / (want.abs() + 1e-6) / relative)
        share = torch.where(finite, share, torch.where(same, 0.0, math.inf))
        missed = ~(share < 1)
        self.elements, self.misses = got.numel(), int(missed.sum())
        self.strange = int((missed & ~finite).sum())
        self.worst, at = float(share.max()), int(share.argmax())
        self.where = tuple(int(i) for i in torch.unravel_index(torch.tensor(at), got.shape))
        got, want = got[finite], want[finite]
        squares, self.relative, self.cosine = float(want.square().sum()), 0.0, 0.0
        if squares > 1e-12:  # FlashMLA's tests ignore the direction of tiny results
            self.relative = math.sqrt(float((got - want).square().sum()) / squares)
            self.cosine = 1 - 2 * float((got * want).sum()) / (float(got.square().sum()) + squares)


def is_miss(name, distance):
    return distance.misses or not abs(distance.cosine) <= TOLERANCES[name][2]


def cells(cases):
    """Results of a contender's cases, each {tensor: Distance}."""
    by = [sum(bool(is_miss(name, case[name])) for case in cases) for name in TOLERANCES]
    failed = sum(any(is_miss(*each) for each in case.items()) for case in cases)
    worst = (max(case[name].worst for case in cases) for name in TOLERANCES)
    out = [case["out"] for case in cases]
    relative = [each.relative for each in out if each.relative] or [0.0]
    yield from (len(cases), f"{failed} ({', '.join(map(str, by))})")
    yield from (sum(each.misses for each in out), sum(each.elements for each in out))
    yield f"{statistics.fmean(relative):.3e}"
    yield ", ".join(f"{each:.3f}" for each in worst)
    yield f"{max(each.cosine for each in out):.1e}"


def measure(case, seed, options, found):
    """Adds the case's {tensor: Distance} of each contender to `found`."""
    case.make(seed)
    step = max(1, case.tokens // options.sample)
    queries = torch.arange(step - 1, case.tokens, step, device=DEVICE)[: options.sample]
    right = attention.forward(case, queries, torch.float64)
    for name, make in case.contenders(options).items():
        contender = make()
        contender.run()
        harness.synchronize()
        distances = {}
        for tensor, (absolute, relative, _) in TOLERANCES.items():
            want = right[tensor]
            if name == "flash_mla" and tensor == "lse":
                want = torch.where(want == -math.inf, math.inf, want)
            got = contender.results[tensor][queries]
            distances[tensor] = Distance(got, want, absolute, relative)
            if options.verbose and is_miss(tensor, distances[tensor]):
                print(f"{name} misses: {case.name}, seed {seed}: {tensor}: {distances[tensor]}")
        found.setdefault((name, case.heads), []).append(distances)


HEAD = (
    "| | H | cases | that miss (out, lse, max_logits) | elements of out that miss | of | mean relative error | "
    "worst share of the tolerance: out, lse, max_logits | greatest cosine difference |"
)


def add_options(parser):
    harness.add_contenders(parser)
    flash_mla.add_option(parser)
    parser.add_argument(
        "--heads", type=harness.numbers, default="", metavar="N,...", help="instead of 64, 128 and large cases"
    )
    parser.add_argument("--sample", type=harness.positive, default=4096, help="queries compared of a case (4096)")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose names contain this")
    parser.add_argument("--verbose", action="store_true", help="a line for each tensor that misses")
    parser.add_argument("--list", action="store_true", help="print the names of the cases only")


def run(options):
    options.deterministic, options.smelt_only = False, False
    heads = [int(each) for each in options.heads]
    cases = [case for each in heads or (64, 128) for dqk in (512, 576) for case in cases_of(dqk, each)]
    cases += [] if heads else large_cases()
    cases = [case for case in cases if options.only in case.name]
    if options.list:
        print("\n".join(case.name for case in cases))
        return 0
    harness.open_libraries(options)
    harness.make_operators(cases, options)
    found = {}
    for number, case in enumerate(cases):
        measure(case, options.seed + number, options, found)
        vars(case).clear()  # its tensors
    print("\n" + HEAD + "\n" + "|---" * (HEAD.count("|") - 1) + "|")
    for (name, count), results in found.items():
        print("| " + " | ".join(map(str, (name, count, *cells(results)))) + " |")
    return int(any(is_miss(*each) for results in found.values() for case in results for each in case.items()))
