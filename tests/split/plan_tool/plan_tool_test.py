#!/usr/bin/env python3
"""plan_tool_test.py HCCL_PLAN: compares the output of hccl-plan on traces of real networks with a plain search for the
optimum; and checks its errors for bad input."""

import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

import traces

START, PER_BYTE = 400e-6, 1 / 0.7e9  # about 10 Gbit/s Ethernet
DEFAULT_CUTS = {"resnet50": [107, 160], "bert_base": [205]}


def ms(seconds):
    return f"{seconds * 1e3:.3f} ms"


def optimum(model, most, start, per_byte):
    """Returns the earliest end with at most `most` segments: tries every cut of every prefix."""
    sums = [0, *itertools.accumulate(model["bytes"])]
    ready = [0, *itertools.accumulate(model["ready"], max)]
    count = len(model["bytes"])
    best = [0] + [float("inf")] * count
    for _ in range(most):
        best = [min([best[e]] + [max(best[b], ready[e]) + start + per_byte * (sums[e] - sums[b]) for b in range(e)])
                for e in range(count + 1)]
    return best[count]


def end_of(model, plan, start=START, per_byte=PER_BYTE):
    return traces.segments(model, plan, start, per_byte)[-1][4]


class PlanTool(unittest.TestCase):
    program = None

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def call(self, *arguments):
        return subprocess.run([self.program, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False)

    def write(self, name, content):
        return traces.write(self.folder.name, name, content)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def plan(self, files, *arguments):
        """Returns the output of hccl-plan, and its JSON."""
        done = self.call(*files, "--json", self.path("out.json"), *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.path("out.json"), encoding="utf-8") as file:
            return done.stdout, json.load(file)

    def traces_of(self, model, plan, ranks=2, **more):
        return [self.write(f"rank{rank}.pb.json", traces.trace(model, plan, START, PER_BYTE, ranks, rank, **more))
                for rank in range(ranks)]

    def test_finds_the_optimum_of_real_networks(self):
        for name, cuts in DEFAULT_CUTS.items():
            with self.subTest(name):
                model = traces.load_model(name)
                text, data = self.plan(self.traces_of(model, cuts), "--start", START * 1e6, "--bandwidth", 0.7 * 8,
                                       "--slack", 0)
                # With 2 ranks, 2 (p-1)/p = 1, so an allreduce has the rate of the line.
                today, best = end_of(model, cuts), optimum(model, 8, START, PER_BYTE)
                self.assertAlmostEqual(data["today"]["end"], today, delta=2e-8)
                self.assertAlmostEqual(data["best"]["end"], best, delta=2e-8)
                self.assertAlmostEqual(end_of(model, data["best"]["last_indices"]), best, delta=2e-8)
                self.assertLessEqual(data["best"]["lower_bound"], best + 1e-9)
                self.assertEqual([row["label"] for row in data["what_if"]["segments"]], list("12345678"))
                for row in data["what_if"]["segments"]:
                    self.assertAlmostEqual(row["best"]["end"], optimum(model, int(row["label"]), START, PER_BYTE),
                                           delta=2e-8)
                for number in (today, best, today - model["end"], best - model["end"]):
                    self.assertIn(ms(number), text)

    def test_learns_the_cost_from_the_trace(self):
        model = traces.load_model("resnet50")
        text, data = self.plan(self.traces_of(model, [20, 60, 110, 140, 160]))
        self.assertAlmostEqual(data["cost"]["start"], START, delta=0.02 * START)
        self.assertAlmostEqual(data["cost"]["per_byte"], PER_BYTE, delta=0.01 * PER_BYTE)
        self.assertAlmostEqual(data["measured_end"], end_of(model, [20, 60, 110, 140, 160]), delta=2e-5)
        self.assertIn("measured today", text)

    def test_names_the_scene(self):
        model = traces.load_model("resnet50")
        late = self.plan(self.traces_of(model, [150, 160]))[1]["advice"]
        self.assertEqual(late[0]["title"], "AR1 too late")
        early = self.plan(self.traces_of(model, [5, 160]))[1]["advice"]
        self.assertEqual(early[0]["title"], "AR1 too early")
        one = self.plan(self.traces_of(model, [160]), "--start", 400, "--bandwidth", 5.6)[1]["advice"]
        self.assertEqual([a["title"] for a in one], ["add segments"])
        plan = self.plan(self.traces_of(model, [20, 60, 110, 160]))[1]["best"]["last_indices"]
        good = self.plan(self.traces_of(model, plan))[1]["advice"]
        self.assertEqual([a["title"] for a in good], ["nothing to gain"])

    def test_reasons_and_line_of_python_are_true(self):
        model = traces.load_model("resnet50")
        text, data = self.plan(self.traces_of(model, [107, 160], group="my \"group\""), "--start", 400, "--bandwidth", 5.6)
        plan = data["best"]["last_indices"]
        self.assertGreater(len(plan), 2)
        self.assertEqual([cut["after"] for cut in data["cuts"]], plan[:-1])
        for k, cut in enumerate(data["cuts"]):
            without = end_of(model, plan[:k] + plan[k + 1:]) - end_of(model, plan)
            self.assertIn(f"Without this cut the end is {ms(without)} later", cut["text"])
            moved = end_of(model, [*plan[:k], plan[k] + 1, *plan[k + 1:]]) - end_of(model, plan)
            self.assertIn("one gradient later " + (f"{ms(moved)} later" if moved > 5e-7 else "no later"), cut["text"])
        said = {}
        exec(data["python"].split("\n", 1)[1],  # pylint: disable=exec-used
             {"set_split_strategy_by_idx": lambda cuts, group: said.update(cuts=cuts, group=group)})
        self.assertEqual(said, {"cuts": plan, "group": "my \"group\""})
        self.assertIn(data["python"], text)

    def test_what_if(self):
        model = traces.load_model("bert_base")
        files = self.traces_of(model, [60, 120, 205], ranks=4)
        data = self.plan(files, "--start", 300, "--bandwidth", 10, "--what-if-ranks", "3,1000", "--link", "40:5",
                         "-k", 3)[1]
        rows = {row["label"]: row["best"]["end"] for kind in ("ranks", "links") for row in data["what_if"][kind]}
        share = lambda p: 2 * (p - 1) / p
        rate = 10e9 / 8
        # A start has 2 ceil(log2 p) hops: 4 for the 4 ranks of the trace.
        for ranks, hops in ((2, 2), (3, 4), (4, 4), (64, 12), (1000, 20)):
            expected = optimum(model, 3, 300e-6 * hops / 4, share(ranks) / rate)
            self.assertLessEqual(expected, rows[str(ranks)] + 1e-9)
            self.assertLessEqual(rows[str(ranks)], expected * 1.005)
        for label, start, gbit in (("1 Gbit/s", 300e-6, 1), ("40 Gbit/s, start 5 us", 5e-6, 40)):
            expected = optimum(model, 3, start, share(4) * 8e-9 / gbit)
            self.assertLessEqual(expected, rows[label] + 1e-9)
            self.assertLessEqual(rows[label], expected * 1.005)
        eight = self.plan(files, "--start", 300, "--bandwidth", 10, "--ranks", 8, "--slack", 0)[1]
        self.assertAlmostEqual(eight["best"]["end"], optimum(model, 8, 300e-6, share(8) / rate), delta=1e-7)

    def test_newest_first(self):
        model = traces.load_model("bert_base")
        text, data = self.plan(self.traces_of(model, [60, 120, 205]), "--start", START * 1e6, "--bandwidth", 0.7 * 8)
        ready = list(itertools.accumulate(model["ready"], max))
        end = max(model["end"], ready[-1])
        due = [end + ready[0] * (end - each) / (end - ready[0]) for each in ready]
        in_order = max(last_end - due[last] for _, last, _, _, last_end in
                       traces.segments(model, data["best"]["last_indices"], START, PER_BYTE))
        said = data["what_if"]["newest_first"]
        self.assertAlmostEqual(said["in_order"], in_order, delta=1e-6)
        # The same with lists: of all ready bytes, the newest are sent first, at most a chunk at a time.
        left, now, late, messages = list(model["bytes"]), 0.0, 0.0, 0
        while any(left):
            here = [i for i, size in enumerate(left) if size and ready[i] <= now + 1e-12]
            if not here:
                now = min(ready[i] for i, size in enumerate(left) if size)
                continue
            room, done = said["chunk_bytes"], []
            for i in reversed(here):
                part = min(room, left[i])
                left[i] -= part
                room -= part
                done += [i] if part and not left[i] else []
            now += START + PER_BYTE * (said["chunk_bytes"] - room)
            messages += 1
            late = max([late, *(now - due[i] for i in done)])
        self.assertAlmostEqual(said["late"], late, delta=1e-5)
        self.assertEqual(said["messages"], messages)
        self.assertLess(late, 0.8 * in_order)
        self.assertIn(f"wait {ms(said['in_order'])} for its weights", text)
        self.assertIn(f"{ms(said['late'])} with the newest gradients first", text)

    def serial(self, file, start=START, per_byte=PER_BYTE):
        """Rewrites a trace so that its segments ran after backward. Returns the end."""
        with open(file, encoding="utf-8") as source:
            trace = json.load(source)
        for iteration in trace["iterations"]:
            now = begin = iteration["compute_end_ns"]
            for segment in iteration["segments"]:
                segment["start_ns"] = now
                now += round(1e9 * (start + per_byte * segment["bytes"]))
                segment["end_ns"] = now
            iteration["behind_backward"] = True
        with open(file, "w", encoding="utf-8") as out:
            json.dump(trace, out)
        return 1e-9 * (now - begin)

    def test_without_overlap_today_runs_after_backward(self):
        model = traces.load_model("resnet50")
        file = self.traces_of(model, [107, 160])[0]
        end = model["end"] + self.serial(file)
        text, data = self.plan([file], "--start", START * 1e6, "--bandwidth", 5.6, "--slack", 0)
        self.assertAlmostEqual(data["today"]["end"], end, delta=2e-8)
        self.assertAlmostEqual(data["measured_end"], end, delta=2e-8)
        self.assertAlmostEqual(data["best"]["end"], optimum(model, 8, START, PER_BYTE), delta=2e-8)
        self.assertEqual(data["advice"][0]["title"], "no overlap")
        gain = end - end_of(model, [107, 160])
        self.assertIn(f"today's cuts alone would end {ms(gain)} earlier", data["advice"][0]["text"])
        self.assertIn("hcom_parallel", data["python"])
        self.assertIn("the model is 0.0 % off", text)
        for row in data["what_if"]["segments"]:
            self.assertAlmostEqual(row["today"]["end"], end, delta=2e-8)

    def test_one_size_does_not_show_a_start(self):
        model = traces.load_model("resnet50")
        file, size = self.traces_of(model, [160])[0], sum(model["bytes"])
        text, data = self.plan([file])
        self.assertEqual(data["advice"][0]["title"], "start unknown")
        self.assertIn("so the start is unknown", text)
        for arguments in (("--start", 5000), ("--bandwidth", 8)):  # each leaves the rest of the time for the other
            data = self.plan([file], *arguments)[1]
            cost = data["cost"]
            self.assertAlmostEqual(cost["start"] + cost["per_byte"] * size, START + PER_BYTE * size, delta=1e-6)
            self.assertAlmostEqual(*((cost["start"], 5e-3) if arguments[0] == "--start" else (cost["per_byte"], 1e-9)))
            self.assertNotEqual(data["advice"][0]["title"], "start unknown")

    def test_bounds_and_advice_where_today_has_more_segments_than_allowed(self):
        """Each gradient of 1 MB takes 1 ms, and no start: today's 16 segments are better than any 8."""
        model = {"names": [f"g{i}" for i in range(16)], "bytes": [10**6] * 15 + [10**5], "end": 0.016,
                 "ready": [0.001 * (i + 1) for i in range(16)]}
        file = self.write("many.pb.json", traces.trace(model, range(16), 0, 1e-9))
        text, data = self.plan([file], "--start", 0, "--bandwidth", 12, "-k", 2)
        self.assertLess(data["today"]["end"], data["best"]["end"])
        self.assertEqual([a["title"] for a in data["advice"]], ["today's cuts are better"])
        self.assertIn("at most 2", text)
        self.assertLessEqual(data["best"]["lower_bound"], data["today"]["end"])
        # Costs that no line fits: a table, whose bound holds for as many segments as it was computed for.
        odd = {10**6: 1e-3, 10**5: 9e-4, 2 * 10**6: 1.2e-2}
        model["bytes"] = [*([10**6] * 14), 2 * 10**6, 10**5]
        trace = traces.trace(model, range(16), 0, 1e-9)
        for iteration in trace["iterations"]:
            now = 0
            for segment, gradient in zip(iteration["segments"], iteration["gradients"]):
                segment["start_ns"] = max(now, gradient["ready_ns"])
                now = segment["end_ns"] = segment["start_ns"] + round(1e9 * odd[segment["bytes"]])
        data = self.plan([self.write("table.pb.json", trace)], "-k", 1)[1]
        self.assertIsNotNone(data["cost"]["table"])
        self.assertEqual(data["bound_segments"], 16)
        for plan in (data["today"], data["best"], *(row["today"] for row in data["what_if"]["segments"])):
            self.assertLessEqual(plan["lower_bound"], plan["end"] * (1 + 1e-9))
            self.assertGreaterEqual(plan["gap"], 0)

    def test_groups_do_not_mix_and_files_are_not_overwritten(self):
        model = traces.load_model("vgg16")
        alpha, beta = (self.write(f"{name}.pb.json", traces.trace(model, [10, 31], START, PER_BYTE, 2, rank, group=name))
                       for rank, name in enumerate(["alpha", "beta"]))
        done = self.call(alpha, beta)
        self.assertEqual(done.returncode, 1)
        self.assertIn('group "beta"', done.stderr)
        before = os.path.getsize(alpha)
        for arguments in ((alpha, "--json", alpha), (alpha, "--html", os.path.join(self.folder.name, ".", "alpha.pb.json")),
                          (alpha, "--html", self.path("x"), "--json", self.path("x"))):
            self.assertEqual(self.call(*arguments).returncode, 2)
        self.assertEqual(os.path.getsize(alpha), before)

    def test_names_cannot_control_the_terminal_or_the_program(self):
        model = traces.load_model("resnet50")
        model["names"][3] = "\x1b[2Jname"
        text, data = self.plan(self.traces_of(model, [107, 160], group="two\nlines"), "--start", 400, "--bandwidth", 5.6)
        self.assertNotIn("\x1b", text)
        said = []
        exec(data["python"].split("\n", 1)[1],  # pylint: disable=exec-used
             {"set_split_strategy_by_idx": lambda cuts, group: said.append(group)})
        self.assertEqual(said, ["two\nlines"])

    def test_bad_input_is_named(self):
        model = traces.load_model("vgg16")
        good = traces.trace(model, [10, 31], START, PER_BYTE, ranks=2)
        file = self.write("good.pb.json", good)
        other = dict(traces.trace(model, [10, 31], START, PER_BYTE, ranks=2, rank=1))
        other["iterations"] = [dict(i, gradients=i["gradients"][:-1] + [dict(i["gradients"][-1], bytes=4)])
                               for i in other["iterations"]]
        for name, content in (("empty", b""), ("noise", bytes(range(256)) * 4), ("text.json", b"{ not json"),
                              ("list.json", b"[1, 2]"), ("nothing.json", b"{}")):
            with open(self.path(name), "wb") as out:
                out.write(content)
        newer = self.write("newer.pb.json", dict(good, version=99))
        none = self.write("none.pb.json", dict(good, iterations=[]))
        alone = self.write("alone.pb.json", traces.trace(model, [10, 31], 0, 0, ranks=1))
        cases = [([self.path("absent")], "absent"), ([self.path("empty")], "empty"), ([self.path("noise")], "noise"),
                 ([self.path("text.json")], "text.json"), ([self.path("list.json")], "list.json"),
                 ([self.path("nothing.json")], "nothing.json"), ([newer], "99"), ([none], ""), ([file, file], "rank 0"),
                 ([file, self.write("other.pb.json", other)], "gradient"), ([alone], "one rank"),
                 ([file, "--link", "fast"], "--link fast"), ([file, "--link", "1:-5"], "--link 1:-5"),
                 ([file, "--html", "/nonexistent/x.html"], "/nonexistent/x.html"), ([file, "--ranks", "1"], "--ranks"),
                 ([file, "-k", "0"], "--max-segments"), ([file, "--bandwidth", "0"], "--bandwidth"), ([], "trace")]
        for arguments, word in cases:
            with self.subTest(arguments=arguments):
                done = self.call(*arguments)
                self.assertIn(done.returncode, (1, 2))
                self.assertIn(word, done.stderr)
                self.assertLess(len(done.stderr), 1000)
                self.assertFalse(re.search(r"terminate|Sanitizer", done.stderr), done.stderr)

    def test_names_cannot_break_out_of_the_page(self):
        model = traces.load_model("vgg16")
        model["names"][3] = "</script><script>alert(1)</script>"
        files = self.traces_of(model, [10, 31])
        done = self.call(*files, "--html", self.path("page.html"))
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.path("page.html"), encoding="utf-8") as file:
            page = file.read()
        self.assertNotIn("</script><script>", page)
        self.assertIsNone(re.search(r"""(src|href)\s*=\s*["'](?!data:)""", page), "nothing comes from elsewhere")


if __name__ == "__main__":
    PlanTool.program = os.path.abspath(sys.argv[1])
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
