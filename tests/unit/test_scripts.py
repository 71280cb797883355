#!/usr/bin/env python3
"""The last lines of `make test` and of test-full's steps, and arguments that test-full refuses.

    test_scripts.py FOLDER      the folder: scripts/
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

FOLDER = pathlib.Path(sys.argv.pop(1))
SCRIPT = FOLDER / "count-tests.py"


def result(name, verdict="OK", stdout=""):
    return json.dumps({"name": name, "result": verdict, "stdout": stdout}) + "\n"


class Counts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.log, self.names, self.left = (pathlib.Path(folder.name, n) for n in ("log", "of", "left"))

    def count(self, *results, of=None, sums=False):
        """(exit status, its lines)."""
        self.log.write_text("".join(results), encoding="utf-8")
        command = [sys.executable, SCRIPT, str(self.log)]
        if of is not None:
            self.names.write_text("".join(name + "\n" for name in of), encoding="utf-8")
            command += ["--of", str(self.names), "--left", str(self.left)]
            command += ["--sums"] if sums else []
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(done.stderr, "")
        return done.returncode, done.stdout.splitlines()

    def test_a_whole_run(self):
        text = "ok 1 a\nnot ok 2 b\n[==========] 3 test(s) run.\n"
        status, lines = self.count(result("a", stdout=text), result("b", "SKIP"))
        self.assertEqual((status, lines), (0, ["SKIP: b", "5 cases in 2 tests",
                                               "1 passed, 0 failed, 1 skipped"]))

    def test_failures(self):
        for verdict in ("FAIL", "TIMEOUT", "ERROR", "UNEXPECTEDPASS", "INTERRUPT"):
            status, lines = self.count(result("a"), result("b", verdict))
            self.assertEqual((status, lines[-1]), (1, "1 passed, 1 failed"))
        self.assertEqual(self.count()[0], 1)
        self.log.unlink()
        done = subprocess.run([sys.executable, SCRIPT, str(self.log)], capture_output=True, check=False)
        self.assertEqual(done.returncode, 1)

    def test_a_run_that_was_ended(self):
        status, lines = self.count(result("a"), result("b", "INTERRUPT"), of=["a", "b", "c"])
        self.assertEqual((status, lines), (3, ["1 passed, 0 failed, 2 not run (0 cases)"]))
        self.assertEqual(self.left.read_text(encoding="utf-8"), "b\nc\n")
        status, lines = self.count(result("a", "FAIL"), of=["a", "c"])
        self.assertEqual((status, lines), (1, ["0 passed, 1 failed, 1 not run (0 cases)"]))
        for name in ("smelt:emu / a, b", "smelt / a, b", "emu+full - smelt:a, b", "smelt:a, b", "a, b"):
            self.assertEqual(self.count(result(name, stdout="ok 1\n"), of=["a, b"]),
                             (0, ["1 passed, 0 failed (1 cases)"]), name)

    def test_parts_are_added_up(self):
        parts = [result(f"part {i}", stdout=f"25 specs, {50 + i} checks under 3 schedules each, {i} failed\n"
                                            f"9{i} passed, 0 failed, 1 skipped\n") for i in range(2)]
        status, lines = self.count(*parts, of=["part 0", "part 1"], sums=True)
        self.assertEqual((status, lines), (0, [
            "2 passed, 0 failed (50 specs, 101 checks under 3 schedules each, 1 failed; "
            "181 passed, 0 failed, 2 skipped)"]))

    def test_mutants_that_were_not_run(self):
        text = "382 mutants: 380 caught, 2 survived; 6 more did not compile or have the same code\n" \
               "1441 of 1829 were not run: the time limit was reached\n"
        status, lines = self.count(result("emu/mutants", stdout=text), of=["emu/mutants"], sums=True)
        self.assertEqual(status, 3)
        self.assertIn("1441 of 1829 were not run", lines[0])


class TestFull(unittest.TestCase):
    """Before anything is built."""

    def run_it(self, *arguments):
        return subprocess.run([str(FOLDER / "test-full.sh"), *arguments], capture_output=True,
                              text=True, check=False)

    def test_steps(self):
        done = self.run_it("--list")
        self.assertEqual(done.returncode, 0)
        steps = [line.split()[0] for line in done.stdout.splitlines()]
        self.assertTrue({"gcc", "mutants", "asan", "cuda12"} <= set(steps), steps)

    def test_refusals(self):
        for arguments, word in ((["mutant"], "'mutant'"), (["--limit", "0"], "'0'"),
                                (["--limit", "1m"], "'1m'"), (["--limit"], "--limit"),
                                (["--at-once", "two", "asan"], "'two'"), (["--mutants"], "mutate")):
            done = self.run_it(*arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""), arguments)
            self.assertIn(word, done.stderr)


if __name__ == "__main__":
    unittest.main()
