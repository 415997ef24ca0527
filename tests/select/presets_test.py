"""Tests the tool that makes presets: their form does not change, and a new algorithm gets costs in proportion to those
of the other algorithms.

presets_test.py FOLDER: FOLDER is hccl/select."""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SELECT = pathlib.Path(sys.argv.pop())
sys.path.insert(0, str(SELECT))
import add_presets  # noqa: E402


class AddPresets(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.presets = pathlib.Path(shutil.copytree(SELECT / "presets", pathlib.Path(folder.name, "presets")))

    def add(self, table, *options):
        path = self.presets.parent / "table.json"
        path.write_text(json.dumps(table))
        subprocess.run([sys.executable, "-B", SELECT / "add_presets.py", path, "--presets", self.presets, *options],
                       check=True, stdout=subprocess.DEVNULL)

    def test_presets_are_written_as_they_are(self):
        for path in self.presets.glob("*.json"):
            table = json.loads(path.read_text())
            self.assertEqual(add_presets.text(table), path.read_text(), path.name)
            self.add(table)
            self.assertEqual(add_presets.text(table), path.read_text(), path.name)

    def test_an_algorithm_keeps_its_ratio_to_staged(self):
        path = self.presets / "own_cores_near.json"
        before = json.loads(path.read_text())["entries"][1]
        fold = add_presets.curve_of(before, "staged", "fold")
        # The costs of a machine that is three times as slow; numbers are in Protobuf's JSON form.
        curves = [{"algorithm": name, "kind": "fold",
                   "points": [{"bytes": str(p["bytes"]), "ns": str(int(part * 3 * p["ns"]))} for p in fold["points"]]}
                  for name, part in (("staged", 1), ("new", 0.5), ("push", 7))]
        key = before["key"] | {"library": "1.0", "cpu": "any", "transport": "shm", "kernel_copies": True}
        self.add({"version": 2, "entries": [{"key": key, "local": {"chunk": "4096", "curves": curves}}]},
                 "--algorithm", "new")
        after = json.loads(path.read_text())["entries"][1]
        for got, old in zip(add_presets.curve_of(after, "new", "fold")["points"], fold["points"]):
            self.assertAlmostEqual(got["ns"] / old["ns"], 0.5, delta=0.01)
        after["local"]["curves"].remove(add_presets.curve_of(after, "new", "fold"))
        self.assertEqual(after, before)


if __name__ == "__main__":
    unittest.main()
