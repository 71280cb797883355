"""Mutation operators: small mistakes in the text of a template.

They work on tokens and matching brackets, without a grammar. The C compiler rejects mutants that are not C, and mutate.py
compares the code that it generates for a surviving mutant. Changes that alter the code but not a kernel's results, such as
which thread of a warp performs a task of one thread, are excluded here (the functions below "what cannot matter").
"""

import re
from dataclasses import dataclass

TOKEN = re.compile(
    r"""(?P<blank>\s+|//[^\n]*|/\*.*?\*/|^[ ]*\#(?:\\\n|[^\n])*)
      | (?P<number>(?:0[xX][0-9a-fA-F]+|\d+\.?\d*(?:[eE][-+]?\d+)?)\w*)
      | (?P<name>(?:[A-Za-z_]|\$\{[^}\n]*\}|\$\w)(?:\w|\$\{[^}\n]*\}|\$\w)*)
      | (?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
      | (?P<punct><<=|>>=|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|.)""",
    re.VERBOSE | re.DOTALL | re.MULTILINE)
TYPES = frozenset("void char int long float double signed unsigned bool const volatile struct u8 u16 u32 u64 i64 size_t "
                  "int4 uint2 uint4 float2 float4".split())
ASSIGNMENTS = frozenset("= += -= *= /= %= &= |= ^= <<= >>=".split())
EXCHANGED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&", "/": "%", "%": "/",
             "+=": "-=", "-=": "+=", "minimum": "maximum", "maximum": "minimum", "fmaxf": "fminf", "fminf": "fmaxf",
             "true": "false", "false": "true", "i64": "int", "u64": "u32", "size_t": "u32"}
BARRIER = re.compile(r"__sync(threads|warp)(_or|_and|_count)?|(named_)?barrier_(sync|arrive|or)")
# Calls that affect only the time.
HINTS = re.compile(r"registers_increase|tensor_prefetch|prefetch_\w+|grid_launch_dependents")
GRID_WAITS = re.compile(r"grid_wait|end_grid")
THREAD = re.compile(r"threadIdx\.x|\b(lane|thread)(_number\(\))?\b")


@dataclass(frozen=True)
class Mutant:
    file: str  # below the folder of templates
    line: int
    words: str  # the line's
    change: str
    edits: tuple  # (start, end, new text), ascending
    number: int  # among equal changes of equal lines

    @property
    def name(self):
        """The same after edits elsewhere."""
        return f"{self.file}: {self.words}: {self.change} {self.number}"

    def apply(self, text):
        """The text has as many lines as before."""
        for start, end, new in reversed(self.edits):
            lines = text.count("\n", start, end) - new.count("\n")
            text = text[:start] + new + "\n" * max(lines, 0) + text[end:]
        return text


@dataclass
class Token:
    kind: str
    text: str
    start: int
    end: int
    match: int = -1  # a bracket's other one
    outer: int = -1  # the innermost bracket that is open here


class Text:
    """The tokens of a template, and what they delimit. Ranges are of tokens, the end excluded."""

    def __init__(self, text):
        self.text = text
        self.tokens = [Token(m.lastgroup, m.group(), *m.span()) for m in TOKEN.finditer(text) if m.lastgroup != "blank"]
        opened = []
        for at, token in enumerate(self.tokens):
            if token.text in (")", "]", "}") and opened:
                token.match = opened.pop()
                self.tokens[token.match].match = at
            token.outer = opened[-1] if opened else -1
            if token.text in ("(", "[", "{"):
                opened.append(at)

    def word(self, at):
        return self.tokens[at].text if 0 <= at < len(self.tokens) else ""

    def kind(self, at):
        return self.tokens[at].kind if 0 <= at < len(self.tokens) else ""

    def source(self, begin, end):
        return self.text[self.tokens[begin].start:self.tokens[end - 1].end]

    def span(self, begin, end):
        return self.tokens[begin].start, self.tokens[end - 1].end

    def is_cast(self, at):
        """Whether the parenthesis at `at` encloses a type alone."""
        words = [self.word(i) for i in range(at + 1, self.tokens[at].match)]
        return self.word(at) == "(" and words != [] and all(word in TYPES or word == "*" for word in words)

    def is_binary(self, at):
        """Whether an operator that may be unary has a left operand."""
        before = at - 1
        if self.word(before) == ")":
            return not self.is_cast(self.tokens[before].match)
        return self.word(before) == "]" or self.kind(before) == "number" or \
            (self.kind(before) == "name" and self.word(before) not in TYPES and self.word(before) != "return")

    def primary_end(self, at):
        """The end of the unary expression that begins at `at`."""
        while self.word(at) in ("-", "+", "!", "~", "*", "&", "++", "--") or self.is_cast(at):
            at = self.tokens[at].match + 1 if self.word(at) == "(" else at + 1
        at = self.tokens[at].match + 1 if self.word(at) == "(" else at + 1
        while self.word(at) in ("(", "[", ".", "->"):
            at = self.tokens[at].match + 1 if self.word(at) in ("(", "[") else at + 2
        return at

    def primary_begin(self, at):
        """The begin of the postfix expression whose last token is `at`."""
        while True:
            if self.word(at) in (")", "]"):
                at = self.tokens[at].match
                if self.kind(at - 1) != "name" and self.word(at - 1) not in (")", "]") or self.word(at - 1) == "return":
                    return at
                at -= 1
            elif self.word(at - 1) in (".", "->"):
                at -= 2
            else:
                return at

    def run(self, at, step, stops):
        """From `at` in a direction, to the first token of this level that ends an operand with these operators: its
        index, excluded."""
        while 0 <= at < len(self.tokens):
            word, match = self.word(at), self.tokens[at].match
            opens = word in ("(", "[", "{") if step > 0 else word in (")", "]", "}")
            if word in ASSIGNMENTS or word in (";", ",", "return") or word in stops or (match >= 0 and not opens):
                break
            at = match + step if opens else at + step
        return at

    def arguments(self, at):
        """The ranges of the arguments of the call of the function at `at`."""
        opening, ranges = at + 1, []
        begin = i = opening + 1
        while i <= self.tokens[opening].match:
            if self.word(i) == "," or (i == self.tokens[opening].match and i > begin):
                ranges.append((begin, i))
                begin = i + 1
            i = self.tokens[i].match + 1 if self.word(i) in ("(", "[", "{") else i + 1
        return ranges

    def statement(self, at):
        """The end of the simple statement that begins at `at`, with its semicolon; 0 if none does."""
        before = self.word(at - 1)
        if before == ")":
            opening = self.tokens[at - 1].match
            if self.word(opening - 1) not in ("if", "for", "while"):
                return 0
        elif before not in (";", "{", "}", "else", "do"):
            return 0
        if self.outer_word(at) == "(" or self.outer_word(at) == "" or self.kind(at) != "name" and self.word(at) not in (
                "*", "(", "++", "--"):
            return 0
        if self.word(at) in ("if", "for", "while", "do", "else", "enum", "static", "extern", "typedef"):
            return 0
        end = self.run(at, 1, ("{",))
        while self.word(end) in ASSIGNMENTS or self.word(end) in (",", "return"):
            end = self.run(end + 1, 1, ("{",))
        return end + 1 if self.word(end) == ";" else 0

    def outer_word(self, at):
        return self.word(self.tokens[at].outer) if self.tokens[at].outer >= 0 else ""

    def is_declaration(self, at):
        return self.word(at) in TYPES or (self.kind(at) == "name" and self.kind(at + 1) == "name" and
                                          self.word(at) != "return")

    def branch(self, at):
        """The `if` whose condition encloses `at`: its index, or -1."""
        while at >= 0:
            at = self.tokens[at].outer
            if at > 0 and self.word(at) == "(" and self.word(at - 1) in ("if", "for", "while"):
                return at - 1
        return -1

    def body(self, branch):
        """The text of what an `if` or a loop runs."""
        begin = self.tokens[branch + 1].match + 1
        if self.word(begin) == "{":
            return self.source(begin, self.tokens[begin].match + 1)
        return self.source(begin, self.run(begin, 1, ()) + 1)


class Finder(Text):
    def __init__(self, file, text):
        super().__init__(text)
        self.file = file
        self.found = {}  # edits: (token, change)

    # ---- making a mutant

    def add(self, at, change, *edits):
        if not self.cannot_matter(at, edits[0][2]):
            self.found.setdefault(edits, (at, " ".join(change.split())))

    def replace(self, begin, end, new):
        self.add(begin, f"{self.source(begin, end)} -> {new}", (*self.span(begin, end), new))

    def wrap(self, begin, end, form):
        self.replace(begin, end, form.format(self.source(begin, end)))

    def decide(self, begin, end, values="10"):
        """A condition that is always true, or false."""
        if begin < end and not (end == begin + 1 and self.kind(begin) == "number"):
            for value in values:
                self.replace(begin, end, value)

    def swap(self, first, second):
        one, two = self.source(*first), self.source(*second)
        self.add(first[0], f"{one} <-> {two}", (*self.span(*first), two), (*self.span(*second), one))

    # ---- the operators

    def on_number(self, at):
        word = self.word(at)
        whole = re.fullmatch(r"(0[xX][0-9a-fA-F]+|\d+)([uUlL]*)", word)
        if whole:
            value = int(whole[1], 0) + 1
            self.replace(at, at + 1, (hex(value) if word[:2] in ("0x", "0X") else str(value)) + whole[2])
        elif re.fullmatch(r"[\d.eE+-]+[fF]?", word):
            self.replace(at, at + 1, f"({word} + 1)")

    def on_punct(self, at):
        word = self.word(at)
        if word in EXCHANGED:
            self.replace(at, at + 1, EXCHANGED[word])
        if word in ("&&", "||"):
            stops = ("?", ":", "||") + (("&&",) if word == "&&" else ())
            value = "1" if word == "&&" else "0"
            self.decide(self.run(at - 1, -1, stops) + 1, at, value)
            self.decide(at + 1, self.run(at + 1, 1, stops + ("&&",)), value)
        elif word in ("+", "-") and self.is_binary(at):
            self.replace(at, at + 1, "-" if word == "+" else "+")
        elif word in ("&", "^", "^=") and self.is_binary(at):
            self.wrap(at + 1, self.primary_end(at + 1), "({} - 1)" if word == "&" else "({} ^ 1)")
        elif word == "%" and self.word(self.primary_end(at + 1) - 1).endswith("STAGES"):
            self.wrap(self.primary_begin(at - 1), at, "({} + 1)")
        elif word == "?":
            self.decide(self.run(at - 1, -1, ("?", ":")) + 1, at)

    def on_name(self, at):
        word = self.word(at)
        if word in EXCHANGED and self.word(at + 1) != "*":
            self.replace(at, at + 1, EXCHANGED[word])
        elif word in ("if", "while"):
            self.decide(at + 2, self.tokens[at + 1].match, "10" if word == "if" else "0")
        elif word == "for" and self.word(at + 1) == "(":
            first = self.run(at + 2, 1, ())
            while self.word(first) != ";":
                first = self.run(first + 1, 1, ())
            self.decide(first + 1, self.run(first + 1, 1, ()), "0")
        elif word == "bool" and self.word(at + 2) == "=":
            self.decide(at + 3, self.run(at + 3, 1, ()))
        elif word == "stage" or word.endswith("_stage"):
            self.stage(at)
        elif word.endswith("_stride") and self.word(at - 1) == "->":
            self.wrap(at - 2, at + 1, "(int)({})")
        elif self.word(at + 1) == "(" and self.outer_word(at):
            self.on_call(at, word, self.arguments(at))
        if self.statement(at):
            self.on_statement(at, self.statement(at))

    def stage(self, at):
        begin = self.primary_begin(at)
        declared = self.word(begin - 1) in TYPES or self.word(begin - 1) in ("*", "&", "++", "--")
        written = self.word(at + 1) in ASSIGNMENTS or self.word(at + 1) in ("++", "--")
        if not declared and not written and self.outer_word(at):
            self.wrap(begin, at + 1, "(({} + 1) % STAGES)" if "STAGES" in self.text else "({} + 1)")

    def on_call(self, at, name, arguments):
        if not arguments:
            return
        first, last = arguments[0], arguments[-1]
        if re.fullmatch(r"__\w+_sync|__syncwarp", name):
            self.wrap(*first, "({} - 1)")
        if re.fullmatch(r"__syncthreads_\w+", name):
            self.replace(at, last[1] + 1, f"({self.source(*first)})")
        elif BARRIER.fullmatch(name) and len(arguments) >= 2:
            for form in ("({} + 32)", "({} - 32)"):
                self.wrap(*arguments[1], form)
            self.wrap(*first, "({} + 1)")
        if name == "mbarrier_init" or "expect" in name:
            for form in ("({} + 1)", "({} - 1)") if name == "mbarrier_init" else ("({} + 16)", "({} - 16)"):
                self.wrap(*last, form)
        if re.search("wait|test", name) and len(arguments) >= 2:
            self.wrap(*last, "(({}) ^ 1)")
        if name.startswith("pack_") and len(arguments) == 2:
            self.swap(first, last)

    def on_statement(self, at, end):
        if self.is_declaration(at) or (self.word(at) == "return" and end > at + 2):
            return
        self.add(at, f"{self.source(at, end)} removed", (*self.span(at, end), ";"))
        name = self.word(at)
        if "commit" in name:
            if self.statement(end):
                self.swap((at, end), (end, self.statement(end)))
            before = next((i for i in range(at - 1, 0, -1) if self.statement(i) == at), 0)
            if before and not self.is_declaration(before):
                self.swap((before, at), (at, end))
        if "arrive" in name:
            self.replace(at, end, f"{{ {self.source(at, end)} {self.source(at, end)} }}")

    # ---- what cannot matter

    def cannot_matter(self, at, new):
        return self.is_hint(at, new) or self.waits_more(at, new) or self.any_thread(at) or self.array_grows(at)

    def only_calls(self, text, names):
        """Whether a statement or a block, but for comments, only calls functions of these names."""
        text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)
        return re.fullmatch(r"\{?(\s*(%s)\s*\([^;]*\);)+\s*\}?" % names.pattern, text) is not None

    def is_hint(self, at, new):
        """Prefetches, more registers, launch_dependents, and their conditions."""
        if self.statement(at) and new == ";" and HINTS.fullmatch(self.word(at)):
            return True
        branch = self.branch(at)
        return branch >= 0 and self.word(branch) == "if" and self.only_calls(self.body(branch), HINTS)

    def waits_more(self, at, new):
        """An unnecessary wait for the preceding kernel."""
        branch = self.branch(at)
        return new in ("1", "||") and branch >= 0 and self.only_calls(self.body(branch), GRID_WAITS)

    def any_thread(self, at):
        """`if (threadIdx.x % 32 == 0)` with another thread. (Bulk copies are kept: the issuing thread must wait.)"""
        branch = self.branch(at)
        if self.kind(at) != "number" or branch < 0 or self.word(branch) != "if" or "bulk_" in self.body(branch):
            return False
        return (self.word(at) == "0" and self.word(at - 1) == "==" and THREAD.search(
            self.source(self.run(at - 2, -1, ("&&",)) + 1, at)) is not None) or \
            (self.word(at) == "32" and self.word(at - 1) == "%" and self.source(at + 1, at + 3) == "== 0")

    def array_grows(self, at):
        """A local array that is larger than necessary."""
        opening = self.tokens[at].outer
        if self.kind(at) != "number" or self.word(opening) != "[":
            return False
        begin = opening
        while begin > 0 and (self.word(begin - 1) in (",", "*", "[", "]") or
                             self.kind(begin - 1) in ("name", "number")):
            begin -= 1
        extent = range(opening + 1, self.tokens[opening].match)
        return self.is_declaration(begin) and all(
            self.word(i) in ("*", "+") or self.kind(i) in ("name", "number") for i in extent)

    # ---- all

    def find(self):
        for at, token in enumerate(self.tokens):
            handler = getattr(self, "on_" + token.kind, None)
            if handler:
                handler(at)
        mutants, counts = [], {}
        for edits, (at, change) in sorted(self.found.items()):
            start = self.tokens[at].start
            begin, end = self.text.rfind("\n", 0, start) + 1, self.text.find("\n", start)
            words = " ".join(self.text[begin:end].split())
            counts[words, change] = counts.get((words, change), 0) + 1
            mutants.append(Mutant(self.file, self.text.count("\n", 0, start) + 1, words, change, edits,
                                  counts[words, change]))
        return mutants


def find_mutants(file, text):
    """The mutants of a template, in the order of its text."""
    return Finder(file, text).find()
