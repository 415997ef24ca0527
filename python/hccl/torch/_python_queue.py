"""The operations of a group, for the backend's form in Python: their order, Ctrl-C, and the end of
the group."""

from __future__ import annotations

import collections
import ctypes
import datetime
import logging
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Optional

import torch
import torch.distributed as dist
from hccl import HcclError
from hccl.torch._python_memory import Memory, unpack

_TIMEOUT = 9
# Before PyTorch 2.8, C++ does not keep the Python objects of operations alive. So this module keeps
# the last operations alive until the program waits for them.
_KEEPS = not hasattr(dist.AllreduceOptions(), "asyncOp")
_MOST_KEPT = 4096
_kept: dict[int, Any] = {}
_NO_LIMIT = datetime.timedelta(0)
_TIME_TO_RUN_PYTHON = 0.3
_SECONDS_AT_EXIT = 5.0
_SECONDS_OF_CALLBACKS = 2.0  # after an abort

_queues: weakref.WeakSet[Queue] = weakref.WeakSet()


def failure(error: HcclError, title: str) -> Exception:
    """Returns the error of an operation. Programs search the text for "Timed out"."""
    timed_out = "Timed out in " if error.code == _TIMEOUT else ""
    return dist.DistBackendError(f"hccl {title}: {timed_out}{error}")


class Waitable(dist.Work):
    """An operation for which programs wait."""

    def __init__(self, title: str, outputs: Any) -> None:
        super().__init__()
        self.title, self._outputs = title, outputs
        self._failure: Optional[Exception] = None
        self._future: Any = None
        self._shown: Any = None  # the future that programs get
        self._mutex = threading.Lock()

    def wait_done(self, seconds: float) -> bool:
        """Waits for the end of the operation; 0 means no limit. Returns False if time is over."""
        return True

    def is_completed(self) -> bool:
        return True

    def wait(self, timeout: datetime.timedelta = _NO_LIMIT) -> bool:
        seconds = max(timeout.total_seconds(), 0)
        if not self.wait_done(seconds):
            text = f"hccl:{self.title}: Timed out waiting for the operation, which goes on"
            raise dist.DistBackendError(text)
        if self._failure is not None:
            raise self._failure
        return True

    def exception(self) -> Optional[Exception]:
        return self._failure

    def is_success(self) -> bool:
        return self.is_completed() and self._failure is None

    def result(self) -> Any:
        self.wait()
        return list(self._outputs)

    def get_future(self) -> Any:
        with self._mutex:
            if self._shown is None:
                self._future = torch.futures.Future()
                self._shown = self._future.then(self._value)
                self._follow()
        return self._shown

    def _follow(self) -> None:
        """Completes the future when the operation is done, or at once if it is done."""
        self._future.set_result(None)

    def _value(self, _: Any) -> Any:
        """Returns the future's value. To report a failure, a callback must raise it: C++ ignores
        set_exception()."""
        if self._failure is not None:
            raise self._failure
        return list(self._outputs)


class _Operation(Waitable):
    """An operation in a queue."""

    def __init__(self, queue: Queue, title: str, run: Any, outputs: Any, limit: float) -> None:
        super().__init__(title, outputs)
        self._queue, self._run, self._limit = queue, run, limit
        self._over = threading.Lock()  # held until the operation is done
        self._over.acquire()
        self._settled = False
        if _KEEPS:
            _kept[id(self)] = self
            if len(_kept) > _MOST_KEPT:
                _kept.pop(next(iter(_kept)), None)

    def perform(self) -> None:
        try:
            self._queue.call(self._run, self.title, self._limit)
        except Exception as error:
            self._failure = error
        except BaseException as error:  # raised by a signal handler, in a callback that waits
            self._failure = dist.DistBackendError(repr(error))
        self._run = None  # frees its tensors before the operation completes
        with self._mutex:  # after this, get_future() completes a new future itself
            self._settled, future = True, self._future
        if future is not None:
            future.set_result(None)
        self._over.release()

    def is_completed(self) -> bool:
        return not self._over.locked()

    def wait_done(self, seconds: float) -> bool:
        self._queue.run_in_callback(self)
        _kept.pop(id(self), None)
        if not self._over.acquire(timeout=seconds or -1):
            return False
        self._over.release()
        return True

    def _follow(self) -> None:
        _kept.pop(id(self), None)
        if self._settled:
            super()._follow()


class _Done(Waitable):
    """An operation that is already done. issue() returns it to a caller that waited."""

    def wait(self, timeout: datetime.timedelta = _NO_LIMIT) -> bool:
        return True


DONE = _Done("done", [])


class Message(Waitable):
    """A send or receive under way. `post` passes the message to the library."""

    def __init__(
        self, call: str, post: Any, memory: Any, outputs: Any, peer: int, tag: int, limit: float
    ) -> None:
        super().__init__(call, outputs)
        self._memory, self._unfilled, self._limit = memory, outputs, limit
        try:
            self._request = post(Memory(memory), peer, tag)
        except HcclError as error:
            raise failure(error, call) from None

    def is_completed(self) -> bool:
        return bool(self._request.done()) and self.wait_done(0)

    def source_rank(self) -> int:
        self.wait()
        return int(self._request.source())

    _source_rank = source_rank

    def wait_done(self, seconds: float) -> bool:
        try:
            if not self._request.wait(seconds or self._limit):
                return False
            with self._mutex:
                outputs, self._unfilled = self._unfilled, []  # the program may write into them now
                unpack(self._memory, outputs)
        except HcclError as error:
            self._failure = failure(error, self.title)
        return True

    def _follow(self) -> None:
        end = self._future.set_result
        threading.Thread(target=lambda: end(self.wait_done(1e9)), daemon=True).start()


class Queue:
    """A communicator and its operations, which run one at a time. The first operation that the
    caller does not run itself starts the queue's thread."""

    def __init__(self, native: Any, whole: Optional[Queue]) -> None:
        self.native, self._whole, self.left = native, whole, False
        self._process, self._users, self._limit = os.getpid(), 1, -1.0
        self._mutex = threading.Lock()
        self._waiting: collections.deque[_Operation] = collections.deque()
        self._busy = False
        self._runner: Optional[int] = None  # the thread on which callbacks of operations run now
        self._thread: Optional[threading.Thread] = None
        self._wake = threading.Lock()  # released when the thread gets work
        self._wake.acquire()
        if whole is not None:
            whole._users += 1
        if _watch():
            native.run_on_main_thread()
        _queues.add(self)

    def check(self) -> None:
        if self._process != os.getpid():
            raise RuntimeError(
                "hccl: this process group was made before a fork and belongs to the parent. Make a "
                'new one in the child (init_process_group), or start processes with "spawn".'
            )
        if self.left:
            raise dist.DistBackendError("hccl: the process group has been shut down")

    def call(self, run: Callable[[], None], title: str, limit: float) -> None:
        try:
            if limit != self._limit and limit > 0:
                self.native.timeout = max(1, round(limit * 1000))
                self._limit = limit
            run()
        except HcclError as error:
            raise failure(error, title) from None

    def issue(self, title: str, run: Any, outputs: Any, limit: float, waits: bool) -> Any:
        """Runs the operation here if the caller waits and the queue is idle, or in a callback."""
        self.check()
        with self._mutex:
            here = waits and not self._busy
            self._busy = self._busy or here
        if here:
            try:
                self.call(run, title, limit)
            finally:
                self._give_on()
            return DONE
        operation = _Operation(self, title, run, outputs, limit)
        if self._runner == threading.get_ident():
            operation.perform()  # at once, because the operation of this callback has ended
            return operation
        with self._mutex:
            self._waiting.append(operation)
            start, self._busy = not self._busy, True
        if start:
            self._wake_thread()
        return operation

    def _give_on(self) -> None:
        with self._mutex:
            self._busy = bool(self._waiting)
        if self._busy:
            self._wake_thread()

    def _wake_thread(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="hccl_torch", daemon=True)
            self._thread.start()
        self._wake.release()

    def _serve(self) -> None:
        while True:
            self._wake.acquire()
            if self.left:
                return
            self._runner = threading.get_ident()
            while self._run_next():
                pass

    def _run_next(self) -> bool:
        with self._mutex:
            if not self._waiting:
                self._busy, self._runner = False, None
                return False
            operation = self._waiting.popleft()
        operation.perform()
        return True

    def run_in_callback(self, operation: _Operation) -> None:
        """On the thread of callbacks, which waits for `operation`, runs the earlier operations and
        then `operation`. On other threads, does nothing."""
        while self._runner == threading.get_ident() and not operation.is_completed():
            with self._mutex:
                each = self._waiting.popleft()
            each.perform()

    def abort(self, reason: str) -> None:
        if self._process == os.getpid() and not self.left:
            self.native.abort(reason)

    def drained(self, seconds: float) -> bool:
        """Waits until no operation and no message is under way. Returns False if time is over."""
        end = time.monotonic() + seconds
        if self._runner != threading.get_ident():
            last = _Operation(self, "end", lambda: None, (), 0)
            with self._mutex:
                busy = self._busy
                if busy:
                    self._waiting.append(last)
            if busy and not last.wait_done(max(seconds, 0.001)):
                return False
        while self.native.under_way():
            if time.monotonic() >= end:
                return False
            time.sleep(0.002)
        return True

    def end(self, patience: float, reason: str) -> None:
        """Ends the communicator. Operations get `patience` seconds; after that they are aborted."""
        if self.left or self._process != os.getpid():
            return
        if not self.drained(patience):
            self.native.abort(reason)
            if not self.drained(_SECONDS_OF_CALLBACKS):
                self.left = True  # a callback still runs
                return
        self.left = True
        if self._thread is not None and self._wake.locked():
            self._wake.release()
        self._leave()

    def _leave(self) -> None:
        """Leaves the communicator, after all groups that were made from it."""
        self._users -= 1
        if self._users:
            return
        try:
            self.native.destroy()
        except HcclError as error:
            logging.getLogger("hccl").warning("%s", failure(error, "destroy_process_group"))
        if self._whole is not None:
            self._whole._leave()


def end_groups(failed: bool) -> None:
    """Ends the groups that the program did not destroy. Called at the end of the program."""
    end = time.monotonic() + (0 if failed else _SECONDS_AT_EXIT)
    living = [each for each in _queues if not each.left]
    for each in living:
        if each._process == os.getpid():
            each.drained(max(end - time.monotonic(), 0.001))
    reason = ("its program ended while operations ran", "an exception ended its program")[failed]
    for each in living:
        each.end(0.001, reason)


# ---- Ctrl-C ----

_watches: Optional[bool] = None


def _watch() -> bool:
    """Makes Ctrl-C end operations that run on the main thread, or for which C++ code of the main
    thread waits. Returns False on another thread, or if the program itself uses Python's wake-up
    descriptor."""
    global _watches
    if _watches is None and threading.current_thread() is threading.main_thread():
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        _watches = before == -1
        if before != -1:
            signal.set_wakeup_fd(before)
            return False
        os.register_at_fork(after_in_child=_forget)
        threading.Thread(target=_abort_on_interrupt, args=(reader,), daemon=True).start()
    return bool(_watches)


def _forget() -> None:
    global _watches
    _watches = None
    if threading.current_thread() is threading.main_thread():
        signal.set_wakeup_fd(-1)


def _abort_on_interrupt(reader: int) -> None:
    ran = threading.Event()

    def set_ran(_: Any) -> int:
        ran.set()
        return 0

    note = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(set_ran)
    while True:
        numbers = os.read(reader, 64)
        if signal.SIGINT not in numbers:
            continue
        if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            continue
        ran.clear()  # abort only if the main thread cannot run Python's handler soon
        ctypes.pythonapi.Py_AddPendingCall(note, None)
        if not ran.wait(_TIME_TO_RUN_PYTHON):
            for each in list(_queues):
                each.abort("the program was interrupted (Ctrl-C)")
