"""Operations under way."""

from __future__ import annotations

from typing import Generic, Optional, TypeVar

from hccl import _hccl
from hccl._arguments import check_timeout

Result = TypeVar("Result")


class Handle(Generic[Result]):
    """An operation or message under way, from a method such as Communicator.iallreduce.

    Do not touch the arrays of the operation until it is done. The library keeps them alive until
    then, even if the handle is dropped. Without the handle, only later operations report a failure.
    Any thread may use a handle, also after the end of its communicator.
    """

    def __init__(
        self, pending: Optional[_hccl.PendingRequest], result: Result, name: str, owner: object
    ) -> None:
        """Called by hccl.Communicator, the owner, which must live until the operation is done. For
        igroup(), `pending` is None until the `with` block ends."""
        self._pending = pending
        self._owner = owner
        self._result = result
        self._name = name

    def wait(self, timeout: Optional[float] = None) -> Result:
        """Waits until the operation is done. Returns the result of the blocking method.

        Raises HcclError if the operation failed, and TimeoutError if it is not done after `timeout`
        seconds. After TimeoutError and after Ctrl-C the operation continues, and wait() may be
        called again. When the operation is done, every call returns or raises the same."""
        if not self._begun().wait(check_timeout("timeout", timeout)):
            raise TimeoutError(f"{self._name}: not done after {timeout} s; the operation goes on")
        return self._result

    def done(self) -> bool:
        """Returns whether the operation has ended, with success or failure. Never waits."""
        return self._begun().done()

    @property
    def source(self) -> int:
        """The rank whose message irecv() received. ValueError: the receive is not done, or the
        operation is not irecv()."""
        if self._name != "irecv":
            raise ValueError(f"source: only messages that are received have one, not {self._name}")
        return self._begun().source()

    def __repr__(self) -> str:
        if self._pending is None:
            state = "not begun"
        else:
            state = "done" if self._pending.done() else "under way"
        return f"<hccl.Handle {self._name}: {state}>"

    def _begun(self) -> _hccl.PendingRequest:
        if self._pending is None:
            raise RuntimeError(f"handle: its {self._name} begins at the end of the `with` block")
        return self._pending
