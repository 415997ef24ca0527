"""JAX between processes, on hccl. The programs in ranks/ compare with NumPy."""

import os
import pathlib
import re
import signal
import socket
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
from hosts import SUDO, two_hosts

DIGITS = HERE.parents[1] / "examples" / "jax" / "digits.py"
TIMEOUT = 180  # seconds; for a hang, not for speed
os.environ.pop("PYTHONUNBUFFERED", None)  # it tears the lines of ranks that share a pipe
QUIET = {"HCCL_LOG": "off", "OMP_NUM_THREADS": "1"}


def start(size, *command, **environment):
    """Starts processes with the variables of torchrun. If one of them dies, the others run on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size), "GROUP_RANK": "0"}
    common.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, TORCHELASTIC_RUN_ID=port)
    return [
        subprocess.Popen(
            [sys.executable, *map(str, command)],
            env={**os.environ, **QUIET, **common, "RANK": str(rank), "LOCAL_RANK": str(rank), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]


def printed(ranks):
    """Waits until all ranks have ended; returns the errors and the output of each."""
    try:
        ended = [rank.communicate(timeout=TIMEOUT) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    return [f"{errors}\n{output}" for output, errors in ended]


def on_ranks(size, *command, **environment):
    """Runs the ranks, which must succeed, and returns the output of each."""
    ranks = start(size, *command, **environment)
    outputs = printed(ranks)
    for number, (rank, output) in enumerate(zip(ranks, outputs)):
        assert rank.returncode == 0, f"rank {number}: {output[-6000:]}"
    return outputs


def said(output):
    return re.findall(r"^said: (.*)", output, re.MULTILINE)


@pytest.mark.parametrize("size", [2, 4])
def test_collectives(size):
    outputs = [said(output) for output in on_ranks(size, "-m", "hccl.jax", HERE / "ranks" / "collectives.py")]
    assert all(output == outputs[0] for output in outputs)
    right = {case for case in outputs[0] if "refused" not in case}
    types = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64"]
    kinds = ["psum", "psum_scatter", "all_gather", "ppermute", "ppermute to one", "all_to_all", "pmax", "pmin"]
    assert {f"{kind} {name}" for kind in kinds for name in [*types, "bfloat16", "float32 large"]} <= right
    assert {f"{kind} {name}" for kind in kinds[:6] for name in ("complex64", "complex128")} <= right
    assert {f"{kind} bool" for kind in kinds[2:]} <= right
    assert "jit" in right
    groups = {f"{kind} {order}" for kind in ("rows", "columns", "both") for order in ([0, 1, 2, 3], [3, 2, 1, 0])}
    assert size == 2 or groups <= right
    # XLA itself refuses these calls, before it calls the library.
    refused = {case for case in outputs[0] if "refused" in case}
    assert all("float16 refused: INVALID_ARGUMENT: Unsupported primitive type" in case for case in refused), refused


def test_the_digits_are_learned_as_by_one_process():
    accuracies = set()
    for size in (1, 2, 4):
        output = "".join(on_ranks(size, "-m", "hccl.jax", DIGITS, "--epochs", 10))
        found = re.findall(rf"^{size} processes: .* accuracy (0\.\d+)$", output, re.MULTILINE)
        assert len(found) == 1, output
        accuracies.add(float(found[0]))
    assert min(accuracies) > 0.9 and max(accuracies) - min(accuracies) < 0.01, accuracies


def test_started_by_mpirun():
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    command = ["mpirun", "--oversubscribe", "-np", "2", sys.executable, "-m", "hccl.jax"]
    done = subprocess.run(
        [*command, HERE / "ranks" / "collectives.py", "int32"],
        env={**os.environ, **QUIET, **root},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("said: psum int32") == 2, done.stdout + done.stderr


def test_a_rank_that_is_killed_is_named():
    ranks = start(2, "-m", "hccl.jax", HERE / "ranks" / "failing.py", 1, "kill")
    survivor = printed(ranks)[0]
    assert ranks[1].returncode == -signal.SIGKILL
    assert ranks[0].returncode == 1, survivor
    assert re.search(r"^hccl\.jax: .*rank 1 .*died", survivor, re.MULTILINE), survivor
    assert re.search(r"^\w+Error: .*rank 1 .*died", survivor, re.MULTILINE), survivor


@pytest.mark.parametrize("culprit", [0, 1])
def test_a_program_that_fails_ends_the_others(culprit):
    ranks = start(2, "-m", "hccl.jax", HERE / "ranks" / "failing.py", culprit, "raise")
    outputs = printed(ranks)
    assert "ValueError: the data is bad" in outputs[culprit]
    assert ranks[culprit].returncode == 1
    assert ranks[1 - culprit].returncode != 0
    assert f"rank {culprit} ended with ValueError: the data is bad" in outputs[1 - culprit]


def test_a_programs_own_initialize(tmp_path):
    """A program's own initialize is harmless if it agrees with hccl. If it numbers the processes differently, it is
    refused."""
    program = (
        "import os, jax, jax.numpy as jnp\n"
        "def join(process):\n"
        "    jax.distributed.initialize('127.0.0.1:1', num_processes=2, process_id=process)\n"
        "join(int(os.environ['RANK']))\n"
        "print('said: process', jax.process_index(), 'of', jax.process_count())\n"
        "try:\n"
        "    join(1 - int(os.environ['RANK']))\n"
        "except ValueError as error:\n"
        "    print('said:', error)\n"
    )
    path = tmp_path / "program.py"
    path.write_text(program)
    for rank, output in enumerate(on_ranks(2, "-m", "hccl.jax", path)):
        assert said(output)[0] == f"process {rank} of 2"
        assert f"process {1 - rank} of 2 for JAX, but rank {rank} of 2" in said(output)[1]


def test_processes_that_no_launcher_started_are_refused():
    """hccl would take each process for a world of one rank, whose sums would be wrong without an error."""
    program = (
        "import hccl.jax, sys; hccl.jax.use(); import jax\n"
        "jax.distributed.initialize(sys.argv[1], num_processes=2, process_id=int(sys.argv[2]))\n"
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", program, address, str(rank)],
            env={**os.environ, **QUIET},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for output in printed(ranks):
        assert "but rank 0 of 1 for the launcher and hccl" in output, output


def test_an_mpi_function_that_jax_does_not_call_names_itself():
    program = (
        "import ctypes, hccl._build\n"
        "library = ctypes.CDLL(str(hccl._build.library('libhccl_jax.so')))\n"
        "print('said:', library.MPIABI_Scatterv())\n"
    )
    output = on_ranks(1, "-c", program)[0]
    assert said(output) != ["0"] and "hccl.jax: MPI_Scatterv: hccl has only" in output, output


def test_use_after_jax_is_refused():
    program = (
        "import jax, hccl.jax\n"
        "try:\n"
        "    hccl.jax.use()\n"
        "except RuntimeError as error:\n"
        "    print('said:', error)\n"
    )
    assert "too late" in said(on_ranks(1, "-c", program)[0])[0]


def test_several_devices_of_a_process_are_refused(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(
        "import jax, numpy as np\n"
        "from jax.sharding import Mesh, NamedSharding, PartitionSpec as P\n"
        "jax.config.update('jax_num_cpu_devices', 2)\n"
        "mesh = Mesh(np.array(jax.devices()), 'i')\n"
        "data = jax.make_array_from_callback((4,), NamedSharding(mesh, P('i')), lambda at: np.ones(4)[at])\n"
        "total = lambda v: jax.lax.psum(v, 'i')\n"
        "print(jax.jit(jax.shard_map(total, mesh=mesh, in_specs=P('i'), out_specs=P()))(data))\n"
    )
    ranks = start(2, "-m", "hccl.jax", path)
    for rank, output in zip(ranks, printed(ranks)):
        assert rank.returncode != 0 and "hccl supports one for each process" in output, output


def test_arrays_of_jax_are_never_written():
    """Covers bfloat16, too, which NumPy's buffer protocol lacks."""
    text = """
import hccl
import jax.numpy as jnp
comm = hccl.init()
for dtype in jnp.float32, jnp.bfloat16:
    x = jnp.ones(2, dtype)
    for call in lambda: comm.allreduce(x, postscale=3.0), lambda: comm.irecv(x, 0):
        try:
            call()
        except ValueError as error:
            print("said:", error)
    print("said:", x.tolist())
"""
    done = subprocess.run([sys.executable, "-c", text], env={**os.environ, **QUIET}, capture_output=True, text=True)
    refused = "array: is read-only, but is to be written"
    assert said(done.stdout) == 2 * [refused, refused, "[1.0, 1.0]"], done.stdout + done.stderr


def test_two_hosts_of_one_name(tmp_path):
    """The ranks cannot resolve each other's names, and the names are equal, so only addresses tell the hosts apart."""
    secret = tmp_path / "secret"
    secret.touch(0o600)
    secret.write_bytes(os.urandom(32))
    common = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "10.214.0.1"}
    common.update(MASTER_PORT="29500", TORCHELASTIC_RUN_ID="names", HCCL_JOB_SECRET_FILE=str(secret))
    program = [sys.executable, "-m", "hccl.jax", HERE / "ranks" / "hosts.py"]
    with two_hosts() as names:
        ranks = [
            subprocess.Popen(
                [*SUDO, "ip", "netns", "exec", name, *program],
                env={**os.environ, **QUIET, **common, "RANK": str(host), "GROUP_RANK": str(host)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for host, name in enumerate(names)
        ]
        outputs = printed(ranks)
    assert [said(output) for output in outputs] == [["3.0, as 10.214.0.1 listens"]] * 2, outputs
