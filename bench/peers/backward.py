#!/usr/bin/env python3
"""Times the backward pass beside cuDNN Frontend's, in turn, in one process (README.md, "Backward").

    python3 bench/peers/backward.py [--shapes NAME,...] [--rounds N] [--deterministic] [--smelt-only]
                                    [--knobs K]... [--library PATH]...

Several --knobs, or builds of the library, are several contenders, named by what tells them apart.
A row's name says its shape: h64-8192 is 64 heads, 8192 queries, as many KV rows. Then, in any
order: s131072 (KV rows), k640 (topk, else 2048), d512 (Dqk, else 576), sink, buckets (smelt's own
buckets=auto), and the kind of its lists, random unless said:
    random, ascending   distinct rows of the whole table, in random or ascending order
    drift, drift-ascending  each query keeps 90 % of its predecessor's slots
    causal              random rows up to the query's own, then -1; topk_length for both libraries
    causal-padded       the same without topk_length
    half                random, half of the slots -1
    documents           causal within documents of 512 tokens, then -1; topk_length for both
"bars" stands for the shapes by which the pass is judged, "quick" (the default) for three of them.

Every row is printed at once as a line of JSON, and all of them as a table at the end. Exit status:
0; 1 when a row failed or the gradients differ by more than rounding; 3 when the GPU is gone.
"""

import argparse
import json
import math
import pathlib
import random
import re
import statistics
import sys
import traceback

import smelt_library

ROOT = pathlib.Path(__file__).resolve().parents[2]
QUICK = "h64-8192,h64-8192-drift,h16-8192"
BARS = """h64-4096,h64-8192,h64-16384,h64-32768,h64-8192-s131072,
h64-8192-drift,h64-32768-drift,h64-8192-s131072-drift,h128-8192,
h8-8192,h16-8192,h32-8192,h8-8192-drift,h16-8192-drift,h32-8192-drift,
h64-4096-k640-d512-sink,h128-4096-k1152-d512-sink,h64-8192-causal,h64-8192-half"""
LISTS = ("random", "ascending", "drift", "causal", "half", "documents")
DOCUMENT = 512  # tokens
RENEWED = 10  # drift: one slot in so many, a query
WARM_UPS = 3
MODES = (("smelt", ""), ("smelt-det", ",deterministic=1"))
DIFFERENT = 1e-2  # of the norm: two bf16 gradients from bf16 inputs differ by 3e-3 to 6e-3
# What cuDNN's own training wrapper takes; other numbers of heads are padded to the next.
CUDNN_HEADS = (16, 32, 64, 128)

torch = None  # imported in main, so that --help and --list work where it is not installed


class Row:
    """A shape and the kind of its lists, from the row's name."""

    def __init__(self, name):
        self.name = name
        match = re.fullmatch(r"h(\d+)-(\d+)((?:-[a-z0-9]+)*)", name)
        if not match:
            raise ValueError(f"{name}: expected hHEADS-TOKENS[-...]")
        self.heads, self.tokens = int(match[1]), int(match[2])
        self.rows, self.topk, self.dqk, self.dv = self.tokens, 2048, 576, 512
        self.sink = self.buckets = self.padded = self.sort = False
        self.lists = "random"
        for word in match[3].split("-")[1:]:
            self._take(word)

    def _take(self, word):
        number = re.fullmatch(r"([skd])(\d+)", word)
        if number:
            setattr(self, {"s": "rows", "k": "topk", "d": "dqk"}[number[1]], int(number[2]))
        elif word in ("sink", "buckets", "padded"):
            setattr(self, word, True)
        elif word == "ascending":
            self.sort = True
        elif word in LISTS:
            self.lists = word
        else:
            raise ValueError(f"{self.name}: what is {word}?")

    def text(self, options=""):
        """The operator's."""
        text = f"sparse_attn:heads={self.heads},dqk={self.dqk},dv={self.dv},topk={self.topk}"
        return text + (",sink=1" if self.sink else "") + ",passes=both" + options

    def flops(self, pairs):
        """Of so many pairs of a query and a valid slot."""
        return 2 * pairs * self.heads * (3 * self.dqk + 2 * self.dv)


# ---- lists and tensors --------------------------------------------------------------------------


def random_lists(row, generator):
    """[T, topk] int32: distinct rows in random order, of those the query may see, then -1."""
    result = torch.full((row.tokens, row.topk), -1, dtype=torch.int32, device="cuda")
    reach = min(row.topk, row.rows)
    columns = torch.arange(row.rows, device="cuda")
    step = max(1, (1 << 27) // row.rows)
    for begin in range(0, row.tokens, step):
        query = torch.arange(begin, min(begin + step, row.tokens), device="cuda")[:, None]
        chance = torch.rand(len(query), row.rows, device="cuda", generator=generator)
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
    """A window sliding over a random order of the table: `smelt bench`'s lists=drift. An entry
    keeps its slot for as long as it stays."""
    order = torch.randperm(row.rows, device="cuda", generator=generator).to(torch.int32)
    count = min(row.topk, row.rows)
    result = torch.full((row.tokens, row.topk), -1, dtype=torch.int32, device="cuda")
    first = (torch.arange(row.tokens, device="cuda") * count // RENEWED)[:, None]
    slots = torch.arange(count, device="cuda")
    result[:, :count] = order[(first + (slots - first) % count) % row.rows]
    return result


def make_lists(row, generator):
    """indices, topk_length or None, and the number of valid slots."""
    make = drift_lists if row.lists == "drift" else random_lists
    indices = make(row, generator)
    if row.lists == "half":
        chance = torch.rand(indices.shape, device="cuda", generator=generator)
        indices.masked_fill_(chance < 0.5, -1)
    if row.sort:  # what is masked goes to the end
        indices = torch.where(indices < 0, row.rows, indices).sort(dim=1).values
        indices = torch.where(indices == row.rows, -1, indices).to(torch.int32)
    valid = (indices >= 0).sum(dim=1, dtype=torch.int32)
    length = None
    if row.lists in ("causal", "documents") and not row.padded:
        length = valid
    return indices.contiguous(), length, int(valid.sum(dtype=torch.int64))


class Data:
    """A row's inputs, shared by all contenders."""

    def __init__(self, row, seed):
        self.row, self.scale = row, 1 / math.sqrt(row.dqk)
        generator = torch.Generator("cuda").manual_seed(seed)

        def normal(*shape, dtype=torch.bfloat16):
            made = torch.empty(shape, dtype=dtype, device="cuda")
            return made.normal_(generator=generator)

        self.q = normal(row.tokens, row.heads, row.dqk)
        self.kv = normal(row.rows, row.dqk)
        self.grad_out = normal(row.tokens, row.heads, row.dv)
        self.sink = normal(row.heads, dtype=torch.float32) if row.sink else None
        self.indices, self.length, self.pairs = make_lists(row, generator)
        self.out = torch.empty_like(self.grad_out)
        self.lse = torch.empty(row.tokens, row.heads, dtype=torch.float32, device="cuda")


# ---- the meaning, in fp32 -----------------------------------------------------------------------


class Chunk:
    """A few queries' keys and probabilities, dense."""

    def __init__(self, data, begin, count):
        self.at = slice(begin, begin + count)
        slots = data.indices[self.at]
        valid = slots >= 0
        if data.length is not None:
            places = torch.arange(slots.shape[1], device="cuda")
            valid &= places < data.length[self.at][:, None]
        self.rows = slots.clamp(min=0).long()
        self.keys = data.kv[self.rows].float()
        self.q = data.q[self.at].float()
        scores = data.scale * (self.q @ self.keys.transpose(1, 2))
        scores.masked_fill_(~valid[:, None, :], -math.inf)
        self.lse = scores.logsumexp(dim=2)
        total = self.lse if data.sink is None else torch.logaddexp(self.lse, data.sink)
        self.sink_share = None if data.sink is None else torch.exp(data.sink - total)
        self.p = torch.exp(scores - total[:, :, None])
        self.values = self.keys[:, :, : data.row.dv]


def chunks(data):
    """Queries by the 16: their keys take 75 MB. Every query has a valid slot in all our lists."""
    for begin in range(0, data.row.tokens, 16):
        yield Chunk(data, begin, 16)


def forward_in_torch(data):
    for chunk in chunks(data):
        data.out[chunk.at] = (chunk.p @ chunk.values).to(torch.bfloat16)
        data.lse[chunk.at] = chunk.lse


def reference(data):
    """The three gradients in fp32, with delta from the out that was rounded to bf16."""
    dq = torch.empty_like(data.q, dtype=torch.float32)
    dkv = torch.zeros_like(data.kv, dtype=torch.float32)
    dsink = None if data.sink is None else torch.zeros_like(data.sink)
    for chunk in chunks(data):
        grad = data.grad_out[chunk.at].float()
        delta = (data.out[chunk.at].float() * grad).sum(dim=2)
        dp = grad @ chunk.values.transpose(1, 2)
        ds = data.scale * chunk.p * (dp - delta[:, :, None])
        dq[chunk.at] = ds @ chunk.keys
        part = ds.transpose(1, 2) @ chunk.q
        part[:, :, : data.row.dv] += chunk.p.transpose(1, 2) @ grad
        dkv.index_add_(0, chunk.rows.flatten(), part.flatten(0, 1))
        if dsink is not None:
            dsink -= (delta * chunk.sink_share).sum(dim=0)
    return {"dq": dq, "dkv": dkv, "dsink": dsink}


def difference(got, want):
    """|got - want| / |want|, and the worst row's, of rows above 1e-3 of the largest; NaN counts."""
    got, want = got.float(), want.float()
    error, norm = (got - want).norm(dim=-1), want.norm(dim=-1)
    counted = norm > 1e-3 * norm.max()
    whole = float(error.double().norm() / norm.double().norm())
    return whole, float((error / norm)[counted].max())


# ---- contenders ---------------------------------------------------------------------------------


class Smelt:
    """An operator for both passes; the forward pass fills the row's out and lse."""

    def __init__(self, library, row, name, options):
        self.name = name
        self.operator = smelt_library.Operator(library, row.text(options))
        self.kernels = self.operator.kernels(smelt_library.PASS_BACKWARD)
        self.stream = torch.cuda.current_stream().cuda_stream

    def _fill(self, args, data):
        row = data.row
        args.tokens, args.rows, args.width, args.scale = row.tokens, row.rows, row.topk, data.scale
        for field in ("q", "kv", "indices", "out", "lse"):
            getattr(args, field).data = getattr(data, field).data_ptr()
        args.topk_length.data = data.length.data_ptr() if data.length is not None else None
        args.sink.data = data.sink.data_ptr() if data.sink is not None else None

    def _give_workspace(self, which, args):
        args.workspace_bytes = self.operator.workspace(args, which)
        self.space = torch.empty(max(1, args.workspace_bytes), dtype=torch.uint8, device="cuda")
        args.workspace = self.space.data_ptr()

    def forward(self, data):
        args = smelt_library.with_size(smelt_library.SparseAttnArgs)
        self._fill(args, data)
        self._give_workspace("forward", args)
        self.operator.launch(args, self.stream)
        torch.cuda.synchronize()

    def prepare(self, data):
        self.args = smelt_library.with_size(smelt_library.SparseAttnGradArgs)
        self._fill(self.args, data)
        self.dq = torch.full_like(data.q, math.nan)
        self.dkv = torch.full_like(data.kv, math.nan)
        self.dsink = None if data.sink is None else torch.full_like(data.sink, math.nan)
        self.args.grad_out.data = data.grad_out.data_ptr()
        self.args.dq.data, self.args.dkv.data = self.dq.data_ptr(), self.dkv.data_ptr()
        if self.dsink is not None:
            self.args.dsink.data = self.dsink.data_ptr()
        self._give_workspace("backward", self.args)

    def launch(self):
        self.operator.launch(self.args, self.stream, "backward")

    def gradients(self):
        return {"dq": self.dq, "dkv": self.dkv, "dsink": self.dsink}

    def close(self):
        torch.cuda.synchronize()
        self.operator.destroy()


class Cudnn:
    """cudnn.DSA's wrapper. What it launches is all timed: zeroing of its fp32 dkv and of dsink,
    delta and lse with the sink, the main kernel, the cast. Its workspace comes from torch's pool in
    each call; dq and dkv are given. It takes lse as smelt writes it, always has a sink (-inf stands
    for none), and skips slots outside the table."""

    name = "cudnn"

    def __init__(self, wrapper):
        self.wrapper = wrapper

    def prepare(self, data):
        heads = next(count for count in CUDNN_HEADS if count >= data.row.heads)
        self.heads = data.row.heads
        extra = heads - self.heads

        def pad(tensor, value=0.0):  # on the second dimension, the heads
            padding = [0, 0] * (tensor.dim() - 2) + [0, extra]
            return torch.nn.functional.pad(tensor, padding, value=value) if extra else tensor

        sink = torch.full((self.heads,), -math.inf, device="cuda")
        sink = pad((data.sink if data.sink is not None else sink)[None], -math.inf)[0].contiguous()
        self.has_sink = data.sink is not None
        q = pad(data.q)
        self.arguments = {
            "q": q,
            "kv": data.kv,
            "out": pad(data.out),
            "dout": pad(data.grad_out),
            "lse": pad(data.lse),
            "attn_sink": sink,
            "topk_idxs": data.indices,
            "softmax_scale": data.scale,
            "topk_length": data.length,
            "dq": torch.full_like(q, math.nan),
            "dkv": torch.full_like(data.kv, math.nan),
        }

    def launch(self):
        self.result = self.wrapper(**self.arguments)

    def gradients(self):
        dsink = self.result["d_sink"][: self.heads] if self.has_sink else None
        return {
            "dq": self.result["dq"][:, : self.heads],
            "dkv": self.result["dkv"],
            "dsink": dsink,
        }

    def close(self):
        self.arguments = self.result = None


def complain(what):
    """What failed, with its trace; the program goes on."""
    print(f"backward.py: {what} failed", file=sys.stderr)
    traceback.print_exc()
    sys.stderr.flush()


def open_cudnn():
    """The wrapper, or None where it cannot be had."""
    step = "import of cutlass (nvidia-cutlass-dsl)"
    try:
        import cutlass

        step = "import of cudnn (nvidia-cudnn-frontend)"
        import cudnn

        step = "cudnn.DSA.sparse_attention_backward_wrapper"
        wrapper = cudnn.DSA.sparse_attention_backward_wrapper
    except Exception:
        complain(step)
        return None
    versions = (getattr(module, "__version__", "?") for module in (cudnn, cutlass))
    print("# cudnn frontend {}, cutlass dsl {}".format(*versions))
    return wrapper


# ---- a row --------------------------------------------------------------------------------------


def gpu_is_gone():
    """After an illegal access nothing in the process can use the GPU again."""
    try:
        torch.cuda.synchronize()
        return False
    except Exception:
        return True


def first_launch(contender, data):
    """Compiles what is compiled then; failing here, a contender is left out of the row."""
    contender.prepare(data)
    contender.launch()
    torch.cuda.synchronize()


def smelt_contenders(libraries, row, options):
    """Names of smelt's contenders, and what makes each."""
    makers = {}
    for path, library in libraries.items():
        for knobs in options.knobs:
            text = f",bwd.variant={options.variant}" if options.variant else ""
            text += f",{knobs}" if knobs else ""
            text += ",buckets=auto" if row.buckets else ""
            marks = ([path] if len(libraries) > 1 else []) + (
                [knobs or "plain"] if len(options.knobs) > 1 else []
            )
            for kind, more in MODES[: 1 + options.deterministic]:
                name = " ".join([kind] + marks)
                makers[name] = lambda library=library, name=name, text=text + more: Smelt(
                    library, row, name, text
                )
    return makers


def make_contenders(libraries, wrapper, row, data, options):
    """Those that ran once; smelt's own forward pass, or torch, has filled out and lse."""
    makers = smelt_contenders(libraries, row, options)
    if wrapper:
        makers["cudnn"] = lambda: Cudnn(wrapper)
    contenders, filled = [], False
    for name, make in makers.items():
        try:
            made = make()
            if not filled and isinstance(made, Smelt):
                made.forward(data)
                filled = True
            if not filled:
                forward_in_torch(data)
                filled = True
            first_launch(made, data)
            contenders.append(made)
        except Exception:
            complain(f"{row.name}: {name}")
            if gpu_is_gone():
                raise SystemExit(3)
    return contenders


def time_contenders(contenders, rounds):
    """Milliseconds of each launch, by contender. In every round each runs once, in random order;
    the host does not wait in between."""
    for contender in contenders * WARM_UPS:
        contender.launch()
    events = {contender.name: [] for contender in contenders}
    for _ in range(rounds):
        for contender in random.sample(contenders, len(contenders)):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            contender.launch()
            end.record()
            events[contender.name].append((begin, end))
    torch.cuda.synchronize()
    return {
        name: [begin.elapsed_time(end) for begin, end in pairs] for name, pairs in events.items()
    }


def compare(contenders, data, with_reference):
    """Differences of the gradients: of all contenders against the fp32 reference, or else of the
    others against the last."""
    if with_reference:
        base, against, others = reference(data), "fp32", contenders
    else:
        base, against, others = contenders[-1].gradients(), contenders[-1].name, contenders[:-1]
    found = {}
    for contender in others:
        for name, got in contender.gradients().items():
            if got is not None:
                whole, worst = difference(got, base[name])
                found[f"{contender.name}:{name}"] = {"against": against, "all": whole, "row": worst}
    return found


def measure(row, libraries, wrapper, options):
    data = Data(row, options.seed)
    contenders = make_contenders(libraries, wrapper, row, data, options)
    result = {"shape": row.name, "pairs": data.pairs, "rounds": options.rounds}
    if not contenders:
        return {**result, "failed": True}
    errors = compare(contenders, data, options.reference)
    result["contenders"] = [contender.name for contender in contenders]
    for name, times in time_contenders(contenders, options.rounds).items():
        median = statistics.median(times)
        result[f"{name}_ms"] = round(median, 4)
        result[f"{name}_tflops"] = round(row.flops(data.pairs) / median / 1e9, 1)
        result[f"{name}_min_ms"] = round(min(times), 4)
    for name in result["contenders"]:
        if name != "cudnn" and "cudnn_ms" in result:
            result[f"{name}_ratio"] = round(result["cudnn_ms"] / result[f"{name}_ms"], 3)
    result["errors"] = errors
    # Written so that a NaN is a failure, too.
    result["wrong"] = not all(error["all"] <= DIFFERENT for error in errors.values())
    expected = len(smelt_contenders(libraries, row, options)) + bool(wrapper)
    result["failed"] = len(contenders) < expected
    result["kernels"] = {
        contender.name: contender.kernels
        for contender in contenders
        if isinstance(contender, Smelt)
    }
    for contender in contenders:
        contender.close()
    return result


def print_table(results):
    names = {name: None for result in results for name in result.get("contenders", [])}
    names = sorted(names, key=lambda name: name != "cudnn")
    heads = [f"{name} ms, least (TFLOP/s)" for name in names]
    ratios = [name for name in names if name != "cudnn" and "cudnn" in names]
    print("\n| shape | " + " | ".join(heads + [f"cudnn / {name}" for name in ratios]), end="")
    print(" | differences |\n|" + "---|" * (2 + len(heads) + len(ratios)))
    for result in results:
        cells = [result["shape"]]
        for name in names:
            ms, rate = result.get(f"{name}_ms"), result.get(f"{name}_tflops")
            least = result.get(f"{name}_min_ms")
            cells.append(f"{ms:.3f}, {least:.3f} ({rate:.0f})" if ms else "failed")
        cells += [str(result.get(f"{name}_ratio", "")) for name in ratios]
        errors = result.get("errors", {})
        cells.append(
            ", ".join(
                f"{name} {error['all']:.1e} (row {error['row']:.1e})"
                for name, error in errors.items()
            )
        )
        print("| " + " | ".join(cells) + (" WRONG |" if result.get("wrong") else " |"))


# ---- the command line ---------------------------------------------------------------------------


def rows_named(text):
    names = text.replace("\n", "").replace("bars", BARS.replace("\n", "")).replace("quick", QUICK)
    return [Row(name.strip()) for name in names.split(",") if name.strip()]


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", type=rows_named, default=QUICK, help="rows; bars; quick")
    parser.add_argument("--rounds", type=int, default=24, help="launches of each (24)")
    parser.add_argument("--limit", type=int, help="at most so many rounds")
    parser.add_argument(
        "--deterministic", action="store_true", help="smelt's deterministic mode as a third"
    )
    parser.add_argument("--variant", help="smelt's: sm90, mma")
    parser.add_argument("--knobs", action="append", help="more of smelt's, bwd.group=1,...")
    parser.add_argument("--smelt-only", action="store_true", help="without cuDNN")
    parser.add_argument(
        "--reference", action="store_true", help="differences from fp32 (some seconds a row)"
    )
    parser.add_argument("--library", action="append", metavar="FILE")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", metavar="FILE", help="JSON lines go there, not to the output")
    parser.add_argument("--list", action="store_true", help="the rows' names, and go")
    options = parser.parse_args()
    if options.limit:
        options.rounds = min(options.rounds, options.limit)
    if options.rounds < 1:
        parser.error("--rounds: at least 1")
    options.knobs = options.knobs or [""]
    options.library = options.library or [str(ROOT / "build" / "libsmelt.so.1")]
    return options


def start(options):
    """torch, smelt and the wrapper; the first two cannot be done without."""
    global torch
    import torch as imported

    torch = imported
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.zeros(1, device="cuda")  # makes the device's primary context, and makes it current
    print(f"# {torch.cuda.get_device_name()}, torch {torch.__version__}")
    libraries = {path: smelt_library.Library(path) for path in options.library}
    for library in libraries.values():
        library.make_context()
    print(f"# smelt {library.version}")
    return libraries, None if options.smelt_only else open_cudnn()


def main():
    options = parse_arguments()
    if options.list:
        print("\n".join(row.name for row in options.shapes))
        return 0
    libraries, wrapper = start(options)
    results, status = [], 0
    sink = open(options.json, "w", encoding="utf-8") if options.json else sys.stdout
    try:
        for row in options.shapes:
            try:
                result = measure(row, libraries, wrapper, options)
            except Exception:
                complain(row.name)
                result = {"shape": row.name, "failed": True}
                if gpu_is_gone():
                    status = 3
            results.append(result)
            print(json.dumps(result), file=sink, flush=True)
            torch.cuda.empty_cache()
            if status == 3:
                break
    finally:
        print_table(results)
    if any(result["failed"] or result.get("wrong") for result in results):
        status = status or 1
    if wrapper is None and not options.smelt_only:
        status = status or 1
    return status


if __name__ == "__main__":
    sys.exit(main())
