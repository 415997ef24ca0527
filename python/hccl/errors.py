"""The exception of a failed library call."""

from __future__ import annotations


class HcclError(RuntimeError):
    """A call into the library failed. `code` is its HcclResult (21: a rank died, 9: timeout, …).
    The text names the operation and the ranks or the argument, and says what to do."""

    def __init__(self, code: int | str, text: str | None = None) -> None:
        """With a text alone the code is 4 (HCCL_E_INTERNAL): Horovod's programs raise this
        exception as HorovodInternalError(text)."""
        if text is None:
            code, text = 4, str(code)
        super().__init__(text)
        self.code = int(code)

    def __reduce__(self) -> tuple[type[HcclError], tuple[int, str]]:
        return type(self), (self.code, str(self))
