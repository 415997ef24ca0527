"""Runs the examples on two ranks, as their README does."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import tensorflow as tf

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "tensorflow"
BUILD = pathlib.Path(os.environ.get("HCCL_BUILD_DIR", EXAMPLES.parents[1] / "build"))
PROGRAMS = ["keras_fit", "custom_loop", "session_loop"]
if tf.__version__.startswith("2.15"):
    PROGRAMS.append("estimator")


@pytest.mark.parametrize("program", PROGRAMS)
def test_examples(program, tmp_path):
    command = ["mpirun", "--oversubscribe", "--allow-run-as-root", "-np", "2", sys.executable]
    done = subprocess.run(
        [*command, EXAMPLES / f"{program}.py", tmp_path],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = re.findall(r"(\d) of 2: accuracy ([\d.]+)", done.stdout)
    assert sorted(rank for rank, _ in found) == ["0", "1"], done.stdout
    assert min(float(accuracy) for _, accuracy in found) > 0.9, found
    assert len({accuracy for _, accuracy in found}) == 1
    tool = shutil.which("hccl-plan") or next(BUILD.rglob("hccl-plan"))
    traces = [tmp_path / f"hccl_trace_rank{rank}_0.pb" for rank in range(2)]
    plan = subprocess.run([tool, *traces], capture_output=True, text=True)
    assert plan.returncode == 0 and "2 ranks" in plan.stdout, plan.stdout + plan.stderr
