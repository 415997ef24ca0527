"""Runs JAX's collectives between CPU processes on hccl. docs/jax.md is the user's page.

`python -m hccl.jax program.py` runs a program unchanged. Without this command, the program itself
must call initialize(), or use() and jax.distributed.initialize(), before it imports jax."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import inspect
import os
import socket
import sys
from typing import Any, Callable, Optional

from hccl import _build
from hccl.errors import HcclError

_library: Optional[ctypes.CDLL] = None


def use() -> None:
    """Makes JAX run its collectives on CPUs by hccl: sets JAX_CPU_COLLECTIVES_IMPLEMENTATION and
    MPITRAMPOLINE_LIB, sets JAX_PLATFORMS to cpu unless it is set, and imports jax. Opens no
    connection. After use(), jax.distributed.initialize also joins the launcher's ranks, and raises
    ValueError if JAX numbers the processes differently. RuntimeError: jaxlib was imported before
    use()."""
    path = str(_build.library("libhccl_jax.so"))
    if os.environ.get("MPITRAMPOLINE_LIB") != path and "jaxlib" in sys.modules:
        raise RuntimeError("hccl.jax.use() comes too late: call it before jax is imported")
    os.environ["MPITRAMPOLINE_LIB"] = path
    os.environ["JAX_CPU_COLLECTIVES_IMPLEMENTATION"] = "mpi"
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    import jax

    if not hasattr(jax.distributed.initialize, "__wrapped__"):
        jax.distributed.initialize = _compared(jax.distributed.initialize)


def initialize() -> tuple[int, int]:
    """Joins the ranks that the launcher started, and makes them JAX's processes by
    jax.distributed.initialize: rank i is process i. Returns this rank and the number of ranks. The
    main thread must call it, once, before JAX computes. In a world of one rank, it does not call
    jax.distributed.initialize. Raises HcclError if the ranks cannot join."""
    use()
    import jax

    world, rank, size = _join()
    if size > 1:
        address = _coordinator(world, rank, size)
        jax.distributed.initialize(address, size, rank, coordinator_bind_address=address)
    return rank, size


def abort(reason: str) -> None:
    """Ends the collectives of all ranks, with `reason`. A rank that cannot continue calls it, on
    any thread. After that no ranks can compute together any more."""
    _native().HcclJaxAbort(reason.encode())


def _native() -> ctypes.CDLL:
    """Returns the library. MPItrampoline loads the same copy of the library."""
    global _library
    if _library is None:
        _library = ctypes.CDLL(str(_build.library("libhccl_jax.so")))
        _library.HcclGetLastErrorText.restype = ctypes.c_char_p
    return _library


def _check(result: int) -> None:
    if result != 0:
        raise HcclError(result, _native().HcclGetLastErrorText().decode(errors="replace"))


def _join() -> tuple[ctypes.c_void_p, int, int]:
    native, world = _native(), ctypes.c_void_p()
    rank, size = ctypes.c_uint32(), ctypes.c_uint32()
    _check(native.HcclJaxWorld(ctypes.byref(world)))
    _check(native.HcclGetRankId(world, ctypes.byref(rank)))
    _check(native.HcclGetRankSize(world, ctypes.byref(size)))
    return world, rank.value, size.value


def _coordinator(world: ctypes.c_void_p, rank: int, size: int) -> str:
    """Returns the address of JAX's coordinator, which runs in the process of rank 0: a loopback
    address if all ranks share it, else the address that hccl itself would give to other ranks. The
    port was free when it was chosen, and is probably still free."""
    native, width, as_bytes = _native(), 256, 7  # HCCL_DATA_TYPE_UINT8
    networks = ctypes.create_string_buffer(width * size)
    own, count = _network().ljust(width, b"\0"), ctypes.c_uint64(width)
    _check(native.HcclAllGather(own, networks, count, as_bytes, world, None))
    text = ctypes.create_string_buffer(width)
    if rank == 0:
        shared = networks.raw == own * size
        text.value = _free("127.0.0.1" if shared else _own_address()).encode()
    _check(native.HcclBroadcast(text, count, as_bytes, 0, world, None))
    return text.value.decode()


def _network() -> bytes:
    """Returns a text that only processes with the same loopback interface return."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        return f"{boot} {os.stat('/proc/self/ns/net').st_ino}".encode()
    except OSError:  # no /proc
        return socket.gethostname().encode()


def _own_address() -> str:
    """Returns the address that begins a root info. HCCL_IF_IP and HCCL_SOCKET_IFNAME apply. The
    root's socket listens until the process ends."""
    info = ctypes.create_string_buffer(4108)
    _check(_native().HcclGetRootInfo(info))
    return info.value.decode()


def _free(address: str) -> str:
    """Returns the address with a free port."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with contextlib.closing(socket.socket(family)) as probe:
        probe.bind((address, 0))
        port = probe.getsockname()[1]
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _compared(original: Callable[..., None]) -> Callable[..., None]:
    """Wraps jax.distributed.initialize: it raises ValueError if JAX and hccl number the ranks
    differently. If `python -m hccl.jax` has called it already, the program's call only compares."""

    @functools.wraps(original)
    def initialize(*args: Any, **options: Any) -> None:
        import jax

        _, rank, size = _join()
        if jax.distributed.is_initialized():
            given = inspect.signature(original).bind(*args, **options).arguments
            process, count = given.get("process_id"), given.get("num_processes")
        else:
            original(*args, **options)
            state = jax._src.distributed.global_state
            process, count = state.process_id, state.num_processes
        if process not in (None, rank) or count not in (None, size):
            raise ValueError(
                f"jax.distributed.initialize: this is process {process} of {count} for JAX, "
                f"but rank {rank} of {size} for the launcher and hccl"
            )

    return initialize
