"""Functions that exist only on an NPU."""

from __future__ import annotations

from typing import Any, Callable


def function(name: str, why: str) -> Callable:
    """Makes a function that raises an error with the reason why it does not exist. It raises only
    when called, because scripts import more names than they use."""

    def absent(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{name}: not on a CPU: {why}")

    absent.__name__ = absent.__qualname__ = name.rsplit(".", 1)[-1]
    return absent
