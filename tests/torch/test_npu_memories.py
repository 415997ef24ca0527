"""Scripts for NPUs that rely on two memories: the CPU's and the NPU's."""

import pytest
from conftest import HERE, torchrun


@pytest.mark.parametrize("program", ["two_memories.py", "npu_fsdp.py"])
def test_the_script_finds_nothing_wrong(program):
    done = torchrun(2, "-m", "hccl.torch", HERE / "ranks" / program)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(done.stdout.splitlines()) == ["rank 0 is done", "rank 1 is done"], done.stdout
