"""Ratios, states and tables of the comparison with other libraries, on canned data."""

import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(
    0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "benchmarks", "rivals")
)

import bench  # noqa: E402
import cases  # noqa: E402
import report  # noqa: E402
from cases import KIB, MIB, Case, Field  # noqa: E402
from runner import Runner, last_words, moved, read_figures  # noqa: E402
from settings import LIBRARIES, Launch, Setting  # noqa: E402


def run(library, setting, us, ranks=2, transport="shm", op="allreduce", line=60.0, outcome="ok", wrong=0):
    """One run of 64 KiB as the runner records it; us: its time in microseconds, or None if it has none."""
    field = "allreduce" if op == "allreduce" else "others"
    return {
        "field": f"{ranks}-{transport}-{field}",
        "ranks": ranks,
        "transport": transport,
        "library": library,
        "setting": setting,
        "version": f"{library} 1.0",
        "outcome": outcome,
        "attempts": 1,
        "figures": [] if us is None else [
            {"op": op, "type": "fp32", "bytes": 64 * KIB, "us": us, "line_ns": [line, line], "wrong": wrong}
        ],
    }


def ours(us, **more):
    return run("hccl", "private", us, **more)


def ucx(us, **more):
    return run("ompi4", "ucx", us, **more)


def results(*runs, **more):
    return {
        "date": "2020-01-01T00:00+00:00",
        "rounds": 1,
        "quick": False,
        "realtime": False,
        "rivals": {library: {"present": True} for library in LIBRARIES},
        "machine": {
            "processor": "Thing",
            "processors": 2,
            "memory": "1 kB",
            "kernel": "6",
            "system": "Some",
            "compiler": "cc 1",
            "revision": "abc",
        },
        "runs": list(runs),
        **more,
    }


PRIVATE_64K = Case(2, "shm", "private", "allreduce", 64 * KIB)


def row(case, *runs):
    return report.rows(results(*runs), [case])[0]


class Ratios(unittest.TestCase):
    def test_best_setting_of_best_library_counts(self):
        r = row(PRIVATE_64K, ours(5.0), run("ompi4", "default", 30.0), ucx(12.0), run("ccl", "ring", 11.0))
        self.assertAlmostEqual(r.ratio, 2.2)
        self.assertFalse(r.lost)
        self.assertEqual((r.best.library, r.best.setting), ("ccl", "ring"))
        self.assertEqual(r.by_library["ompi4"].us, 12.0)

    def test_a_rival_wins_by_more_than_three_in_a_hundred(self):
        for us, lost in ((9.6, True), (9.8, False), (12.0, False)):
            r = row(PRIVATE_64K, ours(10.0), ucx(us))
            self.assertEqual(r.lost, lost)

    def test_figure_is_the_median_over_rounds(self):
        r = row(PRIVATE_64K, *[ours(us) for us in (4.0, 5.0, 50.0)], *[ucx(us) for us in (20.0, 10.0, 9.0)])
        self.assertAlmostEqual(r.ratio, 2.0)
        self.assertAlmostEqual(r.ours.spread, 12.5)

    def test_private_case_ignores_the_heap(self):
        r = row(PRIVATE_64K, ours(5.0), run("hccl", "heap", 1.0), ucx(10.0))
        self.assertAlmostEqual(r.ratio, 2.0)

    def test_other_ranks_transports_operations_and_limits_are_no_rivals(self):
        r = row(
            PRIVATE_64K,
            ours(5.0),
            ucx(10.0),
            run("impi", "x", 1.0, ranks=4),
            run("impi", "x", 1.0, transport="tcp"),
            run("impi", "x", 1.0, op="broadcast"),
            run("limit", "staged", 1.0),
        )
        self.assertAlmostEqual(r.ratio, 2.0)

    def test_wrong_results_never_count(self):
        r = row(PRIVATE_64K, ours(5.0), ucx(10.0), run("impi", "x", 1.0, outcome="wrong results", wrong=3))
        self.assertEqual(r.best.library, "ompi4")
        r = row(PRIVATE_64K, ours(5.0, outcome="wrong results", wrong=1), ucx(10.0))
        self.assertIsNone(r.ratio)

    def test_sizes_finished_before_a_run_was_ended_count(self):
        r = row(PRIVATE_64K, ours(5.0), run("mpich4", "default", 10.0, outcome="ended after 90 s"))
        self.assertAlmostEqual(r.ratio, 2.0)

    def test_nothing_timed(self):
        r = row(PRIVATE_64K)
        self.assertIsNone(r.ratio)
        self.assertEqual(r.missing, "ours was not timed")


class States(unittest.TestCase):
    def test_only_one_state_is_compared(self):
        r = row(
            PRIVATE_64K,
            ours(9.0, line=260.0),
            ours(5.0, line=60.0),
            ucx(6.0, line=60.0),
            ucx(27.0, line=250.0),
            run("impi", "x", 18.0, line=260.0),
        )
        self.assertEqual(r.state, "260")  # more rivals were timed there
        self.assertAlmostEqual(r.ratio, 2.0)

    def test_what_was_timed_in_different_states_has_no_ratio(self):
        r = row(PRIVATE_64K, ours(5.0, line=60.0), ucx(10.0, line=260.0))
        self.assertIsNone(r.ratio)
        self.assertEqual((r.missing, r.state), ("timed in other states", "60 to 260"))

    def test_a_run_whose_state_changed_is_told(self):
        self.assertTrue(moved({"line_ns": [60.0, 250.0]}))
        self.assertFalse(moved({"line_ns": [60.0, 80.0]}))
        self.assertFalse(moved({}))  # one processor

    def test_hopeless(self):
        field = Field(2, "shm", "allreduce")
        slow, fast = Setting("mpich4", "default"), Setting("impi", "default")
        runs = [ours(100.0), run("impi", "default", 10.0), run("mpich4", "default", 17.0)]
        self.assertTrue(bench.hopeless(runs, field, slow))
        self.assertFalse(bench.hopeless(runs, field, fast))
        self.assertFalse(bench.hopeless(runs, field, Setting("hccl", "private")))
        self.assertFalse(bench.hopeless([], field, slow))  # an untimed field is not hopeless


class Table(unittest.TestCase):
    def test_markdown(self):
        failed = run("gloo", "x", None, outcome="failed: why")
        data = results(ours(5.0), ucx(12.5), run("impi", "default", 6.0), failed)
        data["rivals"]["ccl"] = {"present": False, "reason": "pip said no"}
        text = report.markdown(data, [PRIVATE_64K, Case(2, "shm", "private", "allreduce", MIB)])
        self.assertIn("Of 1 cases with a ratio ours is faster in 1, level in 0, and **a rival is faster in 0**", text)
        self.assertIn("| 64K | 5.00 | 12.50 | 6.00 | Intel MPI: default | 1.20 | 1.00 | 60 |", text)
        self.assertIn("| oneCCL | - | absent: pip said no |", text)
        self.assertIn("- gloo x, 2-shm-allreduce: failed: why", text)
        only = report.markdown(data, [PRIVATE_64K], ["ompi4"])
        self.assertIn("| 64K | 5.00 | 12.50 | Open MPI (Debian): ucx | 2.50 | 1.00 | 60 |", only)
        data = results(ours(10.0), ucx(8.0))
        lost = report.markdown(data, [PRIVATE_64K])
        self.assertIn("- 2-shm-private-allreduce-64K: Open MPI (Debian): ucx 8.00, ours 10.00", lost)
        self.assertIn("| **0.80** |", lost)
        for table in text.split("\n\n"):  # every line of a table has as many cells as its head
            lines = [line for line in table.splitlines() if line.startswith("|")]
            self.assertEqual(len({line.count("|") for line in lines} | {0}), 2 if lines else 1, table)

    def test_every_case_is_asked_of_a_field_that_is_run(self):
        class Options:
            quick, libraries = False, None

        chosen = cases.selected()
        present = {library: {"present": True} for library in LIBRARIES}
        order = bench.plan(Options, chosen, present)
        for case in chosen:
            timed = {
                s.library
                for field, s, ops, sizes in order
                if field == case.field and case.op in ops and case.bytes in sizes
            }
            self.assertIn("hccl", timed, case.name)
            for library in LIBRARIES if case.ranks == 2 else ("ompi4", "ompi5", "impi"):
                if (library != "gloo" or case.transport == "tcp") and case.type == "fp32":
                    self.assertIn(library, timed, case.name)

    def test_selection(self):
        self.assertTrue(all(c.ranks <= 4 for c in cases.selected(quick=True)))
        picked = cases.selected("tcp+64K,8-shm+heap")
        self.assertTrue(picked)
        for c in picked:
            tcp, heap = c.transport == "tcp", c.ranks == 8 and c.memory == "heap"
            self.assertTrue(heap or (tcp and c.bytes == 64 * KIB), c.name)
        self.assertEqual(cases.selected("nonsense"), [])


class Running(unittest.TestCase):
    def test_output_of_launchers(self):
        version, figures = read_figures(
            'noise\n[1,0]<stdout>: BENCH {"version": "A  B", "ranks": 2}\nBENCH {"op": "allreduce", "us": 1.5, "wrong": 0}\n'
            'BENCH {"op": "allr'
        )
        self.assertEqual(version, "A B")
        self.assertEqual(figures, [{"op": "allreduce", "us": 1.5, "wrong": 0}])
        self.assertEqual(
            last_words("----\nbench: rank 0: no memory\n----\nbye\n"), "bench: rank 0: no memory"
        )

    def execute(self, script, limit, ranks=2):
        runner = Runner("", "", 2)
        with tempfile.TemporaryDirectory() as folder:
            own = [{"OWN": str(r)} for r in range(ranks)]
            what = Launch([["sh", "-c", script]] * ranks, {"ALL": "a"}, own)
            return runner._execute(what, folder, limit)

    def test_environment_and_success(self):
        text, codes, late = self.execute('echo "$ALL$OWN"', 30)
        self.assertEqual(sorted(text.split()), ["a0", "a1"])
        self.assertEqual((codes, late), ([0, 0], False))

    def test_time_is_bounded_also_for_a_program_that_ignores_a_polite_word(self):
        text, codes, late = self.execute("trap '' TERM; echo $$; sleep 1000 & wait; sleep 1000", 0.5, 1)
        self.assertTrue(late)
        self.assertNotEqual(codes, [0])
        alive = subprocess.run(["kill", "-0", text.split()[0]], capture_output=True)
        self.assertNotEqual(alive.returncode, 0)


if __name__ == "__main__":
    unittest.main()
