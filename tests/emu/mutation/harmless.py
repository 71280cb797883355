"""Filters for changes that have no effect. They are not counted as mutants, since no test could catch them. Each filter
is a function of a Site; its name is the reason. Filters in SOUND follow from the text alone. Filters in BY_USE rely on
how these kernels use a construct, and are narrow enough to be certain. survivors.py keeps the mutants that no filter
drops and no test catches.
"""

import re
from dataclasses import dataclass

from syntax import Node, parse_expression
from values import value_of_text

THREAD = re.compile(r"threadIdx\.x|\b(lane|thread)\b|\b(lane|thread)_number\(\)")
# Deleting these costs only time. (Without registers_decrease, the emulator reports warps that wait for it.)
HINTS = re.compile(r"^(registers_increase|tensor_prefetch|prefetch_\w+|grid_launch_dependents)$")
LAUNCHES = re.compile("^grid_launch_dependents$")
GRID_WAITS = re.compile(r"^(grid_wait|end_grid)$")
OWN_GROUPS = re.compile(r"bulk_(commit|wait)")  # of the thread that issued the copies
NOWHERE = Node("", 0, 0)


@dataclass
class Site:
    """A change and its path in the syntax tree: finder.path, the innermost node last."""

    finder: object
    operator: str
    edits: list

    @property
    def path(self):
        return self.finder.path

    @property
    def node(self):
        """The innermost expression that contains the change."""
        return self.parent(0)

    def parent(self, levels=1):
        part = self.path[-1 - levels] if len(self.path) > levels else NOWHERE
        return part if isinstance(part, Node) else NOWHERE

    def around(self, kind, text=None):
        """The innermost node of that kind around the change; with `text`, one that matches it."""
        return next((part for part in reversed(self.path) if part.kind == kind and
                     (text is None or re.search(text, part.text))), None)

    def source(self, node):
        return self.finder.source(node)

    def value(self, node):
        return self.finder.value(node)

    def new_value(self, node):
        """A node's compile-time value after the change."""
        begin, end = self.finder.span(node)
        text = self.finder.text[begin:end]
        for start, stop, new in reversed(self.edits):
            if not begin <= start <= stop <= end:
                return None
            text = text[:start - begin] + new + text[stop - begin:]
        return value_of_text(text, self.finder.constants, parse_expression)


def dead_children(part, value_of_node):
    """The indices of a statement's or expression's children that the constants make dead code."""
    if isinstance(part, Node):
        condition = part.children[0] if part.kind in ("ternary", "binary") else None
    else:
        condition = part.condition if part.kind in ("if", "for", "while") else None
    value = value_of_node(condition) if condition else None
    if value is None:
        return ()
    if part.kind == "if":
        return (1,) if value else (0,)
    if part.kind in ("for", "while"):
        return () if value else (0,)
    if part.kind == "ternary":
        return (2,) if value else (1,)
    return (1,) if part.text in ("&&", "||") and bool(value) == (part.text == "||") else ()


# ---- what follows from the text


def never_reached(site):
    return site.finder.dead > 0


def same_value(site):
    """An expression around the change has a compile-time value that the change keeps."""
    outermost = next((part for part in site.path if isinstance(part, Node) and
                      site.value(part) is not None), None)
    return outermost is not None and site.new_value(outermost) == site.value(outermost)


def twin(site):
    """`false` -> 1 is the same as `false` -> true."""
    return site.operator == "bound-dropped" and site.node.text in ("true", "false")


def zero_added(site):
    """`arena + OFFSET`, of the region whose offset is 0."""
    return site.operator == "plus-minus" and site.node.kind == "binary" and \
        site.value(site.node.children[1]) == 0


def equal_arms(site):
    """`a < b ? a : b`: of equal operands either is the result."""
    ternary = site.parent()
    if site.operator != "comparison" or ternary.kind != "ternary":
        return False
    condition, *arms = ternary.children
    return condition is site.node and condition.text in ("<", "<=", ">", ">=") and \
        sorted(map(site.source, condition.children)) == sorted(map(site.source, arms))


def array_grows(site):
    """A local array becomes larger than its uses need."""
    for part, bound in zip(site.path, site.path[1:]):
        # (The row length of an array of arrays matters.)
        if part.kind == "declaration" and site.operator == "constant" and \
                site.finder.tokens[bound.start - 1].text == "[" and \
                site.finder.tokens[bound.start - 2].text != "]":
            old, new = site.value(bound), site.new_value(bound)
            return old is not None and new is not None and new >= old
    return False


def low_bits(site):
    """The remainder by a power of two depends only on the lower half of an unsigned number."""
    if site.operator != "offset-narrowed" or site.node.kind != "cast" or site.node.text != "u64":
        return False
    for part in reversed(site.path[:-1]):
        if part.kind == "binary" and part.text in ("%", "&"):
            return True
        if part.kind != "paren" and not (part.kind == "binary" and part.text in ("|", "/")):
            return False
    return False


def same_steps(site):
    """`for (mask = 1; mask <= 2; mask *= 2)`: up to 3 it has the same steps."""
    loop = site.path[-3] if len(site.path) > 2 else None
    return site.operator == "constant" and getattr(loop, "kind", "") == "for" and \
        site.parent() is loop.condition and site.parent().text == "<=" and loop.step and \
        site.source(loop.step).endswith("*= 2") and (site.value(site.node) or 1) % 2 == 0


def accumulates(site):
    """Any flag but 0 makes a product add to the accumulator."""
    call = site.parent()
    return site.operator == "constant" and call.kind == "call" and \
        call.text.startswith("wgmma_") and site.node is call.children[-1] and \
        site.node.text == "1"


def descriptor_fraction(site):
    """A matrix descriptor counts in units of 16 bytes."""
    call = site.around("call", "^(shared_descriptor|descriptor_advance)$")
    if site.operator != "constant" or not call or not site.value(site.node) or \
            site.value(site.node) % 16:
        return False
    if call.text == "shared_descriptor":  # (address, leading, stride, swizzle)
        return site.node in call.children[2:4]
    return re.fullmatch(r"\(u32\)\(\d+ \* \w+\)", site.source(call.children[2])) is not None


def copies_nothing(site):
    """`cp_async(to, there ? from : base, there ? BYTES : 0)`: a copy of 0 bytes ignores the address."""
    call = site.around("call", "^cp_async")
    if site.operator != "bound-dropped" or site.edits[0][2] != "1" or not call:
        return False
    size = call.children[-1]
    start, end, _ = site.edits[0]
    return size.kind == "ternary" and site.value(size.children[2]) == 0 and \
        size not in site.path and site.finder.text[start:end] == site.source(size.children[0])


# ---- how the kernels use a construct


def conjunct_of_if(site, part):
    """Whether an expression is the condition of an `if`, or one side of its &&s."""
    for outer in reversed(site.path[:site.path.index(part)]):
        if outer.kind == "if":
            return True
        if outer.kind != "paren" and not (outer.kind == "binary" and outer.text == "&&"):
            return False
    return False


def any_thread(site):
    """The choice of one thread for some work: `if (threadIdx.x % 32 == 0)`."""
    comparison = site.around("binary", "^(==|!=)$")
    if site.operator != "constant" or not comparison or not conjunct_of_if(site, comparison):
        return False
    left, right = comparison.children
    if not THREAD.search(site.source(left)) or right.text != "0":
        return False
    if OWN_GROUPS.search(site.source(site.around("if"))):
        return False
    return site.node is right or (left.text == "%" and site.node is left.children[1] and
                                  site.node.text == "32")


def only_calls(statement, names):
    if statement.kind == "block":
        return bool(statement.children) and all(only_calls(c, names) for c in statement.children)
    call = statement.expressions[0] if statement.kind == "expression" else NOWHERE
    return call.kind == "call" and names.match(call.text) is not None


def hint(site):
    """Prefetches, register increases, launch_dependents: they affect only time."""
    if site.operator == "statement-deleted" and only_calls(site.path[-1], HINTS):
        return True
    branch = site.around("if")
    if not branch or not all(only_calls(child, HINTS) for child in branch.children):
        return False
    if all(only_calls(child, LAUNCHES) for child in branch.children):
        return True
    whole = site.edits[0][:2] == site.finder.span(branch.condition)
    return site.operator == "bound-dropped" and whole and site.edits[0][2] == "0"


def waits_more(site):
    """An unnecessary wait for the previous kernel, or for more threads, costs only time."""
    branch = site.around("if")
    if not branch or not all(only_calls(child, GRID_WAITS) for child in branch.children):
        return False
    return (site.operator == "bound-dropped" and site.edits[0][2] == "1") or \
        (site.operator == "and-or" and site.edits[0][2] == "||")


def same_in_all_lanes(site):
    """`__shfl_sync(ALL_LANES, threadIdx.x / 32, 0)` tells the compiler that a value is warp-uniform."""
    call = site.parent()
    return site.operator == "constant" and call.kind == "call" and call.text == "__shfl_sync" and \
        site.node is call.children[3] and "threadIdx.x" in site.source(call.children[2])


def beyond_the_warp(site):
    """`for (step = 1; step < 32; step *= 2)`: a step of 32 reaches no lane."""
    loop = site.around("for")
    condition = loop.condition if loop else None
    return condition is not None and condition in site.path and loop.step is not None and \
        site.source(loop.step).endswith("*= 2") and condition.text == "<" and \
        condition.children[1].text == "32" and site.operator in ("comparison", "constant")


def stages_renamed(site):
    """The function from a stage to its address, and the loop that initialises all stages: a
    permutation of the stages does not matter."""
    if site.operator != "stage-off":
        return False
    if site.around("call", "^mbarrier_init$"):
        return True
    body = site.path[0]
    return len(body.children) == 1 and body.children[0].kind == "return" and \
        not site.around("ternary")


SOUND = (never_reached, same_value, twin, zero_added, equal_arms, array_grows, low_bits, same_steps,
         accumulates, descriptor_fraction, copies_nothing)
BY_USE = (any_thread, hint, waits_more, same_in_all_lanes, beyond_the_warp, stages_renamed)


def reason(finder, operator, edits):
    """Why a change has no effect, "" if it may have one."""
    site = Site(finder, operator, edits)
    return next((check.__name__ for check in SOUND + BY_USE if check(site)), "")
