"""Every name of the table for users is there, by the path that it says."""

import pathlib
import re

from conftest import run

TABLE = pathlib.Path(__file__).resolve().parents[2] / "examples/tensorflow/names.md"
LOOK = """
import importlib
import npu_bridge.npu_init

def found(path):
    if path.endswith("()"):
        return found(path[:-2])()
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        whole, _, last = path.rpartition(".")
        return getattr(found(whole), last)

print([f"{path}.{name}" for path, names in ROWS for name in names if not hasattr(found(path), name)])
"""


def test_all_names_are_there():
    rows = [re.findall(r"`([^`]+)`", line) for line in TABLE.read_text().splitlines() if line.startswith("| `")]
    assert len(rows) > 30 and sum(map(len, rows)) > 200
    done = run("-c", LOOK.replace("ROWS", repr([(row[0], row[1:]) for row in rows])))
    assert done.stdout.strip() == "[]", done.stdout + done.stderr[-3000:]
