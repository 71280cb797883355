#!/usr/bin/env python3
"""Tests of the mutation test itself: each operator, what the operators leave out, samples, checks, marks."""

import pathlib
import tempfile
import unittest

import coverage
import mutate
from checks import Check, Runner, STILLBORN, judge, opaque, read_checks
from operators import find_mutants

# A statement or condition in a function's body: what becomes of it.
MUTANTS = {
    "a = b < c;": ["a = b <= c;", ";"],
    "a = b >= c;": ["a = b > c;", ";"],
    "a = b != c;": ["a = b == c;", ";"],
    "a = b + c;": ["a = b - c;", ";"],
    "a -= b;": ["a += b;", ";"],
    "a = (int)-b;": [";"],
    "a = f() - b;": ["a = f() + b;", ";"],
    "a = f(b) / 8;": ["a = f(b) % 8;", "a = f(b) / 9;", ";"],
    "a = 0x7fu;": ["a = 0x80u;", ";"],
    "a = 1.5f;": ["a = (1.5f + 1);", ";"],
    "a = b & c;": ["a = b & (c - 1);", ";"],
    "a = b ^ c[d];": ["a = b ^ (c[d] ^ 1);", ";"],
    "a ^= b;": ["a ^= (b ^ 1);", ";"],
    "a = minimum(b, c);": ["a = maximum(b, c);", ";"],
    "const int a = b && c;": ["const int a = b || c;", "const int a = 1 && c;", "const int a = b && 1;"],
    "const int a = b && c || d;": ["const int a = b || c || d;", "const int a = b && c && d;", "const int a = 1 && c || d;",
                                   "const int a = b && 1 || d;", "const int a = 0 || d;", "const int a = b && c || 0;"],
    "if (a) b();": ["if (1) b();", "if (0) b();", "if (a) ;"],
    "while (a) b();": ["while (0) b();", "while (a) ;"],
    "for (int i = 0; i < n; ++i) b();": ["for (int i = 1; i < n; ++i) b();", "for (int i = 0; i <= n; ++i) b();",
                                         "for (int i = 0; 0; ++i) b();", "for (int i = 0; i < n; ++i) ;"],
    "return a ? b : c;": ["return 1 ? b : c;", "return 0 ? b : c;"],
    "bool a = b;": ["bool a = 1;", "bool a = 0;"],
    "bool a = true;": ["bool a = false;", "bool a = 1;", "bool a = 0;"],
    "return;": [";"],
    "int a;": [],
    "a = (u64)b;": ["a = (u32)b;", ";"],
    "i64 a;": ["int a;"],
    "const i64 *a;": [],
    "a = b * p->q_stride;": ["a = b * (int)(p->q_stride);", ";"],
    "use(at.stage);": ["use(((at.stage + 1) % STAGES));", ";"],
    "a = b % STAGES;": ["a = b / STAGES;", "a = (b + 1) % STAGES;", ";"],
    "a = __ballot_sync(b, c);": ["a = __ballot_sync((b - 1), c);", ";"],
    "if (__syncthreads_or(a)) b();": ["if (1) b();", "if (0) b();", "if ((a)) b();", "if (__syncthreads_or(a)) ;"],
    "barrier_sync(A, B);": [";", "barrier_sync(A, (B + 32));", "barrier_sync(A, (B - 32));", "barrier_sync((A + 1), B);"],
    "mbarrier_init(a, n);": [";", "mbarrier_init(a, (n + 1));", "mbarrier_init(a, (n - 1));"],
    "expect(a, n);": [";", "expect(a, (n + 16));", "expect(a, (n - 16));"],
    "mbarrier_wait(a, p);": [";", "mbarrier_wait(a, ((p) ^ 1));"],
    "bulk_wait_read(0);": [";", "bulk_wait_read(1);"],
    "arrive(a);": [";", "{ arrive(a); arrive(a); }"],
    "a(); bulk_commit(); b();": ["; bulk_commit(); b();", "a(); ; b();", "a(); bulk_commit(); ;", "bulk_commit(); a(); b();",
                                 "a(); b(); bulk_commit();"],
    "a = pack_bf16x2(b, c);": ["a = pack_bf16x2(c, b);", ";"],
}

# A statement, changes that the operators leave out, and some that they must not.
LEFT_OUT = [
    ("registers_increase(n); tensor_prefetch(a); b();", ["registers_increase(n); removed", "tensor_prefetch(a); removed"],
     ["b(); removed"]),
    ("if (a == b) { grid_launch_dependents(); }", ["== -> !=", "a == b -> 0", "a == b -> 1"], []),
    ("if (a == b) { grid_launch_dependents(); /* c(); */ }", ["== -> !=", "a == b -> 0", "a == b -> 1"], []),
    ("if (a == b) { grid_launch_dependents(); c(); }", [], ["== -> !=", "a == b -> 0"]),
    ("if (a && b) { grid_wait(); }", ["a && b -> 1", "&& -> ||", "a -> 1", "b -> 1"], ["a && b -> 0", "grid_wait(); removed"]),
    ("if (threadIdx.x % 32 == 0) { a(); }", ["32 -> 33", "0 -> 1"], ["== -> !=", "% -> /", "threadIdx.x % 32 == 0 -> 1"]),
    ("if (b && lane == 0) { a(); }", ["0 -> 1"], ["&& -> ||"]),
    ("if (lane == 0) { bulk_wait(0); }", [], ["0 -> 1"]),
    ("if (row == 0) { a(); }", [], ["0 -> 1"]),
    ("u32 a[4];", ["4 -> 5"], []),
    ("u32 b[4], a[8], c[N * 2];", ["4 -> 5", "8 -> 9", "2 -> 3"], []),
    ("u32 a[N / 2];", [], ["2 -> 3"]),
    ("u32 a = b[4];", [], ["4 -> 5"]),
    ("a[4] = b;", [], ["4 -> 5"]),
    ("x = a[4];", [], ["4 -> 5"]),
]


def found(body):
    text = "enum { STAGES };\nDEVICE void f(void) { %s }\n" % body
    return [(m, m.apply(text)) for m in find_mutants("f.cuh", text)], text


class Operators(unittest.TestCase):
    def test_each(self):
        for body, expected in MUTANTS.items():
            mutants, text = found(body)
            self.assertEqual(sorted(new for _, new in mutants), sorted(text.replace(body, new, 1) for new in expected), body)

    def test_what_cannot_matter(self):
        for body, dropped, kept in LEFT_OUT:
            changes = {m.change for m, _ in found(body)[0]}
            self.assertFalse(changes & set(dropped), body)
            self.assertLessEqual(set(kept), changes, body)

    def test_names_survive_other_edits(self):
        first, then = [find_mutants("f.cuh", before + "DEVICE void f(void) {\n    a(1, 1);\n}\n") for before in ("", "\n\n")]
        self.assertEqual([m.name for m in first], [m.name for m in then])
        self.assertEqual(len({m.name for m in first}), 3)
        self.assertEqual([m.line for m in then], [4, 4, 4])
        text = "DEVICE void f(void) {\n    a = b +\n        c;\n}\n"
        self.assertTrue(all(m.apply(text).count("\n") == 4 for m in find_mutants("f.cuh", text)))

    def test_templates(self):
        """Directives, names made of parameters."""
        text = "//@for i in 0..2\nDEVICE void f_$i(void) {\n    wait_${2 * i}(x, $i);\n}\n//@end\n"
        self.assertEqual([m.change for m in find_mutants("f.cuh", text)], ["wait_${2 * i}(x, $i); removed", "$i -> (($i) ^ 1)"])


class Samples(unittest.TestCase):
    def test_an_edit_exchanges_only_its_mutants(self):
        texts = ["DEVICE void f(void) {\n%s}\n" % "".join(f"    a{i}(1);\n" for i in numbers) for numbers in (range(9), range(1, 9))]
        drawn = [[m.name for m in mutate.draw(find_mutants("f.cu", text) + find_mutants("g.cu", text), 10, 1)] for text in texts]
        self.assertEqual(len(drawn[0]), 10)
        self.assertGreaterEqual(len(set(drawn[0]) & set(drawn[1])), 8)
        self.assertEqual(sum(name.startswith("f.cu") for name in drawn[0]), 5)

    def test_changed_lines(self):
        diff = "+++ b/templates/common/a.cuh\n@@ -3,2 +3 @@ DEVICE\n-x\n+z\n@@ -9 +8,2 @@\n+++ /dev/null\n@@ -1 +0,0 @@\n"
        self.assertEqual(mutate.changed_lines(diff), {("common/a.cuh", 3), ("common/a.cuh", 8), ("common/a.cuh", 9)})


class Checks(unittest.TestCase):
    def test_reading(self):
        checks = read_checks("# A remark.\n[a b.c]\nall op:x=1, --seed 7\ny=2 --far\n    --strided\nSMELT_A=3 other:z=1 --far\n"
                             "gpu_suite --group g\n\n[d]\nop\n")
        self.assertEqual(list(map(str, checks)), ["op:x=1,y=2 --seed 7 --far --strided", "SMELT_A=3 other:z=1 --far",
                                                  "gpu_suite --group g", "op"])
        self.assertEqual([check.subject for check in mutate.own_checks("c.cu", checks)], [c.subject for c in checks])
        self.assertEqual(mutate.own_checks("d.cu", checks), checks[3:])

    def test_verdicts(self):
        report = '{"results": [{"passed": true}, {"passed": false, "reports": [{"kind": "race", "text": "x"}]}]}'
        for status, words, verdict in ((0, "", ""), (-9, "", "time"), (-11, "", "crash"), (1, report, "race"),
                                       (1, "SMELT_ERROR_COMPILE " + 9999 * "x", STILLBORN), (1, "no", "wrong result"),
                                       (1, "FAILED case: bounds: y", "bounds"), (0, "0 cases", "wrong result")):
            self.assertEqual(judge(status, words)[0], verdict, words[:50])

    def test_fates(self):
        """With a shell script as the command, which fails with a certain template."""
        mutants = find_mutants("quantize_rows.cu", (mutate.TEMPLATES / "quantize_rows.cu").read_text(encoding="utf-8"))[:1]
        with tempfile.TemporaryDirectory() as folder:
            command = pathlib.Path(folder, "smelt")
            for script, verdict in (("echo SMELT_ERROR_COMPILE; exit 1", STILLBORN), ("echo; exit 1", "wrong result"), ("exit 0", "")):
                command.write_text(f'#!/bin/sh\n[ "$1" = emit ] && echo "/*\n * Written by smelt\n#line 1 \\"templates/'
                                   f'quantize_rows.cu\\"" && seq 999 && exit\n[ -z "$SMELT_TEMPLATES" ] && exit\n{script}\n',
                                   encoding="utf-8")
                command.chmod(0o755)
                runner = Runner(folder, folder)
                runner.same_code = lambda check, templates: False
                subjects = [mutate.Subject(Check((), "op", ()), runner)]
                self.assertEqual(mutate.fate(mutants[0], subjects, runner, 1)[0], verdict)

    def test_instructions_are_opaque(self):
        text = '#line 4 "templates/ptx/a.cuh"\nDEVICE int f(int a) {\n#line 6 "templates/ptx/a.cuh"\n    asm("x");\n}\n' \
               '#line 1 "templates/b.cu"\nvoid k(int *a) {\n    *a = f(%s);\n}\n'
        self.assertIn('#line 4 "templates/ptx/a.cuh"\nint f(int a);\n#line 1 "templates/b.cu"\nvoid k', opaque(text))
        runner = Runner("build", "/nonexistent")
        self.assertEqual(runner.assembly(text % "2 * 3"), runner.assembly(text % "6"))
        self.assertNotEqual(runner.assembly(text % "2"), runner.assembly(text % "6"))
        self.assertNotEqual(runner.assembly("wrong"), runner.assembly("wrong, too"))


class Coverage(unittest.TestCase):
    def test_marks(self):
        text = "struct s {\n    int x;\n};\nDEVICE int f(int a) {\n    if (a)\n        b = a;\n    return b;\n}\n"
        marked, lines = coverage.mark(text, 7)
        self.assertEqual(lines, [6, 7])
        self.assertEqual(marked, text.replace("b = a;", "{ emu_mark(7); b = a; }").replace("return", "emu_mark(8); return"))


if __name__ == "__main__":
    unittest.main()
