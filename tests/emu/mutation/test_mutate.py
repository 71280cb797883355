#!/usr/bin/env python3
"""Tests of the mutation test itself: tokens, syntax, each operator, samples, configurations, known survivors, marks.
(test_harmless.py: the filters.)"""

import argparse
import pathlib
import tempfile
import unittest

import configurations
import coverage
import mutate
import survivors
from operators import find_mutants
from syntax import parse
from tokens import tokenize

FILE = "templates/common/part.cuh"


def changes(body, operator, parameters="void"):
    """The bodies that an operator makes of a function's body."""
    text = f"DEVICE void f({parameters}) {{\n{body}\n}}\n"
    mutants = [m for m in find_mutants(text, FILE) if m.operator == operator]
    return [m.apply(text).split("{\n", 1)[1].rsplit("\n}", 1)[0].strip() for m in mutants]


class Syntax(unittest.TestCase):
    def test_tokens(self):
        text = '/* a */ int x;\n#line 7 "templates/a.cu"\n  y = 1.0e-5f; // no\n/* two\n lines */ wait_$i;\n'
        self.assertEqual([(t.text, t.file, t.line, t.column, t.index) for t in tokenize(text)], [
            ("int", "", 1, 9, 0), ("x", "", 1, 13, 1), (";", "", 1, 14, 2),
            ("y", "templates/a.cu", 7, 3, 0), ("=", "templates/a.cu", 7, 5, 1),
            ("1.0e-5f", "templates/a.cu", 7, 7, 2), (";", "templates/a.cu", 7, 14, 3),
            ("wait_$i", "templates/a.cu", 9, 11, 0), (";", "templates/a.cu", 9, 18, 1)])

    def shape(self, text):
        def of(node):
            return (node.text or node.kind, *map(of, node.children)) if node.children else node.text
        return of(parse(f"int f(void) {{ return {text}; }}", FILE).functions[0].body.children[0].expressions[0])

    def test_expressions(self):
        self.assertEqual(self.shape("a + b * c < d && e ^ f"),
                         ("&&", ("<", ("+", "a", ("*", "b", "c")), "d"), ("^", "e", "f")))
        self.assertEqual(self.shape("a - b - c"), ("-", ("-", "a", "b"), "c"))
        self.assertEqual(self.shape("a ? b : c ? d : e"), ("?", "a", "b", ("?", "c", "d", "e")))
        self.assertEqual(self.shape("*(const float *)(a + 1)"),
                         ("*", ("const float *", ("paren", ("+", "a", "1")))))

    def test_statements(self):
        text = ("struct s { int a[3]; }; static mine g(mine a); KERNEL void __launch_bounds__(A, 1) f(int a) { "
                "if (a) { return 1; } else b(); for (int i = 0; i < 2; ++i) "
                "{ continue; } do { --a; } while (a); enum { K = 3 }; float x[K], y = 1.0f; ; }")
        body = parse(text, FILE).functions[0].body
        self.assertEqual([s.kind for s in body.children],
                         ["if", "for", "do", "declaration", "declaration", "empty"])
        self.assertEqual((len(body.children[4].constants), len(body.children[4].expressions)), (1, 1))


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
    NAMES = [str(i) for i in range(100)]

    def test_the_seed_and_the_name_decide(self):
        drawn = mutate.draw(self.NAMES, 10, 7)
        self.assertEqual(len(drawn), 10)
        self.assertNotEqual(drawn, mutate.draw(self.NAMES, 10, 8))
        self.assertLess(set(drawn), set(mutate.draw(self.NAMES, 20, 7)))
        self.assertEqual(mutate.draw([n for n in self.NAMES if n in drawn or int(n) % 2], 10, 7), drawn)

    def test_choosing(self):
        homes = {name: "ab"[int(name) % 2] for name in self.NAMES}
        given = {"only": None, "sample": 0, "full": False, "all": False, "known": False, "seed": 1, "shard": None,
                 "changed_since": None}

        def choose(**options):
            return mutate.choose(homes, {"1", "2"}, {}, argparse.Namespace(**{**given, **options}))
        self.assertEqual(choose(), [n for n in self.NAMES if n not in ("1", "2")])
        self.assertEqual(choose(known=True), ["1", "2"])
        self.assertEqual([homes[n] for n in choose(sample=2)], ["a", "b"])
        self.assertEqual(len(choose(shard="0/2") + choose(shard="1/2")), 98)

    def test_changed_lines(self):
        diff = ("+++ b/templates/common/a.cuh\n@@ -3,2 +3 @@ DEVICE\n-x\n-y\n+z\n@@ -9 +8,2 @@\n"
                "+++ b/tests/emu/micro/b.cu\n@@ -1 +1,0 @@\n@@ -4 +4 @@\n+++ /dev/null\n@@ -1 +0,0 @@\n")
        self.assertEqual(mutate.changed_lines(diff), {
            ("templates/common/a.cuh", 3), ("templates/common/a.cuh", 8), ("templates/common/a.cuh", 9),
            ("templates/micro/b.cu", 4)})


class Runs(unittest.TestCase):
    """Configurations of a program, here shell scripts."""

    def fates(self, program, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (("smelt", f"cat << 'END'\n#line 1 \"{FILE}\"\nDEVICE void f(void) {{\n    x = 1;\n}}\n"
                                         "END\n"), ("program", program)):
                path = pathlib.Path(folder, name)
                path.write_text(f"#!/bin/sh\n{text}", encoding="utf-8")
                path.chmod(0o755)
            tools = configurations.Tools(f"{folder}/smelt", f"{folder}/smelt", {"program": f"{folder}/program"})
            subject = mutate.Subject(configurations.Program("alone", "program", arguments, ("smelt",),
                                                            "^    report ([a-z]+): (.*)", files=("templates/",)), tools)
            results = mutate.run_all(list(subject.mutants), [subject], 1, lambda name, result: None)
        return {result[:2] for result in results.values()}

    def test_what_catches(self):
        same = 'grep -q "x = 1;" $SMELT_EMU_SOURCE'
        self.assertEqual(self.fates("exit 0"), {("", "")})
        self.assertEqual(self.fates(same), {("wrong result", "alone")})
        self.assertEqual(self.fates(f"{same} || {{ echo '    report race: x'; exit 1; }}"), {("race", "alone")})
        # However long the compiler's messages are.
        self.assertEqual(self.fates(f"{same} || {{ echo SMELT_ERROR_COMPILE; seq 9999; exit 1; }}"),
                         {(mutate.STILLBORN, "")})
        with self.assertRaises(mutate.UnchangedFails):
            self.fates("exit 1")
        with self.assertRaises(mutate.ToolsChanged):
            self.fates(f"{same} || {{ echo >> $0; exit 1; }}")


class Families(unittest.TestCase):
    def test_names_are_told_apart(self):
        families = configurations.families()
        names = [c.name for family in families for c in family.configurations]
        self.assertEqual(len(set(names)), len(names))
        for family in families:
            self.assertLessEqual(set(family.coverage), {c.name for c in family.configurations})


class Survivors(unittest.TestCase):
    def test_accepting(self):
        names = [("templates/a.cu", "f", f"x = {i};", "constant: 1 -> 2") for i in range(4)]
        keys = [survivors.key_of(name) for name in names]
        known = survivors.Known({keys[0]: "time", keys[2]: "time", keys[3]: "time", ("common", "12345678"): "range"})
        results = {n: (f, "c", "words", 0.1) for n, f in zip(names, ["race", "", "", mutate.STILLBORN])}
        text = mutate.accept(results, known, [("common", "12345678")], "order")
        self.assertEqual(survivors.read(text), {keys[1]: "order", keys[2]: "time", keys[3]: "time"})
        self.assertIn(names[1], survivors.Known(survivors.read(text)))

    def test_sections(self):
        for file, section in (("a_b.sm90_sums.cuh", "a_b.sm90"), ("a_b.sm90_few.cu", "a_b.sm90_few"),
                              ("a_b.emit.cuh", "a_b.emit"), ("common/x_y.cuh", "common"), ("micro/x.cu", "micro/x")):
            self.assertEqual(survivors.section_of("templates/" + file), section)

    def test_the_file(self):
        text = survivors.FILE.read_text(encoding="utf-8")
        self.assertEqual(survivors.write(survivors.read(text)), text)


class Coverage(unittest.TestCase):
    def test_marks(self):
        text = ('#define KERNEL_NAME k\n#line 1 "templates/common/part.cuh"\n'
                "DEVICE int f(int a) {\n    int b;\n    if (a)\n        b = a ? 1 : a ? 2 : 3;\n"
                "    return b;\n}\n")
        marked = coverage.insert(text, coverage.Items(text).marks)
        self.assertIn("emu_mark(0); if (a)\n        { emu_mark(1); b = a ? (emu_mark(2), 1) : "
                      "(emu_mark(3), a ? (emu_mark(4), 2) : (emu_mark(5), 3)); }\n"
                      "    emu_mark(6); return b;", marked)

    def test_a_template_has_the_items_of_its_text(self):
        template = "DEVICE void f(void) {\n    //@for i in 0..2\n    wait_$i(x, $i);\n    //@end\n}\n"
        emitted = (f'#line 1 "{FILE}"\nDEVICE void f(void) {{\n#line 3 "{FILE}"\n    wait_0(x, 0);\n'
                   f'#line 3 "{FILE}"\n    wait_1(x, 1);\n}}\n')
        self.assertEqual({k for k, _ in coverage.Items(template, FILE).marks},
                         {k for k, _ in coverage.Items(emitted).marks})


if __name__ == "__main__":
    unittest.main()
