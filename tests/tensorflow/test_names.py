"""Every name of the table for users exists at its path. Every name of Ascend's own packages exists and is a class, a
function, a module, a value, an option or an argument as there, or the table says that it is absent."""

import csv
import pathlib
import re
import subprocess
import sys

import tensorflow as tf
from conftest import run, said

HERE = pathlib.Path(__file__).resolve().parent
TABLE = HERE.parents[1] / "examples/tensorflow/names.md"
UPSTREAM = HERE / "npu_names.tsv"
ESTIMATOR = tf.__version__.startswith("2.15")
LOOK = """
import importlib
import inspect
import sys
import npu_bridge.npu_init

def found(path):
    if path.endswith("()"):
        return found(path[:-2])()
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        whole, _, last = path.rpartition(".")
        if not whole:
            raise
        return getattr(found(whole), last)

def takes(owner, name):
    try:
        owner(**{name: None})
    except TypeError as error:  # another argument may be missing
        return f"argument '{name}'" not in str(error) and f'argument "{name}"' not in str(error)
    except ValueError:  # of None
        pass
    return True

def kind_of(path, wanted):
    owner, _, name = path.rpartition(".")
    if wanted == "argument":
        return wanted if takes(found(owner), name) else "absent"
    try:
        value = found(path)
    except (AttributeError, ModuleNotFoundError):
        return "absent"
    if wanted == "option":
        setattr(found(owner), name, value)
        return wanted
    if inspect.ismodule(value) or inspect.isclass(value):
        return "module" if inspect.ismodule(value) else "class"
    return "function" if callable(value) else "value"

for line in sys.stdin.read().splitlines():
    path, kind = line.split()
    now = kind_of(path, kind)
    if now != kind:
        print("said:", path, now)
"""


def listed():
    """Returns the names of the table for users: those that are there, and those that are not."""
    there, absent = [], []
    for line in TABLE.read_text().splitlines():
        if line.startswith("| `"):
            letter = line.split("|")[2].strip()
            module, *names = re.findall(r"`([^`]+)`", line)
            (absent if letter == "N" else there).extend(f"{module}.{name}" for name in names)
    assert len(there) > 300 and len(absent) > 50
    return there, absent


def other_kinds(names):
    """Returns the names, of lines of a name and its kind, that are not of this kind, with what they are."""
    done = subprocess.run([sys.executable, "-c", LOOK], input="\n".join(names), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(line.split() for line in said(done.stdout))


def test_all_names_are_there():
    there, _ = listed()
    kinds = other_kinds(f"{name} any" for name in there)
    assert sorted(kinds) == sorted(there) and "absent" not in kinds.values(), kinds


def test_upstreams_names_are_there_or_listed_as_absent():
    _, absent = listed()
    with open(UPSTREAM, encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert len(rows) > 700
    if not ESTIMATOR:  # NPURunConfig's arguments need an Estimator
        rows = [row for row in rows if not row["module"].endswith(".NPURunConfig")]
    others = other_kinds(f"{row['module']}.{row['name']} {row['kind']}" for row in rows)
    unlisted = {name: kind for name, kind in others.items() if not any(f"{name}.".startswith(f"{x}.") for x in absent)}
    assert not unlisted, unlisted
    assert not set(absent) - set(others), "names.md calls them absent"


IMPORTS = """
import inspect
import npu_bridge.npu_init
from npu_bridge.npu_init import *
from npu_bridge.npu_init import os as of_the_star_import, session as client_session
from npu_bridge.estimator.npu_unary_ops import npu_unary_ops as in_its_module
from npu_bridge.estimator.npu.npu_config import NpuExecutePlacement
from npu_bridge import tf_adapter
from npu_device.npu_device import gen_npu_ops, global_npu_ctx, global_options, open as opened
from npu_device.configs.npu_config import NpuConfig

kinds = [inspect.ismodule(each) for each in (os, session, session_run_hook, in_its_module, npu_unary_ops)]
assert all(kinds), kinds
assert session.Session is tf.Session and session_run_hook.SessionRunHook is tf.train.SessionRunHook
assert issubclass(NpuEmptyHook, session_run_hook.SessionRunHook)
with session.Session() as sess:
    assert abs(sess.run(in_its_module.gelu(1.0)) - 0.8412) < 1e-3
with npu_scope.npu_variable_scope(NpuExecutePlacement.HOST):
    pass
assert isinstance(global_options(), NpuConfig) and global_npu_ctx() is None
handle = opened().as_default()
assert global_npu_ctx() is handle and handle.workers_num == 1
tf_adapter.PluginInit(tf_adapter.map_string_string({str(tf_adapter.AUTO_TUNE_MODE): "RL"}))
assert get_rank_size() == 1
tf_adapter.PluginFinalize()
for wrong in ("auto_tune_mode", "__path__"):
    assert not hasattr(tf_adapter, wrong)
print("all well")
"""


def test_names_are_of_upstreams_kinds():
    """Scripts import some names as modules; they can import and use these."""
    done = run("-c", IMPORTS)
    assert done.stdout.strip().endswith("all well"), done.stdout + done.stderr[-3000:]
