#!/usr/bin/env python3
"""Tests of the mutation test itself: tokens, syntax, each operator, the drawing of samples, the file of known
survivors, the report. (test_harmless.py: the filters.)"""

import argparse
import contextlib
import io
import json
import pathlib
import tempfile
import unittest

import configurations
import coverage
import mutate
import survivors
from operators import find_mutants
from syntax import parse
from tokens import TextError, tokenize

FILE = "templates/common/part.cuh"


def changes(body, operator, parameters="void"):
    """The bodies that an operator makes of a function's body."""
    text = f"DEVICE void f({parameters}) {{\n{body}\n}}\n"
    mutants = [m for m in find_mutants(text, FILE) if m.operator == operator]
    return [m.apply(text).split("{\n", 1)[1].rsplit("\n}", 1)[0].strip() for m in mutants]


class Tokens(unittest.TestCase):
    def test_places(self):
        text = '/* a */ int x;\n#line 7 "templates/a.cu"\n  y = 1; // no\n/* two\n lines */ z;\n'
        places = [(t.text, t.file, t.line, t.column, t.index) for t in tokenize(text)]
        self.assertEqual(places, [
            ("int", "", 1, 9, 0), ("x", "", 1, 13, 1), (";", "", 1, 14, 2),
            ("y", "templates/a.cu", 7, 3, 0), ("=", "templates/a.cu", 7, 5, 1),
            ("1", "templates/a.cu", 7, 7, 2), (";", "templates/a.cu", 7, 8, 3),
            ("z", "templates/a.cu", 9, 11, 0), (";", "templates/a.cu", 9, 12, 1)])

    def test_preprocessor_lines_are_skipped(self):
        text = "#define A \\\n  b\nc\n#pragma unroll\nd"
        self.assertEqual([(t.text, t.line) for t in tokenize(text)], [("c", 3), ("d", 5)])

    def test_directives_and_placeholders(self):
        text = "//@for i in 0..2\nwait_$i(); x_${n / 2}_y = $i + ${2 * i};\n//@end\n"
        self.assertEqual([t.text for t in tokenize(text)],
                         ["wait_$i", "(", ")", ";", "x_${n / 2}_y", "=", "$i", "+", "${2 * i}", ";"])

    def test_numbers(self):
        text = "1.4426950408889634f 0x7f800000 1u 1e-5 .5f 3..4"
        self.assertEqual([t.text for t in tokenize(text.replace("3..4", ""))],
                         ["1.4426950408889634f", "0x7f800000", "1u", "1e-5", ".5f"])

    def test_what_is_no_token(self):
        with self.assertRaisesRegex(TextError, "a.cu:2:"):
            tokenize("x\n`", "a.cu")


class Syntax(unittest.TestCase):
    def expression(self, text):
        parser = parse(f"int f(void) {{ return {text}; }}", FILE)
        return parser.functions[0].body.children[0].expressions[0]

    def shape(self, node):
        if not node.children:
            return node.text
        return (node.text or node.kind, *map(self.shape, node.children))

    def test_precedence(self):
        self.assertEqual(self.shape(self.expression("a + b * c < d && e ^ f")),
                         ("&&", ("<", ("+", "a", ("*", "b", "c")), "d"), ("^", "e", "f")))
        self.assertEqual(self.shape(self.expression("a - b - c")), ("-", ("-", "a", "b"), "c"))
        self.assertEqual(self.shape(self.expression("a ? b : c ? d : e")),
                         ("?", "a", "b", ("?", "c", "d", "e")))

    def test_casts_and_parentheses(self):
        self.assertEqual(self.shape(self.expression("(int)x.y / 2")),
                         ("/", ("int", ("y", "x")), "2"))
        self.assertEqual(self.shape(self.expression("(x) - 2")), ("-", ("paren", "x"), "2"))
        self.assertEqual(self.shape(self.expression("*(const float *)(a + 1)")),
                         ("*", ("const float *", ("paren", ("+", "a", "1")))))

    def test_statements(self):
        text = ("DEVICE int f(int a) { if (a) { return 1; } else b(); for (int i = 0; i < 2; ++i) "
                "{ continue; } do { --a; } while (a); enum { K = 3 }; float x[K], y = 1.0f; ; }")
        body = parse(text, FILE).functions[0].body
        self.assertEqual([s.kind for s in body.children],
                         ["if", "for", "do", "declaration", "declaration", "empty"])
        self.assertEqual(len(body.children[4].constants), 1)
        self.assertEqual(len(body.children[4].expressions), 1)

    def test_outside_functions(self):
        text = ("typedef unsigned int mine; struct s { int a[3]; }; extern int x[]; "
                "enum { A = 1 << 2, B }; static mine g(mine a); KERNEL void __launch_bounds__(A, 1) "
                "NAME(const struct s s) { mine b = (mine)s.a[0]; }")
        parser = parse(text, FILE)
        self.assertEqual([f.name for f in parser.functions], ["NAME"])
        self.assertEqual(len(parser.enumerators), 1)
        self.assertEqual(parser.functions[0].body.children[0].kind, "declaration")

    def test_errors_name_the_place(self):
        with self.assertRaisesRegex(TextError, r"part.cuh:2:7: '\)' expected"):
            parse("void f(void) {\n if (a;\n}", FILE)


class Operators(unittest.TestCase):
    def check(self, operator, body, *expected, parameters="void"):
        self.assertEqual(changes(body, operator, parameters), list(expected))

    def test_waits(self):
        self.check("wait-removed", "cp_async_wait_1();", ";")
        self.check("wait-raised", "cp_async_wait_1();", "cp_async_wait_2();")
        self.check("wait-removed", "mbarrier_wait(full, parity);", ";")
        self.check("parity-flipped", "mbarrier_wait(full, p ^ 1);",
                   "mbarrier_wait(full, ((p ^ 1) ^ 1));")
        self.check("parity-flipped", "parity ^= 1;", "parity ^= (1 ^ 1);")

    def test_arrivals(self):
        self.check("arrive-removed", "mbarrier_arrive(b);", ";")
        self.check("arrive-doubled", "mbarrier_arrive(b);",
                   "{ mbarrier_arrive(b); mbarrier_arrive(b); }")
        self.check("expect-changed", "mbarrier_arrive_expect(b, BYTES);",
                   "mbarrier_arrive_expect(b, (BYTES + 16));",
                   "mbarrier_arrive_expect(b, (BYTES - 16));")
        self.check("count-changed", "mbarrier_init(b, WARPS);", "mbarrier_init(b, (WARPS + 1));",
                   "mbarrier_init(b, (WARPS - 1));")
        self.check("count-changed", "barrier_sync(ID, 128);", "barrier_sync((ID + 1), 128);",
                   "barrier_sync(ID, (128 + 32));", "barrier_sync(ID, (128 - 32));")

    def test_stages(self):
        self.check("stage-off", "g(stage); int a = block % STAGES;",
                   "g(((stage + 1) % STAGES)); int a = block % STAGES;",
                   "g(stage); int a = (block + 1) % STAGES;")
        self.check("stage-off", "g(pipe.stage);", "g((pipe.stage + 1));")
        self.check("stage-off", "pipe->stage = 0; ++stage; stage += 1;")

    def test_fences_commits_and_barriers(self):
        self.check("fence-removed", "fence_proxy_async();", ";")
        self.check("commit-removed", "wgmma_commit();", ";")
        self.check("commit-moved", "a();\nwgmma_commit();\nb();", "a();\nb();\nwgmma_commit();",
                   "wgmma_commit();\na();\nb();")
        self.check("barrier-removed", "__syncthreads();", ";")
        self.check("barrier-removed", "__syncwarp(m);", ";")
        self.check("barrier-removed", "if (__syncthreads_or(x)) { a(); }", "if ((x)) { a(); }")

    def test_bounds(self):
        self.check("bound-dropped", "if (i < n) { a(); }", "if (1) { a(); }", "if (0) { a(); }")
        self.check("bound-dropped", "const bool ok = i < n;", "const bool ok = 1;",
                   "const bool ok = 0;")
        self.check("bound-dropped", "x = a || b;", "x = 0 || b;", "x = a || 0;")
        self.check("bound-dropped", "for (int i = 0; i < n; ++i) { a(); }",
                   "for (int i = 0; 0; ++i) { a(); }")
        self.check("bound-dropped", "x = a ? b : c;", "x = 1 ? b : c;", "x = 0 ? b : c;")

    def test_masks_swizzles_and_lanes(self):
        self.check("mask-off", "x = row & 7;", "x = row & (7 - 1);")
        self.check("mask-off", "x = __ballot_sync(ALL, y);", "x = __ballot_sync((ALL - 1), y);")
        self.check("swizzle-bit", "x = chunk ^ row;", "x = chunk ^ (row ^ 1);")
        self.check("lanes-swapped", "x = lane / 4;", "x = lane % 4;")
        self.check("lanes-swapped", "x = lane / 8 % 2;", "x = lane % 8 % 2;", "x = lane / 8 / 2;")
        self.check("lanes-swapped", "x = pack_bf16x2(a, b);", "x = pack_bf16x2(b, a);")
        self.check("divide-modulo", "x = i / CHUNKS;", "x = i % CHUNKS;")

    def test_offsets(self):
        self.check("offset-narrowed", "x = (u64)a;", "x = (u32)a;")
        self.check("offset-narrowed", "const i64 a = 1;", "const int a = 1;")
        self.check("offset-narrowed", "x = a * p->q_head_stride;",
                   "x = (int)(a * p->q_head_stride);")
        text = "DEVICE void f(i64 batch, int b) {\n}\n"
        narrowed = [m for m in find_mutants(text, FILE) if m.operator == "offset-narrowed"]
        self.assertEqual([m.apply(text) for m in narrowed], [text.replace("i64", "int")])

    def test_arithmetic(self):
        for old, new in (("<", "<="), ("<=", "<"), (">", ">="), (">=", ">"), ("==", "!="),
                         ("!=", "==")):
            self.check("comparison", f"x = a {old} b;", f"x = a {new} b;")
        self.check("plus-minus", "x = a + b;", "x = a - b;")
        self.check("plus-minus", "x += b;", "x -= b;")
        self.check("plus-minus", "x = -b;")  # a sign, no sum
        self.check("and-or", "x = a && b;", "x = a || b;")
        self.check("minimum-maximum", "x = minimum(a, b);", "x = maximum(a, b);")
        self.check("minimum-maximum", "x = fmaxf(a, b);", "x = fminf(a, b);")

    def test_constants(self):
        self.check("constant", "x = 15u;", "x = 16u;")
        self.check("constant", "x = 0x7f;", "x = 0x80;")
        self.check("constant", "x = 1.0f;", "x = 2.0f;")
        self.check("constant", "x = true;", "x = false;")
        self.assertEqual([m.apply("enum { A = 8 * 2 };") for m in
                          find_mutants("enum { A = 8 * 2 };", FILE)],
                         ["enum { A = 9 * 2 };", "enum { A = 8 * 3 };"])

    def test_statements(self):
        self.check("statement-deleted", "a = b;", ";")
        self.check("statement-deleted", "break;", ";")
        self.check("statement-deleted", "return;", ";")
        self.check("statement-deleted", "int a = b;")
        self.check("statement-deleted", "wgmma_commit();")  # is called commit-removed

    def test_lines_stay_in_place(self):
        text = f'#line 3 "{FILE}"\nDEVICE void f(void) {{\n    a = b +\n        c;\n    d();\n}}\n'
        mutant = next(m for m in find_mutants(text) if m.operator == "statement-deleted")
        self.assertEqual(mutant.apply(text).count("\n"), text.count("\n"))

    def test_other_files_are_left_alone(self):
        text = "DEVICE void f(void) { a = 1 + b; }"
        self.assertEqual(find_mutants(text, "templates/ptx/mma.cuh"), [])
        self.assertEqual(find_mutants(text, "templates/f.params.h"), [])
        self.assertEqual(find_mutants(text), [])  # the prologue

    def test_names_are_different_and_survive_other_edits(self):
        text = "DEVICE void f(void) {\n    a(1, 1);\n    a(1, 1);\n}\n"
        names = [m.name for m in find_mutants(text, FILE)]
        self.assertEqual(len(set(names)), len(names))
        self.assertIn((FILE, "f", "a(1, 1);", "constant: 1 -> 2 #4"), names)
        moved = find_mutants("DEVICE int g(void) {\n    return x;\n}\n\n" + text, FILE)
        self.assertEqual([m.name for m in moved], names)


class Samples(unittest.TestCase):
    def test_the_seed_decides(self):
        names = [str(i) for i in range(100)]
        self.assertEqual(mutate.draw(names, 10, 7), mutate.draw(names, 10, 7))
        self.assertNotEqual(mutate.draw(names, 10, 7), mutate.draw(names, 10, 8))
        self.assertEqual(len(mutate.draw(names, 10, 7)), 10)
        self.assertEqual(mutate.draw(names, 10, 7), sorted(mutate.draw(names, 10, 7), key=int))
        self.assertEqual(mutate.draw(names, 200, 7), names)

    def test_an_edit_elsewhere_leaves_the_sample(self):
        names = [str(i) for i in range(100)]
        drawn = mutate.draw(names, 10, 7)
        self.assertLess(set(drawn), set(mutate.draw(names, 20, 7)))
        shorter = [n for n in names if n in drawn or int(n) % 2]
        self.assertEqual(mutate.draw(shorter, 10, 7), drawn)

    def test_every_family_has_its_share(self):
        homes = {f"{family}{i}": family for family, count in (("a", 100), ("b", 3), ("c", 50))
                 for i in range(count)}
        drawn = mutate.draw_shares(homes, 30, 7)
        counts = [sum(homes[n] == family for n in drawn) for family in "abc"]
        self.assertEqual(counts, [14, 3, 13])
        self.assertEqual(drawn, mutate.draw_shares(homes, 30, 7))
        self.assertNotEqual(drawn, mutate.draw_shares(homes, 30, 8))
        self.assertEqual(sorted(mutate.draw_shares(homes, 1000, 7)), sorted(homes))

    def choose(self, **options):
        """For the settled family `a` with twelve mutants and the unsettled `b` with eight: how many of each run, and
        the families reported as omitted."""
        families = [configurations.Family("a", (), 5, "", ()),
                    configurations.Family("b", (), None, "two are open", ())]
        homes = {f"{family}{i}": family for family, count in (("a", 12), ("b", 8))
                 for i in range(count)}
        given = {"again": None, "skip": [], "only": None, "sample": 0, "full": False, "all": False,
                 "known": False, "seed": 1, "shard": None, "family": None, "changed_since": None,
                 **options}
        arguments = argparse.Namespace(**given)
        chosen = mutate.choose(homes, families, {"a0", "b0"}, {}, arguments)
        return ([sum(homes[n] == family for n in chosen) for family in "ab"],
                mutate.left_out(families, arguments))

    def test_what_is_not_settled_is_left_out_and_named(self):
        self.assertEqual(self.choose(), ([11, 7], {}))
        self.assertEqual(self.choose(full=True), ([5, 0], {"b": "two are open"}))
        self.assertEqual(self.choose(sample=20), ([11, 0], {"b": "two are open"}))
        self.assertEqual(self.choose(full=True, family=["a", "b"]), ([5, 7], {}))
        self.assertEqual(self.choose(full=True, all=True), ([11, 7], {}))
        self.assertEqual(self.choose(sample=20, all=True), ([11, 7], {}))

    def test_known_survivors_are_run_by_themselves(self):
        self.assertEqual(self.choose(known=True), ([1, 1], {}))
        self.assertEqual(self.choose(known=True, full=True), ([1, 0], {"b": "two are open"}))
        self.assertEqual(self.choose(known=True, sample=1, family=["a", "b"])[0], [0, 1])

    DIFF = ("+++ b/templates/common/a.cuh\n@@ -3,2 +3 @@ DEVICE\n-x\n-y\n+z\n@@ -9 +8,2 @@\n"
            "+++ b/tests/emu/micro/b.cu\n@@ -1 +1,0 @@\n@@ -4 +4 @@\n+++ /dev/null\n@@ -1 +0,0 @@\n")

    def test_lines_that_changed(self):
        self.assertEqual(mutate.changed_lines(self.DIFF), {
            ("templates/common/a.cuh", 3), ("templates/common/a.cuh", 8),
            ("templates/common/a.cuh", 9), ("templates/micro/b.cu", 4)})

    def test_a_revision_that_is_none(self):
        with self.assertRaisesRegex(mutate.CannotTell, "no-such-revision"):
            mutate.changed_since("no-such-revision")

    def test_a_survivor_draws_more_of_its_family(self):
        homes = {f"{family}{i}": family for family in "ab" for i in range(8)}
        results = {"a0": ("", "", "", 1), "a1": ("race", "", "", 1), "b0": ("race", "", "", 1)}
        again = mutate.draw_again(results, homes, {"a2"}, 1)
        self.assertEqual(len(again), mutate.RETRIES)
        self.assertLessEqual(set(again), {"a3", "a4", "a5", "a6", "a7"})
        self.assertEqual(again, mutate.draw_again(results, homes, {"a2"}, 1))

    def test_a_family_fails_where_most_of_them_survive(self):
        homes = {n: n[0] for n in ("a1", "a2", "a3", "b1", "b2", "b3", "c1", "c2")}
        fates = {"a1": "", "a2": "", "a3": "race", "b1": "", "b2": "race", "b3": "time", "c1": "",
                 "c2": mutate.STILLBORN}
        results = {n: (fate, "", "", 1) for n, fate in fates.items()}
        self.assertEqual(mutate.weak_families(results, homes), {"a": (2, 3), "c": (1, 1)})

    def test_shards_are_a_partition(self):
        names = [str(i) for i in range(11)]
        parts = [mutate.shard(names, f"{i}/3") for i in range(3)]
        self.assertEqual(sorted(sum(parts, [])), sorted(names))


class Stand:
    """A configuration that runs nothing: its results are given."""

    def __init__(self, name, cost, catches=(), text="x"):
        self.configuration = argparse.Namespace(name=name)
        self.cost, self.catches, self.runs = cost, catches, []
        self.text = text
        self.mutants = {n: argparse.Namespace(apply=lambda text, n=n: n)
                        for n in (("f.cu", "f", str(i), "change") for i in range(9))}

    def has(self, name):
        return name in self.mutants

    def measure(self, folder):
        pass

    def run(self, text, folder, schedules=None, edited=None):
        self.runs.append((text[2], schedules))
        return ("race" if text[2] in self.catches else "", "words", self.cost)


class Fates(unittest.TestCase):
    def fate(self, number, subjects, order, schedules=None):
        with tempfile.TemporaryDirectory() as folder:
            return mutate.fate(("f.cu", "f", str(number), "change"), subjects, order, folder,
                               schedules)

    def test_the_first_that_catches_it_ends_it(self):
        one, two = Stand("one", 1, "1"), Stand("two", 1, "12")
        self.assertEqual(self.fate(1, [one, two], mutate.Order()), ("race", "one", "words", 1))
        self.assertEqual(two.runs, [])
        self.assertEqual(self.fate(3, [one, two], mutate.Order()), ("", "", "words", 2))

    def test_what_caught_others_is_run_first(self):
        one, two, order = Stand("one", 1), Stand("two", 1, "12345"), mutate.Order()
        for number in range(1, 6):
            self.assertEqual(self.fate(number, [one, two], order)[1], "two")
        self.assertEqual([n for n, _ in one.runs], ["1"])

    def test_what_takes_long_is_run_later(self):
        one, two, order = Stand("one", 100, "12345"), Stand("two", 1, "2345"), mutate.Order()
        for number in range(1, 6):
            self.fate(number, [one, two], order)
        self.assertEqual([n for n, _ in one.runs], ["1"])

    def test_long_ones_are_run_under_one_schedule_first(self):
        one = Stand("one", mutate.LONG + 1, "1")
        self.fate(1, [one], mutate.Order())
        self.fate(2, [one], mutate.Order())
        self.fate(3, [one], mutate.Order(), schedules=1)
        self.assertEqual(one.runs, [("1", 1), ("2", 1), ("2", None), ("3", 1)])
        one.configuration.schedules = 1
        self.fate(4, [one], mutate.Order())
        self.assertEqual(one.runs[4:], [("4", None)])

    def test_processes_are_timed_and_ended(self):
        with tempfile.TemporaryDirectory() as folder:
            done, seconds = mutate.run_timed(["/bin/sh", "-c", "echo a; echo b >&2; exit 3"], {},
                                             folder, 60)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (3, "a\n", "b\n"))
            self.assertLess(seconds, 1)
            done, _ = mutate.run_timed(["/bin/sleep", "60"], {}, folder, 0.1)
            self.assertEqual(done.returncode, -9)


class Programs(unittest.TestCase):
    """Configurations of programs, here shell scripts."""

    EMITTED = f'#line 1 "{FILE}"\nDEVICE void f(void) {{\n    x = 1;\n}}\n'

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.script("smelt", f"cat << 'END'\n{self.EMITTED}END\n")

    def script(self, name, text):
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{text}", encoding="utf-8")
        path.chmod(0o755)

    def subject(self, program, *arguments):
        self.script("program", program)
        tools = configurations.Tools(str(self.folder / "smelt"), str(self.folder / "smelt"),
                                     {"program": str(self.folder / "program")})
        configuration = configurations.Program(
            "alone", "program", arguments, emitted_by=("smelt",), files=("templates/",),
            report="^    report ([a-z]+): (.*)")
        return mutate.Subject(configuration, tools)

    def fates(self, subject):
        names = list(subject.mutants)
        return {n[3]: r[:2] for n, r in
                mutate.run_all(names, [subject], 1, lambda name, result: None).items()}

    # As run_alone of tests/gpu/kernel_alone.c.
    COUNTING = ('cases=0; for name in one two; do case $name in *$1*) cases=1;; esac; done\n'
                'grep -q "x = 1;" $SMELT_EMU_SOURCE || failed=1\n'
                'echo "$cases cases, ${failed:-0} failed"; test $cases = 1 -a -z "$failed"\n')

    def test_a_name_that_no_case_has(self):
        """Otherwise the program fails regardless of the kernel, and every mutant seems caught."""
        self.assertEqual(set(self.fates(self.subject(self.COUNTING, "two")).values()),
                         {("wrong result", "alone")})
        with self.assertRaisesRegex(mutate.UnchangedFails, "alone: no case: .*three"):
            self.fates(self.subject(self.COUNTING, "three"))

    def test_what_does_not_compile_is_no_mistake_that_was_caught(self):
        """However long the compiler's messages are."""
        words = "    k: SMELT_ERROR_COMPILE: " + "error " * 1000
        subject = self.subject(f'grep -q "x = 1;" $SMELT_EMU_SOURCE || {{ echo "{words}"; exit 1; }}\n')
        self.assertEqual(set(self.fates(subject).values()), {(mutate.STILLBORN, "")})

    def test_a_build_in_the_middle(self):
        subject = self.subject('grep -q "x = 1;" $SMELT_EMU_SOURCE || { echo >> $0; exit 1; }\n')
        with self.assertRaises(mutate.ToolsChanged):
            self.fates(subject)

    def test_names_that_nothing_has(self):
        families = configurations.families()
        asked = argparse.Namespace(family=["topk", "nothing"], configuration=["topk-special", "none"])
        self.assertEqual(mutate.unknown(asked, families), ["nothing", "none"])
        asked = argparse.Namespace(family=None, configuration=None)
        self.assertEqual(mutate.unknown(asked, families), [])


class Families(unittest.TestCase):
    def test_a_file_is_a_family(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "toy.one.py").write_text(
                "from configurations import Check\nFILES = 'templates/toy'\nSAMPLE = 3\n"
                "CONFIGURATIONS = (Check('a', 'toy:n=1', 'toy_k:n=1'),\n"
                "                  Check('b', 'toy:n=1', 'toy_k:n=1', files='templates/common'))\n",
                encoding="utf-8")
            pathlib.Path(folder, "helper.py").write_text("x = 1\n", encoding="utf-8")
            found = configurations.families(pathlib.Path(folder))
        self.assertEqual([(f.name, f.sample) for f in found], [("toy.one", 3)])
        self.assertEqual([(c.name, c.family, c.files) for c in found[0].configurations],
                         [("a", "toy.one", ("templates/toy",)),
                          ("b", "toy.one", ("templates/common",))])

    def test_one_without_a_file_has_the_default(self):
        listed = {"families": [{"kind": "operator", "example": "toy:n=1"}, {"kind": "kernel", "example": ""}]}
        shown = {"kernels": [{"plan": {"spec": f"{name}:n=1"}} for name in ("toy_a", "toy_b", "toy_b")]}
        with tempfile.TemporaryDirectory() as folder:
            smelt = pathlib.Path(folder, "smelt")
            smelt.write_text(f"#!/bin/sh\n[ $1 = list ] && echo '{json.dumps(listed)}' || "
                             f"echo '{json.dumps(shown)}'\n", encoding="utf-8")
            smelt.chmod(0o755)
            pathlib.Path(folder, "toy_a.py").write_text(
                "from configurations import Check\nFILES = 'templates/toy_a.cu'\n"
                "CONFIGURATIONS = (Check('a', 'toy:n=1', 'toy_a:n=1'),)\n", encoding="utf-8")
            found = configurations.all_families(configurations.Tools(str(smelt)), pathlib.Path(folder))
        self.assertEqual([f.name for f in found], ["toy_a", "toy_b"])
        self.assertEqual([(c.name, c.operator, c.kernel, c.options, c.files) for c in found[1].configurations],
                         [("toy_b", "toy:n=1", "toy_b:n=1", "--strided", ("templates/toy_b.",)),
                          ("toy_b-kinds", "toy:n=1", "toy_b:n=1", "", ("templates/toy_b.",)),
                          ("toy_b-far", "toy:n=1", "toy_b:n=1", "--far", ("templates/toy_b.",))])
        self.assertEqual(found[1].coverage, ("toy_b", "toy_b-kinds", "toy_b-far"))

    def test_names_are_told_apart(self):
        families = configurations.families()
        names = [c.name for family in families for c in family.configurations]
        self.assertEqual(len(set(names)), len(names))
        for family in families:
            self.assertLessEqual(set(family.coverage), {c.name for c in family.configurations})


class Survivors(unittest.TestCase):
    TEXT = ("# words\n\na_b.sm90 f unread=374dc96b,eaf5c3e1\na_b.sm90 g time=80fa0e6b\n"
            "common f range=374dc96b\n")

    def test_reading(self):
        known = survivors.Known(survivors.read(self.TEXT))
        for file in ("templates/a_b.sm90.cu", "templates/a_b.sm90_sums.cuh"):
            name = (file, "f", "x = 1;", "constant: 1 -> 2")
            self.assertIn(name, known)
            self.assertEqual(known.why(name), "unread")
        self.assertIn(("templates/common/c.cuh", "f", "x = 1;", "constant: 1 -> 2"), known)
        for name in (("templates/a_b.mma.cu", "f", "x = 1;", "constant: 1 -> 2"),
                     ("templates/a_b.sm90_few.cu", "f", "x = 1;", "constant: 1 -> 2"),
                     ("templates/a_b.sm90.cu", "g", "x = 1;", "constant: 1 -> 2"),
                     ("templates/a_b.sm90.cu", "f", "x = 2;", "constant: 1 -> 2"),
                     ("templates/a_b.sm90.cu", "g", "return a | b;", "constant: 1 -> 2")):
            self.assertNotIn(name, known)

    def test_sections(self):
        for file, section in (("a_b.sm90_sums.cuh", "a_b.sm90"), ("a_b.sm90.cu", "a_b.sm90"),
                              ("a_b.sm90_few.cu", "a_b.sm90_few"), ("a_b.cu", "a_b"),
                              ("a_b.emit.cuh", "a_b.emit"), ("common/x_y.cuh", "common"),
                              ("micro/x.cu", "micro/x")):
            self.assertEqual(survivors.section_of("templates/" + file), section)

    def test_mistakes(self):
        for text in ("common f\n", "common f 1\n", "common f time=\n", "common f no=1\n",
                     self.TEXT + "common f time=374dc96b\n"):
            with self.assertRaises(survivors.SurvivorsError):
                survivors.read(text)

    def test_what_is_written_is_read(self):
        found = survivors.read(self.TEXT)
        self.assertEqual(survivors.read(survivors.write(found)), found)

    def test_the_file(self):
        text = survivors.FILE.read_text(encoding="utf-8")
        self.assertEqual(survivors.write(survivors.read(text)), text)


class Report(unittest.TestCase):
    """The exit status."""

    def setUp(self):
        text = "DEVICE void f(void) {\n    x = 1;\n    y = 2;\n}\n"
        self.mutants = {m.name: m for m in find_mutants(text, FILE)}
        self.names = list(self.mutants)

    def new(self, fates, known=()):
        self.results = {n: (f, "c", "words", 0.1) for n, f in zip(self.names, fates)}
        self.known = survivors.Known({survivors.key_of(self.names[i]): "time" for i in known})
        self.output = io.StringIO()
        with contextlib.redirect_stdout(self.output):
            return mutate.report(self.results, self.mutants, self.known)

    def test_all_caught(self):
        self.assertEqual(self.new(["race", "bounds", "wrong result", "time"]), [])
        self.assertIn("4 mutants: 4 caught", self.output.getvalue())

    def test_a_survivor(self):
        self.assertEqual(self.new(["race", "", "race", "race"]), [self.names[1]])
        self.assertIn("survived: templates/common/part.cuh:2:", self.output.getvalue())
        self.assertIn("0 known survivors, 1 new survivors", self.output.getvalue())

    def test_a_known_survivor(self):
        self.assertEqual(self.new(["race", "", "race", "race"], known=[1]), [])
        self.assertIn("1 known survivors, 0 new survivors", self.output.getvalue())

    def test_a_known_one_that_is_caught(self):
        self.assertEqual(self.new(["race", "race", "race", "race"], known=[1]), [])
        self.assertIn("known as a survivor, yet race", self.output.getvalue())

    def test_accepting(self):
        self.new(["race", "", "", mutate.STILLBORN], known=[0, 2, 3])
        gone = ("common", "g", "12345678")
        self.known.found[gone] = "range"
        found = survivors.read(mutate.accept(self.results, self.known, [gone], "order"))
        keys = [survivors.key_of(name) for name in self.names]
        self.assertEqual(found, {keys[1]: "order", keys[2]: "time", keys[3]: "time"})

    def test_results_are_merged(self):
        """Shards of --json with different mutants, and one of another text."""
        with tempfile.TemporaryDirectory() as folder:
            paths = [pathlib.Path(folder, name) for name in ("a.json", "b.json")]
            arguments = argparse.Namespace(seed=1, sample=0)
            for path, part in zip(paths, (self.names[:1], self.names[1:])):
                fates = {n: ("race", "c", "words", 0.1) for n in part}
                mutate.write_json(path, fates, self.mutants, arguments, 1)
            merged = mutate.merge(paths, set(self.names))
            self.assertEqual(merged, {n: ("race", "c", "words", 0.1) for n in self.names})
            self.assertEqual(list(mutate.merge(paths[:1], set(self.names))), self.names[:1])
            self.assertEqual(list(mutate.merge(paths, {self.names[2]})), [self.names[2]])

    def test_one_that_does_not_compile_is_not_caught(self):
        self.assertEqual(self.new(["race", mutate.STILLBORN, "race", "race"]), [])
        self.assertIn("3 mutants: 3 caught", self.output.getvalue())
        self.assertIn("1 more did not compile", self.output.getvalue())


class Coverage(unittest.TestCase):
    def test_marks(self):
        text = ('#define KERNEL_NAME k\n#line 1 "templates/common/part.cuh"\n'
                "DEVICE int f(int a) {\n    int b;\n    if (a)\n        b = a ? 1 : a ? 2 : 3;\n"
                "    return b;\n}\n")
        items = coverage.Items(text)
        self.assertEqual([(k[1], k[3]) for k, _ in items.marks], [
            (3, "statement"), (4, "statement"), (4, "branch"), (4, "branch"), (4, "branch"),
            (4, "branch"), (5, "statement")])
        marked = coverage.insert(text, items.marks)
        body = marked.split("templates/common/part.cuh", 1)[1]
        self.assertIn("emu_mark(0); if (a)\n        { emu_mark(1); b = a ? (emu_mark(2), 1) : "
                      "(emu_mark(3), a ? (emu_mark(4), 2) : (emu_mark(5), 3)); }\n"
                      "    emu_mark(6); return b;", body)

    def test_a_template_has_the_items_of_its_text(self):
        template = "DEVICE void f(void) {\n    //@for i in 0..2\n    wait_$i(x, $i);\n    //@end\n}\n"
        emitted = (f'#line 1 "{FILE}"\nDEVICE void f(void) {{\n#line 3 "{FILE}"\n    wait_0(x, 0);\n'
                   f'#line 3 "{FILE}"\n    wait_1(x, 1);\n}}\n')
        wanted = {k for k, _ in coverage.Items(template, FILE).marks}
        self.assertEqual(wanted, {k for k, _ in coverage.Items(emitted).marks})

    class Reaching:
        """A configuration that passes every item of its text."""

        def __init__(self, name, keys):
            self.name, self.keys, self.passed, self.ran, self.found = name, keys, set(), False, 0

        def reaches(self, keys):
            return not self.keys.isdisjoint(keys)

        def run(self, _):
            self.ran, self.passed = True, self.keys

    def found(self, first, every=False):
        """{name: how many items it was the first to reach} of those that ran."""
        runs = [self.Reaching("dear", {1, 2, 3}), self.Reaching("cheap", {1, 2}),
                self.Reaching("other", {3}), self.Reaching("needless", {9})]
        coverage.run_needed(runs, first, {1, 2, 3}, 2, every)
        return {run.name: run.found for run in runs if run.ran}

    def test_those_listed_run_first_and_others_for_what_is_left(self):
        self.assertEqual(self.found({"cheap", "other"}), {"cheap": 2, "other": 1})
        self.assertEqual(self.found({"cheap"})["cheap"], 2)
        self.assertEqual(sum(self.found({"cheap"}).values()), 3)
        self.assertEqual(self.found({"dear"}), {"dear": 3})
        self.assertEqual(set(self.found({"cheap"}, every=True)),
                         {"dear", "cheap", "other", "needless"})


if __name__ == "__main__":
    unittest.main()
