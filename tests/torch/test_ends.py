"""Programs that end without destroy_process_group(), while operations run."""

import json
import sys

import pytest
from conftest import HERE, run

CODES = {
    **dict.fromkeys(["nobody_waits", "callbacks", "compressed", "messages", "thread"], 0),
    "cleanup": 0,
    "code": 3,
    "exception": 1,
}


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_every_program_ends_with_its_own_code(transport, tmp_path):
    program = [sys.executable, HERE / "ranks" / "ends.py", tmp_path, *CODES]
    # Sixteen processes that import PyTorch take 100 s while 30 other processes use the two cores.
    ended = run(program, limit=400, HCCL_TRANSPORT=transport)
    codes = {way: [code, code] for way, code in CODES.items()}
    assert json.loads(ended.stdout) == codes, ended.stderr
    # After an exception the other rank gets the error at once. A handler that runs later gets errors, too.
    assert "rank 1 aborted the communicator: an exception ended its program" in ended.stderr
    # (On a busy machine a daemon thread may also get an error and print a traceback.)
    told = [line for line in ended.stderr.splitlines() if line.startswith("hccl: ")]
    assert sum("the process group has been shut down" in line for line in told) == 2, ended.stderr
    assert sum("no process group can be made" in line for line in told) == 2, ended.stderr
