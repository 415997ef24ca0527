"""Makes Ascend's names that have no effect on a CPU, or that cannot exist there."""

from __future__ import annotations

import contextlib
import inspect
from typing import Any, Callable, ContextManager, Iterator

from hccl.tensorflow import _log


def absent(name: str, why: str) -> Callable[..., Any]:
    """Returns a function that raises NotImplementedError with the reason `why`. Importing the name
    raises nothing, because scripts import more names than they use."""

    def raise_why(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{name}: not on a CPU: {why}")

    raise_why.__name__ = raise_why.__qualname__ = name.rsplit(".", 1)[-1]
    return raise_why


def scope(name: str, *required: str, **optional: Any) -> Callable[..., ContextManager[None]]:
    """Returns a function with these parameters that returns a context without effect."""
    parameters = {**dict.fromkeys(required, inspect.Parameter.empty), **optional}
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature(
        [inspect.Parameter(each, kind, default=value) for each, value in parameters.items()]
    )

    @contextlib.contextmanager
    def nothing() -> Iterator[None]:
        _log.without_effect(name)
        yield

    def checked(*args: Any, **kwargs: Any) -> ContextManager[None]:
        signature.bind(*args, **kwargs)
        return nothing()

    return checked


class Context:
    """A context without effect. Scripts use it by `with` or by start() and stop()."""

    def __enter__(self) -> Any:
        self.start()
        return self

    def __exit__(self, *exception: Any) -> None:
        self.stop()

    def start(self) -> None:
        _log.without_effect(type(self).__name__)

    def stop(self) -> None:
        pass
