"""vllm-ascend's client of libhccl.so, as its package ships it, gets NumPy's results without an NPU."""

import os
import pathlib
import subprocess
import sys
import zipfile

import hccl
import pytest

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = "vllm-ascend==0.23.0"
FILES = [f"vllm_ascend/distributed/device_communicators/{name}.py" for name in ("pyhccl_wrapper", "pyhccl")]
TIMEOUT = 300  # seconds; for a hang, not for speed


def run(*command, **environment):
    done = subprocess.run(
        [sys.executable, "-m", *map(str, command)], text=True, timeout=TIMEOUT,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="session")
def shipped(tmp_path_factory):
    """Returns a folder with the files. The package itself would install PyTorch for NPUs."""
    folder = tmp_path_factory.mktemp("shipped")
    only = ("--no-deps", "--only-binary", ":all:", "--python-version", "3.11")
    run("pip", "download", "--quiet", "--disable-pip-version-check", *only, "--dest", folder, PACKAGE)
    with zipfile.ZipFile(*folder.glob("*.whl")) as wheel:
        wheel.extractall(folder, FILES)
    return folder


@pytest.mark.parametrize("client", ["wrapper", "communicator"])
@pytest.mark.parametrize("ranks", [2, 3])
def test_results_are_numpys(client, ranks, shipped):
    (library,) = pathlib.Path(hccl.__file__).parent.glob("libhccl.so.?")
    start = ("torch.distributed.run", "--nproc-per-node", ranks, HERE / "client.py", client)
    output = run(*start, PYTHONPATH=str(shipped), HCCL_SO_PATH=str(library))
    assert output.count(": right") == ranks, output
