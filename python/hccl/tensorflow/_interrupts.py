"""Handles Ctrl-C while an op waits for other ranks. Python's handler runs only on the main thread,
which is inside TensorFlow and does not check for signals. So another thread reads signals from
Python's wake-up descriptor. If, after a second, the main thread is still at the same instruction
and the same op still waits, that other thread ends the op on all ranks. The main thread then
returns to Python and raises KeyboardInterrupt."""

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
    """Starts the thread, once in a process. waits() returns 0 if no op waits; otherwise it returns
    a number that stays the same while the same ops wait. abort(reason) ends these ops. Does nothing
    if another library has set the descriptor, or if the caller is not the main thread, which alone
    can set the descriptor."""
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
    """Resets the state in a forked child, which has its own signals."""
    current = signal.set_wakeup_fd(-1)
    if current != descriptor:
        signal.set_wakeup_fd(current)


def _serve(reader: socket.socket, waits: Callable[[], int], abort: Callable[[bytes], Any]) -> None:
    while signals := reader.recv(64):
        # A handler of the program may let the program continue, so no op is ended then.
        if signal.SIGINT in signals and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            _end_waits(waits, abort)


def _end_waits(waits: Callable[[], int], abort: Callable[[bytes], Any]) -> None:
    place = _place_of_main()
    waiting, since = waits(), time.monotonic()
    while _place_of_main() == place:  # else the main thread has raised KeyboardInterrupt
        time.sleep(_LOOK)
        now = waits()
        if now != waiting:
            waiting, since = now, time.monotonic()
        elif now and time.monotonic() - since > PATIENCE:
            with _no_python_in(tf.errors.InternalError):
                abort(_REASON.encode())
                while _place_of_main() == place and time.monotonic() - since < 10 * PATIENCE:
                    time.sleep(_LOOK)
            return


@contextlib.contextmanager
def _no_python_in(error: Any) -> Iterator[None]:
    """In this context TensorFlow makes the error without Python code. Python code would raise
    KeyboardInterrupt too early, and pybind11 would turn both exceptions into a RuntimeError."""
    made = error.__init__
    # The program gets an error with these values if the signal comes after the program has caught
    # KeyboardInterrupt.
    error._node_def = error._op = None
    error._message, error._error_code, error._experimental_payloads = _REASON, error_codes.INTERNAL, {}
    error.__init__ = Exception.__init__
    try:
        yield
    finally:
        error.__init__ = made


def _place_of_main() -> Any:
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    return frame, frame and frame.f_lasti
