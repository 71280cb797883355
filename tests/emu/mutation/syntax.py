"""The syntax of smelt's CUDA text: functions, statements and expressions over its tokens.

Not a compiler: types are recognised by their names, which suffices for these templates, and text outside functions and
enums is skipped.
"""

import functools
from dataclasses import dataclass, field

from tokens import TextError, tokenize

TYPE_WORDS = frozenset(
    "void char short int long float double signed unsigned bool _Bool u8 u16 u32 u64 i8 i16 i32 i64 "
    "size_t int2 int4 uint2 uint4 float2 float4".split())
QUALIFIERS = frozenset("const volatile static register extern inline restrict __restrict__ "
                       "__shared__ DEVICE KERNEL __grid_constant__".split())
TAGS = frozenset(["struct", "union", "enum"])
BINARY = {}
for level, operators in enumerate([["||"], ["&&"], ["|"], ["^"], ["&"], ["==", "!="],
                                   ["<", "<=", ">", ">="], ["<<", ">>"], ["+", "-"],
                                   ["*", "/", "%"]]):
    for operator in operators:
        BINARY[operator] = level
ASSIGNMENTS = frozenset("= += -= *= /= %= &= |= ^= <<= >>=".split())


@dataclass
class Node:
    """An expression: tokens[start:end]. Kinds: name, number, string, paren, call (children: callee,
    arguments), index, member (children: the object), unary, postfix, cast (children: the operand),
    binary, assign, ternary (condition, first, second), comma, list."""

    kind: str
    start: int
    end: int
    children: list = field(default_factory=list)
    operator: int = -1  # its token
    text: str = ""  # operator, name, number, member or cast type

    def walk(self):
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass
class Statement:
    """tokens[start:end]. Kinds: block, expression, declaration, return, jump, if, for, while, do, empty. `head`: the
    end of the tokens before its inner statements."""

    kind: str
    start: int
    end: int = 0
    head: int = 0
    children: list = field(default_factory=list)
    expressions: list = field(default_factory=list)
    condition: Node = None
    step: Node = None  # a for's third expression
    constants: list = field(default_factory=list)  # compile-time expressions: bounds, enums
    types: list = field(default_factory=list)  # tokens of a declaration's type

    def walk(self):
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass
class Function:
    name: str
    parameters: tuple  # token range between the parentheses
    body: Statement


class Parser:
    def __init__(self, text, file="", files=("",)):
        self.text = text
        self.tokens = tokenize(text, file)
        self.files = files
        self.at = 0
        self.types = set(TYPE_WORDS)
        self.functions = []
        self.enumerators = []  # expressions of enums outside functions
        self.enums = []  # all enums in order: [(name, expression or None)]

    # ---- tokens

    def peek(self, ahead=0):
        at = self.at + ahead
        return self.tokens[at].text if at < len(self.tokens) else ""

    def fail(self, wanted):
        token = self.tokens[min(self.at, len(self.tokens) - 1)]
        raise TextError(f"{token.file}:{token.line}:{token.column}: {wanted} expected before "
                        f"'{token.text}'")

    def expect(self, text):
        if self.peek() != text:
            self.fail(f"'{text}'")
        self.at += 1

    def close(self, at):
        """The token after the bracket that closes the one at `at`."""
        depth = 0
        while at < len(self.tokens):
            depth += self.tokens[at].text in ("(", "[", "{")
            depth -= self.tokens[at].text in (")", "]", "}")
            at += 1
            if depth == 0:
                return at
        self.fail("a closing bracket")

    # ---- the file

    def parse(self):
        while self.at < len(self.tokens):
            self.outer()
        return self

    def outer(self):
        begin = self.at
        if self.peek() == "typedef":
            while self.peek() != ";":
                self.at = self.close(self.at) if self.peek() == "{" else self.at + 1
            self.types.add(self.tokens[self.at - 1].text)
            self.at += 1
            return
        parameters = None
        while self.at < len(self.tokens) and self.peek() != ";":
            if self.peek() == "{":
                if self.tokens[begin].text == "enum":
                    self.enumerators += self.enumerator_list()
                elif parameters and self.tokens[self.at - 1].text == ")":
                    self.function(parameters)
                    return
                else:
                    self.at = self.close(self.at)
            elif self.peek() == "(":
                end = self.close(self.at)
                parameters = (self.at + 1, end - 1)
                self.at = end
            else:
                self.at += 1
        self.at += 1

    def function(self, parameters):
        file = self.tokens[self.at].file
        if "/ptx/" in file or not file.startswith(self.files):  # inline assembly, or not requested
            self.at = self.close(self.at)
        else:
            name = self.tokens[parameters[0] - 2].text
            self.functions.append(Function(name, parameters, self.block()))

    def enumerator_list(self):
        expressions, definitions = [], []
        self.expect("{")
        while self.peek() != "}":
            name, expression = self.peek(), None
            self.at += 1
            if self.peek() == "=":
                self.at += 1
                expression = self.ternary()
                expressions.append(expression)
            definitions.append((name, expression))
            if self.peek() == ",":
                self.at += 1
            elif self.peek() != "}":
                self.fail("',' or '}'")
        self.expect("}")
        self.enums.append(definitions)
        return expressions

    # ---- statements

    def block(self):
        statement = Statement("block", self.at)
        self.expect("{")
        statement.head = self.at
        while self.peek() != "}":
            statement.children.append(self.statement())
        self.expect("}")
        statement.end = self.at
        return statement

    def statement(self):
        if self.peek() == "{":
            return self.block()
        begin, word = self.at, self.peek()
        handlers = {"if": self.if_, "for": self.for_, "while": self.while_, "do": self.do_}
        if word in handlers:
            statement = Statement(word, begin)
            self.at += 1
            handlers[word](statement)
        else:
            statement = self.simple(begin, word)
            self.expect(";")
            statement.head = self.at
        statement.end = self.at
        return statement

    def simple(self, begin, word):
        if word == ";":
            return Statement("empty", begin)
        if word in ("break", "continue"):
            self.at += 1
            return Statement("jump", begin)
        if word == "return":
            statement = Statement("return", begin)
            self.at += 1
            if self.peek() != ";":
                statement.expressions.append(self.expression())
            return statement
        if self.starts_type():
            return self.declaration()
        return Statement("expression", begin, expressions=[self.expression()])

    def parenthesized(self):
        self.expect("(")
        expression = self.expression()
        self.expect(")")
        return expression

    def if_(self, statement):
        statement.condition = self.parenthesized()
        statement.expressions.append(statement.condition)
        statement.head = self.at
        statement.children.append(self.statement())
        if self.peek() == "else":
            self.at += 1
            statement.children.append(self.statement())

    def for_(self, statement):
        self.expect("(")
        if self.peek() != ";":
            if self.starts_type():
                first = self.declaration()
                statement.expressions += first.expressions
                statement.types += first.types
            else:
                statement.expressions.append(self.expression())
        self.expect(";")
        if self.peek() != ";":
            statement.condition = self.expression()
            statement.expressions.append(statement.condition)
        self.expect(";")
        if self.peek() != ")":
            statement.step = self.expression()
            statement.expressions.append(statement.step)
        self.expect(")")
        statement.head = self.at
        statement.children.append(self.statement())

    def while_(self, statement):
        statement.condition = self.parenthesized()
        statement.expressions.append(statement.condition)
        statement.head = self.at
        statement.children.append(self.statement())

    def do_(self, statement):
        statement.head = self.at
        statement.children.append(self.statement())
        self.expect("while")
        statement.condition = self.parenthesized()
        statement.expressions.append(statement.condition)
        self.expect(";")

    # ---- declarations

    def starts_type(self, ahead=0):
        word = self.peek(ahead)
        return word in self.types or word in QUALIFIERS or word in TAGS

    def specifiers(self, statement):
        while self.starts_type() or self.peek() in ("__align__", "__attribute__"):
            word = self.peek()
            self.at += 1
            if word in ("__align__", "__attribute__"):
                self.at = self.close(self.at)
            elif word in TAGS:
                if self.tokens[self.at].kind == "name":
                    self.at += 1
                if self.peek() == "{" and word == "enum":
                    statement.constants += self.enumerator_list()
                elif self.peek() == "{":
                    self.at = self.close(self.at)
            else:
                statement.types.append(self.at - 1)

    def declaration(self):
        statement = Statement("declaration", self.at)
        self.specifiers(statement)
        while self.peek() != ";":
            while self.peek() in ("*", "const", "__restrict__", "restrict"):
                self.at += 1
            if self.tokens[self.at].kind != "name":
                self.fail("a name")
            self.at += 1
            while self.peek() == "[":
                self.at += 1
                if self.peek() != "]":
                    statement.constants.append(self.expression())
                self.expect("]")
            if self.peek() == "=":
                self.at += 1
                statement.expressions.append(self.initializer())
            if self.peek() == ",":
                self.at += 1
        return statement

    def initializer(self):
        if self.peek() != "{":
            return self.assignment()
        node = Node("list", self.at, 0)
        self.expect("{")
        while self.peek() != "}":
            node.children.append(self.initializer())
            if self.peek() == ",":
                self.at += 1
        self.expect("}")
        node.end = self.at
        return node

    # ---- expressions

    def expression(self):
        left = self.assignment()
        while self.peek() == ",":
            operator = self.at
            self.at += 1
            right = self.assignment()
            left = Node("comma", left.start, right.end, [left, right], operator, ",")
        return left

    def assignment(self):
        left = self.ternary()
        if self.peek() not in ASSIGNMENTS:
            return left
        operator = self.at
        self.at += 1
        right = self.assignment()
        return Node("assign", left.start, right.end, [left, right], operator,
                    self.tokens[operator].text)

    def ternary(self):
        condition = self.binary(0)
        if self.peek() != "?":
            return condition
        operator = self.at
        self.at += 1
        first = self.expression()
        self.expect(":")
        second = self.ternary()
        return Node("ternary", condition.start, second.end, [condition, first, second], operator,
                    "?")

    def binary(self, level):
        left = self.unary()
        while BINARY.get(self.peek(), -1) >= level:
            operator = self.at
            text = self.peek()
            self.at += 1
            right = self.binary(BINARY[text] + 1)
            left = Node("binary", left.start, right.end, [left, right], operator, text)
        return left

    def cast_end(self):
        """The token after the cast that starts here, or 0."""
        if self.peek() != "(" or not self.starts_type(1) or self.peek(1) in QUALIFIERS - {"const"}:
            return 0
        return self.close(self.at)

    def unary(self):
        begin = self.at
        if self.peek() in ("+", "-", "!", "~", "*", "&", "++", "--"):
            self.at += 1
            operand = self.unary()
            return Node("unary", begin, operand.end, [operand], begin, self.tokens[begin].text)
        end = self.cast_end()
        if end and self.tokens[end].text != "{":
            name = " ".join(t.text for t in self.tokens[begin + 1:end - 1])
            self.at = end
            operand = self.unary()
            return Node("cast", begin, operand.end, [operand], begin, name)
        if self.peek() == "sizeof":
            self.at += 1
            self.at = self.close(self.at) if self.peek() == "(" else self.unary().end
            return Node("string", begin, self.at, [], begin, "sizeof")
        return self.postfix(self.primary())

    def primary(self):
        begin, token = self.at, self.tokens[self.at]
        if token.text == "(":
            inner = self.parenthesized()
            return Node("paren", begin, self.at, [inner])
        if token.kind == "punct":
            self.fail("an expression")
        self.at += 1
        while token.kind == "string" and self.tokens[self.at].kind == "string":
            self.at += 1
        return Node(token.kind, begin, self.at, [], begin, token.text)

    def postfix(self, node):
        while True:
            operator = self.at
            if self.peek() == "(":
                self.at += 1
                arguments = [node]
                while self.peek() != ")":
                    arguments.append(self.assignment())
                    if self.peek() == ",":
                        self.at += 1
                self.expect(")")
                node = Node("call", node.start, self.at, arguments, operator, node.text)
            elif self.peek() == "[":
                self.at += 1
                index = self.expression()
                self.expect("]")
                node = Node("index", node.start, self.at, [node, index], operator)
            elif self.peek() in (".", "->"):
                self.at += 2
                node = Node("member", node.start, self.at, [node], operator,
                            self.tokens[self.at - 1].text)
            elif self.peek() in ("++", "--"):
                self.at += 1
                node = Node("postfix", node.start, self.at, [node], operator,
                            self.tokens[operator].text)
            else:
                return node


def parse(text, file="", files=("",)):
    """The functions, enums' expressions and tokens of a text; functions only of files with these prefixes."""
    return Parser(text, file, files).parse()


@functools.lru_cache(maxsize=None)
def parse_expression(text):
    """The node of an expression given as text; its tokens refer to that text."""
    parser = Parser(text + ";")
    node = parser.expression()
    if parser.peek() != ";":
        parser.fail("the end")
    return node
