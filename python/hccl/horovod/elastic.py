"""The part of Horovod's elastic training that all frameworks share: the state of a training run,
which can be saved and restored. When a rank dies, the state is restored. With PyTorch and on one
host, the living ranks then continue in a new world; otherwise the function that `run` wraps raises
the error that names the dead rank. New ranks never join."""

from __future__ import annotations

import copy
import functools
from typing import Any, Callable, Sequence

from hccl.errors import HcclError

HorovodInternalError = HcclError


class HostsUpdatedInterrupt(Exception):  # noqa: N818  Horovod's name
    """Never raised, because no host joins."""


class State:
    """The base of states. sync() copies rank 0's state to all ranks; commit() saves a copy of the
    state, and restore() returns to that copy."""

    _callbacks: tuple[Callable[[], None], ...] = ()

    def save(self) -> None:
        raise NotImplementedError

    def restore(self) -> None:
        raise NotImplementedError

    def sync(self) -> None:
        raise NotImplementedError

    def register_reset_callbacks(self, callbacks: Sequence[Callable[[], None]]) -> None:
        """Sets callbacks that run when the function starts again with fewer ranks."""
        self._callbacks += tuple(callbacks)

    def on_reset(self) -> None:
        for callback in self._callbacks:
            callback()

    def commit(self) -> None:
        self.save()

    def check_host_updates(self) -> None:
        """Does nothing, because no host joins."""


class ObjectState(State):
    """A state whose attributes are Python objects. bcast_object: a function that broadcasts an
    object from rank 0. get_rank has no effect."""

    def __init__(
        self, bcast_object: Callable[..., Any], get_rank: Callable[[], int], **objects: Any
    ) -> None:
        self._broadcast, self._names = bcast_object, list(objects)
        self.__dict__.update(objects)
        self._saved = copy.deepcopy(objects)

    def save(self) -> None:
        self._saved = copy.deepcopy({name: getattr(self, name) for name in self._names})

    def restore(self) -> None:
        for name, value in copy.deepcopy(self._saved).items():
            setattr(self, name, value)

    def sync(self) -> None:
        for name, value in self._broadcast({n: getattr(self, n) for n in self._names}).items():
            setattr(self, name, value)
        self.save()


def runner(
    *failures: type[BaseException], go_on: Callable[[], bool] = lambda: False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns the decorator `run` of a framework. failures: the exceptions of its collectives.
    go_on: joins a world of the living ranks, and returns whether training can continue there."""

    def run(function: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps a function whose first argument is the state. The function begins with rank 0's
        state. If a collective fails, the last committed state is restored, and then the function
        begins again or the error is raised."""

        @functools.wraps(function)
        def begin(state: State, *args: Any, **kwargs: Any) -> Any:
            while True:
                try:
                    state.sync()
                    return function(state, *args, **kwargs)
                except failures:
                    state.restore()
                    if not go_on():
                        raise
                state.on_reset()

        return begin

    return run
