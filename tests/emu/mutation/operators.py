"""Mutation operators: finds every place in a parsed text where each of them applies.

A mutant is one change. Its name (file, function, text of the line, operator, change, and the number among equal ones)
has no line number, so it survives edits elsewhere and is the same in every kernel emitted from the template.
"""

import functools
import re
from dataclasses import dataclass, field

import harmless
import values
from syntax import parse

# Not mutated: the emulator has its own version of these.
REPLACED = "/ptx/"

WAIT, ARRIVE, COMMIT, FENCE = (re.compile(word) for word in ("wait", "arrive", "commit", "fence"))
BARRIERS = re.compile(r"^(__sync(threads|warp)(_or|_and|_count)?|(named_)?barrier_(sync|arrive|or))$")
STAGE = re.compile(r"^(stage|.*_stage)$")
WIDE = {"i64": "int", "u64": "u32", "long long": "int", "unsigned long long": "u32",
        "size_t": "u32"}
COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
EXCHANGED = {"minimum": "maximum", "maximum": "minimum", "fmaxf": "fminf", "fminf": "fmaxf"}
SIGNS = {"+": "-", "-": "+", "+=": "-=", "-=": "+="}
QUOTIENTS = {"/": "%", "%": "/"}


@dataclass
class Mutant:
    operator: str
    file: str
    function: str
    line_text: str
    change: str
    anchor: int  # offset in the text
    line: int
    column: int
    edits: list = field(default_factory=list)  # (start, end, new text), ascending
    harmless: str = ""  # why it has no effect (harmless.py)
    number: int = 1  # among mutants equal in all the above

    @property
    def name(self):
        suffix = f" #{self.number}" if self.number > 1 else ""
        return (self.file, self.function, self.line_text, f"{self.operator}: {self.change}{suffix}")

    def apply(self, text):
        for start, end, new in reversed(self.edits):
            lines = text.count("\n", start, end) - new.count("\n")
            text = text[:start] + new + "\n" * max(lines, 0) + text[end:]
        return text


class Finder:
    def __init__(self, text, file="", files=("",)):
        self.syntax = parse(text, file, files)
        self.files = files
        self.text = text
        self.tokens = self.syntax.tokens
        self.mutants = []
        self.edited = set()  # changes made so far: if two operators make the same, the first counts
        self.function = ""
        self.path = []  # the enclosing statements and expressions, the innermost last
        self.dead = 0  # how many of these are dead code with this text's constants
        self.constants = values.enumerators(self.syntax)
        self.values = {}  # a cache of value()
        names = {t.text for t in self.tokens} | set(re.findall(r"^\s*([A-Z]\w*) =", text, re.M))
        self.stages = "STAGES" if "STAGES" in names else ""

    # ---- helpers

    def value(self, node):
        """An expression's compile-time value: an integer, or None."""
        if id(node) not in self.values:
            self.values[id(node)] = values.value_of(node, self.constants)
        return self.values[id(node)]

    def wanted(self, at):
        file = self.tokens[at].file
        return file.endswith((".cu", ".cuh")) and REPLACED not in file and \
            file.startswith(self.files)

    def source(self, part):
        """The text of an expression or a statement."""
        return self.text[self.tokens[part.start].start:self.tokens[part.end - 1].end]

    def span(self, node):
        return self.tokens[node.start].start, self.tokens[node.end - 1].end

    def line_of(self, offset):
        begin = self.text.rfind("\n", 0, offset) + 1
        end = self.text.find("\n", offset)
        return " ".join(self.text[begin:end if end >= 0 else len(self.text)].split())

    def add(self, operator, at, edits, change):
        """Adds a mutant at token number `at`."""
        if not self.wanted(at):
            return
        key = tuple(edits)
        if key in self.edited:
            return
        self.edited.add(key)
        token = self.tokens[at]
        self.mutants.append(Mutant(operator, token.file, self.function, self.line_of(token.start),
                                   " ".join(change.split()), token.start, token.line, token.column,
                                   list(edits), harmless.reason(self, operator, edits)))

    def replace(self, operator, node, new, at=None):
        start, end = self.span(node)
        old = self.text[start:end]
        self.add(operator, node.start if at is None else at, [(start, end, new)],
                 f"{old} -> {new}")

    def replace_token(self, operator, at, new):
        token = self.tokens[at]
        self.add(operator, at, [(token.start, token.end, new)], f"{token.text} -> {new}")

    def remove(self, operator, statement):
        start, end = self.span(statement)
        self.add(operator, statement.start, [(start, end, ";")], f"{self.text[start:end]} removed")

    def leftmost(self, node):
        while node.kind in ("binary", "paren", "cast") and node.children:
            node = node.children[0]
        return node

    # ---- statements

    def call_statement(self, statement):
        """The call an expression statement consists of, or None."""
        if statement.kind == "expression" and statement.expressions[0].kind == "call":
            return statement.expressions[0]
        return None

    def exchange_statements(self, operator, first, second, moved):
        (a, b), (c, d) = self.span(first), self.span(second)
        one, two = self.text[a:b], self.text[c:d]
        where = "after" if moved is first else "before"
        other = second if moved is first else first
        self.add(operator, moved.start, [(a, b, two), (c, d, one)],
                 f"moved {where} `{self.source(other).splitlines()[0]}`")

    def synchronization(self, statement, siblings, place):
        call = self.call_statement(statement)
        if not call:
            return
        name = call.text
        if BARRIERS.match(name):
            self.remove("barrier-removed", statement)
        if FENCE.search(name):
            self.remove("fence-removed", statement)
        if COMMIT.search(name):
            self.remove("commit-removed", statement)
            if place + 1 < len(siblings):
                self.exchange_statements("commit-moved", statement, siblings[place + 1], statement)
            if place > 0 and siblings[place - 1].kind != "declaration":
                self.exchange_statements("commit-moved", siblings[place - 1], statement, statement)
        if ARRIVE.search(name):
            self.remove("arrive-removed", statement)
            start, end = self.span(statement)
            old = self.text[start:end]
            self.add("arrive-doubled", statement.start, [(start, end, f"{{ {old} {old} }}")],
                     f"{old} twice")
        if WAIT.search(name):
            self.remove("wait-removed", statement)

    def enter(self, part, dead=False):
        self.path.append(part)
        self.dead += dead

    def leave(self, dead=False):
        self.dead -= dead
        self.path.pop()

    def statements(self, statement, siblings=(), place=0, dead=False):
        self.enter(statement, dead)
        self.statement(statement, siblings, place)
        self.leave(dead)

    def statement(self, statement, siblings, place):
        self.synchronization(statement, siblings, place)
        if statement.kind in ("expression", "jump") or (statement.kind == "return" and
                                                        not statement.expressions):
            self.remove("statement-deleted", statement)
        if statement.condition and statement.kind in ("if", "while"):
            self.condition(statement.condition)
        elif statement.condition:
            self.replace("bound-dropped", statement.condition, "0")
        if statement.kind == "declaration" and [self.tokens[i].text for i in statement.types][-1:] \
                == ["bool"]:
            for expression in statement.expressions:
                self.condition(expression)
        for at in statement.types:
            self.narrow_type(at)
        for expression in statement.constants:
            self.expression(expression, constant=True)
        for expression in statement.expressions:
            self.expression(expression)
        dead = harmless.dead_children(statement, self.value)
        for index, child in enumerate(statement.children):
            self.statements(child, statement.children if statement.kind == "block" else (), index,
                            index in dead)

    def condition(self, node):
        if node.kind in ("number", "list"):
            return
        self.enter(node)
        self.replace("bound-dropped", node, "1")
        self.replace("bound-dropped", node, "0")
        self.leave()

    # ---- expressions

    def expression(self, node, constant=False, dead=False):
        self.enter(node, dead)
        handler = getattr(self, "on_" + node.kind, None)
        if handler:
            handler(node, constant)
        never = harmless.dead_children(node, self.value)
        for index in range(self.is_changed(node), len(node.children)):
            self.expression(node.children[index], constant, index in never)
        self.leave(dead)

    @staticmethod
    def is_changed(node):
        """1 if the first operand is a plain variable that is written."""
        place = node.kind in ("assign", "postfix") or node.text in ("++", "--") or (
            node.kind == "unary" and node.text == "&")
        return int(place and node.children[0].kind in ("name", "member"))

    def on_number(self, node, constant):
        match = re.fullmatch(r"(0[xX][0-9a-fA-F]+|\d+)([uUlL]*)", node.text)
        if match:
            digits, suffix = match.groups()
            value = int(digits, 0) + 1
            new = hex(value) if digits[:2].lower() == "0x" else str(value)
            self.replace_token("constant", node.start, new + suffix)
        elif re.fullmatch(r"[\d.eE+-]+[fF]?", node.text):
            self.replace_token("constant", node.start,
                               f"{float(node.text.rstrip('fF')) + 1.0:.9g}".replace("e+", "e") +
                               (".0f" if float(node.text.rstrip("fF")).is_integer() else "f"))

    def on_name(self, node, constant):
        if node.text in ("true", "false"):
            self.replace_token("constant", node.start, "false" if node.text == "true" else "true")
        else:
            self.on_member(node, constant)

    def on_member(self, node, constant):
        if STAGE.match(node.text) and not constant:
            stage = self.source(node)
            past = f"(({stage} + 1) % {self.stages})" if self.stages else f"({stage} + 1)"
            self.replace("stage-off", node, past)

    def on_binary(self, node, constant):
        left, right = node.children
        operator = node.text
        if operator in COMPARISONS:
            self.replace_token("comparison", node.operator, COMPARISONS[operator])
        elif operator in ("&&", "||"):
            self.replace_token("and-or", node.operator, "||" if operator == "&&" else "&&")
            for side in (left, right):
                self.replace("bound-dropped", side, "1" if operator == "&&" else "0")
        elif operator in SIGNS:
            self.replace_token("plus-minus", node.operator, SIGNS[operator])
        elif operator == "&":
            self.replace("mask-off", right, f"({self.source(right)} - 1)")
        elif operator == "^":
            self.replace("swizzle-bit", right, f"({self.source(right)} ^ 1)")
        elif operator in QUOTIENTS and not constant:
            self.quotient(node, left, right)
        elif operator == "*":
            self.narrow_product(node)

    def quotient(self, node, left, right):
        lanes = self.leftmost(left).text == "lane"
        self.replace_token("lanes-swapped" if lanes else "divide-modulo", node.operator,
                           QUOTIENTS[node.text])
        if node.text == "%" and self.source(right).endswith("STAGES"):
            self.replace("stage-off", left, f"({self.source(left)} + 1)")

    def on_assign(self, node, constant):
        if node.text in SIGNS:
            self.replace_token("plus-minus", node.operator, SIGNS[node.text])
        if node.text == "^=":
            right = node.children[1]
            self.replace("parity-flipped", right, f"({self.source(right)} ^ 1)")

    def on_ternary(self, node, constant):
        self.replace("bound-dropped", node.children[0], "1")
        self.replace("bound-dropped", node.children[0], "0")

    def on_cast(self, node, constant):
        if node.text in WIDE:
            start, end = self.tokens[node.start].start, self.tokens[node.children[0].start - 1].end
            self.add("offset-narrowed", node.start, [(start, end, f"({WIDE[node.text]})")],
                     f"({node.text}) -> ({WIDE[node.text]})")

    def on_call(self, node, constant):
        name, arguments = node.text, node.children[1:]
        if name in EXCHANGED:
            self.replace_token("minimum-maximum", node.start, EXCHANGED[name])
        if name.endswith("_sync") and name.startswith("__") and arguments:
            mask = self.source(arguments[0])
            self.replace("mask-off", arguments[0], f"({mask} - 1)")
        if name == "__syncwarp" and arguments:
            self.replace("mask-off", arguments[0], f"({self.source(arguments[0])} - 1)")
        if BARRIERS.match(name):
            self.barrier_call(node, name, arguments)
        if name == "mbarrier_init" and len(arguments) == 2:
            for change in ("+", "-"):
                self.replace("count-changed", arguments[1],
                             f"({self.source(arguments[1])} {change} 1)")
        if "expect" in name and arguments:
            for change in ("+", "-"):
                self.replace("expect-changed", arguments[-1],
                             f"({self.source(arguments[-1])} {change} 16)")
        if re.search(r"wait|test", name) and len(arguments) >= 2:
            self.replace("parity-flipped", arguments[-1],
                         f"(({self.source(arguments[-1])}) ^ 1)")
        raised = re.fullmatch(r"(.*wait.*_)(\d+)", name)
        if raised:
            self.replace_token("wait-raised", node.start,
                               f"{raised.group(1)}{int(raised.group(2)) + 1}")
        if name.startswith("pack_") and len(arguments) == 2:
            self.swap_arguments(arguments)

    def barrier_call(self, node, name, arguments):
        if name.startswith("__syncthreads_") and len(arguments) == 1:
            self.replace("barrier-removed", node, f"({self.source(arguments[0])})")
        elif "barrier_" in name and len(arguments) >= 2:
            for change in ("+", "-"):
                self.replace("count-changed", arguments[1],
                             f"({self.source(arguments[1])} {change} 32)")
            self.replace("count-changed", arguments[0], f"({self.source(arguments[0])} + 1)")
            if len(arguments) == 3:
                self.replace("barrier-removed", node, f"({self.source(arguments[2])})")

    def swap_arguments(self, arguments):
        (a, b), (c, d) = self.span(arguments[0]), self.span(arguments[1])
        one, two = self.text[a:b], self.text[c:d]
        self.add("lanes-swapped", arguments[0].start, [(a, b, two), (c, d, one)],
                 f"{one}, {two} -> {two}, {one}")

    def narrow_product(self, node):
        """Products of 64-bit strides, cut to 32 bits."""
        wide = any((n.kind == "member" and n.text.endswith("_stride")) or
                   (n.kind == "cast" and n.text in WIDE) for n in node.walk())
        if wide:
            self.replace("offset-narrowed", node, f"(int)({self.source(node)})")

    def narrow_type(self, at):
        if self.tokens[at].text in WIDE:
            self.replace_token("offset-narrowed", at, WIDE[self.tokens[at].text])

    # ---- everything

    def find(self):
        self.function = "constants"
        for expression in self.syntax.enumerators:
            if self.wanted(expression.start):
                self.expression(expression, constant=True)
        for function in self.syntax.functions:
            if not self.wanted(function.body.start):
                continue
            self.function = function.name
            for at in range(*function.parameters):
                if self.tokens[at + 1].text not in ("*", "const"):
                    self.narrow_type(at)
            self.statements(function.body)
        self.mutants.sort(key=lambda m: m.anchor)
        seen = {}
        for mutant in self.mutants:
            plain = mutant.name
            seen[plain] = mutant.number = seen.get(plain, 0) + 1
        return self.mutants


@functools.lru_cache(maxsize=None)
def find_all(text, file="", files=("",)):
    """All changes that the operators make in files with these name prefixes, in the order of the text; the harmless
    ones have their reason."""
    return Finder(text, file, files).find()


def find_mutants(text, file="", files=("",)):
    """The changes of find_all that are not harmless."""
    return [mutant for mutant in find_all(text, file, files) if not mutant.harmless]
