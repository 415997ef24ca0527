"""The exception of a failed library call."""

from __future__ import annotations


class HcclError(RuntimeError):
    """A call into the library failed. `code` is its HcclResult (21: a rank died, 9: timeout, …).
    The text names the operation and the ranks or the argument, and says what to do."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code

    def __reduce__(self) -> tuple[type[HcclError], tuple[int, str]]:
        return type(self), (self.code, str(self))
