"""Helpers of the tests of TensorFlow: ranks as processes of this Python.

Ranks are forked from servers that have imported TensorFlow, as the import takes longer than most tests. Python itself
starts the ranks that run with `-m` or with a variable that an import may read. With fresh=True it also starts ranks of
the tests of imports, and some of each kind of program, because a user's ranks start in this way.
"""

import functools
import itertools
import os
import pathlib
import re
import socket
import subprocess
import sys

import forks

HERE = pathlib.Path(__file__).resolve().parent
TIMEOUT = 120  # seconds; for a hang, not for speed
os.environ.pop("PYTHONUNBUFFERED", None)  # it tears the lines of ranks that share a pipe
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
QUIET = {"HCCL_LOG": "off", "OMP_NUM_THREADS": "1", "TF_NUM_INTEROP_THREADS": "2"}
NOT_FOR_IMPORTS = ("ASCEND_", "CM_", "HCCL_", "NPU_", "RANK_")  # TensorFlow reads none of them


@functools.cache
def servers():
    """Returns two servers in turn. Their hash seeds differ, because ranks must not depend on an order of hashes."""
    both = [forks.Server(["tensorflow"], {**os.environ, **QUIET}) for _ in range(2)]
    return itertools.cycle(both)


def starter(command, fresh, environment):
    """Returns a function that starts the command with more variables."""
    command, variables = [*map(str, command)], {**os.environ, **QUIET, **environment}
    if not fresh and command[0] != "-m" and all(name.startswith(NOT_FOR_IMPORTS) for name in environment):
        return lambda more: forks.Process(next(servers()), command, {**variables, **more})
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return lambda more: subprocess.Popen([sys.executable, *command], env={**variables, **more}, **pipes)


def run(*command, fresh=False, **environment):
    """Runs one process of this Python; returns its result with its output."""
    process = starter(command, fresh, environment)({})
    try:
        output, errors = process.communicate(timeout=TIMEOUT)
    finally:
        process.kill()
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def start(size, *command, fresh=False, **environment):
    """Starts processes with the variables of torchrun. If one of them dies, the others run on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    places = [
        {"RANK": str(rank), "LOCAL_RANK": str(rank), "GROUP_RANK": "0"} for rank in range(size)
    ]
    common = {
        **{"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size), "GROUP_WORLD_SIZE": "1"},
        **{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": port},
    }
    rank = starter(command, fresh, environment)
    return [rank({**common, **place, **environment}) for place in places]


def printed(ranks):
    """Waits for all ranks and returns the errors and the output of each. They use two pipes: in one pipe a warning
    could split a line of the output, which the process writes in blocks of 8 KiB."""
    try:
        ended = [rank.communicate(timeout=TIMEOUT) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    return [f"{errors}\n{output}" for output, errors in ended]


def said(output):
    """Returns the answers that a rank's program prints as "said: TEXT". Other words may also occur in a path or in a
    warning of TensorFlow."""
    return re.findall(r"^said: (.*)", output, re.MULTILINE)


def on_ranks(size, *command, **options):
    """Runs the ranks, which must succeed, and returns the output of each."""
    ranks = start(size, *command, **options)
    outputs = printed(ranks)
    for number, (rank, output) in enumerate(zip(ranks, outputs)):
        assert rank.returncode == 0, f"rank {number}: {output[-6000:]}"
    return outputs
