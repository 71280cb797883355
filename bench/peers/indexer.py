"""The indexer's logits, top-k, and both in one call."""

import inspect
import re

import harness
from harness import DEVICE, reference, torch

DIM, TOPK = 128, 2048
DEEP_GEMM_HEADS, CUDNN_HEADS = (32, 64), {"fp8": (32, 64), "bf16": (16, 32, 64)}


class Logits(harness.Row):
    """indexer_logits, compared with DeepGEMM's fp8_mqa_logits with and without its clean pass (deep_gemm.py), and with
    cuDNN Frontend's indexer_forward_wrapper, which masks.

    fp8-h64-16384-causal is e4m3, 64 heads, 16384 queries and as many keys, windows up to a query's own key;
    bf16-h32-4096x8192-full has 4096 queries, 8192 keys and windows of all of them. TFLOP/s counts 2 * H * 128 for
    each pair of a query and a key in its window. Checks: "off", the largest difference from smelt's first contender
    in any window, over the largest logit; "finite", logits outside of windows that are not -inf."""

    SETS = {
        "all": """fp8-h64-16384-causal,fp8-h32-16384-causal,fp8-h64-4096x8192-full,fp8-h32-4096x8192-full,
        bf16-h64-16384-causal,bf16-h32-16384-causal,bf16-h64-4096x8192-full,bf16-h32-4096x8192-full,
        fp8-h16-16384-causal,fp8-h8-16384-causal"""
    }
    BOUNDS = {"off": 1e-2, "finite": 0}  # cuDNN's fp8 rounds differently

    def __init__(self, name):
        match = re.fullmatch(r"(fp8|bf16)-h(\d+)-(\d+)(?:x(\d+))?-(causal|full)", name)
        if not match:
            raise ValueError(f"row {name}: expected fp8-h64-16384-causal or bf16-h32-4096x8192-full")
        self.name, self.dtype, self.full = name, match[1], match[5] == "full"
        self.heads, self.tokens = int(match[2]), int(match[3])
        self.keys = int(match[4] or match[3])

    @classmethod
    def of(cls, row, **changes):
        """A row of this class with another's inputs and the given changes."""
        made = cls.__new__(cls)
        vars(made).update(vars(row), **changes)
        return made

    @staticmethod
    def add_options(parser):
        parser.add_argument("--deep-gemm", metavar="FOLDER", help="deep_gemm.py's cubins")

    def make(self, options):
        """A query's scale is included in the weights."""
        random = torch.Generator(DEVICE).manual_seed(options.seed)
        q = torch.randn(self.tokens, self.heads, DIM, device=DEVICE, generator=random)
        k = torch.randn(self.keys, DIM, device=DEVICE, generator=random)
        self.weights = torch.randn(self.tokens, self.heads, device=DEVICE, generator=random)
        self.scale = None
        if self.dtype == "fp8":
            self.scale = k.abs().amax(dim=1) / 448
            self.q = (q * 100).clamp(-448, 448).to(torch.float8_e4m3fn)
            self.k = (k / self.scale[:, None]).to(torch.float8_e4m3fn)
        else:
            self.q, self.k = q.bfloat16(), k.bfloat16()
        query = torch.arange(self.tokens, device=DEVICE, dtype=torch.int32)
        self.begins = torch.zeros_like(query)
        self.ends = query + 1 + self.keys - self.tokens
        if self.full:
            self.ends = torch.full_like(query, self.keys)
        self.flops = 2 * self.heads * DIM * int(self.ends.sum(dtype=torch.int64))

    def spec(self):
        return f"indexer_logits:heads={self.heads},dim={DIM},dtype={self.dtype}"

    def arguments(self):
        tensors = {"q": self.q, "k": self.k, "weights": self.weights, "k_scale": self.scale}
        windows = {"window_begin": self.begins, "window_end": self.ends}
        return {"tokens": self.tokens, "rows": self.keys, **tensors, **windows}

    def outputs(self):
        return {"logits": torch.full((self.tokens, self.keys), float("nan"), device=DEVICE)}

    def peers(self, options):
        found = {}
        if options.deep_gemm and self.dtype == "fp8" and self.heads in DEEP_GEMM_HEADS:
            found["deep_gemm + clean"] = lambda: self.deep_gemm(options.deep_gemm, True)
            found["deep_gemm"] = lambda: self.deep_gemm(options.deep_gemm, False)
        if self.heads in CUDNN_HEADS[self.dtype]:
            found["cudnn"] = self.cudnn
        return found

    def deep_gemm(self, folder, clean):
        import deep_gemm

        tensors = self.q, self.k, self.scale, self.weights, self.begins, self.ends
        call = deep_gemm.Logits(deep_gemm.kernels(folder), *tensors, clean)
        return call.run, {"logits": call.logits}

    def cudnn(self):
        from cudnn import DSA

        results = self.outputs()
        options = {"ratio": 1, "out": results["logits"][None]}
        last = self.keys if self.full else self.keys - self.tokens
        if last:
            options["q_causal_offsets"] = torch.full((1,), last, dtype=torch.int32, device=DEVICE)
        if self.dtype == "fp8":
            ones = torch.ones(1, self.tokens, self.heads, device=DEVICE)
            options.update(precision="fp8", q_scale=ones, k_scale=self.scale.view(1, -1, 1))
        inputs = self.q[None], self.k[None, :, None], self.weights[None]
        return lambda: DSA.indexer_forward_wrapper(*inputs, **options), results

    def check(self, contenders, options):
        columns = torch.arange(self.keys, device=DEVICE, dtype=torch.int32)
        inside = (columns >= self.begins[:, None]) & (columns < self.ends[:, None])
        mine = contenders[0].results["logits"]
        finite = int((~inside & (mine != float("-inf"))).sum())
        mine = mine.masked_fill(~inside, 0.0)
        found, largest = {}, float(mine.abs().max())
        for each in contenders:
            off = each.results["logits"].masked_fill(~inside, 0.0).sub_(mine).abs_().max()
            found[each.name] = {"off": float(off) / largest}
        found[contenders[0].name]["finite"] = finite
        return found


# ---- top-k --------------------------------------------------------------------------------------


def expected(scores, ends, topk):
    """Ascending columns of each row's selection, then -1."""
    select = reference("_indexer_reference").select
    return select(scores, topk, torch.zeros_like(ends), ends, None, None, 0, "index")[0]


def cudnn_select(scores, ends, topk, **options):
    """A function that runs cuDNN's top-k and returns its indices."""
    from cudnn import DSA

    def run():
        found = DSA.indexer_top_k_wrapper(scores, ends, top_k=topk, next_n=1, return_val=False, **options)
        found = [found] if torch.is_tensor(found) else getattr(found, "values", lambda: found)()
        return next(each for each in found if torch.is_tensor(each) and each.dtype == torch.int32)

    return run


KINDS = (
    "gaussian equal zeros negative narrow increasing decreasing correlated bf16 levels periodic special causal"
).split()


def make_scores(kind, shape, random):
    columns = torch.arange(shape[1], device=DEVICE, dtype=torch.float32).expand(shape)
    row = torch.arange(shape[0], device=DEVICE, dtype=torch.float32)[:, None]
    normal = torch.randn(shape, generator=random, device=DEVICE)
    which = torch.randint(0, 100, shape, generator=random, device=DEVICE)
    if kind == "zeros":
        normal[which < 50] = 0.0
    elif kind == "negative":
        normal = -normal.abs()
        normal[which < 25], normal[which >= 75] = 0.0, -0.0
    elif kind == "special":
        normal[which < 30], normal[(which >= 30) & (which < 60)] = float("nan"), float("-inf")
        normal[which == 60] = float("inf")
        bits = torch.randint(-(2**31), 2**31, shape, generator=random, device=DEVICE)
        normal[1::3] = bits.int().view(torch.float32)[1::3]
        normal[2::3] = float("nan")
    made = {
        "equal": lambda: torch.full(shape, 0.75, device=DEVICE),
        "narrow": lambda: 1 + 0.01 * torch.rand(shape, generator=random, device=DEVICE),
        "increasing": lambda: columns * 0.37 - 5000,
        "decreasing": lambda: 5000 - columns * 0.37,
        "correlated": lambda: (
            torch.sin(columns * 0.0113 + row) * 2 + torch.sin(columns * 0.00071 * (1 + row % 7)) + 0.05 * normal
        ),
        "bf16": lambda: normal.bfloat16().float(),
        "levels": normal.round,
        "periodic": lambda: columns % 32 + (columns % 32 == 31).float() * 0.001 * normal,
    }
    return made.get(kind, lambda: normal)().contiguous()


class Select(harness.Row):
    """topk_select, compared with torch.topk and cuDNN Frontend's indexer_top_k_wrapper.

    2048x4096x32768-gaussian selects 2048 of each of 4096 rows of 32768 columns. Kinds of values: gaussian, equal,
    zeros, negative, narrow, increasing, decreasing, correlated, bf16, levels, periodic, special (NaN, infinities,
    any bits), causal (windows). Check: "wrong", the number of rows that differ from a sort of (value, -index) pairs;
    among equal values the peers may select any."""

    SETS = {
        "all": ",".join(
            [f"2048x4096x32768-{kind}" for kind in KINDS]
            + [f"{shape}-gaussian" for shape in "512x8192x8192 2048x512x131072 2048x1x1048576 2048x128x262144".split()]
        )
    }
    BOUNDS = {"wrong": 0}

    def __init__(self, name):
        match = re.fullmatch(rf"(\d+)x(\d+)x(\d+)-({'|'.join(KINDS)})", name)
        if not match:
            raise ValueError(f"row {name}: expected 2048x4096x32768-KIND, KIND of {', '.join(KINDS)}")
        self.name, self.kind = name, match[4]
        self.topk, self.tokens, self.columns = (int(match[i]) for i in (1, 2, 3))

    def make(self, options):
        random = torch.Generator(DEVICE).manual_seed(options.seed)
        self.scores = make_scores(self.kind, (self.tokens, self.columns), random)
        self.ends = torch.full((self.tokens,), self.columns, dtype=torch.int32, device=DEVICE)
        if self.kind == "causal":
            last = (torch.arange(self.tokens, device=DEVICE) + 1) * self.columns
            self.ends = torch.div(last, self.tokens, rounding_mode="floor").int()

    def spec(self):
        return f"topk_select:topk={self.topk}"

    def arguments(self):
        found = {"tokens": self.tokens, "rows": self.columns, "logits": self.scores}
        if self.kind == "causal":
            found.update(window_begin=torch.zeros_like(self.ends), window_end=self.ends)
        return found

    def outputs(self):
        shape = self.tokens, self.topk
        return {"indices": torch.full(shape, -2, dtype=torch.int32, device=DEVICE)}

    def peers(self, options):
        """Peers select in any order, which is not checked."""

        def cudnn(**modes):
            return cudnn_select(self.scores, self.ends, self.topk, **modes), {}

        found = {"torch": lambda: (lambda: torch.topk(self.scores, self.topk, dim=1), {})}
        found["cudnn"] = cudnn
        try:
            from cudnn import DSA

            if "deterministic" in inspect.signature(DSA.indexer_top_k_wrapper).parameters:
                found["cudnn deterministic"] = lambda: cudnn(deterministic=True)
        except ImportError:  # reported as cudnn's failure
            pass
        return found

    def check(self, contenders, options):
        right, found = expected(self.scores, self.ends, self.topk), {}
        for each in contenders:
            if each.results:
                wrong = (right != each.results["indices"]).any(dim=1)
                found[each.name] = {"wrong": int(wrong.sum())}
        return found


# ---- both ---------------------------------------------------------------------------------------


class Choice(Logits):
    """indexer_topk, topk 2048, compared with a matrix of DeepGEMM's logits with its clean pass, or of cuDNN's, followed
    by cuDNN's top-k. Rows are named as indexer_logits'.

    --steps adds smelt's two steps (a matrix of logits, and the selection) and "even", a call without causal_limit;
    --workspace adds smelt with this much workspace. Checks, of 64 queries: "wrong", the number whose keys differ from a
    sort of indexer_logits's logits for these queries; "error" of these logits relative to double precision, over the
    sum of the products' absolute values; "differ", the share of smelt's keys that a peer, which rounds differently, did
    not select. Shown: workspace, and other memory."""

    SETS = {
        "all": ",".join(
            f"{dtype}-h{heads}-{tokens}-causal"
            for dtype in ("fp8", "bf16")
            for heads in (32, 64)
            for tokens in (16384, 32768, 65536)
        )
    }
    BOUNDS = {"wrong": 0, "error": 5e-4, "differ": 0.01}
    COMPARED = 64
    topk, limit = TOPK, 0

    @staticmethod
    def add_options(parser):
        Logits.add_options(parser)
        parser.add_argument("--steps", action="store_true", help="also smelt's two steps alone")
        parser.add_argument(
            "--workspace", type=harness.numbers, default="", metavar="MB,...", help="also with such limits"
        )

    def spec(self):
        return f"indexer_topk:heads={self.heads},dim={DIM},dtype={self.dtype},topk={self.topk}"

    def arguments(self):
        causal = 0 if self.full else 1 + self.keys - self.tokens
        return {**super().arguments(), "causal_limit": causal, "workspace_limit": self.limit}

    def outputs(self):
        shape = self.tokens, self.topk
        return {"indices": torch.full(shape, -2, dtype=torch.int32, device=DEVICE)}

    def peers(self, options):
        found = {}
        for name, make in Logits.of(self).peers(options).items():
            if name != "deep_gemm":
                found[f"{name}, cudnn top-k"] = lambda make=make: self.two_steps(*make())
        return found

    def two_steps(self, run_logits, results):
        select = cudnn_select(results["logits"], self.ends, self.topk)
        found = {}

        def run():
            run_logits()
            found["indices"] = select()

        return run, found

    def contenders(self, options):
        found = super().contenders(options)
        library = options.libraries[0]
        for megabytes in options.workspace:
            found[f"smelt {megabytes:g} MB"] = lambda megabytes=megabytes: self.variant(
                library, f"smelt {megabytes:g} MB", limit=int(megabytes * 1e6)
            )
        if options.steps:
            found["smelt even"] = lambda: self.variant(library, "smelt even", full=True)
            found["smelt logits"] = lambda: Logits.of(self).smelt("smelt logits", library)
            found["smelt select"] = lambda: self.select_step(library)
        return found

    def variant(self, library, name, **changes):
        return self.of(self, **changes).smelt(name, library)

    def select_step(self, library):
        logits = Logits.of(self).smelt("", library)
        logits.run()
        row = Select.__new__(Select)
        row.__dict__ = {**vars(self), "topk": self.topk, "columns": self.keys, "kind": "causal"}
        row.scores = logits.results["logits"]
        return row.smelt("smelt select", library)

    def check(self, contenders, options):
        first = contenders[0]
        queries = torch.arange(self.tokens, device=DEVICE)
        queries = queries[-(-self.tokens // self.COMPARED) - 1 :: -(-self.tokens // self.COMPARED)]
        wrong, error = self.exact(first.results["indices"][queries], queries, options.libraries[0])
        found = {first.name: {"wrong": wrong, "error": error}}
        found[first.name]["workspace MB"] = first.workspace_bytes / 1e6
        found[first.name]["memory MB"] = memory_taken(first.run)
        mine = [set(row) - {-1} for row in first.results["indices"][queries].tolist()]
        for each in contenders[1:]:
            if "indices" in each.results:
                other = map(set, each.results["indices"][queries].tolist())
                missing = sum(len(chosen - row) for chosen, row in zip(mine, other))
                found[each.name] = {"differ": missing / sum(map(len, mine))}
        return found

    def exact(self, indices, queries, library):
        """The number of wrong queries, and the largest error of their logits."""
        sample = Logits.of(self, tokens=len(queries))
        sample.q = self.q.view(torch.uint8)[queries].view(self.q.dtype)
        sample.weights, sample.begins, sample.ends = (
            tensor[queries].contiguous() for tensor in (self.weights, self.begins, self.ends)
        )
        scorer = sample.smelt("", library)
        scorer.run()
        logits = scorer.results["logits"]
        wrong = int((expected(logits, sample.ends, self.topk) != indices).any(dim=1).sum())
        exact = reference("_indexer_reference").logits
        q, k, weights = sample.q.double(), self.k.double(), sample.weights.double()
        windows = self.scale, sample.begins, sample.ends
        right, terms = (exact(q, k, weights, *windows), exact(q.abs(), k.abs(), weights.abs(), *windows))
        off = (logits - right).abs() / terms.clamp(min=1e-30)
        return wrong, float(off[right.isfinite()].max())


def memory_taken(run):
    """MB of device memory that a launch uses in addition to the caller's."""
    if harness.EMULATED:
        return 0.0
    torch.cuda.synchronize()
    before = torch.cuda.mem_get_info()[0]
    run()
    torch.cuda.synchronize()
    return (before - torch.cuda.mem_get_info()[0]) / 1e6
