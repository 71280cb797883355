#!/usr/bin/env python3
"""Tests of the filters (harmless.py): each drops the changes it is for, and not similar ones that have an effect. Also
of the values of a text's constants (values.py)."""

import unittest

import values
from operators import find_all, find_mutants
from syntax import parse, parse_expression

FILE = "templates/common/part.cuh"
CONSTANTS = ("enum { ON = 1, OFF = 0, FOUR = 4, FIRST_OFFSET = 0, NEXT_OFFSET = 64, ROWS = FOUR * 2,\n"
             "       FOLLOWING, ALL_LANES = -1, STAGES = 3 };\n")


class Filters(unittest.TestCase):
    def check(self, reason, body, dropped, kept=()):
        """The changes that a filter must drop in a function's body, and some that it must keep, written as in
        Mutant.name."""
        text = f'{CONSTANTS}#line 1 "{FILE}"\nDEVICE void f(int lane, u32 stage) {{\n{body}\n}}\n'
        found = {m.name[3]: m.harmless for m in find_all(text)}
        self.assertEqual({change for change, why in found.items() if why == reason}, set(dropped))
        for change in kept:
            self.assertEqual(found.get(change), "", change)

    def test_what_the_constants_switch_off(self):
        self.check("never_reached", "if (OFF) { a(1); } else { b(2); }", [
            "constant: 1 -> 2", "statement-deleted: a(1); removed"],
            ["constant: 2 -> 3", "bound-dropped: OFF -> 1"])
        self.check("never_reached", "x = ON ? c : d + 1;", ["plus-minus: + -> -", "constant: 1 -> 2"],
                   ["bound-dropped: ON -> 0"])
        self.check("never_reached", "x = OFF && y < 2;", ["comparison: < -> <=", "constant: 2 -> 3"])
        self.check("never_reached", "x = on && y < 2;", [])

    def test_a_value_that_stays(self):
        self.check("same_value", "if (FOUR > 0) { a(); }", [
            "bound-dropped: FOUR > 0 -> 1", "comparison: > -> >=", "constant: 0 -> 1"],
            ["bound-dropped: FOUR > 0 -> 0"])
        self.check("same_value", "x = FOUR == 4 || i < n;", ["bound-dropped: i < n -> 0"],
                   ["comparison: == -> !="])
        self.check("same_value", "x = n > 0;", [])
        self.check("same_value", "x = ROWS / FOUR;", [], ["divide-modulo: / -> %"])

    def test_twins(self):
        self.check("twin", "bool any = false;", ["bound-dropped: false -> 1"],
                   ["constant: false -> true"])

    def test_zeros(self):
        self.check("zero_added", "x = arena + FIRST_OFFSET;", ["plus-minus: + -> -"])
        self.check("zero_added", "x = arena + NEXT_OFFSET;", [], ["plus-minus: + -> -"])

    def test_equal_arms(self):
        self.check("equal_arms", "x = a < b ? a : b;", ["comparison: < -> <="],
                   ["bound-dropped: a < b -> 1"])
        self.check("equal_arms", "x = a < b ? b : a;", ["comparison: < -> <="])
        self.check("equal_arms", "x = a < b ? a : c;", [], ["comparison: < -> <="])
        self.check("equal_arms", "x = a == b ? a : b;", [], ["comparison: == -> !="])

    def test_arrays(self):
        self.check("array_grows", "u32 a[4], b[FOUR * 2];", ["constant: 4 -> 5", "constant: 2 -> 3"])
        self.check("array_grows", "u32 a[ROWS / 2];", [], ["constant: 2 -> 3"])  # it shrinks
        self.check("array_grows", "float a[FOUR][2];", [], ["constant: 2 -> 3"])  # another pitch
        self.check("array_grows", "enum { WIDTH = 2 };", [], ["constant: 2 -> 3"])
        self.check("array_grows", "u32 a[4] = {1, b[2]};", ["constant: 4 -> 5"],
                   ["constant: 1 -> 2", "constant: 2 -> 3"])

    def test_low_bits(self):
        self.check("low_bits", "x = (u64)to % 16 == 0;", ["offset-narrowed: (u64) -> (u32)"])
        self.check("low_bits", "x = (((u64)a | (u64)b) & 15) == 0;", [
            "offset-narrowed: (u64) -> (u32)", "offset-narrowed: (u64) -> (u32) #2"])
        self.check("low_bits", "x = (u64)a / 16;", [], ["offset-narrowed: (u64) -> (u32)"])
        self.check("low_bits", "x = (i64)a % 16;", [], ["offset-narrowed: (i64) -> (int)"])

    def test_steps(self):
        self.check("same_steps", "for (int i = 1; i <= 2; i *= 2) { a(i); }", ["constant: 2 -> 3"],
                   ["constant: 1 -> 2", "comparison: <= -> <"])
        self.check("same_steps", "for (int i = 1; i <= 3; i *= 2) { a(i); }", [], ["constant: 3 -> 4"])
        self.check("same_steps", "for (int i = 1; i <= 2; i += 1) { a(i); }", [], ["constant: 2 -> 3"])
        self.check("beyond_the_warp", "for (int i = 1; i < 32; i *= 2) { a(i); }", [
            "comparison: < -> <=", "constant: 32 -> 33"], ["constant: 1 -> 2"])
        self.check("beyond_the_warp", "for (int i = 1; i < 16; i *= 2) { a(i); }", [])
        self.check("beyond_the_warp", "for (int i = 1; i < 32; i += 1) { a(i); }", [])

    def test_products(self):
        self.check("accumulates", "wgmma_rs_n64(d, a, b, 1);", ["constant: 1 -> 2"])
        self.check("accumulates", "wgmma_rs_n64(d, a, b, k > 0);", [], ["constant: 0 -> 1"])
        self.check("accumulates", "wgmma_wait_1(); other(d, 1);", [], ["constant: 1 -> 2"])

    def test_descriptors(self):
        self.check("descriptor_fraction", "x = shared_descriptor(at, 16, bytes, 128);",
                   ["constant: 16 -> 17"], ["constant: 128 -> 129"])  # a swizzle that does not exist
        self.check("descriptor_fraction", "x = descriptor_advance(b, (u32)(32 * step));",
                   ["constant: 32 -> 33"])
        self.check("descriptor_fraction", "x = descriptor_advance(b, (u32)(16 * ROWS * step));", [],
                   ["constant: 16 -> 17"])
        self.check("descriptor_fraction", "x = shared_descriptor(at, 8, bytes, 128);", [],
                   ["constant: 8 -> 9"])

    def test_copies_of_nothing(self):
        self.check("copies_nothing", "cp_async_16(to, there ? from : base, there ? 16 : 0);",
                   ["bound-dropped: there -> 1"],
                   ["bound-dropped: there -> 0", "bound-dropped: there -> 1 #2"])
        self.check("copies_nothing", "cp_async_16(to, there ? from : base, 16);", [],
                   ["bound-dropped: there -> 1"])

    def test_threads(self):
        self.check("any_thread", "if (threadIdx.x == 0) { a(); }", ["constant: 0 -> 1"],
                   ["comparison: == -> !=", "bound-dropped: threadIdx.x == 0 -> 1"])
        self.check("any_thread", "if (there && lane % 32 == 0) { a(); }",
                   ["constant: 32 -> 33", "constant: 0 -> 1"], ["and-or: && -> ||"])
        self.check("any_thread", "if (lane % 4 == 0) { a(); }", ["constant: 0 -> 1"],
                   ["constant: 4 -> 5"])
        self.check("any_thread", "if (lane == 31) { a(); }", [], ["constant: 31 -> 32"])
        self.check("any_thread", "if (row == 0) { a(); }", [], ["constant: 0 -> 1"])
        self.check("any_thread", "x = lane == 0 ? a : b;", [], ["constant: 0 -> 1"])
        # The thread that issued the copies waits for them.
        self.check("any_thread", "if (lane == 0) { bulk_wait_0(); }", [], ["constant: 0 -> 1"])

    def test_hints(self):
        self.check("hint", "registers_increase(232); tensor_prefetch(&map); a();", [
            "statement-deleted: registers_increase(232); removed",
            "statement-deleted: tensor_prefetch(&map); removed"],
            ["statement-deleted: a(); removed"])
        self.check("hint", "registers_decrease(40);", [],
                   ["statement-deleted: registers_decrease(40); removed"])
        self.check("hint", "if (i == last) { grid_launch_dependents(); }", [
            "bound-dropped: i == last -> 1", "bound-dropped: i == last -> 0", "comparison: == -> !=",
            "statement-deleted: grid_launch_dependents(); removed"])
        self.check("hint", "if (i < n) { prefetch_l2(p + i, 16); }", [
            "bound-dropped: i < n -> 0", "statement-deleted: prefetch_l2(p + i, 16); removed"],
            ["bound-dropped: i < n -> 1", "plus-minus: + -> -"])
        self.check("hint", "if (i < n) { prefetch_l2(p, 16); a(); }", [
            "statement-deleted: prefetch_l2(p, 16); removed"], ["bound-dropped: i < n -> 0"])

    def test_waits_for_the_kernel_before(self):
        self.check("waits_more", "if (early && last) { grid_wait(); }", [
            "bound-dropped: early && last -> 1", "bound-dropped: early -> 1",
            "bound-dropped: last -> 1", "and-or: && -> ||"],
            ["bound-dropped: early && last -> 0"])
        self.check("waits_more", "if (early || last) { grid_wait(); }",
                   ["bound-dropped: early || last -> 1"],
                   ["and-or: || -> &&", "bound-dropped: early -> 0"])
        self.check("waits_more", "if (early) { mbarrier_wait(full, p); }", [],
                   ["bound-dropped: early -> 1"])

    def test_lanes_that_have_the_same(self):
        self.check("same_in_all_lanes", "x = __shfl_sync(ALL_LANES, (int)threadIdx.x / 32, 0);",
                   ["constant: 0 -> 1"], ["constant: 32 -> 33"])
        self.check("same_in_all_lanes", "x = __shfl_sync(ALL_LANES, sum, 0);", [],
                   ["constant: 0 -> 1"])

    def test_stages(self):
        self.check("stages_renamed", "return FULL + 8 * stage;",
                   ["stage-off: stage -> ((stage + 1) % STAGES)"])
        self.check("stages_renamed", "mbarrier_init(FULL + stage, 1);",
                   ["stage-off: stage -> ((stage + 1) % STAGES)"])
        self.check("stages_renamed", "a(stage); b(stage);", [],
                   ["stage-off: stage -> ((stage + 1) % STAGES)"])

    def test_numbers_stay(self):
        """The second of two equal changes is number 2, even if the first is dropped, because another kernel of the
        template may keep it."""
        text = f'{CONSTANTS}#line 1 "{FILE}"\nDEVICE void f(int n) {{\nx = OFF && n < 2 || n < 2;\n}}\n'
        found = {m.name[3]: m.harmless for m in find_all(text)}
        self.assertEqual(found["comparison: < -> <="], "never_reached")
        self.assertEqual(found["comparison: < -> <= #2"], "")


    def test_they_are_no_mutants(self):
        text = f'{CONSTANTS}#line 1 "{FILE}"\nDEVICE void f(int n) {{\nif (OFF) {{ a(1); }}\n}}\n'
        self.assertEqual([m.name[3] for m in find_mutants(text)], ["bound-dropped: OFF -> 1"])


class Values(unittest.TestCase):
    NAMES = values.enumerators(parse(CONSTANTS + "enum { TWICE = 1 }; enum { TWICE = 2 };"))

    def value(self, text):
        return values.value_of_text(text, self.NAMES, parse_expression)

    def test_enumerators(self):
        self.assertEqual((self.NAMES["ROWS"], self.NAMES["FOLLOWING"], self.NAMES["ALL_LANES"]),
                         (8, 9, -1))
        self.assertNotIn("TWICE", self.NAMES)

    def test_expressions(self):
        for text, value in (("ROWS / 3", 2), ("FOUR % 3 == 1 && !OFF", 1), ("ON ? 5 : n", 5),
                            ("OFF && n", 0), ("n || ON", 1), ("n && ON", None), ("n + 1", None),
                            ("-1 / 2", None), ("1 << 4 | 1", 17), ("(int)FOUR", 4), ("(u32)FOUR", None)):
            self.assertEqual(self.value(text), value, text)

    def test_what_is_no_expression(self):
        self.assertIsNone(self.value("FOUR +"))


if __name__ == "__main__":
    unittest.main()
