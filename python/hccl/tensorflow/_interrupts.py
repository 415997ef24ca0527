"""Ctrl-C while an op waits for other ranks. Python's handler runs on the main thread only, which is inside
TensorFlow then, and TensorFlow looks for no signals. So a thread hears of signals by Python's wake-up
descriptor, and if the main thread is still at the same place and the same op still waits after a
second, ends the op on all ranks. The main thread comes back, and raises KeyboardInterrupt."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from typing import Any, Callable, Iterator

import tensorflow as tf
from tensorflow.core.protobuf import error_codes_pb2 as error_codes

PATIENCE = 1.0  # seconds in which a step may end by itself
_LOOK = 0.05
_REASON = "Ctrl-C while TensorFlow waited for other ranks"


def watch(waits: Callable[[], int], abort: Callable[[bytes], Any]) -> None:
    """Once for a process. waits(): 0 if no op waits, else a number that stays the same as long as the
    same ops do; abort(reason) ends them. Only the main thread can ask for signals, and whoever has
    the descriptor already keeps it."""
    if threading.current_thread() is not threading.main_thread():
        return
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    if before != -1:
        signal.set_wakeup_fd(before)
        return
    os.register_at_fork(after_in_child=lambda: _let_go(writer.fileno()))
    arguments = (reader, waits, abort)
    threading.Thread(target=_serve, args=arguments, name="hccl-interrupts", daemon=True).start()


def _let_go(descriptor: int) -> None:
    """In a fork, whose signals are not its parent's."""
    current = signal.set_wakeup_fd(-1)
    if current != descriptor:
        signal.set_wakeup_fd(current)


def _serve(reader: socket.socket, waits: Callable[[], int], abort: Callable[[bytes], Any]) -> None:
    while signals := reader.recv(64):
        # A program's own handler may want to go on.
        if signal.SIGINT in signals and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            _end_waits(waits, abort)


def _end_waits(waits: Callable[[], int], abort: Callable[[bytes], Any]) -> None:
    place = _place_of_main()
    waiting, since = waits(), time.monotonic()
    while _place_of_main() == place:  # elsewhere: it has raised KeyboardInterrupt
        time.sleep(_LOOK)
        now = waits()
        if now != waiting:
            waiting, since = now, time.monotonic()
        elif now and time.monotonic() - since > PATIENCE:
            with _no_python_in(tf.errors.AbortedError):
                abort(_REASON.encode())
                while _place_of_main() == place and time.monotonic() - since < 10 * PATIENCE:
                    time.sleep(_LOOK)
            return


@contextlib.contextmanager
def _no_python_in(error: Any) -> Iterator[None]:
    """TensorFlow makes the error before the main thread is back in Python. If that ran Python code, it would
    raise KeyboardInterrupt there, and pybind11 would make a RuntimeError of the two."""
    made = error.__init__
    # For one that the program gets meanwhile, after it has caught KeyboardInterrupt.
    error._node_def = error._op = None
    error._message, error._error_code, error._experimental_payloads = _REASON, error_codes.ABORTED, {}
    error.__init__ = Exception.__init__
    try:
        yield
    finally:
        error.__init__ = made


def _place_of_main() -> Any:
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    return frame, frame and frame.f_lasti
