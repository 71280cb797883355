"""Custom operators of the library's operators: signature, checks, fakes, kernel function and what autograd keeps follow
from the library's description of a pass, from the spec's function and from the eager reference's signature."""

from __future__ import annotations

import functools
import inspect
import linecache
from collections.abc import Callable

import torch
from torch.compiler import is_compiling

from . import _runtime
from ._checks import floating, one_masked
from ._description import OUTPUT, WRITTEN, Extent, Pass, Row, bind, check_scalars, shape_of
from ._operation import Operation

NEVER = float("-inf")
FP32 = "_fp32"  # ends the name of an output that is one in bf16 otherwise
TYPES = {torch.bfloat16: "bf16", torch.float32: "fp32", torch.float8_e4m3fn: "fp8"}  # as specs name them
LAUNCH = ("free_multiprocessors", "workspace_limit", "causal_limit")  # numbers on which no result depends
LISTED = ("queries", "query_count")  # the query list
SLOTS = "width"  # the letter of a list's slots, of which kernels need one


def spec_text(operator: str, keys: dict) -> str:
    """A spec. A key whose value is None, or a type that specs cannot name, is left out: it has its default."""
    words = {name: TYPES.get(each) if isinstance(each, torch.dtype) else each for name, each in keys.items()}
    words = {name: int(each) if type(each) is bool else each for name, each in words.items() if each is not None}
    return operator + ":" * bool(words) + ",".join(f"{name}={each}" for name, each in words.items())


@functools.lru_cache(256)
def _rows_of(spec: str, which: int) -> dict:
    """The tensors of a spec, by name. ValueError: no operator has such keys."""
    return {row.name: row for row in Pass(spec, which).rows}


def of_groups(named) -> dict:
    """`sizes` of LibraryOperation, for operators with the option `groups`."""
    return {"G": named["groups"]}


def is_deterministic(asked) -> bool:
    return torch.are_deterministic_algorithms_enabled() if asked is None else bool(asked)


class LibraryOperation(Operation):
    """An operator's pass.

    spec: a function that returns the spec's text, or a Refused. Its first parameters are the key's types and sizes; each
        other parameter is a tensor's name (the value: whether it is given), NAME_dtype of a tensor (its type, None if it
        is not given), the letter of an input's dimension (the extent), or an option of the call, annotated with its type.
        None: the operator has no keys.
    key: see Operation.
    reference: the eager reference. It is called with the arguments that its parameters name, computes all queries (also
        with a query list), and returns a tensor or a tuple of all outputs, of any floating types. The call has no optional
        tensors (except LISTED) and numbers (except LAUNCH) that the reference does not name.
    which: 0 for the forward, 1 for the backward pass. name: the custom operator's, the operator's where not given.
    gradient: the operation that computes the gradients of the output `differentiable`; its other inputs are arguments
        and outputs of this operation, by name.
    also: optional outputs that are always made. asked: those that are made where the option with_NAME is true. made_with:
        {output: the option of the spec above 0 with which it is made}.
    table: a function of the arguments by name that returns arguments for `spec`: a tuple of those before the options, for
        a shape that is always legal, and a dictionary of options that replace the call's. The description of that spec
        gives the tensors' shapes. None: the operator's name describes every call.
    written: outputs, or tensors that are added to, that the caller gives.
    floats: whether the eager reference takes any floating type in the place of bf16. kinds: {tensor: legal types}, where
        there are others than the description's.
    fills: {output: what a query that a list of queries leaves out has}, 0 where not given.
    sizes: gives extents that no tensor's shape has, by letter, of the arguments by name.
    rules: a check of the arguments by name beyond the description's.

    The call's arguments (`names`): the tensors in the order of the args struct (in a backward pass the outputs' gradients
    first, a forward call's partition last), the numbers, the options of the spec, `dk_dtype` where there are the outputs
    dk and dk_fp32, with_NAME, what `gradient` has beside these, backend.
    """

    def __init__(
        self,
        operator: str,
        *,
        key: dict,
        reference: Callable,
        spec: Callable | None = None,
        which: int = 0,
        name: str | None = None,
        gradient: LibraryOperation | None = None,
        differentiable: str | None = None,
        also: tuple = (),
        asked: tuple = (),
        made_with: dict | None = None,
        table: Callable | None = None,
        written: tuple = (),
        floats: bool = False,
        kinds: dict | None = None,
        fills: dict | None = None,
        sizes: Callable = lambda named: {},
        rules: Callable = lambda named: None,
    ):
        described, spec = Pass(operator, which), spec or (lambda *_: operator)
        self.which = which
        self.described, self.reference, self.sizes, self.rules = described, reference, sizes, rules
        self.asked, self.fills, self.spec, self.table = asked, fills or {}, spec, table
        self.spec_options = [each.name for each in _options(spec, key) if each.annotation is not each.empty]
        self.options = {name: f"with_{name}" for name in asked} | (made_with or {})  # with which outputs are made
        rows = [row for row in described.rows if row.name in written or not row.flags & (OUTPUT | WRITTEN)]
        self.read = tuple(inspect.signature(reference).parameters)
        rows = [row for row in rows if row.name in (*self.read, *written, *LISTED) or not row.is_optional()]
        rows.sort(key=lambda row: not _is_gradient(row))
        order = [row.name for row in rows]
        made = [row.name for row in described.rows if row.is_output()]
        self.wide = {name[: -len(FP32)] for name in made if name.endswith(FP32)}
        results = [row for row in described.rows if row.is_output() and row.name not in written]
        results = [
            row
            for row in results
            if row.name in (*also, *self.options)
            or not row.is_optional()
            or (row.name[0] == "d" and row.name[1:] in order)  # a gradient
        ]
        results.sort(key=lambda row: order.index(row.name[1:]) if which and row.name[1:] in order else -1)
        self.rows, self.results = tuple(rows), tuple(results)
        self.numbers = tuple(each for each in described.arguments(rows, self.read) if each.name in (*self.read, *LAUNCH))
        lenient = [row.name for row in rows if _is_gradient(row) or (floats and row.kind is torch.bfloat16)]
        self.kinds = {row.name: () if row.name in lenient else (row.kind,) for row in rows} | (kinds or {})
        self.annotations = self._parameters(spec, key, gradient)
        self.name = name or operator
        self.read = tuple(name for name in self.read if name in self.annotations)
        kernel = self._make_kernel(spec, key, made, gradient, written)
        super().__init__(self.name, kernel, self._fake, self.annotations, len(results), key, written)
        if gradient:
            self._has_gradients(gradient, differentiable or results[0].name)

    # ---- signature ----------------------------------------------------------------------------------

    def _parameters(self, spec, key, gradient) -> dict:
        may_be_none = {row.name: row.is_optional() and not row.flags & WRITTEN for row in self.rows}
        found = {name: "Tensor | None" if may else "Tensor" for name, may in may_be_none.items()}
        if self.described.has_partition:
            found["partition"] = "Tensor | None"
        found.update((each.name, "float" if each.is_float else "int") for each in self.numbers)
        for each in _options(spec, key):
            if each.annotation is not each.empty:
                found.setdefault(each.name, each.annotation)
        found.update((f"{each}_dtype", "torch.dtype | None") for each in sorted(self.wide))
        found.update((f"with_{each}", "bool") for each in self.asked)
        if gradient:
            for name, annotation in list(gradient.annotations.items())[gradient.tensors : -1]:
                found.setdefault(name, annotation)
        return {**found, "backend": "str | None"}

    # ---- checks and fakes ---------------------------------------------------------------------------

    def check_arguments(self, arguments) -> None:
        named = dict(zip(self.names, arguments))
        check_scalars(self.numbers, named)
        if self.table is None or not is_compiling():  # which does not look into `table`: the fake binds
            self._bind(named)
        self.rules(named)

    def _bind(self, named):
        """The extents that the arguments have, and the rows of the results."""
        rows, results = self.rows, self.results
        sizes = {each.letter: named[each.name] for each in self.numbers if each.letter}
        if self.table is not None:
            first, others = self.table(named)
            options = {name: named[name] for name in self.spec_options}
            if "deterministic" in options:  # any truth value, as the kernel function takes it
                options["deterministic"] = is_deterministic(options["deterministic"])
            found = _rows_of(self.spec(*first, **options | others), self.which)
            rows, results = ([found[row.name] for row in each] for each in (rows, results))
            sizes |= self.sizes(named)
        return bind(rows, named, self.kinds, sizes), results

    def _fake(self, *arguments):
        named = dict(zip(self.names, arguments))
        bound, results = self._bind(named)
        letters = {letter for row in results for letter, *_ in row.letters}
        sizes = {letter: named[letter] for letter in letters if letter in named}
        bound = bound._replace(sizes=sizes | self.sizes(named) | bound.sizes)
        first, made = named[self.rows[0].name], []
        for row in results:
            kind = self._type_of(row, named)
            made.append(None if kind is None else first.new_empty(shape_of(row, bound), dtype=kind))
        return tuple(made)

    def _type_of(self, row, named):
        """An output's type; None: it is not made."""
        if not named.get(self.options.get(row.name), True) or f"{row.name}_sum" in named:
            return None
        of = row.name[1:] if row.name[0] == "d" else row.name.replace("_d", "_", 1)  # dk of k, index_dk of index_k
        if of != row.name and of in named:  # a gradient
            of = named[of]
            return None if of is None else named.get(f"{row.name}_dtype") or of.dtype
        narrow = named[self.rows[0].name].dtype if row.kind is torch.bfloat16 else row.kind
        return named.get(f"{row.name}_dtype") or narrow

    # ---- the kernel function ------------------------------------------------------------------------

    def _make_kernel(self, spec, key, made, gradient, written):
        """A function written for this pass: loops over its arguments would take as long as a launch."""
        names = ", ".join(self.annotations)
        options = ", ".join(self._option(each.name) for each in _options(spec, key))
        lines = [f"def kernel(key, {names}):"]
        if any(row.name == list(key)[-1] and row.ends_with(SLOTS) for row in self.rows):
            lines += ["    if not key[-1]:", f"        return without_slots(key, ({names},))"]
        for each in self.wide | (gradient.wide if gradient else set()):
            if self.kinds.get(each[1:]) == () and each[1:] in key:
                keyed = list(key)[: list(key).index(each[1:])]
                place = 1 + sum(1 + key[before] for before in keyed)
                read = f"{each[1:]}, key = as_read({each[1:]}, key, {place})"
                lines += [f"    if {each}_dtype is torch.float32:", f"        {read}"]
        lines += [
            f"    found = runtime.find(key, backend, spec, {options})",
            "    if not found:",
            f"        return by_reference(({names},), found)",
        ]
        for row in self.rows:
            if _is_gradient(row):
                lines += [
                    f"    if {row.name}.dtype is not {row.kind}:",
                    f"        {row.name} = cast({row.name}, '{row.name}', {row.kind})",
                ]
        results = [self._result(row.name, made) for row in self.results]
        if gradient and gradient.described.has_partition:
            results.append("made[-1]")
        lines += [
            f"    made = found.{'backward' if self.which else 'forward'}({self._values()})",
            *[f"    count_write({name})" for name in written],
            f"    return {', '.join(results)}{',' if len(results) == 1 else ''}" if results else "    return ()",
        ]
        scope = {"__name__": __name__, "runtime": _runtime, "torch": torch, "spec": spec, "is_deterministic": is_deterministic}
        scope.update(cast=_cast, without_slots=self._without_slots, by_reference=self._by_reference, NEVER=NEVER)
        scope["as_read"], scope["count_write"] = _in_first_type, _count_write
        text, file = "\n".join(lines), f"<smelt_kernels: {self.name}>"
        linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file  # for tracebacks
        exec(compile(text, file, "exec"), scope)
        return scope["kernel"]

    def _option(self, name) -> str:
        """What the spec is told."""
        annotation = self.annotations.get(name)
        of = name.removesuffix("_dtype")
        if annotation is None and of in self.annotations:
            return f"None if {of} is None else {of}.dtype"
        if annotation is None:  # an extent
            row = next(row for row in self.rows if Extent(name) in row.letters)
            return f"{row.name}.shape[{row.letters.index(Extent(name)) - len(row.letters)}]"
        if annotation.startswith("Tensor"):
            return f"{name} is not None"
        if name == "deterministic":
            return f"is_deterministic({name})"
        return f"tuple({name})" if annotation.startswith("tuple") else name

    def _values(self) -> str:
        """The native call's arguments, in the order of the description."""
        given = {row.name for row in self.rows}
        values = [row.name if row.name in given else self._wanted(row) for row in self.described.rows]
        numbers = {each.name for each in self.numbers}
        values += [f"{each.name}={each.name}" for each in self.described.scalars if each.name in numbers]
        return ", ".join(values + ["partition=partition"] * self.described.has_partition)

    def _wanted(self, row: Row) -> str:
        """Whether an output is made, and with what it is filled."""
        of, wanted = row.name.removesuffix(FP32), "True"
        if of not in [each.name for each in self.results] or f"{of}_sum" in self.annotations:
            return "None"
        if of in self.wide:
            wanted = f"{of}_dtype is{'' if row.name.endswith(FP32) else ' not'} torch.float32"
            wanted = f"with_{of} and {wanted}" if of in self.asked else wanted
        elif of in self.options:
            wanted = f"bool({self.options[of]})"
        elif of[0] == "d" and self.annotations.get(of[1:]) == "Tensor | None":
            wanted = f"{of[1:]} is not None"
        if "queries" not in self.annotations or Extent("T") not in row.letters:
            return wanted
        fill = "NEVER" if self.fills.get(of) == NEVER else self.fills.get(of, 0.0)
        filled = fill if wanted == "True" else f"{wanted} and {fill}"
        return f"{wanted} if queries is None else {filled}"

    def _result(self, name, made) -> str:
        place = made.index(name)
        if name not in self.wide:
            return f"made[{place}]"
        wide = made.index(name + FP32)
        return f"made[{place}] if made[{wide}] is None else made[{wide}]"

    def _without_slots(self, key, arguments) -> tuple:
        """Lists without a slot, as lists of one that is masked."""
        arguments = list(arguments)
        for place, row in enumerate(self.rows):
            each = arguments[place]
            if row.ends_with(SLOTS) and each is not None:
                lists = row.kind is torch.int32
                arguments[place] = one_masked(each) if lists else each.new_zeros((*each.shape[:-1], 1))
        made = list(self.kernel((*key[:-1], 1), *arguments))
        for place, row in enumerate(self.results):
            if row.ends_with(SLOTS) and made[place] is not None:
                made[place] = made[place].new_empty((*made[place].shape[:-1], 0))
        return tuple(made)

    def _by_reference(self, arguments, refused) -> tuple:
        named = dict(zip(self.names, self._checked(arguments)))
        if refused is not None:
            _runtime.warn_of(refused)
        left_out = _left_out(named) if named.get("queries") is not None else None
        if left_out is not None:
            named |= {row.name: _filled(named[row.name], left_out, 0) for row in self.rows if _is_gradient(row)}
        with torch.no_grad():
            made = self.reference(**{name: named[name] for name in self.read})
        results = []
        for row, each in zip(self.results, made if isinstance(made, tuple) else (made,)):
            kind = self._type_of(row, named)
            if f"{row.name}_sum" in named:
                named[f"{row.name}_sum"] += each
            elif kind is not None and left_out is not None and not self.which:
                each = _filled(each, left_out, self.fills.get(row.name, 0))
            results.append(None if kind is None else each.to(kind))
        return tuple(results)

    # ---- gradients ----------------------------------------------------------------------------------

    def _has_gradients(self, gradient, differentiable) -> None:
        outputs = [row.name for row in self.results]

        def where(name):
            if name in self.names:
                return f"arguments[{self.names.index(name)}]"
            if name in outputs:
                return f"made[{outputs.index(name)}]"
            return f"made[{len(outputs)}] if len(made) > {len(outputs)} else None"  # the partition

        tensors = [where(name) for name in gradient.names[: gradient.tensors] if not name.startswith("grad")]
        options = [where(name) for name in gradient.names[gradient.tensors :]]
        leaves = tuple(row.name[1:] for row in gradient.results)
        given = [tensors.index(where(name)) for name in leaves]
        optional = [self.annotations[name] == "Tensor | None" for name in leaves]
        saved = eval(f"lambda arguments, made: (({', '.join(tensors)},), ({', '.join(options)},))")

        def flow(grad, options, *tensors):
            made = gradient.in_backward(grad, *tensors, *options)
            if not any(optional):
                return made
            return [None if tensors[place] is None else each for each, place in zip(made, given)]

        self.differentiable(leaves, outputs.index(differentiable), saved, flow)


def _left_out(named):
    """The queries that a query list does not name: bool, of q's leading shape."""
    queries, query_count, lead = named["queries"], named["query_count"], named["q"].shape[:-2]
    count = queries.shape[0] if query_count is None else query_count.clamp(0, queries.shape[0])
    counts = (queries >= 0) & (queries < lead.numel()) & (torch.arange(queries.shape[0], device=queries.device) < count)
    left_out = torch.ones(lead.numel() + 1, dtype=torch.bool, device=queries.device)
    left_out[torch.where(counts, queries.long(), lead.numel())] = False
    return left_out[:-1].view(lead)


def _filled(tensor, queries, value):
    return tensor.masked_fill(queries.view(*queries.shape, *[1] * (tensor.dim() - queries.dim())), value)


def _is_gradient(row: Row) -> bool:
    """Of an output, that a backward pass reads."""
    return row.name.startswith("grad") and not row.is_output()


def _options(spec, key) -> list:
    """The parameters of a spec's function behind those that the key gives."""
    return list(inspect.signature(spec).parameters.values())[sum(1 + count for count in key.values()) :]


def _count_write(tensor) -> None:
    """Tells autograd of a write, so that it refuses a backward pass that needs the overwritten values."""
    if not tensor.is_inference():  # which has no count
        torch.autograd.graph.increment_version(tensor)


def _cast(grad, name, kind):
    floating(**{name: grad})
    return grad.to(kind)


def _in_first_type(tensor, key, place):
    """A tensor that is given in fp32, since its gradient is to be in fp32; and the key, with its type at `place`."""
    tensor = tensor.to(key[1]) if tensor.dtype is torch.float32 else tensor
    return tensor, (*key[:place], tensor.dtype, *key[place + 1 :])
