"""The example of LightGBM gives the same model as LightGBM's own connections."""

import re
import socket
import subprocess
import sys

from conftest import ROOT, mpirun

EXAMPLE = ROOT / "examples" / "lightgbm"
OWN = """
import sys
from digits import train
rank, ports = int(sys.argv[1]), sys.argv[2].split(",")
machines = ",".join(f"127.0.0.1:{port}" for port in ports)
train(rank, 2, machines=machines, local_listen_port=int(ports[rank]))[0].save_model(sys.argv[3])
"""


def trees(path):
    """Returns the model without its parameters, which contain the connections."""
    return path.read_text().split("\nparameters:")[0]


def test_the_trees_are_those_of_lightgbms_own_connections(tmp_path):
    done = mpirun(2, sys.executable, EXAMPLE / "digits.py", tmp_path / "hccl.txt")
    assert re.search(r"^ranks: 2; right: 8[5-9]\.\d% of", done.stdout, re.MULTILINE), done
    with socket.create_server(("", 0)) as one, socket.create_server(("", 0)) as other:
        ports = ",".join(str(each.getsockname()[1]) for each in (one, other))
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", OWN, str(rank), ports, tmp_path / f"own{rank}.txt"], cwd=EXAMPLE
        )
        for rank in range(2)
    ]
    assert [rank.wait(timeout=120) for rank in ranks] == [0, 0]
    assert trees(tmp_path / "hccl.txt") == trees(tmp_path / "own0.txt") == trees(tmp_path / "own1.txt")


def test_one_rank_needs_no_connections(tmp_path):
    done = mpirun(1, sys.executable, EXAMPLE / "digits.py")
    assert "ranks: 1; right: 8" in done.stdout, done
