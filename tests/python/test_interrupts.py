"""Waits for other ranks, and for an incomplete rank table: Ctrl-C ends them, and other Python threads run on."""

import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import hccl
import numpy as np
import pytest
from conftest import TIMEOUT, environment
from waits import until_it_sleeps

# A process with two ranks: one in a thread that only joins, and one in the main thread, which then waits for the
# first.
PROGRAM = """
import sys, threading, time
import hccl, numpy as np
info = hccl.root_info()
def idle():
    other = hccl.Communicator.from_root_info(info, 2, 1)
    time.sleep(1000)
threading.Thread(target=idle, daemon=True).start()
if "join" in sys.argv:
    print("waiting", flush=True)
    hccl.Communicator.from_root_info(hccl.root_info(), 2, 0)
comm = hccl.Communicator.from_root_info(info, 2, 0)
array = np.zeros(1000, np.float32)
fusion = hccl.Fusion(comm, [("a", array)], hcom_parallel=True)
def wait():
    fusion.ready(0)
    fusion.wait()
print("waiting", flush=True)
try:
    {"allreduce": lambda: comm.allreduce(array), "recv": lambda: comm.recv(array, 1),
     "barrier": comm.barrier, "fusion": wait, "handle": lambda: comm.ibarrier().wait()}[sys.argv[1]]()
except KeyboardInterrupt:
    print("interrupted", flush=True)
    if sys.argv[1] in ("recv", "handle"):  # may go on
        comm.abort("it cannot go on")
    try:
        comm.barrier()
    except hccl.HcclError as error:
        print(error, flush=True)
    fusion.close()
    comm.destroy()
    if "quietly" in sys.argv:
        sys.exit(7)
    raise
"""


# After its end, Python ends threads that want its lock. The threads below check for signals.
ENDS = """
import threading, time
import hccl, numpy as np
info = hccl.root_info()
def wait():
    comm = hccl.Communicator.from_root_info(info, 2, 1)
    comm.irecv(np.zeros(1000), 0).wait()
threading.Thread(target=wait, daemon=True).start()
comm = hccl.Communicator.from_root_info(info, 2, 0)
for tag in range(4):
    threading.Thread(target=comm.irecv(np.zeros(1000), 1, tag=tag).wait, daemon=True).start()
time.sleep(0.2)
class Last:
    def __del__(self, sleep=time.sleep):  # Python's end takes a while
        sleep(0.2)
comm.last = Last()
print("all right", flush=True)
"""


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_python_may_end_while_threads_wait(transport):
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", ENDS],
            env={**environment(), "HCCL_TRANSPORT": transport},
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
        assert (done.returncode, done.stdout) == (0, "all right\n"), done.stderr


@pytest.mark.parametrize("what", ["allreduce", "recv", "handle", "barrier", "fusion", "join"])
@pytest.mark.parametrize("how", ["loudly", "quietly"])
def test_ctrl_c(what, how):
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, what, how],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell that runs tests in the background makes them and their children ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        assert process.stdout.readline() == "waiting\n"
        until_it_sleeps(process.pid)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=TIMEOUT)  # the other rank sleeps for longer
    finally:
        process.kill()
    if what == "join":
        assert "KeyboardInterrupt" in errors
        assert process.returncode == -signal.SIGINT
        return
    assert "interrupted" in output and "cannot go on" in output
    assert process.returncode == (7 if how == "quietly" else -signal.SIGINT), errors


@pytest.mark.parametrize("on_main_thread", [True, False])
def test_other_threads_run_during_a_wait(on_main_thread):
    info = hccl.root_info()
    ticks = []

    def late():
        with hccl.Communicator.from_root_info(info, 2, 1) as comm:
            for _ in range(20):
                time.sleep(0.01)
                ticks.append(time.monotonic())
            comm.allreduce(np.zeros(10))

    def early():
        with hccl.Communicator.from_root_info(info, 2, 0) as comm:
            comm.allreduce(np.zeros(10))

    threads = [threading.Thread(target=late)]
    if not on_main_thread:
        threads.append(threading.Thread(target=early))
    for thread in threads:
        thread.start()
    if on_main_thread:
        early()
    for thread in threads:
        thread.join(TIMEOUT)
        assert not thread.is_alive()
    assert len(ticks) == 20


def test_a_handler_that_does_not_raise_does_not_end_the_wait():
    info = hccl.root_info()
    seen, handled = [], threading.Event()
    before = signal.signal(signal.SIGUSR1, lambda *_: (seen.append(1), handled.set()))

    def late():
        with hccl.Communicator.from_root_info(info, 2, 1) as comm:
            time.sleep(0.3)
            os.kill(os.getpid(), signal.SIGUSR1)
            assert handled.wait(TIMEOUT)  # handled during the other rank's wait, not after it
            comm.allreduce(np.ones(1))

    thread = threading.Thread(target=late)
    try:
        thread.start()
        with hccl.Communicator.from_root_info(info, 2, 0) as comm:
            assert comm.allreduce(np.ones(1))[0] == 2
    finally:
        thread.join(TIMEOUT)
        signal.signal(signal.SIGUSR1, before)
    assert len(seen) == 1


def test_an_incomplete_rank_table_is_waited_for_as_ranks_are(tmp_path):
    """The wait lasts as long as HCCL_CONNECT_TIMEOUT, and not half an hour."""
    table = tmp_path / "table.json"
    table.write_text('{"status": "initializing", "version": "1.0", "server_count": "0", "server_list": []}')
    done = subprocess.run(
        [sys.executable, "-c", "import hccl; hccl.init()"],
        env={**os.environ, "RANK_TABLE_FILE": str(table), "RANK_ID": "0", "HCCL_CONNECT_TIMEOUT": "1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert 'a status other than "completed"' in done.stderr, done.stderr


LEAVES = """
import sys, time
import hccl, numpy as np
comm, array = hccl.init(), np.ones(4, np.float32)
comm.allreduce(array)
if comm.rank == 1:
    sys.exit(0)
begin = time.monotonic()
try:
    comm.allreduce(array)
except hccl.HcclError as error:
    said = f"{time.monotonic() - begin} {error}"
    print("said:", said)
"""


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_a_rank_whose_program_ends_is_named(transport):
    """The rank has left and has not died; the ranks that wait for it get an error that says so."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {"WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    common |= {"TORCHELASTIC_RUN_ID": port, "HCCL_TRANSPORT": transport, "HCCL_LOG": "off"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", LEAVES],
            env={**environment(), **common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(3)
    ]
    outputs = [rank.communicate(timeout=TIMEOUT)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0, 0], outputs
    for rank in (0, 2):
        took, text = re.search(r"^said: (\S+) (.*)", outputs[rank], re.MULTILINE).groups()
        assert "rank 1" in text and "has left" in text, outputs
        assert "allreduce #1 (count 4, fp32, sum)" in text, outputs  # its last operation
        assert float(took) < 10  # 20 ms if nothing else runs


LEAVES_IN_MPI = """
import os, pathlib
folder = pathlib.Path(os.environ["FOLDER"])
(folder / f"{comm.rank}.text").write_text(f"{os.getpid()} {said}")
os.rename(folder / f"{comm.rank}.text", folder / str(comm.rank))
while not all((folder / str(rank)).exists() for rank in (0, 2)):  # mpirun ends the others when one has ended
    time.sleep(0.01)
"""


def test_a_rank_whose_program_ends_in_mpi_is_named(tmp_path):
    """MPI's exit handler calls MPI_Finalize, which waits for the other ranks. These wait for this rank."""
    mpirun = subprocess.Popen(
        ["mpirun", "-np", "3", sys.executable, "-c", LEAVES + LEAVES_IN_MPI],
        env={**environment(), "HCCL_TRANSPORT": "mpi", "HCCL_LOG": "off", "HCCL_FLIGHT_RECORDER_DIR": "off"}
        | {"FOLDER": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    files, late = [tmp_path / "0", tmp_path / "2"], time.monotonic() + TIMEOUT
    try:
        ended = False
        while not all(file.exists() for file in files):
            assert not ended and time.monotonic() < late
            ended = mpirun.poll() is not None
            time.sleep(0.05)
        for pid, text in (file.read_text().split(maxsplit=1) for file in files):
            assert re.search("rank 1 .*has left", text), text
            while pathlib.Path(f"/proc/{pid}/exe").exists():  # mpirun itself may hang when its ranks have ended
                assert time.monotonic() < late, f"{pid} hangs"
                time.sleep(0.05)
    finally:
        mpirun.kill()
        mpirun.wait()
