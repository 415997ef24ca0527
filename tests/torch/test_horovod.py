"""Scripts that import horovod.torch, without Horovod."""

import os
import re
import subprocess
import sys

import pytest
from conftest import HERE, TIMEOUT, run

MPIRUN = ("mpirun", "--oversubscribe", "--allow-run-as-root", "-np", "2")
RUNS = (sys.executable, "-m", "hccl.horovod")


def test_names_on_two_ranks():
    done = run([*MPIRUN, *RUNS, HERE / "ranks" / "horovod_names.py"])
    assert done.stdout.count("all well") == 2, done.stdout + done.stderr[-6000:]


def test_shapes_are_compared():
    done = run([*MPIRUN, *RUNS, HERE / "ranks" / "horovod_shapes.py"])
    cases = re.findall('^    "(.*)": ', (HERE / "ranks" / "horovod_shapes.py").read_text(), re.MULTILINE)
    assert done.stdout.count("all well") == 2, done.stdout + done.stderr[-6000:]
    assert len(cases) == 17 and all(done.stdout.count(f"said: {case}\n") == 2 for case in cases), done.stdout


def started(rank, *command, size=2):
    """Starts a rank with the variables of torchrun. If a rank dies, the others run on."""
    world = {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size), "GROUP_WORLD_SIZE": "1", "GROUP_RANK": "0"}
    place = {"RANK": str(rank), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(os.getpid())}
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCHELASTIC_RUN_ID": f"hvd{os.getpid()}"}
    words = [str(word) for word in command]
    return subprocess.Popen(
        words, env={**environment, **world, **place}, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def outputs_of(ranks):
    try:
        return [rank.communicate(timeout=TIMEOUT) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()


def test_a_rank_that_ends_is_named():
    ranks = [started(rank, *RUNS, HERE / "ranks" / "horovod_ends.py") for rank in range(2)]
    outputs = outputs_of(ranks)
    for output, _ in outputs:
        (text,) = re.findall(r"said: (.*)", output)
        assert "rank 1 called barrier" in text and "rank 0 called allreduce" in text, outputs


def test_the_ranks_that_live_go_on():
    ranks = [started(rank, *RUNS, HERE / "ranks" / "horovod_elastic.py", size=3) for rank in range(3)]
    outputs = outputs_of(ranks)
    for new, old in enumerate([0, 2]):
        # Two committed steps with the mean of 1, 2 and 3, and three steps with the mean of 1 and 2.
        said = f"said: {new} of 2 here {new} of 2: [2] 4 -0.850 3.0\n"
        assert outputs[old][0] == said, outputs
    assert ranks[1].returncode == -9


def test_a_rank_that_dies_while_states_are_synchronised_is_survived():
    script = HERE / "ranks" / "horovod_elastic.py"
    ranks = [started(rank, *RUNS, script, "sync", size=3) for rank in range(3)]
    outputs = outputs_of(ranks)
    for new, old in enumerate([0, 2]):
        assert outputs[old][0].startswith(f"said: {new} of 2 here {new} of 2: [2] 4 "), outputs
    assert ranks[1].returncode == -9


def test_a_folder_of_that_name_is_no_horovod(tmp_path):
    (tmp_path / "horovod").mkdir()
    script = tmp_path / "script.py"
    script.write_text("import horovod.torch as hvd\nhvd.init()\nprint(hvd.__name__, hvd.size())\n")
    done = run([*RUNS, script], PYTHONPATH=str(tmp_path))
    assert done.stdout.endswith(" 1\n"), done.stdout + done.stderr


def test_horovod_run_says_how_to_start(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import sys, horovod\nprint(sys.argv[1:], sys.path[0])\nhorovod.run(print, np=2)\n")
    done = run([*RUNS, script, "word"])
    assert done.stdout == f"['word'] {tmp_path}\n"
    assert re.search("NotImplementedError: .*mpirun.*torchrun.*srun", done.stderr), done.stderr


def test_an_installed_horovod_wins(tmp_path):
    (tmp_path / "horovod").mkdir()
    (tmp_path / "horovod" / "__init__.py").write_text("real = True\n")
    text = "import hccl.horovod as h; h.install(); h.install(); import horovod; print(horovod.real)"
    done = run([sys.executable, "-c", text], PYTHONPATH=str(tmp_path))
    assert done.stdout == "True\n" and done.stderr.count(f"{tmp_path}/horovod/__init__.py") == 1, done.stderr


def test_install_imports_no_framework_and_reaches_children():
    text = """
import sys, hccl.horovod
hccl.horovod.install()
assert not {"torch", "tensorflow"} & sys.modules.keys()
import horovod
if __name__ == "__main__":
    import horovod.torch.elastic, horovod.torch.mpi_ops, multiprocessing
    from hccl.horovod import torch
    assert horovod.torch.mpi_ops.allreduce is torch.allreduce
    print(multiprocessing.get_context("spawn").Pool(1).apply(eval, ("__import__('horovod').__version__",)))
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("0."), done.stderr
