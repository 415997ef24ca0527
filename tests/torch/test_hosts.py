"""Several hosts: network namespaces, which need root, or sudo without a password."""

import os
import re
import subprocess
import sys

import pytest
from conftest import HERE, TIMEOUT

sys.path.insert(0, str(HERE.parent / "support"))
from hosts import SUDO, two_hosts


def torchrun_on_two_hosts(script, ranks, restarts, **environment):
    """Returns the output of the ranks; both agents must succeed."""
    options = ["--nnodes", "2", "--nproc-per-node", ranks, "--rdzv-backend", "c10d", "--rdzv-id", "hosts"]
    options += ["--rdzv-endpoint", "10.214.0.1:29400", "--max-restarts", restarts]
    with two_hosts() as names:
        agents = []
        for host, name in enumerate(names):
            torchrun = [sys.executable, "-m", "torch.distributed.run", *options]
            torchrun += ["--rdzv-conf", f"is_host={int(host == 0)}"]  # the two host names would be the same
            torchrun += ["--local-addr", f"10.214.0.{host + 1}", HERE / "ranks" / script]
            agents.append(
                subprocess.Popen(
                    [*SUDO, "ip", "netns", "exec", name, *torchrun],
                    env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )
        try:
            output = "".join(agent.communicate(timeout=3 * TIMEOUT)[0] for agent in agents)
        finally:
            for agent in agents:
                agent.kill()
    assert [agent.returncode for agent in agents] == [0, 0], output
    return output


def test_torchrun_on_two_hosts(tmp_path):
    """With the c10d rendezvous: right gradients, an error on all other ranks that names the killed rank, then new
    ranks."""
    output = torchrun_on_two_hosts("hosts.py", "2", "2", FOLDER=str(tmp_path))
    for attempt in (1, 2):  # in the first attempt a rank is killed before it has joined
        for rank in range(4):
            assert f"attempt {attempt}: rank {rank} of 4 is right" in output, output
    heard = re.findall(r"rank (\d) hears: (.*)", output)
    assert sorted(rank for rank, _ in heard) == ["0", "1", "2"], output
    assert all("rank 3" in text for _, text in heard), output


def secret_file(folder):
    secret = folder / "secret"
    secret.touch(0o600)
    secret.write_bytes(os.urandom(32))
    return str(secret)


def test_places_of_ranks_on_two_hosts(tmp_path):
    output = torchrun_on_two_hosts("places.py", "1", "0", HCCL_JOB_SECRET_FILE=secret_file(tmp_path))
    assert sorted(re.findall("said: (.*)", output)) == ["0 (0, 2, True, 1)", "1 (1, 2, True, 1)"], output


@pytest.mark.parametrize("ranks, roundings", [(1, "1"), (2, "2")])
def test_sums_of_16_bits_over_hosts(tmp_path, ranks, roundings):
    """One rank on each host: rounded once; two: inside the host and between hosts."""
    secret = secret_file(tmp_path)
    output = torchrun_on_two_hosts("halves.py", str(ranks), "0", ROUNDINGS=roundings, HCCL_JOB_SECRET_FILE=secret)
    assert output.count("is within the bound") == 2 * ranks, output


def test_a_process_left_over_on_another_host(tmp_path):
    """The process's agent has one rank, and counts the same number of restarts in both attempts."""
    secret = secret_file(tmp_path)
    output = torchrun_on_two_hosts("left_over.py", "1", "1", FOLDER=str(tmp_path), HCCL_JOB_SECRET_FILE=secret)
    for way in ("by_variables", "by_store"):
        assert re.search(f"old rank 1 {way}: .*two processes claim rank 1", output), output
        for rank in range(2):
            assert f"new rank {rank} {way}: 3.0" in output, output
