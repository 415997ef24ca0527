"""vLLM as its package has it generates the same tokens over hccl as over its own communicator."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

PROGRAM = pathlib.Path(__file__).with_name("generate.py")
TIMEOUT = 600  # seconds; for a hang: vLLM takes minutes to start on a busy machine


def generate(plugins, ranks):
    """The program's answer and all it printed; without `plugins`, VLLM_PLUGINS is not set."""
    environment = {k: v for k, v in os.environ.items() if k not in ("VLLM_PLUGINS", "HCCL_LOG")}
    if plugins is not None:
        environment["VLLM_PLUGINS"] = plugins
    ran = subprocess.run(
        [sys.executable, PROGRAM, "small", "--tensor-parallel-size", str(ranks)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT,
    )
    answer = re.search(r"^said: (.*)$", ran.stdout, re.MULTILINE)
    assert ran.returncode == 0 and answer, ran.stdout[-6000:]
    return json.loads(answer[1]), ran.stdout


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_tokens_of_its_own_communicator(ranks):
    own, output = generate(None, ranks)
    assert "backend=gloo" in output  # the installed package alone changes nothing
    ours, output = generate("hccl", ranks)
    assert "backend=hccl" in output
    assert ours["tokens"] == own["tokens"]
