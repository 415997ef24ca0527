"""Every name of the table for users exists at its path."""

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
