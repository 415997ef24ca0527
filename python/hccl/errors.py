"""The exception of a failed library call."""

from __future__ import annotations


class HcclError(RuntimeError):
    """A call into the library failed. `code` is its HcclResult (21: a rank died, 9: timeout, …).
    The text names the operation and the ranks or the argument, and says what to do."""

    def __init__(self, code: int | str = "", text: str | None = None) -> None:
        """With at most a text the code is 4 (HCCL_E_INTERNAL): Horovod's programs raise this
        exception as HorovodInternalError(text)."""
        if text is None and not isinstance(code, str):
            raise TypeError(f"HcclError: the text of code {code} is missing")
        super().__init__(code if text is None else text)
        self.code = 4 if text is None else int(code)

    def __reduce__(self) -> tuple[type[HcclError], tuple[int, str]]:
        return type(self), (self.code, str(self))
