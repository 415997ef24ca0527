"""The names that public scripts use, listed in npu_names.tsv: each exists, and is of the listed kind."""

import csv
import pathlib
import sys

from conftest import run

NAMES = pathlib.Path(__file__).resolve().parent / "npu_names.tsv"
PROGRAM = """
import hccl.torch; hccl.torch.as_npu()
import importlib, sys, types
import torch, torch_npu, apex

from apex.fp16_utils import *
from torch_npu.contrib.function import npu_ciou
assert network_to_half and npu_ciou is torch_npu.npu_ciou
assert hasattr(torch_npu, "npu_lstm") and not hasattr(torch_npu, "npu_xyz")
assert torch.ones(2).npu_format_cast(29).sum() == torch.npu_max(torch.eye(2), 1)[0].sum() == 2
weight = torch.ones(2, requires_grad=True)
optimizer = apex.optimizers.NpuFusedSGD([weight], 0.1)
apex.amp.initialize(torch.nn.Linear(1, 1), optimizer, opt_level="O0")

def found(path):
    if path.startswith("optimizer."):
        return getattr(optimizer, path.partition(".")[2])
    for end in range(path.count(".") + 1, 0, -1):
        parts = path.split(".")
        try:
            thing = importlib.import_module(".".join(parts[:end]))
        except ImportError:
            continue
        for part in parts[end:]:
            thing = getattr(thing, part)
        return thing

def says(call):
    try:
        call()
    except NotImplementedError as error:
        return "use " in str(error)

assert says(lambda: apex.optimizers.NpuFusedBertAdamV2([weight]))

def is_option(path):
    owner, _, name = path.rpartition(".")
    before = getattr(found(owner), name)
    setattr(found(owner), name, True)
    now = getattr(found(owner), name)
    setattr(found(owner), name, before)
    return now is True

is_class = lambda thing: isinstance(thing, type)
KINDS = {
    "module": lambda path: isinstance(found(path), types.ModuleType),
    "class": lambda path: is_class(found(path)),
    "function": lambda path: callable(found(path)) and not is_class(found(path)),
    "method": lambda path: isinstance(found(path), types.MethodType),
    "option": is_option,
}
for line in sys.argv[1].splitlines():
    name, kind = line.split()
    try:
        right = KINDS[kind](name)
    except Exception as error:
        right = repr(error)
    if right is not True:
        print(name, kind, right)
print("looked for", len(sys.argv[1].splitlines()))
"""


def test_names_that_scripts_use():
    with open(NAMES, encoding="utf-8") as file:
        rows = list(csv.DictReader((x for x in file if x[0] != "#"), delimiter="\t"))
    lines = "".join(f"{row['name']} {row['kind']}\n" for row in rows)
    done = run([sys.executable, "-c", PROGRAM, lines])
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"looked for {len(rows)}"]
    assert len(rows) >= 67
