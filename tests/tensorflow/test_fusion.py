"""Lists of gradients that are fused into segments."""

import json
import os
import pathlib
import shutil
import subprocess

import pytest
from conftest import HERE, on_ranks, said

RANKS = HERE / "ranks"
BUILD = pathlib.Path(os.environ.get("HCCL_BUILD_DIR", HERE.parents[1] / "build"))


@pytest.mark.parametrize("size", [2, 4])
def test_segments_are_numpys(size, tmp_path):
    outputs = on_ranks(size, RANKS / "fused.py", tmp_path / "traces")
    assert all("all well" in output for output in outputs)
    first = [tmp_path / "traces" / f"hccl_trace_rank{rank}_0.pb" for rank in range(size)]
    events = json.loads(first[0].with_suffix(".json").read_text())["traceEvents"]
    assert any("allreduce2" in event["name"] for event in events)  # segments of the strategy
    tool = shutil.which("hccl-plan") or next(BUILD.rglob("hccl-plan"))
    report = tmp_path / "plan.json"
    subprocess.run([tool, *first, "--json", report], check=True, stdout=subprocess.DEVNULL)
    plan = json.loads(report.read_text())
    assert plan["traced_ranks"] == size and len(plan["today"]["last_indices"]) == 2
    # Backward computes the last gradient first.
    assert plan["gradients"][0]["bytes"] == 0 and plan["gradients"][3]["bytes"] == 400000


@pytest.mark.parametrize(
    "how, text",
    [("sizes", "elements on rank 0"), ("rules", "by different rules")]
    + [(how, "different shapes on ranks 0 and 2") for how in ("shapes", "list")]
    + [("none", "ranks compare the names of its tensors; here ")]
    + [(how, "of shape [") for how in ("allreduce", "broadcast")],
)
def test_lists_that_differ_are_an_error_on_all_ranks(how, text, tmp_path):
    for rank, output in enumerate(on_ranks(3, RANKS / "unequal.py", how, tmp_path)):
        (error,) = said(output)
        assert error.startswith("InvalidArgumentError ") and text in error, output
        assert how != "none" or ("bias" in error) == (rank != 2), error  # rank 2 has no such gradient
        if how in ("sizes", "shapes", "none", "list", "broadcast"):
            assert "kernel" in error, error  # the gradient's name


def test_traces_that_cannot_be_written_are_a_warning(tmp_path):
    """The training has ended well, and the ranks leave in good order."""
    (tmp_path / "file").write_text("in the way")
    outputs = on_ranks(2, RANKS / "fused.py", tmp_path / "file")
    assert all("all well" in output and "no traces in" in output for output in outputs), outputs


def test_a_rank_that_skips_a_list_is_named(tmp_path):
    outputs = on_ranks(3, RANKS / "unequal.py", "skip", tmp_path, HCCL_EXEC_TIMEOUT="15")  # traces come within 15 s
    for output in outputs[:2]:
        (error,) = said(output)
        assert error.startswith("DeadlineExceededError ") and "rank 2" in error, outputs
