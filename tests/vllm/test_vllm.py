"""The unchanged vLLM package generates the same tokens over hccl as over its own communicator."""

import functools
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

PROGRAM = pathlib.Path(__file__).with_name("generate.py")
sys.path.insert(0, str(PROGRAM.parents[1] / "support"))
from hosts import SUDO, two_hosts

TIMEOUT = 1800  # seconds; for a hang: vLLM takes minutes to start on a busy machine


def environment(**more):
    return {k: v for k, v in os.environ.items() if k not in ("VLLM_PLUGINS", "HCCL_LOG")} | more


def answer(returncode, output):
    found = re.search(r"^said: (.*)$", output, re.MULTILINE)
    assert returncode == 0 and found, output[-6000:]
    return json.loads(found[1])["tokens"]


@functools.cache
def generate(ranks, **variables):
    """Returns the tokens, and all output of the program."""
    ran = subprocess.run(
        [sys.executable, PROGRAM, "small", "--tensor-parallel-size", str(ranks)],
        env=environment(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT,
    )
    return answer(ran.returncode, ran.stdout), ran.stdout


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_tokens_of_its_own_communicator(ranks):
    own, output = generate(ranks)
    assert "backend=gloo" in output  # the installed package changes nothing by itself
    ours, output = generate(ranks, VLLM_PLUGINS="hccl")
    assert "backend=hccl" in output
    assert ours == own


def test_the_tokens_of_one_host_on_two():
    """The ranks get torchrun's variables."""
    with two_hosts() as names:
        ranks = [
            subprocess.Popen(
                [*SUDO, "ip", "netns", "exec", name, sys.executable, PROGRAM, "small"],
                env=environment(
                    **{"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"},
                    **{"MASTER_ADDR": "10.214.0.1", "MASTER_PORT": "29500", "VLLM_PLUGINS": "hccl"},
                    **{"VLLM_HOST_IP": f"10.214.0.{rank + 1}", "GLOO_SOCKET_IFNAME": "eth0"},
                    OMP_NUM_THREADS="1",
                ),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank, name in enumerate(names)
        ]
        try:
            outputs = [rank.communicate(timeout=TIMEOUT)[0] for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
    own, _ = generate(2)
    for rank, output in zip(ranks, outputs, strict=True):
        assert answer(rank.returncode, output) == own
