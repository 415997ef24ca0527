"""What an NPU has and a CPU has not."""

from __future__ import annotations

from typing import Any, Callable


def function(name: str, why: str) -> Callable:
    """A function that says why it is not there, when it is called: scripts import more names than
    they use."""

    def absent(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{name}: not on a CPU: {why}")

    absent.__name__ = absent.__qualname__ = name.rsplit(".", 1)[-1]
    return absent
