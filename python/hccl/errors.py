"""The exception of a failed library call."""

from __future__ import annotations

import enum

# The numbers of hccl_types.h, from 0 on.
HcclResult = enum.IntEnum(
    "HcclResult",
    "HCCL_SUCCESS HCCL_E_PARA HCCL_E_PTR HCCL_E_MEMORY HCCL_E_INTERNAL HCCL_E_NOT_SUPPORT "
    "HCCL_E_NOT_FOUND HCCL_E_UNAVAIL HCCL_E_SYSCALL HCCL_E_TIMEOUT HCCL_E_OPEN_FILE_FAILURE "
    "HCCL_E_TCP_CONNECT HCCL_E_ROCE_CONNECT HCCL_E_TCP_TRANSFER HCCL_E_ROCE_TRANSFER HCCL_E_RUNTIME "
    "HCCL_E_DRV HCCL_E_PROFILING HCCL_E_CCE HCCL_E_NETWORK HCCL_E_AGAIN HCCL_E_REMOTE "
    "HCCL_E_SUSPENDING HCCL_E_OPRETRY_FAIL HCCL_E_OOM",
    start=0,
)


class HcclError(RuntimeError):
    """A call into the library failed. `code` is its HcclResult (HCCL_E_REMOTE, 21: a rank died;
    HCCL_E_TIMEOUT, 9; …). The text names the operation and the ranks or the argument, and says what to do."""

    def __init__(self, code: int | str = "", text: str | None = None) -> None:
        """With at most a text the code is 4 (HCCL_E_INTERNAL): Horovod's programs raise this
        exception as HorovodInternalError(text)."""
        if text is None and not isinstance(code, str):
            raise TypeError(f"HcclError: the text of code {code} is missing")
        super().__init__(code if text is None else text)
        self.code = 4 if text is None else int(code)

    def __reduce__(self) -> tuple[type[HcclError], tuple[int, str]]:
        return type(self), (self.code, str(self))
