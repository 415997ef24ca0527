"""Streams, events and marks of torch.npu. A call has finished its work when it returns, except for
collectives that the program issues without waiting. So a stream is only a name. Each thread has a
current stream."""

import contextlib
import itertools
import threading
import time
from typing import Any, Iterator, Optional

import torch


class _Current(threading.local):
    """The streams that this thread has entered. The last one is the current stream."""

    def __init__(self) -> None:
        self.streams = [_DEFAULT]


class Stream:
    """A stream has nothing to wait for. Collectives run in streams of their own, as on NPUs."""

    _numbers = itertools.count()

    def __init__(
        self, device: Any = None, priority: int = 0, stream_id: Optional[int] = None, **_: Any
    ) -> None:
        self.device = torch.device("cpu")
        self.priority = priority
        self.stream_id = next(self._numbers) if stream_id is None else stream_id
        self.npu_stream = self.cuda_stream = 0  # the null address, because no library has a stream

    @staticmethod
    def priority_range() -> tuple:
        """Returns the lowest and the highest priority, which are equal."""
        return 0, 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.stream_id == self.stream_id

    def __hash__(self) -> int:
        return hash(self.stream_id)

    def synchronize(self) -> None:
        pass

    wait_stream = wait_event = lambda self, other: None

    def query(self) -> bool:
        return True

    def record_event(self, event: Optional["Event"] = None) -> "Event":
        event = event or Event()
        event.record(self)
        return event

    def __enter__(self) -> "Stream":
        _current.streams.append(self)
        return self

    def __exit__(self, *_: Any) -> None:
        _current.streams.pop()


_DEFAULT = Stream()
_current = _Current()


class StreamContext:
    """Makes a stream the current stream in a `with` statement. None has no effect."""

    def __init__(self, stream: Optional[Stream]) -> None:
        self.stream = stream

    def __enter__(self) -> Optional[Stream]:
        if self.stream is not None and not torch.compiler.is_compiling():
            self.stream.__enter__()
        return self.stream

    def __exit__(self, *_: Any) -> None:
        if self.stream is not None and not torch.compiler.is_compiling():
            self.stream.__exit__()


def stream(stream: Optional[Stream]) -> StreamContext:
    return StreamContext(stream)


def current_stream(device: Any = None) -> Stream:
    return _current.streams[-1]


def set_stream(stream: Optional[Stream]) -> None:
    if stream is not None:
        _current.streams[-1] = stream


class Event:
    """Records a time."""

    def __init__(
        self,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        **_: Any,
    ) -> None:
        self._time: Optional[float] = None

    def record(self, stream: Any = None) -> None:
        self._time = time.perf_counter()

    def elapsed_time(self, end: "Event") -> float:
        """Returns milliseconds. RuntimeError: one of the two events was not recorded."""
        if self._time is None or end._time is None:
            raise RuntimeError("both events must be recorded before calculating elapsed time")
        return (end._time - self._time) * 1e3

    def synchronize(self) -> None:
        pass

    wait = lambda self, stream=None: None  # noqa: E731

    def query(self) -> bool:
        return True


class mstx:
    """Marks and ranges, which torch's profiler shows."""

    _numbers = itertools.count(1)
    _ranges: dict = {}

    @staticmethod
    def mark(message: str = "", stream: Any = None, domain: Any = None) -> None:
        with torch.profiler.record_function(message):
            pass

    @classmethod
    def range_start(cls, message: str, stream: Any = None, domain: Any = None) -> int:
        number = next(cls._numbers)
        cls._ranges[number] = torch.profiler.record_function(message).__enter__()
        return number

    @classmethod
    def range_end(cls, range_id: int, domain: Any = None) -> None:
        started = cls._ranges.pop(range_id, None)
        if started is not None:
            started.__exit__(None, None, None)

    @staticmethod
    def mstx_range(message: str, stream: Any = None, domain: Any = None) -> Any:
        """Returns a decorator that makes each call of a function a range."""
        return torch.profiler.record_function(message)


# ---- torch.cuda.nvtx, after import torch_npu.contrib.transfer_to_npu ----

_pushed: list = []


def _push(message: str) -> int:
    _pushed.append(mstx.range_start(message))
    return len(_pushed) - 1


def _pop() -> int:
    if _pushed:
        mstx.range_end(_pushed.pop())
    return len(_pushed)


@contextlib.contextmanager
def _range(message: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    with torch.profiler.record_function(message.format(*args, **kwargs)):
        yield


NVTX: dict = {
    "mark": mstx.mark,
    "range_start": mstx.range_start,
    "range_end": mstx.range_end,
    "range_push": _push,
    "range_pop": _pop,
    "range": _range,
}


def contents() -> dict:
    """Returns the names of torch.npu for streams."""
    return {
        "Stream": Stream,
        "Event": Event,
        "StreamContext": StreamContext,
        "stream": stream,
        "set_stream": set_stream,
        "current_stream": current_stream,
        "default_stream": lambda device=None: _DEFAULT,
        "is_current_stream_capturing": lambda: False,
        "mstx": mstx,
    }
