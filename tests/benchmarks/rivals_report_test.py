"""Ratios, states, limits and tables of the comparison with other libraries, on canned data."""

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
import states  # noqa: E402
from cases import KIB, MIB, Case, Field  # noqa: E402
from runner import Runner, last_words, read_figures  # noqa: E402
from settings import LIBRARIES, Launch, Setting  # noqa: E402


def run(
    library,
    setting,
    times,
    ranks=2,
    transport="shm",
    op="allreduce",
    kind="fp32",
    probe=(60, 61),
    outcome="ok",
    wrong=0,
):
    """One run as the runner records it; times: {bytes: us}."""
    field = "allreduce" if op == "allreduce" else "others"
    return {
        "field": f"{ranks}-{transport}-{field}",
        "ranks": ranks,
        "transport": transport,
        "library": library,
        "setting": setting,
        "version": f"{library} 1.0",
        "outcome": outcome,
        "seconds": 1.0,
        "probe_ns": list(probe),
        "attempts": 1,
        "figures": [
            {"op": op, "type": kind, "bytes": size, "ranks": ranks, "us": us, "wrong": wrong}
            for size, us in times.items()
        ],
    }


def results(*runs, **more):
    return {
        "date": "2020-01-01T00:00+00:00",
        "rounds": 1,
        "quick": False,
        "add_GBps": None,
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


PRIVATE_64K = Case(2, "shm", "private", "allreduce", 64 * KIB, 2.0)


def row(case, *runs):
    return report.rows(results(*runs), [case])[0]


class Ratios(unittest.TestCase):
    def test_best_setting_of_best_library_counts(self):
        r = row(
            PRIVATE_64K,
            run("hccl", "private", {64 * KIB: 5.0}),
            run("ompi4", "default", {64 * KIB: 30.0}),
            run("ompi4", "ucx", {64 * KIB: 12.0}),
            run("ccl", "ring", {64 * KIB: 11.0}),
        )
        self.assertAlmostEqual(r.ratio, 2.2)
        self.assertTrue(r.met)
        self.assertEqual((r.best.library, r.best.setting), ("ccl", "ring"))
        self.assertEqual(r.by_library["ompi4"].us, 12.0)

    def test_below_the_minimum_is_not_met(self):
        r = row(
            PRIVATE_64K,
            run("hccl", "private", {64 * KIB: 6.0}),
            run("ompi4", "ucx", {64 * KIB: 11.9}),
        )
        self.assertFalse(r.met)

    def test_figure_is_the_median_over_rounds(self):
        r = row(
            PRIVATE_64K,
            *[run("hccl", "private", {64 * KIB: us}) for us in (4.0, 5.0, 50.0)],
            *[run("ompi4", "ucx", {64 * KIB: us}) for us in (20.0, 10.0, 9.0)],
        )
        self.assertAlmostEqual(r.ratio, 2.0)
        self.assertAlmostEqual(r.ours.spread, 12.5)

    def test_any_memory_means_the_slower_of_both(self):
        case = Case(2, "shm", "any", "allreduce", 8, 2.0)
        r = row(
            case,
            run("hccl", "private", {8: 0.1}),
            run("hccl", "heap", {8: 0.2}),
            run("impi", "default", {8: 0.3}),
        )
        self.assertAlmostEqual(r.ratio, 1.5)
        r = row(case, run("hccl", "private", {8: 0.1}), run("impi", "default", {8: 0.3}))
        self.assertIsNone(r.ratio)
        self.assertIn("heap", r.missing)

    def test_private_case_ignores_the_heap(self):
        r = row(
            PRIVATE_64K,
            run("hccl", "private", {64 * KIB: 5.0}),
            run("hccl", "heap", {64 * KIB: 1.0}),
            run("ompi4", "ucx", {64 * KIB: 10.0}),
        )
        self.assertAlmostEqual(r.ratio, 2.0)

    def test_other_ranks_transports_operations_and_limits_are_no_rivals(self):
        r = row(
            PRIVATE_64K,
            run("hccl", "private", {64 * KIB: 5.0}),
            run("ompi4", "ucx", {64 * KIB: 10.0}),
            run("impi", "x", {64 * KIB: 1.0}, ranks=4),
            run("impi", "x", {64 * KIB: 1.0}, transport="tcp"),
            run("impi", "x", {64 * KIB: 1.0}, op="broadcast"),
            run("limit", "staged", {64 * KIB: 1.0}),
        )
        self.assertAlmostEqual(r.ratio, 2.0)

    def test_wrong_results_never_count(self):
        r = row(
            PRIVATE_64K,
            run("hccl", "private", {64 * KIB: 5.0}),
            run("ompi4", "ucx", {64 * KIB: 10.0}),
            run("impi", "x", {64 * KIB: 1.0}, outcome="wrong results", wrong=3),
        )
        self.assertEqual(r.best.library, "ompi4")
        r = row(
            PRIVATE_64K,
            run("hccl", "private", {64 * KIB: 5.0}, outcome="wrong results", wrong=1),
            run("ompi4", "ucx", {64 * KIB: 10.0}),
        )
        self.assertIsNone(r.ratio)

    def test_sizes_finished_before_a_run_was_ended_count(self):
        r = row(
            PRIVATE_64K,
            run("hccl", "private", {64 * KIB: 5.0}),
            run("mpich4", "default", {64 * KIB: 10.0}, outcome="ended after 90 s"),
        )
        self.assertAlmostEqual(r.ratio, 2.0)

    def test_nothing_timed(self):
        r = row(PRIVATE_64K)
        self.assertIsNone(r.met)
        self.assertEqual(r.missing, "not timed")


class States(unittest.TestCase):
    def test_groups(self):
        seen = {20: 20, 58: 61, 250: 270}
        self.assertEqual(states.groups([61, 0, 250, 58, 270, 20]), seen)
        self.assertEqual(states.group_of(60, seen), 58)
        self.assertEqual(states.group_of(100, seen), states.UNKNOWN)
        # One state that is noisy: its lowest values do not cut it in two.
        self.assertEqual(states.groups([90, *range(120, 180)]), {90: 90, 120: 179})
        self.assertTrue(states.changed([60, 250]))
        self.assertFalse(states.changed([60, 0, 80]))

    def test_only_one_state_is_compared(self):
        near, far = (60, 60), (260, 260)
        r = row(
            PRIVATE_64K,
            run("hccl", "private", {64 * KIB: 9.0}, probe=far),
            run("hccl", "private", {64 * KIB: 5.0}, probe=near),
            run("ompi4", "ucx", {64 * KIB: 6.0}, probe=near),
            run("ompi4", "ucx", {64 * KIB: 27.0}, probe=far),
            run("impi", "x", {64 * KIB: 18.0}, probe=far),
        )
        self.assertEqual(r.state.line, 260)  # more rivals were timed there
        self.assertAlmostEqual(r.ratio, 2.0)
        self.assertEqual({state.line: round(value, 3) for state, value in r.other.items()}, {60: 1.2})

    def test_a_run_that_saw_two_states_never_counts(self):
        r = row(
            PRIVATE_64K,
            run("hccl", "private", {64 * KIB: 5.0}),
            run("ompi4", "ucx", {64 * KIB: 10.0}),
            run("impi", "x", {64 * KIB: 1.0}, probe=(60, 250)),
        )
        self.assertEqual(r.best.library, "ompi4")

    def test_what_was_probed_around_a_size_counts_more_than_around_the_run(self):
        far = run("hccl", "private", {64 * KIB: 9.0, MIB: 90.0}, probe=(60, 60))
        far["figures"][0]["line_ns"] = [260, 250]  # there and back between the run's probes
        far["figures"][1]["line_ns"] = [60, 255]
        rivals = run("ompi4", "ucx", {64 * KIB: 6.0, MIB: 100.0}, probe=(60, 260))
        rivals["figures"][0]["line_ns"] = [61, 60]
        rivals["figures"][1]["line_ns"] = [60, 60]
        near = run("hccl", "private", {64 * KIB: 4.0, MIB: 50.0}, probe=(60, 60))
        r = row(PRIVATE_64K, far, rivals, near)
        self.assertEqual((r.state, r.other), (states.State(60), {}))
        self.assertAlmostEqual(r.ratio, 1.5)
        r = row(Case(2, "shm", "private", "allreduce", MIB, 1.5), far, rivals, near)
        self.assertAlmostEqual(r.ratio, 2.0)

    def test_disturbed_figures_count_only_where_there_are_no_others(self):
        ours, rival = (
            run(library, setting, {64 * KIB: 9.0})
            for library, setting in (("hccl", "private"), ("impi", "x"))
        )
        calm = run("hccl", "private", {64 * KIB: 5.0})
        for record in (ours, rival):
            record["figures"][0]["core_ns"] = [1400, 1390]
        calm["figures"][0]["core_ns"] = [700, 710]
        r = row(PRIVATE_64K, ours, rival, calm)
        self.assertEqual((str(r.state), r.ratio), ("60 disturbed", 1.0))
        other = run("ompi4", "ucx", {64 * KIB: 10.0})
        other["figures"][0]["core_ns"] = [700, 1400]  # came while it was timed
        self.assertEqual(row(PRIVATE_64K, ours, rival, calm, other).ratio, 1.0)
        other["figures"][0]["core_ns"] = [700, 720]
        r = row(PRIVATE_64K, ours, rival, calm, other)
        self.assertEqual((str(r.state), r.ratio), ("60", 2.0))
        self.assertEqual([str(state) for state in r.other], ["60 disturbed"])

    def test_sizes_are_made_up_for_one_by_one(self):
        field = Field(2, "shm", "allreduce")
        ours, fast = Setting("hccl", "private"), Setting("impi", "default")
        order = [(field, s, ["allreduce"], [64 * KIB, MIB], "fp32") for s in (ours, fast)]
        runs = [run(s.library, s.name, {64 * KIB: 5.0, MIB: 50.0}) for s in (ours, fast)]
        runs[0]["figures"][1]["line_ns"] = [250, 250]
        self.assertEqual(
            {
                state: [(e[1], e[3]) for e in entries]
                for state, entries in bench.lacking(runs, order).items()
            },
            {60: [(ours, [MIB])], 250: [(fast, [MIB])]},
        )

    def test_a_machine_of_one_processor_has_one_state(self):
        r = row(
            PRIVATE_64K,
            run("hccl", "private", {64 * KIB: 5.0}, probe=(0, 0)),
            run("ompi4", "ucx", {64 * KIB: 10.0}, probe=(0, 0)),
        )
        self.assertAlmostEqual(r.ratio, 2.0)

    def test_lacking_and_hopeless(self):
        field = Field(2, "shm", "allreduce")
        slow, fast = Setting("mpich4", "default"), Setting("impi", "default")
        ours = Setting("hccl", "private")
        order = [(field, s, ["allreduce"], [64 * KIB], "fp32") for s in (ours, fast, slow)]
        runs = [
            run("hccl", "private", {64 * KIB: 100.0}),
            run("impi", "default", {64 * KIB: 10.0}),
            run("mpich4", "default", {64 * KIB: 17.0}),
            run("impi", "default", {64 * KIB: 40.0}, probe=(250, 250)),
        ]
        self.assertTrue(bench.hopeless(runs, field, slow))
        self.assertFalse(bench.hopeless(runs, field, fast))
        self.assertFalse(bench.hopeless(runs, field, ours))  # ours is never left out
        self.assertFalse(bench.hopeless([], field, slow))  # nor what was never run
        self.assertEqual(
            {
                state: [e[1] for e in entries]
                for state, entries in bench.lacking(runs, order).items()
            },
            {250: [ours]},
        )
        runs[2] = run("mpich4", "default", {64 * KIB: 15.0})
        self.assertFalse(bench.hopeless(runs, field, slow))


class Bounds(unittest.TestCase):
    def bounds(self, *runs, add=None):
        return {b.what: b for b in report.bounds(results(*runs, add_GBps=add))}

    def test_staged_limit(self):
        found = self.bounds(
            run("hccl", "private", {8 * KIB: 1.0, 64 * KIB: 4.0, MIB: 90.0}),
            run("limit", "staged 32 KiB", {64 * KIB: 3.5, MIB: 60.0}),
            run("limit", "staged 512 KiB", {64 * KIB: 9.0, MIB: 50.0}),
        )
        self.assertEqual(len(found), 2)
        at_64k = found["2 ranks, private, 64K: staged limit (staged 32 KiB)"]
        self.assertTrue(at_64k.met)
        self.assertAlmostEqual(at_64k.value, 4.0 / 3.5)
        self.assertFalse(found["2 ranks, private, 1M: staged limit (staged 512 KiB)"].met)

    def test_add_limit(self):
        # Two ranks, 2 n bytes each, 64 GB/s: 4 * 64 MiB / 64 GB/s = 4194 us.
        found = self.bounds(run("hccl", "heap", {MIB: 10.0, 64 * MIB: 5000.0}), add=64.0)
        self.assertEqual(len(found), 1)
        bound = found["2 ranks, heap, 64M: add bandwidth limit"]
        self.assertAlmostEqual(bound.limit_us, 4194.304)
        self.assertTrue(bound.met)

    def test_types(self):
        found = self.bounds(
            run("hccl", "heap", {64 * MIB: 8000.0}),
            run("hccl", "heap", {64 * MIB: 9000.0}, kind="bf16"),
            run("hccl", "heap", {64 * MIB: 11000.0}, kind="fp16"),
        )
        bf16, fp16 = sorted(found.values(), key=lambda b: b.ours_us)
        self.assertAlmostEqual(bf16.value, 16 / 9)
        self.assertTrue(bf16.met)
        self.assertFalse(fp16.met)


class Table(unittest.TestCase):
    def test_markdown(self):
        data = results(
            run("hccl", "private", {64 * KIB: 5.0}),
            run("ompi4", "ucx", {64 * KIB: 12.5}),
            run("impi", "default", {64 * KIB: 6.0}),
            run("gloo", "x", {}, outcome="failed: why"),
        )
        data["rivals"]["ccl"] = {"present": False, "reason": "pip said no"}
        text = report.markdown(
            data, [PRIVATE_64K, Case(2, "shm", "private", "allreduce", MIB, 1.5)]
        )
        self.assertIn("**0 of 1 cases meet their minimum**; 1 have no ratio", text)
        self.assertIn(
            "| 64K | 5.00 | 12.50 | 6.00 | Intel MPI: default | 1.20 | 2 | **no** | 1.00 | 60 |",
            text,
        )
        self.assertIn("| oneCCL | - | absent: pip said no |", text)
        self.assertIn("- gloo x, 2-shm-allreduce: failed: why", text)
        only = report.markdown(data, [PRIVATE_64K], ["ompi4"])
        self.assertIn(
            "| 64K | 5.00 | 12.50 | Open MPI (Debian): ucx | 2.50 | 2 | yes | 1.00 | 60 |", only
        )
        for table in text.split("\n\n"):  # every line of a table has as many cells as its head
            lines = [line for line in table.splitlines() if line.startswith("|")]
            self.assertEqual(
                len({line.count("|") for line in lines} | {0}), 2 if lines else 1, table
            )

    def test_every_case_is_asked_of_a_field_that_is_run(self):
        class Options:
            quick, libraries = False, None

        chosen = cases.selected()
        present = {library: {"present": True} for library in LIBRARIES}
        order = bench.plan(Options, chosen, present)
        for case in chosen:
            timed = {
                s.library
                for field, s, ops, sizes, kind in order
                if field == case.field
                and case.op in ops
                and case.bytes in sizes
                and kind == case.type
            }
            self.assertIn("hccl", timed, case.name)
            for library in LIBRARIES if case.ranks == 2 else ("ompi4", "ompi5", "impi"):
                if library != "gloo" or case.transport == "tcp":
                    self.assertIn(library, timed, case.name)

    def test_selection(self):
        self.assertTrue(all(c.ranks <= 4 for c in cases.selected(quick=True)))
        picked = cases.selected("tcp+64K,8-shm+heap")
        self.assertTrue(picked)
        self.assertTrue(
            all(
                (c.transport == "tcp" and c.bytes == 64 * KIB)
                or (c.ranks == 8 and c.memory == "heap")
                for c in picked
            )
        )
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
        runner = Runner("", "", 2, lambda: 0)
        with tempfile.TemporaryDirectory() as folder:
            what = Launch(
                [["sh", "-c", script]] * ranks,
                {"ALL": "a"},
                [{"OWN": str(r)} for r in range(ranks)],
            )
            return runner._execute(what, folder, limit)

    def test_environment_and_success(self):
        text, codes, late = self.execute('echo "$ALL$OWN"', 30)
        self.assertEqual(sorted(text.split()), ["a0", "a1"])
        self.assertEqual((codes, late), ([0, 0], False))

    def test_time_is_bounded_also_for_who_ignores_a_polite_word(self):
        text, codes, late = self.execute(
            "trap '' TERM; echo $$; sleep 1000 & wait; sleep 1000", 0.5, 1
        )
        self.assertTrue(late)
        self.assertNotEqual(codes, [0])
        self.assertNotEqual(
            subprocess.run(["kill", "-0", text.split()[0]], capture_output=True).returncode, 0
        )


if __name__ == "__main__":
    unittest.main()
