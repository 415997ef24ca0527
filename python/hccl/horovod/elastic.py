"""The part of Horovod's elastic training that all frameworks share: the state of a training run,
which can be saved and restored. The world never changes: it has the ranks that were started
together. When a rank dies, the state is restored, and the error that names the rank leaves the
function that `run` wraps."""

from __future__ import annotations

import copy
import functools
from typing import Any, Callable, Sequence

from hccl.errors import HcclError

HorovodInternalError = HcclError


class HostsUpdatedInterrupt(Exception):  # noqa: N818  Horovod's name
    """Never raised: hosts neither come nor go."""


class State:
    """The base of states. sync() copies rank 0's state to all ranks; commit() keeps a copy, to
    which restore() returns."""

    def save(self) -> None:
        raise NotImplementedError

    def restore(self) -> None:
        raise NotImplementedError

    def sync(self) -> None:
        raise NotImplementedError

    def register_reset_callbacks(self, callbacks: Sequence[Callable[[], None]]) -> None:
        """The callbacks are never called: the number of ranks does not change."""

    def commit(self) -> None:
        self.save()

    def check_host_updates(self) -> None:
        """Does nothing: hosts neither come nor go."""


class ObjectState(State):
    """A state of Python objects, which are attributes. bcast_object: broadcasts an object from rank
    0. get_rank: has no effect."""

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


def runner(*failures: type[BaseException]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns the decorator `run` of a framework. failures: the exceptions of its collectives."""

    def run(function: Callable[..., Any]) -> Callable[..., Any]:
        """Makes a function whose first argument is the state: it begins with rank 0's state. After
        the failure of a collective the state is the last committed one, and the error is raised."""

        @functools.wraps(function)
        def begin(state: State, *args: Any, **kwargs: Any) -> Any:
            state.sync()
            try:
                return function(state, *args, **kwargs)
            except failures:
                state.restore()
                raise

        return begin

    return run
