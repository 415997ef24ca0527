#!/usr/bin/env python3
"""plan_page_test.py HCCL_PLAN: the page of hccl-plan in a real browser shows the same as the terminal, draws all data,
and writes no message to the console."""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

import traces
from browser import Browser

TEXT = "return document.querySelector(arguments[0]).textContent"
COUNT = "return document.querySelectorAll(arguments[0]).length"
ROWS = """return Array.from(document.querySelectorAll(arguments[0] + ' tbody tr'),
                            (r) => Array.from(r.cells, (c) => c.textContent))"""


class Page(unittest.TestCase):
    program = None

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.browser = Browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.folder.cleanup()

    def show(self, model, plan, name, *arguments):
        """Opens the page of a training; returns the terminal's output and the JSON."""
        files = [traces.write(self.folder.name, f"{name}{rank}.pb.json", traces.trace(model, plan, 400e-6, 1 / 0.7e9, 2, rank))
                 for rank in range(2)]
        self.path = os.path.join(self.folder.name, name + ".html")
        data = os.path.join(self.folder.name, name + ".json")
        done = subprocess.run([self.program, *files, "--html", self.path, "--json", data, *arguments], capture_output=True,
                              text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.browser.open(self.path)
        with open(data, encoding="utf-8") as file:
            return done.stdout, json.load(file)

    def text(self, selector):
        return self.browser.run(TEXT, selector)

    def count(self, selector):
        return self.browser.run(COUNT, selector)

    def check_numbers(self, terminal, data):
        def row(name):
            return re.search(rf"^{name} +(\d+) +(-?[\d.]+ ms) +(-?[\d.]+ ms) +(-?[\d.]+ %)$", terminal, re.M).groups()
        today, best = row("today"), row("best")
        self.assertEqual((self.text("#best-count"), self.text("#best-end"), self.text("#best-tail"), self.text("#best-gap")), best)
        self.assertEqual((self.text("#today-end"), self.text("#today-tail"), self.text("#today-gap")), today[1:])
        self.assertEqual(self.text("#lower-bound"), re.search(r"^lower bound +(\S+ ms)$", terminal, re.M).group(1))
        self.assertIn(self.text("#python"), terminal)
        for section in ("segments", "ranks", "links"):
            rows = self.browser.run(ROWS, "#what-if-" + section)
            self.assertEqual(len(rows), len(data["what_if"][section]))
            for cells in rows:
                self.assertRegex(terminal, " +".join(re.escape(cell) for cell in cells))
        if data["what_if"]["newest_first"]:
            said = self.text("#newest-first").removeprefix("And ").removesuffix(".")
            self.assertIn(said, terminal)
            self.assertIn("for its weights", said)
        else:
            self.assertEqual(self.text("#newest-first"), "")
        for dt, dd in self.browser.run("return Array.from(document.querySelectorAll('dt'), (d) => [d.textContent, d.nextSibling.textContent])"):
            self.assertIn(dd, terminal)
            self.assertIn(dt.lower().removeprefix("cut after "), terminal.lower())

    def check_drawing(self, data):
        self.assertEqual(self.count("#timelines .segment"), len(data["today"]["segments"]) + len(data["best"]["segments"]))
        self.assertEqual(self.count("#timelines .compute"), 2)
        self.assertEqual(self.count("#gradients .gradient"), len(data["gradients"]))
        self.assertEqual(self.count("#gradient-table tbody tr"), len(data["gradients"]))
        self.assertEqual(self.count("#cost .sample"), len(data["cost"]["samples"]) + len(data["cost"]["overlapped_samples"]))
        # All elements are inside their picture, and the lengths of the time lines are proportional to the times.
        outside = self.browser.run("""return Array.from(document.querySelectorAll('svg rect, svg circle, svg line')).filter((e) => {
            const box = e.getBBox(), view = e.ownerSVGElement.viewBox.baseVal;
            return !(box.x >= -1 && box.y >= -1 && box.x + box.width <= view.width + 1 && box.y + box.height <= view.height + 1);
          }).map((e) => e.outerHTML)""")
        self.assertEqual(outside, [])
        bars = self.browser.run("""return Array.from(document.querySelectorAll('#timelines rect'), (e) =>
            [e.getBBox().x, e.getBBox().width])""")
        lines = [(plan["compute_end"], plan["segments"]) for plan in (data["today"], data["best"])]
        times = [pair for end, segments in lines for pair in [(0, end), *((s["start"], s["end"]) for s in segments)]]
        left, scale = bars[0][0], bars[0][1] / times[0][1]
        for (x, width), (start, end) in zip(bars, times):
            self.assertAlmostEqual(x, left + scale * start, delta=0.5)
            self.assertAlmostEqual(width, max(scale * (end - start), 1), delta=0.5)

    def check_all(self, *training):
        terminal, data = self.show(*training)
        self.assertEqual(self.browser.run("return document.body.dataset.drawn"), "yes")
        self.check_numbers(terminal, data)
        self.check_drawing(data)
        self.assertEqual(self.browser.console(self.path), [])
        return terminal, data

    def test_shows_a_training(self):
        self.check_all(traces.load_model("resnet50"), [20, 107, 160], "resnet50")

    def test_shows_one_segment_and_few_gradients(self):
        model = {"names": ["", "b<c>&\u00e9"], "bytes": [4, 0], "ready": [0.0, 0.0], "end": 0.001}
        self.check_all(model, [1], "tiny", "--start", "10", "--bandwidth", "1")

    def test_a_row_of_what_if_shows_its_time_lines(self):
        _, data = self.check_all(traces.load_model("bert_base"), [100, 205], "bert")
        scenario = data["what_if"]["ranks"][2]
        self.browser.run("document.querySelectorAll('#what-if-ranks tbody tr')[2].click()")
        self.assertEqual(self.count("#timelines .segment"),
                         len(scenario["today"]["segments"]) + len(scenario["best"]["segments"]))
        self.assertIn(f"best at {scenario['best']['end'] * 1e3:.3f} ms", self.text("#chosen"))
        self.browser.run("document.getElementById('back').click()")
        self.assertEqual(self.text("#chosen"), "")
        self.check_drawing(data)
        self.assertEqual(self.browser.console(self.path), [])

    def test_the_console_is_looked_at(self):
        path = os.path.join(self.folder.name, "broken.html")
        with open(path, "w", encoding="utf-8") as file:
            file.write("<!DOCTYPE html><meta charset='utf-8'><title>x</title><script>nothing_of_that_name();</script>")
        self.browser.open(path)
        self.assertIn("nothing_of_that_name", "".join(self.browser.console(path)))


if __name__ == "__main__":
    Page.program = os.path.abspath(sys.argv[1])
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
